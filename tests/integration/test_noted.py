"""What the end of a task may bring beside its status: on_failed, erase_data."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from broker.notice import CONTENT_TYPE
from tests.fix_audits import AuditsHold
from tests.fix_delivery import BIZ_TYPE, Delivery
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_hands import task_at
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_noted
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask, Ref, Result
from wheel_timer.wheel import new_task_id

ONCE = {"max_attempts": 1}


async def both(delivery: Delivery, endpoint: Endpoint, **deaths: Any) -> None:
    """`orders` tells `deaths` of its dead tasks."""
    await delivery.configure("deaths", callback_url=endpoint.url, retry=ONCE, **deaths)
    await delivery.configure(callback_url=endpoint.url, retry=ONCE, on_failed="deaths")


async def test_a_dead_task_is_told_of_with_its_json(
    delivery: Delivery, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    await both(delivery, endpoint)
    answers = iter([Answer(500), Answer(200)])
    endpoint.script = lambda _: next(answers)
    (dead,) = await delivery.submit(biz_data=b'{"order": 7}')
    _, told = await endpoint.wait_for(2)
    assert told.headers["wheel-timer-biz-type"] == "deaths"
    assert told.headers["wheel-timer-biz-id"] == f"{dead}-1"
    assert told.headers["content-type"] == CONTENT_TYPE
    said = json.loads(told.body)
    task = await delivery.task(dead)
    assert said["task_id"] == str(dead)
    assert (said["biz_type"], said["status"]) == (BIZ_TYPE, "failed")
    assert (said["attempts"], said["failures"]) == (task.attempts, task.failures) == (1, 1)
    assert (said["http_status"], said["last_error"]) == (500, "HTTP 500")
    assert said["biz_data"] == {"order": 7}
    await audits_hold()


async def test_a_notice_that_dies_makes_no_other(delivery: Delivery, endpoint: Endpoint) -> None:
    await both(delivery, endpoint, on_failed=BIZ_TYPE)
    endpoint.answer = Answer(500)
    await delivery.submit()
    await endpoint.wait_for(2)
    await delivery.until_row("SELECT FROM timer_dead WHERE biz_type = 'deaths'")
    await asyncio.sleep(0.2)
    assert await delivery.rows("SELECT count(*) FROM timer_task") == [(2,)]


async def test_payloads_that_are_no_json_are_told_of_in_base64(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await both(delivery, endpoint)
    answers = iter([Answer(410), Answer(200)])
    endpoint.script = lambda _: next(answers)
    await delivery.submit(biz_data=b"\xff\x00", content_type="image/png")
    _, told = await endpoint.wait_for(2)
    assert json.loads(told.body)["biz_data_base64"] == "/wA="


async def test_what_is_erased_is_not_told_of(delivery: Delivery, endpoint: Endpoint) -> None:
    await both(delivery, endpoint)
    await delivery.configure(
        callback_url=endpoint.url, retry=ONCE, on_failed="deaths", erase_data=True
    )
    endpoint.script = lambda call: Answer(200 if b"failures" in call.body else 410)
    await delivery.submit(biz_data=b'{"card": 4711}')
    _, told = await endpoint.wait_for(2)
    assert json.loads(told.body)["status"] == "failed"
    assert b"4711" not in told.body


@pytest.mark.parametrize("status", [200, 410])
async def test_a_settled_task_keeps_no_payload_where_it_is_to_be_erased(
    delivery: Delivery, endpoint: Endpoint, status: int
) -> None:
    await delivery.configure(callback_url=endpoint.url, erase_data=True)
    endpoint.answer = Answer(status)
    (task_id,) = await delivery.submit(biz_data=b'{"card": 4711}')
    (empty,) = await delivery.submit()
    await delivery.settled([task_id, empty])
    assert sorted(call.body for call in endpoint.received) == [b"", b'{"card": 4711}']
    task = await delivery.task(task_id)
    assert (task.biz_data, task.content_type) == (None, "erased")
    assert (await delivery.task(empty)).content_type is None


async def test_a_task_stopped_in_its_call_keeps_no_payload_either(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, erase_data=True)
    endpoint.answer = Answer(500, delay_s=0.2)
    ids = await delivery.submit(2, biz_data=b"secret")
    await endpoint.wait_for(2)
    await delivery.run("UPDATE timer_task SET stop = true WHERE task_id = %s", [ids[0]])
    await delivery.until_row("SELECT FROM timer_task WHERE status = 3")
    await delivery.until_row("SELECT FROM timer_task WHERE failures = 1 HAVING count(*) = 2")
    stopped, retried = [await delivery.task(task_id) for task_id in ids]
    assert (stopped.biz_data, stopped.content_type) == (None, "erased")
    # Its next call needs it.
    assert retried.biz_data == b"secret"


async def test_the_notice_and_the_death_are_one_transaction_and_written_once(
    resting_delivery: Delivery, audits_hold: AuditsHold
) -> None:
    delivery, db = resting_delivery, resting_delivery.db
    now_ms = int(delivery.clock.now_ms())
    mine, lost = task_at(now_ms), task_at(now_ms)
    await submit(db, 0, [mine, lost])
    claimed = await claim(
        db, [Ref(t.task_id, now_ms, now_ms, now_ms, BIZ_TYPE) for t in (mine, lost)], [10_000] * 2
    )
    results = []
    for one in claimed.claims:
        # Of `lost` somebody else has made a new revision meanwhile.
        is_mine = one.task_id == mine.task_id
        notice = NewTask(new_task_id(now_ms), now_ms, "deaths", f"{one.task_id}-1", b"{}", "a/b")
        results.append(
            Result(
                one.task_id, one.start_time_ms, BIZ_TYPE, one.attempt,
                one.revision if is_mine else one.revision - 1, "failed",
                started_ms=now_ms, notice=notice,
            )
        )  # fmt: skip
    (near,) = await settle_noted(db, 0, results)
    assert near.biz_type == "deaths"
    assert await settle_noted(db, 0, results) == []
    rows = await delivery.rows("SELECT biz_type, biz_id, status FROM timer_task ORDER BY 1")
    assert rows == [("deaths", f"{mine.task_id}-1", 0), (BIZ_TYPE, None, 0), (BIZ_TYPE, None, 2)]
    await audits_hold()
