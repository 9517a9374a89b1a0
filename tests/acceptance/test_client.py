"""Client over real sockets: threads, forks, a server that hangs, one that is not there."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.fix_up import Up
from wheel_timer import AsyncClient, Client
from wheel_timer.client import Unreachable

CALLBACK = "http://127.0.0.1:1/"


def test_threads_share_a_client(up: Up) -> None:
    with Client(up.url, "") as client, ThreadPoolExecutor(8) as pool:
        submitted = list(
            pool.map(
                lambda n: client.submit("default", delay=3600 + n, callback=CALLBACK), range(200)
            )
        )
        assert len({one.task_id for one in submitted}) == 200
        for one, task in zip(
            submitted, pool.map(lambda one: client.get(one.task_id), submitted), strict=True
        ):
            assert task.biz_id == one.biz_id


def test_a_fork_opens_its_own_connections(up: Up) -> None:
    """Both ask at once and again and again: with one connection they would mix their answers."""
    with Client(up.url, "") as client:
        names = [f"fork-{n}" for n in range(2)]
        for name in names:
            client.submit("default", biz_id=name, delay=3600, callback=CALLBACK)
        pid = os.fork()
        if pid == 0:
            wrong = 99
            try:
                wrong = sum(client.get("default", names[1]).biz_id != names[1] for _ in range(50))
            finally:
                os._exit(wrong)
        got = [client.get("default", names[0]).biz_id for _ in range(50)]
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert got == [names[0]] * 50


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=5) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, "", total_s=0.2, tries=2) as client:
            began_s = time.monotonic()
            with pytest.raises(Unreachable) as caught:
                client.submit("default", delay=1)
        assert caught.value.was_sent
        assert 0.4 <= time.monotonic() - began_s < 5.0


async def test_nobody_there_is_unreachable() -> None:
    async with AsyncClient("http://127.0.0.1:1", "") as client:
        with pytest.raises(Unreachable) as caught:
            await client.submit("default", delay=1)
    assert not caught.value.was_sent
