"""Schedules in the store: what a change puts on the wheel and takes back, and who may be called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from daemon.leader import Leader
from daemon.schedules import ScheduleHand
from tests.fix_audits import AuditsHold
from tests.fix_hands import Hands, NewHands
from tests.fix_lanes import Lanes
from tests.fix_schedules import HOUR, NEVER_YET, NOON, Schedules, all_steps, hand_of
from tests.fix_sessions import Sessions
from wheel_timer import metrics
from wheel_timer.errors import InvalidTask
from wheel_timer.schedule import occurrence
from wheel_timer.store import occurrence as occurrences
from wheel_timer.store import schedule as store
from wheel_timer.store.claim import claim
from wheel_timer.store.migrate import migrate
from wheel_timer.task import Ref


async def test_a_new_schedule_is_on_the_wheel_at_once(
    schedules: Schedules, audits_hold: AuditsHold
) -> None:
    put = await schedules.put(cron="*/10 * * * *")
    assert put.before is None
    minutes = [NOON + n * 600_000 for n in range(1, 7)]
    assert await schedules.tasks() == minutes
    stored = await store.load(schedules.db, "orders", "s")
    assert stored is not None
    assert (stored.version, stored.next_time) == (1, minutes[-1] + 600_000)
    await audits_hold()


async def test_the_same_again_changes_nothing(schedules: Schedules) -> None:
    await schedules.put()
    before = await schedules.tasks()
    for _ in range(3):
        assert not (await schedules.put()).changed
    assert await schedules.tasks() == before


async def test_switching_a_hundred_times_doubles_nothing(
    schedules: Schedules, hand: ScheduleHand, audits_hold: AuditsHold
) -> None:
    await schedules.put(cron="0 */15 * * * *")
    for n in range(100):
        await schedules.put(enabled=bool(n % 2))
    await all_steps(hand)
    assert await schedules.tasks() == [NOON + n * 900_000 for n in range(1, 5)]
    assert await schedules.registered() == 4
    await audits_hold()


async def test_disabled_takes_all_back(schedules: Schedules, audits_hold: AuditsHold) -> None:
    await schedules.put(cron="*/10 * * * *")
    # One of them is due by now, and waits in its lane.
    schedules.clock.freeze(NOON + 601_000)
    await schedules.put(enabled=False)
    assert await schedules.tasks() == []
    assert len(await schedules.tasks(3)) == 6
    assert await schedules.registered() == 0
    await audits_hold()


async def test_a_change_replaces_what_is_to_come_and_leaves_what_was_due(
    schedules: Schedules, audits_hold: AuditsHold
) -> None:
    await schedules.put(cron="*/10 * * * *")
    now = NOON + 601_000
    schedules.clock.freeze(now)
    await schedules.put(cron="30 */10 * * * *", biz_data=b"2")
    came = await schedules.tasks()
    assert came[0] == NOON + 600_000
    assert came[1:] == [NOON + 630_000 + n * 600_000 for n in range(6)]
    assert await schedules.tasks(3) == [NOON + n * 600_000 for n in range(2, 7)]
    await audits_hold()


async def test_deleted_takes_all_back(schedules: Schedules, audits_hold: AuditsHold) -> None:
    await schedules.put()
    await store.delete(schedules.db, "orders", "s", actor="test", lookahead_ms=1000)
    assert await schedules.tasks() == []
    assert await store.load(schedules.db, "orders", "s") is None
    await audits_hold()


async def test_one_that_is_being_claimed_is_stopped(
    schedules: Schedules, audits_hold: AuditsHold
) -> None:
    await schedules.put()
    stored = await store.load(schedules.db, "orders", "s")
    assert stored is not None
    first = occurrence(stored, NOON + 60_000)
    schedules.clock.freeze(NOON + 60_000)
    ref = Ref(first.task_id, first.start, first.start, first.start, "orders")
    claimed = await claim(schedules.db, [ref], [10_000])
    assert [one.scheduled_time_ms for one in claimed.claims] == [NOON + 60_000]
    put = await schedules.put(enabled=False)
    assert put.under_way == 1
    rows = await schedules.db.read("SELECT stop FROM timer_task WHERE status = 0", timeout_s=5)
    assert rows[1] == [(True,)]
    await audits_hold()


async def test_taken_back_in_pages_where_there_are_many(
    schedules: Schedules, monkeypatch: pytest.MonkeyPatch, audits_hold: AuditsHold
) -> None:
    monkeypatch.setattr(store, "TAKE_MAX", 25)
    await schedules.put()
    await schedules.put(enabled=False)
    assert await schedules.tasks() == []
    assert len(await schedules.tasks(3)) == 60
    await audits_hold()


async def test_there_is_no_schedule_without_its_biz_type(schedules: Schedules) -> None:
    with pytest.raises(InvalidTask):
        await store.change(
            schedules.db,
            "nobody",
            "s",
            lambda _: NEVER_YET,
            schedules.wheel,
            actor="test",
            action="schedule.put",
        )


async def test_the_daemon_goes_on_where_the_change_ended(
    schedules: Schedules,
    hand: ScheduleHand,
    monkeypatch: pytest.MonkeyPatch,
    audits_hold: AuditsHold,
) -> None:
    counted: list[tuple[str, int]] = []
    monkeypatch.setattr(metrics, "tasks_submitted", lambda *of: counted.append(of))
    put = await schedules.put(cron="*/10 * * * * *")
    assert len(await schedules.tasks()) == put.occurrences == store.FIRST_MAX
    await all_steps(hand)
    assert await schedules.tasks() == [NOON + n * 10_000 for n in range(1, 361)]
    assert counted == [("orders", 260)]
    await audits_hold()


async def test_a_change_leaves_to_the_version_before_what_no_daemon_had_put_on_the_wheel(
    schedules: Schedules, audits_hold: AuditsHold
) -> None:
    """No daemon for two hours; somebody changes the schedule before one is back."""
    first = await schedules.put(cron="*/20 * * * *", misfire="all")
    now = NOON + 2 * HOUR + 60_000
    schedules.clock.freeze(now)
    put = await schedules.put(cron="50 * * * *")
    assert put.occurrences == 4
    assert await schedules.tasks() == [
        *(NOON + n * 1_200_000 for n in range(1, 7)),
        now - 60_000 + 3_000_000,
    ]
    late = {occurrence(first.schedule, NOON + n * 1_200_000).task_id for n in (4, 5, 6)}
    assert {ref.task_id for ref in put.near} == late
    await audits_hold()


async def test_nothing_is_lost_at_the_edges_of_the_horizon(
    schedules: Schedules, hands: Hands, hand: ScheduleHand
) -> None:
    """Every hour an edge; and one in the middle of a step that is not a whole hour's."""
    await schedules.put(cron="5,15,25 * * * *")
    for n in range(1, 80):
        schedules.clock.freeze(NOON + n * 1_000_000)
        await hands.measure()
        await all_steps(hand)
    end = NOON + 79 * 1_000_000
    due = [moment for moment in await schedules.tasks() if moment <= end]
    hours = range(NOON, end, HOUR)
    expected = [h + m * 60_000 for h in hours for m in (5, 15, 25) if h + m * 60_000 <= end]
    assert due == expected


