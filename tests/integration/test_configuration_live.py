"""What a change of the configuration does to a delivery that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import standardwebhooks
from redis.asyncio import Redis

from tests.fix_delivery import BIZ_TYPE, POLL_S, Delivery
from tests.fix_endpoint import Endpoint, Received
from wheel_timer.amend import rotated
from wheel_timer.biz import BizType
from wheel_timer.store import biz as store

OLD, NEW = (f"whsec_{letter * 43}=" for letter in "AB")


def secrets_of(received: Received) -> list[str]:
    """Which of the two secrets a callback can be verified with."""
    good = []
    for secret in (OLD, NEW):
        try:
            standardwebhooks.Webhook(secret).verify(received.body, received.headers)
        except standardwebhooks.WebhookVerificationError:
            continue
        good.append(secret)
    return good


async def test_both_secrets_sign_until_the_databases_clock_ends_the_grace(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, secret=OLD)
    grace_ms = 1_500

    def rotate(before: BizType | None) -> BizType:
        assert before is not None
        now_ms = int(delivery.clock.now_ms())
        return rotated(before, NEW, grace_ms=grace_ms, now_ms=now_ms)

    put = await delivery.registry.change(
        BIZ_TYPE, rotate, None, actor="local", action="biz.rotate-secret"
    )
    end_ms = put.biz.secrets[1].until_ms
    assert end_ms is not None
    await delivery.settled(await delivery.submit(biz_data=b"{}"))
    assert secrets_of(endpoint.received[-1]) == [OLD, NEW]
    # Nothing is written, nobody is told: the moment alone ends it.
    await delivery.settled(await delivery.submit(in_ms=grace_ms, biz_data=b"{}"))
    assert delivery.clock.now_ms() >= end_ms
    assert secrets_of(endpoint.received[-1]) == [NEW]


async def test_a_deleted_biz_type_is_called_no_more_and_its_lane_goes(
    delivery: Delivery, endpoint: Endpoint, redis_client: Redis
) -> None:
    await delivery.settled(await delivery.submit())
    lane = delivery.event_center.lane_key(BIZ_TYPE)
    assert await redis_client.exists(lane)
    await delivery.submit(in_ms=600)
    await delivery.until_pending(redis_client, 1)
    await delivery.registry.delete(BIZ_TYPE, None, actor="local")
    async with asyncio.timeout(10):
        while await redis_client.exists(lane):  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(POLL_S)
    late = await delivery.submit()
    await delivery.configure("refunds", callback_url=endpoint.url)
    await delivery.settled(await delivery.submit(in_ms=800, biz_type="refunds"))
    assert len(endpoint.received) == 2
    assert endpoint.received[-1].headers["wheel-timer-biz-type"] == "refunds"
    assert await delivery.statuses(late) == ["pending"]
    # Made again, it gets what was submitted for it meanwhile.
    await delivery.configure(callback_url=endpoint.url)
    await delivery.settled(late)


@pytest.mark.timing
async def test_a_secret_rotates_under_load_without_one_failed_check(
    delivery: Delivery,
    another_delivery: Callable[..., Awaitable[Delivery]],
    endpoint: Endpoint,
) -> None:
    """
    Two brokers, told of it by nobody but the pulse. Who knows the old secret is satisfied to the
    end of the grace, who knows the new one from two seconds on; then the old one is of no use.
    """
    await delivery.configure(callback_url=endpoint.url, secret=OLD)
    await another_delivery()
    grace_ms, load_ms, known_ms = 2_500, 3_500, 2_000
    rotated_ms = int(delivery.clock.now_ms())

    def rotate(before: BizType | None) -> BizType:
        assert before is not None
        return rotated(before, NEW, grace_ms=grace_ms, now_ms=rotated_ms)

    await store.change(delivery.db, BIZ_TYPE, rotate, actor="local", action="biz.rotate-secret")
    submitted = []
    while delivery.clock.now_ms() < rotated_ms + load_ms:
        submitted += await delivery.submit(3, in_ms=100, biz_data=b"{}")
        await asyncio.sleep(0.02)
    await delivery.settled(submitted)
    assert len(endpoint.received) == len(submitted)
    assert len({received.headers["webhook-id"] for received in endpoint.received}) == len(submitted)
    for received in endpoint.received:
        good = secrets_of(received)
        at_ms = received.arrival_ns / 1e6 - rotated_ms
        if at_ms < grace_ms:
            assert OLD in good
        if at_ms > known_ms + 200:
            assert NEW in good
        if at_ms > grace_ms + 200:
            assert good == [NEW]
