"""Requests that say all by their path: a verb on something, without a body."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from starlette.requests import Request

from broker.api.context import Context
from broker.api.decoding import decode


class _Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


_NOTHING: Final = msgspec.json.Decoder(_Nothing)


async def read_nothing(context: Context, request: Request) -> None:
    """Raises InvalidTask where the body says anything: it would be passed over."""
    body = await context.bodies.read(request)
    if body.strip():
        decode(_NOTHING, body)
