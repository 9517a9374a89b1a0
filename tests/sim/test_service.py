"""The real service, whatever is asked of it and done to it, in any order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.sim.service import BIZ_TYPE, SETTINGS, Service, processes, redis_socket
from wheel_timer.testing import Clock, Server
from wheel_timer.testing.endpoint import Endpoint


@pytest.fixture
def service() -> Iterator[type[Service]]:
    """The machine, with a service that runs."""
    Service.others = frozenset(one.pid for one in processes(""))
    with Server() as server, Endpoint() as endpoint, endpoint.opened() as received:
        server.biz(BIZ_TYPE, callback_url=received.url)
        Service.server, Service.clock, Service.received = server, Clock(server.client), received
        Service.redis_socket = redis_socket(Service.others)
        yield Service


@pytest.mark.timing
def test_the_service_does_what_its_model_says(service: type[Service]) -> None:
    run_state_machine_as_test(service, settings=SETTINGS)
