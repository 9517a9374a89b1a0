"""The database's clock as a process knows it: never ahead of it, and unknown rather than wrong."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from tests.fix_clock import DatabaseClock
from tests.fix_hands import GatedDatabase
from tests.fix_proxy import PostgresProxy
from wheel_timer import clock as module
from wheel_timer.clock import UNCERTAINTY_MS_MAX, Clock, Pulse
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.jump import NONE_ACCEPTED, Accepted


class Steady:
    """A steady clock that moves when it is told to."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    """What `monotonic_s` says here."""
    told = Steady()
    monkeypatch.setattr(module, "monotonic_s", told)
    return told


def answer(
    clock: Clock,
    steady: Steady,
    now_ms: float,
    *,
    took_ms: float = 0.0,
    accepted: Accepted = NONE_ACCEPTED,
) -> None:
    """The database says that it is now_ms, took_ms after it was asked."""
    sent_s = steady.s
    steady.s += took_ms / 1000
    clock.observe(Pulse(False, False, 0, *accepted, 0, round(now_ms * 1000)), sent_s, steady.s)


def machine_ms() -> float:
    return time.time() * 1000


async def test_it_is_never_ahead_of_the_database_and_hardly_behind(
    db: Database, clock: DatabaseClock
) -> None:
    known = Clock(db)
    assert not known.is_known()
    assert known.now_ms() == -math.inf
    for _ in range(20):
        await known.measure()
        before_ms = clock.now_ms()
        here_ms, uncertain_ms = known.now_ms(), known.uncertainty_ms()
        after_ms = clock.now_ms()
        # What the database says is rounded down to the millisecond.
        assert here_ms <= after_ms + 1
        assert before_ms <= here_ms + uncertain_ms + 1
    assert known.is_known()


async def test_an_answer_that_took_long_makes_the_clock_uncertain_not_wrong(
    database_url: str, clock: DatabaseClock
) -> None:
    db = GatedDatabase(database_url, "slow")
    await db.fetch("pulse")
    known = Clock(db)
    with db.gate("pulse") as gate:
        asking = asyncio.create_task(known.measure())
        await gate.arrived()
        await asyncio.sleep((UNCERTAINTY_MS_MAX + 10) / 1000)
    await asking
    assert not known.is_known()
    assert known.now_ms() <= clock.now_ms() + 1
    await known.measure()
    assert known.is_known()
    await db.close()


async def test_the_best_of_several_answers_counts(db: Database, steady: Steady) -> None:
    known = Clock(db)
    base_ms = machine_ms()
    answer(known, steady, base_ms, took_ms=40)
    assert known.uncertainty_ms() == pytest.approx(40, abs=0.1)
    steady.s += 1
    answer(known, steady, base_ms + 1_030, took_ms=2)
    assert known.uncertainty_ms() == pytest.approx(2, abs=0.3)
    # A worse one later takes nothing from it but the drift that a second may bring.
    steady.s += 1
    answer(known, steady, base_ms + 2_032, took_ms=30)
    assert known.uncertainty_ms() < 3


async def test_a_clock_that_is_set_back_is_followed_at_once(db: Database, steady: Steady) -> None:
    known = Clock(db)
    base_ms = machine_ms()
    answer(known, steady, base_ms, took_ms=1)
    steady.s += 1
    answer(known, steady, base_ms - 600_000, took_ms=1)
    assert known.now_ms() == pytest.approx(base_ms - 600_000, abs=1)
    assert known.is_known()


async def test_a_jump_forward_makes_it_unknown_until_it_is_back(
    db: Database, steady: Steady, caplog: pytest.LogCaptureFixture
) -> None:
    known = Clock(db, jump_max_s=60)
    base_ms = machine_ms()
    answer(known, steady, base_ms)
    steady.s += 1
    answer(known, steady, base_ms + 3_600_000)
    assert not known.is_known()
    # Nothing that waits for its moment is let go.
    assert known.now_ms() < base_ms + 2_000
    steady.s += 1
    answer(known, steady, base_ms + 3_601_000)
    assert not known.is_known()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    steady.s += 1
    answer(known, steady, base_ms + 3_000)
    assert known.is_known()
    assert known.now_ms() == pytest.approx(base_ms + 3_000, abs=1)


@pytest.mark.parametrize(
    ("ahead_s", "accepted_s", "forward_s", "knows"),
    [
        (0, 0, 600, True),
        (0, 0, 4_200, False),
        (3_600, 3_600, 600, True),
        (-3_600, 0, 600, False),
    ],
)
async def test_a_clock_that_was_set_back_and_is_put_right_is_followed(
    ahead_s: int, accepted_s: int, forward_s: int, knows: bool, db: Database, steady: Steady
) -> None:
    """No further than it was set back, and only to where the machine's clock has it, too."""
    known = Clock(db, jump_max_s=60)
    accepted = Accepted(1, accepted_s * 1_000)
    base_ms = machine_ms() + ahead_s * 1_000
    for moved_s in (0, -600):
        answer(known, steady, base_ms + moved_s * 1_000, accepted=accepted)
        assert known.is_known()
        steady.s += 1
    answer(known, steady, base_ms + (forward_s - 600) * 1_000, accepted=accepted)
    assert known.is_known() is knows


