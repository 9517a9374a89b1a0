"""
What a schedule is, and which occurrences it has. Pure.

An occurrence is a task whose id follows from the schedule, its version and the moment: computed
twice, by two daemons, or once more after a crash, it is one task. A change raises the version, so
what the versions before and after it bring are never the same tasks.

    scheduled   the moment by the cron
    start       scheduled + jitter, drawn by the same hash: when it is called
    missed      not called within misfire_after of its start, whatever the reason. Of those that
                were missed the schedule's misfire says which are called all the same:
                skip none, once the last one, all the last MISSED_MAX
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import chain, islice, takewhile
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct, json

from wheel_timer.cron import Cron
from wheel_timer.wheel import SHARDS_MAX, made_task_id

Misfire = Literal["once", "skip", "all"]
Overlap = Literal["allow", "skip"]

MISSED_MAX: Final = 1000
START_TIME_MS_MAX: Final = 253_402_300_799_999


class Schedule(Struct, frozen=True, kw_only=True):
    """
    A timer that comes back. Times in ms; next_time: the first moment of which nothing was decided
    yet, None where none comes. Occurrences are in [start_after, end_before). callback: JSON text.
    shard: where all of its occurrences live.
    """

    schedule_id: UUID
    biz_type: str
    name: str
    shard: int
    version: int
    cron: str
    timezone: str
    enabled: bool
    misfire: Misfire
    misfire_after: int
    overlap: Overlap
    jitter: int
    start_after: int | None
    end_before: int | None
    next_time: int | None
    content_type: str | None
    callback: str | None
    biz_data: bytes | None
    create_time: int
    update_time: int

    def __repr__(self) -> str:
        # Neither payload nor header values may reach a log by way of a traceback.
        return f"schedule {self.biz_type}/{self.name}"


class Occurrence(NamedTuple):
    """One time that a schedule comes due, in ms."""

    task_id: UUID
    scheduled: int
    start: int


class Plan(NamedTuple):
    """Occurrences, in the order of their moments; and where the next ones begin."""

    occurrences: list[Occurrence]
    next_time: int | None


def shard_of(schedule_id: UUID, shards: int) -> int:
    """The shard of a new schedule, all of them alike."""
    assert 0 < shards <= SHARDS_MAX, shards
    return schedule_id.int % shards


def occurrence(schedule: Schedule, scheduled: int) -> Occurrence:
    """The occurrence of a moment."""
    seed = schedule.schedule_id.bytes + b"%d %d" % (schedule.version, scheduled)
    digest = blake2b(seed, digest_size=16).digest()
    start = scheduled
    if schedule.jitter:
        start += int.from_bytes(digest[8:], "big") % schedule.jitter
    start = min(start, START_TIME_MS_MAX)
    task_id = made_task_id(start, schedule.shard, int.from_bytes(digest[:8], "big"))
    return Occurrence(task_id, scheduled, start)


def moments(schedule: Schedule, after: int) -> Iterator[int]:
    """The moments after this one by the cron, between the schedule's start and end."""
    if schedule.start_after is not None:
        after = max(after, schedule.start_after - 1)
    for moment in Cron(schedule.cron, schedule.timezone).after(after):
        if schedule.end_before is not None and moment >= schedule.end_before:
            return
        yield moment


def first_moment(schedule: Schedule, after: int) -> int | None:
    """The first of them."""
    return next(moments(schedule, after), None)


def plan(schedule: Schedule, now: int, to: int, limit: int) -> Plan:
    """
    What to put on the wheel: from next_time up to `to`, at most `limit`. Of what is missed already,
    what the misfire policy leaves.
    """
    begin = schedule.next_time
    if begin is None:
        return Plan([], None)
    coming = moments(schedule, max(begin - 1, now))
    if begin <= now:
        coming = chain(_late(schedule, begin, now), coming)
    found: list[Occurrence] = []
    for moment in coming:
        if moment > to or len(found) == limit:
            return Plan(found, moment)
        found.append(occurrence(schedule, moment))
    return Plan(found, None)


