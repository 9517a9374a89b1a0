"""
Whether Redis is still the one that a shard's leader had filled.

The leader notes the server's run id in Redis itself. A note that is gone was flushed, or never
came through a restart; a note of another run id is of a server that has restarted since, and may
have lost its last second. Whoever finds a lane missing takes the notes away. So a loss stays
visible, to the next leader too, until what was lost has been put back.

With each look the leader leaves a sign of itself: as long as brokers find it, the lanes are fed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wheel_timer.streams import Streams

# A leader looks once a second.
FED_MS: Final = 4_000


class Seen(NamedTuple):
    """run_id: the server's, now. is_known: whether it is the one that was noted."""

    run_id: str
    is_known: bool


class Losses(Streams):
    """The notes, as one process sees them."""

    _cluster: str  # the database's id, as in the epoch keys

    @property
    def _seen_key(self) -> str:
        return f"{self._prefix}:seen:{self._cluster}"

    def _fed_key(self, shard: int) -> str:
        return f"{self._prefix}:fed:{self._cluster}:{shard}"

    async def see(self, shard: int) -> Seen:
        """Look at the server, and at the note of this shard's leader, who is here."""
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.info("server")
            pipe.hget(self._seen_key, str(shard))
            pipe.set(self._fed_key(shard), "1", px=FED_MS)
            server, noted, _ = await self._run(pipe.execute())
        run_id = str(server["run_id"])
        return Seen(run_id, noted == run_id.encode())

    async def are_fed(self, shards: int) -> bool:
        """Whether every shard's leader has been here lately."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for shard in range(shards):
                pipe.exists(self._fed_key(shard))
            return all(await self._run(pipe.execute()))

    async def note(self, shard: int, run_id: str) -> None:
        """All that this shard had in the server of this run id is there (again)."""
        await self._run(self._redis.hset(self._seen_key, str(shard), run_id))

    async def tell_lost(self) -> None:
        """Something that leaders had put there is gone: they are to look for it."""
        await self._run(self._redis.delete(self._seen_key))
