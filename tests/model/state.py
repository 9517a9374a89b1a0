"""
What a state of the model is: everything that decides whether one task can be lost.

One task, its one requeue row, one shard's pointer row and closed_to sequence, Redis, one client
transaction, the leader, a zombie (a former leader that still acts), two attempts in brokers.
Everything is a tuple of small ints, so that states hash fast and compare by value.

Time is in steps. One step is the look-ahead; a backoff, a lease, the net's margin are one step,
a visibility time and a hold are two. Step 0 means "none" wherever a moment is optional. What
matters is only the order of moments, so a handful of steps reaches every order the protocol can
meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.model.rules import Rule

LOOK_AHEAD: Final = 1  # the due hand closes up to the clock + this
NEAR: Final = 1  # DESIGN has 1.5 look-aheads; in whole steps what is due within one is near
NET: Final = 1  # the net's margin beyond closed_to (2 s in DESIGN)
VISIBILITY: Final = 2  # a published reference is looked at again after this
LEASE: Final = 1
BACKOFF: Final = 1
HOLD: Final = 2  # a held row lies so far ahead (an hour in the code)

# Task.status. `moved` needs no value: a place other than Task.start holds a moved row or none.
ABSENT, PENDING, FINISHED, FAILED, CANCELLED = range(5)

# Writer.kind
SUBMIT, MOVE, REPLAY, RUN, RETRY, REPLACE, HOLDING, UNHOLD, RECALL = range(1, 10)
FETCH, PULL = range(10, 12)
# Writer.phase: has read closed_to but not taken the fence (only where that rule is taken out);
# in its transaction, holding the fence; committed, the direct publish still to come.
LOOKED, OPEN, DIRECT = range(20, 23)

# Requeue.reason, told apart only where Config.holds: any other; of a held lane; a retry.
OTHER, HELD, RETRIED = range(3)

# Hand.phase: the step of a tick that comes next.
IDLE, SETVAL, CLOSE, BARRIER, READ_FRESH, READ_REQUEUE, PUBLISH, PAGE, COMMIT, ADVANCE = range(10)
# Two more steps, which only Config.joined names.
SWEEP, PERSIST = range(30, 32)
# Hand.verdict: what a tick does with the requeue row it read.
NO_VERDICT, DROP, SEND, DEFER = range(4)

# World.alarm: what a single step did that no state shows afterwards.
FINE, EARLY, BURNED, TWICE_CLAIMED, SETTLED_CALLED = range(5)
WRONG_DATA, STALE_WRITE, TWICE_PUBLISHED, CANCELLED_CALLED = range(5, 9)
ALARMS: Final = {
    EARLY: "early: an attempt began before start_time",
    BURNED: "burned budget: an attempt began before its backoff was over",
    TWICE_CLAIMED: "double: an attempt began inside another attempt's lease",
    SETTLED_CALLED: "double: an attempt at a task that is settled or has moved away",
    WRONG_DATA: "wrong data: an attempt settled a task that was changed since",
    STALE_WRITE: "stale write: an epoch that is not the newest wrote",
    CANCELLED_CALLED: "contradiction: cancelled while an attempt holds its lease",
    TWICE_PUBLISHED: "twice: the hand alone published one due moment twice",
}


class Task(NamedTuple):
    """
    The row at the task's present place. home: the place that its id carries.

    Two ghosts, which no rule may read: backoff, when the next attempt may begin; data, the
    version of what a callback delivers.
    """

    status: int = ABSENT
    start: int = 0
    home: int = 0
    revision: int = 0
    attempts: int = 0
    failures: int = 0
    lease: int = 0
    next_at: int = 0
    data: int = 0


class Requeue(NamedTuple):
    """The requeue row: due_at and the place (start) it points to; due 0 where there is none."""

    due: int = 0
    place: int = 0
    reason: int = OTHER


class Pointer(NamedTuple):
    """The persisted hands. closed_to is the sequence, the rest the pointer row."""

    closed: int
    current: int
    sweep: int
    epoch: int


class Redis(NamedTuple):
    """The epoch key (0: missing) and the lane's entries: places, sorted, at most ENTRIES_MAX."""

    epoch: int = 0
    entries: tuple[int, ...] = ()


