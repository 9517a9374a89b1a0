"""doctor, on real servers: the session's Postgres runs without fsync, and that is what it finds."""

from __future__ import annotations

import json

from tests.acceptance.fix_up import wheel_timer


def test_it_finds_what_is_ill_and_nothing_else(
    database_url: str, redis_url: str, redis_prefix: str
) -> None:
    environ = {
        "WHEEL_TIMER_DATABASE_URL": database_url,
        "WHEEL_TIMER_REDIS_URL": redis_url,
        "WHEEL_TIMER_REDIS_PREFIX": redis_prefix,
    }
    done = wheel_timer("doctor", "--json", environ=environ)
    assert done.returncode == 1, done.stderr
    found = {one["what"]: one for one in map(json.loads, done.stdout.splitlines())}
    bad = {what for what, one in found.items() if one["verdict"] == "bad"}
    # A loaded machine may take its time for a round trip.
    assert bad - {"round trip to postgres"} == {"fsync", "full_page_writes"}
    assert {what for what, one in found.items() if one["verdict"] == "warning"} >= {"daemons"}
    assert {"redis version", "eviction policy", "schema", "clock offset"} <= set(found)
    other = wheel_timer("doctor", environ=environ | {"WHEEL_TIMER_INSTANCE": "staging"})
    assert other.returncode == 1
    assert "belongs to INSTANCE 'default'" in other.stdout
