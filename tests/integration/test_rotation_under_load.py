"""Signing secrets are rotated while callbacks pour in; the receiver checks each with its one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import standardwebhooks

from tests.fix_delivery import BIZ_TYPE, Delivery
from tests.fix_endpoint import Answer, Endpoint, Received
from wheel_timer.amend import rotated
from wheel_timer.biz import BizType

SECRETS = [f"whsec_{letter * 43}=" for letter in "ABC"]
GRACE_MS = 3_000
TASKS_AT_ONCE = 20
PACE_S = 0.1


class Receiver:
    """Knows one secret at a time, as a receiver does that was given another."""

    def __init__(self) -> None:
        self.secret = SECRETS[0]
        self.good = 0
        self.refused: list[str] = []

    def __call__(self, received: Received) -> Answer:
        try:
            standardwebhooks.Webhook(self.secret).verify(received.body, received.headers)
        except standardwebhooks.WebhookVerificationError as error:
            self.refused.append(f"{self.secret[6]}: {error}")
            return Answer(status=401)
        self.good += 1
        return Answer()


async def test_no_check_fails_while_secrets_are_rotated(
    delivery: Delivery,
    another_delivery: Callable[..., Awaitable[Delivery]],
    endpoint: Endpoint,
) -> None:
    other = await another_delivery()
    receiver = Receiver()
    endpoint.script = receiver
    first = await delivery.configure(callback_url=endpoint.url, secret=SECRETS[0])
    await _known(other, first.version)
    submitted = []
    over = asyncio.Event()

    async def pour() -> None:
        while not over.is_set():
            submitted.extend(await delivery.submit(TASKS_AT_ONCE, in_ms=200, biz_data=b'{"a": 1}'))
            await asyncio.sleep(PACE_S)

    pouring = asyncio.create_task(pour())
    for secret in SECRETS[1:]:

        def rotate(before: BizType | None, secret: str = secret) -> BizType:
            assert before is not None
            now_ms = int(delivery.clock.now_ms())
            return rotated(before, secret, grace_ms=GRACE_MS, now_ms=now_ms)

        put = await delivery.registry.change(
            BIZ_TYPE, rotate, None, actor="local", action="biz.rotate-secret"
        )
        # From here on every broker signs with both, and the receiver may change over.
        await _known(other, put.biz.version)
        receiver.secret = secret
        end_ms = put.biz.secrets[1].until_ms
        assert end_ms is not None
        await asyncio.sleep(delivery.clock.seconds_until(end_ms))
    over.set()
    await pouring
    assert set(await delivery.settled(submitted)) == {"finished"}
    assert receiver.refused == []
    assert receiver.good == len(submitted) > 20 * TASKS_AT_ONCE


async def _known(other: Delivery, version: int) -> None:
    await other.until(lambda: other.registry.version >= version, timeout_s=GRACE_MS / 1000)
