"""`wheel-timer schedule`, and schedules under a test's clock, against a running `up`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.acceptance.fix_up import Up, wheel_timer
from tests.fix_endpoint import Endpoint
from wheel_timer import AsyncClient


def test_a_schedule_is_made_shown_switched_and_deleted(up: Up, tmp_path: Path) -> None:
    at = ("--url", up.url)
    made = wheel_timer(
        *("schedule", "create", "default/report", "--cron", "0 9 * * MON"),
        *("--timezone", "Asia/Shanghai", "--data", '{"n": 1}', "--callback", f"{up.url}/demo/echo"),
        *("--jitter", "2s", "--json", *at),
    )
    assert made.returncode == 0, made.stderr
    shown = json.loads(made.stdout)
    assert (shown["biz_data"], shown["jitter"], shown["enabled"]) == ({"n": 1}, 2.0, True)
    listed = wheel_timer("schedule", "list", *at)
    assert "default/report" in listed.stdout
    coming = wheel_timer("schedule", "upcoming", "default/report", "--count", "2", "--json", *at)
    times = [json.loads(line)["scheduled_time"] for line in coming.stdout.splitlines()]
    assert times[0] == shown["next_time"]
    assert times[0].endswith("T01:00:00.000Z")
    assert wheel_timer("schedule", "disable", "default/report", *at).returncode == 0
    assert "(disabled)" in wheel_timer("schedule", "list", *at).stdout
    assert wheel_timer("schedule", "enable", "default/report", *at).returncode == 0
    ran = wheel_timer("schedule", "run", "default/report", *at)
    assert wheel_timer("get", ran.stdout.strip(), *at).returncode == 0
    assert wheel_timer("schedule", "delete", "default/report", *at).returncode == 2
    assert wheel_timer("schedule", "delete", "default/report", "--yes", *at).returncode == 0
    assert wheel_timer("schedule", "upcoming", "default/report", *at).returncode == 1
    wrong = wheel_timer("schedule", "create", "default/x", "--cron", "61 * * * *", *at)
    assert (wrong.returncode, "#/cron" in wrong.stderr) == (3, True)
    assert wheel_timer("schedule", "run", "report", *at).returncode == 2


def test_schedules_are_applied_with_a_file(up: Up, tmp_path: Path) -> None:
    at = ("--url", up.url)
    path = tmp_path / "biz.toml"
    path.write_text(
        f"""
        [biz_types.clocked]
        callback_url = "{up.url}/demo/echo"

        [biz_types.clocked.schedules.nightly]
        cron = "0 3 * * *"
        timezone = "Europe/Berlin"
        end_before = 2099-01-01T00:00:00Z
        """
    )
    applied = wheel_timer("biz", "apply", str(path), *at)
    assert applied.returncode == 0, applied.stderr
    assert "+ clocked/nightly\n" in applied.stdout
    again = wheel_timer("biz", "apply", str(path), *at)
    assert "2 unchanged" in again.stdout
    assert wheel_timer("biz", "delete", "clocked", "--yes", *at).returncode == 3
    assert wheel_timer("biz", "delete", "clocked", "--purge", "--yes", *at).returncode == 0


@pytest.fixture(scope="module")
def test_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One whose clock is a test's."""
    with Up(tmp_path_factory.mktemp("up"), "--test-clock") as running:
        yield running


async def test_a_week_is_lived_through_in_a_moment(test_up: Up, endpoint: Endpoint) -> None:
    """Each day's occurrence is called on its day, though no horizon reaches that far."""
    async with AsyncClient(test_up.url, total_s=60) as client:
        await client.biz.put("days", callback_url=endpoint.url)
        made = await client.schedules.put("days", "daily", cron="0 12 * * *", timezone="UTC")
        assert made.next_time is not None
        moved = await moved_to(test_up, made.next_time + timedelta(days=6, hours=1))
        assert moved >= made.next_time
        called = [call.headers["wheel-timer-scheduled-time"] for call in endpoint.received]
        expected = [made.next_time + timedelta(days=n) for n in range(7)]
        assert [datetime.fromisoformat(text) for text in called] == expected
        assert {call.headers["wheel-timer-schedule-id"] for call in endpoint.received} == {
            str(made.schedule_id)
        }
        await client.schedules.disable("days", "daily")
        await moved_to(test_up, made.next_time + timedelta(days=9))
        assert len(endpoint.received) == 7
        assert [one.name async for one in client.schedules.list("days")] == ["daily"]
        assert (await client.schedules.upcoming("days", "daily", 1))[0].scheduled_time.hour == 12
        await client.schedules.delete("days", "daily")


async def moved_to(running: Up, to: datetime) -> datetime:
    """Move the test's clock there; what it shows then."""
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.put(f"{running.url}/v1/clock", json={"now": to.isoformat()})
    assert answer.status_code == 200, answer.text
    return datetime.fromisoformat(answer.json()["now"]).astimezone(UTC)
