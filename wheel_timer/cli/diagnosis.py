"""What `doctor` thinks of what it has found: one finding for each thing it looks at. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from wheel_timer.store.node import Node
    from wheel_timer.store.server import ServerFacts
    from wheel_timer.streams import RedisFacts

Verdict = Literal["ok", "warning", "bad"]

POSTGRES_MIN: Final = 14
REDIS_MIN: Final = (6, 2)
PARTITIONS: Final = 100
LOCKS_MIN: Final = 128
# A snapshot keeps every row that died since: under an old one deliveries are HOT updates no more.
SNAPSHOT_S_WARN: Final = 60
SNAPSHOT_S_MAX: Final = 900
CLOCK_S_WARN: Final = 1.0
ROUND_TRIP_MS_MAX: Final = 50.0  # beyond it a broker does not know the clock, and claims nothing
FULL: Final = 0.9
DEAD_ROWS_MIN: Final = 100_000


class Finding(NamedTuple):
    """One thing looked at. told: what was found, and what to do where it is not well."""

    what: str
    verdict: Verdict
    told: str


def of_postgres(facts: ServerFacts) -> Iterator[Finding]:
    """What the database server says of itself."""
    major = facts.version // 10_000
    yield _judge("postgres version", major >= POSTGRES_MIN, f"{major}", f"{POSTGRES_MIN} or newer")
    yield _judge(
        "primary", not facts.is_replica, "yes", "a replica: name the primary in DATABASE_URL"
    )
    for name, value in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        yield _judge(name, value == "on", value, f"{value}: a power cut loses accepted tasks")
    # What must be durable sets it for its own commit; the rest may be lost.
    asks = facts.synchronous_commit in ("on", "remote_apply", "remote_write")
    waits = f", {facts.synchronous_standbys} standbys confirm" if facts.synchronous_standbys else ""
    yield Finding(
        "synchronous_commit",
        "ok" if asks else "warning",
        facts.synchronous_commit + waits + ("" if asks else ": set for every accepted task anyway"),
    )
    yield _judge("autovacuum", facts.autovacuum == "on", "on", "off: tables grow without end")
    yield _judge(
        "partitions",
        facts.partitions == PARTITIONS and not facts.partitions_unvacuumed,
        f"{facts.partitions}",
        f"{facts.partitions} of {PARTITIONS}, {facts.partitions_unvacuumed} with autovacuum off: "
        "a submit into a missing one is refused",
    )
    yield _warn(
        "max_locks_per_transaction",
        facts.max_locks >= LOCKS_MIN,
        f"{facts.max_locks}",
        f"{facts.max_locks}: an audit locks {PARTITIONS} partitions and their indexes; set "
        f"{LOCKS_MIN} or more",
    )
    yield _warn(
        "connections",
        facts.connections < FULL * facts.max_connections,
        f"{facts.connections} of {facts.max_connections}",
        f"{facts.connections} of {facts.max_connections} are taken",
    )
    age = f"{facts.snapshot_s:.0f} s"
    holder = f"{age}, held by {facts.snapshot_of}: nothing that died since is vacuumed; end it"
    if facts.snapshot_s >= SNAPSHOT_S_MAX:
        yield Finding("oldest snapshot", "bad", holder)
    else:
        yield _warn("oldest snapshot", facts.snapshot_s < SNAPSHOT_S_WARN, age, holder)
    yield _warn(
        "dead rows of timer_requeue",
        facts.requeue_dead < max(DEAD_ROWS_MIN, 5 * facts.requeue_live),
        f"{facts.requeue_dead:,}",
        f"{facts.requeue_dead:,} beside {facts.requeue_live:,} live ones: vacuum does not keep up",
    )


def of_redis(facts: RedisFacts) -> Iterator[Finding]:
    """What the event center's server says of itself."""
    version = tuple(int(part) for part in facts.version.split(".")[:2] if part.isdigit())
    yield _judge("redis version", version >= REDIS_MIN, facts.version, "6.2 or newer")
    yield _judge("redis primary", not facts.is_replica, "yes", "this is a replica")
    limit = facts.memory_bytes_max
    yield _judge(
        "eviction policy",
        facts.policy == "noeviction",
        facts.policy,
        f"{facts.policy}: Redis may throw lanes away, which are then called late; set noeviction",
    )
    yield _warn(
        "redis memory",
        not limit or facts.memory_bytes < FULL * limit,
        f"{facts.memory_bytes / 1_048_576:.0f} MiB" + ("" if limit else ", no limit"),
        f"{facts.memory_bytes / 1_048_576:.0f} of {limit / 1_048_576:.0f} MiB",
    )
    yield _warn(
        "redis persistence",
        facts.keeps_aof,
        "AOF",
        "none: nothing is lost by it, but after a restart of Redis callbacks are late by seconds",
    )


def of_clock(offset_ms: float, trip_ms: float, jump_max_s: float) -> Iterator[Finding]:
    """The database's clock against this machine's, as a process would see it that starts here."""
    offset_s = offset_ms / 1000
    told = f"{offset_s:+.3f} s"
    if offset_s > jump_max_s:
        yield Finding(
            "clock offset", "bad", f"{told}: a process that starts here holds back; set one right"
        )
    else:
        yield _warn(
            "clock offset",
            abs(offset_s) <= CLOCK_S_WARN,
            told,
            f"{told}: harmless while processes run, and one of the two clocks is wrong",
        )
    round_trip = f"{trip_ms:.1f} ms"
    yield _judge(
        "round trip to postgres",
        trip_ms <= ROUND_TRIP_MS_MAX,
        round_trip,
        f"{round_trip}: a broker that knows the clock no better claims nothing",
    )


def of_nodes(nodes: list[Node], version: str) -> Iterator[Finding]:
    """Who is alive, and of which version."""
    alive = [node for node in nodes if node.is_alive]
    for role in ("daemon", "broker"):
        count = sum(node.role == role for node in alive)
        yield _warn(f"{role}s", count > 0, f"{count}", "none is alive")
    others = sorted({node.version for node in alive} - {version})
    yield _warn("versions", not others, version, f"{', '.join(others)} beside {version}")
    jumped = [node.node for node in alive if node.clock_jump_ms is not None]
    yield _judge("clock jump", not jumped, "none", f"held back for by {', '.join(jumped)}")


def _judge(what: str, is_well: bool, found: str, otherwise: str) -> Finding:
    return Finding(what, "ok" if is_well else "bad", found if is_well else otherwise)


def _warn(what: str, is_well: bool, found: str, otherwise: str) -> Finding:
    return Finding(what, "ok" if is_well else "warning", found if is_well else otherwise)
