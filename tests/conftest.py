"""
What every test may ask for: real servers, a database of its own, a clock, faults.

    database_url, db                 a freshly migrated database       fix_postgres.py
    redis_url, redis_prefix          a corner of the session's Redis   fix_redis.py
    clock                            the database's clock              fix_clock.py
    postgres_proxy, redis_proxy      a network that fails              fix_proxy.py
    endpoint                         who is called back                fix_endpoint.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest_plugins = [
    "tests.fix_clock",
    "tests.fix_endpoint",
    "tests.fix_postgres",
    "tests.fix_proxy",
    "tests.fix_redis",
]


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    """No setting of the machine reaches a test, or a process that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("WHEEL_TIMER_", "PG")):
                patch.delenv(name)
        yield