async def test_each_shard_brings_its_own(
    schedules: Schedules,
    hands: Hands,
    hand: ScheduleHand,
    sessions: Sessions,
    database_url: str,
    audits_hold: AuditsHold,
) -> None:
    await asyncio.to_thread(migrate, database_url, "public", 2)
    schedules.wheel = schedules.wheel._replace(shards=2)
    made: dict[str, int] = {}
    while set(made.values()) != {0, 1}:
        name = f"s{len(made)}"
        made[name] = (await schedules.put(name, cron="*/10 * * * * *")).schedule.shard
    # Beyond half a horizon a page may have had no room.
    on_shard = "SELECT count(*) FROM timer_task WHERE shard = %s AND start_time <= %s"
    half = NOON + HOUR // 2
    counts = [list(made.values()).count(shard) for shard in (0, 1)]
    await all_steps(hand)
    assert await sessions.value(on_shard, 0, half) == counts[0] * 180
    assert await sessions.value(on_shard, 1, half) == counts[1] * store.FIRST_MAX
    hands.leader = Leader(hands.session, hands.db, 1, hands.name)
    await all_steps(hand_of(hands))
    assert await sessions.value(on_shard, 1, half) == counts[1] * 180
    for name in made:
        await schedules.put(name, enabled=False)
    assert await schedules.tasks() == []
    await audits_hold()


async def test_two_daemons_write_each_occurrence_once(
    schedules: Schedules, hand: ScheduleHand, new_hands: NewHands, audits_hold: AuditsHold
) -> None:
    other = new_hands()
    await other.measure()
    second = hand_of(other)
    for name in ("a", "b", "c"):
        await schedules.put(name, cron="* * * * * *")
    await asyncio.gather(all_steps(hand), all_steps(second))
    half = NOON + HOUR // 2
    tasks = [moment for moment in await schedules.tasks() if moment <= half]
    assert tasks == [NOON + n * 1000 for n in range(1, 1801) for _ in range(3)]
    await audits_hold()


async def test_a_change_beats_a_daemon_that_has_computed_the_version_before(
    schedules: Schedules, hands: Hands, hand: ScheduleHand, audits_hold: AuditsHold
) -> None:
    await schedules.put(cron="*/10 * * * * *")
    with hands.db.gate("schedule_generate") as gate:
        step = asyncio.create_task(hand.tick())
        await gate.arrived()
        await schedules.put(enabled=False)
    await step
    assert await schedules.tasks() == []
    await audits_hold()


