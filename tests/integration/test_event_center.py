"""The event center on a real Redis: what it loses, gives back, takes over and refuses."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from tests.fix_hands import ref_to, task_at
from tests.fix_lanes import Lanes, NewCenter, bare, refs_of
from tests.fix_proxy import RedisProxy
from tests.fix_sessions import until
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.streams import GROUP, pack, unpack

LANE: Final = "orders"
NOW_MS: Final = 1_800_000_000_000
# Far over what an answer takes, far under what a lost one would.
SOON_S: Final = 1.5


@pytest.fixture
def center(new_center: NewCenter) -> EventCenter:
    return new_center("me")


async def test_a_reference_comes_out_as_it_went_in() -> None:
    (ref,) = refs_of(1)
    ref = ref._replace(moment_ms=NOW_MS + 77, published_ms=NOW_MS - 5)
    assert unpack(pack(ref), LANE, b"1-1") == ref._replace(entry_id=b"1-1")
    for broken in (b"", b"x", pack(ref) + b"x", b"\x02" + pack(ref)[1:]):
        with pytest.raises(ValueError, match="not a reference"):
            unpack(broken, LANE, b"1-1")


async def test_what_was_published_before_there_was_a_group_is_read(center: EventCenter) -> None:
    """The group begins at 0; from `$` on it would miss these."""
    refs = refs_of(3)
    await center.publish_direct(refs)
    assert bare(await center.read([LANE], 10, 100)) == refs
    assert await center.read([LANE], 10, 1) == []


async def test_two_brokers_share_a_lane_and_nothing_comes_twice(new_center: NewCenter) -> None:
    one, other = new_center(), new_center()
    refs = refs_of(100)
    await one.publish_direct(refs)
    found = []
    for _ in range(10):
        found += [*await one.read([LANE], 5, 1), *await other.read([LANE], 5, 1)]
    assert sorted(bare(found)) == sorted(refs)


async def test_a_flush_while_a_read_waits_ends_it_and_the_next_one_makes_the_lane_anew(
    center: EventCenter, lanes: Lanes, redis_client: Redis
) -> None:
    reading = asyncio.create_task(center.read([LANE, "refunds"], 10, 2_000))
    await until_blocked(redis_client)
    began_s = time.monotonic()
    await lanes.lose()
    # UNBLOCKED comes with the flush (Redis 7), or NOGROUP with the first new entry (6.2).
    refs = refs_of(2)
    await center.publish_direct(refs)
    assert await reading == []
    assert bare(await center.read([LANE, "refunds"], 10, 500)) == refs
    assert time.monotonic() - began_s < SOON_S


async def until_blocked(client: Redis) -> None:
    """Return as soon as somebody waits in a blocking read."""

    async def blocked() -> object:
        return (await client.info("clients"))["blocked_clients"]

    await until(blocked)


async def test_a_group_destroyed_by_hand_is_made_anew_from_the_beginning(
    center: EventCenter, lanes: Lanes, redis_client: Redis
) -> None:
    refs = refs_of(2)
    await center.publish_direct(refs)
    assert len(await center.read([LANE], 10, 100)) == 2
    await redis_client.xgroup_destroy(lanes.key(), GROUP)
    # NOGROUP is the normal way here: nothing now, and everything in the next read.
    assert await center.read([LANE], 10, 100) == []
    assert bare(await center.read([LANE], 10, 100)) == refs


async def test_every_other_call_outlives_a_flush(center: EventCenter, lanes: Lanes) -> None:
    await center.publish_direct(refs_of(3))
    refs = await center.read([LANE], 10, 100)
    await lanes.lose()
    await center.ack(refs[:1])
    await center.trim([LANE])
    assert await center.take_over([LANE], ["dead"]) == []
    assert await center.claim_idle([LANE]) == []
    assert list((await center.heartbeat()).alive) == ["me"]
    await center.hand_back(refs[1:])
    assert bare(await center.read_own([LANE])) == []
    assert bare(await center.read([LANE], 10, 100)) == bare(refs[1:])
    await center.leave()


async def test_a_poison_entry_is_dropped_and_the_others_are_read(
    center: EventCenter, lanes: Lanes, redis_client: Redis
) -> None:
    refs = refs_of(2)
    await center.publish_direct(refs[:1])
    broken: list[dict[Any, Any]] = [
        {"r": b"garbage"},
        {"x": b"y"},
        {"r": b""},
        {"x": b"y", "r": pack(refs[0])},
    ]
    for fields in broken:
        await redis_client.xadd(lanes.key(), fields)
    await center.publish_direct(refs[1:])
    assert bare(await center.read([LANE], 10, 100)) == refs
    assert await redis_client.xlen(lanes.key()) == 2
    assert len(await lanes.pending("me")) == 2


async def test_an_entry_that_was_trimmed_while_it_was_pending_is_dropped(
    center: EventCenter, lanes: Lanes, redis_client: Redis
) -> None:
    """It comes back without its fields."""
    await center.publish_direct(refs_of(3))
    first, *rest = await center.read([LANE], 10, 100)
    await redis_client.xdel(lanes.key(), first.entry_id)
    assert await center.read_own([LANE]) == rest
    assert await lanes.pending("me") == [ref.entry_id for ref in rest]


async def test_own_pending_entries_are_read_again_after_a_reply_was_lost(
    new_center: NewCenter, redis_proxy: RedisProxy, lanes: Lanes, redis_client: Redis
) -> None:
    """The entries of the lost reply are ours already: no read of new ones brings them."""
    broker = new_center("me", url=redis_proxy.url)
    assert await broker.read([LANE], 10, 1) == []
    redis_proxy.deaf("replies")
    reading = asyncio.create_task(broker.read([LANE], 10, 1_000))
    await until_blocked(redis_client)
    refs = refs_of(1_200)
    await new_center().publish_direct(refs)
    await until(lambda: lanes.pending("me"))
    await redis_proxy.cut()
    with pytest.raises(EventCenterUnavailable):
        await reading
    await redis_proxy.heal()
    own = await broker.read_own([LANE])
    new = []
    while page := await broker.read([LANE], 500, 1):
        new += page
    assert own
    assert bare(own + new) == refs
    assert len(await lanes.pending("me")) == len(refs)


async def test_own_pending_entries_come_in_pages(
    center: EventCenter, new_center: NewCenter
) -> None:
    refs = refs_of(1_201)
    await center.publish_direct(refs)
    await center.read([LANE], 5_000, 100)
    assert bare(await new_center("me").read_own([LANE, "refunds"])) == refs


async def test_a_command_is_never_repeated_by_the_driver(
    new_center: NewCenter, redis_proxy: RedisProxy, lanes: Lanes
) -> None:
    """A repeated XADD publishes twice. The caller knows that the outcome is unknown."""
    broker = new_center(url=redis_proxy.url)
    await broker.ping()
    redis_proxy.deaf("replies")
    refs = refs_of(3)
    publishing = asyncio.create_task(broker.publish_direct(refs))
    await until(lanes.ids)
    await redis_proxy.cut()
    with pytest.raises(EventCenterUnavailable):
        await publishing
    await redis_proxy.heal()
    await broker.ping()
    assert await lanes.ids() == [ref.task_id for ref in refs]


async def test_a_stale_epoch_publishes_nothing(new_center: NewCenter, lanes: Lanes) -> None:
    old, new = new_center(), new_center()
    first, second, third = refs_of(3)
    published = await old.publish(0, 7, [first])
    assert (published.refused_by, published.missing) == (None, True)
    published = await new.publish(0, 8, [second])
    assert (published.refused_by, published.missing) == (None, False)
    assert (await old.publish(0, 7, [third])).refused_by == 8
    assert await lanes.ids() == [first.task_id, second.task_id]
    # Shards and databases have epochs of their own.
    assert (await old.publish(1, 7, [third])).refused_by is None


async def test_an_epoch_of_another_database_is_none_of_ours(
    redis_url: str, redis_prefix: str, new_center: NewCenter
) -> None:
    other = EventCenter(redis_url, prefix=redis_prefix, consumer="x", cluster_id=uuid4())
    await other.publish(0, 900, refs_of(1))
    await other.close()
    assert (await new_center().publish(0, 1, refs_of(1))).refused_by is None


async def test_a_large_page_over_many_lanes_is_published_in_order(
    center: EventCenter, lanes: Lanes
) -> None:
    names = [f"biz{n}" for n in range(50)]
    refs = [ref_to(task_at(NOW_MS + n, names[n % 50])) for n in range(1_000)]
    await center.publish(0, 1, refs)
    for name in names:
        assert bare(await lanes.refs(name)) == [ref for ref in refs if ref.biz_type == name]


async def test_one_lane_takes_a_whole_page(center: EventCenter, lanes: Lanes) -> None:
    refs = refs_of(1_000)
    await center.publish(0, 1, refs)
    assert bare(await lanes.refs()) == refs


async def test_a_wake_ends_a_read_at_once(center: EventCenter, redis_client: Redis) -> None:
    await center.wake()  # Nobody reads yet: nothing happens.
    reading = asyncio.create_task(center.read([LANE], 10, 2_000))
    await until_blocked(redis_client)
    began_s = time.monotonic()
    await center.wake()
    assert await reading == []
    assert time.monotonic() - began_s < SOON_S
    await center.wake()
    refs = refs_of(1)
    await center.publish_direct(refs)
    assert bare(await center.read([LANE], 10, 500)) == refs


async def test_what_is_handed_back_is_read_by_the_next(new_center: NewCenter, lanes: Lanes) -> None:
    stopping, other = new_center("stopping"), new_center("other")
    refs = refs_of(1_500)
    await stopping.publish_direct(refs)
    held = await stopping.read([LANE], 5_000, 100)
    await stopping.hand_back([*held[1:], ref_to(task_at(NOW_MS))])
    assert await lanes.pending("stopping") == [held[0].entry_id]
    assert bare(await other.read([LANE], 5_000, 100)) == refs[1:]
    assert len(await lanes.refs()) == len(refs)


async def test_what_is_acknowledged_is_gone(
    center: EventCenter, lanes: Lanes, redis_client: Redis
) -> None:
    await center.publish_direct(refs_of(9_500) + refs_of(2, "refunds"))
    held = await center.read([LANE, "refunds"], 20_000, 100)
    await center.ack([*held[:-3], *held[:2], ref_to(task_at(NOW_MS))])
    assert await redis_client.xlen(lanes.key()) + await redis_client.xlen(lanes.key("refunds")) == 3
    await center.ack(held)
    assert await redis_client.xlen(lanes.key()) + await redis_client.xlen(lanes.key("refunds")) == 0
    assert await lanes.pending("me") == []


async def test_a_trim_drops_only_what_was_acknowledged(
    center: EventCenter, lanes: Lanes, redis_client: Redis
) -> None:
    """A crash between the two halves of an acknowledgement leaves such entries."""
    refs = refs_of(1_000)
    await center.publish_direct(refs)
    held = await center.read([LANE], 600, 100)
    await redis_client.xack(lanes.key(), GROUP, *(ref.entry_id for ref in held[:500]))
    await center.trim([LANE, "unknown"])
    left = await lanes.refs()
    # Whole nodes of the stream go, so some may stay; what is pending or unread stays for certain.
    assert bare(left)[-500:] == refs[500:]
    assert 500 <= len(left) <= 600
    await center.ack(held)
    await center.read([LANE], 1_000, 100)
    assert len(await lanes.refs()) >= 400


async def test_a_redis_that_is_not_there_is_one_error_of_ours(
    new_center: NewCenter, redis_proxy: RedisProxy
) -> None:
    broker = new_center(url=redis_proxy.url)
    await broker.publish_direct(refs_of(1))
    (held,) = await broker.read([LANE], 1, 100)
    await redis_proxy.stop()
    calls = (
        broker.publish(0, 1, [held]), broker.publish_direct([held]), broker.read([LANE], 1, 10),
        broker.read_own([LANE]), broker.ack([held]), broker.hand_back([held]), broker.heartbeat(),
        broker.take_over([LANE], ["x"]), broker.claim_idle([LANE]), broker.trim([LANE]),
        broker.wake(), broker.ping(), broker.leave(),
    )  # fmt: skip
    for call in calls[:10] + calls[11:]:
        with pytest.raises(EventCenterUnavailable):
            await call
    # Its connection is gone: there is no read to wake.
    await calls[10]
    await redis_proxy.heal()
    await broker.ping()
    assert [ref.entry_id for ref in await broker.read_own([LANE])] == [held.entry_id]
