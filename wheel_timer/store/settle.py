"""
Settle: what came of attempts. sql/migrations: wheel_settle_final_v1, wheel_settle_noted_v1,
wheel_settle_again_v1.

All are fenced by revision and attempt, so a result reported twice, late, or by a broker that was
taken for dead changes nothing it may not. Callers hand over one row a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from wheel_timer.database import Database
from wheel_timer.store.column import sparse
from wheel_timer.store.place import by_partition
from wheel_timer.task import Ref, Result, Status
from wheel_timer.wheel import home_of

BATCH_ROWS_MAX: Final = 500
FINAL: Final = {
    "finished": Status.FINISHED,
    "failed": Status.FAILED,
    "cancelled": Status.CANCELLED,
}
AGAIN: Final = frozenset({"retry", "released", "unstarted"})


async def settle_final(db: Database, rows: Sequence[Result]) -> None:
    """
    End tasks whose outcome is finished, failed or cancelled, mixed; at most BATCH_ROWS_MAX.

    A row that does not match its task any more is left alone; if the task was changed since, the
    attempt is kept as `superseded`. Raises DataRejected, DatabaseUnavailable; safe to repeat.
    """
    for run, batch in by_partition(rows, _place):
        await db.execute(
            "settle_final",
            _facts(batch)
            | {
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "shards": [home_of(r.task_id)[1] for r in batch],
                "statuses": [int(FINAL[r.outcome]) for r in batch],
            },
        )


async def settle_noted(
    db: Database, shard: int, rows: Sequence[Result], *, lookahead_ms: int = 1000
) -> list[Ref]:
    """
    End tasks of one shard whose payload goes with them, or of which a notice tells; as
    settle_final otherwise, and safe to repeat.

    Returns references of the notices that were written and are due: the caller publishes them.
    """
    near: list[Ref] = []
    for run, batch in by_partition(rows, _place):
        notices = [r.notice for r in batch]
        row = await db.fetch_one(
            "settle_noted",
            _facts(batch)
            | {
                "shard": shard,
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "statuses": [int(FINAL[r.outcome]) for r in batch],
                "erases": [r.erase for r in batch],
                "notice_ids": [n and n.task_id for n in notices],
                "notice_times": [n and n.start_time_ms for n in notices],
                "notice_biz_types": [n and n.biz_type for n in notices],
                "notice_biz_ids": [n and n.biz_id for n in notices],
                "notice_data": [n and n.biz_data for n in notices],
                "notice_content_type": next((n.content_type for n in notices if n), None),
                "lookahead_ms": lookahead_ms,
            },
        )
        assert row is not None
        for position in row[0]:
            notice = notices[position - 1]
            assert notice is not None
            moment_ms = notice.start_time_ms
            near.append(Ref(notice.task_id, moment_ms, moment_ms, moment_ms, notice.biz_type))
    return near


async def settle_again(
    db: Database,
    shard: int,
    rows: Sequence[Result],
    *,
    lookahead_ms: int = 1000,
    latest_ms: int | None = None,
) -> list[Ref]:
    """
    Put tasks of one shard back on the wheel: outcomes retry, released, unstarted, mixed.

    latest_ms: Clock.latest_ms, so that a clock that has just jumped ahead delays no retry.
    Returns references of those due within the look-ahead: the caller publishes them. Each has its
    requeue row either way. A stopped task is cancelled instead. Safe to repeat.
    """
    near: list[Ref] = []
    for run, batch in by_partition(rows, _place):
        answers = await db.fetch(
            "settle_again",
            _facts(batch)
            | {
                "shard": shard,
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "outcomes": [r.outcome for r in batch],
                "delays": [r.delay_ms for r in batch],
                "lookahead_ms": lookahead_ms,
                "latest_ms": latest_ms,
            },
        )
        near.extend(
            Ref(task_id, start_time, moment, moment, biz_type)
            for task_id, start_time, moment, biz_type in answers
        )
    return near


def _place(row: Result) -> tuple[int, Any]:
    return row.start_time_ms, row.task_id


def _facts(batch: Sequence[Result]) -> dict[str, Any]:
    """The columns that both functions take."""
    return {
        "task_ids": [r.task_id for r in batch],
        "start_times": [r.start_time_ms for r in batch],
        "attempts": [r.attempt for r in batch],
        "revisions": [r.revision for r in batch],
        "retentions": [r.retention_ms for r in batch],
        "http_statuses": sparse([r.http_status for r in batch]),
        "errors": sparse([r.error for r in batch]),
        "error_classes": sparse([r.error_class for r in batch]),
        "excerpts": sparse([r.response_excerpt for r in batch]),
        "started": sparse([r.started_ms for r in batch]),
        "durations": sparse([r.duration_ms for r in batch]),
        "dues": [r.due_ms for r in batch],
        "published": [r.published_ms for r in batch],
        "addresses": sparse([r.remote_address for r in batch]),
        "brokers": [r.broker for r in batch],
        "config_versions": [r.config_version for r in batch],
        "lives": [r.life for r in batch],
    }
