"""
The way to Postgres: SQLAlchemy's pool, psycopg's wire, one statement a call.

Every call runs one named query in autocommit mode, so a call is a transaction of its own and one
round trip; what must happen together stands in one SQL function. Driver errors become ours here,
once, and nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from wheel_timer.errors import (
    DatabaseUnavailable,
    DataRejected,
    FenceBusy,
    LeadershipLost,
    SchemaMismatch,
    StepTaken,
    WheelTimerError,
)
from wheel_timer.monotonic import monotonic_s
from wheel_timer.queries import queries

Rows = list[tuple[Any, ...]]

CONNECT_TIMEOUT_S: Final = 5
# A reply later than this is no reply: the connection is given up, the outcome is unknown.
STATEMENT_TIMEOUT_S: Final = 10.0
# What we sent and the other side's kernel has not taken for so long means a dead link.
TCP_USER_TIMEOUT_MS: Final = 10_000
POOL_WAIT_S: Final = 5.0
# More callers than this do not begin to wait for a connection: at a millisecond a call that is the
# time they would have.
POOL_WAITERS_MAX: Final = 2_000

# How a text that reads much is run. To compile a plan of a hundred partitions takes longer than it
# saves, and a join of ten million rows should not go by the disk in a hundred pieces.
READ_GRACE_S: Final = 5.0
_READING: Final = """
SELECT set_config('statement_timeout', %s, true), set_config('transaction_read_only', 'on', true),
    set_config('jit', 'off', true), set_config('work_mem', '64MB', true)
"""

# SQLSTATEs raised by our own functions; class WT is ours.
SQLSTATE_LEADERSHIP_LOST: Final = "WT001"
SQLSTATE_FENCE_UNSAFE: Final = "WT002"
SQLSTATE_NO_SHARD: Final = "WT003"
SQLSTATE_STEP_TAKEN: Final = "WT004"

_RETRYABLE: Final = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.TransactionRollback,
)


def translate(error: psycopg.Error) -> WheelTimerError:
    """The error of ours that a psycopg error means. Texts are the server's, without parameters."""
    state = error.sqlstate or ""
    message = (error.diag.message_primary or str(error).partition("\n")[0]).strip()
    if state == SQLSTATE_LEADERSHIP_LOST:
        shard, epoch = (error.diag.message_detail or "0 0").split()
        return LeadershipLost(int(shard), int(epoch))
    if state == SQLSTATE_STEP_TAKEN:
        return StepTaken(message)
    if state == SQLSTATE_NO_SHARD or isinstance(
        error, errors.UndefinedTable | errors.UndefinedFunction | errors.UndefinedColumn
    ):
        return SchemaMismatch(message)
    if isinstance(error, errors.LockNotAvailable):
        return FenceBusy(message)
    if isinstance(error, _RETRYABLE) or state == SQLSTATE_FENCE_UNSAFE:
        return DatabaseUnavailable(message, outcome_unknown=False)
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return DataRejected(message)
    if isinstance(error, psycopg.ProgrammingError):
        return SchemaMismatch(message)
    return DatabaseUnavailable(message)


def conninfo(url: str, schema: str, application_name: str) -> str:
    """
    A libpq connection string for `url` with our settings: the schema first on the search path,
    dead links noticed within seconds.
    """
    return make_conninfo(
        url.replace("postgresql+psycopg://", "postgresql://", 1),
        application_name=application_name,
        connect_timeout=CONNECT_TIMEOUT_S,
        tcp_user_timeout=TCP_USER_TIMEOUT_MS,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=2,
        options=f"-c search_path={schema}",
    )


async def run(
    raw: AsyncConnection[Any], name: str, params: Mapping[str, Any] | None, timeout_s: float
) -> Rows:
    """Run one named query on one connection; driver errors come out as ours."""
    try:
        async with asyncio.timeout(timeout_s):
            cursor = raw.cursor(binary=True)
            await cursor.execute(queries()[name], params, prepare=True)
            if cursor.description is None:
                return []
            return await cursor.fetchall()
    except TimeoutError as error:
        raise DatabaseUnavailable(f"no reply within {timeout_s:g} s") from error
    except psycopg.Error as error:
        raise translate(error) from error


