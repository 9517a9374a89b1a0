"""The roles one by one, as on servers of one's own: migrate, daemon, broker with two workers."""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.acceptance.fix_up import PROGRAM, Up, all_gone, beside, plain_environ, wheel_timer
from tests.fix_endpoint import Endpoint
from wheel_timer.cli.machine import free_ports

READY_S = 30.0

# What Kubernetes puts into each pod for a service named wheel-timer.
KUBERNETES = {
    "WHEEL_TIMER_PORT": "tcp://10.0.0.1:8080",
    "WHEEL_TIMER_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "WHEEL_TIMER_SERVICE_HOST": "10.0.0.1",
    "WHEEL_TIMER_SERVICE_PORT": "8080",
}


@pytest.fixture
def servers(
    empty_database_url: str, redis_url: str, redis_prefix: str, tmp_path: Path
) -> dict[str, str]:
    """The environment that names real servers: the password, so to say, in a file."""
    secret = tmp_path / "database_url"
    secret.write_text(empty_database_url + "\n")
    return {
        **KUBERNETES,
        "WHEEL_TIMER_DATABASE_URL_FILE": str(secret),
        "WHEEL_TIMER_REDIS_URL": redis_url,
        "WHEEL_TIMER_REDIS_PREFIX": redis_prefix,
        "WHEEL_TIMER_DRAIN_DELAY": "0",
    }


@contextmanager
def running(environ: dict[str, str], port: int, *command: str) -> Iterator[psutil.Process]:
    """A role from its readiness on; afterwards nothing of it is left."""
    process = subprocess.Popen([str(PROGRAM), *command], env=plain_environ(environ))
    try:
        deadline = time.monotonic() + READY_S
        while status(port, "/readyz") != 200:
            assert process.poll() is None, f"{command} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{command} is not ready"
            time.sleep(0.05)
        yield psutil.Process(process.pid)
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert all_gone(below, timeout_s=5)
    finally:
        process.kill()
        process.wait()


def status(port: int, path: str) -> int:
    """The status that the port answers with; 0 where nobody does."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def put_biz_type(url: str, callback_url: str) -> None:
    """Make it."""
    request = urllib.request.Request(
        url,
        data=b'{"callback_url": "%b"}' % callback_url.encode(),
        headers={"content-type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 201


async def test_roles_on_their_own_deliver(servers: dict[str, str], endpoint: Endpoint) -> None:
    api, ops = free_ports(2)
    check = wheel_timer("migrate", "--check", environ=servers)
    assert check.returncode == 1
    planned = wheel_timer("migrate", "--plan", environ=servers)
    assert (planned.returncode, planned.stdout) == (0, check.stdout)
    early = wheel_timer("daemon", "--ops-port", str(ops), environ=servers)
    assert early.returncode != 0
    assert "migrate" in early.stderr
    applied = wheel_timer("migrate", environ=servers)
    assert "0001" in applied.stdout
    assert wheel_timer("migrate", "--check", environ=servers).returncode == 0
    with (
        running(servers, ops, "daemon", "--ops-port", str(ops)),
        running(servers, api, "broker", "--workers", "2", "--port", str(api)) as broker,
    ):
        assert len(broker.children()) == 2
        url = f"http://127.0.0.1:{api}"
        put_biz_type(f"{url}/v1/biz/orders", endpoint.url)
        submit = ("submit", "--in", "2.5s", "--biz-type", "orders", "--url", url)
        done = await beside(*submit, environ=servers)
        while "orders" in done.stderr:  # the other worker hears of a new biz_type within 2 s
            done = await beside(*submit, environ=servers)
        assert done.returncode == 0, done.stderr
        received = await endpoint.wait_for(1)
        assert received[0].task_id == done.stdout.strip()
        assert [status(api, "/metrics") for _ in range(100)] == [200] * 100
        audit = wheel_timer("audit", environ=servers)
        assert audit.returncode == 0, audit.stdout


def test_a_role_says_which_server_it_lacks(servers: dict[str, str]) -> None:
    del servers["WHEEL_TIMER_REDIS_URL"]
    done = wheel_timer("broker", environ=servers)
    assert done.returncode == 2
    assert "WHEEL_TIMER_REDIS_URL" in done.stderr


def test_strangers_are_refused_without_a_key(servers: dict[str, str], tmp_path: Path) -> None:
    for command in (
        ("up", "--host", "0.0.0.0", "--port", "0", "--data-dir", str(tmp_path / "data")),
        ("broker", "--host", "0.0.0.0", "--workers", "2", "--port", str(free_ports(1)[0])),
    ):
        done = wheel_timer(*command, environ=servers)
        assert done.returncode == 2
        assert "set ADMIN_KEY" in done.stderr
        assert len(done.stderr.splitlines()) == 1


async def test_up_uses_the_servers_that_the_settings_name(
    servers: dict[str, str], endpoint: Endpoint, tmp_path: Path
) -> None:
    with Up(tmp_path / "data", "--brokers", "1", environ=servers) as up:
        names = {process.name() for process in up.processes()}
        assert not [name for name in names if "postgres" in name or "redis" in name]
        done = await beside("submit", "--in", "0", "--callback", endpoint.url, "--url", up.url)
        assert done.returncode == 0, done.stderr
        await endpoint.wait_for(1)
        up.interrupt(signal.SIGTERM)
        assert up.wait() == 0
