"""
What every command to the event center shares: the connection, the keys, the form of an entry.

Keys, with PREFIX the setting REDIS_PREFIX and TAG the lane's hash tag, 0 to 15, so that a cluster
can spread the lanes:

    PREFIX:{TAG}:lane:BIZ_TYPE         stream; one field `r`, a packed reference; entries are
                                       deleted when they are acknowledged
    PREFIX:{TAG}:epoch:CLUSTER:SHARD   string; the highest epoch that has published to this tag
    PREFIX:seen:CLUSTER                hash; shard -> run id of the server that its leader
                                       has filled (losses.py)
    PREFIX:{TAG}:done:BIZ_TYPE         string; how many entries were ever acknowledged; gone after a
                                       day without one
    PREFIX:{TAG}:line:BIZ_TYPE         string; there while tasks wait in Postgres for room in the
                                       lane; gone three seconds after nobody says so
    PREFIX:{TAG}:rate:BIZ_TYPE         hash; tokens, at: the bucket of its callbacks (buckets.py);
                                       gone after a day without a call
    PREFIX:{TAG}:submits:BIZ_TYPE      the same of its submits
    PREFIX:{TAG}:waits:BIZ_TYPE        hash; consumer -> why it holds back what is due (waits.py);
                                       gone three seconds after nobody does
    PREFIX:{TAG}:works:BIZ_TYPE        string; when a broker's breaker closed, ms, database clock;
                                       gone after ten seconds
    PREFIX:late:MINUTE                 hash; class -> first calls of that minute (lateness.py); gone
                                       after two hours
    PREFIX:{TAG}:late:BIZ_TYPE:FIVE    the same of one biz_type, by five minutes
    PREFIX:probe                       string; there for ten seconds after Redis was away
    PREFIX:brokers                     sorted set; consumer -> last heartbeat, ms of Redis' clock
    PREFIX:servers                     the same of those who read for workers (broker/pull.py)

Nothing else expires by itself. Driver errors become EventCenterUnavailable here, and in the callers
of `connection`.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.task import Ref

log: Final = logging.getLogger(__name__)

TAGS: Final = 16
GROUP: Final = "brokers"
PROBE_KEPT_MS: Final = 10_000
# Who is silent for longer counts as away, and work goes on without it. The due hand is a second
# ahead, so nothing gets late by more than the rest.
SOCKET_TIMEOUT_S: Final = 1.5
# Of one process, beside the reader's. Who finds none free waits: thousands of submits at once that
# ask for tokens must not take Redis' last connection.
CONNECTIONS_MAX: Final = 64
# Also the most ids a script gets: Lua unpacks no more than 8,000.
PAGE_ENTRIES: Final = 500

# version, task_id, start_time_ms, moment_ms, published_ms
_REFERENCE: Final = struct.Struct(">B16sqqq")
_VERSION: Final = 1


def driver_options() -> dict[str, Any]:
    """No retries of the driver's own: a repeated XADD publishes twice."""
    return {
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "protocol": 2,
        "decode_responses": False,
    }


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


class Call(NamedTuple):
    """One call of a script."""

    keys: Sequence[str]
    arguments: Sequence[bytes | str | int]


class RedisFacts(NamedTuple):
    """As Redis says it. memory_bytes_max: 0 for no limit. keeps_aof: it writes an AOF."""

    version: str
    policy: str
    memory_bytes: int
    memory_bytes_max: int
    keeps_aof: bool
    is_replica: bool


class Streams:
    """One process' way to Redis. consumer: its name in the group, new at every start."""

    def __init__(self, redis_url: str, *, prefix: str, consumer: str) -> None:
        self._redis: Redis = Redis.from_pool(
            BlockingConnectionPool.from_url(
                redis_url,
                max_connections=CONNECTIONS_MAX,
                timeout=SOCKET_TIMEOUT_S,
                socket_timeout=SOCKET_TIMEOUT_S,
                health_check_interval=0,
                **driver_options(),
            )
        )
        self._prefix = prefix
        self._consumer = consumer
        self._acknowledge = self._script("acknowledge")

    def _script(self, name: str) -> Any:
        text = Path(__file__).with_name("lua").joinpath(f"{name}.lua").read_text(encoding="utf-8")
        return self._redis.register_script(text)

    def lane_key(self, biz_type: str) -> str:
        """The stream of a biz_type."""
        tag = zlib.crc32(biz_type.encode()) % TAGS
        return f"{self._prefix}:{{{tag}}}:lane:{biz_type}"

    def beside(self, kind: str, biz_type: str) -> str:
        """The key of this kind that belongs to a lane, under its hash tag."""
        lane = self.lane_key(biz_type)
        return f"{lane[: lane.index('}') + 1]}:{kind}:{biz_type}"

    async def _call_all(self, script: Any, calls: Sequence[Call]) -> list[Any]:
        """
        Call a script several times in one round trip; the answers, each that of Redis or its error.

        Raises EventCenterUnavailable where nothing answers.
        """
        answers: list[Any] = [NoScriptError()] * len(calls)
        todo = list(range(len(calls)))
        for is_known in (True, False):
            if not is_known:
                await self._run(self._redis.script_load(script.script))
            async with self._redis.pipeline(transaction=False) as pipe:
                for at in todo:
                    keys, arguments = calls[at]
                    pipe.evalsha(script.sha, len(keys), *keys, *arguments)
                for at, answer in zip(
                    todo, await self._run(pipe.execute(raise_on_error=False)), strict=True
                ):
                    answers[at] = answer
            todo = [at for at in todo if isinstance(answers[at], NoScriptError)]
            if not todo:
                break
        return answers

    async def probe(self) -> None:
        """Whether Redis takes writes; it may answer and refuse them (full, a replica, loading)."""
        await self._run(self._redis.set(f"{self._prefix}:probe", "1", px=PROBE_KEPT_MS))

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
                self._acknowledge(
                    keys=[self.lane_key(biz_type), self.beside("done", biz_type)],
                    args=[GROUP, *broken],
                )
            )
        return refs

    async def ping(self) -> None:
        """Whether Redis answers."""
        await self._run(self._redis.ping())

    async def facts(self) -> RedisFacts:
        """What of this server wheel-timer depends on."""
        found = await self._run(self._redis.info())
        return RedisFacts(
            version=str(found.get("redis_version", "0")),
            policy=str(found.get("maxmemory_policy", "")),
            memory_bytes=int(found.get("used_memory", 0)),
            memory_bytes_max=int(found.get("maxmemory", 0)),
            keeps_aof=bool(found.get("aof_enabled", 0)),
            is_replica=found.get("role") != "master",
        )

    async def _run(self, command: Any) -> Any:
        try:
            return await command
        except (RedisError, OSError) as error:
            raise EventCenterUnavailable(str(error) or type(error).__name__) from error
