"""
The event center: lanes in Redis Streams, one a biz_type, read by one consumer group.

Redis is never the only copy of anything. An entry is a reference (where the task's row is, when to
call); whatever vanishes here is found again from Postgres. The keys stand in streams.py; who is
alive, and what the dead held, in consumers.py.

The driver never retries (a repeated XADD publishes twice, a repeated XREADGROUP hides the first
reply's entries); callers do, and re-read their own pending entries after every
EventCenterUnavailable. A command in flight is never cancelled.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

from redis.asyncio import ConnectionPool
from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

from wheel_timer.consumers import Consumers
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.lateness import Lateness
from wheel_timer.losses import Losses
from wheel_timer.publishing import Publishing
from wheel_timer.reach import Reach
from wheel_timer.streams import GROUP, PAGE_ENTRIES, driver_options, pack, unpack
from wheel_timer.task import Ref

log: Final = logging.getLogger(__name__)

# A blocking read's socket waits this much longer than the read itself.
BLOCK_GRACE_S: Final = 1.5
BLOCK_MS_MAX: Final = 2000

Members = Literal["brokers", "servers"]


class Depth(NamedTuple):
    """
    waiting: nobody has read them yet. read: in the hands of brokers. first_ms: the moment of what
    has been there for longest, None where nothing is.
    """

    waiting: int
    read: int
    first_ms: int | None


class EventCenter(Publishing, Consumers, Losses, Lateness):
    """
    The lanes, as one process sees them.

    cluster_id: the database's, so that an epoch is compared with epochs of the same database only.
    members: among whom this one's heartbeats count: those who call, or those who serve workers.
    Every method raises EventCenterUnavailable where Redis cannot be reached or refuses.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        prefix: str,
        consumer: str,
        cluster_id: UUID | str,
        members: Members = "brokers",
    ) -> None:
        super().__init__(redis_url, prefix=prefix, consumer=consumer)
        self._brokers_key = f"{prefix}:{members}"
        self._cluster = str(cluster_id)[:8]
        self._blocking = ConnectionPool.from_url(
            redis_url, socket_timeout=BLOCK_MS_MAX / 1000 + BLOCK_GRACE_S, **driver_options()
        )
        self._reader: Connection | None = None
        self._reader_id: int | None = None
        self._grouped: set[str] = set()
        self.reach = Reach(self.probe)
        self._hand_back = self._script("hand_back")

    async def read(self, lanes: Sequence[str], count: int, block_ms: int) -> list[Ref]:
        """
        New references of these biz_types, at most `count` a lane; waits up to block_ms for one.

        Returns early, with nothing, on `wake`. Not to be called twice at once, nor cancelled.
        """
        assert 0 < block_ms <= BLOCK_MS_MAX, block_ms
        await self._ensure_groups(lanes)
        return await self._read_group(lanes, ">", count, block_ms)

    async def read_own(self, lanes: Sequence[str]) -> list[Ref]:
        """References that were read by this consumer and not acknowledged: after a reconnect."""
        await self._ensure_groups(lanes)
        found: list[Ref] = []
        for lane in lanes:
            after = b"0"
            while True:
                page = await self._read_group([lane], after, PAGE_ENTRIES, None)
                if not page:
                    break
                found += page
                after = page[-1].entry_id
        return found

    async def _read_group(
        self, lanes: Sequence[str], after: bytes | str, count: int, block_ms: int | None
    ) -> list[Ref]:
        keys = [self.lane_key(lane) for lane in lanes]
        block = () if block_ms is None else ("BLOCK", block_ms)
        try:
            reader = await self._connect_reader()
            await reader.send_command(
                "XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count, *block,
                "STREAMS", *keys, *[after] * len(keys),
            )  # fmt: skip
            answer = await reader.read_response()
        except ResponseError as error:
            # NOGROUP and UNBLOCKED: the stream or its group went; the normal way after a flush.
            self._grouped.clear()
            if str(error).startswith(("NOGROUP", "UNBLOCKED")):
                log.info("the event center lost its lanes; making them anew")
                await self.tell_lost()
                return []
            raise EventCenterUnavailable(str(error)) from error
        except (RedisError, OSError) as error:
            await self._drop_reader()
            raise EventCenterUnavailable(str(error) or type(error).__name__) from error
        names = dict(zip((key.encode() for key in keys), lanes, strict=True))
        refs: list[Ref] = []
        for key, entries in answer or ():
            refs += await self._decode(names[key], entries)
        return refs

    async def _connect_reader(self) -> Connection:
        if self._reader is None:
            reader = self._blocking.make_connection()
            await reader.connect()
            await reader.send_command("CLIENT", "ID")
            self._reader_id = await reader.read_response()
            self._reader = reader
        return self._reader

    async def _drop_reader(self) -> None:
        reader, self._reader, self._reader_id = self._reader, None, None
        self._grouped.clear()
        if reader is not None:
            await reader.disconnect(nowait=True)

    async def wake(self) -> None:
        """Make a waiting `read` return now. Nothing happens where none is waiting."""
        if self._reader_id is not None:
            await self._run(self._redis.execute_command("CLIENT", "UNBLOCK", self._reader_id))

    async def _ensure_groups(self, lanes: Sequence[str]) -> None:
        """A group reads from 0: from `$` on it would miss what was added before it was made."""
        missing = [lane for lane in lanes if lane not in self._grouped]
        for lane in missing:
            try:
                await self._redis.xgroup_create(self.lane_key(lane), GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise EventCenterUnavailable(str(error)) from error
            except (RedisError, OSError) as error:
                raise EventCenterUnavailable(str(error)) from error
            self._grouped.add(lane)

    async def ack(self, refs: Iterable[Ref]) -> None:
        """These are dealt with. References without an entry are passed over."""
        by_lane: dict[str, list[bytes]] = defaultdict(list)
        for ref in refs:
            if ref.entry_id:
                by_lane[ref.biz_type].append(ref.entry_id)
        if not by_lane:
            return
        async with self._redis.pipeline(transaction=False) as pipe:
            for lane, ids in by_lane.items():
                for first in range(0, len(ids), PAGE_ENTRIES):
                    page = ids[first : first + PAGE_ENTRIES]
                    keys = [self.lane_key(lane), self.beside("done", lane)]
                    await self._acknowledge(keys=keys, args=[GROUP, *page], client=pipe)
            await self._run(pipe.execute())

    async def hand_back(self, refs: Iterable[Ref]) -> None:
        """Give references that were read, and not claimed, to whoever reads next."""
        by_lane: dict[str, list[bytes]] = defaultdict(list)
        for ref in refs:
            if ref.entry_id:
                by_lane[ref.biz_type] += (ref.entry_id, pack(ref))
        if not by_lane:
            return
        async with self._redis.pipeline(transaction=False) as pipe:
            for lane, pairs in by_lane.items():
                for first in range(0, len(pairs), 2 * PAGE_ENTRIES):
                    page = pairs[first : first + 2 * PAGE_ENTRIES]
                    await self._hand_back(
                        keys=[self.lane_key(lane)], args=[GROUP, *page], client=pipe
                    )
            await self._run(pipe.execute())

    async def depths(self, lanes: Sequence[str]) -> dict[str, Depth]:
        """How much lies in these lanes; one that nobody has written to yet holds nothing."""
        if not lanes:
            return {}
        async with self._redis.pipeline(transaction=False) as pipe:
            for lane in lanes:
                pipe.xlen(self.lane_key(lane))
                pipe.xpending(self.lane_key(lane), GROUP)
                pipe.xrange(self.lane_key(lane), count=1)
            # A lane without a group answers with an error of its own.
            answers = await self._run(pipe.execute(raise_on_error=False))
        depths: dict[str, Depth] = {}
        for lane, length, pending, first in zip(
            lanes, answers[::3], answers[1::3], answers[2::3], strict=True
        ):
            read = pending["pending"] if isinstance(pending, dict) else 0
            depths[lane] = Depth(length - read, read, _first_ms(lane, first))
        return depths

    async def remove(self, lanes: Sequence[str]) -> None:
        """The lanes of biz_types that are no more. Who still reads one makes it anew, empty."""
        self._grouped.difference_update(lanes)
        async with self._redis.pipeline(transaction=False) as pipe:
            for lane in lanes:
                pipe.unlink(self.lane_key(lane))
            await self._run(pipe.execute())

    async def close(self) -> None:
        """Close every connection."""
        await self.reach.stop()
        await self._drop_reader()
        await self._redis.aclose()
        await self._blocking.disconnect()


def _first_ms(lane: str, entries: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> int | None:
    """The moment of the first of these raw entries; what is no reference has none."""
    for entry_id, fields in entries:
        try:
            return unpack(fields[b"r"], lane, entry_id).moment_ms
        except (KeyError, ValueError):
            return None
    return None
