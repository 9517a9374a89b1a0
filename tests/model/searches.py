"""
The searches: each bounds the model to the actors of one question, so that all of its space is
seen in seconds. Which steps are joined (run without anything between them) is part of that.

Joining hides interleavings, so a step stands alone wherever the search's question needs it: the
fence and the hands in `fence` and `moves`, the zombie in `leaders`, two pages in `pages`; close,
barrier, read and page in the rest. A near task's direct publish is joined to its commit
everywhere: an entry that is there early can only be claimed in more ways.
"""

from __future__ import annotations

from typing import Final

from tests.model.state import (
    ADVANCE,
    BARRIER,
    COMMIT,
    DIRECT,
    PERSIST,
    PUBLISH,
    READ_FRESH,
    READ_REQUEUE,
    SWEEP,
    Config,
)

_READS: Final = frozenset({READ_REQUEUE, PUBLISH, DIRECT})
_TICK: Final = _READS | {COMMIT, ADVANCE}
_ALL: Final = _TICK | {SWEEP, PERSIST}

_SEARCHES: Final = (
    # Submit against the hands, every step apart; the leader may crash anywhere.
    Config(
        name="fence",
        horizon=4,
        starts=(1, 3),
        kinds=frozenset({"crash_leader"}),
        joined=frozenset({DIRECT}),
    ),
    # A leader and a former leader, which acts on.
    Config(
        name="leaders",
        horizon=3,
        starts=(2,),
        kinds=frozenset({"freeze_leader"}),
        joined=frozenset({READ_REQUEUE, ADVANCE, DIRECT, SWEEP}),
    ),
    # The same with a clock that is set back, and lanes that refuse: pages against closers.
    Config(
        name="pages",
        horizon=3,
        starts=(2,),
        faults=2,
        kinds=frozenset({"freeze_leader", "set_back"}),
        overflow=True,
        joined=_ALL - {COMMIT} | {BARRIER, READ_FRESH},
    ),
    # Reschedule against the hands, every step apart.
    Config(
        name="moves",
        horizon=4,
        starts=(2,),
        moves=(3, 4),
        faults=0,
        changes=1,
        joined=frozenset({DIRECT}),
    ),
    # A submit's reply was lost, and the task rescheduled before the batch is sent again.
    Config(
        name="resend",
        horizon=4,
        starts=(2,),
        moves=(3,),
        changes=1,
        kinds=frozenset({"resend"}),
        joined=_ALL,
    ),
    # The clock jumps and is set back; the leader asks for more than the clock allows.
    Config(
        name="clock",
        horizon=3,
        starts=(1, 3),
        faults=2,
        kinds=frozenset({"set_back", "jump_forward"}),
        asks=(0, 1),
        joined=_ALL,
    ),
    # Failover to a server where the sequence of closed_to was never set.
    Config(
        name="sequence",
        horizon=3,
        starts=(1, 3),
        faults=2,
        kinds=frozenset({"set_back", "lose_sequence"}),
        asks=(0, 1),
        joined=_ALL,
    ),
    # Postgres crashes and forgets what was committed asynchronously.
    Config(
        name="postgres",
        horizon=4,
        starts=(1, 3),
        kinds=frozenset({"postgres_crash"}),
        joined=_ALL - {PERSIST},
    ),
    # Pages that a lane refuses, beside reschedules.
    Config(
        name="overflow",
        horizon=3,
        starts=(2, 3),
        moves=(3, 4),
        changes=1,
        kinds=frozenset({"set_back"}),
        overflow=True,
        joined=_ALL - {COMMIT},
    ),
    # No fault at all: what the hand publishes, it publishes once.
    Config(
        name="once",
        horizon=4,
        starts=(2, 4),
        faults=0,
        track_once=True,
        joined=_READS | {ADVANCE},
    ),
    # The sweep's own rules: its wait, its pages' ends.
    Config(
        name="sweep",
        horizon=4,
        starts=(2, 3),
        kinds=frozenset({"crash_leader"}),
        patient=True,
        cut_pages=True,
        joined=_TICK,
    ),
    # Claims, settles, retries, replay, run, changed data.
    Config(
        name="delivery",
        horizon=3,
        starts=(1,),
        faults=0,
        changes=1,
        delivery=True,
        joined=_ALL | {READ_FRESH},
    ),
    # More failures allowed: an old attempt against a newer one.
    Config(
        name="budget",
        horizon=3,
        starts=(1,),
        faults=0,
        failures_max=3,
        delivery=True,
        joined=_ALL | {READ_FRESH},
    ),
    # Cancels, replays and new lives, at any time, against claims and settles.
    Config(
        name="minds",
        horizon=3,
        starts=(1,),
        moves=(3,),
        faults=0,
        changes=2,
        failures_max=1,
        delivery=True,
        mind=True,
        joined=_ALL | {READ_FRESH},
    ),
    # A lane is held and opened again, its tasks rescheduled, the clock set back.
    Config(
        name="hold",
        horizon=3,
        starts=(2,),
        moves=(3,),
        changes=1,
        kinds=frozenset({"set_back"}),
        holds=True,
        joined=_ALL | {READ_FRESH},
    ),
    # The same under delivery: retries wait, and are recalled.
    Config(
        name="recall",
        horizon=3,
        starts=(1,),
        faults=0,
        backoff=2,
        delivery=True,
        holds=True,
        joined=_ALL | {READ_FRESH},
    ),
    # Rows are taken out of the line, and pulled forward, beside reschedules, the clock set back.
    Config(
        name="line",
        horizon=4,
        starts=(2,),
        moves=(3,),
        changes=1,
        kinds=frozenset({"set_back"}),
        overflow=True,
        lines=True,
        joined=_ALL | {READ_FRESH},
    ),
    # Redis loses everything under delivery, or the leader crashes.
    Config(
        name="redis",
        horizon=3,
        starts=(2,),
        kinds=frozenset({"lose_redis", "crash_leader"}),
        delivery=True,
        joined=_ALL | {READ_FRESH},
    ),
)

SEARCHES: Final = {c.name: c for c in _SEARCHES}
