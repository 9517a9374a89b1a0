"""`python -m examples`: all of them, on one server."""

from __future__ import annotations

from examples import debit_after_notice, refund_poll, unpaid_order
from wheel_timer.testing import Clock, Server

if __name__ == "__main__":
    with Server() as server:
        for example in (unpaid_order, refund_poll, debit_after_notice):
            example.story(server, Clock(server.client))
