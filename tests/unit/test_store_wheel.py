"""How far a shard's due hand is behind."""

from __future__ import annotations

import pytest

from wheel_timer.store.wheel import Shard


def shard(*, leader: str | None = "d1", lease: int = 200, closed: int = 90, current: int) -> Shard:
    return Shard(0, leader, 1, lease, closed, current, 0, 0, 100)


@pytest.mark.parametrize(
    ("subject", "lag_ms"),
    [
        (shard(current=90), 0),  # idle: nothing was closed since, and nothing is due
        (shard(closed=150, current=150), 0),  # one look-ahead in front of the clock
        (shard(closed=95, current=80), 15),
        (shard(closed=150, current=80), 20),
        (shard(lease=50, current=90), 10),  # nobody moves it: all the time that has passed
        (shard(leader=None, current=90), 10),
    ],
)
def test_the_lag_of_a_hand(subject: Shard, lag_ms: int) -> None:
    assert subject.lag_ms == lag_ms
