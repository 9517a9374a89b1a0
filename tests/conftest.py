"""
What every test may ask for: real servers, a database of its own, a clock, faults.

    database_url, db                 a freshly migrated database       fix_postgres.py
    redis_url, redis_prefix          a corner of the session's Redis   fix_redis.py
    clock                            the database's clock              fix_clock.py
    postgres_proxy, redis_proxy      a network that fails              fix_proxy.py
    endpoint                         who is called back                fix_endpoint.py
    sessions                         other sessions, and their waits   fix_sessions.py
    hands, new_hands                 a daemon, turned step by step     fix_hands.py
    lanes, new_center                what lies in Redis, and readers   fix_lanes.py
    audits_hold                      nothing lost, nothing uncovered   fix_audits.py
    jobs                             workers, by HTTP                  fix_pull.py
    schedules, hand                  what generates, step by step      fix_schedules.py
    browser                          a Chromium with one page          fix_chromium.py
    explored                         counts the states of the model    fix_explored.py
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

# Those that import others come after them: pytest wants to be the first to load each.
pytest_plugins = [
    "tests.fix_postgres",
    "tests.fix_redis",
    "tests.fix_clock",
    "tests.fix_proxy",
    "tests.fix_endpoint",
    "tests.fix_sessions",
    "tests.fix_audits",
    "tests.fix_hands",
    "tests.fix_lanes",
    "tests.fix_delivery",
    "tests.fix_explored",
    "tests.fix_client",
    "tests.fix_pull",
    "tests.fix_schedules",
    "tests.fix_chromium",
]


# A shell's background job ignores Ctrl-C, and so would every process that a test starts and stops.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    """No setting of the machine reaches a test, or a process that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("WHEEL_TIMER_", "PG")):
                patch.delenv(name)
        yield