class Writer(NamedTuple):
    """One client transaction: what it does, how far it is, the closed_to and clock it read."""

    kind: int
    phase: int
    closed: int
    now: int
    start: int = 0  # SUBMIT, MOVE: the new place; DIRECT: the one to publish; HOLDING: the entry's
    token: int = 0  # RETRY: the attempt's number
    revision: int = 0  # RETRY: the attempt's revision


class Hand(NamedTuple):
    """A daemon that leads, or believes so: what it keeps in memory and the step it is at."""

    epoch: int
    current: int  # current_time in memory; the row may lag behind
    stood: int = 0  # current_time one visibility time ago; 0 until a new leader has waited one
    unfenced: int = 0  # h of the last unfenced tick
    phase: int = IDLE
    h: int = 0
    fenced: bool = False
    fresh: int = 0  # place of the pending row that the tick read
    verdict: int = NO_VERDICT
    place: int = 0  # SEND: the requeue row's place
    moment: int = 0  # DEFER: to when
    overflow: bool = False  # the lane's node refused the page
    due: int = 0  # the open page's due_at, from closed_to and the clock as it read them
    # The sweep's open transaction: (due_at, place of the task it saw, new sweep_time).
    sweep: tuple[int, int, int] | None = None


class Attempt(NamedTuple):
    """A callback under way: the claim's number and revision, when its lease ends, what it says."""

    token: int
    revision: int
    until: int
    data: int


class World(NamedTuple):
    """One state. faults and changes are what may still happen: the bounds of the search."""

    now: int
    task: Task
    row: Requeue
    pointer: Pointer
    redis: Redis
    writer: Writer | None
    leader: Hand
    zombie: Hand | None
    attempts: tuple[Attempt, ...]
    faults: int
    changes: int
    durable: tuple[int, int] | None  # closed_to, current_time that outlive a Postgres crash
    told: tuple[int, ...]  # ghost: last place and due_at published, fenced and unfenced
    alarm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """
    The bounds of one search, and the one rule taken out of it (or None).

    starts: the places a submit may ask for, moves: those a reschedule may ask for.
    faults, changes: how many faults, and how many reschedules, runs, replays, data changes.
    kinds: the faults that may happen (names of functions in faults.py).
    asks: how far the leader's own clock runs ahead of the database's, each possibility.
    """

    name: str
    horizon: int
    starts: tuple[int, ...]
    moves: tuple[int, ...] = ()
    faults: int = 1
    changes: int = 0
    kinds: frozenset[str] = frozenset()
    asks: tuple[int, ...] = (0,)
    delivery: bool = False  # claims and settles; without it references are lost at once
    mind: bool = False  # the changes are cancels and new lives, in place of all others
    holds: bool = False  # lanes are held and opened again
    lines: bool = False  # brokers fetch rows, the leader pulls them forward
    backoff: int = BACKOFF
    failures_max: int = 2
    overflow: bool = False  # the lane's node may refuse a page
    cut_pages: bool = False  # a sweep's page may end inside the task's millisecond
    patient: bool = False  # the sweep waits a visibility time; else it may go at once
    track_once: bool = False
    joined: frozenset[int] = frozenset()
    without: Rule | None = None

    @property
    def has_lane(self) -> bool:
        """Whether what is published stays for somebody; else nobody would look at it."""
        return self.delivery or self.holds


def first(c: Config) -> World:
    """The state after migrate and the first leader's election: nothing submitted yet."""
    return World(
        now=1,
        task=Task(),
        row=Requeue(),
        pointer=Pointer(closed=1, current=1, sweep=1, epoch=1),
        redis=Redis(epoch=1),
        writer=None,
        leader=Hand(epoch=1, current=1),
        zombie=None,
        attempts=(),
        faults=c.faults,
        changes=c.changes,
        durable=(1, 1) if "postgres_crash" in c.kinds else None,
        told=(0, 0, 0, 0),
        alarm=FINE,
    )


def ahead(wanted: int, closed: int, c: Config, floor: Rule) -> int:
    """due_at = greatest(wanted, closed_to + 1): no requeue row is written behind the due hand."""
    return wanted if c.without is floor else max(wanted, closed + 1)
