"""
Puts right what the audits have found, where that is safe: nothing is called or given up by it.

    lost              a requeue row: the hands come by the task again
    orphaned_requeue  a row that leads nowhere is dropped, one behind the due hand put ahead of it
    misplaced         keys, dead letters and forwarding rows that lead nowhere are dropped

Each row is judged again under its lock, so what has come right by itself meanwhile stays as it is.
The rest (a task at two places, one at the wrong place, hands out of order) is for a person.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.store.audit import Audit, run_audits
from wheel_timer.wheel import home_of

# An audit shows 1,000 rows at a time; more rounds than this means that something makes new ones.
ROUNDS_MAX: Final = 1_000
_DROPPED: Final = {
    "key": "dropped: its biz_id led to no task",
    "dead": "dropped: a dead letter of a task that is not failed",
    "address": "dropped: a forwarding row to where no task is",
}


class Repaired(NamedTuple):
    """One thing that was put right, and what was done."""

    audit: str
    task_id: UUID
    did: str


async def repair(db: Database, *, actor: str) -> list[Repaired]:
    """
    Audit and put right, until there is nothing more that can be. Recorded in timer_change.

    Raises DatabaseUnavailable; what was done by then stays done.
    """
    done: list[Repaired] = []
    for _ in range(ROUNDS_MAX):
        audits = {audit.name: audit for audit in await run_audits(db, only=tuple(_REPAIRS))}
        new = [
            repaired
            for name, repairing in _REPAIRS.items()
            for repaired in await repairing(db, audits[name], actor)
        ]
        if not new:
            break
        done += new
    return done


async def _lost(db: Database, audit: Audit, actor: str) -> list[Repaired]:
    repaired: list[Repaired] = []
    for shard, rows in _by_shard(audit).items():
        params = {
            "shard": shard,
            "task_ids": [row["task_id"] for row in rows],
            "start_times": [round(row["start_time"].timestamp() * 1000) for row in rows],
            "actor": actor,
        }
        ids = await _ids(db, "repair_lost", params)
        repaired += [Repaired("lost", task_id, "given a requeue row") for task_id in ids]
    return repaired


async def _orphaned(db: Database, audit: Audit, actor: str) -> list[Repaired]:
    repaired: list[Repaired] = []
    for shard, rows in _by_shard(audit).items():
        did = {
            row["task_id"]: "dropped: it led to no task"
            if row["what"] == "task gone"
            else "put ahead of the due hand"
            for row in rows
        }
        params = {"shard": shard, "task_ids": list(did), "actor": actor}
        ids = await _ids(db, "repair_orphans", params)
        repaired += [Repaired("orphaned_requeue", task_id, did[task_id]) for task_id in ids]
    return repaired


async def _misplaced(db: Database, audit: Audit, actor: str) -> list[Repaired]:
    repaired: list[Repaired] = []
    for what, did in _DROPPED.items():
        found = [UUID(row["id"]) for row in _rows(audit) if row["what"] == what]
        if found:
            params = {"what": what, "task_ids": found, "actor": actor}
            ids = await _ids(db, "repair_misplaced", params)
            repaired += [Repaired("misplaced", task_id, did) for task_id in ids]
    return repaired


_REPAIRS: Final = {"lost": _lost, "orphaned_requeue": _orphaned, "misplaced": _misplaced}


def _rows(audit: Audit) -> list[dict[str, Any]]:
    return [dict(zip(audit.columns, row, strict=True)) for row in audit.rows]


def _by_shard(audit: Audit) -> Mapping[int, Sequence[dict[str, Any]]]:
    """Its rows by the shard that the task_id carries: a task never leaves that."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in _rows(audit):
        found[home_of(row["task_id"])[1]].append(row)
    return found


async def _ids(db: Database, query: str, params: Mapping[str, Any]) -> list[UUID]:
    row = await db.fetch_one(query, params)
    assert row is not None
    ids: list[UUID] = row[0]
    return ids
