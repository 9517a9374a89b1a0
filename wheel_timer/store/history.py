"""What was changed and when: the versions of a biz_type, and the changes by the API. Reads only."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from wheel_timer.database import Database

# Beyond every version, time and change_id.
NEWEST: Final = 2**63 - 1


class Version(NamedTuple):
    """One version of a biz_type. settings: as a GET shows them; None: it was deleted."""

    version: int
    time_ms: int
    actor: str
    action: str
    settings: dict[str, Any] | None


class Key(NamedTuple):
    """Where a page of changes ended; the next one is below it."""

    time_ms: int
    change_id: int


class Change(NamedTuple):
    """
    One change. old, new: what differs; None where there is no such side. fits: it is the actor's
    and the action that were asked for; of one that is not the sides are left out.
    """

    time_ms: int
    change_id: int
    actor: str
    action: str
    object: str
    old: Any
    new: Any
    fits: bool


async def biz_history(db: Database, biz_type: str, before: int, limit: int) -> list[Version]:
    """The versions of a biz_type below `before`, newest first."""
    params = {"biz_type": biz_type, "before": before, "limit": limit}
    return [Version._make(row) for row in await db.fetch("biz_history", params)]


async def changes(
    db: Database,
    object_: str | None,
    from_ms: int,
    to_ms: int,
    below: Key,
    limit: int,
    *,
    actor: str | None = None,
    action: str | None = None,
) -> list[Change]:
    """
    Changes of [from_ms, to_ms), newest first; object_: of this one only. Those of other actors or
    actions are among them, marked.
    """
    params: dict[str, Any] = {
        "actor": actor,
        "action": action,
        "from": from_ms,
        "to": to_ms,
        "key_time": below.time_ms,
        "key_id": below.change_id,
        "limit": limit,
    }
    if object_ is None:
        rows = await db.fetch("changes", params)
    else:
        rows = await db.fetch("changes_of", params | {"object": object_})
    return [Change._make(row) for row in rows]
