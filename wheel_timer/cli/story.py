"""
`explain`: a task's life told in sentences. Pure: the JSON of GET /v1/tasks/{id} in, text out.

The order is the reader's: what it is and when it was due, what happened, what comes next and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from wheel_timer.cli.moments import clock_time, in_words, parse_rfc3339

_TOLD_ATTEMPTS: Final = 8  # of a longer log, the first and the last
_LATE_MS: Final = 100  # from here on it is told where the time went

_WAITING: Final = {
    "scheduled": "its moment has not come",
    "queued": "it stands in its lane behind others that are due",
    "rate_limited": "the rate limit of its biz_type holds it",
    "concurrency": "as many calls of its biz_type are running as may",
    "breaker_open": "the breaker of its biz_type is open: the endpoint kept failing",
    "paused": "its biz_type is paused",
    "backoff": "the last attempt failed, and it waits before the next",
    "released": "its endpoint, or a worker, put it off",
    "event_center": "the event center is away; brokers read it straight from Postgres",
}

_ERRORS: Final = {
    "dns": "the host's name could not be resolved",
    "connect": "no connection was to be had",
    "tls": "the TLS handshake failed",
    "timeout": "no complete answer came in time",
    "reset": "the connection broke off",
    "refused": "the endpoint refused the connection, or its address may not be called",
    "lost": "its broker, or the worker that held it, died or lost its lease",
    "superseded": "the task had been changed or settled meanwhile, so its result did not count",
}


def explain(task: Mapping[str, Any], now: datetime) -> list[str]:
    """Sentences, each a line or two. now: aware, by the server's clock where it is known."""
    return [
        *_beginning(task, now),
        *_attempts(task.get("attempt_log") or (), now),
        *_ending(task, now),
    ]


def _beginning(task: Mapping[str, Any], now: datetime) -> Iterator[str]:
    start = parse_rfc3339(task["start_time"])
    created = parse_rfc3339(task["create_time"])
    ahead_ms = _ms_between(created, start)
    named = f", known to its business as {task['biz_id']!r}," if task.get("biz_id") else ""
    due = (
        f"to be called {in_words(ahead_ms)} later, at {clock_time(start, now)}"
        if ahead_ms > 0
        else "to be called at once"
    )
    yield (
        f"Task {task['task_id']} of biz_type {task['biz_type']}{named} was submitted at"
        f" {clock_time(created, now)}, {due}."
    )
    if ahead_ms < -1:
        yield f"The start_time asked for, {clock_time(start, now)}, had already passed."
    if (task.get("life") or 1) > 1:
        yield f"It was started anew after it had been settled: this is life {task['life']}."


def _attempts(log: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[str]:
    if len(log) <= _TOLD_ATTEMPTS:
        yield from (_attempt(entry, now) for entry in log)
        return
    yield _attempt(log[0], now)
    yield f"... {len(log) - _TOLD_ATTEMPTS} attempts more ..."
    yield from (_attempt(entry, now) for entry in log[1 - _TOLD_ATTEMPTS :])


def _attempt(entry: Mapping[str, Any], now: datetime) -> str:
    """`Attempt 1 began at 09:00:00.001 UTC, 0.8 ms after its moment: 503 after 12 ms, ...`"""
    told = f"Attempt {entry['attempt']}"
    if entry.get("started_time"):
        started = parse_rfc3339(entry["started_time"])
        told += f" began at {clock_time(started, now)}"
        if entry.get("due_time"):
            late_ms = _ms_between(parse_rfc3339(entry["due_time"]), started)
            told += f", {in_words(late_ms)} after its moment" if late_ms >= 1 else ", on its moment"
            if late_ms >= _LATE_MS and entry.get("published_time"):
                told += _where_it_went(entry, late_ms)
    return f"{told}: {_result(entry)}."


def _where_it_went(entry: Mapping[str, Any], late_ms: float) -> str:
    """` (3.2 s until it was published, 12 ms in its lane)`: what was ours, what its lane's."""
    published = parse_rfc3339(entry["published_time"])
    ours_ms = min(late_ms, max(0.0, _ms_between(parse_rfc3339(entry["due_time"]), published)))
    lane_ms = late_ms - ours_ms
    parts = []
    if ours_ms >= 1:
        parts.append(f"{in_words(ours_ms)} until it was published")
    if lane_ms >= 1:
        parts.append(f"{in_words(lane_ms)} in its lane")
    return f" ({', '.join(parts)})"


def _result(entry: Mapping[str, Any]) -> str:
    status, error = entry.get("http_status"), entry.get("error_class")
    took = entry.get("duration_ms")
    after = f" after {in_words(took)}" if took is not None else ""
    said = f" ({_short(entry['response_excerpt'])})" if entry.get("response_excerpt") else ""
    if status is not None:
        told = f"the endpoint answered {status}{after}{said}"
        return told + (f", but {_ERRORS[error]}" if error in ("lost", "superseded") else "")
    if error in _ERRORS:
        said = f" ({_short(entry['error'])})" if entry.get("error") else ""
        return _ERRORS[error] + said + after
    return str(entry.get("outcome") or "it ended without an answer") + after


def _ending(task: Mapping[str, Any], now: datetime) -> Iterator[str]:
    status = task["status"]
    finish = parse_rfc3339(task["finish_time"]) if task.get("finish_time") else None
    when = f" at {clock_time(finish, now)}" if finish else ""
    if status == "finished":
        yield f"It is finished{when}, after {_count(task['attempts'], 'attempt')}."
    elif status == "failed":
        why = f": {_short(task['last_error'])}" if task.get("last_error") else ""
        yield f"It failed for good{when}, after {_count(task['attempts'], 'attempt')}{why}."
    elif status == "cancelled":
        yield f"It was cancelled{when}; it is not called any more."
    elif status == "delivering":
        yield "It is being called right now."
    else:
        yield from _waiting(task, now)
    if status in ("finished", "failed", "cancelled") and task.get("expire_time"):
        yield f"It is kept until {clock_time(parse_rfc3339(task['expire_time']), now)}."


def _waiting(task: Mapping[str, Any], now: datetime) -> Iterator[str]:
    waiting = task.get("waiting") or {}
    reason = _WAITING.get(waiting.get("reason", ""), "it is due")
    due = parse_rfc3339(task.get("next_attempt_time") or task["start_time"])
    left_ms = _ms_between(now, due)
    if left_ms > 0:
        yield f"The next call comes in {in_words(left_ms)}, at {clock_time(due, now)}: {reason}."
    else:
        late = f"The next call was due {in_words(-left_ms)} ago, at {clock_time(due, now)}"
        since = parse_rfc3339(waiting["since"]) if waiting.get("since") else due
        if _ms_between(due, since) >= _LATE_MS:
            reason += f", since {clock_time(since, now)}"
        if waiting.get("until"):
            reason += f", until {clock_time(parse_rfc3339(waiting['until']), now)} at least"
        yield f"{late}: {reason}."
    if task.get("failures"):
        yield f"{_count(task['failures'], 'failure')} so far of those its retry policy allows."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else line[:99] + "…"


def _ms_between(first: datetime, second: datetime) -> float:
    return (second - first).total_seconds() * 1_000
