"""Classes of lateness, and percentiles of them."""

from __future__ import annotations

import pytest

from wheel_timer.lateness import ENDS_MS, class_of, percentile_ms, summed


def test_a_lateness_lies_in_the_class_that_ends_at_or_after_it() -> None:
    for lateness_ms in (0.0, 0.3, 1.0, 1.01, 9.9, 10.0, 999.0, 60_000.0):
        place = class_of(lateness_ms)
        assert ENDS_MS[place] >= lateness_ms
        assert place == 0 or ENDS_MS[place - 1] < lateness_ms
    assert class_of(10 * ENDS_MS[-1]) == len(ENDS_MS)


@pytest.mark.parametrize(
    ("counts", "share", "place"),
    [({0: 98, 20: 2}, 0.5, 0), ({0: 98, 20: 2}, 0.99, 20), ({3: 1}, 1.0, 3), ({33: 5}, 0.5, 32)],
)
def test_a_percentile_is_the_end_of_its_class(
    counts: dict[int, int], share: float, place: int
) -> None:
    assert percentile_ms(counts, share) == ENDS_MS[place]


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile_ms({}, 0.5) is None
    assert summed([{1: 2}, {}, {1: 1, 2: 5}]) == {1: 3, 2: 5}
