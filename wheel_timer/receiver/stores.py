"""
Which callbacks were handled: an id is new, then busy, then done; or, when its handler failed, new.

    Memory()      this process alone; for one process, or where a repeat does no harm
    Redis(url)    shared by all processes
    a callable    in your own transaction: takes the id, returns a context manager (for an async
                  handler an async one) that yields something true where the id is new. The handler
                  runs inside it, so the mark is committed with the handler's work, or not at all:

        @contextmanager
        def once(webhook_id):
            with engine.begin() as connection:          # handlers find it as timer.transaction
                new = connection.execute(INSERT_ON_CONFLICT_DO_NOTHING, {"id": webhook_id})
                yield connection if new.rowcount else None

    Only the last makes the work and its mark one: with the others a process that dies between the
    two leaves an id that is handled again.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Protocol

DAY_S: Final = 86_400.0
IDS_MAX: Final = 100_000


class Seen(enum.Enum):
    """What a store knows of an id. NEW: it was, and it is the asker's now."""

    NEW = enum.auto()
    BUSY = enum.auto()
    DONE = enum.auto()


class Store(Protocol):
    """
    blocks: whether a call may wait for a network. token: names one handling of an id, so that one
    which took too long does not end its successor's.
    """

    blocks: bool

    def begin(self, webhook_id: str, token: str) -> Seen:
        """Take an id, if it is new."""

    def finish(self, webhook_id: str, token: str) -> None:
        """It was handled."""

    def give_up(self, webhook_id: str, token: str) -> None:
        """It was not: the next copy is to be handled."""


Transaction = Callable[[str], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]


class Memory:
    """
    Ids in this process, each kept for keep_s after it was done, ids_max at most: beyond that the
    oldest done ones are forgotten. Safe with threads.
    """

    blocks = False

    def __init__(self, *, keep_s: float = DAY_S, ids_max: int = IDS_MAX) -> None:
        self._keep_s = keep_s
        self._ids_max = ids_max
        self._busy: set[str] = set()
        self._done_until: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, webhook_id: str, token: str) -> Seen:  # noqa: ARG002 - one process, one handling
        """Take an id, if it is new."""
        with self._lock:
            if webhook_id in self._busy:
                return Seen.BUSY
            if self._done_until.get(webhook_id, 0.0) > time.monotonic():
                return Seen.DONE
            self._busy.add(webhook_id)
            return Seen.NEW

    def finish(self, webhook_id: str, token: str) -> None:  # noqa: ARG002
        """It was handled."""
        now_s = time.monotonic()
        with self._lock:
            self._busy.discard(webhook_id)
            self._done_until.pop(webhook_id, None)
            self._done_until[webhook_id] = now_s + self._keep_s
            while len(self._done_until) > self._ids_max:
                self._done_until.popitem(last=False)
            while self._done_until and next(iter(self._done_until.values())) <= now_s:
                self._done_until.popitem(last=False)

    def give_up(self, webhook_id: str, token: str) -> None:  # noqa: ARG002
        """It was not handled."""
        with self._lock:
            self._busy.discard(webhook_id)


class Redis:
    """
    Ids in Redis, under PREFIX and the id: DONE for keep_s, or the token of who handles it.

    url: redis://, rediss:// or unix://. busy_s: after so long the process that handles an id is
    taken for dead, and the next copy is handled; longer than any handler takes. Needs the package
    redis.
    """

    blocks = True
    DONE: Final = b"done"
    # Deletes a mark only where it is still the asker's.
    _GIVE_UP: Final = (
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end "
        "return 0"
    )

    def __init__(
        self,
        url: str,
        *,
        keep_s: float = 7 * DAY_S,
        busy_s: float = 60.0,
        prefix: str = "wheel-timer:seen:",
    ) -> None:
        import redis

        self._redis = redis.Redis.from_url(url, socket_timeout=5.0, socket_connect_timeout=2.0)
        self._keep_ms = round(keep_s * 1000)
        self._busy_ms = round(busy_s * 1000)
        self._prefix = prefix

    def begin(self, webhook_id: str, token: str) -> Seen:
        """Take an id, if it is new. Raises redis.RedisError; then nothing is taken for handled."""
        key = self._prefix + webhook_id
        if self._redis.set(key, token, nx=True, px=self._busy_ms):
            return Seen.NEW
        held = self._redis.get(key)
        # The driver sends a command again where its reply was lost: the mark may be our own.
        if held == token.encode():
            return Seen.NEW
        # Gone between the two commands: the next copy will find it so.
        return Seen.DONE if held == self.DONE else Seen.BUSY

    def finish(self, webhook_id: str, token: str) -> None:  # noqa: ARG002 - done is done, whoever did it
        """It was handled."""
        self._redis.set(self._prefix + webhook_id, self.DONE, px=self._keep_ms)

    def give_up(self, webhook_id: str, token: str) -> None:
        """It was not handled."""
        self._redis.eval(self._GIVE_UP, 1, self._prefix + webhook_id, token)

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()
