"""
The port of every process that machines look at: /healthz, /readyz, /metrics.

/healthz says that the event loop turns, and depends on nothing. /readyz says that this role can do
its work now. A broker mounts these routes beside its API, a daemon on a port of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wheel_timer import metrics

ReadyCheck = Callable[[], Awaitable[tuple[bool, dict[str, Any]]]]
READY_CHECK_S = 5.0


class Health:
    """
    Whether this process is ready.

    ready_check: (may work be sent here?, what to show beside it: `degraded`, `reason`). One that
    takes longer than READY_CHECK_S is a no.
    """

    def __init__(self, ready_check: ReadyCheck) -> None:
        self._ready_check = ready_check
        self._is_draining = False

    def drain(self) -> None:
        """From now on not ready: SIGTERM has come, the load balancer is to notice."""
        self._is_draining = True

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """The answer of /readyz, and its body."""
        if self._is_draining:
            return False, {"status": "draining"}
        try:
            async with asyncio.timeout(READY_CHECK_S):
                is_ready, shown = await self._ready_check()
        except TimeoutError:
            return False, {"status": "unavailable", "reason": "no answer in time"}
        return is_ready, {"status": "ready" if is_ready else "unavailable", **shown}


def ops_routes(
    health: Health, may_read_metrics: Callable[[Request], Response | None] | None = None
) -> list[Route]:
    """
    The three routes. They answer GET and HEAD, uncached.

    may_read_metrics: the answer to a caller who may not (401, 403), None to one who may.
    """

    async def healthz(_: Request) -> Response:
        return _json(200, {"status": "ok"})

    async def readyz(_: Request) -> Response:
        is_ready, shown = await health.ready()
        return _json(200 if is_ready else 503, shown)

    async def show_metrics(request: Request) -> Response:
        refusal = may_read_metrics(request) if may_read_metrics is not None else None
        if refusal is not None:
            return refusal
        # Reading the files of all workers takes tens of milliseconds; callbacks must not wait.
        text = await asyncio.to_thread(metrics.scrape)
        return Response(text, media_type=metrics.CONTENT_TYPE, headers=_UNCACHED)

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", show_metrics),
    ]


_UNCACHED = {"cache-control": "no-store"}


def _json(status: int, body: dict[str, Any]) -> Response:
    return Response(
        msgspec.json.encode(body), status, headers=_UNCACHED, media_type="application/json"
    )
