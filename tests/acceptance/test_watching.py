"""What a running service shows of itself."""

from __future__ import annotations

import json
import urllib.request
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.fix_up import Up, wheel_timer
from tests.unit.test_watching import CONTRACT

# There is none of them in a service where nothing of the kind has happened, or been looked at.
UNSEEN: Final = {"requeue_rows", "lane_held_seconds_total"}


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_a_running_service_shows_the_metrics_of_the_contract(up: Up) -> None:
    """Of all its processes, in one answer."""
    called = ("--callback", f"{up.url}/demo/echo")
    done = wheel_timer("submit", "--url", up.url, "--in", "0", *called, "--json", "--wait")
    assert done.returncode == 0, done.stderr
    wheel_timer("submit", "--url", up.url, "--in", "3", *called, "--wait")
    wheel_timer("submit", "--url", up.url, "--in", "0", "--biz-type", "nobody")
    get(f"{up.url}/v1/audits")
    shown = {
        sample.name: set(sample.labels) - {"le"}
        for family in text_string_to_metric_families(get(f"{up.url}/metrics"))
        for sample in family.samples
    }
    for name, labels in CONTRACT.items():
        full = f"wheel_timer_{name}"
        found = shown.get(full, shown.get(f"{full}_bucket"))
        if found is not None or name not in UNSEEN:
            assert found == set(labels), name
    assert json.loads(done.stdout)
