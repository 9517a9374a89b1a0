"""What hand_lag_seconds says of a hand: how long something waits, and nothing of rest."""

from __future__ import annotations

import pytest

from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_reaping import DAY_MS, left, settle
from tests.fix_sessions import Sessions
from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.store.submit import submit


@pytest.fixture
def lags(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every lag that the due hand reports."""
    reported: list[float] = []
    monkeypatch.setattr(metrics, "hand_lag", lambda shard, hand, lag_s: reported.append(lag_s))
    return reported


async def test_a_hand_at_rest_has_no_lag(
    hands: Hands, clock: DatabaseClock, lags: list[float]
) -> None:
    clock.freeze()
    await hands.tick()
    stood_ms = hands.due.current_ms
    clock.advance(30_000)
    await hands.tick()
    assert hands.due.current_ms == stood_ms, "nothing was due: it rests"
    assert lags == [0, 0]


async def test_a_hand_that_cannot_pass_the_fence_lags(
    hands: Hands, clock: DatabaseClock, db: Database, sessions: Sessions, lags: list[float]
) -> None:
    now_ms = clock.freeze()
    await hands.tick()
    await submit(db, 0, [task_at(now_ms + 4_000)], lookahead_ms=1_000)
    writer = await sessions.open()
    async with writer.transaction():
        await writer.execute("SELECT wheel_fence_v1(CAST(0 AS smallint))")
        clock.advance(4_500)
        await hands.tick()
        behind_s = (clock.now_ms() - hands.due.current_ms) / 1000
        assert lags[-1] == pytest.approx(behind_s, abs=0.1)
        assert behind_s > 3
    await hands.tick()
    assert lags[-1] == 0


async def test_the_reap_hand_tells_its_lag_at_every_step_of_a_round(
    hands: Hands, clock: DatabaseClock, db: Database, sessions: Sessions, lags: list[float]
) -> None:
    task = task_at(clock.freeze())
    await submit(db, 0, [task])
    await settle(db, [task], retention_ms=DAY_MS)
    clock.advance(2 * DAY_MS)
    await hands.clock.measure()
    while (await left(sessions))[0]:
        await hands.reap.tick()
    # It was looked at, and may wait for a tenth of its retention; a round is not over by then.
    assert lags[-1] == 0.9 * DAY_MS / 1000
    for _ in range(3):
        await hands.reap.tick()
    assert lags[-1] == 0
