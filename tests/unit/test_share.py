"""broker/share.py: the parts of all brokers, whatever each knows of the others."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pytest

from broker.share import BEAT_NEW_S, BEAT_S, BEAT_SOON_S, Members, Share
from wheel_timer.consumers import SILENCE_MS, Beat

BROKERS = tuple(f"broker-{number}" for number in range(12))
LANES = tuple(f"lane-{number}" for number in range(40))


def share(me: str, all_of_them: tuple[str, ...]) -> Share:
    others = tuple(name for name in all_of_them if name != me)
    return Share(len(all_of_them), me, others)


@pytest.mark.parametrize("calls", [1, 2, 7, 64, 10_000])
@pytest.mark.parametrize("brokers", [1, 2, 3, 5, 12])
def test_the_parts_of_all_brokers_add_up_to_the_whole(calls: int, brokers: int) -> None:
    for lane in LANES:
        parts = [share(name, BROKERS[:brokers]).of(calls, lane) for name in BROKERS[:brokers]]
        assert sum(parts) == calls
        assert max(parts) - min(parts) <= 1


def test_what_cannot_be_divided_goes_to_all_in_turn() -> None:
    owners = Counter(
        name
        for lane in (f"lane-{number}" for number in range(600))
        for name in BROKERS[:3]
        if share(name, BROKERS[:3]).of(1, lane)
    )
    assert len(owners) == 3
    assert min(owners.values()) > 150


@pytest.mark.parametrize("calls", [1, 2, 5, 7])
def test_whoever_counts_some_too_many_takes_nothing_of_anybody_else(calls: int) -> None:
    """Any view that holds all who live may be anybody's."""
    alive, dead = BROKERS[:3], BROKERS[3:6]
    views = [
        (*alive, *some) for count in range(len(dead) + 1) for some in combinations(dead, count)
    ]
    for lane in LANES[:10]:
        most = [max(share(name, view).of(calls, lane) for view in views) for name in alive]
        assert sum(most) == calls


class World:
    """Redis' set of brokers by their last beat, and a clock in ms."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.beats: dict[str, int] = {}

    def beat(self, name: str) -> Beat:
        known = name in self.beats
        self.beats = {other: min(ms, self.now_ms) for other, ms in self.beats.items()}
        self.beats[name] = self.now_ms
        edge_ms = self.now_ms - SILENCE_MS
        alive = {other: ms for other, ms in self.beats.items() if ms >= edge_ms}
        return Beat(self.now_ms, alive, [one for one in self.beats if one not in alive], known)


class Broker:
    """Its slots, as a lane keeps them: without everybody's knowledge only fewer."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.members = Members(name)
        self.slots = dict.fromkeys(LANES, 0)
        self.next_ms = world.now_ms
        self.is_settled = False

    def turn(self, calls: int) -> bool:
        """Beat, and share the lanes anew; whether all know of it."""
        told = self.members.see(self.world.beat(self.name))
        for lane, slots in self.slots.items():
            part = told.of(calls, lane)
            self.slots[lane] = part if told.is_settled else min(slots, part)
        self.is_settled = told.is_settled
        self.next_ms = self.world.now_ms + round(1000 * self.members.pause_s)
        return told.is_settled


@pytest.mark.parametrize("seed", range(60))
def test_brokers_that_come_and_go_and_lose_redis_never_have_more_than_the_whole(seed: int) -> None:
    draw, world, calls = random.Random(seed), World(), 1 + seed % 4
    brokers: list[Broker] = []
    names = iter(range(1_000))
    quiet_ms = 0  # until then who came would know of nobody: nothing can be done about it
    for _ in range(900):
        world.now_ms += draw.randrange(5, 60)
        chance = draw.random()
        if chance < 0.01 and len(brokers) < 5 and world.now_ms > quiet_ms:
            brokers.append(Broker(world, f"broker-{next(names)}"))
        elif chance < 0.015 and brokers:
            del brokers[draw.randrange(len(brokers))]
        elif chance < 0.018 and brokers and world.now_ms > quiet_ms:
            world.beats.clear()
            for broker in brokers:
                broker.next_ms = min(broker.next_ms, world.now_ms + 1_000)
            quiet_ms = world.now_ms + 2 * SILENCE_MS
        elif chance < 0.021 and brokers and world.now_ms > quiet_ms:
            # Redis' clock is set, or Redis stands still for a while: all of them hear of it late.
            jump_ms = draw.choice((-3_600_000, 3_600_000, 10_000))
            world.now_ms += jump_ms
            for broker in brokers:
                broker.next_ms = world.now_ms + draw.randrange(1_000)
            quiet_ms = world.now_ms + 2 * SILENCE_MS
        for broker in draw.sample(brokers, len(brokers)):
            if broker.next_ms <= world.now_ms:
                broker.turn(calls)
        for lane in LANES[:8]:
            assert sum(broker.slots[lane] for broker in brokers) <= calls
    for _ in range(200):
        world.now_ms += 30
        for broker in brokers:
            if broker.next_ms <= world.now_ms:
                broker.turn(calls)
    if brokers:
        for lane in LANES:
            assert sum(broker.slots[lane] for broker in brokers) == calls


def test_a_new_broker_waits_for_no_longer_than_until_all_have_beaten_twice() -> None:
    world = World()
    old = Broker(world, "old")
    assert old.turn(4)
    assert old.members.pause_s == BEAT_S
    world.now_ms += 500
    new = Broker(world, "new")
    assert not new.turn(4)
    world.now_ms += 500
    old.turn(4)
    # Whoever sees a new one tells it so at once.
    assert old.members.pause_s == BEAT_SOON_S
    world.now_ms += 20
    assert not new.turn(4)
    assert new.members.pause_s == BEAT_NEW_S
    world.now_ms += 1
    old.turn(4)
    world.now_ms += 200
    assert new.turn(4)
    assert sum(new.slots.values()) == 2 * len(LANES)


def test_that_another_has_died_is_acted_on_at_once() -> None:
    world = World()
    world.beat("dead")
    me = Members("me")
    assert not me.see(world.beat("me")).is_settled
    assert me.see(world.beat("me"), {"dead"}) == Share(1, "me")
    # And one that is silent as soon as it counts as dead.
    world = World()
    world.beat("dead")
    me = Members("me")
    me.see(world.beat("me"))
    world.now_ms += SILENCE_MS - 100
    assert me.see(world.beat("me")).brokers == 2
    world.now_ms += 101
    assert me.see(world.beat("me")) == Share(1, "me")


def test_the_next_beat_comes_when_one_that_is_silent_will_count_as_dead() -> None:
    world = World()
    me = Members("me")
    me.see(world.beat("me"))
    world.beat("silent")
    for _ in range(2):
        world.now_ms += 1
        world.beat("silent")
        me.see(world.beat("me"))
    world.now_ms += SILENCE_MS - 400
    me.see(world.beat("me"))
    assert me.pause_s == pytest.approx(0.4 + BEAT_SOON_S)
