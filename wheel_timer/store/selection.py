"""
Selection: the tasks that fit a filter, page by page. sql/migrations: 0008_selection.

The filter decides the order, and with it the index that serves it:

    biz_id, biz_id_prefix   by biz_id          timer_key
    status failed           by finish_time     timer_dead
    anything else           by start_time      the wheel itself, second by second

A page looks at LOOKED_MAX rows at most. So it may be short, or empty, and still say where the next
one goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database, Rows
from wheel_timer.store.filter import TIME_MS_MAX, TIME_MS_MIN, Filter, end_of_prefix
from wheel_timer.store.task import TaskRow
from wheel_timer.task import Status
from wheel_timer.wheel import LAP_S, PARTITION_SLOTS, PARTITIONS, slot_of

LOOKED_MAX: Final = 10_000
# An entry of an index counts so many rows: it costs a descent into the wheel as well.
LOOKED_AN_ENTRY: Final = 5
# Rows that one statement looks at: a filter that fits few tasks takes several.
LOOK_ROWS: Final = 2_000
NIL: Final = UUID(int=0)


class Key(NamedTuple):
    """Where a page ended: (time_ms, task_id), or the biz_id. slot: of an order around the ring."""

    time_ms: int = TIME_MS_MIN
    task_id: UUID = NIL
    biz_id: str = ""
    slot: int = 0


class Found(NamedTuple):
    """A task that fits: where it is, and what it was when it was looked at."""

    task_id: UUID
    start_time: int
    revision: int


class Page(NamedTuple):
    """Tasks in their order, without payloads; then the key to go on from, None at the end."""

    rows: list[TaskRow]
    key: Key | None


class Part(NamedTuple):
    """
    Tasks of one shard as they were found: places and revisions too. Each column is the text of an
    array, as Postgres reads and writes it; nothing here looks into it.
    """

    shard: int
    rows: int
    task_ids: str
    start_times: str
    revisions: str

    def halves(self) -> tuple[Part, Part]:
        """The same tasks in two; of at least two."""
        middle = self.rows // 2
        columns = [column[1:-1].split(",") for column in self[2:]]
        return (
            Part(self.shard, middle, *[_array(column[:middle]) for column in columns]),
            Part(self.shard, self.rows - middle, *[_array(column[middle:]) for column in columns]),
        )

    def joined(self, more: Part) -> Part:
        """These tasks, then more of the same shard."""
        columns = [one[:-1] + "," + two[1:] for one, two in zip(self[2:], more[2:], strict=True)]
        return Part(self.shard, self.rows + more.rows, *columns)

    def ids(self) -> list[UUID]:
        """The tasks' ids."""
        return [UUID(text) for text in self.task_ids[1:-1].split(",")]


class Places(NamedTuple):
    """A page of tasks as they were found, around the ring: a part for each shard."""

    parts: list[Part]
    key: Key | None

    @property
    def rows(self) -> int:
        """How many tasks."""
        return sum(part.rows for part in self.parts)


_Entry = tuple[Key, UUID | None]
_Read = Callable[[Key, int], Awaitable[list[_Entry]]]


class _Piece(NamedTuple):
    """Slots of one partition, and the start_times [from_ms, to_ms) that are meant of them."""

    slot_lo: int
    slot_hi: int
    from_ms: int
    to_ms: int


