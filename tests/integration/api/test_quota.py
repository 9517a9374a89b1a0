"""max_pending: how many tasks of a biz_type may be pending, exactly, over any number of brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import httpx
import pytest

from broker.api.context import Context
from broker.submitter import Submitter
from tests.fix_audits import AuditsHold
from tests.fix_hands import task_at
from tests.fix_sessions import Sessions
from tests.integration.api.conftest import client_of
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.submit import submit

URL: Final = "http://127.0.0.1:9/callback"
PENDING: Final = "SELECT count(*) FROM timer_task WHERE status = 0 AND biz_type = 'orders'"
FAR_MS: Final = 4_000_000_000_000


async def limited(client: httpx.AsyncClient, most: int | None, **fields: Any) -> None:
    body = {"callback_url": URL, "max_pending": most, **fields}
    assert (await client.put("/v1/biz/orders", json=body)).status_code in (200, 201)


def a_task(**fields: Any) -> dict[str, Any]:
    return {"biz_type": "orders", "delay": 3_600, **fields}


async def send(client: httpx.AsyncClient, count: int, **fields: Any) -> list[int]:
    """The status of each of so many submits, one after the other."""
    return [
        (await client.post("/v1/tasks", json=a_task(**fields))).status_code for _ in range(count)
    ]


async def test_a_submit_beyond_the_quota_is_429_until_there_is_room(
    client: httpx.AsyncClient, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    await limited(client, 3)
    first = (await client.post("/v1/tasks", json=a_task())).json()["task_id"]
    assert await send(client, 4) == [201, 201, 429, 429]
    refused = await client.post("/v1/tasks", json=a_task(biz_id="7"))
    assert refused.json()["type"] == "/problems/quota"
    assert int(refused.headers["retry-after"]) >= 1
    # Nothing of it is left, and nobody else is kept out.
    assert await sessions.value("SELECT count(*) FROM timer_key") == 0
    await client.put("/v1/biz/free", json={"callback_url": URL})
    free = await client.post("/v1/tasks", json=a_task(biz_type="free"))
    assert free.status_code == 201
    # What is cancelled makes room at once.
    assert (await client.delete(f"/v1/tasks/{first}")).status_code == 200
    assert await send(client, 1, biz_id="7") == [201]
    # A duplicate is no new task.
    assert await send(client, 2, biz_id="7") == [200, 200]
    assert await send(client, 1) == [429]
    assert await sessions.value(PENDING) == 3
    await audits_hold()


async def test_a_limit_may_be_raised_taken_away_and_lowered_under_what_there_is(
    client: httpx.AsyncClient, sessions: Sessions
) -> None:
    """Nothing that was taken is given up for it."""
    await limited(client, 1)
    assert await send(client, 2) == [201, 429]
    await limited(client, 2)
    assert await send(client, 2) == [201, 429]
    await limited(client, None)
    assert await send(client, 3) == [201] * 3
    await limited(client, 2)
    assert await send(client, 1) == [429]
    assert await sessions.value(PENDING) == 5
    await limited(client, 0)
    assert await send(client, 1) == [429]


async def test_what_is_started_anew_counts_and_is_not_refused(
    client: httpx.AsyncClient, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """A replay, and a submit that replaces what is settled: the task is there already."""
    await limited(client, 1)
    ids = []
    for biz_id in "ab":
        made = await client.post("/v1/tasks", json=a_task(biz_id=biz_id))
        ids.append(made.json()["task_id"])
        await client.delete(f"/v1/tasks/{ids[-1]}")
    assert (await client.post(f"/v1/tasks/{ids[0]}/replay")).status_code == 200
    assert await send(client, 1) == [429]
    assert await send(client, 1, biz_id="b", on_duplicate="replace") == [201]
    assert await sessions.value(PENDING) == 2
    await audits_hold()


async def test_of_a_batch_the_first_ones_that_find_room_are_stored(
    client: httpx.AsyncClient, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """Between others, with duplicates of what is there and of what is refused."""
    await limited(client, 12)
    await client.put("/v1/biz/free", json={"callback_url": URL})
    assert await send(client, 1, biz_id="there") == [201]
    await send(client, 1)
    tasks = []
    for n in range(20):
        tasks += [a_task(biz_id=f"{n}"), a_task(biz_type="free")]
    tasks += [a_task(biz_id="there"), a_task(biz_id="3"), a_task(biz_id="19")]
    body = (await client.post("/v1/tasks/batch", json={"tasks": tasks})).json()
    found = [
        result["error"]["type"] if "error" in result else result["duplicate"]
        for result in body["results"]
    ]
    assert found[:40:2] == [False] * 10 + ["/problems/quota"] * 10
    assert found[1:40:2] == [False] * 20
    assert found[40:] == [True, True, "/problems/quota"]
    assert (body["accepted"], body["duplicates"], body["rejected"]) == (30, 2, 11)
    assert await sessions.value(PENDING) == 12
    assert await sessions.value("SELECT count(*) FROM timer_key") == 11
    await audits_hold()


async def test_lines_beyond_the_quota_are_counted_with_their_error(
    client: httpx.AsyncClient,
) -> None:
    await limited(client, 10)
    lines = b"".join(b'{"biz_type": "orders", "delay": 60}\n' for _ in range(30))
    answer = await client.post(
        "/v1/tasks/batch", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    body = answer.json()
    assert (body["accepted"], body["rejected"]) == (10, 20)
    assert [error["line"] for error in body["errors"]] == list(range(11, 31))
    assert body["errors"][0]["error"]["type"] == "/problems/quota"


async def test_two_brokers_and_a_thousand_submits_at_once_make_just_as_many_as_may_be(
    client: httpx.AsyncClient,
    context: Context,
    db: Database,
    event_center: EventCenter,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    await limited(client, 100)
    other = Submitter(
        db=db,
        event_center=event_center,
        clock=context.clock,
        max_pending=lambda: context.registry.max_pending,
    )
    context_of_other = Context(
        settings=context.settings,
        db=context.db,
        clock=context.clock,
        event_center=event_center,
        registry=context.registry,
        keys=context.keys,
        submitter=other,
        changer=context.changer,
        pull=context.pull,
        reports=context.reports,
        health=context.health,
    )
    async with client_of(context_of_other) as second:
        answers = await asyncio.gather(
            *(
                (client, second)[n % 2].post("/v1/tasks", json=a_task(biz_id=f"{n % 700}"))
                for n in range(1_000)
            )
        )
    await other.stop()
    counts = Counter(answer.status_code for answer in answers)
    assert counts[201] == 100
    assert set(counts) <= {200, 201, 429}
    assert await sessions.value(PENDING) == 100
    await audits_hold()


async def test_two_at_the_same_instant_do_not_both_get_the_last_room(
    client: httpx.AsyncClient, sessions: Sessions
) -> None:
    """The second waits for the first one's commit before it counts."""
    await limited(client, 1)
    session = await sessions.open()
    task = task_at(FAR_MS)
    async with session.transaction():
        await session.execute(
            "SELECT wheel_submit_v1(0::smallint, ARRAY[%s], ARRAY[%s], ARRAY['orders'], '{}',"
            " '{}', '{}', '{}', '{}', '{}', '{}', 1000, ARRAY['orders'], ARRAY[1])",
            [task.task_id, FAR_MS],
        )
        second = asyncio.create_task(send(client, 1))
        await sessions.until_waiting("wheel_submit")
    assert await second == [429]
    assert await sessions.value(PENDING) == 1


