"""What of a Postgres wheel-timer depends on: for `doctor`. Reads only."""

from __future__ import annotations

from typing import NamedTuple

from wheel_timer.database import Database


class ServerFacts(NamedTuple):
    """
    As Postgres says it. version: 180000 is 18. The settings are texts (`on`, `off`, `local`...).
    snapshot_s: the age of the oldest snapshot, snapshot_of: what holds it. synchronous_standbys:
    those that a commit waits for. requeue_dead, requeue_live: rows of timer_requeue, estimated.
    """

    version: int
    is_replica: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    max_locks: int
    max_connections: int
    connections: int
    snapshot_s: float
    snapshot_of: str | None
    partitions: int
    partitions_unvacuumed: int
    synchronous_standbys: int
    requeue_dead: int
    requeue_live: int


async def server_facts(db: Database) -> ServerFacts:
    """Ask once. Raises DatabaseUnavailable."""
    row = await db.fetch_one("server_facts")
    assert row is not None
    return ServerFacts._make(row)
