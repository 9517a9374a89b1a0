"""Slots, and ids that carry a task's home."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheel_timer.wheel import (
    SHARDS_MAX,
    START_TIME_MS_MAX,
    home_of,
    is_task_id,
    new_task_id,
    new_task_ids,
    partition_of,
    slot_of,
)

MOMENTS = st.integers(0, START_TIME_MS_MAX)
SHARDS = st.integers(0, SHARDS_MAX - 1)


def test_the_ring_wraps_where_the_table_says() -> None:
    assert (slot_of(1_800_000_000_000), partition_of(slot_of(1_800_000_000_000))) == (0, 0)
    assert (slot_of(1_799_999_999_999), partition_of(slot_of(1_799_999_999_999))) == (9_999_999, 99)


@given(st.lists(MOMENTS, max_size=20), SHARDS)
def test_ids_carry_their_homes_in_order(moments: list[int], shard: int) -> None:
    ids = new_task_ids(moments, shard)
    assert [home_of(task_id) for task_id in ids] == [(moment, shard) for moment in moments]
    assert all(is_task_id(task_id) and task_id.version == 8 for task_id in ids)


def test_ids_of_one_moment_differ() -> None:
    assert len(set(new_task_ids([0] * 1000))) == 1000


@pytest.mark.parametrize("moment_ms", [-1, START_TIME_MS_MAX + 1])
def test_a_moment_that_no_id_can_carry_is_refused(moment_ms: int) -> None:
    with pytest.raises(ValueError, match="int"):
        new_task_id(moment_ms)
