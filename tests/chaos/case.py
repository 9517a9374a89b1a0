"""What a case of chaos is: a world, a fault, and the bounds that must hold after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.fault.launch import Trouble

if TYPE_CHECKING:
    from tests.chaos.small_disk import Disk
    from tests.chaos.world import World

RECOVERY_S: Final = 5.0
# Twice its size while the machine is shared: what a callback may be late and count as on time.
LATE_MS: Final = 250.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """
    One fault under load.

    fault: returns when the fault is over; asserts that it was one (that the leader is another, that
    Redis is empty), for a case that injects nothing proves nothing.
    load_s, rate_s: open-loop load; the fault begins at_s after it.
    daemons, brokers, settings, biz: the processes, what they are given, the biz_type's settings.
    daemon_troubles, broker_troubles: what is wrong with the first of them.
    patience_s: how long clients wait for an answer.
    postgres, redis: settings of the servers. disk: a small one for one of them.
    proxied: each process reaches them by a proxy. endpoint_proxied: so are callbacks sent.
    neighbour: half of the tasks are another biz_type's, called without a proxy, on time.
    duplicates: calls that may come twice beyond those of attempts recorded as failed; None: as many
    as there are attempts recorded as lost, and of these lost_max at most.
    recovery_s: tasks due later than this after the fault's end are on time.
    back_ms: how far a hand may go back (a Postgres crash forgets asynchronous commits).
    drain_s: from the load's end until everything is settled.
    contradicts: whether a callback may start after a cancel was answered with 200 (only that of a
    broker that was frozen at that very instruction).
    is_long: runs only where it is asked for by its whole name.
    """

    name: str
    what: str
    fault: Callable[[World], Awaitable[None]]
    load_s: float = 8.0
    rate_s: int = 120
    at_s: float = 3.0
    daemons: int = 2
    brokers: int = 2
    settings: Mapping[str, object] = field(default_factory=dict)
    biz: Mapping[str, Any] = field(default_factory=dict)
    postgres: Mapping[str, str] = field(default_factory=dict)
    redis: Mapping[str, str] = field(default_factory=dict)
    disk: Disk | None = None
    proxied: bool = False
    endpoint_proxied: bool = False
    neighbour: bool = False
    daemon_troubles: Sequence[Trouble] = ()
    broker_troubles: Sequence[Trouble] = ()
    answer_s: float = 0.0
    patience_s: float = 3.0
    duplicates: int | None = 0
    lost_max: int = 0
    recovery_s: float = RECOVERY_S
    back_ms: int = 0
    drain_s: float = 30.0
    contradicts: bool = False
    is_long: bool = False


class Skipped(Exception):
    """This machine cannot have that fault. str: why, one line."""
