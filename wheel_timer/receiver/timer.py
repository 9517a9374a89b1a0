"""A timer that is due, as its callback tells it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote
from uuid import UUID

import msgspec

_OUR_ID: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-r(\d{1,9}))?", re.ASCII
)


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a handler gets.

    id: the webhook-id, one for every copy of a callback; a settled task that was started anew has
    another one. task_id: None where it is no id of ours, as in a test that signs its own. body:
    biz_data, byte for byte. start_time: when it was due. attempt: counts from 1 and may skip.
    scheduled_time: of a schedule's task, the moment of its occurrence. transaction: what your
    store's context manager has yielded.

    Signed are the id, the time and the body; the rest is as trustworthy as the connection.
    """

    id: str
    task_id: UUID | None
    body: bytes
    content_type: str | None
    biz_type: str
    biz_id: str | None
    start_time: datetime | None
    attempt: int
    is_last_attempt: bool
    life: int
    schedule_id: UUID | None
    scheduled_time: datetime | None
    transaction: Any = None

    def json(self) -> Any:
        """The body as JSON. Raises ValueError where it is none."""
        return msgspec.json.decode(self.body)

    def __repr__(self) -> str:
        # The body is the business's own and stays out of logs.
        return f"Timer({self.id!r}, biz_type={self.biz_type!r}, attempt={self.attempt})"


def timer_of(headers: Mapping[str, str], body: bytes) -> Timer:
    """
    The timer of a callback. headers: by lower-case name. Raises ValueError where one of ours is
    not what it should be.
    """
    webhook_id = headers["webhook-id"]
    ours = _OUR_ID.fullmatch(webhook_id)
    biz_id = headers.get("wheel-timer-biz-id")
    schedule_id = headers.get("wheel-timer-schedule-id")
    return Timer(
        id=webhook_id,
        task_id=None if ours is None else UUID(ours[1]),
        body=body,
        content_type=headers.get("content-type"),
        biz_type=headers.get("wheel-timer-biz-type", ""),
        biz_id=None if biz_id is None else unquote(biz_id),
        start_time=_moment(headers.get("wheel-timer-start-time")),
        attempt=int(headers.get("wheel-timer-attempt", "1")),
        is_last_attempt=headers.get("wheel-timer-last-attempt") == "true",
        life=1 if ours is None else int(ours[2] or 1),
        schedule_id=None if schedule_id is None else UUID(schedule_id),
        scheduled_time=_moment(headers.get("wheel-timer-scheduled-time")),
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
