"""
Postgres and Redis that come with the package, for `wheel-timer up`, `demo` and the tests.

    with DataDirectory(path) as directory:          # one wheel-timer a directory
        postgres, redis = EmbeddedPostgres(directory), EmbeddedRedis(directory)
        postgres.start(); redis.start()
        postgres.wait_ready(60); redis.wait_ready(20)
        ... postgres.url, redis.url ...
        redis.stop(); postgres.stop()

Both run as children of this process, in a session of their own (a terminal's Ctrl-C is for the
programs that use them), listen on a Unix socket only their user can reach, and are shut down
properly even when this process is killed. What lies in the directory survives restarts.
"""

from __future__ import annotations

from wheel_timer.embedded.directory import DataDirectory
from wheel_timer.embedded.postgres import EmbeddedPostgres
from wheel_timer.embedded.redis import EmbeddedRedis
from wheel_timer.embedded.server import EmbeddedServer

__all__ = ["DataDirectory", "EmbeddedPostgres", "EmbeddedRedis", "EmbeddedServer"]
