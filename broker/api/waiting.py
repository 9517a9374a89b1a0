"""What lanes hold back, and why: as far as it can be told when a task is shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from broker.api.context import Context
from broker.api.view import Held
from wheel_timer.errors import EventCenterUnavailable

log: Final = logging.getLogger(__name__)

# Who looks at a task does not wait for a Redis that is away: that is an answer too.
ANSWER_S_MAX: Final = 1.0


async def held_lanes(context: Context, biz_types: Iterable[str], now_ms: float) -> dict[str, Held]:
    """Why what is due of these biz_types is not being called; one that holds nothing is missing."""
    held: dict[str, Held] = {}
    asked: list[str] = []
    brake = context.registry.brake
    for name in set(biz_types):
        biz = context.registry.get(name)
        if brake is not None:
            held[name] = Held("paused", brake.since_ms, None)
        elif biz is not None and biz.paused:
            held[name] = Held("paused", None, None)
        else:
            asked.append(name)
    if not asked:
        return held
    asking = asyncio.create_task(context.event_center.waits(asked, now_ms))
    # A command in flight is never cancelled: the answer that comes late finds nobody.
    done, _ = await asyncio.wait([asking], timeout=ANSWER_S_MAX)
    try:
        waits = asking.result() if done else None
    except EventCenterUnavailable as error:
        log.debug("why lanes wait could not be read: %s", error)
        waits = None
    if waits is None:
        asking.add_done_callback(_heard)
        return held | dict.fromkeys(asked, Held("event_center", None, None))
    for name, wait in waits.items():
        held[name] = Held(wait.reason, wait.since_ms, wait.until_ms)
    return held


def _heard(asking: asyncio.Task[object]) -> None:
    """Nobody waits for it any more: its error is not one of ours."""
    if not asking.cancelled():
        asking.exception()
