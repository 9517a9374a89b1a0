"""Nothing due: what all processes together use, ask and write."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tests.bench.figure import Row
from tests.bench.machine import cpu_s
from tests.bench.product import Product

SETTLE_S: Final = 15
FOR_S: Final = 60
CPU_PERCENT_MAX: Final = 2.0
QUERIES_PER_S_MAX: Final = 3.0
# The lease and the hands' pointers; heartbeats of nodes. Nothing else may be written.
WRITTEN: Final = frozenset({"timer_pointer", "timer_node"})

COMMITS: Final = """
SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'wheel_timer'
"""
WRITES: Final = """
SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_user_tables
"""


async def measure() -> list[Row]:
    """For a minute, with a wheel that is empty."""
    async with Product() as product:
        await asyncio.sleep(SETTLE_S)
        written = await _writes(product)
        commits = await _commits(product)
        commands = (await product.redis_info())["total_commands_processed"]
        processes = product.processes()
        began_s, used_s = time.monotonic(), cpu_s(processes)
        await asyncio.sleep(FOR_S)
        elapsed_s, used_s = time.monotonic() - began_s, cpu_s(processes) - used_s
        commands = (await product.redis_info())["total_commands_processed"] - commands
        commits = await _commits(product) - commits
        after = await _writes(product)
    writes = {table: after[table] - count for table, count in written.items()}
    changed = sorted(table for table, count in writes.items() if count)
    percent = used_s / elapsed_s * 100
    queries_per_s = commits / elapsed_s
    return [
        Row(
            "idle: CPU of all processes together",
            f"{CPU_PERCENT_MAX:g}% of a core",
            f"{percent:.1f}%",
            percent <= CPU_PERCENT_MAX,
            {"percent": percent},
        ),
        Row(
            "idle: queries",
            f"{QUERIES_PER_S_MAX:g}/s",
            f"{queries_per_s:.1f}/s ({commands / elapsed_s:.1f}/s in Redis)",
            queries_per_s <= QUERIES_PER_S_MAX,
            {"queries_per_s": queries_per_s, "commands_per_s": commands / elapsed_s},
        ),
        Row(
            "idle: rows written",
            "lease, heartbeat, close",
            f"{sum(writes.values()) / elapsed_s:.2f}/s in {', '.join(changed) or 'no table'}",
            set(changed) <= WRITTEN,
            {f"{table}_rows": float(count) for table, count in writes.items() if count},
        ),
    ]


async def _commits(product: Product) -> int:
    """Transactions so far, seen from another database, so that ours are not among them."""
    ((commits,),) = await product.sql(COMMITS, database="postgres")
    return int(commits)


async def _writes(product: Product) -> dict[str, int]:
    return {str(table): int(count) for table, count in await product.sql(WRITES)}