async def test_a_clock_is_put_right_once_for_each_time_that_it_was_set_back(
    db: Database, steady: Steady
) -> None:
    known = Clock(db, jump_max_s=60)
    base_ms = machine_ms() + 30_000
    for behind_s in (0, 90, 0):
        steady.s += 1
        answer(known, steady, base_ms - behind_s * 1_000)
        assert known.is_known()
    steady.s += 1
    answer(known, steady, base_ms + 29_000 + 90_000)
    assert not known.is_known()


async def test_a_jump_that_is_accepted_is_followed_and_the_next_one_is_not(
    db: Database, steady: Steady
) -> None:
    told: list[float | None] = []
    known = Clock(db, jump_max_s=60)
    known.on_jump(lambda: told.append(known.jump_ms))
    base_ms = machine_ms()
    # What was accepted before this process came is not meant for what it sees.
    answer(known, steady, base_ms, accepted=Accepted(3, 0))
    steady.s += 1
    answer(known, steady, base_ms + 3_601_000, accepted=Accepted(3, 0))
    assert known.jump_ms == pytest.approx(3_600_000, abs=2_000)
    answer(known, steady, base_ms + 3_601_000, took_ms=8, accepted=Accepted(4, 3_600_000))
    assert known.jump_ms is None
    assert known.is_known()
    assert known.now_ms() == pytest.approx(base_ms + 3_601_000, abs=1)
    assert known.uncertainty_ms() == pytest.approx(8, abs=0.1)
    steady.s += 1
    answer(known, steady, base_ms + 7_202_000, accepted=Accepted(4, 3_600_000))
    assert not known.is_known()
    assert len(told) == 3
    assert told[1] is None


async def test_the_latest_it_may_be_goes_on_as_before_when_the_clock_jumps(
    db: Database, steady: Steady
) -> None:
    known = Clock(db, jump_max_s=60)
    assert known.latest_ms() is None
    base_ms = machine_ms()
    answer(known, steady, base_ms, took_ms=40)
    assert known.latest_ms() == pytest.approx(base_ms + 40, abs=1)
    steady.s += 2
    answer(known, steady, base_ms + 3_602_000)
    assert known.latest_ms() == pytest.approx(base_ms + 2_040, abs=2)


async def test_a_tests_clock_may_show_anything_next(db: Database, clock: DatabaseClock) -> None:
    known = Clock(db)
    clock.freeze()
    await known.measure()
    assert known.latest_ms() is None


@pytest.mark.parametrize(("ahead_s", "knows"), [(3_600, True), (3_650, True), (7_200, False)])
async def test_a_process_that_starts_follows_the_disagreement_that_was_accepted(
    ahead_s: int, knows: bool, db: Database, steady: Steady
) -> None:
    known = Clock(db, jump_max_s=60)
    accepted = Accepted(1, 3_600_000)
    answer(known, steady, machine_ms() + ahead_s * 1_000, accepted=accepted)
    assert known.is_known() is knows
    # The next consent is for it as well.
    answer(known, steady, machine_ms() + ahead_s * 1_000, accepted=Accepted(2, 0))
    assert known.is_known()


