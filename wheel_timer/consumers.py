"""
Who reads the lanes, and who does no longer: heartbeats, and what the dead had in their hands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

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


class Consumers(Buckets, Waits):
    """The members of the group, as one of them sees them."""

    def __init__(self, redis_url: str, *, prefix: str, consumer: str) -> None:
        super().__init__(redis_url, prefix=prefix, consumer=consumer)
        self.brokers = 1  # how many lived at the last heartbeat
        self._heartbeat = self._script("heartbeat")
        self._trim = self._script("trim")
        self._forget_in = self._script("forget")

    async def heartbeat(self) -> tuple[int, int, list[str]]:
        """
        Say that this consumer lives. Returns how many do, its place among them (0 first; all see
        the same order), and the names of those that do not.
        """
        alive, rank, dead = await self._run(
            self._heartbeat(keys=[f"{self._prefix}:brokers"], args=[self._consumer, SILENCE_MS])
        )
        self.brokers = max(1, alive)
        return alive, rank, [name.decode() for name in dead]

    async def leave(self) -> None:
        """This consumer ends in order: it is not one of the silent ones."""
        await self._run(self._redis.zrem(f"{self._prefix}:brokers", self._consumer))

    async def take_over(
        self, lanes: Sequence[str], dead: Sequence[str], all_lanes: Sequence[str] | None = None
    ) -> list[Ref]:
        """
        The entries of these lanes that dead consumers had read and not acknowledged; they are ours
        now.

        Two brokers doing this at once do not both get one: the second finds it no longer idle.
        A dead consumer with nothing pending in any of all_lanes (None: these) is forgotten.
        """
        found: list[Ref] = []
        for name in dead:
            pending = 0
            for lane in lanes:
                after: bytes | str = "-"
                while True:
                    refs, ids = await self._take_page(lane, name, after)
                    found += refs
                    pending += len(ids)
                    if len(ids) < PAGE_ENTRIES:
                        break
                    after = b"(" + ids[-1]
            if not pending:
                await self._forget(lanes if all_lanes is None else all_lanes, name)
        return found

    async def _take_page(
        self, lane: str, name: str, after: bytes | str
    ) -> tuple[list[Ref], list[bytes]]:
        """One page of what `name` holds in a lane: the references had, and all ids that it held."""
        key = self.lane_key(lane)
        try:
            pending = await self._redis.xpending_range(
                key, GROUP, after, "+", PAGE_ENTRIES, consumername=name
            )
            ids: list[Any] = [entry["message_id"] for entry in pending]
            if not ids:
                return [], []
            entries = await self._redis.execute_command(
                "XCLAIM", key, GROUP, self._consumer, SILENCE_MS, *ids
            )
        except ResponseError as error:
            if str(error).startswith("NOGROUP"):
                return [], []
            raise EventCenterUnavailable(str(error)) from error
        except (RedisError, OSError) as error:
            raise EventCenterUnavailable(str(error)) from error
        return await self._decode(lane, _as_read(entries), taken_over=True), ids

    async def _forget(self, lanes: Sequence[str], name: str) -> None:
        """Only a consumer with nothing pending may go: its entries would be nobody's."""
        for lane in lanes:
            if not await self._run(self._forget_in(keys=[self.lane_key(lane)], args=[GROUP, name])):
                # It was only frozen, and has read something since we looked.
                return
        await self._run(self._redis.zrem(f"{self._prefix}:brokers", name))

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
