"""Selection: pages without hole or repeat, over the ring's end, bounded in what they read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import pytest

from tests.fix_hands import task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import settle_as, submit_all
from tests.integration.test_plans import read_by, touched
from wheel_timer.database import Database
from wheel_timer.store import selection
from wheel_timer.store.filter import Filter
from wheel_timer.store.selection import NIL, Key, select_page, select_places
from wheel_timer.task import NewTask, Status
from wheel_timer.wheel import LAP_S, new_task_id, partition_of, slot_of

WRAP_MS: Final = 1_800_000_000_000  # 2027-01-15 08:00 UTC: slot 0
LAP_MS: Final = LAP_S * 1000
NOW_MS: Final = WRAP_MS


async def all_pages(
    db: Database, filter_: Filter, limit: int = 7, *, in_time_order: bool = True, shards: int = 1
) -> list[UUID]:
    """The ids of all pages, in their order."""
    found: list[UUID] = []
    key: Key | None = Key()
    while key is not None:
        if in_time_order:
            page = await select_page(db, filter_, key, limit, now_ms=NOW_MS, shards=shards)
            ids_of_page = [row.task_id for row in page.rows]
            after = page.key
        else:
            places = await select_places(db, filter_, key, limit, now_ms=NOW_MS, shards=shards)
            ids_of_page = [task_id for part in places.parts for task_id in part.ids()]
            after = places.key
        assert len(ids_of_page) <= limit
        assert after is None or after != key, "a page that does not go on"
        found += ids_of_page
        key = after
    return found


def ids(tasks: Sequence[NewTask]) -> list[UUID]:
    return [task.task_id for task in tasks]


async def test_pages_over_the_rings_end_are_whole_and_in_order_of_time(db: Database) -> None:
    tasks = await submit_all(db, [task_at(WRAP_MS + ms) for ms in range(-40_000, 40_000, 1_700)])
    found = await all_pages(db, Filter(start_from=WRAP_MS - 40_000, start_to=WRAP_MS + 40_000))
    assert found == ids(tasks)


async def test_the_interval_holds_its_beginning_and_not_its_end(db: Database) -> None:
    tasks = await submit_all(db, [task_at(WRAP_MS + ms) for ms in (499, 500, 501, 1_500, 1_501)])
    found = await all_pages(db, Filter(start_from=WRAP_MS + 500, start_to=WRAP_MS + 1_501))
    assert found == ids(tasks[1:4])


async def test_rows_of_other_laps_in_the_same_slots_are_not_shown(db: Database) -> None:
    tasks = [[task_at(WRAP_MS + lap * LAP_MS + n) for n in range(20)] for lap in range(3)]
    laps = [await submit_all(db, lap) for lap in tasks]
    for lap, own in enumerate(laps):
        low = WRAP_MS + lap * LAP_MS
        assert await all_pages(db, Filter(start_from=low, start_to=low + 1000)) == ids(own)


async def test_a_list_of_several_laps_is_in_order_of_time(db: Database) -> None:
    tasks = await submit_all(
        db, [task_at(WRAP_MS + random.Random(n).randrange(0, 3 * LAP_MS)) for n in range(60)]
    )
    found = await all_pages(db, Filter(start_from=WRAP_MS, start_to=WRAP_MS + 3 * LAP_MS))
    assert found == ids(tasks)


async def test_around_the_ring_every_task_of_every_lap_comes_once(db: Database) -> None:
    """The way of an operation that names no time."""
    tasks = await submit_all(
        db, [task_at(WRAP_MS + random.Random(n).randrange(0, 20 * LAP_MS)) for n in range(60)]
    )
    found = await all_pages(db, Filter(), in_time_order=False)
    assert sorted(found) == sorted(ids(tasks))
    ordered = sorted(tasks, key=lambda t: (slot_of(t.start_time_ms), t.start_time_ms, t.task_id))
    assert found == ids(ordered)


async def test_a_hot_second_is_paged_through_without_repeat_or_hole(db: Database) -> None:
    """Tasks of one millisecond are told apart by their ids alone."""
    tasks = await submit_all(db, [task_at(WRAP_MS + n % 3) for n in range(500)])
    assert await all_pages(db, Filter(start_from=WRAP_MS, start_to=WRAP_MS + 60_000), 19) == ids(
        tasks
    )


async def test_shards_are_merged_in_order_of_time(db: Database, sessions: Sessions) -> None:
    session = await sessions.open()
    made = []
    for n in range(90):
        at_ms, shard = WRAP_MS + n // 3 * 400, n % 3
        made.append((at_ms, new_task_id(at_ms, shard)))
        await session.execute(
            "INSERT INTO timer_task (slot, shard, start_time, task_id, create_time, biz_type)"
            " VALUES (%s, %s, %s, %s, 0, 'orders')",
            [slot_of(at_ms), shard, at_ms, made[-1][1]],
        )
    whole = Filter(start_from=WRAP_MS, start_to=WRAP_MS + 60_000)
    assert await all_pages(db, whole, shards=3) == [task_id for _, task_id in sorted(made)]


async def test_each_member_of_a_filter_narrows_it(db: Database, sessions: Sessions) -> None:
    session = await sessions.open()
    schedule_id = UUID(int=5)
    tasks = await submit_all(
        db,
        [
            task_at(WRAP_MS + n, biz_type=f"orders.{'ab'[n % 2]}", biz_id=f"id-{n}")
            for n in range(12)
        ],
    )
    await settle_as(session, tasks[:4], Status.FINISHED, WRAP_MS + 100, http_status=204)
    await settle_as(session, tasks[4:6], Status.CANCELLED, WRAP_MS + 200)
    await session.execute(
        "UPDATE timer_task SET lease_until = %s, schedule_id = %s WHERE task_id = ANY (%s)",
        [1 << 50, schedule_id, ids(tasks[6:8])],
    )
    whole = {"start_from": WRAP_MS, "start_to": WRAP_MS + 1000}
    expected: list[tuple[dict[str, Any], list[NewTask]]] = [
        ({}, tasks),
        ({"biz_type": "orders.a"}, tasks[::2]),
        ({"visible": ("orders.b", "nobody*")}, tasks[1::2]),
        ({"visible": ("orders.*",)}, tasks),
        ({"visible": ("orders_a",)}, []),
        ({"status": "finished"}, tasks[:4]),
        ({"status": "cancelled"}, tasks[4:6]),
        ({"status": "delivering"}, tasks[6:8]),
        ({"status": "pending"}, tasks[8:]),
        ({"http_status": 204}, tasks[:4]),
        ({"http_status": 500}, []),
        ({"schedule_id": schedule_id}, tasks[6:8]),
        ({"finish_from": WRAP_MS + 100, "finish_to": WRAP_MS + 200}, tasks[:4]),
        ({"finish_from": WRAP_MS + 101}, tasks[4:6]),
        ({"asked_at": 1}, []),
        ({"biz_type": "orders.a", "biz_id_prefix": "id-1"}, [tasks[10]]),
        ({"biz_type": "orders.b", "biz_id_prefix": "id-1"}, [tasks[1], tasks[11]]),
        ({"biz_type": "orders.b", "biz_id": "id-1"}, [tasks[1]]),
        ({"biz_type": "orders.b", "biz_id": "id-2"}, []),
        ({"biz_type": "orders.a", "biz_id_prefix": "id", "status": "cancelled"}, [tasks[4]]),
    ]
    for given, meant in expected:
        assert await all_pages(db, Filter(**whole | given), 3) == ids(meant), given


async def test_prefixes_end_where_the_next_text_begins(db: Database) -> None:
    """The end of a prefix is a text too, in the order of the index; the last characters too."""
    names = ["a", "a\U0010ffff", "a\U0010ffffz", "a\ud7ff", "a\ue000", "ab", "a%", "a_", "b", "ä"]
    tasks = await submit_all(
        db, [task_at(WRAP_MS + n, biz_id=name) for n, name in enumerate(names)]
    )
    by_name = {task.biz_id: task.task_id for task in tasks}
    for prefix in ("a", "a\U0010ffff", "a\ud7ff", "a%", "b", "ä", "c"):
        meant = [by_name[name] for name in sorted(names) if name.startswith(prefix)]
        found = await all_pages(db, Filter(biz_type="orders", biz_id_prefix=prefix), 2)
        assert found == meant, prefix


@pytest.mark.parametrize("biz_type", [None, "orders"])
async def test_dead_letters_come_in_the_order_they_died(
    biz_type: str | None, db: Database, sessions: Sessions
) -> None:
    session = await sessions.open()
    tasks = await submit_all(db, [task_at(WRAP_MS + n * 90_000_000) for n in range(40)])
    died: list[tuple[int, NewTask]] = []
    for n, task in enumerate(tasks):
        at_ms = WRAP_MS - n // 5  # several in one millisecond, in no order of their moments
        await settle_as(session, [task], Status.FAILED, at_ms, http_status=500 + n % 2)
        died.append((at_ms, task))
    died.sort(key=lambda one: (one[0], one[1].task_id))
    dead = [task for _, task in died]
    assert await all_pages(db, Filter(biz_type=biz_type, status="failed")) == ids(dead)
    only = Filter(biz_type=biz_type, status="failed", http_status=500)
    assert set(await all_pages(db, only)) == set(ids(tasks[::2]))
    late = Filter(biz_type=biz_type, status="failed", finish_from=WRAP_MS - 1, finish_to=WRAP_MS)
    assert set(await all_pages(db, late)) == set(ids(tasks[5:10]))
    early = Filter(biz_type=biz_type, status="failed", start_to=WRAP_MS + 1)
    assert await all_pages(db, early) == [tasks[0].task_id]


async def test_a_task_that_moved_is_found_by_its_key(db: Database, sessions: Sessions) -> None:
    """Its home row says where it is; in order of time it stands at its new moment only."""
    session = await sessions.open()
    (task,) = await submit_all(db, [task_at(WRAP_MS, biz_id="one")])
    moved_ms = WRAP_MS + 5_000
    await session.execute(
        "UPDATE timer_task SET status = 4, moved_to = %s WHERE task_id = %s",
        [moved_ms, task.task_id],
    )
    await session.execute(
        "INSERT INTO timer_task (slot, shard, start_time, task_id, create_time, biz_type, biz_id)"
        " VALUES (%s, 0, %s, %s, 0, 'orders', 'one')",
        [slot_of(moved_ms), moved_ms, task.task_id],
    )
    page = await select_page(
        db, Filter(biz_type="orders", biz_id="one"), Key(), 10, now_ms=NOW_MS, shards=1
    )
    assert [row.start_time for row in page.rows] == [moved_ms]
    at_home = Filter(start_from=WRAP_MS, start_to=WRAP_MS + 1)
    assert await all_pages(db, at_home) == []
    assert await all_pages(db, Filter(start_from=moved_ms, start_to=moved_ms + 1)) == ids([task])


async def test_a_page_looks_at_a_bounded_number_of_rows(
    db: Database, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that fits nothing: short pages, each with where the next one goes on."""
    monkeypatch.setattr(selection, "LOOKED_MAX", 300)
    monkeypatch.setattr(selection, "LOOK_ROWS", 100)
    await submit_all(db, [task_at(WRAP_MS + n) for n in range(1_000)])
    (last,) = await submit_all(db, [task_at(WRAP_MS + 1_000, biz_type="rare")])
    rare = Filter(biz_type="rare", start_from=WRAP_MS, start_to=WRAP_MS + 2_000)
    key: Key | None = Key()
    pages = []
    while key is not None:
        page = await select_page(db, rare, key, 10, now_ms=NOW_MS, shards=1)
        pages.append([row.task_id for row in page.rows])
        key = page.key
    assert pages == [[], [], [], [last.task_id]]


