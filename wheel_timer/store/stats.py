"""
Figures of one biz_type, for people: what came due in the last minute, what comes in the next hour,
and how many are dead. Each in bounded time, whatever the wheel holds; reads only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wheel_timer.database import Database
from wheel_timer.wheel import LAP_S, slot_of

# Of all biz_types together, so a hot second of somebody else's costs no more: ~40 ms.
LOOK_ROWS: Final = 20_000
DEAD_MAX: Final = 10_000


class Window(NamedTuple):
    """
    What became of the tasks due in a span. is_complete: False where not all could be looked at, so
    that there are more. again: called more than once.
    """

    is_complete: bool
    due: int
    pending: int
    delivering: int
    finished: int
    failed: int
    cancelled: int
    called: int
    again: int
    lateness_p50_ms: int | None
    lateness_p99_ms: int | None


async def window(
    db: Database,
    biz_type: str,
    from_ms: int,
    to_ms: int,
    now_ms: int,
    look_rows: int | None = None,
) -> Window:
    """
    The tasks due in [from_ms, to_ms), a span far below a lap. look_rows: so many are read at most,
    in place of LOOK_ROWS.
    """
    look = LOOK_ROWS if look_rows is None else look_rows
    first, last = slot_of(from_ms), slot_of(to_ms - 1)
    # Over the ring's end it is two ranges.
    firsts, afters = ([first], [last + 1]) if first <= last else ([first, 0], [LAP_S, last + 1])
    params = {
        "biz_type": biz_type,
        "firsts": firsts,
        "afters": afters,
        "from": from_ms,
        "to": to_ms,
        "look": look,
        "now": now_ms,
    }
    row = await db.fetch_one("biz_window", params)
    assert row is not None
    looked, *counts = row
    return Window(looked < look, *counts)


async def dead_count(db: Database, biz_type: str) -> int:
    """How many dead letters there are; DEAD_MAX stands for that many or more."""
    row = await db.fetch_one("biz_dead_count", {"biz_type": biz_type, "limit": DEAD_MAX})
    assert row is not None
    return int(row[0])
