"""
timer_schedule: schedules read and written, their occurrences put on the wheel and taken back.

A change is made here, between a read and a write that insists on the version read; who is
overtaken starts again. With it, in one transaction, goes what the version before has put on the
wheel and nobody was called for yet, and comes what is next of the new one. The rest is the
daemon's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import msgspec

from wheel_timer.database import Database
from wheel_timer.errors import FieldError, InvalidTask, NotFound, Overloaded
from wheel_timer.schedule import (
    Occurrence,
    Plan,
    Schedule,
    first_moment,
    plan,
    recorded,
    same,
    settings,
    shard_of,
)
from wheel_timer.store.change import RETENTION_MS
from wheel_timer.task import Ref
from wheel_timer.wheel import new_task_id

OVERTAKEN_MAX: Final = 10
# Put on the wheel with the change itself; the daemon comes long before the last of them is due.
FIRST_MAX: Final = 100
# Taken back in one transaction: more than a horizon ever holds.
TAKE_MAX: Final = 20_000
# A daemon's page: of occurrences, of schedules, and of the bytes that they carry.
PAGE_OCCURRENCES: Final = 1_000
PAGE_SCHEDULES: Final = 200
PAGE_BYTES: Final = 8 * 1024 * 1024
FORGET_ROWS: Final = 1_000

# What a schedule is to become, of what it is (None: there is none). Raises InvalidTask, NotFound.
Make = Callable[[Schedule | None], Schedule]


class Wheel(NamedTuple):
    """What a change has to know of the wheel. now_ms: the database's clock, looked at anew."""

    shards: int
    now_ms: Callable[[], float]
    horizon_ms: int
    lookahead_ms: int


class Put(NamedTuple):
    """
    What a change did. before: None where it is new. near: references that the caller publishes.
    under_way: how many occurrences of the version before were being called.
    """

    schedule: Schedule
    before: Schedule | None
    near: list[Ref]
    under_way: int

    @property
    def changed(self) -> bool:
        """False where everything stood as asked already."""
        return self.schedule is not self.before


class Due(NamedTuple):
    """A schedule of which something is to be put on the wheel, each with so many bytes."""

    schedule: Schedule
    data_bytes: int


class Generated(NamedTuple):
    """near: references that the caller publishes. moved: schedules that nobody was faster at."""

    near: list[Ref]
    occurrences: int
    moved: int


async def load(db: Database, biz_type: str, name: str) -> Schedule | None:
    """One schedule by its name."""
    return (await load_all(db, [(biz_type, name)])).get((biz_type, name))


async def load_all(
    db: Database, names: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], Schedule]:
    """The schedules of these pairs of biz_type and name; one that does not exist is missing."""
    pairs = list(names)
    rows = await db.fetch(
        "schedule_load",
        {"biz_types": [pair[0] for pair in pairs], "names": [pair[1] for pair in pairs]},
    )
    return {(one.biz_type, one.name): one for one in map(_schedule, rows)}


async def page(
    db: Database, biz_type: str | None, after: tuple[str, str], limit: int
) -> list[Schedule]:
    """Schedules in the order of biz_type and name, behind a pair of them; without payloads."""
    params = {
        "biz_type": biz_type,
        "after_biz_type": after[0],
        "after_name": after[1],
        "limit": limit,
    }
    return [_schedule(row) for row in await db.fetch("schedule_page", params)]


async def has_any(db: Database, biz_type: str) -> bool:
    """Whether this biz_type has a schedule."""
    return await db.fetch_one("schedule_has_any", {"biz_type": biz_type}) is not None


async def change(
    db: Database,
    biz_type: str,
    name: str,
    make: Make,
    wheel: Wheel,
    *,
    actor: str,
    action: str,
    root: str = "#",
) -> Put:
    """
    Make the schedule what `make` makes of it. What stands as asked is not written again.

    Raises InvalidTask where there is no such biz_type (root: what asks for it, in the request), and
    what `make` raises. After DatabaseUnavailable it may be done, and is safe to repeat.
    """
    tries = 0
    while tries < OVERTAKEN_MAX:
        before = await load(db, biz_type, name)
        wanted = make(before)
        if before is not None and same(wanted, before):
            return Put(before, before, [], 0)
        cut = math.ceil(wheel.now_ms())
        made, first = _begun(wanted, before, cut, wheel)
        old, new = recorded(before, made)
        row = await db.fetch_one(
            "schedule_put",
            {
                "shard": made.shard,
                "schedule_id": made.schedule_id,
                "expected": None if before is None else before.version,
                "biz_type": biz_type,
                "name": name,
                "settings": _text(settings(made)),
                "biz_data": made.biz_data,
                "now": cut,
                "cut": cut if made.enabled else None,
                "limit": TAKE_MAX,
                "next_time": first.next_time,
                **_columns(first.occurrences),
                "actor": actor,
                "action": action,
                "old": None if old is None else _text(old),
                "new": _text(new),
                "retention_ms": RETENTION_MS,
                "lookahead_ms": wheel.lookahead_ms,
            },
        )
        assert row is not None
        verdict, near, under_way = row
        if verdict == "unknown":
            raise InvalidTask([FieldError(f"there is no biz_type {biz_type!r}", root)])
        if verdict == "written":
            ids = set(near)
            refs = [_ref(one, biz_type, cut) for one in first.occurrences if one.task_id in ids]
            return Put(made, before, refs, under_way)
        tries += verdict == "overtaken"
    raise Overloaded("this schedule is being changed by others all the time")


