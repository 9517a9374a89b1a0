"""Group commit: how submits share calls, and what happens when a call goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from broker import grouping, submitter
from broker.submission import Accepted, Duplicate, Submission
from broker.submitter import Submitter
from tests.fix_proxy import PostgresProxy
from wheel_timer import metrics, signal
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import (
    DatabaseUnavailable,
    EventCenterUnavailable,
    InvalidTask,
    Overloaded,
)
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.submit import Submitted, submit
from wheel_timer.task import NewTask

FAR_MS = 1_900_000_000_000


@pytest_asyncio.fixture
async def subject(db: Database, event_center: EventCenter) -> AsyncIterator[Submitter]:
    """A submitter over the test's servers."""
    clock = Clock(db)
    await clock.measure()
    made = Submitter(db=db, event_center=event_center, clock=clock)
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def proxied(
    postgres_proxy: PostgresProxy, event_center: EventCenter
) -> AsyncIterator[Submitter]:
    """A submitter whose database is behind a network that fails."""
    database = Database(postgres_proxy.url, pool_size=2, name="proxied")
    clock = Clock(database)
    await clock.measure()
    made = Submitter(db=database, event_center=event_center, clock=clock)
    yield made
    await postgres_proxy.heal()
    await made.stop()
    await database.close()


class Calls:
    """Counts the calls of store.submit: their sizes, and how many ran at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.shards: list[int] = []
        self.most_at_once = 0
        self._running = 0
        self.began = asyncio.Event()
        monkeypatch.setattr("broker.submitter.submit", self._counted)

    async def _counted(
        self, db: Database, shard: int, tasks: Sequence[NewTask], **more: Any
    ) -> list[Submitted]:
        self.began.set()
        self.sizes.append(len(tasks))
        self.shards.append(shard)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        try:
            return await submit(db, 0, tasks, **more)
        finally:
            self._running -= 1


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def far(**fields: Any) -> Submission:
    return Submission("orders", FAR_MS, **fields)


def task_ids(database_url: str) -> list[Any]:
    with psycopg.connect(database_url) as connection:
        return [row[0] for row in connection.execute("SELECT task_id FROM timer_task").fetchall()]


async def test_submits_that_come_together_share_a_call(subject: Submitter, calls: Calls) -> None:
    await asyncio.gather(*(subject.submit([far()]) for _ in range(64)))
    assert calls.sizes == [64]


async def test_what_comes_during_a_call_goes_into_the_next(
    subject: Submitter, calls: Calls
) -> None:
    first = asyncio.create_task(subject.submit([far()]))
    await calls.began.wait()
    await asyncio.gather(first, *(subject.submit([far()]) for _ in range(50)))
    assert calls.sizes == [1, 50]
    assert calls.most_at_once == 1


async def test_large_batches_go_in_two_calls_at_a_time(subject: Submitter, calls: Calls) -> None:
    outcomes = await subject.submit([far() for _ in range(4000)])
    assert len(outcomes) == 4000
    assert calls.sizes == [1000] * 4
    assert calls.most_at_once == 2


async def test_a_batch_delays_nobody_by_more_than_its_slice(
    subject: Submitter, calls: Calls
) -> None:
    many = [far() for _ in range(10_000)]
    batch = asyncio.create_task(subject.submit(many))
    await calls.began.wait()
    await subject.submit([far()])
    assert not batch.done()
    await batch


async def test_a_call_is_bounded_in_bytes(
    subject: Submitter, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "CALL_BYTES_MAX", 10_000)
    outcomes = await subject.submit([far(biz_data=b"a" * 4000) for _ in range(5)])
    assert all(isinstance(outcome, Accepted) for outcome in outcomes)
    assert calls.sizes == [2, 2, 1]


async def test_outcomes_come_in_the_order_of_the_submits(
    subject: Submitter, database_url: str
) -> None:
    submissions = [Submission("orders", FAR_MS + i, biz_id=str(i)) for i in range(2500)]
    outcomes = await subject.submit(submissions)
    moments = [o.start_time_ms for o in outcomes if isinstance(o, Accepted)]
    assert moments == [FAR_MS + i for i in range(2500)]
    assert len(task_ids(database_url)) == 2500


async def test_the_shards_take_turns(db: Database, event_center: EventCenter, calls: Calls) -> None:
    clock = Clock(db)
    await clock.measure()
    subject = Submitter(db=db, event_center=event_center, clock=clock, shards=3)
    for _ in range(6):
        await subject.submit([far()])
    assert sorted(calls.shards) == [0, 0, 1, 1, 2, 2]


async def test_one_bad_task_fails_alone(subject: Submitter, database_url: str) -> None:
    """A NUL gets past nobody's checks but Postgres': the other 999 are stored."""
    submissions = [far(biz_id=str(i)) for i in range(1000)]
    submissions[617] = far(biz_id="\0")
    outcomes = await subject.submit(submissions)
    assert [i for i, o in enumerate(outcomes) if not isinstance(o, Accepted)] == [617]
    assert isinstance(outcomes[617], InvalidTask)
    assert len(task_ids(database_url)) == 999


async def test_two_of_one_key_in_one_call_are_one_task(subject: Submitter) -> None:
    first, second = await subject.submit([far(biz_id="k"), far(biz_id="k")])
    assert isinstance(first, Accepted)
    assert isinstance(second, Duplicate)
    assert second.task.task_id == first.task_id


async def test_a_key_whose_task_was_reaped_meanwhile_is_free(
    subject: Submitter, database_url: str
) -> None:
    """The key row is there, its task is not; when the key is gone too, the submit goes through."""
    (first,) = await subject.submit([far(biz_id="k")])
    assert isinstance(first, Accepted)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM timer_task")
        seen = 0

        def reap() -> None:
            nonlocal seen
            seen += 1
            if seen == 2:
                connection.execute("DELETE FROM timer_key")

        signal.on("submit.committed", reap)
        try:
            (again,) = await subject.submit([far(biz_id="k")])
        finally:
            signal.clear()
    assert isinstance(again, Accepted)
    assert again.task_id != first.task_id


async def test_a_lost_reply_is_no_second_task(
    proxied: Submitter, postgres_proxy: PostgresProxy, database_url: str
) -> None:
    """The reply is held back, the connection cut after the commit: the same id is sent again."""
    # The statement is prepared for these very types: it is one message from now on.
    warm = await proxied.submit([far(biz_id="warm"), far()])
    postgres_proxy.deaf("replies")
    waiting = asyncio.create_task(proxied.submit([far(biz_id="k"), far()]))
    async with asyncio.timeout(5):
        while len(task_ids(database_url)) < 4:  # noqa: ASYNC110 - the commit shows nowhere else
            await asyncio.sleep(0.01)
    assert not waiting.done()
    await postgres_proxy.cut()
    await postgres_proxy.heal()
    outcomes = [*warm, *await asyncio.wait_for(waiting, 10)]
    stored = {outcome.task_id for outcome in outcomes if isinstance(outcome, Accepted)}
    assert stored == set(task_ids(database_url))


async def test_a_database_that_stays_away_is_an_error_in_time(
    proxied: Submitter, postgres_proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "RESEND_S_MAX", 0.3)
    await postgres_proxy.stop()
    (outcome,) = await asyncio.wait_for(proxied.submit([far()]), 10)
    assert isinstance(outcome, DatabaseUnavailable)
    await postgres_proxy.heal()
    (outcome,) = await proxied.submit([far()])
    assert isinstance(outcome, Accepted)


async def test_a_full_queue_refuses_and_takes_nothing(
    proxied: Submitter,
    postgres_proxy: PostgresProxy,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouping, "QUEUE_ROWS_MAX", 3000)
    postgres_proxy.deaf()
    many = [far() for _ in range(4500)]
    first = asyncio.create_task(proxied.submit(many))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await proxied.submit([far()])
    await postgres_proxy.heal()
    assert len(await first) == 4500
    await proxied.submit([far()])
    assert len(task_ids(database_url)) == 4501


async def test_stopping_drains_what_was_taken(subject: Submitter, database_url: str) -> None:
    going = [asyncio.create_task(subject.submit([far()])) for _ in range(20)]
    await asyncio.sleep(0)
    await subject.stop()
    assert all(task.done() for task in going)
    assert len(task_ids(database_url)) == 20
    with pytest.raises(Overloaded):
        await subject.submit([far()])


async def test_a_caller_who_goes_away_leaves_the_others_alone(
    subject: Submitter, database_url: str
) -> None:
    going = [asyncio.create_task(subject.submit([far()])) for _ in range(3)]
    await asyncio.sleep(0)
    going[1].cancel()
    for task in (going[0], going[2]):
        assert isinstance((await task)[0], Accepted)
    await subject.stop()
    assert len(task_ids(database_url)) == 3


async def test_redis_away_is_no_error_to_a_near_submit(
    db: Database, event_center: EventCenter, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """The answer is yes, the failure is counted, and the requeue row is there as the net."""

    async def refuses(_: object) -> None:
        raise EventCenterUnavailable("away")

    unpublished: list[int] = []
    monkeypatch.setattr(event_center, "publish_direct", refuses)
    monkeypatch.setattr(metrics, "near_unpublished", unpublished.append)
    clock = Clock(db)
    await clock.measure()
    subject = Submitter(db=db, event_center=event_center, clock=clock)
    (outcome,) = await subject.submit([Submission("orders", None)])
    await subject.stop()
    assert isinstance(outcome, Accepted)
    assert unpublished == [1]
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT task_id, reason FROM timer_requeue").fetchall()
    assert rows == [(outcome.task_id, "near")]
