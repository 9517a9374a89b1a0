"""
The event center: lanes in Redis Streams, one a biz_type, read by one consumer group.

Redis is never the only copy of anything. An entry is a reference (where the task's row is, when to
call); whatever vanishes here is found again from Postgres. Keys, with PREFIX the setting
REDIS_PREFIX and TAG the lane's hash tag, 0 to 15, so that a cluster can spread the lanes:

    PREFIX:{TAG}:lane:BIZ_TYPE         stream; one field `r`, a packed reference; entries are
                                       deleted when they are acknowledged
    PREFIX:{TAG}:epoch:CLUSTER:SHARD   string; the highest epoch that has published to this tag
    PREFIX:brokers                     sorted set; consumer -> last heartbeat, ms of Redis' clock

Nothing expires by itself. The driver never retries (a repeated XADD publishes twice, a repeated
XREADGROUP hides the first reply's entries); callers do, and re-read their own pending entries
after every EventCenterUnavailable. A command in flight is never cancelled.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.signal import reached
from wheel_timer.task import Ref

log: Final = logging.getLogger(__name__)

TAGS: Final = 16
GROUP: Final = "brokers"
SOCKET_TIMEOUT_S: Final = 5.0
# A blocking read's socket waits this much longer than the read itself.
BLOCK_GRACE_S: Final = 3.0
BLOCK_MS_MAX: Final = 2000
# A consumer silent for this long is dead, and its entries are taken over.
SILENCE_MS: Final = 3000
# Longer than any lease: an entry idle for so long belongs to nobody who still works on it.
IDLE_MS: Final = 660_000
# Also the most ids a script gets: Lua unpacks no more than 8,000.
PAGE_ENTRIES: Final = 500

# version, task_id, start_time_ms, moment_ms, published_ms
_REFERENCE: Final = struct.Struct(">B16sqqq")
_VERSION: Final = 1


class Published(NamedTuple):
    """refused_by: the higher epoch that leads, or None. missing: Redis did not know us: lost."""

    refused_by: int | None
    missing: bool


class Depth(NamedTuple):
    """waiting: nobody has read them yet. read: in the hands of brokers."""

    waiting: int
    read: int


def pack(ref: Ref) -> bytes:
    """A reference as it lies in a stream entry; the lane names the biz_type."""
    return _REFERENCE.pack(
        _VERSION, ref.task_id.bytes, ref.start_time_ms, ref.moment_ms, ref.published_ms
    )


def unpack(packed: bytes, biz_type: str, entry_id: bytes, *, taken_over: bool = False) -> Ref:
    """The reference in a stream entry. Raises ValueError for anything else."""
    if len(packed) != _REFERENCE.size or packed[0] != _VERSION:
        raise ValueError("not a reference")
    _, task_id, start_time_ms, moment_ms, published_ms = _REFERENCE.unpack(packed)
    return Ref(
        UUID(bytes=task_id), start_time_ms, moment_ms, published_ms, biz_type, entry_id, taken_over
    )


def _as_read(claimed: Iterable[Any]) -> list[Any]:
    """Claimed entries, of which the driver makes dicts, as a read brings them."""
    return [
        (entry_id, None if fields is None else [b"r", fields.get(b"r")])
        for entry_id, fields in claimed
        if entry_id is not None
    ]


class EventCenter:
    """
    The lanes, as one process sees them.

    consumer: this process' name in the group, new at every start. cluster_id: the database's, so
    that an epoch is compared with epochs of the same database only.
    Every method raises EventCenterUnavailable where Redis cannot be reached or refuses.
    """

    def __init__(
        self, redis_url: str, *, prefix: str, consumer: str, cluster_id: UUID | str
    ) -> None:
        options: dict[str, Any] = {
            "retry": Retry(NoBackoff(), 0),
            "socket_connect_timeout": SOCKET_TIMEOUT_S,
            "protocol": 2,
            "decode_responses": False,
        }
        self._redis: Redis = Redis.from_url(
            redis_url, socket_timeout=SOCKET_TIMEOUT_S, health_check_interval=0, **options
        )
        self._blocking = ConnectionPool.from_url(
            redis_url, socket_timeout=BLOCK_MS_MAX / 1000 + BLOCK_GRACE_S, **options
        )
        self._reader: Connection | None = None
        self._reader_id: int | None = None
        self._prefix = prefix
        self._consumer = consumer
        self._cluster = str(cluster_id)[:8]
        self._grouped: set[str] = set()
        self._biz_types: dict[bytes, str] = {}
        scripts = Path(__file__).with_name("lua")

        def script(name: str) -> Any:
            return self._redis.register_script((scripts / f"{name}.lua").read_text())

        self._publish = script("publish")
        self._acknowledge = script("acknowledge")
        self._hand_back = script("hand_back")
        self._heartbeat = script("heartbeat")
        self._trim = script("trim")
        self._forget_in = script("forget")

    def lane_key(self, biz_type: str) -> str:
        """The stream of a biz_type."""
        tag = zlib.crc32(biz_type.encode()) % TAGS
        return f"{self._prefix}:{{{tag}}}:lane:{biz_type}"

    def _epoch_key(self, tag: str, shard: int) -> str:
        return f"{self._prefix}:{tag}:epoch:{self._cluster}:{shard}"

    async def publish(self, shard: int, epoch: int, refs: Sequence[Ref]) -> Published:
        """
        Put a page of references into their lanes under `epoch`: one script call a tag, in order.

        A page refused for a higher epoch in one tag may have been added in another; publishing it
        again is harmless.
        """
        by_tag: dict[str, dict[str, list[Ref]]] = defaultdict(lambda: defaultdict(list))
        for ref in refs:
            key = self.lane_key(ref.biz_type)
            by_tag[key[len(self._prefix) + 1 : key.index("}") + 1]][key].append(ref)
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for tag, lanes in by_tag.items():
                    keys = [self._epoch_key(tag, shard), *lanes]
                    arguments: list[bytes | int] = [epoch]
                    for index, lane in enumerate(lanes.values(), start=2):
                        for ref in lane:
                            arguments += (index, pack(ref))
                    await self._publish(keys=keys, args=arguments, client=pipe)
                answers = await pipe.execute()
        except (RedisError, OSError) as error:
            raise EventCenterUnavailable(str(error)) from error
        reached("eventcenter.published")
        refused_by = max((answer[0] for answer in answers), default=0)
        return Published(refused_by or None, any(answer[1] for answer in answers))

    async def publish_direct(self, refs: Sequence[Ref]) -> None:
        """Put near tasks' references into their lanes; unfenced, for brokers."""
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for ref in refs:
                    pipe.xadd(self.lane_key(ref.biz_type), {"r": pack(ref)})
                await pipe.execute()
        except (RedisError, OSError) as error:
            raise EventCenterUnavailable(str(error)) from error

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

    async def _decode(
        self, biz_type: str, entries: Iterable[Any], *, taken_over: bool = False
    ) -> list[Ref]:
        """References of raw entries. What is no reference is counted out: acknowledged, logged."""
        refs: list[Ref] = []
        broken: list[bytes] = []
        for entry in entries:
            if entry is None:
                continue
            entry_id, fields = entry
            try:
                # A trimmed entry that is still pending comes without fields.
                refs.append(unpack(fields[1], biz_type, entry_id, taken_over=taken_over))
            except (TypeError, IndexError, ValueError):
                broken.append(entry_id)
        if broken:
            log.warning("%d entries of lane %s hold no reference; dropped", len(broken), biz_type)
            await self._run(
                self._acknowledge(keys=[self.lane_key(biz_type)], args=[GROUP, *broken])
            )
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
                    await self._acknowledge(
                        keys=[self.lane_key(lane)], args=[GROUP, *page], client=pipe
                    )
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

    async def heartbeat(self) -> tuple[int, list[str]]:
        """Say that this consumer lives. Returns how many do, and the names of those that do not."""
        alive, dead = await self._run(
            self._heartbeat(keys=[f"{self._prefix}:brokers"], args=[self._consumer, SILENCE_MS])
        )
        return alive, [name.decode() for name in dead]

    async def leave(self) -> None:
        """This consumer ends in order: it is not one of the silent ones."""
        await self._run(self._redis.zrem(f"{self._prefix}:brokers", self._consumer))

    async def take_over(self, lanes: Sequence[str], dead: Sequence[str]) -> list[Ref]:
        """
        The entries that dead consumers had read and not acknowledged; they are ours now.

        Two brokers doing this at once do not both get one: the second finds it no longer idle.
        A dead consumer with nothing pending in any of these lanes is forgotten.
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
                await self._forget(lanes, name)
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

    async def depths(self, lanes: Sequence[str]) -> dict[str, Depth]:
        """How much lies in these lanes; one that nobody has written to yet holds nothing."""
        if not lanes:
            return {}
        async with self._redis.pipeline(transaction=False) as pipe:
            for lane in lanes:
                pipe.xlen(self.lane_key(lane))
                pipe.xpending(self.lane_key(lane), GROUP)
            # A lane without a group answers with an error of its own.
            answers = await self._run(pipe.execute(raise_on_error=False))
        depths: dict[str, Depth] = {}
        for lane, length, pending in zip(lanes, answers[::2], answers[1::2], strict=True):
            read = pending["pending"] if isinstance(pending, dict) else 0
            depths[lane] = Depth(length - read, read)
        return depths

    async def trim(self, lanes: Sequence[str]) -> None:
        """Drop what was acknowledged and not deleted."""
        for lane in lanes:
            await self._run(self._trim(keys=[self.lane_key(lane)], args=[GROUP]))

    async def ping(self) -> None:
        """Whether Redis answers."""
        await self._run(self._redis.ping())

    async def _run(self, command: Any) -> Any:
        try:
            return await command
        except (RedisError, OSError) as error:
            raise EventCenterUnavailable(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close every connection."""
        await self._drop_reader()
        await self._redis.aclose()
        await self._blocking.disconnect()
