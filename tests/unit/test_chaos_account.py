"""What `make chaos` counts: each kind of fault in an account is found, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from tests.chaos.account import CANCELLED, FAILED, FINISHED, PENDING, Account, account
from tests.chaos.case import Case
from tests.chaos.log import Books, Called, Plan, Row, Submitted
from tests.chaos.world import World

S = 1_000_000_000
MS = 1_000_000
START_MS = 1_800_000_000_000


async def _nothing(world: World) -> None:
    """No fault."""


CASE = Case(name="none", what="nothing", fault=_nothing)


class Run:
    """Books of a run of ten seconds; the fault from the third to the fourth."""

    def __init__(self) -> None:
        start_ns = START_MS * MS
        self.books = Books(start_ns + 3 * S, start_ns + 4 * S, (start_ns, start_ns + 10 * S))

    def task(
        self,
        biz_id: str,
        due_ms: int = 2_000,
        *,
        late_ms: float | None = 1.0,
        status: int = FINISHED,
        plan: Plan = "plain",
    ) -> Submitted:
        """A task due so long after the start; its call where it is given how late."""
        due = START_MS + due_ms
        task = Submitted(biz_id, plan, [due], accepted_ns=START_MS * MS)
        self.books.submitted[biz_id] = task
        self.books.rows.append(Row(biz_id, "id", status, due, START_MS, 0, 0, 0))
        if late_ms is not None:
            self.called(biz_id, due_ms, late_ms)
        return task

    def called(self, biz_id: str, due_ms: int, late_ms: float, status: int = 200) -> None:
        due = START_MS + due_ms
        arrival_ns = round((due + late_ms) * MS)
        self.books.called.append(
            Called(arrival_ns, biz_id, "id", due, status, arrival_ns // S, 0, 1)
        )

    def account(self, case: Case = CASE) -> Account:
        return account(self.books, case)


def test_a_run_without_a_flaw_is_found_to_have_none() -> None:
    run = Run()
    run.task("a")
    run.task("b", status=FAILED, plan="dies")
    cancelled = run.task("c", late_ms=None, status=CANCELLED)
    cancelled.cancel, cancelled.cancel_ns = "yes", START_MS * MS
    unanswered = run.task("d", late_ms=None, status=FINISHED)
    unanswered.accepted_ns = None
    run.books.rows.pop()
    found = run.account()
    assert (found.tasks, found.lost, found.early, found.contradictions) == (3, [], [], [])
    assert (found.duplicates, found.recovery_s, found.before_ms) == (0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (PENDING, "still pending"),
        (FINISHED, "finished without a call"),
        (FAILED, "failed, though its endpoint would have taken it"),
        (CANCELLED, "cancelled by nobody"),
    ],
)
def test_a_task_that_ended_nowhere_or_wrongly_is_lost(status: int, says: str) -> None:
    run = Run()
    run.task("a", late_ms=None, status=status)
    assert run.account().lost == [f"a: {says}"]


def test_an_accepted_task_that_is_not_in_the_database_is_lost() -> None:
    run = Run()
    run.task("a", late_ms=None)
    run.books.rows.clear()
    assert run.account().lost == ["a: accepted, and not in the database"]


def test_a_call_before_its_moment_is_early_by_the_clock_of_the_database() -> None:
    run = Run()
    run.task("a", late_ms=-1.0)
    run.task("b", late_ms=1.0)
    run.books.called[-1] = run.books.called[-1]._replace(offset_ms=-5)
    assert run.account().early == ["a: called 1.0 ms early", "b: called 4.0 ms early"]


def test_a_call_for_a_moment_nobody_asked_for_is_found() -> None:
    run = Run()
    run.task("a")
    run.called("a", 9_000, 1.0)
    assert [line.split(": ")[1] for line in run.account().early] == [
        f"called for {START_MS + 9_000}, which nobody asked for"
    ]


def test_duplicates_are_the_calls_that_no_recorded_attempt_explains() -> None:
    run = Run()
    run.task("a")
    run.called("a", 2_000, 50.0)
    run.called("a", 2_000, 90.0)
    run.books.rows[-1] = run.books.rows[-1]._replace(retries=1, lost=1)
    assert run.account().duplicates == 1
    assert run.account().duplicates_max == 0
    assert run.account(dataclasses.replace(CASE, duplicates=None)).duplicates_max == 1


def test_an_answer_that_the_endpoint_contradicts_is_found() -> None:
    run = Run()
    cancelled = run.task("a")
    cancelled.cancel, cancelled.cancel_ns = "yes", START_MS * MS
    moved = run.task("b")
    moved.asked_ms.append(START_MS + 5_000)
    moved.move, moved.move_ns = "yes", START_MS * MS
    found = run.account().contradictions
    assert found == [
        "a: called after its cancel was answered: attempt 1, 2001.0 ms later",
        "a: not cancelled, though the answer said so",
        "b: called for the time it was moved away from",
    ]
    assert run.account(dataclasses.replace(CASE, contradicts=True)).contradictions == []


def test_a_call_begun_before_the_answer_contradicts_nothing_however_late_it_is_read() -> None:
    run = Run()
    cancelled = run.task("a", status=CANCELLED)
    cancelled.cancel, cancelled.cancel_ns = "yes", START_MS * MS + 1_500 * MS
    call = run.books.called[-1]
    run.books.called[-1] = call._replace(signed_s=call.signed_s - 1)
    row, answer_ms = run.books.rows[-1], START_MS + 1_500
    found = ["a: called after its cancel was answered: attempt 1, 501.0 ms later"]
    for ended, contradictions in (
        ({}, found),
        # Its broker gave it up before the answer, or never said what became of it.
        ({"1": answer_ms}, []),
        ({"1": None}, []),
        ({"1": answer_ms + 1}, found),
        ({"2": answer_ms}, found),
    ):
        run.books.rows[-1] = row._replace(ended_ms=ended)
        assert run.account().contradictions == contradictions


def test_recovery_is_when_what_is_due_comes_on_time_again() -> None:
    run = Run()
    for number in range(300):
        due_ms = 1_000 + number * 30
        run.task(f"n{number}", due_ms, late_ms=900.0 if 3_000 <= due_ms < 6_000 else 1.0)
    found = run.account()
    # One in a hundred of those after the fault is forgiven: the last two of two seconds' worth.
    assert 1.9 < found.recovery_s < 2.0
    assert 2.8 < found.last_s < 3.0
    assert found.before_ms == 1.0


@pytest.mark.parametrize("neighbours_late", [False, True])
def test_who_a_fault_is_nothing_to_is_late_for_no_reason(neighbours_late: bool) -> None:
    run = Run()
    for number in range(300):
        due_ms = 1_000 + number * 30
        is_late = 3_000 <= due_ms < 4_000 and neighbours_late == bool(number % 2)
        task = run.task(f"n{number}", due_ms, late_ms=900.0 if is_late else 1.0)
        task.is_neighbour = bool(number % 2)
    found = run.account()
    assert found.disturbed == neighbours_late
    assert found.neighbours_ms == pytest.approx(900.0 if neighbours_late else 1.0)
