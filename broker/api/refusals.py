"""Keys that count for nothing, in the log: a line a second at most, however many come."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from broker.api.peer import Peers
from wheel_timer.bearer import given_key
from wheel_timer.monotonic import monotonic_s

log = logging.getLogger(__name__)

EACH_S: Final = 1.0


class Refusals:
    """Tells where wrong keys come from."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._untold = 0
        self._told_s = -EACH_S

    def add(self, scope: Mapping[str, Any]) -> None:
        """A request was answered with 401. One without any key is no guess, and not told."""
        if given_key(scope["headers"]) is None:
            return
        now_s = monotonic_s()
        if now_s - self._told_s < EACH_S:
            self._untold += 1
            return
        more = f", and {self._untold} before it" if self._untold else ""
        log.warning("a key from %s counts for nothing here%s", self._peers.address(scope), more)
        self._told_s, self._untold = now_s, 0
