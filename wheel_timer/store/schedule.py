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
from uuid import uuid4

import msgspec

from wheel_timer.database import Database
from wheel_timer.errors import FieldError, InvalidTask, NotFound, Overloaded
from wheel_timer.schedule import (
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
from wheel_timer.store.occurrence import (
    PAGE_BYTES,
    PAGE_OCCURRENCES,
    columns_of,
    generate,
    ref_of,
    schedule_of,
)
from wheel_timer.task import Ref
from wheel_timer.wheel import new_task_id

OVERTAKEN_MAX: Final = 10
# Put on the wheel with the change itself; the daemon comes long before the last of them is due.
FIRST_MAX: Final = 100
# Taken back in one transaction: more than a horizon ever holds.
TAKE_MAX: Final = 20_000

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
    under_way: how many occurrences of the version before were being called. occurrences: how many
    tasks it made.
    """

    schedule: Schedule
    before: Schedule | None
    near: list[Ref]
    under_way: int
    occurrences: int

    @property
    def changed(self) -> bool:
        """False where everything stood as asked already."""
        return self.schedule is not self.before


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
    return {(one.biz_type, one.name): one for one in map(schedule_of, rows)}


async def page(
    db: Database, biz_types: Sequence[str] | None, after: tuple[str, str], limit: int
) -> list[Schedule]:
    """
    Schedules, of these biz_types or of all, in the order of biz_type and name, behind a pair of
    them; without payloads.
    """
    params = {
        "biz_types": None if biz_types is None else list(biz_types),
        "after_biz_type": after[0],
        "after_name": after[1],
        "limit": limit,
    }
    return [schedule_of(row) for row in await db.fetch("schedule_page", params)]


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
    near: list[Ref] = []
    occurrences = 0
    while tries < OVERTAKEN_MAX:
        before = await load(db, biz_type, name)
        wanted = make(before)
        if before is not None and same(wanted, before):
            return Put(before, before, near, 0, occurrences)
        cut = math.ceil(wheel.now_ms())
        if before is not None and wanted.enabled and _is_behind(before, cut):
            behind = plan(before, cut, cut, _at_once(before, PAGE_OCCURRENCES))
            done = await generate(
                db, before.shard, [(before, behind)], now_ms=cut, lookahead_ms=wheel.lookahead_ms
            )
            near += done.near
            occurrences += done.occurrences.get(biz_type, 0)
            continue
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
                **columns_of(first.occurrences),
                "actor": actor,
                "action": action,
                "old": None if old is None else _text(old),
                "new": _text(new),
                "retention_ms": RETENTION_MS,
                "lookahead_ms": wheel.lookahead_ms,
            },
        )
        assert row is not None
        verdict, near_ids, under_way = row
        if verdict == "unknown":
            raise InvalidTask([FieldError(f"there is no biz_type {biz_type!r}", root)])
        if verdict == "written":
            ids = set(near_ids)
            near += [ref_of(one, biz_type, cut) for one in first.occurrences if one.task_id in ids]
            occurrences += len(first.occurrences)
            return Put(made, before, near, under_way, occurrences)
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
    first = plan(made, cut, cut + wheel.horizon_ms, _at_once(made, FIRST_MAX))
    return msgspec.structs.replace(made, next_time=first.next_time), first


def _is_behind(schedule: Schedule, now_ms: int) -> bool:
    """Whether something came due that no daemon has put on the wheel: that is this version's."""
    begin = schedule.next_time
    return schedule.enabled and begin is not None and begin <= now_ms


def _at_once(schedule: Schedule, most: int) -> int:
    """How many of its occurrences are written at once."""
    return min(most, max(1, PAGE_BYTES // max(1, len(schedule.biz_data or b""))))


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


def missing(biz_type: str, name: str) -> NotFound:
    """There is none of this name."""
    return NotFound(f"the biz_type {biz_type[:64]!r} has no schedule {name[:64]!r}")


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
