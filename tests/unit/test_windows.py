"""The bookkeeping of windows, drains and lines."""

from __future__ import annotations

import pytest

from daemon.windows import DEEP, Windows
from wheel_timer.biz import BizType
from wheel_timer.publishing import Level, Room
from wheel_timer.store.requeue import Line
from wheel_timer.window import WINDOW_MAX, WINDOW_MIN, WINDOW_UNMEASURED, window

NOW_MS = 1_800_000_000_000


def limited(rate: float) -> BizType:
    return BizType(biz_type="limited", version=1, callback_url="http://a/", rate_limit=rate)


@pytest.fixture
def windows() -> Windows:
    return Windows(biz_types={"limited": limited(100)}, visibility_s=60, shards=1)


@pytest.mark.parametrize(
    ("per_s", "entries"),
    [
        (None, WINDOW_UNMEASURED),
        (0.01, WINDOW_MIN),
        (100, 3_000),
        (2_000, 60_000),
        (100_000, WINDOW_MAX),
    ],
)
def test_a_window_is_worked_off_in_half_a_visibility_time(
    per_s: float | None, entries: int
) -> None:
    assert window(per_s, 60) == entries


def test_a_lane_is_measured_only_while_it_is_deep(windows: Windows) -> None:
    windows.published({"slow": DEEP}, is_again=False)
    assert windows.pace("slow") is None
    windows.looked({"slow": Level(DEEP, 1_000)}, 10.0, [])
    windows.looked({"slow": Level(DEEP, 1_040)}, 11.0, [])
    assert windows.pace("slow") is None, "too short a time"
    windows.looked({"slow": Level(DEEP, 1_100)}, 14.0, [])
    assert windows.pace("slow") == 25
    windows.looked({"slow": Level(DEEP, 1_200)}, 16.0, [])
    assert windows.pace("slow") == (25 + 50) / 2
    windows.looked({"slow": Level(DEEP - 1, 1_200)}, 20.0, ["slow"])
    assert windows.pace("slow") == (25 + 50) / 2, "it was nearly empty: nothing is learned"
    windows.looked({"slow": Level(0, 1_200)}, 21.0, [])
    assert windows.watched() == []


def test_an_endpoint_that_is_slower_than_its_limit_sets_the_pace(windows: Windows) -> None:
    assert windows.pace("limited") == 100
    windows.published({"limited": 2_900}, is_again=False)
    windows.looked({"limited": Level(2_900, 0)}, 0.0, [])
    windows.looked({"limited": Level(2_900, 100)}, 10.0, [])
    assert windows.pace("limited") == 10
    assert windows.room("limited", is_again=True) == Room(WINDOW_MIN, False)
    assert windows.waits_ms() == {"limited": 290_000}
    assert windows.again_ms("limited", NOW_MS) == NOW_MS + 580_000
    assert windows.again_ms("other", NOW_MS) == NOW_MS + 60_000


def test_the_pages_of_a_tick_share_nine_tenths_of_the_room(windows: Windows) -> None:
    assert windows.room("limited", is_again=False) == Room(3_000, True)
    windows.published({"limited": 1_000}, is_again=False)
    assert windows.room("limited", is_again=False) == Room(2_800, False)
    assert windows.room("limited", is_again=True) == Room(3_000, False)
    windows.new_tick()
    assert windows.room("limited", is_again=False) == Room(3_000, True)


def test_a_line_is_spaced_from_its_end_and_who_stood_in_it_stays_near_its_head(
    windows: Windows,
) -> None:
    in_line = [windows.line_up("limited", NOW_MS, stood_in_line=False) for _ in range(1_000)]
    assert (in_line[0], in_line[-1]) == (NOW_MS + 15_010, NOW_MS + 25_000)
    assert windows.line_up("limited", NOW_MS + 1_000, stood_in_line=True) == NOW_MS + 16_010
    windows.stand({"limited": Line(NOW_MS + 90_000, NOW_MS)})
    assert windows.line_up("limited", NOW_MS, stood_in_line=False) == NOW_MS + 90_010


def test_a_lane_is_filled_once_half_of_it_is_free(windows: Windows) -> None:
    windows.stand({"limited": Line(NOW_MS, NOW_MS)})
    windows.looked({"limited": Level(1_500, 0)}, 0.0, ["limited"])
    assert windows.free("limited") == 0
    windows.looked({"limited": Level(1_499, 0)}, 1.0, ["limited"])
    assert windows.free("limited") == 1_501


def test_several_shards_share_the_pace_of_a_line() -> None:
    windows = Windows(biz_types={"limited": limited(100)}, visibility_s=60, shards=4)
    first = windows.line_up("limited", NOW_MS, stood_in_line=False)
    assert windows.line_up("limited", NOW_MS, stood_in_line=False) == first + 40
