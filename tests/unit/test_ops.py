"""/healthz, /readyz and /metrics of a process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from wheel_timer import ops
from wheel_timer.ops import Health, ops_routes


class Role:
    """A role whose readiness the test decides."""

    def __init__(self) -> None:
        self.is_ready = True
        self.shown: dict[str, Any] = {}
        self.hangs = False

    async def ready_check(self) -> tuple[bool, dict[str, Any]]:
        if self.hangs:
            await asyncio.Event().wait()
        return self.is_ready, self.shown


@pytest.fixture
def role() -> Role:
    return Role()


@pytest.fixture
def health(role: Role) -> Health:
    return Health(role.ready_check)


async def get(
    health: Health, path: str, may_read_metrics: Any = None, **headers: str
) -> httpx.Response:
    app = Starlette(routes=ops_routes(health, may_read_metrics))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://ops") as client:
        return await client.get(path, headers=headers)


async def test_healthz_depends_on_nothing(role: Role, health: Health) -> None:
    role.hangs = True
    response = await get(health, "/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert response.headers["cache-control"] == "no-store"


async def test_a_ready_process_says_what_is_degraded(role: Role, health: Health) -> None:
    role.shown = {"degraded": ["event_center"]}
    response = await get(health, "/readyz")
    assert response.status_code == 200
    assert response.json() == {"status": "ready", "degraded": ["event_center"]}


async def test_a_process_that_cannot_work_is_not_ready(role: Role, health: Health) -> None:
    role.is_ready, role.shown = False, {"reason": "no database"}
    response = await get(health, "/readyz")
    assert response.status_code == 503
    assert response.json() == {"status": "unavailable", "reason": "no database"}


async def test_a_check_that_hangs_is_a_no(
    role: Role, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "READY_CHECK_S", 0.01)
    role.hangs = True
    assert (await get(health, "/readyz")).status_code == 503


async def test_a_draining_process_is_not_ready_but_healthy(health: Health) -> None:
    health.drain()
    assert (await get(health, "/readyz")).status_code == 503
    assert (await get(health, "/healthz")).status_code == 200


async def test_metrics_are_for_those_who_may_read_them(health: Health) -> None:
    def refuse(request: Request) -> Response | None:
        return None if "authorization" in request.headers else Response(status_code=401)

    assert (await get(health, "/metrics", refuse)).status_code == 401
    response = await get(health, "/metrics", refuse, authorization="Bearer x")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
