"""What `demo` says at its end: how late the timers came, whether all did, what the audits found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.auditing import Audited
from wheel_timer.cli.tally import PERCENTILES, Tally, percentile

_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 1_000)
_BAR: Final = 36


def holds(tally: Tally, audits: Sequence[Audited]) -> bool:
    """Every timer arrived once, none early, and every audit holds."""
    return tally.is_exact and all(audit.holds for audit in audits)


def as_object(tally: Tally, audits: Sequence[Audited]) -> dict[str, Any]:
    """The figures for --json; lateness in ms."""
    ordered = sorted(tally.lateness_ms)
    return {
        "tasks": tally.expected,
        "arrived": tally.arrived,
        "missing": tally.missing,
        "early": tally.early,
        "duplicates": tally.duplicates,
        "lateness_ms": {
            _name(percent): round(percentile(ordered, percent), 3)
            for percent in PERCENTILES
            if ordered
        },
        "audits": {audit.name: audit.holds for audit in audits},
        "holds": holds(tally, audits),
    }


def as_view(tally: Tally, audits: Sequence[Audited]) -> RenderableType:
    """The same for people."""
    ordered = sorted(tally.lateness_ms)
    parts: list[RenderableType] = []
    if ordered:
        parts += [Text("How late they came", style="bold"), _percentiles(ordered), _bars(ordered)]
    parts += [Text(), *_checks(tally, audits), Text()]
    if holds(tally, audits):
        parts.append(Text("Next: wheel-timer up\n", style="dim"))
    return Padding(Group(*parts), (1, 0, 0, 2))


def _percentiles(ordered: Sequence[float]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for percent in PERCENTILES:
        table.add_column(_name(percent), justify="right")
    table.add_row(*(f"{percentile(ordered, percent):.1f} ms" for percent in PERCENTILES))
    return table


def _bars(ordered: Sequence[float]) -> Table:
    """How many came within each span; spans that nobody fell into at the end are left out."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    counts = list(_counts(ordered))
    most = max(count for _, count in counts)
    for name, count in counts:
        bar = "█" * max(round(count / most * _BAR), 1) if count else ""
        table.add_row(Text(name, "dim"), Text(bar, "green"), Text(f"{count:,}" if count else ""))
    return table


def _counts(ordered: Sequence[float]) -> Iterator[tuple[str, int]]:
    below = 0.0
    for limit in _BUCKETS_MS:
        yield f"{below:g}-{limit} ms", sum(below <= late < limit for late in ordered)
        if ordered[-1] < limit:
            return
        below = limit
    yield f"above {below:g} ms", sum(late >= below for late in ordered)


def _checks(tally: Tally, audits: Sequence[Audited]) -> Iterator[Text]:
    yield _check(not tally.missing, f"{tally.arrived:,} of {tally.expected:,} timers arrived")
    yield _check(not tally.early, _number(tally.early, "early"))
    yield _check(not tally.duplicates, _number(tally.duplicates, "duplicates"))
    if tally.unknown:
        yield _check(False, f"{tally.unknown:,} arrived that nobody had submitted")
    broken = [audit for audit in audits if not audit.holds]
    names = ", ".join(audit.name for audit in audits if audit.kind == "violation")
    yield _check(not broken, f"the audits hold: {names}" if not broken else "audits found:")
    for audit in broken:
        yield Text(f"    {audit.name}: {audit.told}", style="red")


def _check(is_good: bool, text: str) -> Text:
    mark = Text("✓ ", "bold green") if is_good else Text("✗ ", "bold red")
    return mark.append(text, "default" if is_good else "red")


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}" if number else f"no {what}" if what != "early" else "none early"


def _name(percent: float) -> str:
    return "max" if percent == 100 else f"p{percent:g}"
