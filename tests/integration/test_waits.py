"""A broker tells why its lanes hold back what is due, and stops telling when they do not."""

from __future__ import annotations

from tests.fix_delivery import BIZ_TYPE, Delivery
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_sessions import until
from wheel_timer.waits import LaneWait


async def told(delivery: Delivery) -> LaneWait | None:
    found = await delivery.event_center.waits([BIZ_TYPE], delivery.clock.now_ms())
    return found.get(BIZ_TYPE)


async def test_a_lane_at_its_rate_is_told_until_it_is_worked_off(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, rate_limit=0.01)
    tasks = await delivery.submit(5)

    async def is_told() -> bool:
        wait = await told(delivery)
        return wait is not None and wait.reason == "rate_limited"

    await until(is_told)
    await delivery.beat()
    await delivery.configure(callback_url=endpoint.url)
    assert await delivery.settled(tasks) == ["finished"] * 5

    async def is_over() -> bool:
        return await told(delivery) is None

    await until(is_over)
    await delivery.stop()
    ((reason, held_ms),) = await delivery.rows("SELECT reason, held_ms FROM timer_lane_time")
    assert reason == "rate_limited"
    assert held_ms > 0


async def test_a_lane_whose_slots_are_taken_is_told(delivery: Delivery, endpoint: Endpoint) -> None:
    await delivery.configure(callback_url=endpoint.url, max_concurrency=1)
    endpoint.answer = Answer(delay_s=4.0)
    await delivery.submit(3)

    async def is_told() -> bool:
        wait = await told(delivery)
        return wait is not None and wait.reason == "concurrency"

    await until(is_told)
