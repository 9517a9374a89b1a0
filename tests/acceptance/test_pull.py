"""Workers of an `up`, the installed program: processes, threads, two brokers, a daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from tests.acceptance.fix_up import Up, wheel_timer
from wheel_timer.client import ClaimLost, Client, Job

TTR_S: Final = 2.0
# Takes one task, says so, and does nothing any more.
TAKES_ONE: Final = """
import sys, time
from wheel_timer.client import Client
with Client(sys.argv[1], "") as client:
    for job in client.work("jobs", ttr=float(sys.argv[2])):
        print(job.task.task_id, flush=True)
        time.sleep(60)
"""


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Up, Client]]:
    """An `up` with two brokers and a biz_type `jobs` that is pulled."""
    directory: Path = tmp_path_factory.mktemp("pulled")
    with Up(directory, "--brokers", "2") as up, Client(up.url, "", total_s=20) as client:
        client.biz.put("jobs", delivery="pull", max_concurrency=1000)
        yield up, client


def audits_hold(up: Up) -> None:
    done = wheel_timer("audit", "--url", up.url)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_worker_killed_in_its_work_loses_the_task_to_another(pulled: tuple[Up, Client]) -> None:
    up, client = pulled
    submitted = client.submit("jobs", delay=0)
    with subprocess.Popen(
        [sys.executable, "-c", TAKES_ONE, up.url, str(TTR_S)],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline().strip() == str(submitted.task_id)
        # By now it has been touched once: it is held although nothing is said of it.
        time.sleep(TTR_S / 2)
        victim.kill()
        killed_s = time.monotonic()
    work = client.work("jobs", wait=10)
    for job in work:
        assert job.task.task_id == submitted.task_id
        assert (job.task.attempts, job.task.failures) == (2, 1)
        work.stop()
    assert time.monotonic() - killed_s < TTR_S + 20
    task = client.get(submitted.task_id)
    assert [one.outcome for one in task.attempt_log] == ["lost", "finished"]
    audits_hold(up)


def test_fifty_workers_of_two_brokers_hold_each_task_once(pulled: tuple[Up, Client]) -> None:
    up, client = pulled
    moments = time.time() + 1.0
    many = client.submit_many(
        {"biz_type": "jobs", "biz_id": f"n{n}", "start_time": moments + n % 20 / 20}
        for n in range(1_000)
    )
    assert many.accepted == 1_000
    seen: list[str] = []
    work = client.work("jobs", concurrency=50, wait=1)

    def handler(job: Job) -> None:
        assert job.task.biz_id is not None
        seen.append(job.task.biz_id)
        if len(seen) == 1_000:
            work.stop()

    guard = threading.Timer(120, work.stop)
    guard.start()
    work.run(handler)
    guard.cancel()
    assert sorted(seen) == sorted(f"n{n}" for n in range(1_000))
    audits_hold(up)


def test_what_waits_is_delivered_by_whatever_the_biz_type_says_now(
    pulled: tuple[Up, Client],
) -> None:
    up, client = pulled
    client.biz.put("both", delivery="pull")
    first = client.submit("both", delay=0)
    second = client.submit("both", delay=0)
    work = client.work("both")
    for job in work:
        # The one in hand stays in hand; the other is called.
        client.biz.patch(
            "both", delivery="callback", callback_url=f"{up.url}/demo/echo", breaker=None
        )
        ids = {first.task_id, second.task_id} - {job.task.task_id}
        deadline_s = time.monotonic() + 15
        while any(client.get(task_id).status != "finished" for task_id in ids):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        work.stop()
    assert client.get(first.task_id).status == client.get(second.task_id).status == "finished"
    # And the other way round.
    client.biz.patch("both", paused=True)
    third = client.submit("both", delay=0)
    time.sleep(0.5)  # the brokers put it away, an hour ahead
    client.biz.patch("both", paused=False, delivery="pull")
    work = client.work("both", wait=5)
    for job in work:
        assert job.task.task_id == third.task_id
        work.stop()
    assert client.get(third.task_id).status == "finished"
    audits_hold(up)


def test_a_handler_that_raises_and_a_claim_that_is_lost(pulled: tuple[Up, Client]) -> None:
    up, client = pulled
    client.biz.put("odd", delivery="pull")
    ids = [client.submit("odd", delay=0).task_id for _ in range(3)]
    handled: list[UUID] = []

    def handler(job: Job) -> None:
        handled.append(job.task.task_id)
        if len(handled) == len(ids):
            work.stop()
        raise ValueError("no")

    work = client.work("odd", wait=5, on_error="bury")
    work.run(handler)
    assert sorted(handled) == sorted(ids)
    dead = list(client.list(status="failed", biz_type="odd"))
    assert [task.last_error for task in dead] == ["ValueError: no"] * 3

    # All of them once more, as one operation; who leaves the loop gives his back.
    client.operations.start("replay", biz_type="odd", status="failed")
    work = client.work("odd", wait=10, on_error="release", error_delay=3600)
    for _ in work:
        break
    handled.clear()
    work.run(handler)
    assert sorted(handled) == sorted(ids)
    waiting = [client.get(task_id).waiting for task_id in ids]
    assert [one.reason for one in waiting if one is not None] == ["released"] * 3

    mine = client.submit("odd", biz_id="mine", delay=0)
    work = client.work("odd", wait=5)
    for job in work:
        assert job.task.task_id == mine.task_id
        client.submit("odd", biz_id="mine", delay=3600, on_duplicate="replace")
        with pytest.raises(ClaimLost):
            job.finish()
        work.stop()
    audits_hold(up)


def test_a_worker_waits_for_a_server_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with Client("http://127.0.0.1:9", "", total_s=0.2, tries=1) as client:
        work = client.work("jobs")
        guard = threading.Timer(0.5, work.stop)
        guard.start()
        assert list(work) == []
        guard.join()
    assert any("no work is taken of jobs" in record.message for record in caplog.records)


def test_workers_get_what_is_due_while_redis_is_frozen(pulled: tuple[Up, Client]) -> None:
    up, client = pulled
    (redis,) = (one for one in up.processes() if "redis-server" in one.name())
    redis.suspend()
    try:
        ids = {client.submit("jobs", delay=0.5 + n / 10).task_id for n in range(5)}
        seen = set()
        work = client.work("jobs", wait=10)
        for job in work:
            seen.add(job.task.task_id)
            if seen == ids:
                work.stop()
    finally:
        redis.resume()
    assert seen == ids
    audits_hold(up)
