"""
Reads references from the event center into the lanes.

Own pending entries come first, at the start and after every failure: a reply that was lost on the
way left its entries assigned to us, and nothing else would bring them back soon. The lanes pass
over what they hold already.

A lane that is full is left out of the read; the reader is woken when one has room again, and when a
biz_type was added. The blocking read is never cancelled, only unblocked: a command given up in
flight would take its entries with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from wheel_timer import signal
from wheel_timer.backoff import reconnect_delay_s
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.task import Ref

READ_COUNT: Final = 500  # entries of one lane in one read: ~3 ms of parsing
BLOCK_MS: Final = 2_000
UNBLOCK_AGAIN_S: Final = 0.02

logger = logging.getLogger(__name__)


class Reader:
    """
    lanes: all lanes there are; lanes_with_room: those to read for. deliver: takes what was read.
    count: entries of one lane in one read. reads: the lanes of the read under way, if one is.
    """

    def __init__(
        self,
        *,
        event_center: EventCenter,
        lanes: Callable[[], Sequence[str]],
        lanes_with_room: Callable[[], Sequence[str]],
        deliver: Callable[[Sequence[Ref]], None],
        count: Callable[[], int] = lambda: READ_COUNT,
    ) -> None:
        self._event_center = event_center
        self._lanes = lanes
        self._lanes_with_room = lanes_with_room
        self._deliver = deliver
        self._count = count
        self.reads: frozenset[str] = frozenset()
        self._is_stopping = False
        self._must_reread = True
        self._called = asyncio.Event()
        self._is_reading = False
        self._waker: asyncio.Task[None] | None = None
        self._is_connected = False

    def wake(self) -> None:
        """A lane has room again, or was added: read anew."""
        self._called.set()
        if self._is_reading and self._waker is None:
            self._waker = asyncio.create_task(self._unblock())

    def reread(self) -> None:
        """Entries of ours may lie unseen in the pending list: read it again."""
        self._must_reread = True
        self.wake()

    def stop(self) -> None:
        """Read nothing more; `run` returns after the read under way."""
        self._is_stopping = True
        self.wake()

    async def run(self) -> None:
        """Read until stopped."""
        failures = 0
        while not self._is_stopping:
            self._called.clear()
            try:
                await self._read()
                failures = 0
                self._is_connected = True
            except EventCenterUnavailable as error:
                failures += 1
                if self._is_connected or failures == 1:
                    logger.warning("reading from the event center failed: %s", error)
                self._is_connected = False
                self._event_center.reach.failed(error)
                self._must_reread = True
                await self._pause(failures)
            except Exception:
                # Whatever it was, a broker that does not read is of no use.
                logger.exception("reading failed")
                failures += 1
                self._must_reread = True
                await self._pause(failures)
        if self._waker is not None:
            await self._waker

    async def _read(self) -> None:
        if self._must_reread:
            self._must_reread = False
            self._deliver(await self._event_center.read_own(self._lanes()))
        names = self._lanes_with_room()
        if not names:
            await self._called.wait()
            return
        self._is_reading = True
        self.reads = frozenset(names)
        try:
            refs = await self._event_center.read(names, self._count(), BLOCK_MS)
        finally:
            self._is_reading = False
            self.reads = frozenset()
        if refs:
            signal.reached("delivery.read")
            self._deliver(refs)

    async def _unblock(self) -> None:
        """Unblock the read until it returns: the first try may come before the read has begun."""
        try:
            while self._is_reading and self._called.is_set():
                await self._event_center.wake()
                await asyncio.sleep(UNBLOCK_AGAIN_S)
        except EventCenterUnavailable as error:
            logger.debug("the read under way was not unblocked: %s", error)
        finally:
            self._waker = None

    async def _pause(self, failures: int) -> None:
        """Wait for the next try, or for a wake."""
        try:
            async with asyncio.timeout(reconnect_delay_s(failures)):
                await self._called.wait()
        except TimeoutError:
            pass
