"""Many walks, on all processors."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

from tests.sim.walk import walk

# Walks that one process takes at a time: a quarter of a second.
CHUNK: Final = 500
CHUNKS_AHEAD: Final = 2 * (os.cpu_count() or 1)


class Walked(NamedTuple):
    """Some walks from one seed on. story: of the first that does not hold, which was the last."""

    walks: int
    steps: int
    story: str | None


def _walked(first: int) -> Walked:
    """So many at a time. What they make is no cycles, for a collector to look for."""
    gc.disable()
    steps = 0
    for seed in range(first, first + CHUNK):
        found = walk(seed)
        steps += found.states
        if found.violation is not None:
            again = f"again: python -m tests.sim --walk --seed {seed}"
            return Walked(seed - first, steps, f"{found.story()}\n{again}")
    return Walked(CHUNK, steps, None)


def many(first: int, count: int | None, seconds: float) -> tuple[int, int]:
    """How many walks held, of how many steps, from this seed on, on all processors: as many as
    asked for, or as time allows. Exits where one does not hold."""
    end_s = time.monotonic() + seconds
    walks = steps = begun = 0
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as processes:
        under_way: deque[Future[Walked]] = deque()
        while True:
            has_more = time.monotonic() < end_s if count is None else begun < count
            while has_more and len(under_way) < CHUNKS_AHEAD:
                under_way.append(processes.submit(_walked, first + begun))
                begun += CHUNK
            if not under_way:
                return walks, steps
            found = under_way.popleft().result()
            walks, steps = walks + found.walks, steps + found.steps
            if found.story is not None:
                processes.shutdown(cancel_futures=True)
                sys.exit(found.story)
