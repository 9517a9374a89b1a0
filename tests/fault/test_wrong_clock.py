"""A machine whose clock is wrong does not stand in the way of those whose clock is right."""

from __future__ import annotations

import pytest

from tests.fault.harness import Cluster
from tests.fault.launch import Trouble

BEHIND: Trouble = Trouble(skew_s=-3_600)


@pytest.mark.timing
async def test_who_takes_the_clock_for_one_that_has_jumped_leaves_the_work_to_others(
    cluster: Cluster,
) -> None:
    wrong = await cluster.daemon(trouble=BEHIND), await cluster.broker(trouble=BEHIND)
    for process in wrong:
        await process.comes_to("clock.measured")
    right = await cluster.daemon(), await cluster.broker()
    await right[0].comes_to("leader.elected")
    await right[1].comes_to("clock.measured", 2)
    await cluster.load(50, 1.0, 300)
    calls = await cluster.all_arrive()
    assert max(calls.values()) == 1
    assert wrong[0].times("leader.elected") == []
    assert wrong[1].times("delivery.claimed") == []
    assert cluster.lateness_ms()[-1] < 2_000
