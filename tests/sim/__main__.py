"""
`python -m tests.sim [--seconds S] [--walks N] [--seed N] [MODE]`: simulate so long.

Walks of the model, on all processors, take four fifths of the time, or as long as so many need;
then come runs of the real code. What does not hold is told with all its steps, and ends it: exit 1.
--walk, --run: that one seed, again. --service: the Hypothesis machine against a whole service.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.chaos.servers import READY_S, Template
from tests.sim.drive import Drive, Run
from tests.sim.many import many
from tests.sim.service import explore
from tests.sim.walk import walk
from wheel_timer.embedded import DataDirectory, EmbeddedPostgres, EmbeddedRedis

WALK_SHARE: Final = 0.8


async def _runs(first: int, seconds: float, postgres_url: str, redis_url: str) -> list[Run]:
    end_s = time.monotonic() + seconds
    runs: list[Run] = []
    while not runs or time.monotonic() < end_s:
        run = await Drive(first + len(runs), postgres_url, redis_url).run()
        if run.problem is not None:
            sys.exit(f"{run.story()}\nagain: python -m tests.sim --run --seed {run.seed}")
        runs.append(run)
    return runs


def _real(first: int, seconds: float) -> list[Run]:
    """On servers of its own."""
    with tempfile.TemporaryDirectory(prefix="wheel-timer-sim-") as parent:
        Path(parent).chmod(0o755)
        template = Template(Path(parent))
        path = template.directory()
        template.copy(path)
        with DataDirectory(path) as directory:
            postgres, redis = EmbeddedPostgres(directory), EmbeddedRedis(directory)
            try:
                for server in (postgres, redis):
                    server.start()
                    server.wait_ready(READY_S)
                return asyncio.run(_runs(first, seconds, postgres.url, redis.url))
            finally:
                redis.stop()
                postgres.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--walks", type=int, metavar="N", help="so many, however long they take")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="the first one")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--walk", action="store_true", help="this walk alone")
    only.add_argument("--run", action="store_true", help="this run alone")
    only.add_argument("--service", action="store_true", help="only the service, as a whole")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # ticks that are unfenced are what is wanted
    if options.walk:
        found = walk(options.seed)
        sys.exit(found.story() if found.violation is not None else 0)
    if options.service:
        examples = explore(options.seed, options.seconds)
        print(f"{examples:,} examples of the service hold, from seed {options.seed} on")
        return
    if not options.run:
        walks, steps = many(options.seed, options.walks, options.seconds * WALK_SHARE)
        print(
            f"{walks:,} walks of the model hold, {steps:,} steps, from seed {options.seed} on",
            flush=True,
        )
    runs = _real(options.seed, 0.0 if options.run else options.seconds * (1 - WALK_SHARE))
    steps, tasks = sum(len(run.trace) for run in runs), sum(run.tasks for run in runs)
    print(
        f"{len(runs):,} runs of the code hold, {steps:,} steps, {tasks:,} tasks,"
        f" from seed {options.seed} on"
    )


if __name__ == "__main__":
    main()
