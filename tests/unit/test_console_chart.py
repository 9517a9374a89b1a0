"""Charts: whatever their numbers are, they are drawn within their frame, and say what they show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from broker.console.chart import WIDTH, Column, Line, columns, lines
from broker.console.shown import ago, at, count, moment, short, words


@pytest.mark.parametrize("values", [[], [0], [1], [0.2], [3, 0, 9], [1e9, 1], list(range(96))])
@pytest.mark.parametrize("limit", [0, 5, 1e6])
def test_columns_lie_within_their_frame(values: list[float], limit: float) -> None:
    made = [Column(value, "x", f"{value} <tasks>") for value in values]
    drawn = columns(made, name="a & b", limit=limit, height=150)
    picture = ElementTree.fromstring(drawn)
    assert picture.get("aria-label") == "a & b"
    bars = [rect for rect in picture.iter("rect") if "column" in (rect.get("class") or "")]
    assert len(bars) == len(values)
    for bar in bars:
        x, y, width, height = (float(bar.get(n) or 0) for n in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + width <= WIDTH
        assert y >= 9.9
        assert y + height <= 150
    assert [title.text for title in picture.iter("title")] == [one.title for one in made]


def test_lines_leave_out_what_is_not_known() -> None:
    marks = [(1.0, "1 ms"), (1000.0, "1 s")]
    values = [None, 0.5, 10.0, None, 1e9, None]
    drawn = lines([Line("p50", "second", values)], name="late", labels=[""] * 6, marks=marks)
    picture = ElementTree.fromstring(drawn)
    (run,) = picture.iter("polyline")
    (single,) = picture.iter("circle")
    heights = [float(point.split(",")[1]) for point in (run.get("points") or "").split()]
    assert heights[0] > heights[1] > float(single.get("cy") or 0) >= 9.9
    assert not re.search(r"style=|<script|\son\w+=", drawn)


def test_how_things_are_written() -> None:
    at_ms = 1_795_293_000_007
    assert "2026-11-21</span> 20:30:00" in moment(at_ms)
    assert 'datetime="2026-11-21T20:30:00.007Z"' in moment("2026-11-21T21:30:00.007+01:00")
    assert "2026" not in at(at_ms, at_ms).partition(">")[2]
    assert "11-21</span> 20:30:00" in at(at_ms, at_ms + 86_400_000)
    assert (ago(at_ms, at_ms + 300), ago(at_ms, at_ms - 5_000)) == ("now", "in 5 s")
    assert ago(at_ms, at_ms + 3_600_000) == "1 h ago"
    assert (count(1234567), count(0.5), count(None)) == ("1,234,567", "0.5", "\N{EN DASH}")
    assert (words(0), words(1500), words(None)) == ("0 ms", "1.5 s", "\N{EN DASH}")
    assert short("a\n  b" + "c" * 200, 10) == "a bcccccc…"
