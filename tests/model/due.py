"""The due hand: a tick in its steps (DESIGN sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.model import rules as r
from tests.model.leader import fence_is_free, made_durable, noting_stale, persist, seat, who_is
from tests.model.state import (
    ADVANCE,
    BARRIER,
    CLOSE,
    COMMIT,
    DEFER,
    DROP,
    IDLE,
    LOOK_AHEAD,
    NO_VERDICT,
    OTHER,
    PAGE,
    PENDING,
    PERSIST,
    PUBLISH,
    READ_FRESH,
    READ_REQUEUE,
    SEND,
    SETVAL,
    STALE_WRITE,
    TWICE_PUBLISHED,
    VISIBILITY,
    Config,
    Hand,
    Requeue,
    World,
    ahead,
)
from tests.model.writers import NOTHING, Step, push


def tick(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """The next step of the due hand's tick (sections 4 and 5), with those joined to it."""
    steps = _STEP[hand.phase](w, c, hand)
    if not c.joined:
        return steps
    done: list[Step] = []
    for label, after in steps:
        mine = after.leader if hand is w.leader else after.zombie
        if mine is not None and mine.phase in c.joined:
            done += [(f"{label}; {more}", last) for more, last in tick(after, c, mine)]
        else:
            done.append((label, after))
    return done


