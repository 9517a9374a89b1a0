"""What the client sends for schedules, and what it makes of the answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
import pytest

from wheel_timer import AsyncClient, Client

SHOWN: Final = {
    "schedule_id": "00000000-0000-0000-0000-000000000007",
    "biz_type": "orders",
    "name": "a/b",
    "version": 3,
    "cron": "0 9 * * *",
    "timezone": "UTC",
    "enabled": True,
    "next_time": "2027-01-15T09:00:00.000Z",
    "start_after": None,
    "end_before": None,
    "misfire": "once",
    "misfire_after": 60.0,
    "overlap": "allow",
    "jitter": 0.0,
    "content_type": None,
    "callback": None,
    "create_time": "2026-01-15T09:00:00.000Z",
    "update_time": "2026-01-15T09:00:00.000Z",
    "biz_data_base64": "/wA=",
}
RUN: Final = {
    "task_id": "01a3194a-5980-8000-bf5c-afa2555e1bf4",
    "start_time": "2027-01-15T09:00:00.000Z",
    "schedule_id": SHOWN["schedule_id"],
}
COMING: Final = {"scheduled_time": RUN["start_time"], "start_time": RUN["start_time"]}


class Server:
    """Answers as one would, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, path, body))
        if request.method == "DELETE":
            return httpx.Response(204)
        if path.endswith("/run"):
            return httpx.Response(201, json=RUN)
        if "/upcoming" in path:
            item = COMING | {"task_id": RUN["task_id"]}
            return httpx.Response(200, json={"enabled": True, "items": [item]})
        if path.startswith("/v1/schedules"):
            return httpx.Response(200, json={"items": [SHOWN], "next_cursor": None})
        return httpx.Response(200, json=SHOWN)


@pytest.fixture
def server() -> Server:
    return Server()


PATH: Final = "/v1/biz/orders/schedules/a%2Fb"
ASKED: Final = [
    (
        "PUT",
        PATH,
        {
            "cron": "0 9 * * *",
            "end_before": "2027-06-01T00:00:00+00:00",
            "jitter": 5.0,
            "callback": {"url": "http://a/"},
            "biz_data_base64": "/wA=",
        },
    ),
    ("PATCH", PATH, {"jitter": None}),
    ("GET", PATH, None),
    ("POST", f"{PATH}/enable", None),
    ("POST", f"{PATH}/disable", None),
    ("POST", f"{PATH}/run", None),
    ("GET", f"{PATH}/upcoming?count=1", None),
    ("GET", "/v1/schedules?biz_type=orders", None),
    ("DELETE", PATH, None),
]
FIELDS: Final[dict[str, Any]] = {
    "cron": "0 9 * * *",
    "timezone": None,
    "end_before": datetime(2027, 6, 1, tzinfo=UTC),
    "jitter": timedelta(seconds=5),
    "callback": "http://a/",
    "biz_data": b"\xff\x00",
}


def test_every_call(server: Server) -> None:
    with Client("http://localhost:1", transport=httpx.MockTransport(server)) as client:
        schedules = client.schedules
        made = schedules.put("orders", "a/b", **FIELDS)
        assert (made.version, made.biz_data_base64) == (3, b"\xff\x00")
        assert made.next_time == datetime(2027, 1, 15, 9, tzinfo=UTC)
        schedules.patch("orders", "a/b", jitter=None)
        assert schedules.get("orders", "a/b") == made
        schedules.enable("orders", "a/b")
        schedules.disable("orders", "a/b")
        assert str(schedules.run("orders", "a/b").task_id) == RUN["task_id"]
        (coming,) = schedules.upcoming("orders", "a/b", 1)
        assert coming.scheduled_time == made.next_time
        assert [one.name for one in schedules.list("orders")] == ["a/b"]
        assert schedules.delete("orders", "a/b") is None  # type: ignore[func-returns-value]
        with pytest.raises(ValueError, match="time zone"):
            schedules.patch("orders", "a/b", end_before=datetime(2027, 6, 1))  # noqa: DTZ001
    assert server.asked == ASKED


async def test_every_call_in_a_loop(server: Server) -> None:
    async with AsyncClient("http://localhost:1", transport=httpx.MockTransport(server)) as client:
        schedules = client.schedules
        made = await schedules.put("orders", "a/b", **FIELDS)
        await schedules.patch("orders", "a/b", jitter=None)
        assert await schedules.get("orders", "a/b") == made
        await schedules.enable("orders", "a/b")
        await schedules.disable("orders", "a/b")
        await schedules.run("orders", "a/b")
        await schedules.upcoming("orders", "a/b", 1)
        assert [one.name async for one in schedules.list("orders")] == ["a/b"]
        await schedules.delete("orders", "a/b")
    assert server.asked == ASKED
