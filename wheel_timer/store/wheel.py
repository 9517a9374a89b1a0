"""The wheel as a whole: where the hands of each shard stand. Reads only."""

from __future__ import annotations

from typing import NamedTuple

from wheel_timer.database import Database


class Shard(NamedTuple):
    """One shard's pointer row; times in ms by the database's clock, which said now_ms."""

    shard: int
    leader: str | None
    epoch: int
    lease_until_ms: int
    closed_to_ms: int
    current_time_ms: int
    sweep_time_ms: int
    reap_time_ms: int
    now_ms: int

    @property
    def is_led(self) -> bool:
        """Whether a leader's lease runs."""
        return self.leader is not None and self.lease_until_ms > self.now_ms

    @property
    def lag_ms(self) -> int:
        """
        How far the due hand is behind. A led hand that has nothing to do stands where it has
        closed to, up to a minute back, and is behind by nothing; one that nobody leads is behind
        by all the time that has passed.
        """
        target_ms = min(self.now_ms, self.closed_to_ms) if self.is_led else self.now_ms
        return max(0, target_ms - self.current_time_ms)


async def shards(db: Database) -> list[Shard]:
    """Every shard of this database, in order."""
    return [Shard._make(row) for row in await db.fetch("wheel_shards")]
