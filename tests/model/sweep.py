"""The sweep hand: one page, in two steps (DESIGN section 8)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.model import rules as r
from tests.model.leader import made_durable, noting_stale, seat, who_is
from tests.model.state import PENDING, SWEEP, Config, Hand, Requeue, World, ahead
from tests.model.writers import NOTHING, Step


def sweep(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """
    One page of the sweep, in two steps: under the fence, read closed_to and the pending tasks
    in (sweep_time, where current_time stood]; then insert their rows, ON CONFLICT DO NOTHING,
    and advance sweep_time, where epoch = mine, in one commit (section 8).

    The tasks are not locked: what commits is what the page's snapshot saw.
    """
    if hand.sweep is not None:
        return _commit(w, c, hand, hand.sweep)
    pointer = w.pointer
    stood = w.now if c.without is r.SWEEP_BEHIND else min(hand.stood, pointer.current)
    if c.without is r.SWEEP_STOOD or (not c.patient and c.without is not r.SWEEP_BEHIND):
        stood = pointer.current
    closed = pointer.closed
    if stood <= pointer.sweep or (not closed and c.without is not r.UNSET_RAISES):
        return NOTHING
    task, who = w.task, who_is(w, hand)
    there = task.status == PENDING and pointer.sweep < task.start <= stood
    due = ahead(w.now, closed, c, r.FLOOR_SWEEP)
    page = (due, task.start if there else 0, stood)
    opened = seat(w, hand, hand._replace(sweep=page))
    if c.without is r.SWEEP_ONE_TX:
        opened = opened._replace(pointer=pointer._replace(sweep=stood))
    steps = [(f"{who}: sweep: fence, closed_to, page", opened)]
    if there and c.cut_pages:
        # The page is full of other tasks of this millisecond; ours comes with the next page.
        to = task.start if c.without is r.SWEEP_WHOLE_MS else task.start - 1
        cut = seat(w, hand, hand._replace(sweep=(due, 0, to)))
        steps.append((f"{who}: sweep: fence, closed_to, page cut before the task", cut))
    if SWEEP not in c.joined:
        return steps
    done: list[Step] = []
    for label, after in steps:
        mine = after.leader if hand is w.leader else after.zombie
        if mine is not None and mine.sweep is not None:
            commit = _commit(after, c, mine, mine.sweep)
            done += [(f"{label}; {more}", last) for more, last in commit]
    return done


def _commit(w: World, c: Config, hand: Hand, page: tuple[int, int, int]) -> Sequence[Step]:
    who = who_is(w, hand)
    if hand.epoch != w.pointer.epoch and c.without is not r.EPOCH_SWEEP:
        return ((f"{who}: sweep refused, steps down", seat(w, hand, None)),)
    due, seen, to = page
    row = w.row
    there = w.task.status == PENDING and w.task.start == seen
    if c.without is r.SWEEP_LOCKS:
        there = seen != 0
    if there and (not row.due or c.without is r.SWEEP_NOTHING):
        row = Requeue(due, seen)
    done = seat(noting_stale(w, hand), hand, hand._replace(sweep=None))
    done = done._replace(row=row, pointer=w.pointer._replace(sweep=to))
    return ((f"{who}: sweep: rows and sweep_time = {to}", made_durable(done)),)
