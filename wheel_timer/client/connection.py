"""How the client is set, and how httpx's faults become ours."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from wheel_timer.client.call import TRIES, Call
from wheel_timer.client.errors import Unreachable
from wheel_timer.settings import Settings
from wheel_timer.version import __version__

CONNECT_S: Final = 2.0
TOTAL_S: Final = 5.0


class Options:
    """
    url, key: of the server; where they are not given, the settings URL and KEY (environment
    WHEEL_TIMER_URL, WHEEL_TIMER_KEY or WHEEL_TIMER_KEY_FILE). Raises StartRefused or ValueError.
    """

    def __init__(
        self,
        url: str | None,
        key: str | None,
        *,
        connect_s: float = CONNECT_S,
        total_s: float = TOTAL_S,
        tries: int = TRIES,
    ) -> None:
        if url is None or key is None:
            settings = Settings.load({"url": url, "key": key}, None, os.environ)
            url, key = settings.url, settings.key
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"{url!r} is no http:// or https:// URL")
        self.url = url.rstrip("/")
        self.key = key or None
        self.connect_s = connect_s
        self.total_s = total_s
        self.tries = tries

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        headers = {"user-agent": f"wheel-timer-client/{__version__}"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        return headers

    def total_of(self, call: Call[Any]) -> float:
        """The total deadline of one try, in seconds."""
        return self.total_s if call.timeout_s is None else call.timeout_s

    def arguments(self, call: Call[Any]) -> dict[str, Any]:
        """What httpx is asked for."""
        headers = dict(call.headers)
        if call.body is not None:
            headers.setdefault("content-type", "application/json")
        return {
            "method": call.method,
            "url": self.url + call.path,
            "params": dict(call.query) or None,
            "content": call.body,
            "headers": headers,
            "timeout": httpx.Timeout(self.total_of(call), connect=self.connect_s),
        }

    def __repr__(self) -> str:
        return f"Options({self.url!r})"


def unreachable(error: httpx.HTTPError | TimeoutError) -> Unreachable:
    """The error for a request that got no answer."""
    was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    text = str(error) or type(error).__name__
    return Unreachable(f"no answer: {text}", was_sent=was_sent)