def _begun(
    wanted: Schedule, before: Schedule | None, cut: int, wheel: Wheel
) -> tuple[Schedule, Plan]:
    """The next version of a schedule, that begins behind `cut`, and its first occurrences."""
    schedule_id = uuid4() if before is None else before.schedule_id
    made = msgspec.structs.replace(
        wanted,
        schedule_id=schedule_id,
        shard=shard_of(schedule_id, wheel.shards) if before is None else before.shard,
        version=1 if before is None else before.version + 1,
        create_time=cut if before is None else before.create_time,
        update_time=cut,
        next_time=None,
    )
    if not made.enabled:
        return made, Plan([], None)
    made = msgspec.structs.replace(made, next_time=first_moment(made, cut))
    limit = min(FIRST_MAX, max(1, PAGE_BYTES // max(1, len(made.biz_data or b""))))
    first = plan(made, cut, cut + wheel.horizon_ms, limit)
    return msgspec.structs.replace(made, next_time=first.next_time), first


async def delete(db: Database, biz_type: str, name: str, *, actor: str, lookahead_ms: int) -> int:
    """
    Delete a schedule. Returns how many of its occurrences were being called. Raises NotFound.
    """
    tries = 0
    while tries < OVERTAKEN_MAX:
        before = await load(db, biz_type, name)
        if before is None:
            raise missing(biz_type, name)
        old, _ = recorded(before, None)
        row = await db.fetch_one(
            "schedule_delete",
            {
                "shard": before.shard,
                "schedule_id": before.schedule_id,
                "expected": before.version,
                "limit": TAKE_MAX,
                "actor": actor,
                "old": _text(old),
                "retention_ms": RETENTION_MS,
                "lookahead_ms": lookahead_ms,
            },
        )
        assert row is not None
        verdict, under_way = row
        if verdict == "written":
            return int(under_way)
        tries += verdict == "overtaken"
    raise Overloaded("this schedule is being changed by others all the time")


async def run(
    db: Database, schedule: Schedule, now_ms: int, *, actor: str, lookahead_ms: int
) -> Ref:
    """One more occurrence, now; the reference is the caller's to publish. Raises NotFound."""
    task_id = new_task_id(now_ms, schedule.shard)
    row = await db.fetch_one(
        "schedule_run",
        {
            "shard": schedule.shard,
            "schedule_id": schedule.schedule_id,
            "task_id": task_id,
            "now": now_ms,
            "actor": actor,
            "lookahead_ms": lookahead_ms,
        },
    )
    assert row is not None
    if not row[0]:
        raise missing(schedule.biz_type, schedule.name)
    return Ref(task_id, now_ms, now_ms, now_ms, schedule.biz_type)


async def due(db: Database, shard: int, to_ms: int) -> list[Due]:
    """Schedules of which something up to to_ms is not on the wheel yet; a page, earliest first."""
    params = {"shard": shard, "to": to_ms, "limit": PAGE_SCHEDULES}
    rows = await db.fetch("schedule_due", params)
    return [Due(_schedule(row[:-1]), row[-1]) for row in rows]


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
            **_columns([one for _, one in owned]),
            "lookahead_ms": lookahead_ms,
        },
    )
    assert row is not None
    near, generated, moved = row
    ids = set(near)
    refs = [
        _ref(one, plans[position - 1][0].biz_type, now_ms)
        for position, one in owned
        if one.task_id in ids
    ]
    return Generated(refs, generated, moved)


async def forget(db: Database, shard: int) -> int:
    """Forget occurrences of which somebody was called. Returns how many were looked at."""
    row = await db.fetch_one("schedule_forget", {"shard": shard, "limit": FORGET_ROWS})
    assert row is not None
    return int(row[0])


async def terms(db: Database, schedule_ids: Iterable[UUID]) -> dict[UUID, Schedule]:
    """These schedules without payload and callback; one that is gone is missing."""
    rows = await db.fetch("schedule_terms", {"schedule_ids": list(schedule_ids)})
    return {one.schedule_id: one for one in map(_schedule, rows)}


async def admit(db: Database, pairs: Sequence[tuple[UUID, UUID]]) -> set[UUID]:
    """Of these (schedule_id, task_id), claimed just now, the tasks that are to be skipped."""
    row = await db.fetch_one(
        "schedule_admit",
        {"schedule_ids": [pair[0] for pair in pairs], "task_ids": [pair[1] for pair in pairs]},
    )
    assert row is not None
    return set(row[0])


def missing(biz_type: str, name: str) -> NotFound:
    """There is none of this name."""
    return NotFound(f"the biz_type {biz_type[:64]!r} has no schedule {name[:64]!r}")


def _schedule(row: Sequence[Any]) -> Schedule:
    """A row of schedule_load, whose columns stand in the order of the struct's."""
    return Schedule(**dict(zip(Schedule.__struct_fields__, row, strict=True)))


def _columns(occurrences: Sequence[Occurrence]) -> dict[str, list[Any]]:
    return {
        "task_ids": [one.task_id for one in occurrences],
        "start_times": [one.start for one in occurrences],
        "scheduled_times": [one.scheduled for one in occurrences],
    }


def _ref(one: Occurrence, biz_type: str, now_ms: int) -> Ref:
    return Ref(one.task_id, one.start, one.start, now_ms, biz_type)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
