"""
Who leads: election, the seats of the leader and of a zombie, the fence, the pointer row.

The same functions move the leader and the zombie, a former leader that does not know it yet.
A hand that is refused (its epoch is not the newest) steps down: a zombie is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model import rules as r
from tests.model.state import COMMIT, STALE_WRITE, Config, Hand, World
from tests.model.writers import NOTHING, Step, holds_fence


def seat(w: World, hand: Hand, new: Hand | None) -> World:
    """Put a hand back where it sat. A refused leader (new is None) is elected anew."""
    if hand is w.leader:
        return w._replace(leader=new) if new is not None else elect(w)
    return w._replace(zombie=new)


def elect(w: World) -> World:
    """
    A daemon takes the shard: "epoch + 1" (section 6). It knows only the pointer row.

    Its sweep waits one visibility time (stood 0).
    """
    epoch = w.pointer.epoch + 1
    return w._replace(
        pointer=w.pointer._replace(epoch=epoch), leader=Hand(epoch, w.pointer.current)
    )


def who_is(w: World, hand: Hand) -> str:
    return "leader" if hand is w.leader else "zombie"


def noting_stale(w: World, hand: Hand) -> World:
    """Note a write by an epoch that is not the newest."""
    return w if hand.epoch == w.pointer.epoch else w._replace(alarm=STALE_WRITE)


def _page_fence(hand: Hand | None, c: Config) -> bool:
    if hand is None:
        return False
    if hand.sweep is not None and c.without is not r.FENCE_SWEEP:
        return True
    rule = r.FENCE_OVERFLOW if hand.overflow else r.FENCE_REARM
    return hand.phase == COMMIT and c.without is not rule


def fence_is_free(w: World, c: Config) -> bool:
    """Nobody holds the shared fence, so the exclusive one is had at once."""
    return not (holds_fence(w.writer, c) or _page_fence(w.leader, c) or _page_fence(w.zombie, c))


def made_durable(w: World) -> World:
    """A synchronous commit makes every close and advance before it durable, too (WAL order)."""
    if w.durable is None:
        return w
    return w._replace(durable=(w.pointer.closed, w.pointer.current))


def persist(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """The pointer row follows: "current_time = h, where epoch is mine" (section 5)."""
    if hand.current == w.pointer.current or (hand.current < w.pointer.current and hand is w.leader):
        return NOTHING
    who = who_is(w, hand)
    if hand.epoch != w.pointer.epoch and c.without is not r.EPOCH_ADVANCE:
        return ((f"{who}: advance refused, steps down", seat(w, hand, None)),)
    done = noting_stale(w, hand)._replace(pointer=w.pointer._replace(current=hand.current))
    return ((f"{who}: current_time = {hand.current} in the row", done),)
