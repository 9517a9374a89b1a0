"""
What is counted and measured: the list of metrics below is whole, and nothing else is exposed.

All names begin with `wheel_timer_`; times are seconds. The rest of the code calls the functions at
the end, one a thing that happens.

Every process writes files into the directory PROMETHEUS_MULTIPROC_DIR, and any of them answers
/metrics with the sum over all: so no scrape goes down because another worker answered it, and what
a dead worker had counted stays counted. Whoever starts processes sets the variable, and tells
prometheus_client (`mark_process_dead`) when one dies, so that its gauges are forgotten. A process
on its own makes itself a directory.

Beyond METRICS_BIZ_TYPES the label biz_type is `other`.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
    values,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from wheel_timer.version import __version__

DIRECTORY_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
OTHER: Final = "other"
_BIZ_TYPE_LABEL: Final = re.compile(rb'[{,]biz_type="([^"]*)"')


def _make_directory() -> None:
    """A directory of this process alone, gone with it."""
    directory = tempfile.mkdtemp(prefix="wheel-timer-metrics-")
    os.environ[DIRECTORY_VARIABLE] = directory
    atexit.register(shutil.rmtree, directory, ignore_errors=True)


if not os.environ.get(DIRECTORY_VARIABLE):
    _make_directory()
# The library decides when it is first imported, which may have been before the variable was set.
values.ValueClass = values.MultiProcessValue()

_REGISTRY: Final = CollectorRegistry()
_PREFIX: Final = "wheel_timer"
# A millisecond is what we promise, an hour what an outage takes.
_LATENESS_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)
_CALL_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0)
_REQUEST_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)

_counter: Final = partial(Counter, namespace=_PREFIX, registry=_REGISTRY)
_gauge: Final = partial(Gauge, namespace=_PREFIX, registry=_REGISTRY)
_histogram: Final = partial(Histogram, namespace=_PREFIX, registry=_REGISTRY)

_PUBLISH_LATENESS: Final = _histogram(
    "publish_lateness_seconds",
    "How long after it was to be a task was published, 0 where ahead of it: the lateness we cause.",
    ["shard"],
    buckets=_LATENESS_S,
)
_LATENESS: Final = _histogram(
    "lateness_seconds",
    "How long after max(start_time, create_time) the first callback started.",
    ["biz_type"],
    buckets=_LATENESS_S,
)
_CALLBACK_DURATION: Final = _histogram(
    "callback_duration_seconds",
    "How long one callback took, from DNS to the last byte.",
    ["biz_type"],
    buckets=_CALL_S,
)
_CALLBACKS: Final = _counter(
    "callbacks_total", "Attempts, by what came of them.", ["biz_type", "outcome"]
)
_REPEATS: Final = _counter(
    "repeats_total",
    "Calls that may have been made before: the last broker was lost, the database was restored, or"
    " a kept connection broke before it answered.",
    ["reason"],
)
_TASKS_SUBMITTED: Final = _counter(
    "tasks_submitted_total", "Tasks accepted and committed.", ["biz_type"]
)
_TASKS_SETTLED: Final = _counter(
    "tasks_settled_total", "Tasks settled, by status.", ["biz_type", "status"]
)
_TASKS_REJECTED: Final = _counter(
    "tasks_rejected_total", "Submits refused, by problem type.", ["reason"]
)
_NEAR_UNPUBLISHED: Final = _counter(
    "near_unpublished_total",
    "Near tasks that could not be published directly, or found no room: their row brings them.",
)
_HAND_LAG: Final = _gauge(
    "hand_lag_seconds",
    "How far a hand is behind the clock.",
    ["shard", "hand"],
    multiprocess_mode="livemostrecent",
)
_LEADER: Final = _gauge(
    "leader", "1 where a daemon leads the shard.", ["shard"], multiprocess_mode="livemax"
)
_SWEPT: Final = _counter(
    "swept_total", "Tasks that the sweep found unpublished or undelivered.", ["reason"]
)
_REAPED: Final = _counter(
    "tasks_reaped_total", "Tasks deleted after their retention, by status.", ["status"]
)
_PARTITIONS_EMPTIED: Final = _counter(
    "partitions_emptied_total", "Partitions of the wheel that were truncated."
)
_REQUEUE_ROWS: Final = _gauge(
    "requeue_rows",
    "Requeue rows by reason, as Postgres estimated them when it last analyzed the table.",
    ["reason"],
    multiprocess_mode="livemostrecent",
)
_OLDEST_DUE: Final = _gauge(
    "oldest_due_seconds",
    "How long ago the task was due that waits longest, in a broker or in line for its lane.",
    multiprocess_mode="livemax",
)
_LANE_INFLIGHT: Final = _gauge(
    "lane_inflight", "Callbacks under way.", ["biz_type"], multiprocess_mode="livesum"
)
_LANE_HELD: Final = _counter(
    "lane_held_seconds_total",
    "How long lanes held back what was due, and why.",
    ["biz_type", "reason"],
)
_LANE_DEPTH: Final = _gauge(
    "lane_depth",
    "References in the hands of brokers that no callback was started for.",
    ["biz_type"],
    multiprocess_mode="livesum",
)
_BREAKER_OPEN: Final = _gauge(
    "breaker_open",
    "Brokers whose breaker for the biz_type is open, or lets probes through only.",
    ["biz_type"],
    multiprocess_mode="livesum",
)
_AUDIT_VIOLATIONS: Final = _gauge(
    "audit_violations",
    "Rows that the last GET /v1/audits found and that must not be; 1,000 is the most it shows.",
    ["audit"],
    multiprocess_mode="livemostrecent",
)
_PENDING_TASKS: Final = _gauge(
    "pending_tasks",
    "Tasks to be called yet, shown by the leader of shard 0 as the ledger counts them.",
    ["biz_type"],
    multiprocess_mode="livesum",
)
_DEAD_TASKS: Final = _gauge(
    "dead_tasks",
    "Tasks in status failed, shown by the leader of shard 0 as the ledger counts them.",
    ["biz_type"],
    multiprocess_mode="livesum",
)
_CLOCK_OFFSET: Final = _gauge(
    "clock_offset_seconds",
    "The database's clock less this machine's.",
    multiprocess_mode="livemostrecent",
)
_CLOCK_JUMP: Final = _gauge(
    "clock_jump_seconds",
    "How far the database's clock has jumped forward, 0 unless that holds the hands and the calls.",
    multiprocess_mode="livemax",
)
_DATABASE_UP: Final = _gauge(
    "database_up", "1 while Postgres answers.", multiprocess_mode="livemostrecent"
)
_EVENT_CENTER_UP: Final = _gauge(
    "event_center_up", "1 while Redis answers.", multiprocess_mode="livemostrecent"
)
_HTTP_REQUESTS: Final = _counter("http_requests_total", "Requests answered.", ["route", "code"])
_HTTP_REQUEST_DURATION: Final = _histogram(
    "http_request_duration_seconds",
    "From a request's first byte to its answer's last.",
    ["route"],
    buckets=_REQUEST_S,
)
_LOG_LINES_DROPPED: Final = _counter(
    "log_lines_dropped_total", "Log lines that a blocked stdout did not take."
)
_BUILD_INFO: Final = _gauge(
    "build_info",
    "Always 1: the labels say what runs.",
    ["version", "python"],
    multiprocess_mode="livemax",
)


class _BizLabels:
    """The biz_types that have a label of their own: the first so many that this process meets."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._known: set[str] = set()

    def label(self, biz_type: str) -> str:
        if biz_type in self._known or biz_type == OTHER:
            return biz_type
        if len(self._known) >= self.limit:
            return OTHER
        self._known.add(biz_type)
        return biz_type


