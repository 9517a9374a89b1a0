"""docs/client.md: its code runs."""

from __future__ import annotations

import pytest

from tests.acceptance.fix_up import Up
from tests.acceptance.test_testing_kit import blocks_of
from wheel_timer import Client


def test_the_code_of_the_page_on_the_client_runs(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHEEL_TIMER_URL", up.url)
    with Client() as client:
        client.biz.put("orders", callback_url="http://127.0.0.1:1/")
        names: dict[str, object] = {}
        blocks = [block for block in blocks_of("client.md") if "test_orders.py" not in block]
        for block in blocks:
            exec(compile(block, "docs/client.md", "exec"), names)
        assert len(blocks) == 7
        timers = names["timers"]
        assert isinstance(timers, Client)
        timers.close()
        client.biz.pause("orders")
