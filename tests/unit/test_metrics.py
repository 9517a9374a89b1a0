"""The list of metrics, their names, and the bound on their labels."""

from __future__ import annotations

import re

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from wheel_timer import metrics


def _families() -> dict[str, Metric]:
    text = metrics.scrape().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.fixture
def touched() -> None:
    """Every function was called once, so every metric has a sample."""
    metrics.set_up(biz_types_max=100)
    metrics.published(0, [0.1])
    metrics.callback_started("orders", 0.001)
    metrics.callback_ended("orders", "finished", 0.05)
    metrics.repeat("lost")
    metrics.tasks_submitted("orders", 2)
    metrics.tasks_settled("orders", "finished", 1)
    metrics.tasks_rejected("invalid-request")
    metrics.near_unpublished(1)
    metrics.tasks_standing({"orders": (2, 1)})
    metrics.hand_lag(0, "due", 0.0)
    metrics.leads(0, True)
    metrics.swept("unpublished", 1)
    metrics.requeue_rows({"near": 3})
    metrics.oldest_due(1.0)
    metrics.reaped("finished", 1)
    metrics.partition_emptied()
    metrics.lane_state("orders", (0, 0, False), (3, 2, True))
    metrics.lane_held("orders", "paused", 1.0)
    metrics.audit_violations("lost", 0)
    metrics.clock_offset(0.01)
    metrics.clock_jump(0.0)
    metrics.database_up(True)
    metrics.event_center_up(True)
    metrics.http_request("/v1/tasks", 201, 0.003)
    metrics.log_lines_dropped(1)


@pytest.mark.usefixtures("touched")
def test_every_metric_is_exposed_under_our_prefix_with_its_meaning() -> None:
    families = _families()
    assert len(families) == 31
    for name, family in families.items():
        assert name.startswith("wheel_timer_")
        assert family.documentation.endswith(".")
        assert family.samples, name
        if family.type == "histogram":
            assert name.endswith("_seconds")


@pytest.mark.usefixtures("touched")
def test_the_text_is_what_prometheus_reads() -> None:
    for line in metrics.scrape().decode().splitlines():
        assert line.startswith("# ") or re.fullmatch(r"[a-z_]+(\{[^}]*\})? [0-9.e+-]+", line), line


def test_beyond_the_limit_a_biz_type_is_other(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = metrics._BizLabels(limit=2)
    assert [labels.label(name) for name in ("a", "b", "c", "a", "d")] == [
        *("a", "b", "other", "a", "other")
    ]


def test_other_is_the_sum_of_its_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_biz_labels", metrics._BizLabels(limit=0))
    resting = (0, 0, False)
    metrics.lane_state("one", resting, (2, 5, True))
    metrics.lane_state("two", resting, (1, 1, False))
    metrics.lane_state("two", (1, 1, False), resting)
    families = _families()
    shown = [
        sample.value
        for name in ("lane_inflight", "lane_depth", "breaker_open")
        for sample in families[f"wheel_timer_{name}"].samples
        if sample.labels["biz_type"] == "other"
    ]
    metrics.lane_state("one", (2, 5, True), resting)
    assert shown == [2.0, 5.0, 1.0]


def test_a_task_published_ahead_of_its_moment_is_not_late() -> None:
    metrics.published(7, [-0.5, -0.1])
    samples = _families()["wheel_timer_publish_lateness_seconds"].samples
    ahead = {
        sample.name.rpartition("_")[2]: sample.value
        for sample in samples
        if sample.labels["shard"] == "7" and sample.labels.get("le") in (None, "0.001")
    }
    assert ahead == {"bucket": 2.0, "count": 2.0, "sum": 0.0}
