"""
Which tasks a list shows, or an operation changes. Pure.

A filter is stored with its operation as JSON, so its fields are part of the schema.
"""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

import msgspec

from wheel_timer.bearer import covers
from wheel_timer.store.task import TaskRow
from wheel_timer.task import Status

StatusWord = Literal["pending", "delivering", "finished", "failed", "cancelled"]

TIME_MS_MIN: Final = 0
TIME_MS_MAX: Final = 253_402_300_800_000  # the year 10000: behind every start_time

_STATUSES: Final[dict[StatusWord, Status]] = {
    "pending": Status.PENDING,
    "delivering": Status.PENDING,
    "finished": Status.FINISHED,
    "failed": Status.FAILED,
    "cancelled": Status.CANCELLED,
}


class Filter(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """
    What must be true of a task; None: anything. Times in ms, intervals [from, to).

    biz_id and biz_id_prefix need biz_type. visible: patterns of biz_types, a name or a prefix and
    `*`, that the asker sees; None: all. asked_at: only what was submitted by then, and
    not put on the wheel anew (moved, run, replayed) since.
    """

    biz_type: str | None = None
    status: StatusWord | None = None
    start_from: int | None = None
    start_to: int | None = None
    finish_from: int | None = None
    finish_to: int | None = None
    http_status: int | None = None
    biz_id: str | None = None
    biz_id_prefix: str | None = None
    schedule_id: UUID | None = None
    visible: tuple[str, ...] | None = None
    asked_at: int | None = None

    @property
    def has_time(self) -> bool:
        """Whether it says anything about start_time."""
        return self.start_from is not None or self.start_to is not None

    @property
    def stored_status(self) -> Status | None:
        """The status as a row has it."""
        return None if self.status is None else _STATUSES[self.status]

    @property
    def is_leased(self) -> bool | None:
        """Whether somebody must be calling it right now; None: no matter."""
        return {"pending": False, "delivering": True}.get(self.status or "")

    @property
    def like_patterns(self) -> list[str] | None:
        """`visible` as patterns of LIKE."""
        if self.visible is None:
            return None
        return [_like(pattern) for pattern in self.visible]

    def sees(self, biz_type: str) -> bool:
        """Whether tasks of this biz_type can be among those meant."""
        if self.biz_type is not None and biz_type != self.biz_type:
            return False
        return self.visible is None or any(covers(one, biz_type) for one in self.visible)

    def fits(self, row: TaskRow, now_ms: float) -> bool:
        """Whether a task is one of those meant. now_ms: the database's clock."""
        if row.status is Status.MOVED or not self.sees(row.biz_type):
            return False
        if self.status is not None:
            is_leased = row.lease_until is not None and row.lease_until > now_ms
            if row.status is not self.stored_status or self.is_leased not in (None, is_leased):
                return False
        return (
            _within(row.start_time, self.start_from, self.start_to)
            and _within(row.finish_time, self.finish_from, self.finish_to)
            and (
                self.asked_at is None
                or (row.create_time <= self.asked_at and (row.renew_time or 0) < self.asked_at)
            )
            and self.http_status in (None, row.http_status)
            and self.schedule_id in (None, row.schedule_id)
            and self.biz_id in (None, row.biz_id)
            and (self.biz_id_prefix is None or (row.biz_id or "").startswith(self.biz_id_prefix))
        )


def end_of_prefix(prefix: str) -> str | None:
    """
    The first text behind all that begin with `prefix`, in the order of code points (collation C).
    None where there is none.

    >>> end_of_prefix("order-1")
    'order-2'
    """
    for index in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[index]) + 1
        if 0xD800 <= point <= 0xDFFF:
            point = 0xE000  # surrogates are no characters: UTF-8 has none
        if point <= 0x10FFFF:
            return prefix[:index] + chr(point)
    return None


def _within(moment: int | None, low: int | None, end: int | None) -> bool:
    if low is None and end is None:
        return True
    return moment is not None and (low is None or moment >= low) and (end is None or moment < end)


def _like(pattern: str) -> str:
    for special in ("\\", "_", "%"):
        pattern = pattern.replace(special, "\\" + special)
    return pattern[:-1] + "%" if pattern.endswith("*") else pattern
