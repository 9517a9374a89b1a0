"""
A broker's delivery as a process of its own that is killed at a point of the code.

    python -m tests.fault.broker_that_dies DATABASE_URL REDIS_URL REDIS_PREFIX POINT

Prints `ready`, then delivers; SIGKILL, sent to itself, is what it gets when it comes to POINT.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from tests.fix_delivery import Delivery
from wheel_timer import signal as points


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _deliver(database_url: str, redis_url: str, redis_prefix: str, point: str) -> None:
    points.on(point, _die)
    await Delivery(database_url, redis_url, redis_prefix).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_deliver(*sys.argv[1:]))
