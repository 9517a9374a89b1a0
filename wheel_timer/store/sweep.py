"""Sweep: a requeue row for every task that is past due, pending, and has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database

PAGE_ROWS: Final = 1000


class Swept(NamedTuple):
    """
    One page. seen: pending tasks in it; added: those of them that nothing covered.

    last_time_ms, last_id: the key to go on from; None where the page was empty.
    """

    seen: int
    added: int
    last_time_ms: int | None
    last_id: UUID | None
    swept_to_ms: int


async def sweep(
    db: Database,
    shard: int,
    epoch: int,
    after_ms: int,
    to_ms: int,
    key_ms: int,
    key_id: UUID,
    waits_ms: Mapping[str, int],
) -> Swept:
    """
    One page of the sweep over (after, to], behind the key; moves sweep_time. A transaction.

    The range must not run over the ring's end; an empty one only moves the hand. waits_ms: the
    lanes in which a reference waits for longer than a visibility time.
    Raises LeadershipLost, with nothing written.
    """
    row = await db.fetch_one(
        "sweep",
        {
            "shard": shard,
            "epoch": epoch,
            "after": after_ms,
            "to": to_ms,
            "key_time": key_ms,
            "key_id": key_id,
            "limit": PAGE_ROWS,
            "slow": list(waits_ms),
            "waits": list(waits_ms.values()),
        },
    )
    assert row is not None
    return Swept._make(row)
