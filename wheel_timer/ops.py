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
from wheel_timer.errors import Forbidden, Unauthorized

Sees = Callable[[str], bool]
Reader = Callable[[Request], Awaitable[Sees | None]]
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


async def sees_all(_: Request) -> Sees | None:
    """The reader of a process whose metrics are for everyone, or judged elsewhere."""
    return None


def ops_routes(health: Health, reader: Reader = sees_all) -> list[Route]:
    """
    The three routes. They answer GET and HEAD, uncached.

    reader: which biz_types the caller's part of the metrics is about; None: all of it. Raises
    Unauthorized or Forbidden where they are not for this caller.
    """

    async def healthz(_: Request) -> Response:
        return _json(200, {"status": "ok"})

    async def readyz(_: Request) -> Response:
        is_ready, shown = await health.ready()
        return _json(200 if is_ready else 503, shown)

    async def show_metrics(request: Request) -> Response:
        try:
            sees = await reader(request)
        except Unauthorized:
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        except Forbidden:
            return Response(status_code=403)
        # Reading the files of all workers takes tens of milliseconds; callbacks must not wait.
        text = await asyncio.to_thread(metrics.scrape, sees)
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
