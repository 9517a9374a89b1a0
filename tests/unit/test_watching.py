"""What the contract, the dashboard and the alert rules name exists, with the labels they use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from wheel_timer import metrics

DOCS: Final = Path(__file__).parents[2] / "docs"
CONTRACT: Final = {
    "publish_lateness_seconds": ("shard",),
    "lateness_seconds": ("biz_type",),
    "callback_duration_seconds": ("biz_type",),
    "callbacks_total": ("biz_type", "outcome"),
    "tasks_submitted_total": ("biz_type",),
    "tasks_settled_total": ("biz_type", "status"),
    "tasks_rejected_total": ("reason",),
    "hand_lag_seconds": ("shard", "hand"),
    "leader": ("shard",),
    "swept_total": ("reason",),
    "requeue_rows": ("reason",),
    "lane_depth": ("biz_type",),
    "lane_inflight": ("biz_type",),
    "lane_held_seconds_total": ("biz_type", "reason"),
    "breaker_open": ("biz_type",),
    "oldest_due_seconds": (),
    "pending_tasks": ("biz_type",),
    "dead_tasks": ("biz_type",),
    "audit_violations": ("audit",),
    "clock_offset_seconds": (),
    "database_up": (),
    "event_center_up": (),
    "http_requests_total": ("route", "code"),
    "http_request_duration_seconds": ("route",),
    "build_info": ("version", "python"),
}
# What a scrape, or a metric of another kind, adds of its own.
ADDED: Final = {"job", "instance", "le"}
RULES: Final[dict[str, Any]] = yaml.safe_load(
    (DOCS / "prometheus" / "wheel-timer.rules.yml").read_text()
)
ALERTS: Final[list[dict[str, Any]]] = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD: Final[dict[str, Any]] = json.loads((DOCS / "grafana" / "wheel-timer.json").read_text())


def known() -> dict[str, set[str]]:
    """Every name that a sample can have, and its labels."""
    names: dict[str, set[str]] = {}
    collectors: Iterable[Any] = metrics._REGISTRY._names_to_collectors.values()
    for family in collectors:
        labels = set(family._labelnames)
        base = family._name
        for suffix in ("", "_total") if family._type == "counter" else ("",):
            names[base + suffix] = labels
        if family._type == "histogram":
            names |= dict.fromkeys((f"{base}_bucket", f"{base}_count", f"{base}_sum"), labels)
    return names


def expressions() -> Iterator[str]:
    for alert in ALERTS:
        yield alert["expr"]
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


@pytest.mark.parametrize("name", CONTRACT)
def test_a_metric_of_the_contract_has_its_labels(name: str) -> None:
    assert known()[f"wheel_timer_{name}"] == set(CONTRACT[name])


def test_the_slos_buckets_resolve_a_millisecond_to_ten_seconds() -> None:
    bounds = [bound for bound in metrics._LATENESS_S if bound <= 10]
    assert (bounds[0], bounds[-1]) == (0.001, 10.0)
    assert all(next_ / bound <= 2.5 for bound, next_ in pairwise(bounds))
    assert 0.25 in bounds  # what the objective is counted by


def test_each_expression_names_metrics_and_labels_that_there_are() -> None:
    names = known()
    found = list(expressions())
    assert len(found) > 40
    for expression in found:
        used = re.findall(r"wheel_timer_\w+", expression)
        assert used or "up{" in expression, expression
        assert set(used) <= names.keys(), expression
        labels = {label for name in used for label in names[name]} | ADDED
        selected = re.findall(r'(\w+)=~?"', expression)
        grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
        named = {*selected, *(one.strip() for group in grouped for one in group.split(","))}
        assert named <= labels, expression


def test_the_dashboard_shows_every_metric_of_the_contract() -> None:
    shown = " ".join(target["expr"] for p in DASHBOARD["panels"] for target in p.get("targets", ()))
    for name in CONTRACT:
        assert f"wheel_timer_{name}" in shown


def test_each_panel_has_a_place_of_its_own() -> None:
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert {x for x, _ in places} == set(range(24))
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_each_alert_says_who_is_to_look_and_what_to_do() -> None:
    told = (DOCS / "watching.md").read_text()
    assert len({alert["alert"] for alert in ALERTS}) == len(ALERTS) >= 12
    for alert in ALERTS:
        assert alert.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert re.fullmatch(r"\d+[smh]", alert.get("for", "0s"))
        assert {"summary", "description", "runbook"} == alert["annotations"].keys()
        page, _, section = alert["annotations"]["runbook"].partition("#")
        assert page == "watching.md"
        assert f"\n### {section}\n" in told


def test_each_section_of_what_to_do_belongs_to_an_alert() -> None:
    sections = re.findall(r"\n### (WheelTimer\w+)\n", (DOCS / "watching.md").read_text())
    assert set(sections) == {alert["annotations"]["runbook"].partition("#")[2] for alert in ALERTS}
