"""Several shards among several daemons: shared out evenly, each led by one, none left alone."""

from __future__ import annotations

import asyncio
import signal as signals
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest
import pytest_asyncio

from daemon.app import Daemon
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions, until
from wheel_timer import heartbeat
from wheel_timer.database import Database
from wheel_timer.process import Stop
from wheel_timer.settings import Settings
from wheel_timer.store.migrate import migrate
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask
from wheel_timer.wheel import new_task_id

SHARDS: Final = 4
LEADERS: Final = """
SELECT coalesce(array_agg(leader ORDER BY shard), '{}') FROM timer_pointer
WHERE lease_until > wheel_now_ms()
"""


class Running:
    """A daemon in the test's own loop."""

    def __init__(self, settings: Settings) -> None:
        self.stopping = Stop()
        self._task = asyncio.create_task(Daemon(settings).run(self.stopping))

    async def stop(self) -> None:
        self.stopping.signalled(signals.SIGTERM)
        await self._task


NewDaemon = Callable[[], Running]


@pytest_asyncio.fixture
async def new_daemon(
    database_url: str, redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NewDaemon]:
    """`new_daemon()`: one more daemon on four shards, that hears of the others soon."""
    await asyncio.to_thread(migrate, database_url, "public", SHARDS)
    monkeypatch.setattr(heartbeat, "BEAT_EACH_S", 0.1)
    given: dict[str, Any] = {
        "database_url": database_url,
        "redis_url": redis_url,
        "redis_prefix": redis_prefix,
        "shards": SHARDS,
    }
    started: list[Running] = []

    def start() -> Running:
        started.append(Running(Settings.load(given, None, {})))
        return started[-1]

    yield start
    for daemon in started:
        await daemon.stop()


async def until_shared(sessions: Sessions, *shares: int) -> None:
    """Return as soon as all shards are led, by daemons that lead so many each."""

    async def is_so() -> bool:
        leaders: list[str] = await sessions.value(LEADERS)
        return sorted(Counter(leaders).values()) == sorted(shares)

    assert sum(shares) == SHARDS
    await until(is_so)


@pytest.mark.timing
async def test_shards_are_shared_out_and_taken_over(
    new_daemon: NewDaemon,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    new_daemon()
    await until_shared(sessions, 4)
    second = new_daemon()
    await until_shared(sessions, 2, 2)
    # A task of each shard, published by whoever leads it.
    start_ms = clock.now_ms() + 1_700
    for shard in range(SHARDS):
        await submit(db, shard, [NewTask(new_task_id(start_ms, shard), start_ms, "orders")])
    await second.stop()
    await until_shared(sessions, 4)

    async def all_published() -> bool:
        return len(set(await lanes.ids())) == SHARDS

    await until(all_published)
    await audits_hold()
