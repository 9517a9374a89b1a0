"""top: what is read of /metrics, what a picture looks like at several sizes, what keys do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from wheel_timer.cli.exits import REFUSED, UNREACHABLE, Failure
from wheel_timer.cli.readings import Lateness, Rates, Readings, quantile_ms, read_metrics
from wheel_timer.cli.screen import Screen, Sort
from wheel_timer.cli.server import Server
from wheel_timer.cli.topview import top_view
from wheel_timer.cli.watch import Picture, Watch

URL = "http://127.0.0.1:8080"
METRICS = """\
# HELP wheel_timer_tasks_submitted_total Tasks accepted and committed.
# TYPE wheel_timer_tasks_submitted_total counter
wheel_timer_tasks_submitted_total{{biz_type="orders"}} {submitted}
wheel_timer_tasks_submitted_total{{biz_type="other"}} 5.0
wheel_timer_tasks_settled_total{{biz_type="orders",status="finished"}} {finished}
wheel_timer_tasks_settled_total{{biz_type="orders",status="failed"}} 1.0
wheel_timer_callbacks_total{{biz_type="orders",outcome="finished"}} {finished}
wheel_timer_lateness_seconds_bucket{{biz_type="orders",le="0.001"}} {prompt}
wheel_timer_lateness_seconds_bucket{{biz_type="orders",le="0.5"}} {finished}
wheel_timer_lateness_seconds_bucket{{biz_type="orders",le="+Inf"}} {finished}
wheel_timer_publish_lateness_seconds_bucket{{le="+Inf",shard="0"}} {finished}
wheel_timer_audit_violations{{audit="lost"}} 2.0
wheel_timer_audit_violations{{audit="early"}} 0.0
wheel_timer_build_info{{python="3.12.1",version="0.1.0"}} 1.0
something_else 7
"""


def reading(read_s: float, **counts: float) -> Any:
    counts = {"submitted": 0.0, "finished": 0.0, "prompt": 0.0} | counts
    return read_metrics(METRICS.format(**counts), read_s)


def lane(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "biz_type": name,
        "pending": 0,
        "dead": 0,
        "depth": 0,
        "in_flight": 0,
        "oldest_due": None,
        "max_concurrency": 64,
        "rate_limit": None,
        "priority": 5,
        "paused": False,
        "breaker": "closed",
    } | changes


def picture(**changes: Any) -> Picture:
    lanes = changes.pop(
        "lanes",
        [
            lane("orders", pending=1_234_567, depth=12, in_flight=3, rate_limit=50.0),
            lane("refunds", pending=8, depth=1, oldest_due="2026-12-01T08:59:55.000Z"),
            lane("stopped", paused=True),
            lane("broken", dead=7, breaker="open"),
        ],
    )
    shard = {
        "shard": 0,
        "leader": "daemon-a",
        "epoch": 3,
        "closed_to": "2026-12-01T09:00:01.000Z",
        "current_time": "2026-12-01T09:00:00.500Z",
        "lag_ms": 0,
        "sweep_time": "2026-12-01T08:59:00.000Z",
        "reap_time": "1970-01-01T00:00:00.000Z",
    }
    node = {"alive": True, "version": "0.1.0", "heartbeat": "2026-12-01T08:59:50.000Z"}
    wheel = {
        "now": "2026-12-01T09:00:00.000Z",
        "brake": None,
        "clock_jump": None,
        "pending": 1_234_575,
        "dead": 7,
        "shards": [shard],
        "lanes": lanes,
    } | changes.pop("wheel", {})
    given: dict[str, Any] = {
        "nodes": [
            {"node": "a", "role": "broker"} | node,
            {"node": "b", "role": "broker"} | node,
            {"node": "gone", "role": "daemon"} | node | {"alive": False},
        ],
        "operations": [],
        "rates": Rates(120.0, 100.4, 0.0, 0.0, {"orders": 100.4}),
        "lateness": Lateness(1.0, 5.0, None),
        "violations": {},
    } | changes
    return Picture(datetime(2026, 12, 1, 9, tzinfo=UTC), wheel, **given)


def shown(one: Picture | None, columns: int = 80, lines: int | None = None, **chosen: Any) -> str:
    told = StringIO()
    console = Console(file=told, width=columns, highlight=False, force_terminal=False)
    console.print(top_view(one, URL, Screen(columns, lines, **chosen)))
    return told.getvalue()


def order(text: str) -> list[str]:
    names = ("orders", "refunds", "stopped", "broken")
    return [word for line in text.splitlines() for word in line.split()[:1] if word in names]


def test_rates_and_lateness_are_of_the_time_between_two_readings() -> None:
    readings = Readings()
    readings.add(reading(10.0, submitted=100, finished=50, prompt=50))
    assert (readings.rates(), readings.lateness()) == (None, None)
    readings.add(reading(12.0, submitted=140, finished=60, prompt=58))
    assert readings.rates() == Rates(20.0, 5.0, 0.0, 0.0, {"orders": 5.0})
    # Of the ten in between eight were prompt, and two under half a second.
    assert readings.lateness() == Lateness(1.0, 500.0, math.inf)
    assert readings.violations == {"lost": 2}


def test_percentiles_are_of_the_last_minute() -> None:
    readings = Readings()
    readings.add(reading(0.0))
    readings.add(reading(2.0, finished=100, prompt=0))
    for second in range(4, 71, 2):
        readings.add(reading(second, finished=100 + second, prompt=second))
    late = readings.lateness()
    assert late is not None
    assert late.p99_ms == 1.0


def test_counters_that_went_back_begin_anew() -> None:
    readings = Readings()
    readings.add(reading(0.0, submitted=100))
    readings.add(reading(2.0, submitted=3))
    assert readings.rates() is None
    readings.add(reading(4.0, submitted=5))
    assert readings.rates() == Rates(1.0, 0.0, 0.0, 0.0, {})


def test_a_bound_is_told_that_the_share_did_not_exceed() -> None:
    buckets = {0.001: 50.0, 0.01: 99.0, math.inf: 100.0}
    assert [quantile_ms(buckets, share) for share in (0.5, 0.51, 0.99, 1.0)] == [
        *(1.0, 10.0, 10.0, math.inf)
    ]
    assert quantile_ms({0.001: 0.0, math.inf: 0.0}, 0.5) is None
    assert quantile_ms({}, 0.5) is None


@pytest.mark.parametrize("columns", [40, 80, 110, 200])
@pytest.mark.parametrize("lines", [10, 24, 50])
def test_a_picture_fits_its_screen(columns: int, lines: int) -> None:
    many = [lane(f"{'long-name-' * 6}{n}", pending=10**7) for n in range(1_000)]
    busy = picture(
        lanes=many,
        wheel={"brake": {"reason": "moving " * 40, "since": "2026-12-01T08:00:00.000Z"}},
        violations={"lost": 1},
    )
    text = shown(busy, columns, lines, keys=True)
    written = text.splitlines()
    assert max(len(line) for line in written) <= columns
    if lines >= 24:
        assert len(written) == lines
        assert f"of {len(many):,}" in text or columns == 40


def test_what_matters_is_in_80_columns() -> None:
    text = shown(picture(), lines=24, keys=True)
    assert "pending 1,234,575  dead 7  submitted 120/s  finished 100/s" in text
    assert "late: half under 1 ms, 99% under 5 ms" in text
    assert "2 brokers  version 0.1.0  gone silent for 10 s" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["orders", "1.23M", "0", "12", "3", "100"] in rows
    assert ["refunds", "8", "0", "1", "0", "5", "s"] in rows
    assert ["broken", "0", "7", "0", "0", "breaker"] in rows
    assert ["stopped", "0", "0", "0", "0", "paused"] in rows
    assert ["0", "daemon-a", "3", "0", "ms", "09:00:00.500", "-1", "min"] in rows


def test_a_wide_screen_has_room_for_whole_numbers() -> None:
    assert "1,234,567" in shown(picture(), 120)
    assert "50" in shown(picture(), 120)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (Sort.LATE, ["refunds", "orders", "broken", "stopped"]),
        (Sort.DEPTH, ["orders", "refunds", "broken", "stopped"]),
        (Sort.PENDING, ["orders", "refunds", "broken", "stopped"]),
        (Sort.DEAD, ["broken", "orders", "refunds", "stopped"]),
        (Sort.RATE, ["orders", "refunds", "broken", "stopped"]),
        (Sort.NAME, ["broken", "orders", "refunds", "stopped"]),
    ],
)
def test_lanes_are_sorted(sort: Sort, expected: list[str]) -> None:
    assert order(shown(picture(), sort=sort)) == expected


def test_what_is_wrong_stands_at_the_top() -> None:
    operation = {
        "action": "replay",
        "filter": {"biz_type": "orders"},
        "done": 1_000,
        "matched": 2_000,
        "operation_id": "0f6e9a4e-7f0e-4b8e-9f1c-7c8a3a0b7d11",
    }
    text = shown(
        picture(
            wheel={
                "brake": {"reason": "the shop\x1b[2J moves", "since": "2026-12-01T08:57:00.000Z"},
                "clock_jump": {"ahead_ms": 60_000},
                "shards": [],
            },
            violations={"lost": 2},
            operations=[operation] * 5,
        ),
        160,
    )
    assert "the brake is on for 3 min: the shop?[2J moves" in text
    assert "the database's clock has jumped 1 min ahead" in text
    assert "violations at the last audit: lost 2" in text
    assert "operation replay orders, 1,000 of 2,000 met so far" in text
    assert "and 2 operations more" in text
    assert "\x1b[2J" not in text


def test_a_server_that_is_away_is_told_of_and_the_last_picture_stays() -> None:
    since = datetime(2026, 12, 1, 9, 0, 3, tzinfo=UTC)
    told: dict[str, Any] = {"failure": f"nothing answers at {URL} (refused)", "failed_since": since}
    expected = "no answer since 09:00:03 UTC, trying again: nothing answers (refused)"
    assert expected in shown(None, **told)
    text = shown(picture(), **told)
    assert expected in text
    assert order(text)
    assert "asking" in shown(None)


def test_without_the_event_center_its_numbers_are_questions() -> None:
    away = lane("orders", depth=None, in_flight=None, breaker=None)
    assert ["orders", "0", "0", "?", "?", "no", "redis"] in [
        line.split() for line in shown(picture(lanes=[away], rates=None)).splitlines()
    ]
    assert "no biz_types" in shown(picture(lanes=[], nodes=[], rates=None, lateness=None))


def test_keys_sort_scroll_and_pause() -> None:
    screen = Screen(80, 24, keys=True)
    assert screen.pressed("s", 9).sort is Sort.DEPTH
    assert screen._replace(sort=Sort.NAME).pressed("s", 9).sort is Sort.LATE
    assert screen.pressed("p", 9).is_paused
    assert not screen.pressed("p", 9).pressed(" ", 9).is_paused
    down = screen.pressed("page down", 12).pressed("down", 12).pressed("j", 12)
    assert down.first_lane == 11
    assert down.pressed("k", 12).first_lane == 10
    assert down.pressed("home", 12).first_lane == 0
    assert screen.pressed("up", 12) == screen.pressed("?", 12) == screen
    lanes = [lane(f"n{n:03d}") for n in range(100)]
    last = shown(picture(lanes=lanes), lines=24, first_lane=99, sort=Sort.NAME, keys=True)
    assert "n099" in last
    assert "of 100" in last


class Answers(Server):
    """A server of fixed answers, those that are Failures raised."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__(URL)
        self.answers = answers
        self.asked: list[str] = []

    def get(self, path: str, total_s: float = 0.0, /, **query: str | int) -> Any:
        self.asked.append(path)
        answer = self.answers[path]
        if isinstance(answer, Failure):
            raise answer
        return answer

    def text(self, path: str) -> str:
        return str(self.get(path))


