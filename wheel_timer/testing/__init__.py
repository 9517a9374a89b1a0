"""
For the tests of whoever uses wheel-timer: a server whose time is the test's, and an endpoint.

    # conftest.py
    pytest_plugins = ["wheel_timer.testing"]

    # test_orders.py
    def test_an_unpaid_order_is_closed(wheel_timer_server, advance, received):
        wheel_timer_server.biz("orders", callback_url=received.url)
        place_order(1017)                       # your code, which submits with delay=1800
        advance(minutes=30)
        assert [timer.json() for timer in received] == [{"order": 1017}]

The server is embedded (pip install 'wheel-timer[server,embedded]'), starts once a session in some
seconds, and serves on a port of its own; WHEEL_TIMER_URL names it meanwhile, so `Client()` finds
it. An `advance` takes a tenth of a second however far it goes, and returns when everything that
came due was called.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wheel_timer.testing.clock import Clock
from wheel_timer.testing.endpoint import Endpoint, Received
from wheel_timer.testing.server import Server

__all__ = ["Clock", "Received", "Server", "advance", "received", "wheel_timer_server"]


@pytest.fixture(scope="session")
def wheel_timer_server() -> Iterator[Server]:
    """A server with a test's clock, for the whole session: `url`, `client`, `biz(name, ...)`."""
    with pytest.MonkeyPatch.context() as environ, Server() as server:
        environ.setenv("WHEEL_TIMER_URL", server.url)
        for name in ("WHEEL_TIMER_KEY", "WHEEL_TIMER_KEY_FILE"):
            environ.delenv(name, raising=False)
        yield server


@pytest.fixture
def advance(wheel_timer_server: Server) -> Iterator[Clock]:
    """Moves the server's time: `advance(minutes=30)`, `advance.to(moment)`, `advance.now()`."""
    clock = Clock(wheel_timer_server.client)
    yield clock
    clock.run()


@pytest.fixture(scope="session")
def _wheel_timer_endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def received(_wheel_timer_endpoint: Endpoint) -> Iterator[Received]:
    """
    An endpoint for this test alone: `url` is where callbacks go to, and it is the sequence of those
    that came. `received.handler = close_order` hands each to your handler. What other tests have
    left behind comes to their own URLs, which answer 410 by now.
    """
    with _wheel_timer_endpoint.opened() as received:
        yield received