HOT_ROWS: Final = 5_000


@pytest.fixture
async def hot(db: Database, sessions: Sessions) -> list[NewTask]:
    """5,000 tasks of one second, and as many of the lap before; nothing was ever analysed."""
    session = await sessions.open()
    await session.execute("ALTER TABLE timer_task_00 SET (autovacuum_enabled = off)")
    before = [task_at(WRAP_MS - LAP_MS + n % 1000) for n in range(HOT_ROWS)]
    tasks = [task_at(WRAP_MS + n % 1000) for n in range(HOT_ROWS)]
    random.Random(3).shuffle(tasks)
    await submit_all(db, before)
    return await submit_all(db, tasks)


def place_params(**changed: Any) -> dict[str, Any]:
    names = (
        *("biz_type", "biz_types", "status", "is_leased", "finish_from", "finish_to"),
        *("http_status", "schedule_id", "asked_at"),
    )
    slot = slot_of(WRAP_MS)
    return (
        dict.fromkeys(names)
        | {
            "slot_lo": slot,
            "slot_hi": slot + 99_999,
            "from": WRAP_MS,
            "to": WRAP_MS + 100_000_000,
            "key_time": 0,
            "key_id": NIL,
            "shards": 1,
            "limit": 100,
            "looked_max": 100,
        }
        | changed
    )