def test_a_picture_costs_two_requests_and_now_and_then_a_third() -> None:
    running = {"state": "running", "operation_id": "1"}
    server = Answers(
        {
            "/v1/wheel": {"lanes": []},
            "/metrics": METRICS.format(submitted=1, finished=1, prompt=1),
            "/v1/nodes": {"items": []},
            "/v1/operations": {"items": [running, {"state": "done"}]},
        }
    )
    watch = Watch(server)
    assert list(watch.look().operations) == [running]
    assert len(server.asked) == 4
    second = watch.look()
    assert server.asked[4:] == ["/v1/wheel", "/metrics"]
    assert second.rates is not None
    assert second.as_json(URL)["lateness"]["p99_ms"] is None


def test_what_is_kept_from_a_key_is_left_out() -> None:
    refused, away = Failure("403 Forbidden", REFUSED), Failure("out of reach", UNREACHABLE)
    parts = {"/metrics": refused, "/v1/nodes": refused, "/v1/operations": refused}
    look = Watch(Answers({"/v1/wheel": {"lanes": []}} | parts)).look()
    assert (look.rates, look.lateness, look.nodes, look.operations) == (None, None, [], [])
    with pytest.raises(Failure):
        Watch(Answers({"/v1/wheel": away} | parts)).look()
