"""A wrong row is impossible: what the tables refuse, whoever writes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.fix_postgres import NewDatabase
from wheel_timer.wheel import PARTITION_SLOTS, PARTITIONS, new_task_id, partition_of, slot_of

NOW_MS = 1_800_000_000_000
GOOD: dict[str, Any] = {
    "slot": slot_of(NOW_MS),
    "shard": 0,
    "start_time": NOW_MS,
    "task_id": str(new_task_id(NOW_MS)),
    "create_time": NOW_MS,
    "biz_type": "orders",
}
SETTLED = {"finish_time": NOW_MS, "expire_at": NOW_MS}


@pytest.fixture(scope="module")
def database_url(new_database: NewDatabase, template_database: str) -> str:
    """One for all of these: what is refused leaves nothing behind."""
    return new_database(template_database)


def insert(url: str, row: dict[str, Any]) -> None:
    columns = ", ".join(row)
    values = ", ".join(f"%({name})s" for name in row)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"INSERT INTO timer_task ({columns}) VALUES ({values})".encode(), row)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slot": 1},
        {"start_time": NOW_MS + 1_000},
        {"start_time": 0, "slot": 0},
        {"attempts": -1},
        {"failures": -1},
        {"revision": 0},
        {"life": 0},
        {"shard": -1},
        {"biz_id": ""},
        {"biz_id": "x" * 257},
        {"status": 5},
        {"status": -1},
        # A pending task has no end.
        {"finish_time": NOW_MS},
        {"expire_at": NOW_MS},
        {"moved_to": NOW_MS},
        # A settled one has an end, an expiry, and nothing that is still to come.
        {"status": 1},
        {"status": 2, "finish_time": NOW_MS},
        {"status": 1, "lease_until": NOW_MS} | SETTLED,
        {"status": 3, "next_at": NOW_MS} | SETTLED,
        {"status": 2, "moved_to": NOW_MS} | SETTLED,
        # A moved one has an address and goes with the row that it forwards to.
        {"status": 4},
        {"status": 4, "moved_to": NOW_MS, "expire_at": NOW_MS},
        {"status": 4, "moved_to": NOW_MS, "lease_until": NOW_MS},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_a_wrong_task_is_refused(wrong: dict[str, Any], database_url: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        insert(database_url, GOOD | wrong)


@pytest.mark.parametrize(
    "right",
    [{}, {"lease_until": NOW_MS}, {"next_at": NOW_MS}, {"status": 4, "moved_to": NOW_MS}]
    + [{"status": status} | SETTLED for status in (1, 2, 3)],
)
def test_a_right_task_is_taken(right: dict[str, Any], database_url: str) -> None:
    insert(database_url, GOOD | {"task_id": str(new_task_id(NOW_MS))} | right)


def test_every_slot_has_one_partition(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for partition in range(PARTITIONS):
            for slot in (partition * PARTITION_SLOTS, (partition + 1) * PARTITION_SLOTS - 1):
                insert_slot = GOOD | {"slot": slot, "start_time": NOW_MS + slot * 1_000}
                columns = ", ".join(insert_slot)
                values = ", ".join(f"%({name})s" for name in insert_slot)
                row = connection.execute(
                    f"INSERT INTO timer_task ({columns}) VALUES ({values})"
                    " RETURNING CAST(tableoid AS regclass)::text".encode(),
                    insert_slot,
                ).fetchone()
                assert row == (f"timer_task_{partition_of(slot):02}",)


@pytest.mark.parametrize(
    "statement",
    [
        'UPDATE timer_pointer SET sweep_time = "current_time" + 1',
        "INSERT INTO timer_pointer VALUES (-1, 1, 1, 1)",
        "INSERT INTO timer_meta (one_row, shards) VALUES (false, 1)",
        "INSERT INTO timer_requeue VALUES (gen_random_uuid(), 1, 1, 0, 'orders', 'whatever')",
        "INSERT INTO timer_node VALUES ('n', 'whatever', '1', 1, 1)",
    ],
)
def test_a_wrong_row_of_another_table_is_refused(statement: str, database_url: str) -> None:
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(statement.encode())


def test_the_wheel_has_no_index_but_its_key(database_url: str) -> None:
    """An index on anything that delivery updates would end HOT."""
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'timer_task'"
        ).fetchall()
    assert [definition.partition(" USING ")[2] for (definition,) in found] == [
        "btree (slot, shard, start_time, task_id)"
    ]
