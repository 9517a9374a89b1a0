"""
The search: breadth first over every state that the actions and faults reach, so the first
violation found has the shortest trace; and the fair schedule, which must settle any task.

Three kinds of property. Of a state: the invariant of DESIGN section 4, the order of the hands.
Of a step: no hand goes back, no alarm (state.py). Of the future: from every state, once
everything volatile is gone and no fault follows, hands and brokers taking turns settle the task.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tests.model.actions import Action, actions_of, leader_persists, leader_sweeps, leader_ticks
from tests.model.delivery import claim, succeed
from tests.model.faults import FAULTS, HANDS_MAY_GO_BACK, pass_time
from tests.model.leader import elect
from tests.model.state import ALARMS, PENDING, Config, Redis, World, first
from tests.model.writers import Step

# Rounds (steps of the clock) of fair execution within which a task must be settled. The clock
# may have to catch up with a closed_to that ran ahead of it, then comes a visibility time.
ROUNDS_MAX: Final = 16

# One state in so many is also run on with the leader alive (all are, with the leader gone).
LIVE_SAMPLE: Final = 10

Trace = list[tuple[str, World]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found. violation is None where every state holds; then trace is empty."""

    states: int
    depth: int
    violation: str | None
    trace: Trace

    def story(self) -> str:
        """The counterexample, one named step a line, with the state it leads to."""
        lines = [f"{self.violation} after {len(self.trace)} steps, {self.states} states explored"]
        lines += [f"{i:3} {label}\n      {_line(w)}" for i, (label, w) in enumerate(self.trace, 1)]
        return "\n".join(lines)


def search(c: Config) -> Found:
    """Visit every reachable state, breadth first, up to the first violation."""
    # Millions of live tuples, no cycles: the collector would walk them for nothing (a fifth
    # of the time).
    gc.disable()
    try:
        return _search(c)
    finally:
        gc.enable()


def _search(c: Config) -> Found:
    start = first(c)
    seen: dict[World, tuple[World, str] | None] = {start: None}
    actions = actions_of(c)
    faults = [FAULTS[name] for name in sorted(c.kinds)]
    frontier, depth = [start], 0
    while frontier:
        depth += 1
        reached: list[World] = []
        for w in frontier:
            for label, after in steps_from(w, c, actions, faults):
                if after in seen:
                    continue
                seen[after] = (w, label)
                why = broken(after) or went_back(w, after, label)
                if why:
                    return Found(
                        states=len(seen), depth=depth, violation=why, trace=_trace(seen, after)
                    )
                reached.append(after)
        frontier = reached
    stuck = _first_stuck(seen, c)
    if stuck is not None:
        why = "stuck: fair execution does not settle the task"
        return Found(states=len(seen), depth=depth, violation=why, trace=_trace(seen, stuck))
    return Found(states=len(seen), depth=depth, violation=None, trace=[])


def steps_from(w: World, c: Config, actions: list[Action], faults: list[Action]) -> list[Step]:
    """Everything that may happen next."""
    steps: list[Step] = []
    for action in actions:
        steps += action(w, c)
    if w.faults:
        left = w.faults - 1
        steps += [
            (label, after._replace(faults=left)) for fault in faults for label, after in fault(w, c)
        ]
    return steps


def _trace(seen: dict[World, tuple[World, str] | None], last: World) -> Trace:
    trace: Trace = []
    came = seen[last]
    while came is not None:
        trace.append((came[1], last))
        last = came[0]
        came = seen[last]
    return trace[::-1]


def broken(w: World) -> str | None:
    """
    The property this state violates, or None.

    "a pending task is ahead of the sweep hand (start_time > sweep_time), or has a requeue row
    ahead of the due hand (due_at > current_time)" (section 4), at its present place: a row that
    points elsewhere is dropped when it is due. current_time is the leader's where that is ahead
    of the row's.
    """
    if w.alarm:
        return ALARMS[w.alarm]
    pointer, task = w.pointer, w.task
    current = max(pointer.current, w.leader.current)
    if task.status == PENDING and task.start <= pointer.sweep:
        row = w.row
        if row.due <= current or row.place != task.start:
            return "loss: behind the sweep hand, no requeue row ahead of the due hand"
    if pointer.sweep > pointer.current:
        return "order: sweep_time > current_time"
    if pointer.closed and current > pointer.closed:
        return "order: current_time > closed_to"
    return None


def went_back(w: World, after: World, label: str) -> str | None:
    """ "hands never go back", but for a Postgres crash (by what was not durable yet)."""
    old, new = w.pointer, after.pointer
    if old is new or label in HANDS_MAY_GO_BACK:
        return None
    if new.closed < old.closed or new.current < old.current or new.sweep < old.sweep:
        return "back: a hand went back"
    return None


def bare(w: World) -> World:
    """What is left when all that is volatile vanishes: clients, brokers, entries, the zombie."""
    return w._replace(
        writer=None,
        attempts=(),
        zombie=None,
        redis=Redis(),
        faults=0,
        changes=0,
        durable=None,
        told=(0, 0, 0, 0),
    )


def settles(w: World, c: Config, known: set[World]) -> bool:
    """
    Whether the fair schedule settles the task of w: in turn the sweep (an open page holds the
    fence), the tick, the pointer row, the brokers, each to its end, then one step of the clock;
    ROUNDS_MAX times.

    c: made by fair(). known: states at the start of a round that settle, filled here.
    """
    actions: list[Action] = [leader_sweeps, leader_ticks, leader_persists, claim, succeed]
    path: list[World] = []
    for _ in range(ROUNDS_MAX):
        if w in known:
            break
        path.append(w)
        for action in actions:
            while steps := action(w, c):
                w = steps[0][1]
        if w.task.status != PENDING:
            break
        w = pass_time(w, c)[0][1]
    else:
        return False
    known.update(path)
    return True


def fair(c: Config) -> Config:
    """The same rules without bounds on time, with brokers, without refusals or cut pages."""
    return replace(
        c, horizon=1_000_000, delivery=True, overflow=False, cut_pages=False, track_once=False
    )


def _first_stuck(seen: Iterable[World], c: Config) -> World | None:
    """
    A state from which the task is never settled once everything volatile is gone, or None.

    With the leader gone, too: from every state (few differ in what is durable). With the leader
    going on from the step it is at: from one in LIVE_SAMPLE.
    """
    durable: dict[tuple[object, ...], World] = {}
    live: dict[tuple[object, ...], World] = {}
    for w in seen:
        if w.task.status == PENDING:
            durable.setdefault((w.now, w.task, w.row, w.pointer), w)
            live.setdefault((w.now, w.task, w.row, w.pointer, w.leader), w)
    known: set[World] = set()
    schedule = fair(c)
    for w in durable.values():
        if not settles(elect(bare(w)), schedule, known):
            return w
    for w in list(live.values())[::LIVE_SAMPLE]:
        if not settles(bare(w), schedule, known):
            return w
    return None


def _line(w: World) -> str:
    """One state in one line; what is at rest is left out."""
    p, t = w.pointer, w.task
    parts = [f"now {w.now}  closed_to {p.closed}  current {p.current}  sweep {p.sweep}"]
    if w.leader.current != p.current:
        parts.append(f"in memory {w.leader.current}")
    if t.status:
        status = ("", "pending", "finished", "failed", "cancelled")[t.status]
        parts.append(f"task {status} at {t.start}")
    if w.row.due:
        parts.append(f"row due {w.row.due} for {w.row.place}")
    for name, value in (("lease", t.lease), ("next_at", t.next_at), ("revision", t.revision)):
        if value:
            parts.append(f"{name} {value}")
    return "  ".join(parts)
