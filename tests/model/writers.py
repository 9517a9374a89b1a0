"""
Client transactions: submit, reschedule, replay, run, and a failed attempt's retry; those of a
held lane are in holding.py, those of the line in line.py.

Each has two phases, as in DESIGN section 4: it takes the shared fence and reads closed_to
(OPEN), then it writes and commits. Everything but closed_to is read under row locks at the
commit, so one step is exact for it. A near task is published afterwards, in a third step
(DIRECT), which a crash may swallow.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model import holding, line
from tests.model import rules as r
from tests.model.state import (
    ABSENT,
    CANCELLED,
    CANCELLED_CALLED,
    DIRECT,
    FAILED,
    FETCH,
    FINISHED,
    HOLDING,
    LOOKED,
    MOVE,
    NEAR,
    NET,
    OPEN,
    OTHER,
    PENDING,
    PULL,
    RECALL,
    REPLACE,
    REPLAY,
    RETRIED,
    RETRY,
    RUN,
    SUBMIT,
    UNHOLD,
    Config,
    Redis,
    Requeue,
    Task,
    World,
    Writer,
    ahead,
)

Step = tuple[str, World]
NOTHING: tuple[Step, ...] = ()

NAMES = {
    SUBMIT: "submit",
    MOVE: "move",
    REPLAY: "replay",
    RUN: "run",
    RETRY: "retry",
    REPLACE: "replace",
    HOLDING: "hold",
    UNHOLD: "unhold",
    RECALL: "recall",
    FETCH: "fetch",
    PULL: "pull",
}
FENCE = {
    SUBMIT: r.FENCE_SUBMIT,
    MOVE: r.FENCE_MOVE,
    REPLAY: r.FENCE_REPLAY,
    RUN: r.FENCE_RUN,
    RETRY: r.FENCE_RETRY,
    REPLACE: r.FENCE_REPLACE,
    HOLDING: r.FENCE_HOLD,
    UNHOLD: r.FENCE_UNHOLD,
    RECALL: r.FENCE_RECALL,
    FETCH: r.FENCE_FETCH,
    PULL: r.FENCE_PULL,
}
ROW = {REPLAY: r.REPLAY_ROW, RETRY: r.RETRY_ROW}
FLOOR = {REPLAY: r.FLOOR_REPLAY, RUN: r.FLOOR_RUN, RETRY: r.FLOOR_RETRY}
UPSERT = {
    MOVE: r.UPSERT_MOVE,
    REPLAY: r.UPSERT_REPLAY,
    RUN: r.UPSERT_REPLAY,
    RETRY: r.UPSERT_RETRY,
}


def holds_fence(writer: Writer | None, c: Config) -> bool:
    """The shared fence is held from the begin to the end of the transaction."""
    return writer is not None and writer.phase == OPEN and c.without is not FENCE[writer.kind]


def push(redis: Redis, place: int) -> Redis:
    """The lane has an entry for this place (one stands for any number of copies)."""
    if place in redis.entries:
        return redis
    return redis._replace(entries=tuple(sorted((*redis.entries, place))))


def may_change(w: World) -> bool:
    """PATCH and run answer 409 while the task is being delivered or once it is settled."""
    return w.task.status == PENDING and w.task.lease <= w.now


def changed(task: Task, c: Config) -> Task:
    """Another data: the revision "grows with every change" (section 3). data is a ghost."""
    if c.without is r.CHANGE_REVISION:
        return task._replace(data=task.data + 1)
    return task._replace(data=task.data + 1, revision=task.revision + 1)


def begin(w: World, c: Config) -> Sequence[Step]:
    """
    "takes pg_advisory_xact_lock_shared first, then reads closed_to, then writes" (section 4).

    Raises (does nothing) where the sequence was never set (section 3).
    """
    if w.writer is not None:
        return NOTHING
    closed = w.pointer.closed
    if not closed and c.without is not r.UNSET_RAISES:
        return NOTHING
    phase = LOOKED if c.without is r.CLOSED_AFTER_FENCE else OPEN
    task = w.task
    if task.status == ABSENT:
        return [
            (
                f"submit({s}): fence, closed_to",
                w._replace(writer=Writer(SUBMIT, phase, closed, w.now, s)),
            )
            for s in c.starts
        ]
    steps: list[Step] = []
    if w.changes and c.mind:
        steps += _begin_mind(w, c, phase)
    elif w.changes:
        if task.status == PENDING and task.lease <= w.now:
            left = w.changes - 1
            steps += [
                (
                    f"move({s}): fence, closed_to",
                    w._replace(writer=Writer(MOVE, phase, closed, w.now, s), changes=left),
                )
                for s in c.moves
                if s != task.start
            ]
            if c.delivery and task.next_at > w.now:
                new = Writer(RUN, phase, closed, w.now)
                steps.append(("run: fence, closed_to", w._replace(writer=new, changes=left)))
        elif c.delivery and task.status in (FINISHED, FAILED):
            new = Writer(REPLAY, phase, closed, w.now)
            steps.append(
                ("replay: fence, closed_to", w._replace(writer=new, changes=w.changes - 1))
            )
    for i, attempt in enumerate(w.attempts):
        rest = w.attempts[:i] + w.attempts[i + 1 :]
        new = Writer(RETRY, phase, closed, w.now, token=attempt.token, revision=attempt.revision)
        steps.append(("attempt fails: fence, closed_to", w._replace(writer=new, attempts=rest)))
    if c.lines:
        steps += line.begin(w, phase)
    if c.holds:
        steps += holding.begin(w, phase)
    return steps


def _begin_mind(w: World, c: Config, phase: int) -> Sequence[Step]:
    """A replace, whatever the task is at; a settled task again."""
    closed, left = w.pointer.closed, w.changes - 1
    steps = [
        (
            f"replace({s}): fence, closed_to",
            w._replace(writer=Writer(REPLACE, phase, closed, w.now, s), changes=left),
        )
        for s in c.moves
    ]
    if w.task.status in (FINISHED, FAILED, CANCELLED):
        new = Writer(REPLAY, phase, closed, w.now)
        steps.append(("replay: fence, closed_to", w._replace(writer=new, changes=left)))
    return steps


def go_on(w: World, c: Config) -> Sequence[Step]:
    """Take the fence late (only without that rule); or write and commit; or publish directly."""
    writer = w.writer
    if writer is None:
        return NOTHING
    name = NAMES[writer.kind]
    if writer.phase == LOOKED:
        return ((f"{name}: fence at last", w._replace(writer=writer._replace(phase=OPEN))),)
    if writer.phase == DIRECT:
        redis = push(w.redis, writer.start) if c.has_lane else w.redis
        return (
            (f"{name}: direct publish", w._replace(writer=None, redis=redis)),
            (f"{name}: crash before the direct publish", w._replace(writer=None)),
        )
    done = _COMMIT[writer.kind](w._replace(writer=None), c, writer)
    if w.durable is not None:
        done = done._replace(durable=(w.pointer.closed, w.pointer.current))
    lost = (f"{name}: crash, rollback", w._replace(writer=None))
    if DIRECT in c.joined and done.writer is not None:
        told = [(f"{name}: commit; {label}", after) for label, after in go_on(done, c)]
        return (*told, lost)
    return ((f"{name}: commit", done), lost)


def _place(w: World, c: Config, writer: Writer, task: Task, row: Requeue) -> World:
    """
    A pending task at writer.start: near ones with their net, the others bare.

    "A near task also gets a requeue row, the net: due_at = greatest(its moment, closed_to) + 2 s;
    ... the broker publishes the reference itself after the commit" (section 4).
    row: the requeue row that stays where none is written.
    """
    start = writer.start
    to = writer.now + NEAR
    if c.without is not r.NEAR_CLOSED:
        to = max(to, writer.closed)
    if start > to:
        return w._replace(task=task, row=row)
    net = start if c.without is r.NET_BEYOND else max(start, writer.closed)
    direct = Writer(writer.kind, DIRECT, 0, 0, start)
    return w._replace(task=task, row=Requeue(net + NET, start), writer=direct)


def _submit(w: World, c: Config, writer: Writer) -> World:
    """
    Insert the task, and the net where it is near. "own id already there = accepted" (section 4):
    a batch that is sent again writes nothing for it, not the net either.
    """
    if w.task.status == ABSENT:
        done = _place(w, c, writer, Task(PENDING, writer.start, writer.start), w.row)
        return done._replace(row=Requeue()) if c.without is r.NET_ROW else done
    if c.without is r.RESEND_NOTHING:
        due = max(writer.start, writer.closed) + NET
        return w._replace(row=w.row._replace(due=due) if w.row.due else Requeue(due, writer.start))
    return w


def _move(w: World, c: Config, writer: Writer) -> World:
    """
    Reschedule: "the old row becomes moved, the new row is inserted, the requeue row is deleted
    or (new time already closed) upserted with the new place"; next_at and the lease are cleared
    (section 3).
    """
    if not may_change(w):
        return w
    task = changed(w.task, c)._replace(start=writer.start, lease=0, next_at=0)
    done = _place(w, c, writer, task, w.row if c.without is r.MOVE_DELETES else Requeue())
    keeps = c.without is r.MOVE_UPSERTS or (c.without is r.UPSERT_MOVE and w.row.due)
    return done._replace(row=w.row) if keeps and done.row.due else done


def _again(w: World, c: Config, writer: Writer, task: Task, wanted: int) -> World:
    """The same place once more, by a requeue row (DO UPDATE); published directly where near."""
    kind = writer.kind
    reason = RETRIED if c.holds and kind == RETRY else OTHER
    row = Requeue(ahead(wanted, writer.closed, c, FLOOR[kind]), task.start, reason)
    if c.without is not None and (
        c.without is ROW.get(kind) or (c.without is UPSERT[kind] and w.row.due)
    ):
        row = w.row
    direct = Writer(kind, DIRECT, 0, 0, task.start) if wanted <= writer.now + NEAR else None
    return w._replace(task=task, row=row, writer=direct)


def _replay(w: World, c: Config, writer: Writer) -> World:
    """A settled task again: pending, a new revision, the budget anew, due now."""
    if w.task.status not in (FINISHED, FAILED, CANCELLED):
        return w
    old = w.task
    task = Task(PENDING, old.start, old.home, old.revision + 1, old.attempts, data=old.data)
    if old.start > writer.now:
        # Cancelled before its moment: it waits for that again, as a new task would.
        return _place(w, c, writer._replace(start=old.start), task, Requeue())
    return _again(w, c, writer, task, writer.now)


def _replace(w: World, c: Config, writer: Writer) -> World:
    """
    on_duplicate: replace. Another moment and data, the whole budget; while it is being delivered,
    too: the lease is cleared, and the running call is of an older revision (section 3).
    """
    old = w.task
    revision = old.revision if c.without is r.REPLACE_REVISION else old.revision + 1
    task = Task(PENDING, writer.start, old.home, revision, old.attempts, data=old.data + 1)
    return _place(w, c, writer, task, Requeue())


def _run(w: World, c: Config, writer: Writer) -> World:
    """Due now although its backoff is not over: "run and replay clear next_at" (section 7)."""
    if not may_change(w):
        return w
    task = w.task._replace(revision=w.task.revision + 1, lease=0, next_at=0)
    return _again(w, c, writer, task, writer.now)


def _retry(w: World, c: Config, writer: Writer) -> World:
    """
    A failure: "sets next_at and the requeue row in one statement"; "failure needs revision and
    attempts = mine" (section 7). Out of failures it settles the task and leaves the row alone.
    """
    task = w.task
    if task.status != PENDING or task.revision != writer.revision:
        return w
    if task.attempts != writer.token and c.without is not r.FAILURE_ATTEMPTS:
        return w
    failures = task.failures + 1
    if failures >= c.failures_max:
        return w._replace(task=task._replace(status=FAILED, failures=failures, lease=0))
    at = writer.now + c.backoff
    task = task._replace(failures=failures, lease=0, next_at=at)
    return _again(w, c, writer, task, at)


_COMMIT = {
    SUBMIT: _submit,
    MOVE: _move,
    REPLAY: _replay,
    RUN: _run,
    RETRY: _retry,
    REPLACE: _replace,
    HOLDING: holding.hold,
    UNHOLD: holding.unhold,
    RECALL: holding.recall,
    FETCH: line.fetch,
    PULL: line.pull,
}


def change_data(w: World, c: Config) -> Sequence[Step]:
    """PATCH of biz_data alone: in place, a new revision, while no attempt holds the lease."""
    if not w.changes or c.mind or not c.delivery or not may_change(w):
        return NOTHING
    return (("change the data", w._replace(task=changed(w.task, c), changes=w.changes - 1)),)


def cancel(w: World, c: Config) -> Sequence[Step]:
    """
    "After a 200 no callback starts": only where no lease runs, under the task's lock, with its
    requeue row (section 3). A lease that has run out is a broker's that may not start any more.
    """
    if not w.changes or not c.mind or w.task.status != PENDING:
        return NOTHING
    if w.task.lease > w.now and c.without is not r.CANCEL_LEASE:
        return NOTHING
    task = w.task._replace(status=CANCELLED, lease=0, next_at=0)
    done = w._replace(task=task, row=Requeue(), changes=w.changes - 1)
    if any(a.until > w.now and a.revision == task.revision for a in w.attempts):
        done = done._replace(alarm=CANCELLED_CALLED)
    return (("cancel", done),)
