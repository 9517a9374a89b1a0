"""The version, once: both distributions, the CLI, the user agent and `build_info` read it here."""

from __future__ import annotations

__version__ = "0.1.0"
