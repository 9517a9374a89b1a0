"""
Transactions of a held lane: its references become requeue rows far ahead (hold), which come back
when it is open (unhold); where a breaker has closed, retries come sooner (recall).

As in writers.py they take the fence and read closed_to, then write under the rows' locks.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model import rules as r
from tests.model.state import (
    HELD,
    HOLD,
    HOLDING,
    PENDING,
    RECALL,
    RETRIED,
    UNHOLD,
    VISIBILITY,
    Config,
    Requeue,
    World,
    Writer,
    ahead,
)


def begin(w: World, phase: int) -> Sequence[tuple[str, World]]:
    """A lane is held or opened at any time, its breaker closes at any time."""
    new = Writer(HOLDING, phase, w.pointer.closed, w.now)
    steps = [
        (f"hold({place}): fence, closed_to", w._replace(writer=new._replace(start=place)))
        for place in w.redis.entries
    ]
    if w.row.reason == HELD:
        back = new._replace(kind=UNHOLD)
        steps.append(("unhold: fence, closed_to", w._replace(writer=back)))
    if w.row.reason == RETRIED:
        sooner = new._replace(kind=RECALL)
        steps.append(("recall: fence, closed_to", w._replace(writer=sooner)))
    return steps


def hold(w: World, c: Config, writer: Writer) -> World:
    """
    "its requeue rows are re-armed an hour ahead" (section 7): a row for a task that is pending at
    its place, and not in a call; a retry's own row stays as long as the hand has not passed it.
    Then the entry is acknowledged.
    """
    task, row = w.task, w.row
    there = task.status == PENDING and task.start == writer.start and task.lease <= w.now
    waits = row.reason == RETRIED and row.due > writer.closed
    if (there or c.without is r.HOLD_LOCKS) and not waits:
        due = ahead(writer.now + HOLD, writer.closed, c, r.FLOOR_HOLD)
        row = Requeue(due, writer.start, HELD)
    entries = tuple(place for place in w.redis.entries if place != writer.start)
    return w._replace(row=row, redis=w.redis._replace(entries=entries))


def unhold(w: World, c: Config, writer: Writer) -> World:
    """ "resume pulls them forward" (section 7): a broker fetches them, and the row is its net."""
    if w.row.reason != HELD:
        return w
    due = ahead(writer.now + VISIBILITY, writer.closed, c, r.FLOOR_UNHOLD)
    return w._replace(row=Requeue(due, w.row.place))


def recall(w: World, c: Config, writer: Writer) -> World:
    """
    "when it closes the rows are pulled forward and backoff's next_at with them, task first"
    (section 7): only what waits for longer, and is not in a call.
    """
    task, row = w.task, w.row
    moment = ahead(writer.now, writer.closed, c, r.FLOOR_RECALL)
    waits = task.status == PENDING and row.place == task.start and task.next_at > moment
    if not waits or task.lease or row.reason != RETRIED:
        return w
    return w._replace(task=task._replace(next_at=moment), row=row._replace(due=moment))
