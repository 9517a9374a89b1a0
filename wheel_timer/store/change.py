"""
Change of mind: one SQL call a batch, sql/migrations: wheel_change_v1, which says what each verdict
means and what is locked in which order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Literal
from uuid import UUID

import msgspec

from wheel_timer.biz import Retention
from wheel_timer.database import Database
from wheel_timer.store.column import sparse
from wheel_timer.store.task import TaskRow, task_row
from wheel_timer.wheel import home_of

BATCH_ROWS_MAX: Final = 1000
# A task can move on between our look at its home and our call; nobody wins that race all the time.
FOLLOW_TRIES: Final = 30
# Of a biz_type without a row of its own, which there is none of but for edits by hand.
RETENTION_MS: Final = Retention().cancelled * 1000

Verb = Literal["cancel", "patch", "run", "replay", "replace", "earliest", "latest"]
Verdict = Literal[
    "done", "unchanged", "stopping", "revived", "kept",
    "delivering", "settled", "changed", "missing",
]  # fmt: skip


class Change(msgspec.Struct, gc=False):
    """
    What is to become of one task.

    to_time_ms: its new start_time, for patch (None: it stays) and what a submit replaces.
    due_ms: None where the caller publishes what becomes due; else it queues behind first attempts
    and the due hand publishes it then. revision: only where the task has this one.
    stop, discard: what a cancel may also do, to a task that is being delivered or has failed.
    has_...: the field is given; None takes it away. callback, retry: JSON texts.
    actor: for timer_change; None leaves no record.
    """

    task_id: UUID
    verb: Verb
    actor: str | None = None
    revision: int | None = None
    to_time_ms: int | None = None
    due_ms: int | None = None
    stop: bool = False
    discard: bool = False
    has_data: bool = False
    biz_data: bytes | None = None
    has_content_type: bool = False
    content_type: str | None = None
    has_callback: bool = False
    callback: bytes | None = None
    has_retry: bool = False
    retry: bytes | None = None
    has_max_age: bool = False
    max_age_ms: int | None = None
    has_traceparent: bool = False
    traceparent: str | None = None

    def _sets(self) -> int:
        if self.verb == "cancel":
            return self.stop | self.discard << 1
        return (
            self.has_data
            | self.has_callback << 1
            | self.has_retry << 2
            | self.has_max_age << 3
            | self.has_traceparent << 4
            | self.has_content_type << 5
        )


class Changed(msgspec.Struct, gc=False):
    """
    What became of one change. start_time_ms: the task's place now, None for a missing one.

    is_near: it is due within the look-ahead; the caller publishes its reference after this.
    task: as it stands after this, as far as that was asked for.
    """

    verdict: Verdict
    start_time_ms: int | None
    is_near: bool
    task: TaskRow | None = None


async def change(
    db: Database, changes: Sequence[Change], *, lookahead_ms: int = 1000, shown_bytes: int = 0
) -> list[Changed]:
    """
    Change tasks, each named once; at most BATCH_ROWS_MAX, of any shards. In the given order.

    shown_bytes: tasks come along with the answer for so long as they are not larger together.

    Each shard's part is a transaction of its own; a task that was moved takes one more (`changed`,
    with nothing done, where others move it all the time). Safe to
    repeat after DatabaseUnavailable (the outcome is unknown then), but that a run, replay or
    replace of a task which was delivered in between starts it once more: give the revision that it
    had before. Raises DataRejected where Postgres
    refuses a value; halve the batch then.
    """
    assert len(changes) <= BATCH_ROWS_MAX, len(changes)
    found: list[Changed | None] = [None] * len(changes)
    places: list[int] = []
    by_shard: dict[int, list[int]] = defaultdict(list)
    for index, one in enumerate(changes):
        home_ms, shard = home_of(one.task_id)
        places.append(home_ms)
        by_shard[shard].append(index)
    for shard, indexes in by_shard.items():
        left = indexes
        for _ in range(FOLLOW_TRIES):
            left = await _call(db, shard, changes, places, found, left, lookahead_ms, shown_bytes)
            if not left:
                break
    return [Changed("changed", None, False) if one is None else one for one in found]


async def _call(
    db: Database,
    shard: int,
    changes: Sequence[Change],
    places: list[int],
    found: list[Changed | None],
    indexes: Sequence[int],
    lookahead_ms: int,
    shown_bytes: int,
) -> list[int]:
    """Change these where they are thought to be; returns those that are somewhere else."""
    batch = [changes[index] for index in indexes]
    rows = await db.fetch(
        "change",
        {
            "shard": shard,
            "task_ids": [one.task_id for one in batch],
            "start_times": [places[index] for index in indexes],
            "verbs": [one.verb for one in batch],
            "revisions": sparse([one.revision for one in batch]),
            "to_times": sparse([one.to_time_ms for one in batch]),
            "dues": sparse([one.due_ms for one in batch]),
            "sets": [one._sets() for one in batch],
            "biz_data": sparse([one.biz_data for one in batch]),
            "content_types": sparse([one.content_type for one in batch]),
            "callbacks": sparse([_text(one.callback) for one in batch]),
            "retries": sparse([_text(one.retry) for one in batch]),
            "max_ages": sparse([one.max_age_ms for one in batch]),
            "traceparents": sparse([one.traceparent for one in batch]),
            "actors": sparse([one.actor for one in batch]),
            "retention_ms": RETENTION_MS,
            "lookahead_ms": lookahead_ms,
            "shown_bytes": shown_bytes,
        },
    )
    verdicts, addresses, near = rows[0][:3]
    is_near = set(near)
    tasks = {row[3]: task_row(row[3:]) for row in rows if row[3] is not None}
    elsewhere = []
    for position, index in enumerate(indexes, 1):
        verdict, address = verdicts[position - 1], addresses[position - 1]
        home_ms = home_of(changes[index].task_id)[0]
        if verdict == "moved" or (verdict == "missing" and places[index] != home_ms):
            places[index] = home_ms if address is None else address
            elsewhere.append(index)
        else:
            task = tasks.get(changes[index].task_id)
            found[index] = Changed(verdict, address, position in is_near, task)
    return elsewhere


def _text(json: bytes | None) -> str | None:
    return None if json is None else json.decode()