async def test_a_page_of_a_hot_second_reads_its_rows_and_no_more(
    hot: list[NewTask], sessions: Sessions
) -> None:
    """On a fresh partition without statistics, from the middle of the second too."""
    session = await sessions.open()
    partition = partition_of(slot_of(WRAP_MS))
    for first in range(0, HOT_ROWS, 1_000):
        key = hot[first]
        async with session.transaction():
            params = place_params(key_time=key.start_time_ms, key_id=key.task_id)
            rows, read = await read_by(session, "select_by_place", params)
            assert [row[0] for row in rows[:-1]] == ids(hot[first + 1 : first + 101])
            assert read <= 110
            assert await touched(session) == [partition]


async def test_what_fits_nothing_is_looked_at_as_far_as_allowed(
    hot: list[NewTask], sessions: Sessions
) -> None:
    session = await sessions.open()
    async with session.transaction():
        params = place_params(biz_type="nobody", looked_max=700)
        rows, read = await read_by(session, "select_by_place", params)
    assert len(rows) == 1
    assert rows[0][3] == 700
    assert read <= 710


async def test_an_empty_interval_beside_a_full_lap_costs_a_descent(
    hot: list[NewTask], sessions: Sessions
) -> None:
    """10,000 rows of other laps lie in the slot asked for."""
    session = await sessions.open()
    async with session.transaction():
        low = WRAP_MS + LAP_MS
        params = {"from": low, "to": low + 100_000_000}
        (mark,), read = await read_by(session, "select_by_place", place_params(**params))
    assert (mark[3], mark[7]) == (1, True)
    assert read <= 3


@pytest.mark.parametrize("biz_type", [None, "orders"])
async def test_a_page_of_dead_letters_reads_a_page(
    biz_type: str | None, db: Database, sessions: Sessions
) -> None:
    session = await sessions.open()
    await session.execute("ALTER TABLE timer_dead SET (autovacuum_enabled = off)")
    await session.execute(
        "INSERT INTO timer_dead (task_id, finish_time, biz_type)"
        " SELECT gen_random_uuid(), n / 500, CASE n % 2 WHEN 0 THEN 'orders' ELSE 'mail' END"
        " FROM generate_series(1, 20000) AS n"
    )
    counts = []
    reads = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables"
    params = {
        "biz_type": biz_type,
        "from": 0,
        "to": 1 << 50,
        "limit": 50,
        "key_time": 20,
        "key_id": UUID(int=1 << 127),
    }
    async with session.transaction():
        for run in (False, True):
            if run:
                rows, _ = await read_by(session, "select_dead", params)
                assert len(rows) == 50
            cursor = await session.execute(f"{reads} WHERE relname = 'timer_dead'".encode())
            row = await cursor.fetchone()
            counts.append(int(row[0]) if row else 0)
    assert counts[1] - counts[0] <= 50
