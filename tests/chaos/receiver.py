"""The endpoint of a run: answers by the plan in a task's biz_id, and writes the endpoint log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from tests.chaos.log import Called
from tests.fix_endpoint import Answer, Endpoint, Received


class Receiver:
    """
    A started endpoint with a log. offset_ms: the database's clock against this machine's, now.
    answer_s: how long it takes to answer.
    """

    def __init__(self, offset_ms: Callable[[], int], answer_s: float) -> None:
        self.endpoint = Endpoint()
        self.called: list[Called] = []
        self._offset_ms = offset_ms
        self._answer_s = answer_s
        self._calls: Counter[str] = Counter()
        self.endpoint.script = self._answer

    def under_way(self) -> int:
        """How many callbacks it has not answered yet."""
        since_ns = time.time_ns() - round(self._answer_s * 1e9)
        return sum(call.arrival_ns > since_ns for call in self.called)

    def _answer(self, received: Received) -> Answer:
        headers = received.headers
        biz_id = headers["wheel-timer-biz-id"]
        self._calls[biz_id] += 1
        status = 200
        if biz_id.startswith("dies"):
            status = 410
        elif biz_id.startswith("fails") and self._calls[biz_id] == 1:
            status = 500
        start_time = datetime.fromisoformat(headers["wheel-timer-start-time"])
        self.called.append(
            Called(
                received.arrival_ns,
                biz_id,
                received.task_id,
                round(start_time.timestamp() * 1000),
                status,
                int(headers["webhook-timestamp"]),
                self._offset_ms(),
                received.attempt,
            )
        )
        # Nothing else is kept of it: a run of hours has millions.
        self.endpoint.received.clear()
        return Answer(status, delay_s=self._answer_s)
