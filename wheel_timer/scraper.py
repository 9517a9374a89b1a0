"""
Who may read /metrics of a process that has no API: the daemon, a broker that only calls back.

The API judges its requests by a copy of the keys in memory; here one scrape every few seconds asks
the database. ADMIN_KEY is judged without it, so metrics can be read while the database is away.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from wheel_timer.bearer import covers, given_key, is_key, split_key
from wheel_timer.database import Database
from wheel_timer.errors import Forbidden, Unauthorized, Unavailable
from wheel_timer.ops import Reader, Sees, sees_all
from wheel_timer.store.keys import KeyRow, find

SCOPE: Final = "read"


def reader(admin_key: str | None, db: Database) -> Reader:
    """The judge of a process' scrapes; without ADMIN_KEY everyone on this machine may read."""
    return _Scraper(admin_key, db).seen_by if admin_key else sees_all


class _Scraper:
    def __init__(self, admin_key: str, db: Database) -> None:
        self._admin_key = admin_key
        self._db = db

    async def seen_by(self, request: Request) -> Sees | None:
        """As wheel_timer.ops.Reader."""
        given = given_key(request.headers.raw)
        if is_key(given, self._admin_key):
            return None
        row = await self._row(given or b"")
        if row is None:
            raise Unauthorized("a key with the scope read is needed")
        if SCOPE not in row.scopes:
            raise Forbidden("this key lacks the scope read")
        if not row.is_narrowed:
            return None
        return lambda biz_type: any(covers(pattern, biz_type) for pattern in row.biz_types)

    async def _row(self, given: bytes) -> KeyRow | None:
        key = split_key(given)
        try:
            found = None if key is None else await find(self._db, key.key_id)
        except Unavailable:
            return None
        if key is None or found is None:
            return None
        row, now_ms = found
        return row if row.opened_by(key.digest, now_ms) else None
