"""
Charts as SVG, drawn here: columns over time, and lines over time. Pure.

No script draws them, so they are there without one, and a chart costs a page some kilobytes. They
hold numbers and the caller's own words; colours come from the style sheet, by class. Every mark
has a title, and the page shows the same as a table where the numbers matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

WIDTH: Final = 480
_LEFT: Final = 52
_RIGHT: Final = 8
_TOP: Final = 10
_BOTTOM: Final = 22


class Column(NamedTuple):
    """One column. label: under it, where not empty. title: what is said of it. mark: its class."""

    value: float
    label: str
    title: str
    mark: str = ""


class Line(NamedTuple):
    """One line. values: one for each place, None where there is none. mark: its class."""

    name: str
    mark: str
    values: Sequence[float | None]


def columns(
    of: Sequence[Column], *, name: str, width: int = WIDTH, height: int = 190, limit: float = 0
) -> Markup:
    """
    Columns from zero. name: what the chart is, for who cannot see it. width: of the drawing, whose
    text is of the page's size where it is shown so wide. limit: a line across, 0 for none; it is
    part of the scale where it does not make the columns too low to be seen.
    """
    highest = max([column.value for column in of], default=0)
    top = _round_up(max(highest, limit if limit <= highest * 4 else 0, 1))
    plot = height - _TOP - _BOTTOM
    step = (width - _LEFT - _RIGHT) / max(1, len(of))
    marks = [(0, "0"), (top / 2, _figure(top / 2)), (top, _figure(top))]
    parts = [_grid(marks, top, width, height)]
    for place, column in enumerate(of):
        x = _LEFT + place * step
        tall = plot * column.value / top
        if column.value:
            tall = max(tall, 1.5)
        parts.append(
            Markup('<g><title>{}</title><rect class="hit" x="{:.1f}" y="{}" width="{:.1f}"').format(
                column.title, x, _TOP, step
            )
            + Markup(' height="{}"/>').format(plot)
        )
        parts.append(
            Markup('<rect class="column {}" x="{:.1f}" y="{:.1f}" width="{:.1f}"').format(
                column.mark, x + step * 0.12, _TOP + plot - tall, step * 0.76
            )
            + Markup(' height="{:.1f}" rx="1"/></g>').format(tall)
        )
        if column.label:
            parts.append(_label(x + step / 2, width, height, column.label))
    if 0 < limit <= top:
        parts.append(_across("limit", limit / top, width, height))
    return _svg(parts, name, width, height)


def lines(
    of: Sequence[Line],
    *,
    name: str,
    labels: Sequence[str],
    marks: Sequence[tuple[float, str]],
    width: int = WIDTH,
    height: int = 190,
) -> Markup:
    """
    Lines over the same places, on a logarithmic scale. labels: one for each place, mostly empty.
    marks: (value, text) of the lines across, ascending, positive; the outer ones are the scale.
    """
    low, top = math.log(marks[0][0]), math.log(marks[-1][0])
    plot = height - _TOP - _BOTTOM

    def y_of(value: float) -> float:
        share = (math.log(max(value, marks[0][0])) - low) / (top - low)
        return _TOP + plot * (1 - min(1.0, max(0.0, share)))

    step = (width - _LEFT - _RIGHT) / max(1, len(labels) - 1)
    parts = [
        Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
            _LEFT, width - _RIGHT, y_of(value), y_of(value)
        )
        + _side(y_of(value), text)
        for value, text in marks
    ]
    for line in of:
        for run in _runs(line.values):
            points = " ".join(f"{_LEFT + i * step:.1f},{y_of(value):.1f}" for i, value in run)
            if len(run) == 1:
                x, _, y = points.partition(",")
                parts.append(
                    Markup('<circle class="line {}" r="2.5" cx="{}" cy="{}"/>').format(
                        line.mark, x, y
                    )
                )
            else:
                parts.append(
                    Markup('<polyline class="line {}" points="{}"/>').format(line.mark, points)
                )
    for place, label in enumerate(labels):
        if label:
            parts.append(_label(_LEFT + place * step, width, height, label))
    return _svg(parts, name, width, height)


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Values that follow each other without a gap, with their places."""
    runs: list[list[tuple[int, float]]] = []
    before = -2
    for place, value in enumerate(values):
        if value is None:
            continue
        if place != before + 1:
            runs.append([])
        runs[-1].append((place, value))
        before = place
    return runs


def _grid(marks: Sequence[tuple[float, str]], top: float, width: int, height: int) -> Markup:
    plot = height - _TOP - _BOTTOM
    return Markup("").join(
        _across("grid", value / top, width, height) + _side(_TOP + plot * (1 - value / top), text)
        for value, text in marks
    )


def _across(mark: str, share: float, width: int, height: int) -> Markup:
    y = _TOP + (height - _TOP - _BOTTOM) * (1 - share)
    return Markup('<line class="{}" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
        mark, _LEFT, width - _RIGHT, y, y
    )


def _side(y: float, text: str) -> Markup:
    return Markup('<text class="side" x="{}" y="{:.1f}">{}</text>').format(_LEFT - 6, y + 3.5, text)


def _label(x: float, width: int, height: int, text: str) -> Markup:
    x = min(max(x, _LEFT + 12), width - _RIGHT - 16)
    return Markup('<text class="foot" x="{:.1f}" y="{}">{}</text>').format(x, height - 6, text)


def _svg(parts: Sequence[Markup], name: str, width: int, height: int) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(width, height, escape(name), Markup("").join(parts))


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10, 20, ... that is not below."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)


def _figure(value: float) -> str:
    """A number that has little room: `950`, `1.2k`, `30k`, `2.5M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
