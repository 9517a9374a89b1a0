"""The way of a task through a broker: broker/notifier.py, on real Postgres and Redis."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis

from tests.fix_delivery import BIZ_TYPE, Delivery, Reached, ref_of
from tests.fix_endpoint import Answer, Endpoint, Received
from wheel_timer.task import NewTask
from wheel_timer.wheel import new_task_id

SECOND_MS = 1_000
HOUR_MS = 3_600_000


async def pending_entries(redis_client: Redis, delivery: Delivery) -> int:
    """Entries of the lane that nobody acknowledged."""
    return int(await redis_client.xlen(delivery.event_center.lane_key(BIZ_TYPE)))


async def requeue(delivery: Delivery, task_id: UUID) -> tuple[int, str] | None:
    """(due_at, reason) of the task's requeue row."""
    return await delivery.row(
        "SELECT due_at, reason FROM timer_requeue WHERE task_id = %s", [task_id]
    )


# -- the plain way --------------------------------------------------------------------------------


async def test_a_task_is_called_once_finished_and_acknowledged(
    delivery: Delivery, endpoint: Endpoint, redis_client: Redis
) -> None:
    acknowledged = Reached("delivery.acknowledged")
    (task_id,) = await delivery.submit(in_ms=50, biz_data=b'{"order": 7}')
    (call,) = await endpoint.wait_for(1)
    await acknowledged.times(1)
    assert call.webhook_id == str(task_id)
    assert call.body == b'{"order": 7}'
    task = await delivery.task(task_id)
    assert task.status.name == "FINISHED"
    assert task.http_status == 200
    assert task.attempts == 1
    assert task.lease_until is None
    assert task.started >= task.start_time
    assert await requeue(delivery, task_id) is None
    assert await pending_entries(redis_client, delivery) == 0


