"""A storm's plan: the same for a seed, each target one thing at a time, two at once at most."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.chaos.storm import AT_ONCE, KINDS, plan

SECONDS = 600.0


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_breaks_each_target_one_way_at_a_time(seed: int) -> None:
    blows = list(plan(random.Random(seed), SECONDS))
    assert blows == list(plan(random.Random(seed), SECONDS))
    assert len({blow.kind for blow in blows}) > len(KINDS) / 2
    assert all(blow.at_s > 0 and blow.at_s + blow.for_s <= SECONDS for blow in blows)
    for target in {kind.target for kind in KINDS.values()}:
        own = [blow for blow in blows if KINDS[blow.kind].target == target]
        assert all(one.at_s + one.for_s < other.at_s for one, other in pairwise(own))
    for blow in blows:
        under_way = [one for one in blows if one.at_s <= blow.at_s < one.at_s + one.for_s]
        assert len(under_way) <= AT_ONCE


def test_two_things_are_broken_at_once_now_and_then() -> None:
    blows = list(plan(random.Random(1), SECONDS))
    assert any(one.at_s + one.for_s > other.at_s for one, other in pairwise(blows))
