"""SIGKILL after each step of a tick: the next daemon goes on from there, and nothing is lost."""

from __future__ import annotations

import signal
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.fault.harness import Cluster

# The point, and at which coming to it the daemon dies. Each is followed by the next.
STEPS: Final = (
    ("due.closed", 1),
    ("due.fenced", 2),
    ("due.published", 1),
    ("due.rearmed", 1),
    ("due.advanced", 2),
    ("sweep.page", 1),
    ("sweep.done", 1),
    # The first is that of its election; for another there may be nothing to fold for 20 s.
    ("ledger.folded", 1),
)
# Short, so that the sweep of each term, which waits for it, finds what no broker has called yet.
FAST: Final[dict[str, Any]] = {"lookahead": 0.5, "visibility": 1}


@pytest.mark.timing
async def test_a_daemon_killed_after_any_step_of_a_tick_loses_nothing(cluster: Cluster) -> None:
    daemon = await cluster.daemon(die=STEPS[0], **FAST)
    for step, next_step in pairwise((*STEPS, None)):
        # Due now, which leaves nets; soon, for the hand; and behind the sweep of a later term.
        await cluster.submit_at(*range(0, 100, 10), *range(700, 1_900, 60))
        await daemon.comes_to("leader.elected")
        standby = await cluster.daemon(die=next_step, **FAST)
        assert await daemon.gone() == -signal.SIGKILL, (step, daemon.said)
        await cluster.audits_hold()
        daemon = standby
    # Nobody has called anything so far: all of it is still to be found.
    await cluster.broker(**FAST)
    calls = await cluster.all_arrive()
    # What was published again met a settled task, or the one claim.
    assert max(calls.values()) == 1