async def test_a_machine_that_is_put_right_needs_no_consent(db: Database, steady: Steady) -> None:
    """It started with its own clock an hour behind."""
    known = Clock(db, jump_max_s=60)
    answer(known, steady, machine_ms() + 3_600_000)
    assert not known.is_known()
    answer(known, steady, machine_ms() + 2_000)
    assert known.is_known()


async def test_a_small_step_forward_is_followed(db: Database, steady: Steady) -> None:
    known = Clock(db, jump_max_s=60)
    base_ms = machine_ms()
    answer(known, steady, base_ms)
    steady.s += 1
    answer(known, steady, base_ms + 31_000)
    assert known.is_known()
    assert known.now_ms() == pytest.approx(base_ms + 31_000, abs=1)


async def test_downtime_and_a_sleeping_machine_are_no_jump(db: Database, steady: Steady) -> None:
    """The steady clock goes on while the process is frozen or the machine asleep."""
    known = Clock(db, jump_max_s=60)
    base_ms = machine_ms()
    answer(known, steady, base_ms)
    steady.s += 7_200
    answer(known, steady, base_ms + 7_200_000)
    assert known.is_known()
    assert known.now_ms() == pytest.approx(base_ms + 7_200_000, abs=1)


@pytest.mark.parametrize(("ahead_s", "knows"), [(30, True), (3_600, False), (-3_600, True)])
async def test_at_start_the_database_is_compared_with_the_machine(
    ahead_s: int, knows: bool, db: Database, steady: Steady
) -> None:
    """A database far ahead would have everything called too soon; one behind, nothing."""
    known = Clock(db, jump_max_s=60)
    answer(known, steady, machine_ms() + ahead_s * 1_000)
    assert known.is_known() is knows
    # What is submitted meanwhile has a moment all the same.
    assert abs(known.now_ms() - machine_ms()) < (2_000 if not knows else 3_700_000)


async def test_a_clock_that_a_test_has_set_is_believed_and_read_anew_each_time(
    db: Database, clock: DatabaseClock
) -> None:
    known = Clock(db)
    await known.measure()
    for now_ms in (1_800_000_000_000, 2_000_000_000_000, 1_600_000_000_000):
        clock.set(now_ms)
        await known.measure()
        assert known.is_known()
        assert 0 <= known.now_ms() - now_ms < 60_000
    frozen_ms = clock.freeze(1_700_000_000_000)
    await known.measure()
    assert known.now_ms() == frozen_ms == known.now_ms()
    assert known.reached(frozen_ms)
    assert not known.reached(frozen_ms + 1)
    assert known.seconds_until(frozen_ms + 500) == 0.5
    clock.clear()
    await known.measure()
    assert abs(known.now_ms() - machine_ms()) < 1_000


async def test_the_last_estimate_outlasts_a_database_that_is_away(
    postgres_proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PULSE_IDLE_S", 0.01)
    db = Database(postgres_proxy.url, pool_size=1, name="clock")
    known = Clock(db)
    await known.measure()
    await postgres_proxy.stop()
    with pytest.raises(DatabaseUnavailable):
        await known.measure()
    running = asyncio.create_task(known.run())
    before_ms = known.now_ms()
    await asyncio.sleep(0.05)
    assert known.now_ms() - before_ms >= 40
    assert known.is_known()
    await postgres_proxy.heal()
    await known.measure()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await db.close()


async def test_every_pulse_tells_the_version_of_the_configuration(
    db: Database, steady: Steady
) -> None:
    told: list[int] = []
    known = Clock(db)
    known.on_biz_version(told.append)
    for version in (0, 3, 3, 4):
        pulse = Pulse(False, False, version, *NONE_ACCEPTED, 0, round(machine_ms() * 1000))
        known.observe(pulse, steady.s, steady.s)
        steady.s += 1
    assert told == [0, 3, 3, 4]
