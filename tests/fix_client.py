"""A client of a server that is a function: it answers from a list and keeps what it was asked."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import httpx
import pytest

from wheel_timer.client import Client

TASK_ID = UUID("01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d")
SUBMITTED = {
    "task_id": str(TASK_ID),
    "status": "pending",
    "duplicate": False,
    "start_time": "2026-12-01T09:00:00.000Z",
}
TASK = {
    **SUBMITTED,
    "biz_type": "orders",
    "create_time": "2026-12-01T08:00:00.000Z",
    "a_field_of_a_newer_server": 1,
}

Answer = httpx.Response | Exception


class Server:
    """Answers from a list, one a request; the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def ok(content: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=content)


def no(status: int, name: str, headers: dict[str, str] | None = None, **more: Any) -> Any:
    problem = {"type": f"/problems/{name}", "title": "No", "status": status, "detail": "so"}
    return httpx.Response(status, json={**problem, **more}, headers=headers)


def client_of(server: Server, **options: Any) -> Client:
    return Client("http://orders", "k3y", transport=httpx.MockTransport(server), **options)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which nobody waits for."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("wheel_timer.client.async_client.asyncio.sleep", sleep)
    return slept
