"""
Faults, and the clock. A config names the faults that may happen and how many in all.

Crashes of client transactions and of attempts are in writers.py and delivery.py: they are
always possible and need no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.model import rules as r
from tests.model.leader import elect
from tests.model.state import ABSENT, COMMIT, OPEN, SUBMIT, Config, Hand, Redis, World, Writer
from tests.model.writers import NOTHING, Step


def pass_time(w: World, c: Config) -> Sequence[Step]:
    """One step of the database's clock. The leader notes where current_time stood."""
    if w.now >= c.horizon:
        return NOTHING
    leader = w.leader._replace(stood=w.leader.current) if c.patient else w.leader
    return ((f"clock {w.now + 1}", w._replace(now=w.now + 1, leader=leader)),)


def crash_leader(w: World, c: Config) -> Sequence[Step]:
    """kill -9; the open transaction rolls back; a standby takes the shard (section 6)."""
    return (("leader crashes, a new one leads", elect(w)),)


def freeze_leader(w: World, c: Config) -> Sequence[Step]:
    """SIGSTOP past the lease, then SIGCONT: the old leader goes on where it was, as a zombie."""
    if w.zombie is not None:
        return NOTHING
    return (("leader freezes, a new one leads", elect(w._replace(zombie=w.leader))),)


def lose_redis(w: World, c: Config) -> Sequence[Step]:
    """FLUSHALL: every entry and the epoch key vanish."""
    if w.redis == Redis():
        return NOTHING
    return (("Redis loses everything", w._replace(redis=Redis())),)


def jump_forward(w: World, c: Config) -> Sequence[Step]:
    """The database's clock jumps two steps."""
    return (("clock jumps forward", w._replace(now=w.now + 2)),)


def set_back(w: World, c: Config) -> Sequence[Step]:
    """
    The database's clock is set back two steps: "closed_to never goes back" (section 4). A lease
    that had run out does not begin again: its broker goes by a clock that only goes on.
    """
    if w.now < 3:
        return NOTHING
    attempts = tuple(sorted(a if a.until > w.now else a._replace(until=0) for a in w.attempts))
    return (("clock set back", w._replace(now=w.now - 2, attempts=attempts)),)


def postgres_crash(w: World, c: Config) -> Sequence[Step]:
    """
    Every open transaction rolls back and what committed without waiting for the WAL since the
    last synchronous commit is gone: closes and advances only (section 4). Connections fall, so
    the leader loses its lock and starts from the pointer row.
    """
    assert w.durable is not None
    closed, current = w.durable
    pointer = w.pointer._replace(closed=closed, current=current)
    lost = w._replace(pointer=pointer, writer=None, zombie=None)
    if c.without is r.HAND_RELOADS:
        kept = w.leader
        lost = lost._replace(leader=Hand(kept.epoch, kept.current, kept.stood, kept.unfenced))
    else:
        lost = elect(lost)
    return (("Postgres crashes", lost),)


def lose_sequence(w: World, c: Config) -> Sequence[Step]:
    """Failover to a logical replica: rows are there, the sequence was never set (section 3)."""
    lost = w._replace(pointer=w.pointer._replace(closed=0), writer=None, zombie=None)
    return (("failover, closed_to unset", elect(lost)),)


def resend(w: World, c: Config) -> Sequence[Step]:
    """The reply of a submit was lost: its batch is sent again with the same task_ids."""
    if w.writer is not None or w.task.status == ABSENT:
        return NOTHING
    again = Writer(SUBMIT, OPEN, w.pointer.closed, w.now, w.task.home)
    return ((f"submit({w.task.home}) again: fence, closed_to", w._replace(writer=again)),)


def terminate(w: World, c: Config) -> Sequence[Step]:
    """ "after 5 s the holder's backend is terminated" (section 4): no budget needed."""
    zombie = w.zombie
    if zombie is None or (zombie.phase != COMMIT and zombie.sweep is None):
        return NOTHING
    return (("zombie's backend terminated", w._replace(zombie=None)),)


# The steps after which a hand may stand earlier than before.
HANDS_MAY_GO_BACK = ("Postgres crashes", "failover, closed_to unset")

FAULTS: dict[str, Callable[[World, Config], Sequence[Step]]] = {
    fault.__name__: fault
    for fault in (
        crash_leader,
        freeze_leader,
        lose_redis,
        jump_forward,
        set_back,
        postgres_crash,
        lose_sequence,
        resend,
    )
}
