"""wheel_timer/receiver: what is taken, what is handled twice and what never, what is answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from wheel_timer.receiver import Gone, Memory, Receiver, Release, Reply, Timer
from wheel_timer.signing import key_of, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="
TASK_ID = "01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d"


def callback(
    webhook_id: str = TASK_ID,
    body: bytes = b'{"order": 1017}',
    *,
    secret: str = SECRET,
    age_s: int = 0,
    **headers: str,
) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a callback; headers: wheel_timer_attempt is its attempt."""
    timestamp_s = int(time.time()) - age_s
    return {
        "Webhook-Id": webhook_id,
        "Webhook-Timestamp": str(timestamp_s),
        "Webhook-Signature": sign([key_of(secret)], webhook_id, timestamp_s, body),
        "wheel-timer-biz-type": "orders",
        "wheel-timer-attempt": "1",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }, body


class Handler:
    """Counts its timers; `returns` is what it answers, an exception is raised."""

    def __init__(self, returns: object = None) -> None:
        self.returns = returns
        self.timers: list[Timer] = []

    def __call__(self, timer: Timer) -> object:
        self.timers.append(timer)
        if isinstance(self.returns, BaseException):
            raise self.returns
        return self.returns


def test_a_callback_is_handed_over_with_what_it_says() -> None:
    handler = Handler()
    headers, body = callback(
        f"{TASK_ID}-r2",
        wheel_timer_biz_id="order%201017%25",
        wheel_timer_start_time="2026-12-01T09:00:00.123Z",
        wheel_timer_attempt="3",
        wheel_timer_last_attempt="true",
        wheel_timer_life="2",
        content_type="application/json",
    )
    assert Receiver(SECRET).receive(headers, body, handler) == Reply(204)
    assert handler.timers == [
        Timer(
            id=f"{TASK_ID}-r2",
            task_id=UUID(TASK_ID),
            body=b'{"order": 1017}',
            content_type="application/json",
            biz_type="orders",
            biz_id="order 1017%",
            start_time=datetime(2026, 12, 1, 9, 0, 0, 123_000, UTC),
            attempt=3,
            is_last_attempt=True,
            life=2,
            schedule_id=None,
            scheduled_time=None,
        )
    ]
    assert handler.timers[0].json() == {"order": 1017}
    assert "1017" not in repr(handler.timers[0])


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"secret": OTHER_SECRET}, b"no signature matches"),
        ({"age_s": 310}, b"away from this clock"),
        ({"age_s": -310}, b"away from this clock"),
        ({"Webhook-Id": "01980a4c-3b61-8000-9d0e-1f6f3c1a2b4e"}, b"no signature matches"),
        ({"Webhook-Signature": ""}, b"no signature matches"),
        ({"Webhook-Timestamp": "9" * 5_000}, b"away from this clock"),
        ({"Webhook-Timestamp": "1_000"}, b"not a number"),
    ],
    ids=["secret", "old", "ahead", "id", "unsigned", "endless", "odd"],
)
def test_what_is_not_signed_for_now_is_refused(changes: dict[str, Any], wrong: bytes) -> None:
    handler = Handler()
    reply = Receiver(SECRET).receive(*callback(**changes), handler)
    assert reply.status == 401
    assert wrong in reply.body
    assert handler.timers == []


def test_another_body_than_the_signed_one_is_refused() -> None:
    headers, _ = callback()
    assert Receiver(SECRET).receive(headers, b'{"order": 1018}', Handler()).status == 401
    assert Receiver(SECRET).receive({"webhook-id": TASK_ID}, b"", Handler()).status == 401


@pytest.mark.parametrize("webhook_id", ["msg_1", "x-r2", f"{TASK_ID}-r", f"{TASK_ID}-rx"])
def test_a_signed_callback_with_an_id_of_another_kind_is_taken(webhook_id: str) -> None:
    handler = Handler()
    assert Receiver(SECRET).receive(*callback(webhook_id), handler).status == 204
    (timer,) = handler.timers
    assert (timer.id, timer.task_id, timer.life) == (webhook_id, None, 1)


