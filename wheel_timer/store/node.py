"""timer_node: which daemons and brokers live. For people, and for sharing out the shards."""

from __future__ import annotations

from typing import Literal, NamedTuple

from wheel_timer.database import Database


class Node(NamedTuple):
    """
    A process that has said in the last day that it lives; is_alive: in the last 50 s.

    clock_jump_ms: how far it finds the database's clock ahead, while it holds back for that. leads:
    its shards.
    """

    node: str
    role: Literal["broker", "daemon"]
    version: str
    started_ms: int
    heartbeat_ms: int
    is_alive: bool
    clock_jump_ms: int | None
    leads: list[int]


async def beat(
    db: Database, node: str, role: str, version: str, clock_jump_ms: float | None
) -> int:
    """Say that a process lives; returns how many of its role do (a beat in the last 50 s)."""
    params = {
        "node": node,
        "role": role,
        "version": version,
        "clock_jump": None if clock_jump_ms is None else round(clock_jump_ms),
    }
    row = await db.fetch_one("node_beat", params)
    assert row is not None
    alive: int = row[0]
    return alive


async def leave(db: Database, node: str) -> None:
    """A process ends in order."""
    await db.execute("node_leave", {"node": node})


async def nodes(db: Database) -> list[Node]:
    """All that are known, by role and age."""
    return [Node._make(row) for row in await db.fetch("nodes")]
