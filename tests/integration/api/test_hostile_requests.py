"""Every operation, with what nobody sane would send: no 5xx, no answer that is not described."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import pytest
import pytest_asyncio

from broker.api import app, clock
from broker.api.app import build_app
from broker.api.context import Context
from broker.api.openapi import document
from broker.api.operation import NDJSON, Operation
from broker.testclock import TestClock
from tests.fix_asgi import call
from wheel_timer.database import Session
from wheel_timer.store import testclock

SEGMENTS: Final = (
    *("%00", "a%00b", "%ff", "%2F", "%2e%2e", "..", "%0d%0aX-Evil:%201"),
    *("a" * 3_000, "%F0%9F%92%A9"),
    *("orders", "00000000-0000-0000-0000-000000000000", "01a1fca3-faf0-8000-9a6f-40ff88fb5aeb"),
)
VALUES: Final = (
    *("", "%00", "%ff", "-1", "0", "1e999", "9" * 400, "null", "true", "a%0Ab", "NaN"),
    *("1999-01-01T00:00:00Z", "2030-01-01T00:00:00+08:00", "99999999999999999999", "~", "W10"),
)
BODIES: Final[tuple[bytes, ...]] = (
    *(b"", b"null", b"[]", b"{}", b'"', b"\xff\xfe", b"\x00", b"1", b"[" * 100_000, b"{" * 70),
    *(b'{"a": 1, "a": 2}', b'{"biz_type": "orders\\u0000", "delay": 1}', b"NaN", b"1e999"),
    b'{"biz_type": "\\ud800", "delay": 1}',
    b'{"biz_type": "orders", "delay": 1e308, "biz_id": "\\ud83d"}',
    b'{"tasks": [1, null, {}, {"biz_type": "orders", "delay": -1}]}',
)
# What a value of a field may be replaced with.
WRONG: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1e308, 2**70, "", "\0", "x" * 70_000, [], {}, [[]], {"": None}, "\u202e"),
)
FIELDS: Final = (
    *("biz_type", "biz_id", "start_time", "delay", "biz_data", "biz_data_base64", "content_type"),
    *("callback", "retry", "max_age", "spread", "on_duplicate", "tasks", "reason", "secret"),
    *("callback_url", "callback_headers", "timeout", "rate_limit", "burst", "retention", "breaker"),
    *("on_failed", "callback_allow", "final_statuses", "name", "scopes", "biz_types", "expires"),
    *("cron", "timezone", "enabled", "start_after", "end_before", "misfire", "misfire_after"),
    *("jitter", "schedules"),
    *(
        "grace",
        "overlap",
        "action",
        "filter",
        "set",
        "rate",
        "over",
        "dry_run",
        "all",
        "version",
        "paused",
        "now",
        "advance",
        "freeze",
    ),
)
# As under --test-clock.
OPERATIONS: Final = (*app.OPERATIONS, *clock.OPERATIONS)
DOCUMENT: Final = document(OPERATIONS)


@pytest_asyncio.fixture
async def asgi(context: Context) -> AsyncIterator[Any]:
    await testclock.begin(context.db)
    session = Session(context.settings.database_url, schema="public", name="test clock")
    moved = TestClock(context.db, context.clock, session)
    yield build_app(dataclasses.replace(context, test_clock=moved))
    await session.close()


async def asked(
    asgi: Any, operation: Operation, path: str, body: bytes = b"", media_type: str = ""
) -> None:
    """One request; its answer must be one of those that are described."""
    headers = {"host": "localhost"} | ({"content-type": media_type} if media_type else {})
    status, _, answer = await call(asgi, operation.method, path, headers, body)
    described = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    # A path that is another's, or nobody's, is described there.
    known = {*described, "404", "405"} if "{" in operation.path else set(described)
    where = f"{operation.method} {path[:200]} {body[:200]!r}: {status} {answer[:300]!r}"
    assert status < 500, where
    assert str(status) in known, where
    if status >= 400:
        assert json.loads(answer)["status"] == status, where


def filled(path: str, segment: str) -> str:
    for name in ("biz_type", "biz_id", "task_id", "operation_id", "key_id", "name"):
        path = path.replace(f"{{{name}}}", segment)
    return path


@pytest.mark.parametrize(
    "operation",
    # The audits take a second each time, and nothing from outside.
    [operation for operation in OPERATIONS if operation.name != "getAudits"],
    ids=lambda o: f"{o.method} {o.path}",
)
async def test_whatever_is_asked_is_answered_as_described(asgi: Any, operation: Operation) -> None:
    plain = filled(operation.path, "orders")
    if "{" in operation.path:
        for segment in SEGMENTS:
            await asked(asgi, operation, filled(operation.path, segment))
    for name in operation.query:
        for value in VALUES:
            await asked(asgi, operation, f"{plain}?{name}={value}")
        await asked(asgi, operation, f"{plain}?{name}=1&{name}=2")
    await asked(asgi, operation, f"{plain}?%00=1")
    await asked(asgi, operation, f"{plain}?" + quote("x" * 5_000))
    for media_type in operation.takes:
        for body in BODIES:
            await asked(asgi, operation, plain, body, media_type)
        for field in FIELDS:
            for wrong in WRONG:
                body = json.dumps({field: wrong}).encode()
                await asked(asgi, operation, plain, body, media_type)
    for media_type in ("text/plain", "\xff", "application/json; charset=utf-16", NDJSON):
        await asked(asgi, operation, plain, b"{}", media_type)


@pytest.mark.parametrize("field", [f for f in FIELDS if f not in ("name", "scopes", "tasks")])
async def test_one_wrong_field_in_a_good_body_is_told_of(asgi: Any, field: str) -> None:
    """Types that are wrong deep inside: the field is named, and nothing is stored by halves."""
    good: dict[str, dict[str, Any]] = {
        "putBizType": {"callback_url": "http://127.0.0.1:9/"},
        "submitTask": {"biz_type": "orders", "delay": 3600},
        "putSchedule": {"cron": "0 9 * * *"},
        "startOperation": {"action": "cancel", "filter": {"biz_type": "orders"}, "dry_run": True},
    }
    for operation in OPERATIONS:
        if operation.name in good:
            for wrong in WRONG:
                body = json.dumps(good[operation.name] | {field: wrong}).encode()
                path = filled(operation.path, "orders")
                await asked(asgi, operation, path, body, "application/json")
