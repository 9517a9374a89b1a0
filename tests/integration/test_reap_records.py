"""What is written about the wheel has its time, too: changes, versions, operations, secrets."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import msgspec
import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import RETENTION_S, Hands, task_at
from tests.fix_reaping import DAY_MS
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from wheel_timer.database import Database
from wheel_timer.store import ledger
from wheel_timer.store import reap as store
from wheel_timer.store.ledger import QuarterKey, fold

KEPT_MS: Final = round(RETENTION_S * 1000)


async def reaped_today(hands: Hands, clock: DatabaseClock) -> int:
    clock.advance(DAY_MS)
    return await hands.reap_all()


async def test_changes_of_tasks_go_after_a_month_and_others_after_the_retention(
    hands: Hands, clock: DatabaseClock, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BATCH_ROWS_MAX", 3)
    now_ms = clock.freeze() + DAY_MS
    session = await sessions.open()
    for action in ("task.cancel", "biz.put"):
        for age_ms in (29 * DAY_MS, 31 * DAY_MS, KEPT_MS - DAY_MS, KEPT_MS + 1):
            for _ in range(2):
                await session.execute(
                    "INSERT INTO timer_change (time, actor, action, object)"
                    " VALUES (%s, 'a', %s, 'o')",
                    [now_ms - age_ms, action],
                )
    assert await reaped_today(hands, clock) == 8
    rows = await session.execute(
        "SELECT action, (%s - time) / 86400000, count(*) FROM timer_change"
        " GROUP BY 1, 2 ORDER BY 1, 2",
        [now_ms],
    )
    assert await rows.fetchall() == [
        ("biz.put", 29, 2), ("biz.put", 31, 2), ("biz.put", 399, 2), ("task.cancel", 29, 2),
    ]  # fmt: skip
    # Once a day is enough.
    await session.execute("UPDATE timer_change SET time = 0")
    assert await hands.reap_all() == 0
    assert await reaped_today(hands, clock) == 8


async def test_old_quarters_of_which_nothing_is_left_are_summed_up_by_day(
    hands: Hands, clock: DatabaseClock, db: Database, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze(clock.now_ms() // DAY_MS * DAY_MS)
    old_ms, new_ms = now_ms - KEPT_MS - DAY_MS, now_ms - KEPT_MS + 2 * DAY_MS
    session = await sessions.open()
    for day_ms in (old_ms, new_ms):
        await session.execute(
            "INSERT INTO timer_ledger"
            " SELECT %s + 900000 * n, 4, 1, 1, 1, 1, 2, 2, 1, 0, 2, 1, 1, 'orders'"
            " FROM generate_series(1, 3) AS n",
            [day_ms],
        )
    # One more that is still pending, in a quarter hour of its own.
    await submit_all(db, [task_at(old_ms + 5 * 900_000)])
    await fold(db, hands.leader.epoch, 100)
    await audits_hold()
    query = (
        "SELECT (quarter - %s) / 900000, submitted, finished, reaped_failed FROM timer_ledger"
        " WHERE quarter < %s ORDER BY 1"
    )
    assert await reaped_today(hands, clock) == 0
    rows = await (await session.execute(query, [old_ms, new_ms])).fetchall()
    assert rows == [(0, 12, 6, 3), (5, 1, 0, 0)]
    rows = await (await session.execute(query, [new_ms, now_ms])).fetchall()
    assert [row[0] for row in rows if row[0] > 0] == [1, 2, 3]
    await audits_hold()
    # A second day of the same changes nothing, and the next quarter hours join the row of theirs.
    clock.advance(DAY_MS)
    assert await reaped_today(hands, clock) == 0
    rows = await (await session.execute(query, [old_ms, now_ms])).fetchall()
    assert [row[:2] for row in rows] == [(0, 12), (5, 1), (288, 12)]
    await audits_hold()


async def test_the_ledger_is_made_coarser_in_pieces_however_large_it_is(
    hands: Hands, clock: DatabaseClock, db: Database, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """Neither what is young nor what was summed up is read again and again on the way."""
    now_ms = clock.freeze(clock.now_ms() // DAY_MS * DAY_MS)
    old_ms, session = now_ms - KEPT_MS - 2 * DAY_MS, await sessions.open()
    for first_ms, count in ((old_ms, 40), (now_ms - KEPT_MS + DAY_MS, 3_000)):
        await session.execute(
            "INSERT INTO timer_ledger"
            " SELECT %s + CAST(900000 AS bigint) * n, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, b"
            " FROM generate_series(1, %s) AS n, unnest(ARRAY['fees', 'orders']) AS b",
            [first_ms, count],
        )
    keys, summed = [QuarterKey()], []
    while len(keys) < 20:
        count, key = await ledger.coarsen(db, KEPT_MS, keys[-1], 15)
        summed.append(count)
        if key is None:
            break
        keys.append(key)
    assert summed == [0, 15, 15, 10, 15, 15, 10]
    assert keys == sorted(set(keys))
    rows = await session.execute(
        "SELECT biz_type, quarter - %s, reaped_finished FROM timer_ledger"
        " WHERE quarter < %s ORDER BY 1, 2",
        [old_ms, old_ms + 2 * DAY_MS],
    )
    assert await rows.fetchall() == [("fees", 0, 40), ("orders", 0, 40)]
    await audits_hold()
    # The statistics of a session of its own tell of this alone.
    session = await sessions.open()
    async with session.transaction():
        await session.execute(
            "SELECT wheel_ledger_coarsen_v1(%s, 'fees', %s, 15)", [KEPT_MS, old_ms]
        )
        read = await session.execute(
            "SELECT pg_stat_get_xact_tuples_returned(CAST('timer_ledger' AS regclass)),"
            " pg_stat_get_xact_tuples_returned(CAST('timer_ledger_pkey' AS regclass))"
        )
        scanned, entries = await read.fetchone() or (None, None)
    assert scanned == 0
    assert entries is not None
    # The page's, those of it that go, and the next biz_type's first.
    assert entries < 60


async def test_of_each_biz_type_the_last_version_stays(
    hands: Hands, clock: DatabaseClock, sessions: Sessions
) -> None:
    session = await sessions.open()
    await session.execute(
        "INSERT INTO timer_biz_history (version, time, biz_type, actor, action, shown)"
        " SELECT v, 0, CASE WHEN v <= 3 THEN 'old' ELSE 'new' END, 'a', 'biz.put', '{}'"
        " FROM generate_series(1, 5) AS v"
    )
    await session.execute("UPDATE timer_biz_history SET time = wheel_now_ms() WHERE version = 4")
    assert await hands.reap_all() == 2
    rows = await session.execute("SELECT version FROM timer_biz_history ORDER BY 1")
    assert await rows.fetchall() == [(3,), (4,), (5,)]


async def test_operations_and_keys_that_have_ended_go_others_stay(
    hands: Hands, clock: DatabaseClock, sessions: Sessions
) -> None:
    old_ms, now_ms = clock.freeze() - KEPT_MS - 1, clock.now_ms()
    session = await sessions.open()
    for state, finish_ms in (("running", None), ("done", old_ms), ("failed", now_ms)):
        await session.execute(
            "INSERT INTO timer_operation (operation_id, create_time, finish_time, action, state,"
            " actor, filter) VALUES (%s, %s, %s, 'cancel', %s, 'a', '{}')",
            [uuid4(), old_ms, finish_ms, state],
        )
    keys = {
        "revoked": (None, old_ms), "revoked-now": (None, now_ms), "expired": (old_ms, None),
        "expires": (now_ms + 1, None), "open": (None, None),
    }  # fmt: skip
    for version, (key_id, (expire_ms, revoke_ms)) in enumerate(keys.items()):
        await session.execute(
            "INSERT INTO timer_key_api (key_id, version, name, scopes, biz_types, secret,"
            " create_time, expire_at, revoke_time) VALUES (%s, %s, 'n', '{}', '{}', '', 0, %s, %s)",
            [key_id, version, expire_ms, revoke_ms],
        )
    assert await hands.reap_all() == 3
    rows = await session.execute("SELECT state FROM timer_operation ORDER BY 1")
    assert await rows.fetchall() == [("failed",), ("running",)]
    rows = await session.execute("SELECT key_id FROM timer_key_api ORDER BY 1")
    assert await rows.fetchall() == [("expires",), ("open",), ("revoked-now",)]


async def test_secrets_that_were_rotated_away_are_forgotten_when_they_have_ended(
    hands: Hands, clock: DatabaseClock, sessions: Sessions
) -> None:
    """The version stays: what they open is nothing by now, and nobody has to read it again."""
    now_ms = clock.freeze()
    kept = [
        {"kind": "signing", "value": "new"},
        {"kind": "signing", "value": "leaving", "until_ms": now_ms + 1},
        {"kind": "header", "name": "authorization", "value": "h"},
    ]
    ended = {"kind": "signing", "value": "old", "until_ms": now_ms}
    session = await sessions.open()
    for version, secrets in enumerate(([*kept, ended], kept)):
        await session.execute(
            "INSERT INTO timer_biz (biz_type, version, config, secrets, create_time, update_time)"
            " VALUES (%s, %s, '{}', %s, 0, 0)",
            [f"biz-{version}", version, msgspec.json.encode(secrets).decode()],
        )
    for version, until_ms in enumerate((now_ms, now_ms + 1)):
        await session.execute(
            "INSERT INTO timer_key_api (key_id, version, name, scopes, biz_types, secret, previous,"
            " previous_until, create_time) VALUES (%s, %s, 'n', '{}', '{}', 'new', 'old', %s, 0)",
            [f"key-{version}", version, until_ms],
        )
    assert await hands.reap_all() == 2
    rows = await session.execute("SELECT version, secrets FROM timer_biz ORDER BY 1")
    assert await rows.fetchall() == [(0, kept), (1, kept)]
    rows = await session.execute(
        "SELECT previous, previous_until FROM timer_key_api ORDER BY key_id"
    )
    assert await rows.fetchall() == [(None, None), (b"old", now_ms + 1)]


async def test_attempts_go_whose_task_is_gone(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Page after page, also where a task's attempts lie on two of them."""
    monkeypatch.setattr(store, "BATCH_ROWS_MAX", 2)
    tasks = [task_at(clock.now_ms() + DAY_MS) for _ in range(6)]
    await submit_all(db, tasks[::2])
    session = await sessions.open()
    for task in tasks:
        for attempt in (1, 2, 3):
            await session.execute(
                "INSERT INTO timer_attempt (task_id, attempt, life, outcome)"
                " VALUES (%s, %s, 1, 'superseded')",
                [task.task_id, attempt],
            )
    assert await hands.reap_all() == 9
    rows = await session.execute("SELECT task_id, count(*) FROM timer_attempt GROUP BY 1")
    assert dict(await rows.fetchall()) == {task.task_id: 3 for task in tasks[::2]}