def _idle(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    return _barrier(w, c, hand) if c.without is r.BARRIER_AFTER_CLOSE else _close(w, c, hand)


def _close(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """
    "lock the pointer row where epoch = mine; setval closed_to = greatest(itself, current_time,
    least(h, database clock + look-ahead)); commit" (section 4). One step, as the row is locked.
    """
    if hand.epoch != w.pointer.epoch and c.without is not r.CLOSE_EPOCH:
        return ((f"{who_is(w, hand)}: close refused, steps down", seat(w, hand, None)),)
    pointer = w.pointer
    steps: list[Step] = []
    for ahead_of_clock in c.asks:
        asked = w.now + LOOK_AHEAD + ahead_of_clock
        h = asked if c.without is r.CLOSE_CLOCK else min(asked, w.now + LOOK_AHEAD)
        if c.without is not r.CLOSE_CURRENT:
            h = max(h, pointer.current)
        if c.without is not r.CLOSE_ITSELF:
            h = max(h, pointer.closed)
        if h == pointer.closed and h <= hand.current:
            continue  # nothing new to close
        mine = hand._replace(h=asked if c.without is r.TICK_H else h)
        who = who_is(w, hand)
        if c.without is r.CLOSE_LOCK:
            steps.append((f"{who}: reads closed_to", seat(w, hand, mine._replace(phase=SETVAL))))
            continue
        after = READ_FRESH if c.without is r.BARRIER_AFTER_CLOSE else _after_close(c)
        if c.without is r.BARRIER_TAKEN:
            mine = mine._replace(fenced=True)
        done = seat(noting_stale(w, hand), hand, mine._replace(phase=after))
        done = done._replace(pointer=pointer._replace(closed=h))
        steps.append((f"{who}: close({h})", done))
    return steps


def _after_close(c: Config) -> int:
    if c.without is r.BARRIER_TAKEN or c.without is r.READ_AFTER_BARRIER:
        return READ_FRESH
    return BARRIER


def _setval(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """Only without the lock on the pointer row: setval with a value computed before."""
    done = seat(w, hand, hand._replace(phase=BARRIER))
    done = done._replace(pointer=w.pointer._replace(closed=hand.h))
    return ((f"{who_is(w, hand)}: setval({hand.h})", done),)


def _barrier(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """
    "take and at once release the exclusive fence"; "a barrier that times out makes the tick an
    unfenced one" (section 4). It can time out only where somebody holds the fence.
    """
    if c.without is r.BARRIER_AFTER_CLOSE:
        after = CLOSE
    else:
        after = PUBLISH if c.without is r.READ_AFTER_BARRIER else READ_FRESH
    if fence_is_free(w, c):
        mine = hand._replace(phase=after, fenced=True)
        return ((f"{who_is(w, hand)}: barrier passed", seat(w, hand, mine)),)
    mine = hand._replace(phase=after, fenced=False)
    return ((f"{who_is(w, hand)}: barrier times out", seat(w, hand, mine)),)


def _low(c: Config, hand: Hand) -> int:
    """
    Where the tick's range begins, exclusive: current_time; in an unfenced tick "the last
    unfenced h"; "the next fenced tick reads the range again" (section 4).
    """
    low = hand.current
    remembers = c.without is r.FENCED_REREADS or not hand.fenced
    if remembers and c.without is not r.UNFENCED_REMEMBERS:
        low = max(low, hand.unfenced)
    return low - 1 if c.without is r.RANGE_OPEN else low


def _read_fresh(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """ "read pending rows in (current_time, h]" (section 5)."""
    task = w.task
    found = task.status == PENDING and _low(c, hand) < task.start <= hand.h
    mine = hand._replace(phase=READ_REQUEUE, fresh=task.start if found else 0)
    told = _tell(w, c, hand, 0, task.start) if found else w
    return ((f"{who_is(w, hand)}: reads fresh rows", seat(told, hand, mine)),)


def _read_requeue(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """
    "requeue rows due in it"; "A row whose task is settled is dropped; one whose task is leased
    or has a later next_at is re-armed to that moment, not published" (section 5).
    """
    row, task = w.row, w.task
    verdict, place, moment = NO_VERDICT, 0, 0
    told = w
    if _low(c, hand) < row.due <= hand.h:
        if task.status != PENDING or task.start != row.place:
            verdict = DROP
        elif task.lease > w.now:
            verdict, moment = DEFER, task.lease
            if c.without is r.LEASED_REARMED:
                verdict, moment = DROP, 0
        elif task.next_at > w.now:
            verdict, moment = DEFER, task.next_at
            if c.without is r.DEFERRED_REARMED:
                verdict, moment = DROP, 0
        else:
            verdict, place = SEND, row.place
            told = _tell(w, c, hand, 1, row.due)
    mine = hand._replace(verdict=verdict, place=place, moment=moment)
    if c.without is r.READ_AFTER_BARRIER:
        mine = mine._replace(phase=BARRIER)
    elif mine.fresh or verdict == SEND:
        mine = mine._replace(phase=PUBLISH)
    else:
        mine = _after_publish(c, mine)
    return ((f"{who_is(w, hand)}: reads requeue rows", seat(told, hand, mine)),)


def _tell(w: World, c: Config, hand: Hand, row: int, moment: int) -> World:
    """Ghost: what the hand is about to publish; the same due moment again is an alarm."""
    if not c.track_once:
        return w
    i = row + (0 if hand.fenced else 2)
    if w.told[i] == moment:
        return w._replace(alarm=TWICE_PUBLISHED)
    told = list(w.told)
    told[i] = moment
    return w._replace(told=tuple(told))


def _after_publish(c: Config, hand: Hand) -> Hand:
    """
    An unfenced tick ends here: "it does not move current_time and writes, re-arms and drops no
    requeue row" (section 4). A fenced one writes its page, then moves.
    """
    writes = hand.verdict != NO_VERDICT or (hand.overflow and hand.fresh)
    if not hand.fenced:
        unfenced = hand.h
        if c.without is r.UNFENCED_WRITES_NOTHING and writes:
            return hand._replace(phase=PAGE, unfenced=unfenced)
        if c.without is not r.UNFENCED_STAYS:
            return Hand(hand.epoch, hand.current, hand.stood, unfenced, sweep=hand.sweep)
        return hand._replace(phase=ADVANCE)
    if writes and c.without is not r.ADVANCE_LAST:
        return hand._replace(phase=PAGE)
    return hand._replace(phase=ADVANCE)


def _publish(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """ "publish each page by one server-side script that checks the epoch" (section 5)."""
    who, redis = who_is(w, hand), w.redis
    if redis.epoch > hand.epoch and c.without is not r.EPOCH_PUBLISH:
        return ((f"{who}: publish refused, steps down", seat(w, hand, None)),)
    done = w if redis.epoch <= hand.epoch else w._replace(alarm=STALE_WRITE)
    redis = redis._replace(epoch=hand.epoch)
    if c.has_lane:
        for place in (hand.fresh, hand.place):
            redis = push(redis, place) if place else redis
    mine = _after_publish(c, hand)
    steps = [(f"{who}: publish", seat(done, hand, mine)._replace(redis=redis))]
    if c.overflow and hand.fenced:
        mine = _after_publish(c, hand._replace(overflow=c.without is not r.OVERFLOW_ROW))
        steps.append((f"{who}: the lane refuses the page", seat(w, hand, mine)))
    return steps


def _page(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """The page's own transaction begins: the shared fence, then closed_to (section 4)."""
    if not w.pointer.closed and c.without is not r.UNSET_RAISES:
        return NOTHING
    who = who_is(w, hand)
    if hand.epoch != w.pointer.epoch and c.without is not r.EPOCH_PAGE:
        return ((f"{who}: page refused, steps down", seat(w, hand, None)),)
    closed = w.pointer.closed
    if hand.verdict == DEFER and not hand.overflow:
        due = ahead(hand.moment, closed, c, r.FLOOR_DEFER)
    else:
        floor = r.FLOOR_OVERFLOW if hand.overflow else r.FLOOR_REARM
        due = ahead(w.now + VISIBILITY, closed, c, floor)
    done = seat(noting_stale(w, hand), hand, hand._replace(phase=COMMIT, due=due))
    return ((f"{who}: page: fence, closed_to", done),)


def _commit(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """
    Re-arm and drop "only where due_at <= h"; overflow rows "in a statement that locks the task
    and finds it still pending at that place" (section 5); where epoch = mine (section 6).
    """
    who = who_is(w, hand)
    row, task = w.row, w.task
    verdict = hand.verdict
    if verdict == SEND and c.without is r.SENT_REARMED:
        verdict = DROP
    if verdict and row.due and (row.due <= hand.h or c.without is r.ONLY_DUE):
        reason = OTHER if verdict == SEND else row.reason
        row = Requeue() if verdict == DROP else Requeue(hand.due, row.place, reason)
    if hand.overflow and hand.fresh:
        there = task.status == PENDING and task.start == hand.fresh
        if (there or c.without is r.OVERFLOW_LOCKS) and not (
            row.due and c.without is r.UPSERT_OVERFLOW
        ):
            row = Requeue(hand.due, hand.fresh)
    mine = hand._replace(phase=ADVANCE)
    if not hand.fenced or c.without is r.ADVANCE_LAST:
        mine = Hand(hand.epoch, hand.current, hand.stood, hand.unfenced, sweep=hand.sweep)
    done = seat(w, hand, mine)._replace(row=row)
    return ((f"{who}: page: re-arm, drop, overflow", made_durable(done)),)


def _advance(w: World, c: Config, hand: Hand) -> Sequence[Step]:
    """ "then current_time = h, ... in memory at once" (section 5)."""
    mine = Hand(hand.epoch, hand.h, hand.stood, sweep=hand.sweep)
    if c.without is r.ADVANCE_LAST and hand.verdict:
        mine = hand._replace(phase=PAGE, current=hand.h)
    done = seat(w, hand, mine)
    in_memory = ((f"{who_is(w, hand)}: current_time = {hand.h} in memory", done),)
    return persist(done, c, mine) or in_memory if PERSIST in c.joined else in_memory


_STEP = {
    IDLE: _idle,
    SETVAL: _setval,
    CLOSE: _close,
    BARRIER: _barrier,
    READ_FRESH: _read_fresh,
    READ_REQUEUE: _read_requeue,
    PUBLISH: _publish,
    PAGE: _page,
    COMMIT: _commit,
    ADVANCE: _advance,
}