def _late(schedule: Schedule, begin: int, now: int) -> Iterator[int]:
    """The moments in [begin, now] that are to be called still."""
    # Up to here all are missed, after it some are not: that hangs on their jitter.
    bound = max(begin - 1, now - schedule.misfire_after - schedule.jitter - 1)
    recent = takewhile(lambda moment: moment <= now, moments(schedule, bound))
    if schedule.misfire == "all":
        return chain(_last(schedule, begin - 1, bound, MISSED_MAX), recent)
    fresh = (one for one in recent if not is_missed(schedule, occurrence(schedule, one).start, now))
    first = next(fresh, None)
    if first is not None:
        return chain([first], fresh)
    return iter(_last(schedule, begin - 1, now, 1) if schedule.misfire == "once" else ())


def _last(schedule: Schedule, after: int, to: int, count: int) -> list[int]:
    """The last `count` moments in (after, to]."""
    if schedule.start_after is not None:
        after = max(after, schedule.start_after - 1)
    if schedule.end_before is not None:
        to = min(to, schedule.end_before - 1)
    return Cron(schedule.cron, schedule.timezone).last(after, to, count)


def is_missed(schedule: Schedule, start: int, now: float) -> bool:
    """Whether the occurrence that was to start then counts as missed."""
    return now - start > schedule.misfire_after


def called_from(schedule: Schedule, scheduled: int, now: int) -> int:
    """
    Of an occurrence that was missed: from which moment on, itself or a later one's, occurrences are
    called still, now that those after it came due. What lies before that is passed over.
    """
    if schedule.misfire == "skip":
        return now + 1
    # One of a version before: what the schedule is now has come due since it was changed only.
    after = max(scheduled, schedule.update_time)
    if schedule.misfire == "once":
        found = _last(schedule, after, now - schedule.jitter, 1)
        return found[0] if found else scheduled
    missed_to = now - schedule.misfire_after - schedule.jitter
    found = _last(schedule, after, missed_to, MISSED_MAX)
    return found[0] if len(found) == MISSED_MAX else scheduled


def upcoming(schedule: Schedule, now: int, count: int) -> list[Occurrence]:
    """The next occurrences by what the schedule says now, enabled or not."""
    return [occurrence(schedule, one) for one in islice(moments(schedule, now), count)]


def same(one: Schedule, other: Schedule) -> bool:
    """Whether two schedules are set alike, and made the same way; whatever became of them."""
    return settings(one) == settings(other) and one.biz_data == other.biz_data


def settings(schedule: Schedule) -> dict[str, Any]:
    """What of a schedule is set, but for its payload: columns of timer_schedule as JSON values."""
    return {
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "enabled": schedule.enabled,
        "start_after": schedule.start_after,
        "end_before": schedule.end_before,
        "misfire": schedule.misfire,
        "misfire_after": schedule.misfire_after,
        "overlap": schedule.overlap,
        "jitter": schedule.jitter,
        "content_type": schedule.content_type,
        "callback": None if schedule.callback is None else json.decode(schedule.callback),
    }


def recorded(
    before: Schedule | None, after: Schedule | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """(old, new): the settings that differ, for the change log: no payload, no header's value."""
    old = None if before is None else _told(before)
    new = None if after is None else _told(after)
    if old is None or new is None or before is None or after is None:
        return old, new
    names = {name for name in old if old[name] != new[name]}
    if before.callback != after.callback:
        names.add("callback")
    if before.biz_data != after.biz_data:
        names.add("biz_data_bytes")
    return {n: old[n] for n in names}, {n: new[n] for n in names}


def _told(schedule: Schedule) -> dict[str, Any]:
    told = settings(schedule)
    for name in ("start_after", "end_before", "misfire_after", "jitter"):
        told[f"{name}_ms"] = told.pop(name)
    callback = told["callback"]
    if callback is not None and "headers" in callback:
        told["callback"] = callback | {"headers": dict.fromkeys(callback["headers"], "(set)")}
    told["biz_data_bytes"] = len(schedule.biz_data or b"")
    return told
