"""Who leads a shard: one daemon at a time, under an epoch that only grows."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import pytest

from daemon import leader as module
from daemon.hand import turn
from daemon.leader import LEASE_S, POLL_S
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, ref_to, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions, until
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.monotonic import monotonic_s
from wheel_timer.store.leader import Term, raise_epoch
from wheel_timer.store.submit import submit

LEASE_MS: Final = round(LEASE_S * 1000)
# Sessions that hold a leader's lock, by name; the fence has another class.
LOCK_HOLDERS: Final = """
SELECT coalesce(array_agg(a.application_name ORDER BY 1), '{}') FROM pg_locks AS l
JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted
    AND l.classid = CAST('timer_requeue' AS regclass)
"""
END_SESSION: Final = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s
"""


async def test_of_five_that_start_at_once_one_leads_twenty_times_over(
    new_hands: NewHands, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    daemons = [new_hands() for _ in range(5)]
    epochs = []
    for _ in range(20):
        terms = await asyncio.gather(*(daemon.poll() for daemon in daemons))
        leaders = [one for one, term in zip(daemons, terms, strict=True) if term is not None]
        assert len(leaders) == 1
        assert [one.leader.is_leader for one in daemons].count(True) == 1
        epochs.append(leaders[0].leader.epoch)
        # Nobody else gets it while it leads.
        others = [one for one in daemons if one is not leaders[0]]
        assert not any(await asyncio.gather(*(one.poll() for one in others)))
        await leaders[0].serve()
        await leaders[0].leader.resign()
    assert epochs == list(range(epochs[0], epochs[0] + 20))
    assert await sessions.value(LOCK_HOLDERS) == []
    await audits_hold()


async def test_a_leader_whose_session_ends_is_replaced_at_the_next_poll(
    new_hands: NewHands, sessions: Sessions
) -> None:
    """As when its process is killed: the lock falls with the connection."""
    leader, standby = new_hands(), new_hands()
    await leader.lead()
    assert await standby.poll() is None
    assert await sessions.value(END_SESSION, f"{leader.name} lease")
    assert await standby.poll() is not None
    assert standby.leader.epoch == leader.leader.epoch + 1
    with pytest.raises(LeadershipLost):
        await leader.serve()


async def test_a_leader_that_resigns_is_replaced_at_the_next_poll(
    new_hands: NewHands, clock: DatabaseClock, sessions: Sessions
) -> None:
    leader, standby = new_hands(), new_hands()
    await leader.lead()
    assert await sessions.value("SELECT lease_until - wheel_now_ms() FROM timer_pointer") > 0
    await leader.leader.resign()
    assert not leader.leader.is_leader
    assert await sessions.value("SELECT lease_until FROM timer_pointer") == 0
    assert await standby.poll() is not None


async def test_a_frozen_leader_is_replaced_when_its_lease_is_over_and_not_before(
    new_hands: NewHands, clock: DatabaseClock, sessions: Sessions
) -> None:
    """It keeps its session, and so its lock; the lease decides."""
    clock.freeze()
    frozen, standby = new_hands(), new_hands()
    await frozen.lead()
    clock.advance(LEASE_MS - 1)
    assert await standby.poll() is None
    clock.advance(1)
    assert await standby.poll() is not None
    assert standby.leader.epoch == frozen.leader.epoch + 1


async def test_everything_a_frozen_leader_still_writes_is_refused_in_redis_too(
    new_hands: NewHands, clock: DatabaseClock, lanes: Lanes, db: Database, audits_hold: AuditsHold
) -> None:
    """
    It was stopped between its read and its publish, so no database stands in its way; and its
    heir has published nothing yet, to no lane.
    """
    now_ms = clock.freeze()
    frozen, heir = new_hands(), new_hands()
    await frozen.lead()
    await frozen.serve()
    tasks = [task_at(now_ms + 1_600, biz_type=f"biz{n}") for n in range(20)]
    await submit(db, 0, tasks)
    clock.advance(1_000)
    with frozen.db.gate("requeue_due") as gate:
        # Before this read it has published what is on the wheel; let it read that again.
        ticking = asyncio.create_task(frozen.serve())
        await gate.arrived()
        clock.advance(LEASE_MS)
        await heir.lead()
        await heir.tick()
    with pytest.raises(LeadershipLost):
        await ticking
    before = {task.biz_type: len(await lanes.ids(task.biz_type)) for task in tasks}
    published = await frozen.event_center.publish(
        0, frozen.leader.epoch, [ref_to(task) for task in tasks]
    )
    assert published.refused_by == heir.leader.epoch
    after = {task.biz_type: len(await lanes.ids(task.biz_type)) for task in tasks}
    assert after == before
    await audits_hold()


async def test_an_heir_makes_itself_known_in_redis_before_it_publishes_anything(
    new_hands: NewHands, clock: DatabaseClock, lanes: Lanes
) -> None:
    """Its predecessor may be about to publish into lanes that the heir has nothing for."""
    now_ms = clock.freeze()
    frozen, heir = new_hands(), new_hands()
    await frozen.lead()
    await frozen.serve()
    clock.advance(LEASE_MS)
    await heir.lead()
    await heir.tick()
    refs = [ref_to(task_at(now_ms, biz_type=f"biz{n}")) for n in range(40)]
    published = await frozen.event_center.publish(0, frozen.leader.epoch, refs)
    assert published.refused_by == heir.leader.epoch
    for ref in refs:
        assert await lanes.ids(ref.biz_type) == []


async def test_a_thawed_leader_stands_by_again_and_does_not_oust_its_heir(
    new_hands: NewHands,
    clock: DatabaseClock,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It still holds the lock when it wakes; that it lets it go says nothing of who leads."""
    monkeypatch.setattr(module, "UNLOCKED_RENEW_S", 0.05)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    clock.freeze()
    thawed, heir, third = new_hands(), new_hands(), new_hands()
    await thawed.lead()
    clock.advance(LEASE_MS)
    assert await heir.poll() is not None
    # Awake again, it notices, gives up what it holds, and stands by like anybody.
    thawed.leader.step_down("it was frozen")
    await thawed.leader.resign()
    for _ in range(5):
        assert not any(await asyncio.gather(thawed.poll(), third.poll()))
    assert await sessions.value(LOCK_HOLDERS) == []
    keeping = asyncio.create_task(heir.leader.keep())
    await until(lambda: holds_the_lock(heir, sessions))
    assert not any(await asyncio.gather(thawed.poll(), third.poll()))
    await heir.serve()
    # From now on its lock is a sign of its life again.
    await sessions.until("SELECT is_locked FROM timer_pointer")
    assert await sessions.value(END_SESSION, f"{heir.name} lease")
    assert await third.poll() is not None
    heir.leader.step_down("its session was ended")
    await keeping


async def test_an_heir_that_dies_before_it_has_the_lock_is_replaced_when_its_lease_is_over(
    new_hands: NewHands, clock: DatabaseClock, sessions: Sessions
) -> None:
    clock.freeze()
    frozen, heir, third = new_hands(), new_hands(), new_hands()
    await frozen.lead()
    clock.advance(LEASE_MS)
    await heir.lead()
    await heir.session.close()
    await frozen.session.close()
    assert await third.poll() is None
    clock.advance(LEASE_MS)
    assert await third.poll() is not None
    assert await holds_the_lock(third, sessions)


async def holds_the_lock(hands: Hands, sessions: Sessions) -> bool:
    holders: list[str] = await sessions.value(LOCK_HOLDERS)
    return holders == [f"{hands.name} lease"]


@pytest.mark.timing
async def test_a_leader_whose_lock_session_is_cut_steps_down_and_another_leads_long_before_its_end(
    new_hands: NewHands, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.3)
    leader, standby = new_hands(), new_hands()
    await leader.lead()
    keeping = asyncio.create_task(leader.leader.keep())
    standing_by = asyncio.create_task(stand_by(standby))
    cut_s = time.monotonic()
    assert await sessions.value(END_SESSION, f"{leader.name} lease")
    await asyncio.wait_for(standing_by, 5)
    # A look each fifth of a second; the rest is for a busy machine. By its lease it were twelve.
    assert time.monotonic() - cut_s < 4.0
    await asyncio.wait_for(keeping, 5)
    assert not leader.leader.is_leader
    assert standby.leader.epoch == leader.leader.epoch + 1


async def stand_by(hands: Hands) -> Term:
    """What the daemon does while it does not lead."""
    while True:
        term = await hands.poll()
        if term is not None:
            return term
        await asyncio.sleep(POLL_S)


async def test_a_leader_that_cannot_renew_trusts_its_lease_no_longer_than_it_lasts(
    new_hands: NewHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own steady clock, from the start of the renewal on, and with a margin."""
    leader = new_hands()
    start_s = monotonic_s()
    await leader.lead()
    for later_s, leads in ((9.9, True), (10.1, False), (LEASE_S, False)):
        monkeypatch.setattr(module, "monotonic_s", lambda s=start_s + later_s: s)
        assert leader.leader.is_leader is leads, later_s


async def test_the_clock_of_a_daemons_machine_decides_nothing(
    new_hands: NewHands, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, standby = new_hands(), new_hands()
    for wrong_s in (-3600.0, 0.3, 3600.0):
        monkeypatch.setattr(time, "time", lambda s=time.time() + wrong_s: s)
        await leader.lead()
        assert leader.leader.is_leader
        assert await standby.poll() is None
        await leader.leader.resign()
        monkeypatch.undo()


async def test_a_renewal_keeps_the_lease_and_a_lost_one_ends_the_term(
    new_hands: NewHands,
    clock: DatabaseClock,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.05)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    clock.freeze()
    leader = new_hands()
    await leader.lead()
    first_ms = await sessions.value("SELECT lease_until FROM timer_pointer")
    keeping = asyncio.create_task(leader.leader.keep())
    clock.advance(1_000)
    await sessions.until(
        "SELECT lease_until = %s FROM timer_pointer", first_ms + 1_000, timeout_s=5
    )
    await (await sessions.open()).execute("UPDATE timer_pointer SET epoch = epoch + 1")
    await asyncio.wait_for(keeping, 5)
    assert not leader.leader.is_leader


@pytest.mark.parametrize("ended", ["it resigns", "its trust runs out"])
async def test_a_renewal_under_way_when_the_term_ends_does_not_begin_it_again(
    new_hands: NewHands, sessions: Sessions, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    """Else it would go on leading after it was told to stop, or without the hands that ended."""
    began_s = monotonic_s()
    leader = new_hands()
    await leader.lead()
    monkeypatch.setattr(module, "RENEW_S", 0)
    # Time stands but where it is set.
    monkeypatch.setattr(module, "monotonic_s", lambda: began_s + LEASE_S / 2)
    session = await sessions.open()
    async with session.transaction():
        await session.execute("SELECT FROM timer_pointer FOR UPDATE")
        keeping = asyncio.create_task(leader.leader.keep())
        await sessions.until_waiting("wheel_lead_renew")
        others: list[asyncio.Task[None]] = []
        if ended == "it resigns":
            others.append(asyncio.create_task(leader.leader.resign()))
            await asyncio.sleep(0)
        else:
            monkeypatch.setattr(module, "monotonic_s", lambda: began_s + LEASE_S)
        assert not leader.leader.is_leader
    await asyncio.wait_for(asyncio.gather(keeping, *others), 5)
    assert not leader.leader.is_leader


async def test_a_renewal_that_errs_ends_the_term(
    new_hands: NewHands, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In doubt nobody leads: a belief that cannot be confirmed is not kept."""
    monkeypatch.setattr(module, "RENEW_S", 0.05)
    leader = new_hands()
    await leader.lead()
    await (await sessions.open()).execute("ALTER FUNCTION wheel_lead_renew_v1 RENAME TO away")
    await asyncio.wait_for(leader.leader.keep(), 5)
    assert not leader.leader.is_leader


async def test_a_hand_that_is_refused_steps_down_at_once(hands: Hands, sessions: Sessions) -> None:
    await (await sessions.open()).execute("UPDATE timer_pointer SET epoch = epoch + 1")
    await asyncio.wait_for(turn(hands.due, hands.leader), 5)
    assert not hands.leader.is_leader


async def test_an_epoch_seen_in_redis_lifts_that_of_a_restored_database(
    hands: Hands,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """The database comes from a backup, Redis has seen its later epochs: both go on above them."""
    now_ms = clock.freeze()
    task = task_at(now_ms + 1_600)
    await submit(db, 0, [task])
    seen = hands.leader.epoch + 7
    await hands.event_center.publish(0, seen, [ref_to(task_at(now_ms, biz_type="orders"))])
    clock.advance(1_000)
    await hands.serve()
    assert hands.leader.epoch == seen + 1
    assert await sessions.value("SELECT epoch FROM timer_pointer") == seen + 1
    assert task.task_id in await lanes.ids()
    assert hands.leader.is_leader
    await audits_hold()


async def test_who_does_not_lead_cannot_lift_its_epoch(
    hands: Hands, db: Database, sessions: Sessions
) -> None:
    old = hands.leader.epoch
    await (await sessions.open()).execute("UPDATE timer_pointer SET epoch = epoch + 1")
    assert await raise_epoch(db, 0, old, old + 50) is None
    with pytest.raises(LeadershipLost):
        await hands.leader.outbid(old + 50)
    assert await sessions.value("SELECT epoch FROM timer_pointer") == old + 1


async def test_two_daemons_of_one_name_are_two(new_hands: NewHands) -> None:
    """Identity carries a nonce, but nothing hangs on it: epoch and lock tell them apart."""
    one, other = new_hands(), new_hands()
    other.name = one.name
    await one.lead()
    assert await other.poll() is None
