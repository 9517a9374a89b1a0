"""timer_key_api: the API keys' rows, read and written. A secret comes here as its SHA-256 only."""

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest
from typing import Final, NamedTuple

from wheel_timer.database import Database

_NO_SECRET: Final = bytes(32)
_NEVER_MS: Final = 2**63


class KeyRow(NamedTuple):
    """A key as it is stored. Times in ms by the database's clock; secret, previous: SHA-256."""

    key_id: str
    version: int
    name: str
    scopes: list[str]
    biz_types: list[str]
    secret: bytes
    previous: bytes | None
    previous_until: int | None
    expire_at: int | None
    create_time: int
    rotate_time: int | None
    revoke_time: int | None

    @property
    def is_narrowed(self) -> bool:
        """Whether there are biz_types that it does not see."""
        return "*" not in self.biz_types

    def opened_by(self, digest: bytes, now_ms: float) -> bool:
        """Whether the secret of this digest counts at this moment. Takes the same time always."""
        is_present = compare_digest(digest, self.secret)
        is_previous = compare_digest(digest, self.previous or _NO_SECRET)
        if self.revoke_time is not None or (self.expire_at or _NEVER_MS) <= now_ms:
            return False
        return is_present or (is_previous and now_ms < (self.previous_until or 0))


async def load_newer(db: Database, version: int) -> list[KeyRow]:
    """The keys that were changed since `version` (0: all), in no order."""
    return [KeyRow._make(row) for row in await db.fetch("keys_newer", {"version": version})]


async def find(db: Database, key_id: str) -> tuple[KeyRow, int] | None:
    """A key, and the database's clock (ms); None where there is no such key."""
    row = await db.fetch_one("keys_find", {"key_id": key_id})
    return None if row is None else (KeyRow._make(row[:-1]), row[-1])


async def create(
    db: Database,
    actor: str,
    key_id: str,
    *,
    name: str,
    scopes: Sequence[str],
    biz_types: Sequence[str],
    secret: bytes,
    expire_at_ms: int | None,
) -> None:
    """Write a new key. key_id: drawn at random by the caller, so that it is taken by nobody."""
    params = {
        "actor": actor,
        "key_id": key_id,
        "name": name,
        "scopes": list(scopes),
        "biz_types": list(biz_types),
        "secret": secret,
        "expire_at": expire_at_ms,
    }
    await db.execute("keys_create", params)


async def rotate(db: Database, actor: str, key_id: str, secret: bytes, overlap_ms: int) -> bool:
    """Put a new secret before the present one. False: no such key, or it is revoked."""
    params = {"actor": actor, "key_id": key_id, "secret": secret, "overlap_ms": overlap_ms}
    return await db.fetch_one("keys_rotate", params) is not None


async def revoke(db: Database, actor: str, key_id: str) -> bool:
    """End a key. False: no such key, or it was revoked before."""
    return await db.fetch_one("keys_revoke", {"actor": actor, "key_id": key_id}) is not None
