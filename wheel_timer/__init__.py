"""
wheel-timer: store a task with a moment, get an HTTP callback at that moment.

This package is the library, the client side and the command line. It never imports `broker` or
`daemon`; those are the two programs of the server, and they import this.
"""

from __future__ import annotations

from wheel_timer.version import __version__

__all__ = ["__version__"]
