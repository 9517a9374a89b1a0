"""Claim: the exclusive, expiring right to one attempt. sql/migrations: wheel_claim_v1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.store.place import by_partition
from wheel_timer.task import Claim, Ref
from wheel_timer.wheel import home_of

BATCH_ROWS_MAX: Final = 500
# The lease outlives the callback's deadline by this: time to settle, and to notice a dead broker.
LEASE_MARGIN_MS: Final = 5_000
# A claim is granted this far ahead of its moment, so that the callback can start on it.
EARLY_MS: Final = 20
# Payload bytes one call gives out; a broker holds no more than this per claim in flight.
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024


class Claimed(NamedTuple):
    """
    What a claim came to. References of which nothing is said here are settled, gone, or copies:
    acknowledge and drop them.

    early: ahead of their moment by the database's clock; keep them, and measure the offset anew.
    leased: (task_id, until): somebody has it, or it waits for its next attempt, until then.
    again: left out because the payload bytes of this call were used up, or as many are reserved as
    may be; claim them in the next.
    """

    claims: list[Claim]
    early: list[UUID]
    leased: list[tuple[UUID, int]]
    again: list[UUID]


async def claim(db: Database, refs: Sequence[Ref], timeouts_ms: Sequence[int]) -> Claimed:
    """
    Take the right to one attempt at each task, at most BATCH_ROWS_MAX, in any order.

    timeouts_ms: the callback timeout of each one's biz_type; a task's own overrides it. The lease
    is that plus LEASE_MARGIN_MS, by the database's clock. One statement a partition.
    Raises DatabaseUnavailable; what was claimed then comes back when its lease ends.
    """
    assert len(refs) <= BATCH_ROWS_MAX, len(refs)
    result = Claimed([], [], [], [])
    rows = zip(refs, timeouts_ms, strict=True)
    for run, batch in by_partition(rows, lambda row: (row[0].start_time_ms, row[0].task_id)):
        answers = await db.fetch(
            "claim",
            {
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "task_ids": [ref.task_id for ref, _ in batch],
                "shards": [home_of(ref.task_id)[1] for ref, _ in batch],
                "start_times": [ref.start_time_ms for ref, _ in batch],
                "moments": [ref.moment_ms for ref, _ in batch],
                "timeouts": [timeout_ms for _, timeout_ms in batch],
                "margin_ms": LEASE_MARGIN_MS,
                "early_ms": EARLY_MS,
                "bytes_max": BATCH_BYTES_MAX,
            },
        )
        sorted_out(answers, result)
    return result


def sorted_out(answers: Iterable[Sequence[Any]], result: Claimed) -> None:
    """Put the rows of a claim's answer where their verdicts belong."""
    for verdict, task_id, lease_until, *rest in answers:
        match verdict:
            case "claimed" | "bare":
                result.claims.append(_claim(task_id, lease_until, rest))
            case "early":
                result.early.append(task_id)
            case "leased":
                result.leased.append((task_id, lease_until))
            case _:
                result.again.append(task_id)


def _claim(task_id: UUID, lease_until: int, rest: list[object]) -> Claim:
    start_time, biz_type, biz_id, *more = rest
    attempts, failures, revision, life, stop, create_time, first_attempt_time, *payload = more
    return Claim._make(
        (
            task_id, start_time, biz_type, biz_id, attempts, failures, revision, life, stop,
            lease_until, create_time, first_attempt_time, *payload, None,
        )
    )  # fmt: skip
