"""
wheel-timer: store a task with a moment, get an HTTP callback at that moment.

This package is the library, the client side and the command line. It never imports `broker` or
`daemon`; those are the two programs of the server, and they import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wheel_timer.version import __version__

if TYPE_CHECKING:
    from wheel_timer.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    """The clients when they are asked for: httpx takes a tenth of a second to import."""
    if name not in ("AsyncClient", "Client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wheel_timer import client

    return getattr(client, name)
