"""The product as its users start it: `wheel-timer up`, in a directory of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import psutil
import psycopg
from psycopg.conninfo import make_conninfo
from redis.asyncio import Redis

from tests.bench.wire import Load, request
from tests.processes import arguments

PROGRAM: Final = Path(sys.executable).parent / "wheel-timer"
BROKERS: Final = 2
STOP_S: Final = 60.0


class Product:
    """
    `async with Product() as product`: a running `up`, fresh and empty, with two brokers.

    options: more of the command line.
    """

    def __init__(self, *options: str) -> None:
        self._options = options

    async def __aenter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="wheel-timer-bench-"))
        self._process = await asyncio.create_subprocess_exec(
            *(str(PROGRAM), "up", "--port", "0", "--brokers", str(BROKERS)),
            *("--data-dir", str(self._directory / "data"), *self._options),
            stdout=asyncio.subprocess.PIPE,
            env=_environ(),
        )
        try:
            assert self._process.stdout is not None
            line = await self._process.stdout.readline()
            assert line, "`wheel-timer up` did not start; its reason stands above"
            said = json.loads(line)
        except BaseException:
            await self._stop()
            raise
        self.database_url: str = said["database_url"]
        self.redis_url: str = said["redis_url"]
        self.port = urlsplit(said["url"]).port or 80
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """All of it: `up`, Postgres with its backends, Redis, daemon, brokers."""
        top = psutil.Process(self._process.pid)
        return [top, *top.children(recursive=True)]

    def daemon(self) -> psutil.Process:
        """The daemon's process."""
        return next(one for one in self.processes() if "--ops-port" in arguments(one))

    async def configure(self, biz_type: str, **fields: Any) -> None:
        """PUT a biz_type."""
        await self.call("PUT", f"/v1/biz/{biz_type}", fields)

    async def call(self, method: str, path: str, body: Any) -> Any:
        """One request with a JSON body; the JSON of its answer, which must be a 2xx."""
        async with Load(self.port, 1) as load:
            answer = await load.call(request(method, path, json.dumps(body).encode()))
        assert 200 <= answer.status < 300, answer
        return json.loads(answer.body)

    async def sql(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Rows of one statement, over a connection of its own; database: another of the server."""
        url = make_conninfo(self.database_url, dbname=database)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []

    async def versions(self) -> tuple[str, str]:
        """Of Postgres and Redis."""
        ((postgres,),) = await self.sql("SHOW server_version")
        return str(postgres).split()[0], str((await self.redis_info())["redis_version"])

    async def redis_info(self) -> dict[str, Any]:
        """INFO."""
        redis = Redis.from_url(self.redis_url)
        try:
            info: dict[str, Any] = await redis.info()
        finally:
            await redis.aclose()
        return info


def _environ() -> dict[str, str]:
    """Ours without settings: what is measured are the defaults."""
    kept = {name: value for name, value in os.environ.items() if "WHEEL_TIMER" not in name}
    return {**kept, "WHEEL_TIMER_LOG_FORMAT": "json"}
