"""/healthz, /readyz and /metrics of a process."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from wheel_timer import metrics, ops
from wheel_timer.errors import Forbidden, Unauthorized
from wheel_timer.ops import Health, Reader, Sees, ops_routes, sees_all


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
    health: Health, path: str, reader: Reader = sees_all, **headers: str
) -> httpx.Response:
    app = Starlette(routes=ops_routes(health, reader))
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
    async def reader(request: Request) -> Sees | None:
        given = request.headers.get("authorization")
        if given is None:
            raise Unauthorized("a key is needed")
        if given == "lacks":
            raise Forbidden("another scope")
        return None if given == "all" else lambda biz_type: biz_type == given

    for biz_type in ("orders", "payments", metrics.OTHER):
        metrics.tasks_submitted(biz_type, 1)
    assert (await get(health, "/metrics", reader)).status_code == 401
    assert (await get(health, "/metrics", reader, authorization="lacks")).status_code == 403
    everything = await get(health, "/metrics", reader, authorization="all")
    assert everything.status_code == 200
    assert everything.headers["content-type"].startswith("text/plain; version=0.0.4")
    part = (await get(health, "/metrics", reader, authorization="orders")).text
    series = [line for line in part.splitlines() if not line.startswith("#")]
    counted = 'wheel_timer_tasks_submitted_total{biz_type="orders"} '
    assert any(line.startswith(counted) for line in series)
    assert all('biz_type="orders"' in line for line in series)
    assert 'biz_type="payments"' in everything.text
    other = (await get(health, "/metrics", reader, authorization=metrics.OTHER)).text
    assert all(line.startswith("#") for line in other.splitlines())
