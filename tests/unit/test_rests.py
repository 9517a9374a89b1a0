"""What a long second leaves, and how fast it is read: order and pace."""

from __future__ import annotations

from uuid import UUID

import pytest

from daemon.rests import OLD_S, PAUSES, Kind, Rest, Rests, split
from wheel_timer.store.due import Key, Part, Window

WINDOW = Window(1_000, 2_000)
HERE = Key(1_500, UUID(int=7))
FRESH = Rest(Kind.FRESH, WINDOW, HERE)
OF_FULL = FRESH._replace(part=Part(frozenset({"hot"}), is_only=True, is_full=True))


def test_later_moments_come_first_then_the_others_of_this_one_then_the_full_lane() -> None:
    others = Part(frozenset({"hot"}), is_only=False)
    later = Rest(Kind.FRESH, Window(1_500, 2_000), Key(1_500, UUID(int=0)), others)
    within = Rest(Kind.FRESH, Window(1_000, 1_500), HERE, others)
    assert split(FRESH, {"hot"}, ()) == ([later, within], [OF_FULL])


def test_nothing_is_later_than_the_last_moment_of_a_window() -> None:
    last = FRESH._replace(key=Key(2_000, UUID(int=7)))
    others, _ = split(last, {"hot"}, ())
    assert [rest.window for rest in others] == [WINDOW]


@pytest.mark.parametrize(
    ("rest", "full"),
    [
        (FRESH, set()),
        (FRESH._replace(kind=Kind.FIRST), {"hot"}),
        (FRESH._replace(kind=Kind.AGAIN), {"hot"}),
        (OF_FULL, {"hot", "more"}),
        (FRESH._replace(part=Part(frozenset({"hot"}), is_only=False)), {"hot"}),
    ],
)
def test_a_rest_that_need_not_be_split_stays_whole(rest: Rest, full: set[str]) -> None:
    assert split(rest, full, ()) == ([rest], [])


def test_a_second_lane_that_fills_up_is_left_out_like_the_first() -> None:
    (_, within), _ = split(FRESH, {"hot"}, ())
    (_, narrower), (of_full,) = split(
        within._replace(key=Key(1_400, HERE.task_id)), {"hot", "new"}, ()
    )
    assert narrower.part == Part(frozenset({"hot", "new"}), is_only=False)
    assert of_full.part == Part(frozenset({"new"}), is_only=True, is_full=True)


def test_a_lane_of_which_much_is_due_comes_after_the_others_and_before_the_full_one() -> None:
    parts, of_full = split(FRESH, {"hot"}, {"hot", "big"})
    others = Part(frozenset({"hot", "big"}), is_only=False)
    assert [rest.part for rest in parts] == [
        others,
        others,
        Part(frozenset({"big"}), is_only=True),
    ]
    assert of_full == [OF_FULL]
    rests = Rests()
    rests.add([*of_full, *reversed(parts)], 0.0)
    order = []
    while rests:
        order.append((rests.next.is_of_heavy, rests.next.is_of_full))
        rests.was_read(None, (), (), 0.0)
    assert order == [(False, False), (False, False), (True, False), (False, True)]


def test_a_lane_of_which_much_is_due_and_that_fills_up_is_read_as_a_full_one() -> None:
    both = FRESH._replace(part=Part(frozenset({"hot", "big"}), is_only=True))
    assert split(both, {"hot", "other"}, {"big"}) == (
        [FRESH._replace(part=Part(frozenset({"big"}), is_only=True))],
        [OF_FULL],
    )
    assert split(both, (), {"big"}) == ([both], [])


def test_what_grows_heavy_among_the_others_goes_behind_them() -> None:
    rests = Rests()
    rests.add([FRESH], 0.0)
    rests.was_read(Key(2_000, HERE.task_id), (), {"big"}, 0.0)
    assert rests.next.part == Part(frozenset({"big"}), is_only=False)
    rests.was_read(None, (), {"big"}, 0.0)
    assert rests.next.part == Part(frozenset({"big"}), is_only=True)


def test_what_is_of_full_lanes_comes_last_and_the_rest_is_never_paused() -> None:
    rests = Rests()
    rests.add([OF_FULL, FRESH], 0.0)
    rests.pause(1.0, 0.0)
    assert (rests.next, rests.wait_s(0.0)) == (FRESH, 0.0)
    rests.was_read(None, (), (), 0.0)
    assert (rests.next, rests.wait_s(0.0)) == (OF_FULL, PAUSES)
    assert rests.wait_s(PAUSES + 1.0) == 0.0
    rests.was_read(None, (), (), 0.0)
    assert not rests


def test_the_longer_a_line_is_worked_at_the_shorter_its_pauses() -> None:
    rests = Rests()
    rests.add([OF_FULL], 100.0)
    waits: list[float] = []
    for age_s in (0.0, OLD_S / 2, OLD_S, 3 * OLD_S):
        rests.pause(1.0, 100.0 + age_s)
        waits.append(rests.wait_s(100.0 + age_s))
    assert waits == [PAUSES, PAUSES / 2, 0.0, 0.0]
    # One that begins when all was read is a new one.
    rests.was_read(None, (), (), 3 * OLD_S)
    rests.add([OF_FULL], 4 * OLD_S)
    rests.pause(1.0, 4 * OLD_S)
    assert rests.wait_s(4 * OLD_S) == PAUSES


def test_everything_before_the_earliest_rest_was_read() -> None:
    assert Rests().from_ms is None
    rests = Rests()
    rests.add([FRESH, OF_FULL._replace(key=Key(1_200, HERE.task_id))], 0.0)
    assert rests.from_ms == 1_200
    rests.was_read(Key(1_700, HERE.task_id), {"hot"}, (), 0.0)
    assert [rests.from_ms, rests.next.key.time_ms] == [1_200, 1_700]
