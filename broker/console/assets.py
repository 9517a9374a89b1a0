"""
Style, scripts and symbols: served from memory, under names that carry a hash of what they hold, so
that a browser never asks twice and never keeps an old one.
"""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from wheel_timer.errors import NotFound

PREFIX: Final = "/console/static/"
_DIRECTORY: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """One file: its name with the hash in it, its content plain and packed, its media type."""

    name: str
    content: bytes
    packed: bytes
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Every file that is served, by its plain name."""
    found = {}
    for path in sorted(_DIRECTORY.iterdir()):
        if path.suffix not in _TYPES:
            continue  # a licence
        content = path.read_bytes()
        name = f"{path.stem}.{sha256(content).hexdigest()[:12]}{path.suffix}"
        found[path.name] = Asset(name, content, gzip.compress(content), _TYPES[path.suffix])
    return found


@cache
def _by_hashed_name() -> dict[str, Asset]:
    return {asset.name: asset for asset in assets().values()}


def asset_path(name: str) -> str:
    """Where a page finds a file."""
    return PREFIX + assets()[name].name


def serve(request: Request) -> Response:
    """A file by its hashed name. Raises NotFound."""
    asset = _by_hashed_name().get(request.scope["path"].removeprefix(PREFIX))
    if asset is None:
        raise NotFound("there is no such file")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(asset.packed, 200, headers, asset.media_type)
    return Response(asset.content, 200, headers, asset.media_type)
