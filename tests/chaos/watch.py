"""Looks at the hands all the time: they never go back, and neither does the epoch."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import psycopg

LOOK_EACH_S: Final = 0.05
HANDS: Final = """
SELECT epoch, sweep_time, "current_time", wheel_closed_to_v1(shard)
FROM timer_pointer WHERE shard = 0
"""
NAMES: Final = ("epoch", "sweep_time", "current_time", "closed_to")


class Watch:
    """back_ms: how far a hand may go back, since a crash forgets asynchronous commits; then the
    epoch may not either. went_back: a sentence for each time one did."""

    def __init__(self, database_url: str, back_ms: int) -> None:
        self._url = database_url
        self._back_ms = back_ms
        self._seen: tuple[int, ...] = ()
        self.went_back: list[str] = []

    async def run(self) -> None:
        """Until cancelled; a database that is away is asked again."""
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=2
                ) as connection:
                    while True:
                        cursor = await connection.execute(HANDS)
                        self._compare(await cursor.fetchone() or ())
                        await asyncio.sleep(LOOK_EACH_S)
            except psycopg.Error:
                await asyncio.sleep(LOOK_EACH_S)

    def _compare(self, now: tuple[Any, ...]) -> None:
        for name, before, after in zip(NAMES, self._seen, now, strict=False):
            if after < before - (0 if name == "epoch" else self._back_ms):
                self.went_back.append(f"{name} went back from {before} to {after}")
        self._seen = now