class _Walk:
    """The way of a selection over the wheel, a piece at a time."""

    def __init__(self, filter_: Filter, *, in_time_order: bool) -> None:
        self._from_ms = TIME_MS_MIN if filter_.start_from is None else filter_.start_from
        self._to_ms = TIME_MS_MAX if filter_.start_to is None else filter_.start_to
        # A range of several laps would come by each slot as often; around the ring it is once.
        self._in_time_order = in_time_order or self._to_ms - self._from_ms < LAP_S * 1000

    def piece_at(self, key: Key) -> _Piece | None:
        """What lies behind a key, to the end of its partition; None at the end."""
        if not self._in_time_order:
            if key.slot >= LAP_S:
                return None
            return _Piece(key.slot, _last_of_partition(key.slot), self._from_ms, self._to_ms)
        first_ms = max(self._from_ms, key.time_ms)
        if first_ms >= self._to_ms:
            return None
        slot = slot_of(first_ms)
        last_s = min((self._to_ms - 1) // 1000, first_ms // 1000 + _last_of_partition(slot) - slot)
        from_ms = max(self._from_ms, first_ms // 1000 * 1000)
        return _Piece(slot, slot_of(last_s * 1000), from_ms, min(self._to_ms, last_s * 1000 + 1000))

    def behind(self, piece: _Piece) -> Key:
        """The key of what follows a piece."""
        return Key(piece.to_ms) if self._in_time_order else Key(slot=piece.slot_hi + 1)

    def behind_slot(self, piece: _Piece, slot: int) -> Key:
        """The key of what follows a slot of a piece."""
        if not self._in_time_order:
            return Key(slot=slot + 1)
        return Key((piece.from_ms // 1000 + slot - piece.slot_lo + 1) * 1000)


async def select_page(
    db: Database,
    filter_: Filter,
    key: Key,
    limit: int,
    *,
    now_ms: float,
    shards: int,
    looked_max: int | None = None,
) -> Page:
    """
    At most `limit` tasks behind `key` (Key(): the first), in the order that the filter decides.

    now_ms: the database's clock. looked_max: the page is short rather than that more rows are
    looked at; None: LOOKED_MAX. Raises DatabaseUnavailable.
    """
    looked_max = LOOKED_MAX if looked_max is None else looked_max
    read = _index_of(db, filter_)
    if read is not None:
        return await _by_index(filter_, limit, now_ms, key, db, read, looked_max)
    walk = _Walk(filter_, in_time_order=True)
    found: list[Found] = []

    def take(hits: Rows) -> int:
        found.extend(Found._make(hit[:3]) for hit in hits)
        return len(found)

    next_key = await _by_place(
        db, "select_by_place", filter_, walk, key, limit, shards, take, looked_max
    )
    rows = await _rows_at(db, found)
    return Page([row for row in rows if filter_.fits(row, now_ms)], next_key)


async def select_places(
    db: Database,
    filter_: Filter,
    key: Key,
    limit: int,
    *,
    now_ms: float,
    shards: int,
    pieces_max: int = PARTITIONS,
) -> Places:
    """
    The same for who changes them all and needs no order: a range of a lap or more is walked around
    the ring, each slot once, and the tasks are not read again. pieces_max: so many partitions are
    looked into for it.
    """
    read = _index_of(db, filter_)
    if read is not None:
        page = await _by_index(filter_, limit, now_ms, key, db, read, LOOKED_MAX)
        return Places(_parts(page.rows), page.key)
    walk = _Walk(filter_, in_time_order=False)
    parts: dict[int, Part] = {}

    def take(hits: Rows) -> int:
        for hit in hits:
            part = Part(*hit[:5])
            held = parts.get(part.shard)
            parts[part.shard] = part if held is None else held.joined(part)
        return sum(part.rows for part in parts.values())

    next_key = await _by_place(
        db, "select_parts", filter_, walk, key, limit, shards, take, LOOKED_MAX, pieces_max
    )
    return Places(list(parts.values()), next_key)


def _parts(rows: Sequence[TaskRow]) -> list[Part]:
    """Tasks that were read, as parts."""
    by_shard: dict[int, list[TaskRow]] = defaultdict(list)
    for row in rows:
        by_shard[row.shard].append(row)
    return [
        Part(
            shard,
            len(some),
            _array([str(row.task_id) for row in some]),
            _array([str(row.start_time) for row in some]),
            _array([str(row.revision) for row in some]),
        )
        for shard, some in by_shard.items()
    ]


def _array(values: Sequence[str]) -> str:
    """The text of an array of what needs no quotes."""
    return "{" + ",".join(values) + "}"


def _index_of(db: Database, filter_: Filter) -> _Read | None:
    """The index that serves a filter; None: the wheel itself."""
    if filter_.biz_id is not None or filter_.biz_id_prefix is not None:
        return _biz_ids(db, filter_)
    return _deaths(db, filter_) if filter_.status == "failed" else None


def _last_of_partition(slot: int) -> int:
    return slot // PARTITION_SLOTS * PARTITION_SLOTS + PARTITION_SLOTS - 1


async def _by_place(
    db: Database,
    query: str,
    filter_: Filter,
    walk: _Walk,
    key: Key,
    limit: int,
    shards: int,
    take: Callable[[Rows], int],
    looked_max: int,
    pieces_max: int = PARTITIONS,
) -> Key | None:
    """
    Read piece after piece until there are `limit` tasks, or enough was looked at. take: gets what
    the query has found, says how many tasks there are by now. Returns where the next page begins.
    """
    looked = pieces = found = 0
    while (piece := walk.piece_at(key)) is not None:
        if found == limit or looked >= looked_max or pieces == pieces_max:
            break
        *hits, mark = await db.fetch(
            query,
            {
                "slot_lo": piece.slot_lo,
                "slot_hi": piece.slot_hi,
                "from": piece.from_ms,
                "to": piece.to_ms,
                "key_time": key.time_ms,
                "key_id": key.task_id,
                "shards": shards,
                "biz_type": filter_.biz_type,
                "biz_types": filter_.like_patterns,
                "status": filter_.stored_status,
                "is_leased": filter_.is_leased,
                "finish_from": filter_.finish_from,
                "finish_to": filter_.finish_to,
                "http_status": filter_.http_status,
                "schedule_id": filter_.schedule_id,
                "asked_at": filter_.asked_at,
                "limit": limit - found,
                "looked_max": min(looked_max - looked, max(LOOK_ROWS, limit)),
            },
        )
        if hits:
            found = take(hits)
        count, last_slot, last_ms, last_id, is_done = mark[-5:]
        looked += count
        if is_done:
            pieces += 1
            key = walk.behind(piece)
        elif last_ms is None:
            key = walk.behind_slot(piece, last_slot)
        else:
            key = Key(last_ms, last_id, "", last_slot)
    return key if piece else None


async def _by_index(
    filter_: Filter,
    limit: int,
    now_ms: float,
    key: Key,
    db: Database,
    read: _Read,
    looked_max: int,
) -> Page:
    """The tasks that an index's entries name, in its order, as far as they fit."""
    found: list[TaskRow] = []
    looked = 0
    entries_max = looked_max // LOOKED_AN_ENTRY
    while looked < entries_max:
        ask = min(limit, entries_max - looked)
        entries = await read(key, ask)
        looked += len(entries)
        rows = await rows_of(db, [task_id for _, task_id in entries if task_id is not None])
        for key, task_id in entries:
            row = None if task_id is None else rows.get(task_id)
            if row is not None and filter_.fits(row, now_ms):
                found.append(row)
                if len(found) == limit:
                    return Page(found, key)
        if len(entries) < ask:
            return Page(found, None)
    return Page(found, key)


def _deaths(db: Database, filter_: Filter) -> _Read:
    async def read(key: Key, ask: int) -> list[_Entry]:
        dead = await db.fetch(
            "select_dead",
            {
                "biz_type": filter_.biz_type,
                "from": TIME_MS_MIN if filter_.finish_from is None else filter_.finish_from,
                "to": TIME_MS_MAX if filter_.finish_to is None else filter_.finish_to,
                "key_time": key.time_ms,
                "key_id": key.task_id,
                "limit": ask,
            },
        )
        # What can be told here needs no look at the wheel.
        return [
            (
                Key(finish_ms, task_id),
                task_id
                if filter_.sees(biz_type) and filter_.http_status in (None, http_status)
                else None,
            )
            for task_id, finish_ms, biz_type, http_status in dead
        ]

    return read


def _biz_ids(db: Database, filter_: Filter) -> _Read:
    exact, prefix = filter_.biz_id, filter_.biz_id_prefix or ""

    async def read(key: Key, ask: int) -> list[_Entry]:
        keys = await db.fetch(
            "select_keys",
            {
                "biz_type": filter_.biz_type,
                "first": prefix if exact is None else exact,
                # Nothing lies between a text and itself with the smallest character behind it.
                "end": end_of_prefix(prefix) if exact is None else exact + "\x01",
                "after": key.biz_id,
                "limit": ask,
            },
        )
        return [(Key(biz_id=biz_id), task_id) for biz_id, task_id in keys]

    return read


async def rows_of(db: Database, task_ids: Sequence[UUID]) -> dict[UUID, TaskRow]:
    """The tasks with these ids, wherever they are now, without payloads; one gone is missing."""
    rows = [TaskRow._make(row) for row in await db.fetch("selected", {"task_ids": task_ids})]
    return {row.task_id: row._replace(status=Status(row.status)) for row in rows}


async def _rows_at(db: Database, places: Sequence[Found]) -> list[TaskRow]:
    """The tasks that are at these places still, in the order given."""
    found = await rows_of(db, [place.task_id for place in places]) if places else {}
    rows = [found.get(place.task_id) for place in places]
    # One that has moved meanwhile may lie on a page to come.
    return [
        row
        for row, place in zip(rows, places, strict=True)
        if row is not None and row.start_time == place.start_time
    ]
