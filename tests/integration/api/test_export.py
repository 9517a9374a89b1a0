"""GET /v1/export: all tasks of a day, and what breaks in the middle of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import httpx
import pytest

from broker.api import export
from broker.api.app import build_app
from broker.api.context import Context
from broker.api.times import format_time
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_reaping import DAY_MS, HOUR_MS, move_on, settle
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, bearer, make
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.store.change import Change, change
from wheel_timer.store.selection import select_page

LEDGER: Final = """
SELECT sum(pending), sum(finished - reaped_finished), sum(cancelled - reaped_cancelled)
FROM timer_ledger_view
WHERE CAST(quarter AT TIME ZONE 'UTC' AS date) = %s
"""


def day_of(clock: DatabaseClock, days: int) -> tuple[int, str]:
    """The first moment (ms) of a day to come, and the day."""
    first_ms = (clock.now_ms() // DAY_MS + days) * DAY_MS
    return first_ms, format_time(first_ms)[:10]


async def lines(client: httpx.AsyncClient, **query: str) -> list[dict[str, Any]]:
    answer = await client.get("/v1/export", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_day_is_what_the_ledger_says_of_it(
    client: httpx.AsyncClient,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By start_time as it is now, to the millisecond, of all states, over several pages."""
    monkeypatch.setattr(export, "PAGE_ROWS", 2)
    first_ms, day = day_of(clock, 1)
    end_ms = first_ms + DAY_MS
    inside = [task_at(at, biz_id=f"{at}") for at in (first_ms, first_ms + 1, end_ms - 1)]
    gone = task_at(first_ms + HOUR_MS, biz_data=b"secret")
    outside = [task_at(first_ms - 1), task_at(end_ms), task_at(end_ms + HOUR_MS)]
    await submit_all(db, [*inside, gone, *outside])
    await change(db, [Change(outside[2].task_id, "patch", to_time_ms=first_ms + 5)])
    await change(db, [Change(gone.task_id, "patch", to_time_ms=end_ms + 5)])
    await change(db, [Change(inside[2].task_id, "cancel")])
    await move_on(hands, clock, first_ms + 10)
    await settle(db, inside[:2])

    found = await lines(client, day=day)
    assert [line["task_id"] for line in found] == [
        str(task.task_id) for task in (*inside[:2], outside[2], inside[2])
    ]
    assert "biz_data" not in found[0]
    states = Counter(line["status"] for line in found)
    assert await sessions.row(LEDGER, day) == tuple(
        states[name] for name in ("pending", "finished", "cancelled")
    )
    assert await lines(client, day=day, biz_type="mail") == []


async def test_a_key_that_is_narrowed_gets_its_part(
    context: Context, db: Database, clock: DatabaseClock
) -> None:
    first_ms, day = day_of(clock, 2)
    await submit_all(db, [task_at(first_ms + n, ("orders.a", "mail")[n % 2]) for n in range(4)])
    keyed = client_of(context, admin_key=ADMIN_KEY)
    made = await make(keyed, scopes=["read"], biz_types=["orders.*"])
    keyed.headers.update(bearer(made["key"]))
    assert [line["biz_type"] for line in await lines(keyed, day=day)] == ["orders.a"] * 2
    hidden = await keyed.get("/v1/export", params={"day": day, "biz_type": "mail"})
    assert hidden.status_code == 404


@pytest.mark.parametrize(
    "query", ["", "day=", "day=20261224", "day=2026-02-30", "day=1999-12-31", "day=2026-12-24T00"]
)
async def test_what_is_no_day_is_refused(query: str, client: httpx.AsyncClient) -> None:
    refused = await client.get(f"/v1/export?{query}")
    assert refused.status_code == 422
    assert "day" in refused.json()["detail"]


async def test_the_last_day_there_is_and_head(client: httpx.AsyncClient) -> None:
    assert await lines(client, day="9999-12-31") == []
    head = await client.head("/v1/export?day=2026-12-24")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("whole_pages", [0, 1])
async def test_a_database_that_goes_is_a_problem_before_the_answer_and_a_broken_one_after(
    whole_pages: int,
    context: Context,
    db: Database,
    clock: DatabaseClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer without its end is what a server breaks the connection off for."""
    first_ms, day = day_of(clock, 2)
    await submit_all(db, [task_at(first_ms + n) for n in range(4)])
    monkeypatch.setattr(export, "PAGE_ROWS", 2)
    asked = 0

    async def failing(*args: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > whole_pages:
            raise DatabaseUnavailable("gone")
        return await select_page(*args, **options)

    monkeypatch.setattr(export, "select_page", failing)
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "method": "GET", "path": "/v1/export", "raw_path": b"/v1/export",
        "query_string": f"day={day}".encode(), "headers": [(b"host", b"localhost:8080")],
        "client": ("127.0.0.1", 1), "scheme": "http", "server": ("localhost", 8080),
    }  # fmt: skip
    await build_app(context)(scope, receive, send)
    if whole_pages:
        assert sent[0]["status"] == 200
        assert [message.get("more_body", False) for message in sent[1:]] == [True]
        assert len(sent[1]["body"].splitlines()) == 2
    else:
        assert (sent[0]["status"], len(sent)) == (503, 2)
        assert json.loads(sent[1]["body"])["type"] == "/problems/overloaded"
