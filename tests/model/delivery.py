"""
Brokers: claim, and settle with success. A failure is a client transaction (writers.py).

The entry stays in the lane until it is acknowledged: brokers keep references pending in Redis
until the settle, and take over those of a dead one. It may be dropped whenever a claim would
refuse it for good, which covers a late acknowledgement and second copies alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model import rules as r
from tests.model.state import (
    BURNED,
    EARLY,
    FAILED,
    FINISHED,
    LEASE,
    PENDING,
    SETTLED_CALLED,
    TWICE_CLAIMED,
    WRONG_DATA,
    Attempt,
    Config,
    Requeue,
    World,
)
from tests.model.writers import Step

ATTEMPTS_MAX = 2


def claim(w: World, c: Config) -> Sequence[Step]:
    """
    "attempts + 1, lease_until = now + ... where pending, lease run out or null, next_at passed";
    "the claim itself refuses what lies ahead by the database's clock"; "A lease that had run out
    counts one failure"; "What is ... out of failures is settled without a call" (section 7).

    Any entry may be claimed at any time: a broker whose clock is wrong is held by the claim only.
    """
    task, now = w.task, w.now
    steps: list[Step] = []
    for place in w.redis.entries:
        here = task.status == PENDING and task.start == place
        if not here and c.without is not r.CLAIM_PENDING:
            continue
        leased, deferred = task.lease > now, task.next_at > now
        if (leased and c.without is not r.CLAIM_LEASE) or (
            deferred and c.without is not r.CLAIM_NEXT_AT
        ):
            continue
        if (task.start > now and c.without is not r.CLAIM_EARLY) or len(w.attempts) == ATTEMPTS_MAX:
            continue
        failures = task.failures + (task.lease != 0)
        if failures >= c.failures_max:
            dead = task._replace(status=FAILED, failures=failures, lease=0)
            steps.append(("claim: out of failures, failed", w._replace(task=dead)))
            continue
        new = task._replace(attempts=task.attempts + 1, lease=now + LEASE, failures=failures)
        attempt = Attempt(new.attempts, new.revision, now + LEASE, new.data)
        alarm = w.alarm
        if not here:
            alarm = SETTLED_CALLED
        elif now < task.start:
            alarm = EARLY
        elif now < task.next_at:
            alarm = BURNED
        elif any(a.until > now and a.revision == task.revision for a in w.attempts):
            alarm = TWICE_CLAIMED
        done = w._replace(task=new, attempts=tuple(sorted((*w.attempts, attempt))), alarm=alarm)
        steps.append(("claim", done))
    return steps


def _drop(w: World, place: int) -> Step:
    """Not claimed: acknowledged and dropped."""
    entries = list(w.redis.entries)
    entries.remove(place)
    return ("entry acknowledged", w._replace(redis=w.redis._replace(entries=tuple(entries))))


def succeed(w: World, c: Config) -> Sequence[Step]:
    """
    "Success needs status = pending and revision = mine" (section 7).

    The settle may drop the requeue row at once, or leave it to the hand (section 5).
    """
    steps: list[Step] = []
    for i, attempt in enumerate(w.attempts):
        done = w._replace(attempts=w.attempts[:i] + w.attempts[i + 1 :])
        task = w.task
        mine = task.revision == attempt.revision or c.without is r.SUCCESS_REVISION
        if task.status == PENDING and mine:
            done = done._replace(task=task._replace(status=FINISHED, lease=0))
            if task.data != attempt.data:
                done = done._replace(alarm=WRONG_DATA)
            if w.row.due:
                steps.append(("attempt succeeds, row dropped", done._replace(row=Requeue())))
        steps.append(("attempt succeeds", done))
    return steps


def die(w: World, c: Config) -> Sequence[Step]:
    """The broker of an attempt dies in the call; its lease runs out."""
    return [
        ("attempt's broker dies", w._replace(attempts=w.attempts[:i] + w.attempts[i + 1 :]))
        for i in range(len(w.attempts))
    ]