@pytest.mark.parametrize(
    ("misfire", "came"),
    [
        ("skip", lambda now: [now - 30_000]),
        ("once", lambda now: [now - 30_000]),
        ("all", lambda now: [NOON + n * 60_000 for n in range(61, 121)]),
    ],
)
async def test_two_hours_without_a_daemon(
    schedules: Schedules,
    hands: Hands,
    hand: ScheduleHand,
    misfire: str,
    came: Callable[[int], list[int]],
) -> None:
    """What was on the wheel before stays there; of the rest goes what the policy says."""
    await schedules.put(misfire=misfire)
    before = await schedules.tasks()
    now = NOON + 2 * HOUR + 30_000
    schedules.clock.freeze(now)
    await hands.measure()
    await all_steps(hand)
    caught_up = [one for one in await schedules.tasks() if one not in before and one <= now]
    assert caught_up == came(now)


async def test_one_that_comes_seldom_is_caught_up_with(
    schedules: Schedules, hands: Hands, hand: ScheduleHand
) -> None:
    at_two = NOON + 2 * HOUR
    for misfire in ("skip", "once", "all"):
        await schedules.put(misfire, cron="0 14 * * *", misfire=misfire)
    now = at_two + 10 * HOUR
    schedules.clock.freeze(now)
    await hands.measure()
    await all_steps(hand)
    assert await schedules.tasks() == [at_two, at_two]


async def test_what_was_called_is_forgotten(
    schedules: Schedules, hands: Hands, hand: ScheduleHand
) -> None:
    await schedules.put(cron="*/20 * * * *")
    schedules.clock.freeze(NOON + HOUR + 120_000)
    stored = await store.load(schedules.db, "orders", "s")
    assert stored is not None
    first = occurrence(stored, NOON + 1_200_000)
    ref = Ref(first.task_id, first.start, first.start, first.start, "orders")
    await claim(schedules.db, [ref], [10_000])
    assert await occurrences.forget(schedules.db, 0) == 3
    assert await schedules.registered() == 3  # in a call, and not called: all may be taken back
    schedules.clock.freeze(NOON + 2 * HOUR)
    await schedules.put(enabled=False)
    assert await schedules.registered() == 0


async def test_what_is_to_be_forgotten_is_not_left_for_the_next_look(
    schedules: Schedules,
    hands: Hands,
    hand: ScheduleHand,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(occurrences, "FORGET_ROWS", 20)
    await schedules.put()
    assert await schedules.registered() == 60
    await sessions.value("UPDATE timer_task SET started = start_time RETURNING 1")
    schedules.clock.freeze(NOON + HOUR + 60_000)
    await hands.measure()
    await all_steps(hand)
    coming = [moment for moment in await schedules.tasks() if moment > NOON + HOUR]
    assert await schedules.registered() == len(coming)


async def test_while_one_is_not_settled_no_other_is_admitted(schedules: Schedules) -> None:
    await schedules.put(overlap="skip")
    stored = await store.load(schedules.db, "orders", "s")
    assert stored is not None
    one, two = (occurrence(stored, NOON + n * 60_000) for n in (1, 2))
    ids = [(stored.schedule_id, one.task_id), (stored.schedule_id, two.task_id)]
    assert await occurrences.admit(schedules.db, ids) == {two.task_id}
    assert await occurrences.admit(schedules.db, ids[:1]) == set()
    assert await occurrences.admit(schedules.db, ids[1:]) == {two.task_id}
    await schedules.put(enabled=False)  # the first is cancelled, and so settled
    assert await occurrences.admit(schedules.db, ids[1:]) == set()


async def test_what_is_due_by_now_is_published_at_once(
    schedules: Schedules, hands: Hands, hand: ScheduleHand, lanes: Lanes
) -> None:
    put = await schedules.put(cron="0 14 * * *")
    at_two = NOON + 2 * HOUR
    schedules.clock.freeze(at_two + 10_000)
    await hands.measure()
    await all_steps(hand)
    assert await lanes.ids() == [occurrence(put.schedule, at_two).task_id]


async def test_those_that_cannot_be_computed_keep_no_other_waiting(
    schedules: Schedules,
    hands: Hands,
    hand: ScheduleHand,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even where they are a whole page, and the first."""
    monkeypatch.setattr(occurrences, "PAGE_SCHEDULES", 2)
    monkeypatch.setattr("daemon.schedules.PAGE_SCHEDULES", 2)
    for name in ("broken", "broken too", "whole"):
        await schedules.put(name, cron="0 14 * * *")
    await sessions.value(
        "UPDATE timer_schedule SET timezone = 'Mars/X', next_time = next_time - 1"
        " WHERE name <> 'whole' RETURNING 1"
    )
    schedules.clock.freeze(NOON + 2 * HOUR)
    await hands.measure()
    await all_steps(hand)
    assert await schedules.tasks() == [NOON + 2 * HOUR]