_biz_labels: Final = _BizLabels(limit=100)
# The labels that pending_tasks and dead_tasks were shown under.
_standing: Final[set[str]] = set()


def set_up(biz_types_max: int) -> None:
    """Once at start. biz_types_max: METRICS_BIZ_TYPES."""
    _biz_labels.limit = biz_types_max
    _BUILD_INFO.labels(__version__, platform.python_version()).set(1)
    for reason in ("undelivered", "behind_the_hand", "event_center_away", "event_center_lost"):
        _SWEPT.labels(reason)  # from 0 on: of a counter that begins at 1 Prometheus sees no rise


def published(shard: int, latenesses_s: Iterable[float]) -> None:
    """Tasks were published so long after they were to be; a negative lateness is ahead of that."""
    histogram = _PUBLISH_LATENESS.labels(str(shard))
    for lateness_s in latenesses_s:
        histogram.observe(max(0.0, lateness_s))


def callback_started(biz_type: str, lateness_s: float) -> None:
    """A first callback began, so long after max(start_time, create_time)."""
    _LATENESS.labels(_biz_labels.label(biz_type)).observe(lateness_s)


def callback_ended(biz_type: str, outcome: str, duration_s: float) -> None:
    label = _biz_labels.label(biz_type)
    _CALLBACKS.labels(label, outcome).inc()
    _CALLBACK_DURATION.labels(label).observe(duration_s)


def repeat(reason: str) -> None:
    """reason: lost, restored, resent."""
    _REPEATS.labels(reason).inc()


