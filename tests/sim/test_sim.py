"""The protocol holds on long random walks of the model, and the real code on short ones."""

from __future__ import annotations

from typing import Final, LiteralString

import psycopg
import pytest

from tests.model import rules
from tests.model.checker import Found
from tests.model.rules import Rule
from tests.sim.drive import Drive
from tests.sim.walk import walk

NO_BARRIER: Final[tuple[LiteralString, ...]] = (
    "CREATE OR REPLACE FUNCTION wheel_barrier_v1(p_shard smallint, p_wait_ms integer)"
    " RETURNS void LANGUAGE sql AS 'SELECT'",
    "CREATE OR REPLACE FUNCTION wheel_barrier_try_v1(p_shard smallint)"
    " RETURNS boolean LANGUAGE sql AS 'SELECT true'",
)
WALKS = 4_000
RUNS = 8
# Each is found by one of the first few hundred walks: those of a lucky hand.
FOUND = (
    rules.BARRIER_TAKEN,
    rules.NET_ROW,
    rules.ADVANCE_LAST,
    rules.CLAIM_LEASE,
    rules.EPOCH_PAGE,
)


def test_the_protocol_holds_on_every_walk() -> None:
    for seed in range(WALKS):
        found = walk(seed)
        assert found.violation is None, f"seed {seed}: {found.story()}"


@pytest.mark.parametrize("rule", FOUND, ids=lambda rule: rule.key)
def test_a_walk_finds_what_a_rule_is_there_for(rule: Rule) -> None:
    def violations() -> list[Found]:
        return [found for seed in range(300) if (found := walk(seed, rule)).violation]

    assert violations()


@pytest.mark.slow
async def test_without_the_barrier_some_order_loses_a_task(
    database_url: str, redis_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in NO_BARRIER:
            connection.execute(statement)
    for seed in range(40):
        run = await Drive(seed, database_url, redis_url).run()
        if run.problem is not None:
            assert "behind both hands" in run.problem, run.story()
            return
    pytest.fail("nothing was found")


@pytest.mark.parametrize("seed", range(RUNS))
async def test_the_code_holds_in_any_order_of_its_steps(
    seed: int, database_url: str, redis_url: str
) -> None:
    run = await Drive(seed, database_url, redis_url).run()
    assert run.problem is None, run.story()
    assert run.tasks