async def test_a_batch_sent_again_after_a_lost_answer_is_not_refused(
    client: httpx.AsyncClient, context: Context, sessions: Sessions
) -> None:
    """The quota is used up by itself."""
    await limited(client, 5)
    tasks = [task_at(FAR_MS + n, biz_id=f"{n}") for n in range(8)]
    limits = context.registry.max_pending
    first = await submit(context.db, 0, tasks, max_pending=limits)
    again = await submit(context.db, 0, tasks, max_pending=limits)
    assert first == again
    assert [answer.refused for answer in first] == [False] * 5 + [True] * 3
    assert await sessions.value(PENDING) == 5


async def test_an_end_that_is_not_committed_makes_no_room(
    client: httpx.AsyncClient, context: Context, db: Database, sessions: Sessions
) -> None:
    """It may still be undone."""
    await limited(client, 1)
    task = task_at(FAR_MS)
    await submit(db, 0, [task])
    session = await sessions.open()
    async with session.transaction(force_rollback=True):
        await session.execute(
            "SELECT wheel_purge_v1(0::smallint, ARRAY[%s], ARRAY[%s], ARRAY[1])",
            [task.task_id, FAR_MS],
        )
        assert await send(client, 1) == [429]
    assert await send(client, 1) == [429]
    assert await sessions.value(PENDING) == 1


async def test_without_a_daemon_the_counting_folds(
    client: httpx.AsyncClient, db: Database, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """Nobody else does; a submit must not take longer and longer for it. And it stays durable."""
    await limited(client, 3)
    session = await sessions.open()
    await send(client, 1)
    await session.execute("SELECT setval('timer_ledger_delta_delta_id_seq', 60000)")
    assert await send(client, 1) == [201]
    assert await sessions.value("SELECT folded_to FROM timer_ledger_mark") == 60_000
    assert await sessions.value("SELECT pending FROM timer_ledger_total") == 1
    assert await send(client, 2) == [201, 429]
    await audits_hold()


@pytest.mark.parametrize("value", [-1, 1.5, "10", 10**11, True])
async def test_a_quota_is_a_whole_number(client: httpx.AsyncClient, value: object) -> None:
    body = {"callback_url": URL, "max_pending": value}
    answer = await client.put("/v1/biz/orders", json=body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["#/max_pending"]
