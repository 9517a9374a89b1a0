"""
`python -m tests.chaos [NAME...] [--list] [--seed S] [--minutes N]`: break it, and account for all.

Each case starts servers, daemons and brokers of its own, loads them through the API with unique
ids at fixed times, breaks something, drains, and compares what was submitted, what was called and
what the database says. Exits 1 on any loss, early call, contradiction, broken bound or audit, and
where lateness did not recover in time. --minutes: one storm of random faults for half of the time,
cases drawn by the seed for the rest; all of it, or none, where the names say so.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import uvloop

from tests.chaos import broker, clock, disk, leader, network, postgres, redis, resources, storm
from tests.chaos.case import Case
from tests.chaos.run import Result, run, slowness
from tests.chaos.servers import Template
from tests.fault.harness import Nursery
from tests.fix_postgres import MEMORY, MEMORY_BYTES_MIN

CASES: Final = (
    *leader.CASES,
    *broker.CASES,
    *postgres.CASES,
    *redis.CASES,
    *network.CASES,
    *clock.CASES,
    *resources.CASES,
    *disk.CASES,
    *storm.CASES,
)
STORM: Final = storm.CASES[0].name
HEAD: Final = (
    f"{'case':<24} {'tasks':>6} {'lost':>5} {'early':>5} {'twice':>5} {'(max)':>6}"
    f" {'p99 before':>10} {'after ms':>9} {'recovery s':>10} {'last s':>7}  verdict"
)


def _row(result: Result) -> str:
    found = result.account
    return (
        f"{result.case.name:<24} {found.tasks:>6} {len(found.lost):>5} {len(found.early):>5}"
        f" {found.duplicates:>5} {f'({found.duplicates_max})':>6} {_ms(found.before_ms):>10}"
        f" {_ms(found.after_ms):>9} {found.recovery_s:>10.1f} {found.last_s:>7.1f}"
        f"  {result.verdict}"
    )


def _minutes(case: Case) -> str:
    """A storm is the same again if it is as long."""
    return f" --minutes {storm.minutes_of(case):g}" if case.name == STORM else ""


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _chosen(cases: Sequence[Case], seed: int, minutes: float | None) -> Iterator[tuple[Case, int]]:
    """Each case once; or for so long, half of it a storm, and the rest some at random, each with a
    seed of its own."""
    draw = random.Random(seed)
    if minutes is None:
        yield from ((case, seed) for case in cases)
        return
    end_s = time.monotonic() + 60 * minutes
    others = [case for case in cases if case.name != STORM]
    if len(others) < len(cases):
        yield storm.storm(minutes / 2 if others else minutes), seed
    while others and time.monotonic() < end_s:
        yield draw.choice(others), draw.randrange(2**32)


def _directory() -> Path:
    """Where the servers of all cases lie: in memory where there is room."""
    temporary = Path(tempfile.gettempdir())
    has_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    parent = MEMORY if has_memory else temporary
    directory = Path(tempfile.mkdtemp(prefix="wheel-timer-chaos-", dir=parent))
    directory.chmod(0o755)
    return directory


async def _run(cases: Sequence[Case], seed: int, minutes: float | None) -> list[Result]:
    directory = _directory()
    results = []
    nursery = await Nursery.open(directory)
    try:
        template = Template(directory)
        print(HEAD, flush=True)
        for case, own_seed in _chosen(cases, seed, minutes):
            result = await run(case, template, nursery, own_seed)
            results.append(result)
            print(_row(result), flush=True)
            for problem in result.problems:
                print(f"    {problem}", flush=True)
            if result.skipped is not None:
                print(f"    {result.skipped}", flush=True)
            elif result.is_slow:
                print(f"    {slowness(result)}", flush=True)
            if result.verdict in ("BROKEN", "SLOW"):
                again = f"python -m tests.chaos {case.name} --seed {own_seed}{_minutes(case)}"
                print(f"    again: {again}", flush=True)
    finally:
        await nursery.close()
        shutil.rmtree(directory, ignore_errors=True)
    return results


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases, or how their names begin")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--seed", type=int, default=None, help="of the load and the faults")
    parser.add_argument("--minutes", type=float, default=None, help="storm and random cases")
    options = parser.parse_args()
    chosen = [
        case
        for case in CASES
        if case.name in options.names
        or (not case.is_long and any(map(case.name.startswith, options.names or [""])))
    ]
    if not chosen:
        parser.error(f"no case begins like that; there are: {', '.join(c.name for c in CASES)}")
    if options.list:
        for case in chosen:
            print(f"{case.name:<24} {case.what}")
        return 0
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    results = uvloop.run(_run(chosen, seed, options.minutes))
    bad = sum(result.verdict in ("BROKEN", "SLOW") for result in results)
    print(f"\n{len(results)} runs, {bad} bad; seed {seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
