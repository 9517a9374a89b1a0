"""Who stands in line, or is held, is asked often: that costs little, whatever else waits."""

from __future__ import annotations

from typing import Final

import pytest

from tests.fix_clock import DatabaseClock
from tests.fix_sessions import Sessions

ROWS: Final = 20_000
PUT: Final = """
INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
SELECT gen_random_uuid(), 0, %(now)s, %(now)s + i, 'biz-' || lpad(CAST(i %% 50 AS text), 2, '0'),
    CAST(%(reason)s AS text)
FROM generate_series(1, %(rows)s) AS i
"""


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("wheel_lines_v1(0::smallint)", ("held", "retry")),
        ("wheel_held_v1()", ("overflow", "retry")),
    ],
)
async def test_what_waits_for_another_reason_is_not_looked_at(
    sessions: Sessions, clock: DatabaseClock, name: str, reasons: tuple[str, str]
) -> None:
    session = await sessions.open()
    for reason in reasons:
        await session.execute(PUT, {"now": clock.freeze(), "reason": reason, "rows": ROWS})
    await session.execute("ANALYZE timer_requeue")
    # The first call reads the catalogue, too.
    await session.execute(f"SELECT {name}".encode())
    plan = await session.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT {name}".encode())
    row = await plan.fetchone()
    assert row is not None
    read = row[0][0]["Plan"]
    # A page or two of an index that is empty; 40,000 entries of another would be hundreds.
    assert read["Shared Hit Blocks"] + read["Shared Read Blocks"] < 60
    assert read["Actual Rows"] in (0, 1)
