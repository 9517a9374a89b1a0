"""Reap: what has expired, and what belongs to it, is deleted. sql/migrations: 0015_reap."""

from __future__ import annotations

from typing import Final, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.errors import FenceBusy

BATCH_ROWS_MAX: Final = 1000
CARRY_ROWS_MAX: Final = 1000
CARRY_BYTES_MAX: Final = 16 * 1024 * 1024
# A submit for the partition that is emptied waits for so long at the most: in it two or three
# million rows are looked at.
HOLD_MS: Final = 2000

K = TypeVar("K")
Verdict = Literal["done", "hands", "alive", "slow", "busy"]


class Partition(NamedTuple):
    """
    One partition of the wheel. pages: of its rows; updates: of its rows, as far as the statistics
    have counted; is_under_hands: a hand stands in it, or will within minutes.
    """

    slot_lo: int
    pages: int
    index_pages: int
    updates: int
    is_under_hands: bool


class Look(NamedTuple):
    """
    What lies in a part of a partition, in rows: settled and expired; of them those to which more
    belongs than a row; settled and not expired; pending, or forwarding. Then moments (ms) of the
    settled ones, None where there is none: when the first expires, when the last, and when the
    first has waited a tenth of its retention beyond.
    """

    expired: int = 0
    entwined: int = 0
    lasting: int = 0
    open: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    overdue_ms: int | None = None

    def and_(self, other: Look) -> Look:
        """Both parts together."""
        return Look(
            self.expired + other.expired,
            self.entwined + other.entwined,
            self.lasting + other.lasting,
            self.open + other.open,
            min(_known(self.earliest_ms, other.earliest_ms), default=None),
            max(_known(self.latest_ms, other.latest_ms), default=None),
            min(_known(self.overdue_ms, other.overdue_ms), default=None),
        )


class Reaped(NamedTuple):
    """Tasks that are gone, by the status they had."""

    finished: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def tasks(self) -> int:
        """All of them."""
        return sum(self)


class Truncated(NamedTuple):
    """
    verdict: done; hands: they stand there; alive: more than may be carried over; slow: too large
    to be looked through under the lock; busy: somebody is at it.
    """

    verdict: Verdict
    carried: int = 0
    reaped: Reaped = Reaped()


class ChangeKey(NamedTuple):
    """Where a page of the change log ended."""

    time_ms: int = 0
    change_id: int = 0


class AttemptKey(NamedTuple):
    """Where a page of attempts ended."""

    task_id: UUID = UUID(int=0)
    attempt: int = 0


class Page(NamedTuple, Generic[K]):
    """One page of records: how many went, and the key of the next page; None at the end."""

    reaped: int
    key: K | None


async def partitions(db: Database) -> list[Partition]:
    """All partitions, in the order of their slots."""
    return [Partition._make(row) for row in await db.fetch("reap_partitions")]


async def look(db: Database, slot_lo: int, block_lo: int, block_hi: int) -> Look:
    """What lies in the blocks [block_lo, block_hi) of a partition. Locks nothing."""
    row = await db.fetch_one(
        "reap_look", {"slot_lo": slot_lo, "block_lo": block_lo, "block_hi": block_hi}
    )
    assert row is not None
    return Look._make(row)


async def reap(
    db: Database,
    epoch: int,
    shard: int,
    slot_lo: int,
    block_lo: int,
    block_hi: int,
    *,
    is_whole: bool,
) -> tuple[bool, Reaped]:
    """
    One batch of expired tasks of a shard in the blocks [block_lo, block_hi) of a partition, with
    all that belongs to them. is_whole: else only those to which more belongs than a row.

    Returns whether there may be more, and what went. Raises LeadershipLost, with nothing deleted.
    """
    row = await db.fetch_one(
        "reap",
        {
            "epoch": epoch,
            "shard": shard,
            "slot_lo": slot_lo,
            "block_lo": block_lo,
            "block_hi": block_hi,
            "is_whole": is_whole,
            "limit": BATCH_ROWS_MAX,
        },
    )
    assert row is not None
    reaped = Reaped._make(row[1:])
    # A batch of which nothing could go would come again, and again.
    return row[0] == BATCH_ROWS_MAX and reaped.tasks > 0, reaped


async def truncate(db: Database, epoch: int, slot_lo: int) -> Truncated:
    """
    Empty a partition in which nothing lives but a few rows, which are carried over.

    Raises LeadershipLost, with nothing done.
    """
    try:
        row = await db.fetch_one(
            "reap_truncate",
            {
                "epoch": epoch,
                "slot_lo": slot_lo,
                "carry_max": CARRY_ROWS_MAX,
                "carry_bytes_max": CARRY_BYTES_MAX,
                "hold_ms": HOLD_MS,
            },
        )
    except FenceBusy:
        return Truncated("busy")
    assert row is not None
    return Truncated(row[0], row[1], Reaped._make(row[2:]))


async def advance(db: Database, epoch: int, reaped_ms: int) -> None:
    """Everything that had expired by reaped_ms is gone. Raises LeadershipLost."""
    await db.execute("reap_advance", {"epoch": epoch, "reaped": reaped_ms})


async def reap_changes(
    db: Database, key: ChangeKey, *, task_kept_ms: int, kept_ms: int
) -> Page[ChangeKey]:
    """A page of the change log. task_kept_ms: of changes of single tasks; kept_ms: of others."""
    row = await db.fetch_one(
        "reap_changes",
        {
            "key_time": key.time_ms,
            "key_id": key.change_id,
            "task_kept_ms": task_kept_ms,
            "kept_ms": kept_ms,
            "limit": BATCH_ROWS_MAX,
        },
    )
    assert row is not None
    return Page(row[0], None if row[1] is None else ChangeKey._make(row[1:]))


async def reap_attempts(db: Database, key: AttemptKey) -> Page[AttemptKey]:
    """A page of the attempts: those whose task is gone."""
    row = await db.fetch_one(
        "reap_attempts",
        {"key_id": key.task_id, "key_attempt": key.attempt, "limit": BATCH_ROWS_MAX},
    )
    assert row is not None
    return Page(row[0], None if row[1] is None else AttemptKey._make(row[1:]))


async def reap_records(db: Database, kept_ms: int) -> int:
    """Old versions of biz_types, operations and keys that have ended; at most a batch of each."""
    row = await db.fetch_one("reap_records", {"kept_ms": kept_ms, "limit": BATCH_ROWS_MAX})
    assert row is not None
    reaped: int = row[0]
    return reaped


async def reap_secrets(db: Database) -> int:
    """Secrets that were rotated away and have ended."""
    row = await db.fetch_one("reap_secrets")
    assert row is not None
    reaped: int = row[0]
    return reaped


def _known(*moments_ms: int | None) -> list[int]:
    return [moment for moment in moments_ms if moment is not None]
