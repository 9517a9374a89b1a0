"""
What on_failed tells of a dead task: a task of another biz_type, whose payload is the dead one as
JSON. A notice that dies itself gives no notice: its content-type tells it apart. Pure.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from wheel_timer.task import Claim, NewTask, Result
from wheel_timer.wheel import home_of, new_task_id

CONTENT_TYPE: Final = "application/json; kind=failed-task"


class DeadTask(Struct, omit_defaults=True):
    """The dead task as its notice shows it: the names are those of GET /v1/tasks/{task_id}."""

    task_id: str
    biz_type: str
    biz_id: str | None
    status: str
    start_time: str
    create_time: str
    first_attempt_time: str
    finish_time: str
    life: int
    revision: int
    attempts: int
    failures: int
    http_status: int | None
    last_error: str | None
    biz_data: Raw | UnsetType = UNSET
    biz_data_base64: str | UnsetType = UNSET


def is_notice(claim: Claim) -> bool:
    """Whether a task tells of a dead one."""
    return claim.content_type == CONTENT_TYPE


def notice_of(claim: Claim, result: Result, biz_type: str, now_ms: float) -> NewTask:
    """
    The notice to `biz_type`, due now, on the dead task's shard. Its biz_id is the dead task's id
    and the attempt that it died of. A payload that is erased with the task is not in it either.
    """
    dead = DeadTask(
        task_id=str(claim.task_id),
        biz_type=claim.biz_type,
        biz_id=claim.biz_id,
        status="failed",
        start_time=_time(claim.start_time_ms),
        create_time=_time(claim.create_time_ms),
        first_attempt_time=_time(claim.first_attempt_ms),
        finish_time=_time(now_ms),
        life=claim.life,
        revision=claim.revision,
        attempts=claim.attempt,
        failures=claim.failures + (result.started_ms is not None),
        http_status=result.http_status,
        last_error=result.error,
    )
    if claim.biz_data is not None and not result.erase:
        if _is_json(claim.biz_data, claim.content_type):
            dead.biz_data = Raw(claim.biz_data)
        else:
            dead.biz_data_base64 = b64encode(claim.biz_data).decode()
    moment_ms = int(now_ms)
    return NewTask(
        new_task_id(moment_ms, home_of(claim.task_id)[1]),
        moment_ms,
        biz_type,
        f"{claim.task_id}-{claim.attempt}",
        msgspec.json.encode(dead),
        CONTENT_TYPE,
    )


def _is_json(data: bytes, content_type: str | None) -> bool:
    if content_type is not None and "json" not in content_type:
        return False
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _time(moment_ms: float) -> str:
    moment = datetime.fromtimestamp(int(moment_ms) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
