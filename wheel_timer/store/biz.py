"""
timer_biz: the configuration centre's rows, read and written.

Versions come from one sequence and become
visible in their order, so a reader that asks "anything newer than n?" misses nothing. Every write
leaves a row in timer_biz_history and one in timer_change, in its own transaction.

A change is made here, between a read and a write that insists on the version read; who is
overtaken starts again. Configuration is written by people: one overtaking is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from wheel_timer.amend import differing, settings
from wheel_timer.biz import BizType, BizTypeIn, merged
from wheel_timer.database import Database
from wheel_timer.errors import (
    Conflict,
    FieldError,
    InvalidTask,
    NotFound,
    Overloaded,
    StaleVersion,
)
from wheel_timer.store.biz_row import from_stored, to_stored
from wheel_timer.store.brake import Brake
from wheel_timer.store.filter import Filter
from wheel_timer.store.ledger import pending
from wheel_timer.store.schedule import has_any

OVERTAKEN_MAX: Final = 5
# Whose doing it is where no caller is named: this process' own, or a test's.
LOCAL: Final = "local"

# What a biz_type is to become, of what it is (None: there is none). Raises InvalidTask, NotFound.
Make = Callable[[BizType | None], BizType]
# Where in a request a biz_type of this name stands: a JSON pointer.
Root = Callable[[str], str]


class Put(NamedTuple):
    """What a change did. before: None where it is new."""

    biz: BizType
    before: BizType | None

    @property
    def created(self) -> bool:
        """Whether there was none."""
        return self.before is None

    @property
    def changed(self) -> bool:
        """False where everything stood as asked already."""
        return self.biz != self.before


class News(NamedTuple):
    """
    What was changed in the configuration since a version.

    version: the newest of it, 0 where there is nothing. brake_moved: whether `brake` says anything.
    """

    version: int
    biz_types: list[BizType]
    deleted: list[str]
    brake_moved: bool
    brake: Brake | None


async def load_newer(db: Database, version: int) -> News:
    """What was changed since `version` (0: everything there is), in no order."""
    rows = await db.fetch("biz_load_newer", {"version": version})
    news = News(max((row[1] for row in rows), default=0), [], [], False, None)
    for name, changed_at, config, hidden in rows:
        if name is None:
            brake = None if config is None else msgspec.convert(config, Brake)
            news = news._replace(brake_moved=True, brake=brake)
        elif config is None:
            news.deleted.append(name)
        else:
            news.biz_types.append(from_stored(name, changed_at, config, hidden))
    return news


async def load(db: Database, name: str) -> BizType | None:
    """One biz_type by its name."""
    row = await db.fetch_one("biz_load_one", {"biz_type": name})
    return None if row is None else from_stored(name, *row)


async def put(
    db: Database,
    name: str,
    given: BizTypeIn,
    expected: int | None = None,
    *,
    actor: str = LOCAL,
) -> Put:
    """
    Make the biz_type `name` what `given` says; write-only values that it leaves out stay.

    Raises InvalidTask where `given` breaks a rule, and what `change` does. Safe to repeat.
    """
    return await change(
        db,
        name,
        lambda before: merged(name, given, before),
        expected,
        actor=actor,
        action="biz.put",
    )


async def change(
    db: Database,
    name: str,
    make: Make,
    expected: int | None = None,
    *,
    actor: str,
    action: str,
) -> Put:
    """
    Make the biz_type `name` what `make` makes of it.

    expected: the version that it must have (If-Match), 0 where there must be none, None for any.
    Raises StaleVersion where that is not so, InvalidTask where on_failed names no biz_type, and
    whatever `make` raises. What stands as asked is not written again.
    """
    (done,) = await change_all(db, {name: (make, expected)}, actor=actor, action=action)
    return done


async def change_all(
    db: Database,
    makes: Mapping[str, tuple[Make, int | None]],
    *,
    actor: str,
    action: str,
    dry_run: bool = False,
    root: Root = lambda _: "#",
) -> list[Put]:
    """
    The same for several, all or none: name -> (what makes it, its expected version).

    dry_run: everything is checked and nothing written; versions are then those of before. root:
    where in the request the biz_type of a name stands, for the errors' pointers.
    """
    for _ in range(OVERTAKEN_MAX):
        wanted = await _make_all(db, makes, root)
        changed = [put for put in wanted if put.changed]
        if dry_run:
            await _check_references(db, changed, root)
            return wanted
        if not changed:
            return wanted
        versions = await _write(db, changed, actor, action, root)
        if versions is not None:
            written = dict(zip((put.biz.biz_type for put in changed), versions, strict=True))
            return [
                Put(msgspec.structs.replace(biz, version=written[biz.biz_type]), before)
                if biz.biz_type in written
                else Put(biz, before)
                for biz, before in wanted
            ]
    raise Overloaded("the configuration is being changed by others all the time")


async def _make_all(
    db: Database, makes: Mapping[str, tuple[Make, int | None]], root: Root
) -> list[Put]:
    """Each as it is to be. Raises InvalidTask with what is wrong with any of them."""
    wanted: list[Put] = []
    errors: list[FieldError] = []
    for name, (make, expected) in makes.items():
        before = await load(db, name)
        _check_version(name, before, expected)
        try:
            wanted.append(Put(make(before), before))
        except InvalidTask as error:
            errors += [FieldError(e.detail, root(name) + e.pointer[1:]) for e in error.errors]
    if errors:
        raise InvalidTask(errors)
    return wanted


def _check_version(name: str, before: BizType | None, expected: int | None) -> None:
    stands = 0 if before is None else before.version
    if expected is None or stands == expected:
        return
    if before is None:
        raise StaleVersion(f"the biz_type {name!r} does not exist")
    if expected == 0:
        raise StaleVersion(f"the biz_type {name!r} exists, at version {stands}")
    raise StaleVersion(f"the newest version is {stands}, not {expected}")


async def _check_references(db: Database, changed: Sequence[Put], root: Root) -> None:
    """What the write would find out: whether each on_failed exists, or would with these."""
    names = {put.biz.biz_type for put in changed}
    for biz, _ in changed:
        named = biz.on_failed
        if named is not None and named not in names and await load(db, named) is None:
            raise unknown_on_failed(named, root(biz.biz_type))


async def _write(
    db: Database, changed: Sequence[Put], actor: str, action: str, root: Root
) -> list[int] | None:
    """The new versions, or None where one is no longer (or no longer not) there as it was read."""
    rows = []
    for biz, before in changed:
        config, hidden = to_stored(biz)
        old, new = differing(before, biz)
        rows.append(
            {
                "biz_type": biz.biz_type,
                "expected": None if before is None else before.version,
                "config": config,
                "secrets": hidden,
                "shown": settings(biz),
                "action": action,
                "old": old,
                "new": new,
            }
        )
    params = {"actor": actor, "changes": msgspec.json.encode(rows).decode()}
    row = await db.fetch_one("biz_put", params)
    assert row is not None
    versions, unknown = row
    if unknown is not None:
        (first, *_) = (put.biz for put in changed if put.biz.on_failed == unknown)
        raise unknown_on_failed(unknown, root(first.biz_type))
    return None if versions is None else list(versions)


def unknown_on_failed(name: str, root: str = "#") -> InvalidTask:
    """The refusal of an on_failed that leads nowhere."""
    return InvalidTask([FieldError(f"there is no biz_type {name!r}", f"{root}/on_failed")])


async def delete(
    db: Database,
    name: str,
    expected: int | None,
    *,
    actor: str,
    purge_id: UUID | None = None,
) -> int:
    """
    Delete a biz_type, whatever tasks it has. Returns the version of the deletion.

    purge_id: begin an operation of this id that deletes its tasks, in the same transaction.
    Raises NotFound, StaleVersion, Conflict where another biz_type names it in on_failed.
    """
    for _ in range(OVERTAKEN_MAX):
        before = await load(db, name)
        if before is None and expected is None:
            raise NotFound(f"there is no biz_type {name[:64]!r}")
        _check_version(name, before, expected)
        assert before is not None
        old = msgspec.json.encode(differing(before, None)[0]).decode()
        params = {
            "actor": actor,
            "biz_type": name,
            "expected": before.version,
            "old": old,
            "operation_id": purge_id,
            "filter": msgspec.json.encode(Filter(biz_type=name)).decode(),
        }
        row = await db.fetch_one("biz_delete", params)
        assert row is not None
        deleted, named_by = row
        if named_by is not None:
            detail = f"the biz_type {named_by!r} names it in on_failed"
            raise Conflict(detail, "biz-type-in-use")
        if deleted is not None:
            return int(deleted)
    raise Overloaded("this biz_type is being changed by others all the time")


async def has_tasks(db: Database, name: str) -> bool:
    """
    Whether this biz_type has a task that could still be called: pending, or a dead letter; or a
    schedule, which brings more.
    """
    if await db.fetch_one("biz_has_dead", {"biz_type": name}) or await has_any(db, name):
        return True
    return await pending(db, name) > 0
