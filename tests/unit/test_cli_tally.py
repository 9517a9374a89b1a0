"""What demo counts, and its verdict."""

from __future__ import annotations

from wheel_timer.cli.tally import Tally, percentile
from wheel_timer.echo import Arrival

START = "2026-12-01T09:00:00.000Z"
START_MS = 1_796_115_600_000.0


def arrival(task_id: str, late_ms: float = 1.0) -> Arrival:
    headers = {"webhook-id": task_id, "wheel-timer-start-time": START}
    return Arrival("POST", "/", headers, b"", START_MS + late_ms)


def tally_of(*arrivals: Arrival, expected: tuple[str, ...] = ("a", "b")) -> Tally:
    tally = Tally()
    for task_id in expected:
        tally.expect(task_id)
    for one in arrivals:
        tally.count(one)
    return tally


def test_each_once_and_none_early_is_exact() -> None:
    tally = tally_of(arrival("a"), arrival("b", 3.0))
    assert tally.is_exact
    assert tally.lateness_ms == [1.0, 3.0]


def test_a_missing_one_is_not_exact() -> None:
    tally = tally_of(arrival("a"))
    assert (tally.missing, tally.is_exact) == (1, False)


def test_a_duplicate_counts_its_first_lateness_only() -> None:
    tally = tally_of(arrival("a"), arrival("b"), arrival("a", 9.0))
    assert (tally.arrived, tally.duplicates, tally.is_exact) == (2, 1, False)
    assert tally.lateness_ms == [1.0, 1.0]


def test_an_early_one_is_not_exact() -> None:
    tally = tally_of(arrival("a"), arrival("b", -0.1))
    assert (tally.early, tally.is_exact) == (1, False)


def test_one_that_nobody_submitted_is_not_exact() -> None:
    tally = tally_of(arrival("a"), arrival("b"), arrival("c"))
    assert (tally.unknown, tally.is_exact) == (1, False)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    ordered = [float(n) for n in range(1, 101)]
    assert [percentile(ordered, p) for p in (50, 90, 99, 99.9, 100)] == [50, 90, 99, 100, 100]
    assert percentile([7.0], 50) == 7.0
