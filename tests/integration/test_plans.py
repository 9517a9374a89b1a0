"""
Hot statements keep to the partitions they name, and to their plan where there are no statistics.

What a statement reads is taken from Postgres' own counts and locks, never from a stopwatch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import pytest
from psycopg import AsyncConnection

from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, ref_to, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.queries import queries
from wheel_timer.store.claim import EARLY_MS, LEASE_MARGIN_MS
from wheel_timer.store.due import NIL
from wheel_timer.store.place import by_partition
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask
from wheel_timer.wheel import partition_of, slot_of

HOT_ROWS: Final = 5_000
BATCH: Final = 100

# Partitions that the open transaction of this session has locked, with their indexes.
TOUCHED: Final = """
SELECT DISTINCT CAST(substring(c.relname FROM 'timer_task_(\\d\\d)') AS integer)
FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
WHERE l.pid = pg_backend_pid() AND c.relname ~ '^timer_task_\\d\\d'
ORDER BY 1
"""
# Rows of the wheel that this session has read, by index and by scan, since it last told of them.
READ: Final = """
SELECT coalesce(sum(s.idx_tup_fetch), 0) + coalesce(sum(s.seq_tup_read), 0)
FROM pg_stat_xact_user_tables AS s WHERE s.relname LIKE 'timer_task_%'
"""


async def rows_of(session: AsyncConnection[Any], name: str, params: dict[str, Any]) -> list[Any]:
    cursor = await session.execute(queries()[name], params, prepare=True)
    return await cursor.fetchall()


async def touched(session: AsyncConnection[Any]) -> list[int]:
    return [row[0] for row in await (await session.execute(TOUCHED.encode())).fetchall()]


async def read_by(
    session: AsyncConnection[Any], name: str, params: dict[str, Any]
) -> tuple[list[Any], int]:
    """What the statement answers, and how many rows of the wheel it reads for it."""
    counts = []
    rows: list[Any] = []
    for run in (False, True):
        if run:
            rows = await rows_of(session, name, params)
        row = await (await session.execute(READ)).fetchone()
        assert row is not None
        counts.append(int(row[0]))
    return rows, counts[1] - counts[0]


def places(tasks: Sequence[NewTask]) -> dict[str, Any]:
    slots = [slot_of(task.start_time_ms) for task in tasks]
    return {
        "slot_lo": min(slots),
        "slot_hi": max(slots),
        "task_ids": [task.task_id for task in tasks],
        "shards": [0] * len(tasks),
        "start_times": [task.start_time_ms for task in tasks],
    }


def claim_of(tasks: Sequence[NewTask]) -> dict[str, Any]:
    return places(tasks) | {
        "moments": [task.start_time_ms for task in tasks],
        "timeouts": [10_000] * len(tasks),
        "margin_ms": LEASE_MARGIN_MS,
        "early_ms": EARLY_MS,
        "bytes_max": 1 << 23,
    }


def settle_of(tasks: Sequence[NewTask]) -> dict[str, Any]:
    nothing = [None] * len(tasks)
    names = (
        *("http_statuses", "errors", "error_classes", "excerpts", "started", "durations", "dues"),
        *("published", "addresses", "brokers", "config_versions"),
    )
    return (
        places(tasks)
        | dict.fromkeys(names, nothing)
        | {
            "lives": [1] * len(tasks),
            "statuses": [1] * len(tasks),
            "attempts": [1] * len(tasks),
            "revisions": [1] * len(tasks),
            "retentions": [60_000] * len(tasks),
        }
    )


def again_of(tasks: Sequence[NewTask]) -> dict[str, Any]:
    return settle_of(tasks) | {
        "shard": 0,
        "outcomes": ["retry"] * len(tasks),
        "delays": [3_600_000] * len(tasks),
        "lookahead_ms": 1000,
        "latest_ms": None,
    }


@pytest.fixture
async def hot(db: Database, clock: DatabaseClock, sessions: Sessions) -> list[NewTask]:
    """5,000 tasks of one second that has just come, in random order; nothing was ever analysed."""
    session = await sessions.open()
    now_ms = clock.freeze(clock.now_ms() // 1000 * 1000)
    partition = partition_of(slot_of(now_ms))
    await session.execute(f"ALTER TABLE timer_task_{partition:02} SET (autovacuum_enabled = off)")
    await session.execute("ALTER TABLE timer_requeue SET (autovacuum_enabled = off)")
    tasks = [task_at(now_ms + n % 1000) for n in range(HOT_ROWS)]
    random.Random(5).shuffle(tasks)
    for first in range(0, HOT_ROWS, 500):
        await submit(db, 0, tasks[first : first + 500])
    clock.advance(1_000)
    analysed = await sessions.value(
        "SELECT count(*) FROM pg_stats WHERE tablename = %s", f"timer_task_{partition:02}"
    )
    assert analysed == 0
    return tasks


@pytest.mark.parametrize("batch", [1, BATCH])
async def test_claim_and_settle_read_the_rows_they_name_and_no_more_of_a_hot_second(
    batch: int, hot: list[NewTask], sessions: Sessions
) -> None:
    """Without its planner settings a claim read the whole slot for each row: 500,000 of them."""
    session = await sessions.open()
    partition = partition_of(slot_of(hot[0].start_time_ms))
    # Often enough that a generic plan would come into use.
    for turn in range(7):
        tasks = in_place_order(hot[turn * batch : (turn + 1) * batch])
        settle_name, settle_params = (
            ("settle_final", settle_of(tasks)) if turn % 2 else ("settle_again", again_of(tasks))
        )
        for name, params in (("claim", claim_of(tasks)), (settle_name, settle_params)):
            async with session.transaction():
                answer, read = await read_by(session, name, params)
                # Once to lock, once to update by ctid, and three times for what a retry looks up.
                assert batch <= read <= 5 * batch, (name, turn)
                assert await touched(session) == [partition]
            if name == "claim":
                assert len(answer) == batch


@pytest.mark.parametrize(("order", "share"), [("as chance has it", 1.0), ("as loaded", 0.92)])
async def test_claim_and_settle_are_hot_updates(
    order: str, share: float, hot: list[NewTask], sessions: Sessions
) -> None:
    """No index of the wheel is written in delivery, but where a page has no room left at all."""
    session = await sessions.open()
    rows = 1_000
    chosen = hot[:rows] if order == "as loaded" else random.Random(1).sample(hot, rows)
    for first in range(0, rows, BATCH):
        tasks = in_place_order(chosen[first : first + BATCH])
        await rows_of(session, "claim", claim_of(tasks))
        await rows_of(session, "settle_final", settle_of(tasks))
    await session.execute("SELECT pg_stat_force_next_flush()")
    updated, were_hot = await sessions.row(
        "SELECT sum(n_tup_upd), sum(n_tup_hot_upd) FROM pg_stat_user_tables"
        " WHERE starts_with(relname, 'timer_task_')"
    )
    assert updated == 2 * rows
    assert int(were_hot) >= share * 2 * rows


async def test_the_due_hand_reads_a_page_of_a_hot_second_and_no_more(
    hands: Hands, hot: list[NewTask], sessions: Sessions
) -> None:
    session = await sessions.open()
    first_ms = min(task.start_time_ms for task in hot)
    partition = partition_of(slot_of(first_ms))
    key: tuple[int, Any] = (first_ms - 1, NIL)
    found = []
    while True:
        async with session.transaction():
            page, read = await read_by(
                session,
                "due",
                {
                    "shard": 0,
                    "after": first_ms - 1,
                    "to": first_ms + 999,
                    "limit": 1_000,
                    "key_time": key[0],
                    "key_id": key[1],
                },
            )
            assert read <= 1_001
            assert await touched(session) == [partition]
        if not page:
            break
        found += [row[0] for row in page]
        key = (page[-1][1], page[-1][0])
    assert found == [task.task_id for task in in_place_order(hot)]


async def test_the_requeue_rows_of_a_hot_second_are_read_with_one_descent_each(
    hot: list[NewTask], sessions: Sessions
) -> None:
    session = await sessions.open()
    low_ms, high_ms = await sessions.row("SELECT min(due_at), max(due_at) FROM timer_requeue")
    async with session.transaction():
        page, read = await read_by(
            session,
            "requeue_due",
            {
                "again": False,
                "shard": 0,
                "after": low_ms - 1,
                "to": high_ms,
                "limit": BATCH,
                "key_due": low_ms - 1,
                "key_id": NIL,
            },
        )
        assert len(page) == BATCH
        assert read <= BATCH
        assert len(await touched(session)) == 1


async def test_a_range_without_requeue_rows_touches_no_partition(
    hot: list[NewTask], sessions: Sessions
) -> None:
    session = await sessions.open()
    async with session.transaction():
        page, read = await read_by(
            session,
            "requeue_due",
            {
                "shard": 0,
                "again": False,
                "after": 0,
                "to": 1,
                "limit": BATCH,
                "key_due": 0,
                "key_id": NIL,
            },
        )
        assert (page, read) == ([], 0)
        assert await touched(session) == []


async def test_a_look_into_an_empty_range_reads_nothing(
    hot: list[NewTask], sessions: Sessions
) -> None:
    """The hot second lies behind the hand, finished or not: it costs a look nothing."""
    session = await sessions.open()
    after_ms = max(task.start_time_ms for task in hot) // 1000 * 1000 + 999
    async with session.transaction():
        ((is_due, *_),), read = await read_by(
            session, "look", {"shard": 1, "after": after_ms, "to": after_ms + 2_000}
        )
        assert (is_due, read) == (False, 0)
        assert len(await touched(session)) == 1


async def test_the_dead_behind_the_hand_cost_it_nothing(
    hands: Hands, hot: list[NewTask], sessions: Sessions
) -> None:
    """A queue table would walk over them; the next second is read by equality on its slot."""
    session = await sessions.open()
    for first in range(0, HOT_ROWS, 500):
        tasks = in_place_order(hot[first : first + 500])
        await rows_of(session, "claim", claim_of(tasks))
        await rows_of(session, "settle_final", settle_of(tasks))
    after_ms = max(task.start_time_ms for task in hot)
    async with session.transaction():
        answer = await read_by(
            session,
            "due",
            {
                "shard": 0,
                "after": after_ms,
                "to": after_ms + 10_000,
                "limit": 1_000,
                "key_time": after_ms,
                "key_id": NIL,
            },
        )
        assert answer == ([], 0)


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        *(("lookup", 1), ("sweep", 1), ("skip", 1), ("forecast", 1), ("submit", 1)),
        ("submit over two", 2),
    ],
)
async def test_a_statement_locks_the_partitions_it_names_only(
    name: str, partitions: int, hands: Hands, sessions: Sessions, clock: DatabaseClock
) -> None:
    """A hundred partitions locked by one statement exhaust the fast-path locks of Postgres."""
    edge_ms = clock.now_ms() // 100_000_000 * 100_000_000 + 100_000_000
    tasks = [task_at(edge_ms), task_at(edge_ms + 5_000)]
    if partitions == 2:
        tasks.append(task_at(edge_ms + 100_000_000))
    from_ms = edge_ms - 1
    columns = dict.fromkeys(
        (
            *("biz_ids", "biz_data", "content_types", "callbacks", "retries", "max_ages"),
            "traceparents",
        ),
        [None] * len(tasks),
    )
    params: dict[str, dict[str, Any]] = {
        "lookup": places(tasks),
        "skip": {"first": edge_ms // 1000, "last": edge_ms // 1000 + 99_999},
        "forecast": {
            "biz_types": ["orders"],
            "hots": [1],
            "from": edge_ms,
            "to": edge_ms + 900_000,
            "slot": -1,
            "shard": 0,
            "time": 0,
            "id": NIL,
            "look": 100,
        },
        "sweep": {
            "shard": 0,
            "epoch": hands.leader.epoch,
            "after": from_ms,
            "to": edge_ms + 99_999,
            "key_time": from_ms,
            "key_id": NIL,
            "slow": [],
            "waits": [],
            "limit": 1_000,
        },
        "submit": {
            **columns,
            "shard": 0,
            "task_ids": [task.task_id for task in tasks],
            "start_times": [task.start_time_ms for task in tasks],
            "biz_types": ["orders"] * len(tasks),
            "lookahead_ms": 1000,
            "limited": ["orders"],
            "limits": [len(tasks)],
        },
    }
    session = await sessions.open()
    async with session.transaction(force_rollback=True):
        await rows_of(session, name.split()[0], params[name.split()[0]])
        assert len(await touched(session)) == partitions


async def test_a_claim_of_one_partition_takes_few_locks(
    hot: list[NewTask], sessions: Sessions
) -> None:
    session = await sessions.open()
    async with session.transaction():
        await rows_of(session, "claim", claim_of(in_place_order(hot[:BATCH])))
        row = await (
            await session.execute(
                "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()"
                " AND locktype = 'relation'"
            )
        ).fetchone()
    assert row is not None
    assert row[0] <= 16


def in_place_order(tasks: Sequence[NewTask]) -> list[NewTask]:
    return sorted(tasks, key=lambda task: (task.start_time_ms, task.task_id))


async def test_references_of_many_partitions_are_claimed_a_statement_each(
    db: Database, clock: DatabaseClock
) -> None:
    """What the store splits by partition is what the plans above are made for."""
    now_ms = clock.now_ms()
    refs = [ref_to(task_at(now_ms - n * 40_000_000)) for n in range(10)]
    runs = list(by_partition(refs, lambda ref: (ref.start_time_ms, ref.task_id)))
    assert len(runs) == len({partition_of(slot_of(ref.start_time_ms)) for ref in refs})
    for run, batch in runs:
        assert {partition_of(run.slot_lo), partition_of(run.slot_hi)} == {
            partition_of(slot_of(batch[0].start_time_ms))
        }
