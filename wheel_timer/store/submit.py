"""Submit: new tasks onto the wheel. One SQL call a batch, sql/migrations: wheel_submit_v1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.store.column import sparse
from wheel_timer.task import NewTask

BATCH_ROWS_MAX: Final = 1000


class Submitted(NamedTuple):
    """
    What became of one task.

    near: it is due within the look-ahead and the caller publishes its reference. existing: the
    task that holds its biz_id; then nothing was written. refused: nothing was written, because its
    biz_type has all the pending tasks it may have.
    """

    near: bool
    existing: UUID | None
    refused: bool = False


_FAR: Final = Submitted(False, None)
_NEAR: Final = Submitted(True, None)
_REFUSED: Final = Submitted(False, None, True)


async def submit(
    db: Database,
    shard: int,
    tasks: Sequence[NewTask],
    *,
    lookahead_ms: int = 1000,
    max_pending: Mapping[str, int] = MappingProxyType({}),
) -> list[Submitted]:
    """
    Write a batch of tasks of one shard, at most BATCH_ROWS_MAX, all or none; but for those beyond
    the max_pending of their biz_types (those that have one, by name). In the given order.

    Safe to repeat with the same ids after DatabaseUnavailable (the outcome is unknown then).
    Raises DataRejected where Postgres refuses a value; halve the batch then.
    """
    assert len(tasks) <= BATCH_ROWS_MAX, len(tasks)
    limited = list({t.biz_type for t in tasks if t.biz_type in max_pending}) if max_pending else []
    row = await db.fetch_one(
        "submit",
        {
            "shard": shard,
            "task_ids": [t.task_id for t in tasks],
            "start_times": [t.start_time_ms for t in tasks],
            "biz_types": [t.biz_type for t in tasks],
            "biz_ids": sparse([t.biz_id for t in tasks]),
            "biz_data": sparse([t.biz_data for t in tasks]),
            "content_types": sparse([t.content_type for t in tasks]),
            "callbacks": sparse([_text(t.callback) for t in tasks]),
            "retries": sparse([_text(t.retry) for t in tasks]),
            "max_ages": sparse([t.max_age_ms for t in tasks]),
            "traceparents": sparse([t.traceparent for t in tasks]),
            "lookahead_ms": lookahead_ms,
            "limited": limited or None,
            "limits": [max_pending[name] for name in limited] or None,
        },
    )
    assert row is not None
    near, duplicate, existing, refused = row
    answers = [_FAR] * len(tasks)
    for position in near:
        answers[position - 1] = _NEAR
    for position, task_id in zip(duplicate, existing, strict=True):
        answers[position - 1] = Submitted(False, task_id)
    for position in refused:
        answers[position - 1] = _REFUSED
    return answers


def _text(json: bytes | None) -> str | None:
    return None if json is None else json.decode()
