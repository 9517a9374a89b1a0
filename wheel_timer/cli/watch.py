"""
What `top` shows, asked for: /v1/wheel and /metrics for each picture, and in turn, every few
seconds, who is alive and which operations run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheel_timer.cli.exits import Failure
from wheel_timer.cli.readings import Lateness, Rates, Readings, read_metrics

if TYPE_CHECKING:
    from wheel_timer.cli.server import Server

# The slow facts: each is asked for this often, one of them with a picture.
SLOW_S: Final = 5.0
OPERATIONS_LOOKED_AT: Final = 50


class Picture(NamedTuple):
    """
    The service at `time`, by this machine's clock. wheel, nodes, operations: as the API shows them,
    of operations those that run. rates and lateness: None until two readings are in, or where
    /metrics is not to be had.
    """

    time: datetime
    wheel: Mapping[str, Any]
    nodes: Sequence[Mapping[str, Any]]
    operations: Sequence[Mapping[str, Any]]
    rates: Rates | None
    lateness: Lateness | None
    violations: Mapping[str, int]

    def as_json(self, url: str) -> dict[str, Any]:
        """One object."""
        return {
            "time": self.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "url": url,
            "rates": None if self.rates is None else self.rates._asdict(),
            "lateness": None if self.lateness is None else _finite(self.lateness._asdict()),
            "violations": self.violations,
            "nodes": self.nodes,
            "operations": self.operations,
            "wheel": self.wheel,
        }


class Watch:
    """One server, looked at again and again. Not for two threads at once."""

    def __init__(self, server: Server) -> None:
        self.url = server.url
        self._server = server
        self._readings = Readings()
        self._slow: dict[str, list[dict[str, Any]]] = {}
        self._asked_s = {"/v1/nodes": -SLOW_S, "/v1/operations": -SLOW_S}

    def look(self) -> Picture:
        """
        The next picture. Raises Failure where the server is out of reach or refuses; a part of it
        that is not to be had is left out.
        """
        wheel = self._server.get("/v1/wheel")
        self._read_metrics()
        now_s = time.monotonic()
        due = [path for path, asked_s in self._asked_s.items() if now_s - asked_s >= SLOW_S]
        # All of them for the first picture, then one with each.
        for path in due if len(self._slow) < len(self._asked_s) else due[:1]:
            self._asked_s[path] = now_s
            self._ask_slow(path)
        running = [one for one in self._slow["/v1/operations"] if one["state"] == "running"]
        return Picture(
            datetime.now(UTC),
            wheel,
            self._slow["/v1/nodes"],
            running,
            self._readings.rates(),
            self._readings.lateness(),
            self._readings.violations,
        )

    def _read_metrics(self) -> None:
        try:
            text = self._server.text("/metrics")
        except Failure:
            return  # it may be kept from us, or from the world: the rest is worth showing
        self._readings.add(read_metrics(text, time.monotonic()))

    def _ask_slow(self, path: str) -> None:
        query = {"limit": OPERATIONS_LOOKED_AT} if path == "/v1/operations" else {}
        try:
            self._slow[path] = self._server.get(path, **query)["items"]
        except Failure:
            self._slow.setdefault(path, [])


class Watcher:
    """
    A thread that looks every interval_s, so that keys are heard while the server is slow. `news`
    is the last picture and the last failure, of which the newer one counts; wake: called after
    each.
    """

    def __init__(self, watch: Watch, interval_s: float, wake: Callable[[], None]) -> None:
        self._watch = watch
        self._interval_s = interval_s
        self._wake = wake
        self.picture: Picture | None = None
        self.failure: Failure | None = None
        self.failed_since: datetime | None = None
        # Nobody waits for it at the end: it may be in the middle of a request.
        self._thread = threading.Thread(target=self._run, daemon=True, name="top")

    def start(self) -> None:
        """Look for the first time, and go on."""
        self._thread.start()

    def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                self.picture = self._watch.look()
                self.failure = self.failed_since = None
            except Failure as failure:
                self.failed_since = self.failed_since or datetime.now(UTC)
                self.failure = failure
            self._wake()
            time.sleep(max(0.0, self._interval_s - (time.monotonic() - began_s)))


def _finite(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """JSON has no infinity: what lies beyond the last bound is null."""
    return {name: None if value == float("inf") else value for name, value in values.items()}
