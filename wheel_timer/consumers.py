"""
Who reads the lanes, and who does no longer: heartbeats, and what the dead had in their hands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError, ResponseError

from wheel_timer.buckets import Buckets
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.streams import GROUP, PAGE_ENTRIES
from wheel_timer.task import Ref
from wheel_timer.waits import Waits

# A consumer silent for this long is dead, and its entries are taken over.
SILENCE_MS: Final = 3000
# Longer than any lease: an entry idle for so long belongs to nobody who still works on it.
IDLE_MS: Final = 660_000


class Beat(NamedTuple):
    """
    What a heartbeat tells. now_ms: Redis' clock; alive: who lives, this one too, and when each beat
    last by that clock; dead: who does not; is_known: whether Redis had this one since its last
    beat. At its first beat nobody is.
    """

    now_ms: int
    alive: dict[str, int]
    dead: list[str]
    is_known: bool


class Consumers(Buckets, Waits):
    """The members of the group, as one of them sees them."""

    def __init__(self, redis_url: str, *, prefix: str, consumer: str) -> None:
        super().__init__(redis_url, prefix=prefix, consumer=consumer)
        self.brokers = 1  # how many lived at the last heartbeat
        self._brokers_key = f"{prefix}:brokers"
        self._heartbeat = self._script("heartbeat")
        self._take_over = self._script("take_over")
        self._trim = self._script("trim")
        self._forget_in = self._script("forget")

    @property
    def consumer(self) -> str:
        """This one's name."""
        return self._consumer

    async def heartbeat(self) -> Beat:
        """Say that this consumer lives, and hear who does."""
        now_ms, is_known, alive, dead = await self._run(
            self._heartbeat(keys=[self._brokers_key], args=[self._consumer, SILENCE_MS])
        )
        beats = dict(zip(alive[::2], alive[1::2], strict=True))
        self.brokers = max(1, len(beats))
        return Beat(
            int(now_ms),
            {name.decode(): int(float(beaten)) for name, beaten in beats.items()},
            [name.decode() for name in dead],
            bool(is_known),
        )

    async def bury(self, names: Sequence[str]) -> None:
        """These have ended, as their own machine says: for everybody they are dead from now on."""
        await self._run(self._redis.zadd(self._brokers_key, dict.fromkeys(names, 0), xx=True))

    async def leave(self) -> None:
        """This consumer ends in order: it is not one of the silent ones."""
        await self._run(self._redis.zrem(self._brokers_key, self._consumer))

    async def take_over(
        self,
        lanes: Sequence[str],
        dead: Sequence[str],
        all_lanes: Sequence[str] | None = None,
        gone: Collection[str] = (),
    ) -> list[Ref]:
        """
        The entries of these lanes that dead consumers had read and not acknowledged; they are ours
        now. Of a silent one only what it has held for as long: it may be alive after all. Of those
        that are known to be `gone` all of it.

        Two brokers doing this at once do not both get one.
        A dead consumer with nothing pending in any of all_lanes (None: these) is forgotten.
        """
        found: list[Ref] = []
        for name in dead:
            pending = 0
            idle_ms = 0 if name in gone else SILENCE_MS
            for lane in lanes:
                after: bytes | str = "-"
                while True:
                    ids, entries = await self._run(
                        self._take_over(
                            keys=[self.lane_key(lane)],
                            args=[GROUP, name, self._consumer, idle_ms, after, PAGE_ENTRIES],
                        )
                    )
                    found += await self._decode(lane, entries, taken_over=True)
                    pending += len(ids)
                    if len(ids) < PAGE_ENTRIES:
                        break
                    after = b"(" + ids[-1]
            if not pending:
                await self._forget(lanes if all_lanes is None else all_lanes, name)
        return found

    async def _forget(self, lanes: Sequence[str], name: str) -> None:
        """Only a consumer with nothing pending may go: its entries would be nobody's."""
        for lane in lanes:
            if not await self._run(self._forget_in(keys=[self.lane_key(lane)], args=[GROUP, name])):
                # It was only frozen, and has read something since we looked.
                return
        await self._run(self._redis.zrem(self._brokers_key, name))

    async def claim_idle(self, lanes: Sequence[str]) -> list[Ref]:
        """Entries idle for longer than any lease, whoever read them."""
        found: list[Ref] = []
        for lane in lanes:
            cursor: bytes = b"0-0"
            while True:
                try:
                    answer = await self._redis.execute_command(
                        "XAUTOCLAIM", self.lane_key(lane), GROUP, self._consumer, IDLE_MS, cursor,
                        "COUNT", PAGE_ENTRIES,
                    )  # fmt: skip
                except ResponseError as error:
                    if str(error).startswith("NOGROUP"):
                        break
                    raise EventCenterUnavailable(str(error)) from error
                except (RedisError, OSError) as error:
                    raise EventCenterUnavailable(str(error)) from error
                # 6.2 answers two parts, 7 a third: the ids it dropped because they were trimmed.
                cursor, entries = answer[0], answer[1]
                found += await self._decode(lane, _as_read(entries), taken_over=True)
                if cursor == b"0-0":
                    break
        return found

    async def trim(self, lanes: Sequence[str]) -> None:
        """Drop what was acknowledged and not deleted."""
        for lane in lanes:
            await self._run(self._trim(keys=[self.lane_key(lane)], args=[GROUP]))


def _as_read(claimed: Iterable[Any]) -> list[Any]:
    """Claimed entries, of which the driver makes dicts, as a read brings them."""
    return [
        (entry_id, None if fields is None else [b"r", fields.get(b"r")])
        for entry_id, fields in claimed
        if entry_id is not None
    ]
