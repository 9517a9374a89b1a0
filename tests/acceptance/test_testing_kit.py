"""wheel_timer.testing as its users have it: a pytest of their own, in a directory of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CONFTEST = 'pytest_plugins = ["wheel_timer.testing"]\n'
TESTS = """
import asyncio
from datetime import timedelta

import pytest

from wheel_timer import AsyncClient, Client
from wheel_timer.client.pull import reserve
from wheel_timer.receiver import Gone, Release


def test_an_unpaid_order_is_closed(wheel_timer_server, advance, received):
    wheel_timer_server.biz("orders", callback_url=received.url)
    with Client() as client:  # by WHEEL_TIMER_URL
        client.submit("orders", delay=1800, biz_data={"order": 1017})
        advance(minutes=29)
        assert len(received) == 0
        advance(minutes=1)
    assert [timer.json() for timer in received] == [{"order": 1017}]
    assert received[0].biz_type == "orders"


def test_a_worker_of_mine(wheel_timer_server, advance):
    wheel_timer_server.biz("mails", delivery="pull")
    with Client() as client:
        task = client.submit("mails", delay=600, biz_data="hello")
        assert client.send(reserve("mails", 1, wait=0, ttr=60)) == []
        advance(minutes=10)
        work = client.work("mails", wait=5)
        for job in work:
            assert job.biz_data == "hello"
            advance(minutes=2)  # what is in hand has ended by then, and is there again
            work.stop()
        assert client.get(task.task_id).status == "pending"
        work = client.work("mails", wait=5)
        for job in work:
            assert job.task.failures == 1
            work.stop()
        assert client.get(task.task_id).status == "finished"


def test_what_the_test_before_left_does_not_come_here(wheel_timer_server, advance, received):
    client = wheel_timer_server.client
    wheel_timer_server.biz("orders", callback_url=received.url)
    left = client.submit("default", delay=60, callback=received.url + "0")
    advance(days=2)
    assert list(received) == []
    assert client.get(left.task_id).status == "failed"


def test_a_handler_of_mine(wheel_timer_server, advance, received):
    wheel_timer_server.biz("orders", callback_url=received.url, retry={"ladder": [60]})
    answers = [Release(timedelta(hours=6)), RuntimeError("the bank is away"), Gone("enough")]

    def handler(timer):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    received.handler = handler
    task = wheel_timer_server.client.submit("orders", delay=5).task_id
    start = advance.freeze().now
    advance(hours=1)
    assert wheel_timer_server.client.get(task).waiting.reason == "released"
    advance(hours=6)
    assert wheel_timer_server.client.get(task).status == "failed"
    assert [str(error) for error in received.errors] == ["the bank is away"]
    assert len(received) == 3
    assert advance.now() == start + timedelta(hours=7)
    received.clear()
    assert advance.to(start).now == start


def test_in_an_event_loop(wheel_timer_server, advance, received):
    async def story():
        async with AsyncClient() as client:
            task = await client.submit("default", delay=3600, callback=received.url)
            await asyncio.to_thread(advance, timedelta(hours=1))
            return await client.get(task.task_id)

    assert asyncio.run(story()).is_settled
    assert len(received) == 1

"""


def blocks_of(page: str) -> list[str]:
    """The Python of a page of the docs, block by block."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_fixtures_of_a_users_suite(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_more.py").write_text(TESTS)
    (shown,) = (block for block in blocks_of("client.md") if "# test_orders.py" in block)
    (tmp_path / "test_orders.py").write_text(shown)
    environ = {**os.environ, "WHEEL_TIMER_URL": "http://127.0.0.1:1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-W", "error", "--durations=0", "-vv"),
            *("-p", "no:cacheprovider", "-p", "no:asyncio"),
        ],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
    took = re.search(r"([\d.]+)s call +test_orders.py::test_an_unpaid_order", done.stdout)
    assert took is not None, done.stdout
    assert float(took[1]) < 2.0, "half a second where the machine has nothing else to do"
