"""
Why lanes hold back what is due: each broker tells it in Redis, whoever shows a task reads it. And
where an endpoint works again: the broker that found out tells the others.

What is told counts for TOLD_MS; a broker says it again each second for as long as it is so. Lost
with Redis, nothing is missing but the reason, and some time until all breakers have closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from wheel_timer.streams import Streams

TOLD_MS: Final = 3_000
# Who listens looks once a second.
WORKS_TOLD_MS: Final = 10_000

LaneReason = Literal["breaker_open", "rate_limited", "concurrency"]


class LaneWait(msgspec.Struct, frozen=True, array_like=True):
    """
    A lane's reason in one broker. Times in ms, database clock: since it is so, until it ends by
    itself (None: not by time), and when it was told.
    """

    reason: LaneReason
    since_ms: int
    until_ms: int | None
    told_ms: int


_LANE_WAIT: Final = msgspec.json.Decoder(LaneWait)


class Waits(Streams):
    """The lanes' reasons, as one process tells and reads them."""

    def _waits_key(self, biz_type: str) -> str:
        return self.lane_key(biz_type).replace(":lane:", ":waits:", 1)

    async def tell_waits(self, waits: Mapping[str, LaneWait]) -> None:
        """This consumer's reasons, by biz_type. Raises EventCenterUnavailable."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for biz_type, wait in waits.items():
                key = self._waits_key(biz_type)
                pipe.hset(key, self._consumer, msgspec.json.encode(wait).decode())
                pipe.pexpire(key, TOLD_MS)
            await self._run(pipe.execute())

    async def waits(self, biz_types: Iterable[str], now_ms: float) -> dict[str, LaneWait]:
        """
        Why these lanes hold back what is due; one that does not is missing. Where brokers differ
        the reason that lasts longest is told. Raises EventCenterUnavailable.
        """
        names = sorted(set(biz_types))
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hvals(self._waits_key(name))
            answers = await self._run(pipe.execute())
        found: dict[str, LaneWait] = {}
        for name, told in zip(names, answers, strict=True):
            waits = [wait for raw in told if (wait := _decoded(raw, now_ms)) is not None]
            if waits:
                order = get_args(LaneReason)
                found[name] = min(waits, key=lambda one: (order.index(one.reason), one.since_ms))
        return found

    def _works_key(self, biz_type: str) -> str:
        return self.lane_key(biz_type).replace(":lane:", ":works:", 1)

    async def tell_works(self, biz_type: str, now_ms: float) -> None:
        """Its endpoint works again, as a call has shown. Raises EventCenterUnavailable."""
        told = self._redis.set(self._works_key(biz_type), int(now_ms), px=WORKS_TOLD_MS)
        await self._run(told)

    async def works(self, biz_types: Sequence[str]) -> dict[str, int]:
        """
        When each endpoint of these was told to work again, database clock, ms; of most nothing was
        told lately. Raises EventCenterUnavailable.
        """
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in biz_types:
                pipe.get(self._works_key(name))
            answers = await self._run(pipe.execute())
        told = zip(biz_types, answers, strict=True)
        return {name: int(worked_ms) for name, worked_ms in told if worked_ms is not None}


def _decoded(raw: bytes, now_ms: float) -> LaneWait | None:
    """What a broker has told lately; None for old news, and what only a newer release knows."""
    try:
        wait = _LANE_WAIT.decode(raw)
    except msgspec.MsgspecError:
        return None
    return wait if now_ms - wait.told_ms <= TOLD_MS else None
