"""What a dead broker had read is somebody else's, once; and a broker that was only frozen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest
from redis.asyncio import Redis

from tests.fix_lanes import Lanes, NewCenter, bare, refs_of
from wheel_timer import consumers as module
from wheel_timer.eventcenter import EventCenter
from wheel_timer.streams import GROUP
from wheel_timer.task import Ref

LANE: Final = "orders"
NOW_MS: Final = 1_800_000_000_000
# Far over what an answer takes, far under what a lost one would.
SOON_S: Final = 1.5


async def beat(center: EventCenter) -> tuple[int, list[str]]:
    """A heartbeat: how many live, and who does not."""
    told = await center.heartbeat()
    return len(told.alive), told.dead


async def silence(client: Redis, prefix: str, *names: str) -> None:
    """Let the last heartbeat of these consumers lie long ago."""
    await client.zadd(f"{prefix}:brokers", dict.fromkeys(names, 1))


async def test_a_trimmed_entry_of_a_dead_consumer_stays_nobodys(
    new_center: NewCenter, lanes: Lanes, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_MS", 0)
    dead, heir = new_center("dead"), new_center("me")
    await dead.publish_direct(refs_of(3))
    first, *rest = await dead.read([LANE], 10, 100)
    await redis_client.xdel(lanes.key(), first.entry_id)
    taken = await heir.take_over([LANE], ["dead"])
    assert [ref.entry_id for ref in taken] == [ref.entry_id for ref in rest]
    assert await lanes.pending("dead") == []
    await heir.ack(taken)
    # Redis 6.2 leaves its id in the heir's pending list; the next look there clears it away.
    assert await heir.read_own([LANE]) == []
    assert await lanes.pending("me") == []


async def test_what_one_known_to_be_gone_had_read_is_taken_over_at_once_by_one_heir(
    new_center: NewCenter, lanes: Lanes
) -> None:
    gone, frozen = new_center("gone"), new_center("frozen")
    await gone.heartbeat()
    refs = refs_of(900)
    await gone.publish_direct(refs)
    await gone.read([LANE], 800, 100)
    await frozen.read([LANE], 800, 100)
    heirs = [new_center() for _ in range(3)]
    await heirs[0].bury(["gone", "was never there"])
    assert await beat(heirs[1]) == (1, ["gone"])
    answers = await asyncio.gather(
        *(heir.take_over([LANE], ["gone", "frozen"], gone={"gone"}) for heir in heirs)
    )
    assert sorted(bare([ref for answer in answers for ref in answer])) == sorted(refs[:800])
    assert len(await lanes.pending("frozen")) == 100


@pytest.mark.timing
async def test_of_two_who_take_over_a_dead_consumer_each_entry_has_one(
    new_center: NewCenter, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_MS", 500)
    dead = new_center("dead")
    refs = refs_of(1_300) + refs_of(40, "refunds")
    await dead.publish_direct(refs)
    for _ in range(3):
        await dead.read([LANE, "refunds"], 500, 1)
    await asyncio.sleep(0.51)
    heirs = [new_center() for _ in range(4)]
    taken: list[Ref] = []
    for _ in range(5):
        answers = await asyncio.gather(
            *(heir.take_over([LANE, "refunds"], ["dead"]) for heir in heirs)
        )
        taken += [ref for answer in answers for ref in answer]
    assert all(ref.taken_over for ref in taken)
    assert len(taken) == len(refs)
    assert sorted(bare(taken)) == sorted(refs)
    assert await lanes.pending("dead") == []


async def test_a_dead_consumer_with_nothing_left_is_forgotten_and_one_with_something_is_not(
    new_center: NewCenter,
    lanes: Lanes,
    redis_client: Redis,
    redis_prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer deleted with pending entries would take them with it."""
    dead, me = new_center("dead"), new_center("me")
    await dead.heartbeat()
    await me.publish_direct(refs_of(2))
    await dead.read([LANE], 10, 100)
    await silence(redis_client, redis_prefix, "dead")
    assert await beat(me) == (1, ["dead"])
    # Its heartbeat is old, its entries are not: it may be alive after all.
    assert await me.take_over([LANE], ["dead"]) == []
    assert len(await lanes.pending("dead")) == 2
    assert await beat(me) == (1, ["dead"])
    monkeypatch.setattr(module, "SILENCE_MS", 0)
    assert len(await me.take_over([LANE], ["dead"])) == 2
    assert await me.take_over([LANE], ["dead"]) == []
    monkeypatch.undo()
    assert await beat(me) == (1, [])
    consumers = await redis_client.xinfo_consumers(lanes.key(), GROUP)
    assert [consumer["name"] for consumer in consumers] == [b"me"]


async def test_a_consumer_that_reads_again_before_it_is_forgotten_keeps_what_it_read(
    new_center: NewCenter, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen, not dead; between the look at its entries and its end it comes back."""
    thawed, me = new_center("thawed"), new_center("me")
    await thawed.read([LANE], 10, 1)
    await me.publish_direct(refs_of(2))
    forget = me._forget

    async def late(names: Sequence[str], name: str) -> None:
        assert len(await thawed.read([LANE], 10, 100)) == 2
        await forget(names, name)

    monkeypatch.setattr(me, "_forget", late)
    assert await me.take_over([LANE], ["thawed"]) == []
    assert len(await lanes.pending("thawed")) == 2


async def test_a_dead_consumer_is_forgotten_though_a_lane_was_never_written_to(
    new_center: NewCenter, redis_client: Redis, redis_prefix: str
) -> None:
    me = new_center("me")
    await silence(redis_client, redis_prefix, "dead")
    assert await beat(me) == (1, ["dead"])
    assert await me.take_over(["a biz_type of today"], ["dead"]) == []
    assert await beat(me) == (1, [])


async def test_a_consumer_that_leaves_in_order_is_not_one_of_the_dead(
    new_center: NewCenter, redis_client: Redis, redis_prefix: str
) -> None:
    one, other = new_center("one"), new_center("other")
    assert await beat(one) == (1, [])
    assert await beat(other) == (2, [])
    await one.leave()
    assert await beat(other) == (1, [])
    # One that was taken for dead, and was only frozen, is alive with its next heartbeat.
    await one.heartbeat()
    await silence(redis_client, redis_prefix, "one")
    assert await beat(other) == (1, ["one"])
    assert await beat(one) == (2, [])


async def test_beats_of_a_clock_that_was_set_back_age_like_all_others(
    new_center: NewCenter, redis_client: Redis, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one that is dead would count as alive until the clock has come there again."""
    me = new_center("me")
    ahead_ms = (await me.heartbeat()).now_ms + 3_600_000
    await redis_client.zadd(f"{redis_prefix}:brokers", {"ahead": ahead_ms, "me": ahead_ms})
    told = await me.heartbeat()
    assert told.alive == {"ahead": told.now_ms, "me": told.now_ms}
    assert told.is_known
    monkeypatch.setattr(module, "SILENCE_MS", -1)
    assert (await me.heartbeat()).dead == ["ahead", "me"]


async def test_entries_idle_for_longer_than_any_lease_are_claimed_whoever_read_them(
    new_center: NewCenter, lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, me = new_center("alive"), new_center("me")
    refs = refs_of(1_100)
    await alive.publish_direct(refs)
    await alive.read([LANE], 5_000, 100)
    assert await me.claim_idle([LANE]) == []
    monkeypatch.setattr(module, "IDLE_MS", 0)
    found = await me.claim_idle([LANE, "unknown"])
    assert bare(found) == refs
    assert all(ref.taken_over for ref in found)
    assert await lanes.pending("alive") == []
