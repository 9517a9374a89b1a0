"""
What is to be called when: by quarter hours from the ledger, by minutes and seconds from the wheel.

Each call is bounded by what it is given, whatever the wheel holds. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.wheel import LAP_S

LAP_MS: Final = LAP_S * 1000
QUARTER_MS: Final = 900_000


class Key(NamedTuple):
    """The place behind which a piece of the wheel begins; before all of its slots by default."""

    slot: int = -1
    shard: int = 0
    start_time_ms: int = 0
    task_id: UUID = UUID(int=0)


class Piece(NamedTuple):
    """
    A piece of the wheel, its pending tasks counted. looked: rows, of any kind and biz_type; key:
    where it ended, None where it held nothing. minutes: their first ms, and tasks. seconds: (first
    ms, biz_type, tasks) of the hot ones, and of the piece's first and last, whose other tasks the
    pieces beside it may have.
    """

    looked: int
    key: Key | None
    minutes: list[tuple[int, int]]
    seconds: list[tuple[int, str, int]]


async def quarters(
    db: Database, biz_types: Sequence[str] | None, from_ms: int, to_ms: int
) -> dict[int, int]:
    """
    How many tasks of these biz_types (None: of all) are pending in each quarter hour that begins
    in [from_ms, to_ms), exactly; those that have none are left out.
    """
    names = None if biz_types is None else list(biz_types)
    params = {"biz_types": names, "from": from_ms, "to": to_ms}
    return dict(await db.fetch("forecast_quarters", params))


async def piece(
    db: Database, hots: Mapping[str, int], from_ms: int, to_ms: int, key: Key, look: int
) -> Piece:
    """
    The next `look` rows behind the key with start_time in [from_ms, to_ms), which lies within one
    quarter hour and not over the ring's end. hots: for each biz_type that is meant, a second with
    more tasks than that is hot.
    """
    params = {
        "biz_types": list(hots),
        "hots": list(hots.values()),
        "from": from_ms,
        "to": to_ms,
        "slot": key.slot,
        "shard": key.shard,
        "time": key.start_time_ms,
        "id": key.task_id,
        "look": look,
    }
    row = await db.fetch_one("forecast", params)
    assert row is not None
    looked, slot, shard, time_ms, task_id, minutes, counts, seconds, names, tasks = row
    return Piece(
        looked,
        None if slot is None else Key(slot, shard, time_ms, task_id),
        list(zip(minutes or (), counts or (), strict=True)),
        list(zip(seconds or (), names or (), tasks or (), strict=True)),
    )


def within_laps(from_ms: int, to_ms: int) -> list[tuple[int, int]]:
    """[from_ms, to_ms), a span far below a lap, as one or two spans that no ring's end is in."""
    end_ms = -(-to_ms // LAP_MS) * LAP_MS - LAP_MS
    if from_ms < end_ms < to_ms:
        return [(from_ms, end_ms), (end_ms, to_ms)]
    return [(from_ms, to_ms)]
