"""
Occurrences of schedules: put on the wheel, judged when they are claimed, forgotten once called.

Theirs is timer_occurrence: what is on the wheel and may not have been called yet. A daemon writes
page by page; a change of a schedule writes what is next of it (wheel_timer/store/schedule.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.schedule import Occurrence, Plan, Schedule
from wheel_timer.task import Ref

# A daemon's page: of occurrences, of schedules, and of the bytes that they carry.
PAGE_OCCURRENCES: Final = 1_000
PAGE_SCHEDULES: Final = 200
PAGE_BYTES: Final = 8 * 1024 * 1024
FORGET_ROWS: Final = 1_000


class Due(NamedTuple):
    """A schedule of which something is to be put on the wheel, each with so many bytes."""

    schedule: Schedule
    data_bytes: int


class Generated(NamedTuple):
    """near: references that the caller publishes. occurrences: biz_type -> how many tasks."""

    near: list[Ref]
    occurrences: Mapping[str, int]


async def due(db: Database, shard: int, to_ms: int, set_aside: Sequence[UUID] = ()) -> list[Due]:
    """
    Schedules of which something up to to_ms is not on the wheel yet, but for those set aside; a
    page, earliest first.
    """
    params = {"shard": shard, "to": to_ms, "set_aside": list(set_aside), "limit": PAGE_SCHEDULES}
    rows = await db.fetch("schedule_due", params)
    return [Due(schedule_of(row[:-1]), row[-1]) for row in rows]


async def generate(
    db: Database,
    shard: int,
    plans: Sequence[tuple[Schedule, Plan]],
    *,
    now_ms: int,
    lookahead_ms: int,
) -> Generated:
    """
    Put what was planned on the wheel, at most PAGE_OCCURRENCES of one shard in all. What of it has
    changed meanwhile, or somebody else has done, is left out.
    """
    owned = [
        (position, one) for position, (_, plan) in enumerate(plans, 1) for one in plan.occurrences
    ]
    assert len(owned) <= PAGE_OCCURRENCES, len(owned)
    row = await db.fetch_one(
        "schedule_generate",
        {
            "shard": shard,
            "schedule_ids": [schedule.schedule_id for schedule, _ in plans],
            "versions": [schedule.version for schedule, _ in plans],
            "seen": [schedule.next_time for schedule, _ in plans],
            "next_times": [plan.next_time for _, plan in plans],
            "owners": [position for position, _ in owned],
            **columns_of([one for _, one in owned]),
            "lookahead_ms": lookahead_ms,
        },
    )
    assert row is not None
    near, moved_ids = row
    ids, moved = set(near), set(moved_ids)
    occurrences = Counter[str]()
    for schedule, one in plans:
        if schedule.schedule_id in moved:
            occurrences[schedule.biz_type] += len(one.occurrences)
    refs = [
        ref_of(one, plans[position - 1][0].biz_type, now_ms)
        for position, one in owned
        if one.task_id in ids
    ]
    return Generated(refs, occurrences)


async def forget(db: Database, shard: int) -> int:
    """Forget occurrences of which somebody was called. Returns how many were looked at."""
    row = await db.fetch_one("schedule_forget", {"shard": shard, "limit": FORGET_ROWS})
    assert row is not None
    return int(row[0])


async def terms(db: Database, schedule_ids: Iterable[UUID]) -> dict[UUID, Schedule]:
    """These schedules without payload and callback; one that is gone is missing."""
    rows = await db.fetch("schedule_terms", {"schedule_ids": list(schedule_ids)})
    return {one.schedule_id: one for one in map(schedule_of, rows)}


async def admit(db: Database, pairs: Sequence[tuple[UUID, UUID]]) -> set[UUID]:
    """Of these (schedule_id, task_id), claimed just now, the tasks that are to be skipped."""
    row = await db.fetch_one(
        "schedule_admit",
        {"schedule_ids": [pair[0] for pair in pairs], "task_ids": [pair[1] for pair in pairs]},
    )
    assert row is not None
    return set(row[0])


def schedule_of(row: Sequence[Any]) -> Schedule:
    """The schedule of a row of schedule_load, whose columns stand in the order of the struct's."""
    return Schedule(**dict(zip(Schedule.__struct_fields__, row, strict=True)))


def columns_of(occurrences: Sequence[Occurrence]) -> dict[str, list[Any]]:
    """What the queries take of occurrences."""
    return {
        "task_ids": [one.task_id for one in occurrences],
        "start_times": [one.start for one in occurrences],
        "scheduled_times": [one.scheduled for one in occurrences],
    }


def ref_of(one: Occurrence, biz_type: str, now_ms: int) -> Ref:
    """The reference to publish of one that is near."""
    return Ref(one.task_id, one.start, one.start, now_ms, biz_type)
