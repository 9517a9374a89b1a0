"""`wheel-timer up`, the installed program, from its start to its end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from tests.acceptance.fix_up import GONE_S, PROGRAM, Up, all_gone, beside, wheel_timer
from tests.fix_endpoint import Endpoint
from tests.processes import arguments

ECHO = re.compile("←")


async def submit(up: Up, *arguments: str) -> str:
    """The task_id that `wheel-timer submit` prints."""
    done = await beside("submit", "--url", up.url, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_a_timer_is_called_back_and_not_early(up: Up, endpoint: Endpoint) -> None:
    moment_s = time.time() + 2.5
    task_id = await submit(
        up,
        *("--at", f"{moment_s:.3f}", "--callback", endpoint.url),
        *("--data", '{"order":  1017}'),
    )
    received = (await endpoint.wait_for(1))[0]
    assert received.task_id == task_id
    assert received.body == b'{"order":  1017}'
    assert received.arrival_ns / 1e6 >= round(moment_s * 1_000)


async def test_the_curl_it_prints_shows_up_in_its_terminal(up: Up) -> None:
    curl = next(line for line in up.said if line.startswith("curl"))
    body = re.search("-d '(.*)'", curl)
    assert body is not None
    assert f"{up.url}/demo/echo" in curl
    await submit(
        up, "--in", "0", "--data", '{"hello": "wheel"}', "--callback", f"{up.url}/demo/echo"
    )
    assert "ms late" in up.wait_for_line(ECHO, 10)
    up.wait_for_line(re.compile("wheel-timer-start-time: 20"), 5)
    up.wait_for_line(re.compile("hello"), 5)


async def test_one_port_answers_for_all(up: Up) -> None:
    await submit(up, "--in", "1h", "--callback", f"{up.url}/demo/echo")
    assert up.get("/healthz")["status"] == "ok"
    assert up.get("/readyz")["status"] == "ready"
    deadline = time.monotonic() + 10
    while 'wheel_timer_leader{shard="0"} 1' not in up.get("/metrics"):
        assert time.monotonic() < deadline
    for _ in range(20):
        metrics = up.get("/metrics")
        # The daemon's and the workers' own, whoever answers.
        assert 'wheel_timer_leader{shard="0"} 1' in metrics
        assert 'wheel_timer_tasks_submitted_total{biz_type="default"}' in metrics


def test_it_is_not_ready_while_no_daemon_leads(up: Up) -> None:
    (daemon,) = up.children("--ops-port")
    database = next(line.split()[1] for line in up.said if line.split()[:1] == ["Postgres"])
    daemon.suspend()
    try:
        # What twelve seconds would do.
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE timer_pointer SET lease_until = 1")
        refused = httpx.get(f"{up.url}/readyz")
        assert (refused.status_code, refused.json()["reason"]) == (503, "no daemon leads shard 0")
    finally:
        daemon.resume()
    deadline = time.monotonic() + 20
    while httpx.get(f"{up.url}/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_second_up_on_its_directory_is_one_line(up: Up) -> None:
    done = wheel_timer("up", "--port", "0", "--data-dir", str(up.data_dir))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "another wheel-timer" in done.stderr


def test_a_taken_port_is_one_line(up: Up, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = wheel_timer("up", "--port", port, "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"port {port} of 127.0.0.1 is taken" in done.stderr


async def test_what_is_killed_is_started_again(up: Up, endpoint: Endpoint) -> None:
    broker, daemon = up.children("broker")[0], up.children("daemon")[0]
    redis = next(one for one in up.processes() if "redis-server" in " ".join(arguments(one)))
    for process in (broker, daemon, redis):
        process.kill()
    up.wait_for_line(re.compile("broker . ended .signal SIGKILL"), 10)
    await submit(up, "--in", "1.5s", "--callback", endpoint.url)
    await endpoint.wait_for(1, timeout_s=40)
    assert len(up.children("broker")) == 2
    assert len(up.children("daemon")) == 1


async def test_ctrl_c_stops_everything_and_the_next_start_has_it_all(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    """Once, and it ends its calls; in the middle of its work; twice, and it does not wait."""
    # A service named wheel-timer puts these into every pod of its namespace.
    kubernetes = {
        "WHEEL_TIMER_PORT": "tcp://10.0.0.1:8080",
        "WHEEL_TIMER_SERVICE_HOST": "10.0.0.1",
        "WHEEL_TIMER_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    with Up(tmp_path, "--brokers", "1", environ=kubernetes) as first:
        assert not [line for line in first.said if "warning" in line]
        task_id = await submit(first, "--in", "1h", "--callback", f"{first.url}/demo/echo")
        processes = first.processes()
        before = time.monotonic()
        first.interrupt()
        assert first.wait() == 0
        assert time.monotonic() - before < 10
        assert all_gone(processes, timeout_s=5)
    with Up(tmp_path, "--brokers", "1") as second:
        assert second.get(f"/v1/tasks/{task_id}")["status"] == "pending"
        # SIGKILL: nobody is left to stop the others, so they must notice.
        processes = second.processes()
        second.interrupt(signal.SIGKILL)
        assert second.wait() == -signal.SIGKILL
        assert all_gone(processes)
    endpoint.answer = endpoint.answer._replace(fault="silence")
    with Up(tmp_path, "--brokers", "1") as third:
        assert third.get(f"/v1/tasks/{task_id}")["status"] == "pending"
        await submit(third, "--in", "0", "--callback", endpoint.url)
        await endpoint.wait_for(1)
        processes = third.processes()
        before = time.monotonic()
        third.interrupt()
        third.wait_for_line(re.compile("stopping"), 5)
        third.interrupt()
        assert third.wait() == 130
        assert time.monotonic() - before < 9  # the drain alone would be 10
        assert all_gone(processes, timeout_s=5)


@pytest.mark.parametrize("moment_s", [0.3, 1.5])
def test_ctrl_c_during_the_start_leaves_nothing(tmp_path: Path, moment_s: float) -> None:
    """At whatever point of the start it comes."""
    process = subprocess.Popen(
        [str(PROGRAM), "up", "--port", "0", "--data-dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    time.sleep(moment_s)
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=GONE_S)
    assert process.returncode in (0, 130)
    assert b"Traceback" not in said
    assert all_gone(below, timeout_s=5)
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(one.info)]
