"""demo's last word, from what was counted."""

from __future__ import annotations

import pytest
from rich.console import Console

from wheel_timer.cli.auditing import Audited, from_answer
from wheel_timer.cli.tally import Tally
from wheel_timer.cli.verdict import as_object, as_view, holds
from wheel_timer.echo import Arrival

START = "2026-12-01T09:00:00.000Z"
START_MS = 1_796_115_600_000.0
GOOD = [
    Audited("lost", "violation", True, [], []),
    Audited("lateness", "report", True, ["biz_type"], [["demo"]]),
]
BROKEN = [Audited("lost", "violation", False, ["task_id"], [["a"], ["b"]])]


@pytest.fixture
def tally() -> Tally:
    """Four timers that arrived 1, 2, 3 and 30 ms late."""
    counted = Tally()
    for number, late_ms in enumerate((1.0, 2.0, 3.0, 30.0)):
        headers = {"webhook-id": str(number), "wheel-timer-start-time": START}
        counted.expect(str(number))
        counted.count(Arrival("POST", "/", headers, b"", START_MS + late_ms))
    return counted


def shown(tally: Tally, audits: list[Audited]) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(as_view(tally, audits))
    return capture.get()


def test_all_well(tally: Tally) -> None:
    text = shown(tally, GOOD)
    assert holds(tally, GOOD)
    for words in ("2.0 ms", "30.0 ms", "20-50 ms", "4 of 4 timers arrived", "none early"):
        assert words in text
    assert "✗" not in text
    assert "the audits hold: lost\n" in "".join(f"{line.rstrip()}\n" for line in text.split("\n"))


def test_a_missing_timer_and_a_violation_are_told(tally: Tally) -> None:
    tally.expect("never")
    text = shown(tally, BROKEN)
    assert not holds(tally, BROKEN)
    assert "✗ 4 of 5 timers arrived" in text
    assert "lost: 2 rows" in text


def test_nothing_arrived_at_all() -> None:
    tally = Tally()
    tally.expect("a")
    assert "0 of 1 timers arrived" in shown(tally, GOOD)
    assert as_object(tally, GOOD)["lateness_ms"] == {}


def test_the_figures_for_json(tally: Tally) -> None:
    assert as_object(tally, GOOD) == {
        "tasks": 4,
        "arrived": 4,
        "missing": 0,
        "early": 0,
        "duplicates": 0,
        "lateness_ms": {"p50": 2.0, "p90": 30.0, "p99": 30.0, "p99.9": 30.0, "max": 30.0},
        "audits": {"lost": True, "lateness": True},
        "holds": True,
    }


def test_the_servers_answer_reads_as_the_databases() -> None:
    item = {"name": "lost", "kind": "violation", "holds": False, "columns": ["a"], "rows": [["1"]]}
    assert from_answer({"holds": False, "items": [item]})[0].told == "1 row"