async def test_nothing_is_called_early_and_all_of_it_once(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    now_ms = int(delivery.clock.now_ms())
    moments = [now_ms + random.randrange(50, 1_400) for _ in range(300)]
    tasks = [NewTask(new_task_id(moment), moment, BIZ_TYPE) for moment in moments]
    await delivery.submit(tasks)
    calls = await endpoint.wait_for(len(tasks))
    due_ms = {str(task.task_id): task.start_time_ms for task in tasks}
    assert sorted(call.task_id for call in calls) == sorted(due_ms)
    assert min(call.arrival_ns / 1e6 - due_ms[call.task_id] for call in calls) >= 0


async def test_copies_of_an_entry_make_one_call(
    delivery: Delivery, endpoint: Endpoint, redis_client: Redis
) -> None:
    endpoint.answer = Answer(delay_s=0.1)
    acknowledged = Reached("delivery.acknowledged")
    moment_ms = int(delivery.clock.now_ms()) + 30
    task = NewTask(new_task_id(moment_ms), moment_ms, BIZ_TYPE)
    (task_id,) = await delivery.submit([task])
    await delivery.event_center.publish_direct([ref_of(task)] * 3)
    while await pending_entries(redis_client, delivery):
        await acknowledged.next()
    await delivery.event_center.publish_direct([ref_of(task)])
    while await pending_entries(redis_client, delivery):
        await acknowledged.next()
    assert len(endpoint.received) == 1
    assert await delivery.statuses([task_id]) == ["finished"]


async def test_a_reference_to_nothing_is_dropped(
    delivery: Delivery, endpoint: Endpoint, redis_client: Redis
) -> None:
    acknowledged = Reached("delivery.acknowledged")
    moment_ms = int(delivery.clock.now_ms())
    await delivery.event_center.publish_direct(
        [ref_of(NewTask(new_task_id(moment_ms), moment_ms, BIZ_TYPE))]
    )
    await acknowledged.times(1)
    assert await pending_entries(redis_client, delivery) == 0
    assert endpoint.received == []


# -- what becomes of it ---------------------------------------------------------------------------


async def test_a_failed_attempt_comes_again_until_it_succeeds(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, retry={"ladder": [0.05]})
    settled = Reached("delivery.settled")
    answers = iter([Answer(500, body=b"not\x00 now"), Answer(302), Answer(204)])
    endpoint.script = lambda _: next(answers)
    (task_id,) = await delivery.submit()
    calls = await endpoint.wait_for(3)
    await settled.times(3)
    assert [call.attempt for call in calls] == [1, 2, 3]
    assert {call.webhook_id for call in calls} == {str(task_id)}
    task = await delivery.task(task_id)
    assert (task.status.name, task.attempts, task.failures) == ("FINISHED", 3, 2)
    first, second = await delivery.attempts(task_id)
    assert (first.outcome, first.error_class, first.http_status) == ("retry", "status", 500)
    assert (first.error, first.response_excerpt) == ("HTTP 500", "not  now")
    assert (first.broker, first.remote_address) == (delivery.consumer, "127.0.0.1")
    assert second.http_status == 302


async def test_a_late_retry_waits_on_the_wheel(delivery: Delivery, endpoint: Endpoint) -> None:
    settled = Reached("delivery.settled")
    endpoint.answer = Answer(503, headers=(("Retry-After", "600"),))
    (task_id,) = await delivery.submit()
    await settled.times(1)
    task = await delivery.task(task_id)
    row = await requeue(delivery, task_id)
    assert row is not None
    assert row == (task.next_at, "retry")
    assert 599 * SECOND_MS < row[0] - delivery.clock.now_ms() <= 600 * SECOND_MS


async def test_the_last_failure_makes_a_dead_letter(delivery: Delivery, endpoint: Endpoint) -> None:
    await delivery.configure(callback_url=endpoint.url, retry={"max_attempts": 2, "ladder": [0.02]})
    settled = Reached("delivery.settled")
    endpoint.answer = Answer(500)
    (task_id,) = await delivery.submit()
    await settled.times(2)
    task = await delivery.task(task_id)
    assert (task.status.name, task.failures, task.last_error) == ("FAILED", 2, "HTTP 500")
    assert [call.headers["wheel-timer-last-attempt"] for call in endpoint.received] == [
        "false",
        "true",
    ]
    assert await delivery.row("SELECT http_status FROM timer_dead", []) == (500,)
    assert await requeue(delivery, task_id) is None


async def test_gone_fails_at_once(delivery: Delivery, endpoint: Endpoint) -> None:
    settled = Reached("delivery.settled")
    endpoint.answer = Answer(410)
    (task_id,) = await delivery.submit()
    await settled.times(1)
    assert await delivery.statuses([task_id]) == ["failed"]


async def test_a_release_comes_again_without_a_failure(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    settled = Reached("delivery.settled")
    endpoint.answer = Answer(200, headers=(("Wheel-Timer-Release", "90"),))
    (task_id,) = await delivery.submit()
    await settled.times(1)
    task = await delivery.task(task_id)
    assert (task.status.name, task.failures) == ("PENDING", 0)
    assert 89 * SECOND_MS < task.next_at - delivery.clock.now_ms() <= 90 * SECOND_MS
    (attempt,) = await delivery.attempts(task_id)
    assert attempt.outcome == "released"


async def test_a_stopped_task_is_cancelled_without_a_call(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    settled = Reached("delivery.settled")
    stop = ("UPDATE timer_task SET stop = %s", [True])
    (task_id,) = await delivery.submit(before=stop)
    await settled.times(1)
    assert await delivery.statuses([task_id]) == ["cancelled"]
    assert endpoint.received == []


async def test_a_task_past_its_age_expires_without_a_call(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    settled = Reached("delivery.settled")
    age = ("UPDATE timer_task SET max_age = %s", [-1])
    (task_id,) = await delivery.submit(before=age)
    await settled.times(1)
    task = await delivery.task(task_id)
    assert (task.status.name, task.last_error) == ("FAILED", "expired")
    assert endpoint.received == []


async def test_a_lease_that_ran_out_counts_as_a_lost_attempt(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    settled = Reached("delivery.settled")
    lost = ("UPDATE timer_task SET attempts = 1, lease_until = %s", [1])
    (task_id,) = await delivery.submit(before=lost)
    await settled.times(1)
    task = await delivery.task(task_id)
    assert (task.status.name, task.attempts, task.failures) == ("FINISHED", 2, 1)
    (attempt,) = await delivery.attempts(task_id)
    assert (attempt.attempt, attempt.outcome, attempt.error_class) == (1, "lost", "lost")
    assert [call.attempt for call in endpoint.received] == [2]


async def test_a_result_of_an_older_revision_changes_nothing(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    settled = Reached("delivery.settled")
    endpoint.answer = Answer(delay_s=0.2)
    (task_id,) = await delivery.submit()
    await endpoint.wait_for(1)
    await delivery.run(
        "UPDATE timer_task SET revision = revision + 1 WHERE task_id = %s", [task_id]
    )
    await settled.times(1)
    assert await delivery.statuses([task_id]) == ["pending"]
    (attempt,) = await delivery.attempts(task_id)
    assert attempt.outcome == "superseded"


# -- side by side ---------------------------------------------------------------------------------


class Busy:
    """Counts the calls that are being answered, and the most there were at once."""

    def __init__(self, delay_s: float) -> None:
        self.now = self.most = 0
        self._delay_s = delay_s

    def __call__(self, _: Received) -> Answer:
        self.now += 1
        self.most = max(self.most, self.now)
        asyncio.get_running_loop().call_later(self._delay_s, self._done)
        return Answer(delay_s=self._delay_s)

    def _done(self) -> None:
        self.now -= 1


async def test_no_more_callbacks_are_in_flight_than_the_biz_type_allows(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, max_concurrency=3)
    busy = endpoint.script = Busy(delay_s=0.02)
    await delivery.submit(30, in_ms=100)
    await endpoint.wait_for(30)
    assert busy.most == 3


async def test_brokers_share_the_concurrency_of_a_biz_type(
    delivery: Delivery, another_delivery: Callable[[], Any], endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, max_concurrency=4)
    second = await another_delivery()
    await delivery.beat()
    await second.beat()
    busy = endpoint.script = Busy(delay_s=0.02)
    await delivery.submit(60, in_ms=200)
    await endpoint.wait_for(60)
    assert busy.most <= 4
    assert len({call.task_id for call in endpoint.received}) == 60


async def test_a_dead_endpoint_delays_no_other_biz_type(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await delivery.configure("dead", callback_url=endpoint.url + "/dead", timeout=30)
    endpoint.script = lambda call: Answer(fault="silence" if "dead" in call.path else None)
    await delivery.submit(1_000, biz_type="dead")
    await endpoint.wait_for(64)
    (task_id,) = await delivery.submit(in_ms=200)
    calls = await endpoint.wait_for(65)
    due_ms = (await delivery.task(task_id)).start_time
    (call,) = [call for call in calls if "dead" not in call.path]
    assert call.arrival_ns / 1e6 - due_ms < 100
    endpoint.drop_connections()


@pytest.mark.parametrize("count", [3_000])
async def test_more_than_a_lane_reads_ahead_is_all_called(
    delivery: Delivery, endpoint: Endpoint, count: int
) -> None:
    settled = Reached("delivery.acknowledged")
    moment_ms = int(delivery.clock.now_ms()) + 500
    ids = []
    for _ in range(count // 1_000):
        tasks = [NewTask(new_task_id(moment_ms), moment_ms, BIZ_TYPE) for _ in range(1_000)]
        ids += await delivery.submit(tasks)
    calls = await endpoint.wait_for(count, timeout_s=30)
    while "pending" in await delivery.statuses(ids):
        await settled.next()
    assert {call.task_id for call in calls} == {str(task_id) for task_id in ids}
    assert len(calls) == count