@pytest.mark.parametrize("secrets", [(OTHER_SECRET, SECRET), ([OTHER_SECRET, SECRET],)])
def test_while_a_secret_rotates_either_is_good(secrets: Any) -> None:
    receiver = Receiver(*secrets)
    assert receiver.receive(*callback(secret=SECRET), Handler()).status == 204
    other = callback("01980a4c-3b61-8000-9d0e-1f6f3c1a2b4e", secret=OTHER_SECRET)
    assert receiver.receive(*other, Handler()).status == 204


def test_without_a_secret_it_must_be_said() -> None:
    with pytest.raises(ValueError, match="unsigned"):
        Receiver()
    with pytest.raises(ValueError, match="unsigned"):
        Receiver([])
    with pytest.raises(ValueError, match="secret"):
        Receiver(SECRET, unsigned=True)
    assert Receiver(unsigned=True).receive({"webhook-id": TASK_ID}, b"", Handler()).status == 204


def test_a_bad_secret_is_not_in_the_error() -> None:
    with pytest.raises(ValueError, match="base64") as caught:
        Receiver("whsec_hunter2!")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"webhook-id": TASK_ID, "wheel-timer-start-time": "soon"},
        {"webhook-id": TASK_ID, "wheel-timer-attempt": "x"},
    ],
)
def test_what_is_no_callback_is_400(headers: dict[str, str]) -> None:
    handler = Handler()
    assert Receiver(unsigned=True).receive(headers, b"", handler).status == 400
    assert handler.timers == []


def test_a_large_body_is_not_looked_at() -> None:
    receiver = Receiver(SECRET, body_bytes_max=10)
    assert receiver.receive(*callback(body=b"x" * 11), Handler()).status == 413


def test_the_second_copy_is_not_handled_again() -> None:
    receiver, handler = Receiver(SECRET), Handler()
    assert receiver.receive(*callback(), handler).status == 204
    assert receiver.receive(*callback(), handler).status == 200
    assert len(handler.timers) == 1


def test_after_a_handler_that_raised_the_copy_is_handled() -> None:
    receiver, handler = Receiver(SECRET), Handler(RuntimeError("the database is away"))
    with pytest.raises(RuntimeError):
        receiver.receive(*callback(), handler)
    handler.returns = None
    assert receiver.receive(*callback(), handler).status == 204
    assert len(handler.timers) == 2


@pytest.mark.parametrize(
    ("returned", "status"),
    [(Release(60), 204), (Gone("no such order"), 410), (Reply(503), 503)],
)
def test_what_asks_for_the_callback_again_is_not_marked(returned: object, status: int) -> None:
    receiver, handler = Receiver(SECRET), Handler(returned)
    assert receiver.receive(*callback(), handler).status == status
    assert receiver.receive(*callback(), handler).status == status
    assert len(handler.timers) == 2


@pytest.mark.parametrize(
    ("after", "seconds"), [(0.2, "1"), (600, "600"), (timedelta(hours=1), "3600")]
)
def test_a_release_says_when(after: float | timedelta, seconds: str) -> None:
    reply = Receiver(SECRET).receive(*callback(), Handler(Release(after)))
    assert reply.headers == {"wheel-timer-release": seconds}


@pytest.mark.parametrize("returned", [Release(0), Release(-1), Release(2_592_001), "done", 200])
def test_a_handler_that_returns_nonsense_is_told(returned: object) -> None:
    receiver, handler = Receiver(SECRET), Handler(returned)
    with pytest.raises((TypeError, ValueError)):
        receiver.receive(*callback(), handler)
    handler.returns = None
    assert receiver.receive(*callback(), handler).status == 204


def test_a_copy_meanwhile_is_told_to_wait() -> None:
    receiver, meanwhile = Receiver(SECRET), []

    def handler(timer: Timer) -> None:
        # In another thread, as a second request would be.
        copy = threading.Thread(
            target=lambda: meanwhile.append(receiver.receive(*callback(), Handler()))
        )
        copy.start()
        copy.join()

    assert receiver.receive(*callback(), handler).status == 204
    assert [reply.status for reply in meanwhile] == [409]
    assert meanwhile[0].headers["retry-after"] == "1"
    assert receiver.receive(*callback(), handler).status == 200