class Session:
    """
    One connection of one's own, for what is tied to a session: the leader's advisory lock.

    It is opened by the first call and gone after the first failure; `is_open` says which.
    """

    def __init__(self, url: str, *, schema: str, name: str) -> None:
        self._conninfo = conninfo(url, schema, name)
        self._raw: AsyncConnection[Any] | None = None
        self._connecting = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the session that the last call ran in is still there."""
        return self._raw is not None and not self._raw.closed

    async def fetch_one(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = STATEMENT_TIMEOUT_S,
    ) -> tuple[Any, ...] | None:
        """The first row of the named query. A failure closes the session."""
        try:
            async with self._connecting:
                # One session, whoever asks first: a second would hold its locks apart from it.
                if self._raw is None or self._raw.closed:
                    self._raw = await AsyncConnection.connect(self._conninfo, autocommit=True)
            rows = await run(self._raw, name, params, timeout_s)
        except (psycopg.Error, OSError) as error:
            await self.close()
            reason = str(error).partition("\n")[0]
            raise DatabaseUnavailable(reason, outcome_unknown=False) from error
        except BaseException:
            await self.close()
            raise
        return rows[0] if rows else None

    async def close(self) -> None:
        """End the session; its locks fall."""
        if self._raw is not None:
            raw, self._raw = self._raw, None
            await raw.close()


class Database:
    """
    One pool of connections to one database.

    url: libpq URL, multi-host ones too. pool_size: the most connections held at once; a caller
    that finds none free for POOL_WAIT_S, or POOL_WAITERS_MAX who wait for one, gets
    DatabaseUnavailable.
    """

    def __init__(
        self, url: str, *, schema: str = "public", pool_size: int = 4, name: str = "wheel-timer"
    ) -> None:
        self._conninfo = conninfo(url, schema, name)
        self._waiting = 0
        self._engine: AsyncEngine = create_async_engine(
            "postgresql+psycopg://",
            async_creator=self._connect,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            pool_reset_on_return=None,
            pool_use_lifo=True,
            isolation_level="AUTOCOMMIT",
        )

    async def _connect(self) -> AsyncConnection[Any]:
        return await AsyncConnection.connect(self._conninfo, autocommit=True)

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection of the pool. One that broke off in the middle does not serve again."""
        if self._waiting >= POOL_WAITERS_MAX:
            raise DatabaseUnavailable("too many wait for a connection", outcome_unknown=False)
        self._waiting += 1
        try:
            connection = await self._engine.connect()
        except (psycopg.Error, SQLAlchemyError, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise DatabaseUnavailable(reason, outcome_unknown=False) from error
        finally:
            self._waiting -= 1
        try:
            raw = (await connection.get_raw_connection()).driver_connection
            assert isinstance(raw, AsyncConnection)
            try:
                yield raw
            except BaseException:
                if raw.closed:
                    # A server that went took the idle connections with it: none of them is tried.
                    await connection.invalidate()
                    await self._engine.dispose()
                elif raw.info.transaction_status != TransactionStatus.IDLE:
                    await connection.invalidate()
                raise
        finally:
            await connection.close()

    async def fetch(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = STATEMENT_TIMEOUT_S,
    ) -> Rows:
        """All rows of the named query. Raises only errors of `wheel_timer.errors`."""
        async with self._lend() as raw:
            return await run(raw, name, params, timeout_s)

    async def read(self, statement: str, *, timeout_s: float) -> tuple[list[str], Rows]:
        """
        Column names and rows of a text of ours that is no named query: an audit. Nothing can be
        written by it; the server gives it up after timeout_s, too.
        """
        async with self._lend() as raw:
            try:
                async with asyncio.timeout(timeout_s + READ_GRACE_S), raw.transaction():
                    await raw.execute(_READING, [f"{timeout_s * 1000:.0f}"])
                    cursor = await raw.execute(statement.encode())
                    columns = [column.name for column in cursor.description or ()]
                    return columns, await cursor.fetchall()
            except TimeoutError as error:
                raise DatabaseUnavailable(f"no reply within {timeout_s:g} s") from error
            except psycopg.Error as error:
                raise translate(error) from error

    async def fetch_one(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = STATEMENT_TIMEOUT_S,
    ) -> tuple[Any, ...] | None:
        """The first row of the named query, or None."""
        rows = await self.fetch(name, params, timeout_s=timeout_s)
        return rows[0] if rows else None

    async def fetch_timed(
        self, name: str, params: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], float, float]:
        """
        The one row of the named query; when it was sent, and when it had come (monotonic_s).

        Without the pool's time in it, which is most of what a short query takes.
        """
        async with self._lend() as raw:
            sent_s = monotonic_s()
            rows = await run(raw, name, params, STATEMENT_TIMEOUT_S)
            came_s = monotonic_s()
        return rows[0], sent_s, came_s

    async def execute(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = STATEMENT_TIMEOUT_S,
    ) -> None:
        """Run the named query for what it does."""
        await self.fetch(name, params, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()
