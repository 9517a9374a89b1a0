"""wheel_timer/jump.py: for how long a clock that was set back may be put right unasked."""

from __future__ import annotations

from typing import Final

import pytest

from wheel_timer.jump import BACK_KEPT_S, NONE_ACCEPTED, JumpGuard

MAX_MS: Final = 60_000
DAY_S: Final = BACK_KEPT_S


def is_followed(guard: JumpGuard, ahead_ms: float, at_s: float) -> bool:
    """Whether a jump is, where the machine's clock agrees with what it leads to."""
    return guard.follows(ahead_ms, NONE_ACCEPTED, is_first=False, off_machine_ms=0, at_s=at_s)


@pytest.mark.parametrize(
    ("backs", "ahead_ms", "follows"),
    [
        # (when, by how much) it was set back; now is a day, less a second, after 0.
        ([(0, 90_000)], 150_000, True),
        ([(0, 90_000)], 150_001, False),
        ([(0, 50_000), (DAY_S - 5, 90_000)], 200_000, True),
        ([(-2, 50_000), (DAY_S - 5, 90_000)], 150_000, True),
        ([(-2, 50_000), (DAY_S - 5, 90_000)], 150_001, False),
        # A time service that sets it back by a second each hour, for a year.
        ([(-hour * 3_600, 1_000) for hour in range(8_760, 0, -1)], 60_000 + 24_000, False),
    ],
)
def test_what_was_set_back_long_ago_is_no_leave_to_jump(
    backs: list[tuple[float, float]], ahead_ms: float, follows: bool
) -> None:
    guard = JumpGuard(MAX_MS)
    for at_s, by_ms in backs:
        guard.set_back(by_ms, at_s)
    assert is_followed(guard, ahead_ms, DAY_S - 1) is follows


def test_what_was_put_right_is_not_put_right_again() -> None:
    guard = JumpGuard(MAX_MS)
    guard.set_back(100_000, 0)
    guard.set_back(100_000, 1)
    # Half of what was set back: the later half.
    assert is_followed(guard, 150_000, 2)
    assert not is_followed(guard, 110_001, 3)
    assert is_followed(guard, 110_000, 4)
    assert not is_followed(guard, MAX_MS + 1, 5)
    assert is_followed(guard, MAX_MS, 6)
