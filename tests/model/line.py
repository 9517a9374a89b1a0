"""
Transactions of the line in Postgres: a broker that does without the event center takes a row out of
it (fetch); the leader pulls rows forward, where a lane has room again or the event center was lost.

As in writers.py they take the fence and read closed_to, then write under the row's lock. Which rows
stand in line is left open: any may be fetched or pulled.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model import rules as r
from tests.model.state import FETCH, PULL, VISIBILITY, Config, Requeue, World, Writer, ahead


def begin(w: World, phase: int) -> Sequence[tuple[str, World]]:
    """The event center is away for a broker, or back, at any time."""
    if not w.row.due:
        return ()
    new = Writer(FETCH, phase, w.pointer.closed, w.now)
    return (
        ("fetch: fence, closed_to", w._replace(writer=new)),
        ("pull: fence, closed_to", w._replace(writer=new._replace(kind=PULL))),
    )


def fetch(w: World, c: Config, writer: Writer) -> World:
    """
    "Brokers read overflow and near rows ..., then set their rows to reason published" (section 8):
    due again after a visibility time. What the broker does with the reference, and whether it
    lives, the searches of claims and of a lost Redis show.
    """
    row = w.row
    if not row.due:
        return w
    due = ahead(writer.now + VISIBILITY, writer.closed, c, r.FLOOR_FETCH)
    return w._replace(row=Requeue() if c.without is r.FETCH_KEEPS_ROW else row._replace(due=due))


def pull(w: World, c: Config, writer: Writer) -> World:
    """ "pulls forward what a publish had re-armed" (section 8): in front of the due hand."""
    row = w.row
    if row.due <= writer.closed + 1:
        return w
    return w._replace(row=row._replace(due=ahead(writer.now, writer.closed, c, r.FLOOR_PULL)))
