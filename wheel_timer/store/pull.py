"""
Pull: tasks in the hands of workers. sql/migrations: wheel_reserve_v1, wheel_report_v1.

A reservation is a claim without a stream entry: the requeue row at its lease's end brings the task
back. Who holds it shows the claim's attempt and revision; a report of anybody else changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from wheel_timer.database import Database
from wheel_timer.store.claim import BATCH_BYTES_MAX, Claimed, sorted_out
from wheel_timer.store.column import sparse
from wheel_timer.store.place import by_partition
from wheel_timer.store.task import lookup
from wheel_timer.task import Claim, NewTask, Ref
from wheel_timer.wheel import home_of

# The fence is held meanwhile.
BATCH_ROWS_MAX: Final = 250
# Of payloads in an answer that goes out meanwhile. Any socket takes as much at once.
SHOWN_BYTES_MAX: Final = 65_536

Verb = Literal["finish", "release", "bury", "touch"]
Verdict = Literal["done", "repeated", "lost", "missing"]


async def reserve(
    db: Database,
    biz_type: str,
    refs: Sequence[Ref],
    ttrs_ms: Sequence[int],
    *,
    reserved_max: int,
) -> tuple[Claimed, bool]:
    """
    Reserve tasks of one biz_type, in any order. ttrs_ms: how long each is reserved for.

    reserved_max: of this biz_type, over all brokers; those beyond are `again`, and the second value
    says so. What is not due yet by the database's clock is `early`. A transaction for each shard
    and partition.
    Raises DatabaseUnavailable; what was reserved then comes back when its lease ends.
    """
    result = Claimed([], [], [], [])
    is_full = False
    bare: set[UUID] = set()
    for shard in sorted({home_of(ref.task_id)[1] for ref in refs}):
        rows = [
            row for row in zip(refs, ttrs_ms, strict=True) if home_of(row[0].task_id)[1] == shard
        ]
        for run, batch in by_partition(rows, lambda row: (row[0].start_time_ms, row[0].task_id)):
            for first in range(0, len(batch), BATCH_ROWS_MAX):
                page = batch[first : first + BATCH_ROWS_MAX]
                answers = await db.fetch(
                    "reserve",
                    {
                        "shard": shard,
                        "slot_lo": run.slot_lo,
                        "slot_hi": run.slot_hi,
                        "biz_type": biz_type,
                        "reserved_max": reserved_max,
                        "task_ids": [ref.task_id for ref, _ in page],
                        "start_times": [ref.start_time_ms for ref, _ in page],
                        "moments": [ref.moment_ms for ref, _ in page],
                        "ttrs": [ttr_ms for _, ttr_ms in page],
                        "published": [ref.published_ms for ref, _ in page],
                        "bytes_max": BATCH_BYTES_MAX,
                        "shown_bytes": SHOWN_BYTES_MAX,
                    },
                )
                bare |= {row[1] for row in answers if row[0] == "bare"}
                sorted_out(answers, result)
                is_full = is_full or any(row[0] == "full" for row in answers)
    if bare:
        result.claims[:] = await _with_payloads(db, result.claims, bare)
    return result, is_full


async def _with_payloads(db: Database, claims: Sequence[Claim], bare: set[UUID]) -> list[Claim]:
    """The claims with the payloads that are missing, but for those whose task has changed since."""
    rows = await lookup(db, bare)
    whole: list[Claim] = []
    for claim in claims:
        if claim.task_id not in bare:
            whole.append(claim)
            continue
        row = rows.get(claim.task_id)
        if row is not None and (row.attempts, row.revision) == (claim.attempt, claim.revision):
            whole.append(claim._replace(biz_data=row.biz_data))
    return whole


class Report(Struct, gc=False):
    """
    What a worker says of a task. start_time_ms, biz_type, attempt, revision: its claim's. delay_ms:
    of a release until it is due again, of a touch the new lease. retention_ms: of a release where
    it was stopped meanwhile.
    """

    task_id: UUID
    start_time_ms: int
    biz_type: str
    verb: Verb
    attempt: int
    revision: int
    delay_ms: int = 0
    reason: str | None = None
    retention_ms: int = 0
    config_version: int = 0
    erase: bool = False
    notice: NewTask | None = None


class Reported(NamedTuple):
    """verdicts: by task. near: references that the caller publishes."""

    verdicts: dict[UUID, Verdict]
    near: list[Ref]


async def report(
    db: Database,
    shard: int,
    rows: Sequence[Report],
    *,
    broker: str,
    lookahead_ms: int = 1000,
    latest_ms: int | None = None,
) -> Reported:
    """
    Do what the holders of tasks of one shard say, each task once; at most BATCH_ROWS_MAX.

    latest_ms: Clock.latest_ms. Raises DataRejected, DatabaseUnavailable; safe to repeat: what was
    done before is `repeated` then.
    """
    assert len(rows) <= BATCH_ROWS_MAX, len(rows)
    result = Reported({}, [])
    for run, batch in by_partition(rows, lambda row: (row.start_time_ms, row.task_id)):
        notices = [row.notice for row in batch]
        answer = await db.fetch_one(
            "report",
            {
                "shard": shard,
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "task_ids": [row.task_id for row in batch],
                "start_times": [row.start_time_ms for row in batch],
                "biz_types": [row.biz_type for row in batch],
                "verbs": [row.verb for row in batch],
                "attempts": [row.attempt for row in batch],
                "revisions": [row.revision for row in batch],
                "delays": [row.delay_ms for row in batch],
                "retentions": [row.retention_ms for row in batch],
                "reasons": sparse([row.reason for row in batch]),
                "broker": broker,
                "config_versions": [row.config_version for row in batch],
                "erases": [row.erase for row in batch],
                "notice_ids": sparse([n and n.task_id for n in notices]),
                "notice_times": sparse([n and n.start_time_ms for n in notices]),
                "notice_biz_types": sparse([n and n.biz_type for n in notices]),
                "notice_biz_ids": sparse([n and n.biz_id for n in notices]),
                "notice_data": sparse([n and n.biz_data for n in notices]),
                "notice_content_type": next((n.content_type for n in notices if n), None),
                "lookahead_ms": lookahead_ms,
                "latest_ms": latest_ms,
            },
        )
        assert answer is not None
        verdicts, moments, noted = answer
        for row, verdict, moment_ms in zip(batch, verdicts, moments, strict=True):
            result.verdicts[row.task_id] = verdict
            if moment_ms is not None:
                result.near.append(
                    Ref(row.task_id, row.start_time_ms, moment_ms, moment_ms, row.biz_type)
                )
        for position in noted:
            notice = notices[position - 1]
            assert notice is not None
            at_ms = notice.start_time_ms
            result.near.append(Ref(notice.task_id, at_ms, at_ms, at_ms, notice.biz_type))
    return result
