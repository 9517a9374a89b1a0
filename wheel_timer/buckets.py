"""
Token buckets in Redis, one a limit: what all brokers together take from them stays within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wheel_timer.streams import Streams


class Ask(NamedTuple):
    """
    Tokens wanted of one bucket. kind: what they are for. per_s, capacity: the bucket as it is
    configured now; what is in it is kept when that changes. is_full_at_first: whether a bucket that
    Redis does not know (it is new, or was lost) starts full, not empty.
    """

    kind: str
    biz_type: str
    per_s: float
    capacity: float
    wanted: int
    is_full_at_first: bool = False


class Granted(NamedTuple):
    """tokens: how many were taken. wait_s: until the next one comes; 0 where none was missing."""

    tokens: int
    wait_s: float


class Buckets(Streams):
    """The buckets, as one process sees them."""

    def __init__(self, redis_url: str, *, prefix: str, consumer: str) -> None:
        super().__init__(redis_url, prefix=prefix, consumer=consumer)
        self._take_tokens = self._script("take_tokens")

    async def take_tokens(self, asks: Sequence[Ask]) -> list[Granted]:
        """
        Take from several buckets, in one round trip; the answers come in the order of the asks.

        Raises EventCenterUnavailable: some may have been taken then, and are lost.
        """
        async with self._redis.pipeline(transaction=False) as pipe:
            for ask in asks:
                await self._take_tokens(
                    keys=[self.beside(ask.kind, ask.biz_type)],
                    args=[
                        ask.per_s,
                        ask.capacity,
                        ask.wanted,
                        ask.capacity if ask.is_full_at_first else 0,
                    ],
                    client=pipe,
                )
            answers = await self._run(pipe.execute())
        return [Granted(taken, wait_us / 1e6) for taken, wait_us in answers]
