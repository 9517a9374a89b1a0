"""
Operations: one change for all tasks that fit a filter. sql/migrations: 0012_operation.

An operation is a row; its leader goes through the tasks chunk by chunk, and each chunk's changes,
counts and the key of the next are one transaction.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from wheel_timer.database import Database
from wheel_timer.store.change import BATCH_ROWS_MAX, RETENTION_MS
from wheel_timer.store.filter import Filter
from wheel_timer.store.selection import Key, Part

Action = Literal["cancel", "shift", "replay", "run", "purge"]
State = Literal["running", "done", "stopped", "failed"]

_VERBS: Final[dict[Action, str]] = {
    "cancel": "cancel",
    "shift": "patch",
    "replay": "replay",
    "run": "run",
    "purge": "purge",
}
# What a cancel does to tasks in other states than pending: only where its filter says so.
_CANCEL_SETS: Final = {"delivering": 1, "failed": 2}
_FILTER: Final = msgspec.json.Decoder(Filter)
_KEY: Final = msgspec.json.Decoder(Key)


class OperationRow(NamedTuple):
    """
    A row of timer_operation; times in ms. rate: tasks a second, None: as fast as it goes.

    step: of the chunk that comes next, which begins behind `key`.
    """

    operation_id: UUID
    action: Action
    filter: Filter
    shift_ms: int | None
    rate: float | None
    over_ms: int | None
    state: State
    matched: int
    done: int
    skipped: int
    errors: int
    error: str | None
    actor: str
    create_time: int
    finish_time: int | None
    step: int
    key: Key


class Chunk(NamedTuple):
    """
    Tasks of one shard, at most 1,000; when the first is to be published where it becomes due at
    once (ms), and how long after it the next. key: of the next chunk; None while a part of this one
    is to come.
    """

    tasks: Part
    due_ms: float
    gap_ms: float
    key: Key | None
    is_last: bool


async def create(
    db: Database,
    operation_id: UUID,
    action: Action,
    filter_: Filter,
    *,
    actor: str,
    recorded: bytes,
    shift_ms: int | None = None,
    rate: float | None = None,
    over_ms: int | None = None,
) -> OperationRow:
    """Begin an operation. recorded: JSON, what timer_change shows of it."""
    row = await db.fetch_one(
        "operation_create",
        {
            "operation_id": operation_id,
            "action": action,
            "filter": msgspec.json.encode(filter_).decode(),
            "shift_ms": shift_ms,
            "rate": rate,
            "over_ms": over_ms,
            "actor": actor,
            "recorded": recorded.decode(),
        },
    )
    assert row is not None
    return _from_stored(row)


async def get(db: Database, operation_id: UUID) -> OperationRow | None:
    """One operation, or None."""
    row = await db.fetch_one("operation_get", {"operation_id": operation_id})
    return None if row is None else _from_stored(row)


async def page(db: Database, key_ms: int, key_id: UUID, limit: int) -> list[OperationRow]:
    """Operations newest first, of those before (key_ms, key_id)."""
    rows = await db.fetch("operation_list", {"key_time": key_ms, "key_id": key_id, "limit": limit})
    return [_from_stored(row) for row in rows]


async def running(db: Database) -> list[OperationRow]:
    """What is to go on, oldest first."""
    return [_from_stored(row) for row in await db.fetch("operation_running")]


async def stop(db: Database, operation_id: UUID, actor: str) -> None:
    """Stop it where it is running. A chunk in progress is undone, unless it is committed by now."""
    await db.execute("operation_stop", {"operation_id": operation_id, "actor": actor})


async def fail(db: Database, operation: OperationRow, error: str) -> None:
    """End it as failed, where it still stands at this step."""
    await db.execute(
        "operation_fail",
        {"operation_id": operation.operation_id, "step": operation.step, "error": error},
    )


async def skip(
    db: Database,
    operation: OperationRow,
    *,
    matched: int = 0,
    errors: int = 0,
    key: Key | None,
    is_last: bool,
) -> None:
    """Go on without a change. Raises StepTaken."""
    await db.execute(
        "operation_step",
        {
            "operation_id": operation.operation_id,
            "step": operation.step,
            "matched": matched,
            "done": 0,
            "errors": errors,
            "key": _key_text(key),
            "is_done": is_last,
        },
    )


async def operate(
    db: Database, operation: OperationRow, chunk: Chunk, *, lookahead_ms: int = 1000
) -> int:
    """
    Change the tasks of a chunk and count them: one transaction. Returns how many were changed.

    Raises StepTaken where the operation was stopped or somebody else has done this chunk, and
    DataRejected; nothing was changed then. After DatabaseUnavailable look where it stands.
    """
    tasks = chunk.tasks
    assert 0 < tasks.rows <= BATCH_ROWS_MAX, tasks.rows
    assert operation.action != "shift" or operation.shift_ms is not None
    row = await db.fetch_one(
        "operate",
        {
            "operation_id": operation.operation_id,
            "step": operation.step,
            "key": _key_text(chunk.key),
            "is_done": chunk.is_last,
            "shard": tasks.shard,
            "verb": _VERBS[operation.action],
            "sets": _CANCEL_SETS.get(operation.filter.status or "", 0),
            "task_ids": tasks.task_ids,
            "start_times": tasks.start_times,
            "revisions": tasks.revisions,
            "shift_ms": operation.shift_ms,
            "due": int(chunk.due_ms),
            "gap_ms": chunk.gap_ms,
            "retention_ms": RETENTION_MS,
            "lookahead_ms": lookahead_ms,
        },
    )
    assert row is not None
    return int(row[0])


def _from_stored(row: tuple[Any, ...]) -> OperationRow:
    stored = OperationRow._make(row)
    key = _KEY.decode(row[-1]) if row[-1] is not None else Key()
    return stored._replace(filter=_FILTER.decode(row[2]), key=key)


def _key_text(key: Key | None) -> str | None:
    return None if key is None else msgspec.json.encode(key).decode()