def tasks_submitted(biz_type: str, tasks: int) -> None:
    _TASKS_SUBMITTED.labels(_biz_labels.label(biz_type)).inc(tasks)


def tasks_settled(biz_type: str, status: str, tasks: int) -> None:
    _TASKS_SETTLED.labels(_biz_labels.label(biz_type), status).inc(tasks)


def tasks_rejected(reason: str, tasks: int = 1) -> None:
    """reason: the name of a problem type."""
    _TASKS_REJECTED.labels(reason).inc(tasks)


def near_unpublished(tasks: int) -> None:
    _NEAR_UNPUBLISHED.inc(tasks)


def hand_lag(shard: int, hand: str, lag_s: float) -> None:
    """hand: due, sweep, reap."""
    _HAND_LAG.labels(str(shard), hand).set(lag_s)


def leads(shard: int, is_leader: bool) -> None:
    _LEADER.labels(str(shard)).set(1 if is_leader else 0)


def swept(reason: str, tasks: int) -> None:
    _SWEPT.labels(reason).inc(tasks)


def reaped(status: str, tasks: int) -> None:
    _REAPED.labels(status).inc(tasks)


def partition_emptied() -> None:
    _PARTITIONS_EMPTIED.inc()


def requeue_rows(rows: Mapping[str, int]) -> None:
    """By reason; one that is not named has none."""
    for reason, count in rows.items():
        _REQUEUE_ROWS.labels(reason).set(count)


def oldest_due(age_s: float) -> None:
    """Of what waits in this process, or in Postgres by its look; 0: nothing is late."""
    _OLDEST_DUE.set(max(0.0, age_s))


def lane_state(biz_type: str, before: tuple[int, int, bool], now: tuple[int, int, bool]) -> None:
    """
    Of this process: callbacks under way, references that wait for one, and the breaker; what they
    were when this was told last, and what they are. `other` is the sum of its biz_types.
    """
    label = _biz_labels.label(biz_type)
    for gauge, was, value in zip(
        (_LANE_INFLIGHT, _LANE_DEPTH, _BREAKER_OPEN), before, now, strict=True
    ):
        gauge.labels(label).inc(value - was)


def lane_held(biz_type: str, reason: str, held_s: float) -> None:
    """reason: paused, breaker_open, rate_limited, concurrency."""
    _LANE_HELD.labels(_biz_labels.label(biz_type), reason).inc(held_s)


def audit_violations(audit: str, rows: int) -> None:
    _AUDIT_VIOLATIONS.labels(audit).set(rows)


def tasks_standing(totals: Mapping[str, tuple[int, int]]) -> None:
    """By biz_type: tasks pending, tasks dead. Of a biz_type that is not named there are none."""
    sums = dict.fromkeys(_standing, (0, 0))
    for biz_type, (pending, dead) in totals.items():
        label = _biz_labels.label(biz_type)
        before = sums.get(label, (0, 0))
        sums[label] = before[0] + max(pending, 0), before[1] + max(dead, 0)
    for label, (pending, dead) in sums.items():
        _PENDING_TASKS.labels(label).set(pending)
        _DEAD_TASKS.labels(label).set(dead)
    _standing.update(sums)


def clock_offset(offset_s: float) -> None:
    _CLOCK_OFFSET.set(offset_s)


def clock_jump(ahead_s: float) -> None:
    """0: the clock is followed."""
    _CLOCK_JUMP.set(ahead_s)


def database_up(is_up: bool) -> None:
    _DATABASE_UP.set(1 if is_up else 0)


def event_center_up(is_up: bool) -> None:
    _EVENT_CENTER_UP.set(1 if is_up else 0)


def http_request(route: str, code: int, duration_s: float) -> None:
    """route: the path's pattern, never the path."""
    _HTTP_REQUESTS.labels(route, str(code)).inc()
    _HTTP_REQUEST_DURATION.labels(route).observe(duration_s)


def log_lines_dropped(lines: int) -> None:
    _LOG_LINES_DROPPED.inc(lines)


def scrape(sees: Callable[[str], bool] | None = None) -> bytes:
    """
    /metrics: the sum over all processes of the directory, in Prometheus' text format.

    sees: of the series, only those of the biz_types that it says yes to; None: all.
    """
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    text = generate_latest(registry)
    if sees is None:
        return text
    return b"".join(line for line in text.splitlines(keepends=True) if _is_seen(line, sees))


def _is_seen(line: bytes, sees: Callable[[str], bool]) -> bool:
    if line.startswith(b"#"):
        return True
    found = _BIZ_TYPE_LABEL.search(line)
    # `other` is the sum over biz_types of all kinds.
    return found is not None and found[1] != OTHER.encode() and sees(found[1].decode())
