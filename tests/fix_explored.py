"""Tells at the end of a run how many states were explored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.model.checker import Found

_PROPERTY = "states explored: "


@pytest.fixture
def explored(record_property: Callable[[str, object], None]) -> Callable[[str, Found], None]:
    """Count the states of one search, under a heading."""

    def count(heading: str, found: Found) -> None:
        # With its report it comes back from whatever process ran the test.
        record_property(f"{_PROPERTY}{heading}", found.states)

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line a heading, and the total."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, states in report.user_properties:
                if name.startswith(_PROPERTY):
                    counts[name.removeprefix(_PROPERTY)].append(states)
    if counts:
        terminalreporter.section("states of the model explored")
        for heading, explored in counts.items():
            line = f"{sum(explored):>9,}  {heading} ({len(explored)} searches)"
            terminalreporter.write_line(line)
        total = sum(sum(explored) for explored in counts.values())
        terminalreporter.write_line(f"{total:>9,}  in all")
