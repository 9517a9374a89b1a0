"""explain: the sentences that a task's JSON becomes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from wheel_timer.cli.story import explain

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
TASK: dict[str, Any] = {
    "task_id": "01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d",
    "biz_type": "orders",
    "biz_id": None,
    "status": "pending",
    "start_time": "2026-12-01T09:10:00.000Z",
    "create_time": "2026-12-01T08:40:00.000Z",
    "life": 1,
    "attempts": 0,
    "failures": 0,
    "waiting": {"reason": "scheduled", "since": None, "until": None},
    "next_attempt_time": None,
    "finish_time": None,
    "expire_time": None,
    "last_error": None,
    "attempt_log": [],
}


def told(**changes: Any) -> list[str]:
    return explain({**TASK, **changes}, NOW)


def attempt(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "attempt": number,
        "life": 1,
        "due_time": "2026-12-01T08:50:00.000Z",
        "started_time": "2026-12-01T08:50:00.002Z",
        "duration_ms": 12,
        "outcome": "retry",
        "error_class": "status",
        "http_status": 503,
        "response_excerpt": "busy\n",
        **changes,
    }


def test_a_task_that_waits_for_its_moment() -> None:
    assert told() == [
        "Task 01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d of biz_type orders was submitted at"
        " 08:40:00.000 UTC, to be called 30 min later, at 09:10:00.000 UTC.",
        "The next call comes in 10 min, at 09:10:00.000 UTC: its moment has not come.",
    ]


def test_the_business_id_is_named() -> None:
    assert "known to its business as '1017'," in told(biz_id="1017")[0]


def test_a_task_in_backoff_says_what_failed_and_what_comes() -> None:
    story = told(
        start_time="2026-12-01T08:50:00.000Z",
        attempts=1,
        failures=1,
        waiting={"reason": "backoff", "since": None, "until": None},
        next_attempt_time="2026-12-01T09:00:03.400Z",
        attempt_log=[attempt(1)],
    )
    assert story[1:] == [
        "Attempt 1 began at 08:50:00.002 UTC, 2 ms after its moment: the endpoint answered 503"
        " after 12 ms (busy).",
        "The next call comes in 3.4 s, at 09:00:03.400 UTC: the last attempt failed, and it waits"
        " before the next.",
        "1 failure so far of those its retry policy allows.",
    ]


def test_a_finished_task() -> None:
    story = told(
        status="finished",
        attempts=1,
        waiting=None,
        finish_time="2026-12-01T08:50:00.014Z",
        expire_time="2026-12-31T08:50:00.014Z",
    )
    assert story[1:] == [
        "It is finished at 08:50:00.014 UTC, after 1 attempt.",
        "It is kept until 2026-12-31 08:50:00.014 UTC.",
    ]


def test_a_failed_task_says_why() -> None:
    story = told(status="failed", attempts=16, waiting=None, last_error="HTTP 500\nno such order")
    assert story[-1] == "It failed for good, after 16 attempts: HTTP 500 no such order."


def test_a_lost_attempt_is_told_as_such() -> None:
    lost = attempt(1, outcome="lost", error_class="lost", http_status=None, duration_ms=None)
    assert told(attempt_log=[lost])[1] == (
        "Attempt 1 began at 08:50:00.002 UTC, 2 ms after its moment: its broker, or the"
        " worker that held it, died or lost its lease."
    )


def test_of_many_attempts_the_first_and_the_last_are_told() -> None:
    story = told(attempt_log=[attempt(number) for number in range(1, 17)])
    attempts = [line.split(" began")[0] for line in story[1:-1]]
    assert attempts == [
        "Attempt 1",
        "... 8 attempts more ...",
        *(f"Attempt {n}" for n in range(10, 17)),
    ]


def test_a_start_time_in_the_past_means_at_once() -> None:
    story = told(start_time="2026-12-01T08:00:00.000Z")
    assert story[0].endswith("to be called at once.")
    assert story[1] == "The start_time asked for, 08:00:00.000 UTC, had already passed."


def test_of_a_late_attempt_it_is_told_where_the_time_went() -> None:
    late = attempt(
        1,
        published_time="2026-12-01T08:50:03.000Z",
        started_time="2026-12-01T08:50:05.500Z",
    )
    assert told(attempt_log=[late])[1].startswith(
        "Attempt 1 began at 08:50:05.500 UTC, 5.5 s after its moment (3 s until it was published,"
        " 2.5 s in its lane): "
    )
    ahead = attempt(
        1,
        published_time="2026-12-01T08:49:59.000Z",
        started_time="2026-12-01T08:50:05.500Z",
    )
    assert "5.5 s after its moment (5.5 s in its lane): " in told(attempt_log=[ahead])[1]


def test_a_held_lane_is_told_with_since_and_until() -> None:
    story = told(
        start_time="2026-12-01T08:50:00.000Z",
        next_attempt_time="2026-12-01T08:50:00.000Z",
        waiting={
            "reason": "breaker_open",
            "since": "2026-12-01T08:55:00.000Z",
            "until": "2026-12-01T09:00:30.000Z",
        },
    )
    assert story[-1] == (
        "The next call was due 10 min ago, at 08:50:00.000 UTC: the breaker of its biz_type is"
        " open: the endpoint kept failing, since 08:55:00.000 UTC, until 09:00:30.000 UTC at least."
    )
