"""
The account of a run: submit log, endpoint log and database, task by task.

After Jepsen's total-queue: what went in must come out. Pure: books in, an account out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.bench.figure import percentile
from tests.chaos.case import LATE_MS, Case
from tests.chaos.log import Books, Called, Row, Submitted

PENDING, FINISHED, FAILED, CANCELLED = range(4)
# One in a hundred may be late for reasons of the machine, and all may be twice as late as the
# latest in a hundred was before anything happened.
LATE_SHARE: Final = 0.01
NOISE: Final = 2.0
NS: Final = 1_000_000_000


@dataclass
class Account:
    """
    What became of the tasks. lost, early, contradictions: a sentence each; repeats: one for each
    task with duplicates or lost attempts. duplicates: calls that nothing recorded explains.
    before_ms, after_ms: p99 lateness of what was due before the fault began and once it should be
    over, None where nothing was. recovery_s: until what was due was on time again. last_s: from the
    fault's end to the last late call. disturbed: whether neighbours noticed the fault;
    neighbours_ms: their p99 since it began.
    """

    tasks: int = 0
    lost: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    repeats: list[str] = field(default_factory=list)
    duplicates: int = 0
    duplicates_max: int = 0
    lost_attempts: int = 0
    before_ms: float | None = None
    after_ms: float | None = None
    recovery_s: float = 0.0
    last_s: float = 0.0
    neighbours_ms: float | None = None
    disturbed: bool = False


def account(books: Books, case: Case) -> Account:
    """Compare the books of one run."""
    calls: dict[str, list[Called]] = defaultdict(list)
    for call in books.called:
        calls[call.biz_id].append(call)
    rows = {row.biz_id: row for row in books.rows}
    found = Account(tasks=sum(1 for s in books.submitted.values() if s.accepted_ns is not None))
    for biz_id in (calls.keys() | rows.keys()) - books.submitted.keys():
        found.contradictions.append(f"{biz_id} was never submitted")
    for task in books.submitted.values():
        row, own = rows.get(task.biz_id), calls.get(task.biz_id, [])
        if reason := _lost(task, row, own):
            found.lost.append(f"{task.biz_id}: {reason}")
        found.early += _early(task, own)
        if not case.contradicts:
            found.contradictions += _contradictions(task, row, own)
        if row is not None:
            again = max(0, len(own) - 1 - row.retries)
            found.duplicates += again
            found.lost_attempts += row.lost
            if again or row.lost:
                came = ", ".join(f"{c.attempt} at {c.arrival_ms:.0f}" for c in own)
                found.repeats.append(
                    f"{task.biz_id}: for {row.start_time_ms}, attempts that came: {came};"
                    f" recorded with their end: {dict(row.ended_ms)}"
                )
    found.duplicates_max = found.lost_attempts if case.duplicates is None else case.duplicates
    _time(found, books, case, calls, rows)
    return found


def _lost(task: Submitted, row: Row | None, calls: list[Called]) -> str | None:
    """Why an accepted task is lost; None where it is not."""
    if row is None:
        return None if task.accepted_ns is None else "accepted, and not in the database"
    if row.status == PENDING:
        return "still pending"
    if row.status == FINISHED and not any(200 <= call.status < 300 for call in calls):
        return "finished without a call"
    if row.status == FAILED and task.plan != "dies":
        return "failed, though its endpoint would have taken it"
    if row.status == CANCELLED and task.cancel is None:
        return "cancelled by nobody"
    return None


def _early(task: Submitted, calls: list[Called]) -> list[str]:
    early = [
        f"{task.biz_id}: called {call.start_time_ms - call.arrival_ms:.1f} ms early"
        for call in calls
        if call.arrival_ms < call.start_time_ms
    ]
    early += [
        f"{task.biz_id}: called for {call.start_time_ms}, which nobody asked for"
        for call in calls
        if call.start_time_ms not in task.asked_ms
    ]
    return early


def _contradictions(task: Submitted, row: Row | None, calls: list[Called]) -> list[str]:
    """Where the API said one thing and the endpoint saw another."""
    found = []
    if len({call.task_id for call in calls} | ({row.task_id} if row else set())) > 1:
        found.append(f"{task.biz_id}: two tasks of one biz_id")

    def began_after(call: Called, answer_ns: int) -> bool:
        began_ns = round((call.signed_s * 1000 - call.offset_ms) * 1e6)
        if began_ns > answer_ns or call.arrival_ns <= answer_ns:
            return began_ns > answer_ns
        # What its broker had given up before the answer (a timeout, the last attempt of the task
        # or not) may have lain unread at the endpoint for a while.
        return row is None or not row.was_over(call.attempt, answer_ns / 1e6 + call.offset_ms)

    if task.cancel == "yes":
        found += [
            f"{task.biz_id}: called after its cancel was answered: attempt {call.attempt},"
            f" {(call.arrival_ns - task.cancel_ns) / 1e6:.1f} ms later"
            for call in calls
            if began_after(call, task.cancel_ns)
        ]
    if task.cancel == "yes" and row is not None and row.status != CANCELLED:
        found.append(f"{task.biz_id}: not cancelled, though the answer said so")
    if task.move == "yes" and any(
        began_after(call, task.move_ns) and call.start_time_ms != task.asked_ms[-1]
        for call in calls
    ):
        found.append(f"{task.biz_id}: called for the time it was moved away from")
    return found


class _First(NamedTuple):
    """The first call of a task, and when it was due, in ns of this machine."""

    is_neighbour: bool

    due_ns: int
    arrival_ns: int
    late_ms: float


def _time(
    found: Account,
    books: Books,
    case: Case,
    calls: dict[str, list[Called]],
    rows: dict[str, Row],
) -> None:
    """How late the first call of each task came, before, during and after the fault."""
    firsts = [
        _first(books.submitted[biz_id], rows[biz_id], own[0])
        for biz_id, own in calls.items()
        if biz_id in rows and biz_id in books.submitted
    ]
    from_ns, judged_ns = books.load_ns[0] + NS, books.ended_ns + round(case.recovery_s * NS)
    before = sorted(
        one.late_ms for one in firsts if from_ns <= one.due_ns and one.arrival_ns < books.began_ns
    )
    after = sorted(one.late_ms for one in firsts if one.due_ns >= judged_ns)
    found.before_ms = percentile(before, 99) if before else None
    found.after_ms = percentile(after, 99) if after else None
    late_ms = max(LATE_MS, NOISE * (found.before_ms or 0.0))
    beside = sorted(one.late_ms for one in firsts if one.is_neighbour and one.due_ns >= from_ns)
    if beside:
        found.neighbours_ms = percentile(beside, 99)
        found.disturbed = found.neighbours_ms > late_ms
    late = [one for one in firsts if one.late_ms > late_ms and one.due_ns >= books.began_ns]
    if late:
        found.last_s = max(0.0, (max(one.arrival_ns for one in late) - books.ended_ns) / NS)
    since = sorted(one.due_ns for one in late if one.due_ns >= books.ended_ns)
    forgiven = int(sum(one.due_ns >= books.ended_ns for one in firsts) * LATE_SHARE)
    if len(since) > forgiven:
        found.recovery_s = (since[-1 - forgiven] - books.ended_ns) / NS


def _first(task: Submitted, row: Row, call: Called) -> _First:
    due_ms = max(call.start_time_ms, row.create_time_ms, row.renew_time_ms)
    late_ms = call.arrival_ms - due_ms
    return _First(
        task.is_neighbour, call.arrival_ns - round(late_ms * 1e6), call.arrival_ns, late_ms
    )
