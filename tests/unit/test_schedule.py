"""Which occurrences a schedule has, and which of them are called late."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import pytest
from msgspec.structs import replace

from wheel_timer.schedule import (
    MISSED_MAX,
    Misfire,
    Schedule,
    called_from,
    is_missed,
    occurrence,
    plan,
    recorded,
    same,
    shard_of,
    upcoming,
)
from wheel_timer.wheel import home_of, is_task_id

NOON: Final = 1_800_014_400_000  # 2027-01-15T12:00:00Z
MINUTE: Final = 60_000
HOUR: Final = 3_600_000


def schedule(**changed: Any) -> Schedule:
    made = Schedule(
        schedule_id=UUID(int=77), biz_type="orders", name="s", shard=3, version=1,
        cron="* * * * *", timezone="UTC", enabled=True, misfire="once", misfire_after=MINUTE,
        overlap="allow", jitter=0, start_after=None, end_before=None, next_time=NOON,
        content_type=None, callback=None, biz_data=None, create_time=0, update_time=0,
    )  # fmt: skip
    return replace(made, **changed)


def moments(made: Schedule, now: int, to: int, limit: int = 10_000) -> list[int]:
    return [one.scheduled for one in plan(made, now, to, limit).occurrences]


def test_an_occurrence_is_always_the_same() -> None:
    one = occurrence(schedule(jitter=HOUR), NOON)
    assert occurrence(schedule(jitter=HOUR), NOON) == one
    assert is_task_id(one.task_id)
    assert home_of(one.task_id) == (one.start, 3)
    assert NOON <= one.start < NOON + HOUR


def test_each_version_moment_and_schedule_has_its_own() -> None:
    made = schedule()
    others = [
        occurrence(replace(made, version=2), NOON),
        occurrence(made, NOON + 1000),
        occurrence(replace(made, schedule_id=UUID(int=78)), NOON),
        occurrence(made, NOON),
    ]
    assert len({one.task_id for one in others}) == 4


def test_jitter_is_spread_over_its_window() -> None:
    made = schedule(jitter=1000)
    drawn = [occurrence(made, NOON + n * MINUTE).start % MINUTE for n in range(1000)]
    assert 0 <= min(drawn) < 20
    assert 980 < max(drawn) < 1000
    assert 450 < sum(drawn) / 1000 < 550


def test_schedules_are_spread_over_the_shards() -> None:
    shares = [0] * 4
    for n in range(4000):
        shares[shard_of(UUID(int=(n * 0x9E3779B97F4A7C15) % (1 << 128)), 4)] += 1
    assert max(shares) / 1000 < 1.3


def test_a_plan_begins_where_the_last_one_ended() -> None:
    made = schedule(cron="5,15,25 * * * *")
    found: list[int] = []
    for hour in range(6):
        step = plan(made, NOON + hour * HOUR, NOON + (hour + 1) * HOUR, 2)
        while step.next_time is not None and step.next_time <= NOON + (hour + 1) * HOUR:
            found += [one.scheduled for one in step.occurrences]
            made = replace(made, next_time=step.next_time)
            step = plan(made, NOON + hour * HOUR, NOON + (hour + 1) * HOUR, 2)
        found += [one.scheduled for one in step.occurrences]
        made = replace(made, next_time=step.next_time)
    assert found == [NOON + h * HOUR + m * MINUTE for h in range(6) for m in (5, 15, 25)]


def test_it_is_within_its_start_and_end() -> None:
    made = schedule(start_after=NOON + 2 * MINUTE, end_before=NOON + 5 * MINUTE)
    step = plan(made, NOON, NOON + HOUR, 100)
    assert [one.scheduled for one in step.occurrences] == [NOON + n * MINUTE for n in (2, 3, 4)]
    assert step.next_time is None
    assert upcoming(made, NOON, 2)[1].scheduled == NOON + 3 * MINUTE


@pytest.mark.parametrize(
    ("misfire", "came"),
    [
        ("skip", [120]),  # half a minute late, which is in time
        ("once", [120]),
        ("all", list(range(121))),
    ],
)
def test_two_hours_are_caught_up_with(misfire: Misfire, came: list[int]) -> None:
    made = schedule(misfire=misfire)
    now = NOON + 2 * HOUR + 30_000
    assert moments(made, now, now) == [NOON + n * MINUTE for n in came]


@pytest.mark.parametrize(("misfire", "came"), [("skip", []), ("once", [1]), ("all", [0, 1])])
def test_where_all_are_late(misfire: Misfire, came: list[int]) -> None:
    made = schedule(cron="0 * * * *", misfire=misfire)
    now = NOON + HOUR + 1_800_000
    assert moments(made, now, now) == [NOON + n * HOUR for n in came]


def test_all_are_a_thousand_at_most() -> None:
    made = schedule(cron="* * * * * *", misfire="all", misfire_after=0)
    now = NOON + 2 * HOUR
    found = moments(made, now, now)
    assert found == [now - n * 1000 for n in range(MISSED_MAX, -1, -1)]


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_what_is_planned_and_what_is_passed_over_go_by_the_same_rule(
    misfire: Misfire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an occurrence was on the wheel before an outage, or is computed after it."""
    monkeypatch.setattr("wheel_timer.schedule.MISSED_MAX", 50)
    made = schedule(cron="*/10 * * * * *", misfire=misfire)
    now = NOON + HOUR // 2 + 3_000
    planned = moments(made, now, now)
    called = [
        moment
        for moment in range(NOON, now, 10_000)
        if not is_missed(made, moment, now) or called_from(made, moment, now) == moment
    ]
    assert called == planned


def test_what_a_schedule_has_become_passes_over_nothing_of_before() -> None:
    """Its moments before the change never were any; only what has come due since counts."""
    made = schedule(misfire="once", update_time=NOON + HOUR, cron="30 * * * *")
    before = NOON + 50 * MINUTE  # by another cron
    assert called_from(made, before, NOON + 85 * MINUTE) == before
    assert called_from(made, before, NOON + 95 * MINUTE) == NOON + 90 * MINUTE


def test_jitter_is_no_lateness() -> None:
    made = schedule(jitter=10 * MINUTE, misfire="skip")
    one = occurrence(made, NOON)
    assert not is_missed(made, one.start, one.start + MINUTE)
    assert is_missed(made, one.start, one.start + MINUTE + 1)


def test_what_stands_as_asked_is_the_same_whatever_became_of_it() -> None:
    made = schedule()
    assert same(made, replace(made, next_time=None, version=9, update_time=5))
    assert not same(made, replace(made, biz_data=b""))
    assert not same(made, replace(made, enabled=False))


def test_the_change_log_has_no_payload_and_no_header() -> None:
    made = schedule(biz_data=b"secret", callback='{"url":"http://a/","headers":{"x-a":"hush"}}')
    old, new = recorded(None, made)
    assert old is None
    assert "hush" not in str(new)
    assert "secret" not in str(new)
    assert new is not None
    assert new["biz_data_bytes"] == 6
    old, new = recorded(made, replace(made, biz_data=b"public"))
    assert (old, new) == ({"biz_data_bytes": 6}, {"biz_data_bytes": 6})
    assert "secret" not in repr(made)
