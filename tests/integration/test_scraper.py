"""Who may read the metrics of a process that has no API."""

from __future__ import annotations

from hashlib import sha256

import pytest
from starlette.requests import Request

from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable, Forbidden, Unauthorized
from wheel_timer.ops import Sees
from wheel_timer.scraper import reader
from wheel_timer.store import keys

ADMIN_KEY = "correct horse battery staple"


async def seen(db: Database, key: str | None, admin_key: str | None = ADMIN_KEY) -> Sees | None:
    headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
    return await reader(admin_key, db)(Request({"type": "http", "headers": headers}))


async def make(db: Database, key_id: str, scopes: list[str], biz_types: list[str]) -> str:
    await keys.create(
        db,
        "admin",
        key_id,
        name="scrapes",
        scopes=scopes,
        biz_types=biz_types,
        secret=sha256(b"secret").digest(),
        expire_at_ms=None,
    )
    return f"wtk_{key_id}_secret"


async def test_a_key_reads_its_part_until_it_is_revoked(db: Database) -> None:
    assert await seen(db, None, admin_key=None) is None
    assert await seen(db, ADMIN_KEY) is None
    assert await seen(db, await make(db, "all", ["read"], ["*"])) is None
    narrowed = await make(db, "part", ["read", "submit"], ["orders.*"])
    sees = await seen(db, narrowed)
    assert sees is not None
    assert (sees("orders.close"), sees("payments")) == (True, False)
    with pytest.raises(Forbidden):
        await seen(db, await make(db, "writes", ["submit", "admin"], ["*"]))
    await keys.revoke(db, "admin", "part")
    for refused in (None, "", "wtk_all_other", "wtk_none_secret", "wtk_", narrowed):
        with pytest.raises(Unauthorized):
            await seen(db, refused)


async def test_without_the_database_only_the_admin_key_is_known(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await make(db, "all", ["read"], ["*"])

    async def fails(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(db, "fetch_one", fails)
    assert await seen(db, ADMIN_KEY) is None
    with pytest.raises(Unauthorized):
        await seen(db, key)
