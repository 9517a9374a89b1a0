"""
timer_biz: the configuration centre's rows, read and written.

A row keeps a biz_type in two JSON texts: `config`, and `secrets`, which holds every write-only
value and is not shown to readers of the database. Versions come from one sequence and become
visible in their order, so a reader that asks "anything newer than n?" misses nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from wheel_timer.biz import BizType, BizTypeIn, merged
from wheel_timer.callback import is_write_only
from wheel_timer.database import Database
from wheel_timer.errors import Overloaded, StaleVersion


class Put(NamedTuple):
    """What a put did. changed is False where everything stood as asked already."""

    biz: BizType
    created: bool
    changed: bool


async def load_newer(db: Database, version: int) -> list[BizType]:
    """The biz_types that were changed since `version` (0: all), in no order."""
    rows = await db.fetch("biz_load_newer", {"version": version})
    return [from_stored(*row) for row in rows]


async def load(db: Database, name: str) -> BizType | None:
    """One biz_type by its name."""
    row = await db.fetch_one("biz_load_one", {"biz_type": name})
    return None if row is None else from_stored(name, *row)


async def put(db: Database, name: str, given: BizTypeIn, expected: int | None = None) -> Put:
    """
    Make the biz_type `name` what `given` says; write-only values that it leaves out stay.

    expected: the version that it must have (If-Match), None for any. Raises StaleVersion where it
    has another or there is none, InvalidTask where `given` breaks a rule. Safe to repeat: what
    stands as asked is not written again.
    """
    # The merge happens here, between a read and a write that insists on the version read; who is
    # overtaken starts again. Configuration is written by people: one overtaking is rare.
    for _ in range(5):
        before = await load(db, name)
        if expected is not None and (before is None or before.version != expected):
            raise StaleVersion(
                f"the biz_type {name!r} does not exist"
                if before is None
                else f"the newest version is {before.version}, not {expected}"
            )
        wanted = merged(name, given, before)
        if before is not None and wanted == before:
            return Put(before, created=False, changed=False)
        version = await _write(db, wanted, None if before is None else before.version)
        if version is not None:
            biz = msgspec.structs.replace(wanted, version=version)
            return Put(biz, created=before is None, changed=True)
    raise Overloaded("this biz_type is being changed by others all the time")


async def _write(db: Database, biz: BizType, expected: int | None) -> int | None:
    """The new version, or None where the row is no longer (or no longer not) there as expected."""
    config, hidden = to_stored(biz)
    params = {"biz_type": biz.biz_type, "config": config, "secrets": hidden}
    if expected is None:
        row = await db.fetch_one("biz_create", params)
    else:
        row = await db.fetch_one("biz_replace", params | {"expected": expected})
    return None if row is None else int(row[0])


def to_stored(biz: BizType) -> tuple[str, str]:
    """(config, secrets) of a row, as JSON texts."""
    config: dict[str, Any] = msgspec.to_builtins(biz)
    for name in ("biz_type", "version", "secrets"):
        del config[name]
    hidden = [{"kind": "signing", "value": secret} for secret in biz.secrets]
    for name, value in biz.callback_headers.items():
        if is_write_only(name):
            hidden.append({"kind": "header", "name": name, "value": value})
            del config["callback_headers"][name]
    return msgspec.json.encode(config).decode(), msgspec.json.encode(hidden).decode()


def from_stored(name: str, version: int, config: Any, hidden: Any) -> BizType:
    """The biz_type of a row; settings that only a newer release knows are passed over."""
    headers = dict(config.get("callback_headers", {}))
    headers |= {item["name"]: item["value"] for item in hidden if item["kind"] == "header"}
    secrets = [item["value"] for item in hidden if item["kind"] == "signing"]
    own = {"biz_type": name, "version": version, "callback_headers": headers, "secrets": secrets}
    return msgspec.convert(config | own, BizType)
