"""The server's time, in a test's hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from wheel_timer.client import Client
from wheel_timer.client.call import Call, moment, reader

# A move waits for every callback on its way.
MOVE_TIMEOUT_S: Final = 600.0


class Shown(msgspec.Struct, frozen=True):
    """What the clock shows. held: tasks that are due and held back, by a pause or a limit."""

    now: datetime
    frozen: bool
    held: int = 0


_SHOWN: Final = reader(Shown)


class Clock:
    """
    Called, it goes on by so much: advance(1800), advance(minutes=30), advance(days=1, seconds=1).
    Every move returns when what was due on the way is settled, or waits for something else (a
    retry, a release, a pause). In async tests: await asyncio.to_thread(advance, 1800).
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def __call__(self, seconds: float | timedelta = 0, **parts: float) -> Shown:
        """Go on by seconds, or a timedelta, and by the parts of one (minutes=, hours=, days=)."""
        by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        return self._put(advance=(by + timedelta(**parts)).total_seconds())

    def to(self, when: datetime) -> Shown:
        """Go to a moment; also back. Raises ValueError for a datetime without a time zone."""
        return self._put(now=moment(when))

    def freeze(self) -> Shown:
        """Stand still from now on; at the end of the test time passes again."""
        return self._put(freeze=True)

    def run(self) -> Shown:
        """Let time pass again."""
        return self._put(freeze=False)

    def now(self) -> datetime:
        """What the server's clock shows."""
        return self._client.send(Call(method="GET", path="/v1/clock", read=_SHOWN)).now

    def _put(self, **body: Any) -> Shown:
        return self._client.send(
            Call(
                method="PUT",
                path="/v1/clock",
                body=msgspec.json.encode(body),
                read=_SHOWN,
                is_repeatable=False,
                timeout_s=MOVE_TIMEOUT_S,
            )
        )
