"""Tells at the end of a run how many states were explored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.checker import Found

_EXPLORED = pytest.StashKey[dict[str, list[int]]]()


@pytest.fixture
def explored(request: pytest.FixtureRequest) -> Callable[[str, Found], None]:
    """Count the states of one search, under a heading."""

    def count(heading: str, found: Found) -> None:
        counts = request.config.stash.setdefault(_EXPLORED, {})
        counts.setdefault(heading, []).append(found.states)

    return count


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """One line a heading, and the total."""
    counts = config.stash.get(_EXPLORED, {})
    if counts:
        terminalreporter.section("states of the model explored")
        for heading, states in counts.items():
            terminalreporter.write_line(f"{sum(states):>9,}  {heading} ({len(states)} searches)")
        total = sum(sum(states) for states in counts.values())
        terminalreporter.write_line(f"{total:>9,}  in all")
