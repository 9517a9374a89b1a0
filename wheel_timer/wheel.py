"""
The geometry of the wheel: slots, laps, and the id that carries a task's home. Pure.

    slot      (start_time_ms // 1000) mod 10,000,000: the second on the wheel
    lap       10,000,000 s = 115.74 days; two moments one lap apart share a slot
    partition 100,000 slots = 27.8 h; 100 of them make the ring

Worked example: 2027-01-15T08:00:00.000Z is 1,800,000,000,000 ms, slot 0, partition 0: the ring
wraps there. One millisecond earlier is slot 9,999,999, partition 99.

A task_id is a UUID of version 8 (RFC 9562) that carries its home, so that a lookup by id goes
straight to one partition:

    bits 127..80   start_time in ms (48 bits, up to the year 10889)
    bits  79..76   version, 8
    bits  75..64   shard (12 bits)
    bits  63..62   variant, binary 10
    bits  61..0    random; of a schedule's occurrence a hash
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Final
from uuid import UUID

LAP_S: Final = 10_000_000
PARTITION_SLOTS: Final = 100_000
PARTITIONS: Final = LAP_S // PARTITION_SLOTS
SHARDS_MAX: Final = 1 << 12
START_TIME_MS_MAX: Final = (1 << 48) - 1

_VERSION: Final = 8 << 76
_VARIANT: Final = 0b10 << 62
_RANDOM_BITS: Final = (1 << 62) - 1


def slot_of(start_time_ms: int) -> int:
    """The slot of a moment: 0 .. 9,999,999."""
    return start_time_ms // 1000 % LAP_S


def partition_of(slot: int) -> int:
    """The partition that holds a slot: 0 .. 99."""
    return slot // PARTITION_SLOTS


def new_task_id(start_time_ms: int, shard: int = 0) -> UUID:
    """A fresh id whose home is (start_time_ms, shard)."""
    return new_task_ids([start_time_ms], shard)[0]


def new_task_ids(start_times_ms: Sequence[int], shard: int = 0) -> list[UUID]:
    """
    A fresh id for each moment, in their order.

    One draw of randomness for all of them: it is a system call, and most of what an id costs.
    Raises ValueError for a moment outside of 0 .. START_TIME_MS_MAX.
    """
    assert 0 <= shard < SHARDS_MAX, shard
    count = len(start_times_ms)
    drawn = struct.unpack(f">{count}Q", os.urandom(8 * count))
    fixed = _VERSION | shard << 64 | _VARIANT
    return [
        UUID(int=start_time_ms << 80 | fixed | bits & _RANDOM_BITS)
        for start_time_ms, bits in zip(start_times_ms, drawn, strict=True)
    ]


def made_task_id(start_time_ms: int, shard: int, bits: int) -> UUID:
    """The id whose home is (start_time_ms, shard), with these bits (62 of them) as its rest."""
    fixed = _VERSION | shard << 64 | _VARIANT
    return UUID(int=start_time_ms << 80 | fixed | bits & _RANDOM_BITS)


def is_task_id(task_id: UUID) -> bool:
    """Whether an id has the form that `new_task_id` gives."""
    bits = task_id.int
    return (bits >> 76) & 0xF == 8 and (bits >> 62) & 0b11 == 0b10


def home_of(task_id: UUID) -> tuple[int, int]:
    """(start_time_ms, shard): the place where a task with this id was first put."""
    bits = task_id.int
    return bits >> 80, (bits >> 64) & (SHARDS_MAX - 1)