async def test_async_handlers_fare_the_same() -> None:
    receiver, seen = Receiver(SECRET), []

    async def handler(timer: Timer) -> Release | None:
        seen.append((await receiver.receive_async(*callback(), handler)).status)
        return None if len(seen) > 1 else Release(5)

    assert (await receiver.receive_async(*callback(), handler)).status == 204
    assert (await receiver.receive_async(*callback(), handler)).status == 204
    assert (await receiver.receive_async(*callback(), handler)).status == 200
    assert seen == [409, 409]


async def test_an_object_may_be_an_async_handler() -> None:
    class Calls:
        async def __call__(self, timer: Timer) -> Release:
            return Release(5)

    reply = await Receiver(SECRET).receive_async(*callback(), Calls())
    assert reply.headers == {"wheel-timer-release": "5"}


async def test_a_cancelled_handler_leaves_the_copy_to_be_handled() -> None:
    receiver, began = Receiver(SECRET), asyncio.Event()

    async def hangs(timer: Timer) -> None:
        began.set()
        await asyncio.Event().wait()

    request = asyncio.create_task(receiver.receive_async(*callback(), hangs))
    await began.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (await receiver.receive_async(*callback(), Handler())).status == 204


class Table:
    """A table of ids with transactions, as a store: what is not committed is not there."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self.rolled_back = 0

    @contextmanager
    def once(self, webhook_id: str) -> Iterator[Any]:
        if webhook_id in self.ids:
            yield None
            return
        try:
            yield "the transaction"
        except BaseException:
            self.rolled_back += 1
            raise
        self.ids.add(webhook_id)


def test_in_your_own_transaction_the_mark_goes_with_the_work() -> None:
    table, handler = Table(), Handler(RuntimeError())
    receiver = Receiver(SECRET, store=table.once)
    with pytest.raises(RuntimeError):
        receiver.receive(*callback(), handler)
    assert table.ids == set()
    handler.returns = Release(60)
    assert receiver.receive(*callback(), handler).headers == {"wheel-timer-release": "60"}
    assert (table.ids, table.rolled_back) == (set(), 2)
    handler.returns = None
    assert receiver.receive(*callback(), handler).status == 204
    assert receiver.receive(*callback(), handler).status == 200
    assert table.ids == {TASK_ID}
    assert [timer.transaction for timer in handler.timers] == ["the transaction"] * 3


async def test_an_async_handler_takes_an_async_transaction() -> None:
    table = Table()

    @asynccontextmanager
    async def once(webhook_id: str) -> Any:
        with table.once(webhook_id) as transaction:
            yield transaction

    async def handler(timer: Timer) -> None:
        assert timer.transaction == "the transaction"

    receiver = Receiver(SECRET, store=once)
    assert (await receiver.receive_async(*callback(), handler)).status == 204
    assert (await receiver.receive_async(*callback(), handler)).status == 200


def test_a_store_that_opens_no_transaction_is_refused() -> None:
    def seen(webhook_id: str) -> Any:
        return True

    with pytest.raises(TypeError, match="context manager"):
        Receiver(SECRET, store=seen).receive(*callback(), Handler())


def test_memory_forgets_the_oldest_and_the_old() -> None:
    few = Receiver(SECRET, store=Memory(ids_max=1))
    other = callback("01980a4c-3b61-8000-9d0e-1f6f3c1a2b4e")
    handler = Handler()
    assert [few.receive(*one, handler).status for one in (callback(), other)] == [204, 204]
    assert few.receive(*other, handler).status == 200
    assert few.receive(*callback(), handler).status == 204

    short = Receiver(SECRET, store=Memory(keep_s=0.0))
    assert [short.receive(*callback(), handler).status for _ in range(2)] == [204, 204]
