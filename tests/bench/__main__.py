"""
`python -m tests.bench [NAME...] [--list] [--json] [--strict]`: measure the figures of the README.

Each figure starts the product anew, in a temporary directory, with a receiver in a process of its
own and the load from this process, all on this machine. --strict exits 1 where a figure is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import msgspec
import uvloop

from tests.bench import (
    audits,
    away,
    catchup,
    changes,
    console,
    drain,
    idle,
    isolation,
    limits,
    operation,
    outage,
    precision,
    prompt,
    pull,
    reap,
    schedules,
    snapshot,
    submits,
)
from tests.bench.figure import Figure, Row
from tests.bench.machine import Others, machine
from tests.bench.product import Product

FIGURES: Final = (
    Figure("drain", "10,000 timers due at one instant", drain.measure),
    Figure("precision", "200/s at random milliseconds", precision.measure),
    Figure("far", "the same beside 1,000,000 far timers", precision.measure_with_far),
    Figure("prompt", "delay 0, one at a time", prompt.measure),
    Figure("submit", "single submits over 64 connections", submits.measure_singles),
    Figure("batch", "batch submits, JSON and NDJSON", submits.measure_batches),
    Figure("change", "single cancels and reschedules over 64 connections", changes.measure_singles),
    Figure("race", "20,000 cancels within 5 ms of their moments or claims", changes.measure_races),
    Figure("pull", "submit, reserve and finish by 1 to 50 workers", pull.measure),
    Figure("operation", "100,000 timers cancelled by one operation", operation.measure),
    Figure("schedules", "an hour of 10,000 schedules", schedules.measure),
    Figure("reap", "500,000 expired timers of one partition go", reap.measure),
    Figure("audits", "every audit on 10,000,000 tasks", audits.measure),
    Figure("console", "every page of the console on 10,000,000 tasks", console.measure),
    Figure("idle", "nothing due", idle.measure),
    Figure("rate", "1,000 due at once at 50/s", limits.measure_rate),
    Figure("limits", "drain with all limits on, and without", limits.measure_drain),
    Figure("isolation", "beside a hanging endpoint", isolation.measure_hanging),
    Figure("hostile", "beside four other hostile endpoints", isolation.measure_hostile),
    Figure("redis_away", "200/s while Redis is frozen", away.measure_away),
    Figure("window", "1,000,000 due for a biz_type at 100/s", away.measure_window),
    Figure("outage", "an endpoint down for 3 h, a pause of 10,000", outage.measure),
    Figure("snapshot", "300/s beside an open transaction", snapshot.measure),
    Figure("catchup", "an hour of downtime, a day of empty slots", catchup.measure),
)


class Report(msgspec.Struct):
    """A run. others: by figure, the cores that everything else on the machine used meanwhile."""

    machine: str
    rows: list[Row]
    others: dict[str, float]


async def _run(figures: Sequence[Figure]) -> Report:
    async with Product() as product:
        report = Report(machine(*await product.versions()), [], {})
    for figure in figures:
        print(f"{figure.name}: {figure.what}", file=sys.stderr, flush=True)
        others = Others()
        report.rows += await figure.measure()
        report.others[figure.name] = others.cores()
    return report


def _print(report: Report) -> None:
    lines = [("figure", "bound", "measured", "ok")]
    lines += [(r.figure, r.bound, r.measured, "yes" if r.ok else "NO") for r in report.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    print(report.machine, end="\n\n")
    for line in lines:
        print(" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    told = ", ".join(f"{name} {cores:.1f}" for name, cores in report.others.items())
    print(f"\ncores used meanwhile by everything else on the machine: {told}")


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures; all where none is named")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--json", action="store_true", help="one object with all numbers")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a figure is missed")
    options = parser.parse_args()
    known = {figure.name: figure for figure in FIGURES}
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no figure {unknown[0]!r}; there are: {', '.join(known)}")
    if options.list:
        for figure in FIGURES:
            print(f"{figure.name:<10} {figure.what}")
        return 0
    chosen = [known[name] for name in options.names] or list(FIGURES)
    report = uvloop.run(_run(chosen))
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        _print(report)
    return 1 if options.strict and not all(row.ok for row in report.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
