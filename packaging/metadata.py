"""
The extras of the client's distribution.

They pull wheel-timer-server, which must be of the same version; written here, the version stands
once, in wheel_timer/version.py.
"""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Extras(MetadataHookInterface):
    """Fills in `optional-dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        server = f"wheel-timer-server=={metadata['version']}"
        metadata["optional-dependencies"] = {
            "server": [server],
            "embedded": [f"wheel-timer-server[embedded]=={metadata['version']}"],
            "otel": [f"wheel-timer-server[otel]=={metadata['version']}"],
        }
