"""What doctor thinks of what it finds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from wheel_timer.cli.diagnosis import Finding, of_clock, of_nodes, of_postgres, of_redis
from wheel_timer.store.node import Node
from wheel_timer.store.server import ServerFacts
from wheel_timer.streams import RedisFacts

POSTGRES = ServerFacts(
    version=180_000,
    is_replica=False,
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    autovacuum="on",
    max_locks=256,
    max_connections=100,
    connections=10,
    snapshot_s=3.0,
    snapshot_of="psql, process 7",
    partitions=100,
    partitions_unvacuumed=0,
    synchronous_standbys=0,
    requeue_dead=10,
    requeue_live=10,
)
REDIS = RedisFacts(
    version="6.2.14",
    policy="noeviction",
    memory_bytes=10,
    memory_bytes_max=0,
    keeps_aof=True,
    is_replica=False,
)
DAEMON = Node("daemon-a", "daemon", "1", 0, 0, True, None, [0])
BROKER = DAEMON._replace(node="broker-a", role="broker", leads=[])


def ill(findings: Iterable[Finding]) -> dict[str, str]:
    return {one.what: one.verdict for one in findings if one.verdict != "ok"}


def test_what_is_well_is_well() -> None:
    assert ill(of_postgres(POSTGRES)) == {}
    assert ill(of_redis(REDIS)) == {}
    assert ill(of_clock(200.0, 1.0, 60.0)) == {}
    assert ill(of_nodes([DAEMON, BROKER], "1")) == {}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"version": 130_011}, {"postgres version": "bad"}),
        ({"is_replica": True}, {"primary": "bad"}),
        ({"fsync": "off"}, {"fsync": "bad"}),
        ({"full_page_writes": "off"}, {"full_page_writes": "bad"}),
        ({"synchronous_commit": "off"}, {"synchronous_commit": "warning"}),
        ({"synchronous_commit": "local"}, {"synchronous_commit": "warning"}),
        ({"autovacuum": "off"}, {"autovacuum": "bad"}),
        ({"max_locks": 64}, {"max_locks_per_transaction": "warning"}),
        ({"connections": 95}, {"connections": "warning"}),
        ({"snapshot_s": 61.0}, {"oldest snapshot": "warning"}),
        ({"snapshot_s": 3_600.0}, {"oldest snapshot": "bad"}),
        ({"partitions": 99}, {"partitions": "bad"}),
        ({"partitions_unvacuumed": 1}, {"partitions": "bad"}),
        ({"requeue_dead": 200_000}, {"dead rows of timer_requeue": "warning"}),
    ],
    ids=str,
)
def test_a_postgres_that_is_ill(changed: dict[str, Any], found: dict[str, str]) -> None:
    findings = list(of_postgres(POSTGRES._replace(**changed)))
    assert ill(findings) == found
    assert len({one.what for one in findings}) == len(findings)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"version": "6.0.9"}, {"redis version": "bad"}),
        ({"version": "7.2.4"}, {}),
        ({"policy": "allkeys-lru"}, {"eviction policy": "bad"}),
        ({"memory_bytes": 95, "memory_bytes_max": 100}, {"redis memory": "warning"}),
        ({"memory_bytes": 50, "memory_bytes_max": 100}, {}),
        ({"keeps_aof": False}, {"redis persistence": "warning"}),
        ({"is_replica": True}, {"redis primary": "bad"}),
    ],
    ids=str,
)
def test_a_redis_that_is_ill(changed: dict[str, Any], found: dict[str, str]) -> None:
    assert ill(of_redis(REDIS._replace(**changed))) == found


@pytest.mark.parametrize(
    ("offset_ms", "trip_ms", "found"),
    [
        (-3_600_000.0, 1.0, {"clock offset": "warning"}),
        (5_000.0, 1.0, {"clock offset": "warning"}),
        (61_000.0, 1.0, {"clock offset": "bad"}),
        (0.0, 80.0, {"round trip to postgres": "bad"}),
    ],
)
def test_clocks_that_differ(offset_ms: float, trip_ms: float, found: dict[str, str]) -> None:
    assert ill(of_clock(offset_ms, trip_ms, 60.0)) == found


def test_who_is_missing_old_or_holds_back() -> None:
    assert ill(of_nodes([], "1")) == {"daemons": "warning", "brokers": "warning"}
    dead = DAEMON._replace(is_alive=False)
    assert ill(of_nodes([dead, BROKER], "1")) == {"daemons": "warning"}
    assert ill(of_nodes([DAEMON, BROKER], "2")) == {"versions": "warning"}
    jumped = DAEMON._replace(clock_jump_ms=3_600_000)
    assert ill(of_nodes([jumped, BROKER], "1")) == {"clock jump": "bad"}
