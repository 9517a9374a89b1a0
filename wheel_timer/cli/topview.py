"""`top` as it looks: a picture of the service in so many columns and lines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.moments import in_words, parse_rfc3339
from wheel_timer.cli.readings import Lateness, Rates
from wheel_timer.cli.screen import Screen, Sort
from wheel_timer.cli.watch import Picture

WIDE_COLUMNS: Final = 110
SHARDS_MAX: Final = 6
OPERATIONS_MAX: Final = 3
LANES_MIN: Final = 3
LATE_MS: Final = 1_000
VERY_LATE_MS: Final = 60_000

Lane = Mapping[str, Any]


def _late_ms(lane: Lane, now: datetime) -> float:
    due = lane.get("oldest_due")
    return 0.0 if due is None else (now - parse_rfc3339(due)).total_seconds() * 1_000


_MEASURES: Final[Mapping[Sort, Callable[[Lane, datetime, Mapping[str, float]], float]]] = {
    Sort.LATE: lambda lane, now, _: max(0.0, _late_ms(lane, now)),
    Sort.DEPTH: lambda lane, *_: lane["depth"] or 0,
    Sort.PENDING: lambda lane, *_: lane["pending"],
    Sort.DEAD: lambda lane, *_: lane.get("dead", 0),
    Sort.RATE: lambda lane, _, called: called.get(lane["biz_type"], 0.0),
}


def top_view(picture: Picture | None, url: str, screen: Screen) -> RenderableType:
    """The whole picture; what does not fit into the lines of the screen is counted."""
    head = [_title(picture, url, screen)]
    if screen.failure is not None:
        since = "" if screen.failed_since is None else f" since {screen.failed_since:%H:%M:%S} UTC"
        why = plain(screen.failure.replace(f" at {url}", "").removeprefix(f"{url}: "))
        head.append(_line((f"no answer{since}, trying again: {why}", "bold red")))
    if picture is None:
        if screen.failure is None:
            head.append(_line("asking ..."))
        return Group(*head)
    now = parse_rfc3339(picture.wheel["now"])
    head += _head(picture, now)
    shards = picture.wheel["shards"]
    parts: list[RenderableType] = [*head]
    used = len(head)
    if shards:
        shown = sorted(shards, key=lambda one: (-one["lag_ms"], one["shard"]))[:SHARDS_MAX]
        parts += [Text(), _shards(shown, now, len(shards) - len(shown))]
        used += 2 + len(shown)
    lanes = _sorted(picture, screen.sort, now)
    room = len(lanes)
    if screen.lines is not None:
        room = max(LANES_MIN, screen.lines - used - 2 - screen.keys)
    first = max(0, min(screen.first_lane, len(lanes) - room))
    visible = lanes[first : first + room]
    parts += [Text(), _lanes(visible, picture, now, screen)]
    if screen.keys:
        spare = 0 if screen.lines is None else screen.lines - used - 2 - max(len(visible), 1) - 1
        parts += [*[Text()] * max(0, spare), _keys_line(first, len(visible), len(lanes), screen)]
    return Group(*parts)


def plain(text: str) -> str:
    """What others have named, without what a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _title(picture: Picture | None, url: str, screen: Screen) -> RenderableType:
    pace = "paused" if screen.is_paused else f"every {screen.interval_s:g} s"
    times = [] if picture is None else [f"{picture.wheel['now'][11:19]} UTC"]
    right = ", ".join([*times, pace] if screen.keys else times)
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_row(Text.assemble(("wheel-timer", "bold"), f"  {plain(url)}"), Text(right))
    return grid


def _head(picture: Picture, now: datetime) -> list[Text]:
    wheel = picture.wheel
    lines = [_counts_line(wheel, picture.rates), _late_line(picture.lateness)]
    lines.append(_nodes_line(picture.nodes, now))
    if (brake := wheel.get("brake")) is not None:
        since = in_words((now - parse_rfc3339(brake["since"])).total_seconds() * 1_000)
        told = f"the brake is on for {since}: {plain(brake['reason'])}"
        lines.append(_line((told, "bold yellow")))
    if (jump := wheel.get("clock_jump")) is not None:
        ahead = in_words(jump["ahead_ms"])
        lines.append(_line((f"held: the database's clock has jumped {ahead} ahead", "bold red")))
    if picture.violations:
        found = ", ".join(f"{plain(name)} {n}" for name, n in picture.violations.items())
        lines.append(_line((f"violations at the last audit: {found}", "bold red")))
    running = picture.operations
    for one in running[:OPERATIONS_MAX]:
        of = one["filter"].get("biz_type") or "all"
        told = f"{one['action']} {plain(str(of))}, {one['done']:,} of {one['matched']:,} met so far"
        lines.append(_line("operation ", (told, "cyan"), (f"  {one['operation_id']}", "dim")))
    if len(running) > OPERATIONS_MAX:
        lines.append(_line(f"and {len(running) - OPERATIONS_MAX} operations more"))
    return lines


def _counts_line(wheel: Mapping[str, Any], rates: Rates | None) -> Text:
    dead = wheel.get("dead", 0)
    line = _line(f"pending {wheel['pending']:,}", ("  dead ", "red" if dead else ""), f"{dead:,}")
    if rates is None:
        return line
    for name in ("submitted", "finished", "failed", "cancelled"):
        rate = getattr(rates, name)
        if rate or name in ("submitted", "finished"):
            line.append(f"  {name} {_rate(rate)}/s", "red" if name == "failed" else "")
    return line


def _late_line(lateness: Lateness | None) -> Text:
    if lateness is None:
        return _line(("late: not known yet", "dim"))
    parts = [
        f"{told} {_under(bound_ms)}"
        for told, bound_ms in (
            ("half", lateness.p50_ms),
            ("99%", lateness.p99_ms),
            ("published 99%", lateness.publish_p99_ms),
        )
        if bound_ms is not None
    ]
    if not parts:
        return _line(("late: nothing was called in the last minute", "dim"))
    return _line("late: " + ", ".join(parts), ("  last minute", "dim"))


def _under(bound_ms: float) -> str:
    return "over an hour" if bound_ms == float("inf") else f"under {in_words(bound_ms)}"


def _nodes_line(nodes: Sequence[Mapping[str, Any]], now: datetime) -> Text:
    alive = [node for node in nodes if node["alive"]]
    roles = Counter(node["role"] for node in alive)
    line = _line(", ".join(f"{n} {plain(role)}{'s'[: n != 1]}" for role, n in roles.items()))
    if not alive:
        line = _line(("no node is known to live", "red" if nodes else "dim"))
    versions = {node["version"] for node in alive}
    line.append(f"  version {plain(', '.join(sorted(versions)))}" if versions else "", "dim")
    for node in nodes:
        if not node["alive"]:
            silent_ms = (now - parse_rfc3339(node["heartbeat"])).total_seconds() * 1_000
            line.append(f"  {plain(node['node'])} silent for {in_words(silent_ms)}", "yellow")
    return line


def _shards(shards: Sequence[Mapping[str, Any]], now: datetime, more: int) -> Table:
    table = _table()
    table.add_column("shard" if not more else f"shard (and {more} more)", justify="right")
    table.add_column("leader", no_wrap=True, overflow="ellipsis", ratio=1)
    for name in ("epoch", "lag", "hand at", "sweep", "reap"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in shards:
        leader = one["leader"]
        lag_style = _late_style(one["lag_ms"])
        table.add_row(
            str(one["shard"]),
            Text(plain(leader)) if leader is not None else Text("nobody leads", style="bold red"),
            str(one["epoch"]),
            Text(_ms(one["lag_ms"]), style=lag_style),
            f"{one['current_time'][11:23]}",
            _behind(one["sweep_time"], now),
            _behind(one["reap_time"], now),
        )
    return table


def _behind(time: str, now: datetime) -> str:
    behind_ms = (now - parse_rfc3339(time)).total_seconds() * 1_000
    # Hands that have never moved stand at the beginning of time.
    return "-" + _ms(behind_ms) if 0 <= behind_ms < 400 * 86_400_000 else ""


def _sorted(picture: Picture, sort: Sort, now: datetime) -> list[Lane]:
    """Those that are equal by what is in them, then by name."""
    called = {} if picture.rates is None else picture.rates.called
    lanes: list[Lane] = picture.wheel["lanes"]
    if sort is Sort.NAME:
        return sorted(lanes, key=lambda lane: str(lane["biz_type"]))
    measure = _MEASURES[sort]
    return sorted(
        lanes,
        key=lambda lane: (
            -measure(lane, now, called),
            -(lane["depth"] or 0),
            -(lane["in_flight"] or 0),
            -lane["pending"],
            lane["biz_type"],
        ),
    )


def _lanes(lanes: Sequence[Lane], picture: Picture, now: datetime, screen: Screen) -> Table:
    is_wide = screen.columns >= WIDE_COLUMNS
    number = _full if is_wide else _short
    called = {} if picture.rates is None else picture.rates.called
    table = _table()
    table.add_column("lane", no_wrap=True, overflow="ellipsis", ratio=1)
    for name in ("pending", "dead", "depth", "in flight", "called/s", "oldest"):
        table.add_column(name, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("limit/s", justify="right", no_wrap=True)
        table.add_column("priority", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for lane in lanes:
        dead, limit = lane.get("dead", 0), lane["rate_limit"]
        rate = called.get(lane["biz_type"])
        cells: list[RenderableType] = [
            Text(plain(lane["biz_type"])),
            number(lane["pending"]),
            Text(number(dead), style="red" if dead else "dim"),
            _counted(lane["depth"], number),
            _counted(lane["in_flight"], number),
            "" if rate is None else _rate(rate),
            _oldest(lane, now),
        ]
        if is_wide:
            cells += ["" if limit is None else f"{limit:g}", str(lane["priority"])]
        table.add_row(*cells, _state(lane))
    if not lanes:
        table.add_row(Text("no biz_types", style="dim"))
    return table


def _counted(count: int | None, number: Callable[[int], str]) -> Text:
    return Text("?", style="yellow") if count is None else Text(number(count))


def _oldest(lane: Lane, now: datetime) -> Text:
    if lane.get("oldest_due") is None:
        return Text()
    late_ms = _late_ms(lane, now)
    if late_ms < 0:
        return Text("ahead", style="dim")
    return Text(_ms(late_ms), style=_late_style(late_ms))


def _state(lane: Lane) -> Text:
    if lane["paused"]:
        return Text("paused", style="yellow")
    if lane["breaker"] == "open":
        return Text("breaker", style="bold red")
    return Text("" if lane["breaker"] else "no redis", style="yellow")


def _late_style(late_ms: float) -> str:
    return "bold red" if late_ms >= VERY_LATE_MS else "yellow" if late_ms >= LATE_MS else ""


def _keys_line(first: int, shown: int, of: int, screen: Screen) -> Text:
    line = _line(
        ("q", "bold"), " quit  ", ("s", "bold"), f" sort: {screen.sort}  ", ("p", "bold"),
        " go on" if screen.is_paused else " pause",
    )  # fmt: skip
    if shown < of:
        line.append_text(
            _line("  ", ("up/down", "bold"), f" {first + 1}-{first + shown} of {of:,}")
        )
    return line


def _table() -> Table:
    return Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0), expand=True)


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _ms(duration_ms: float) -> str:
    """A duration of whole ms."""
    return in_words(round(duration_ms)) if duration_ms >= 1 else "0 ms"


def _full(count: int) -> str:
    return f"{count:,}"


def _short(count: int) -> str:
    """Three digits of it at least: `9,999`, `12.3k`, `1.23M`."""
    if count < 10_000:
        return f"{count:,}"
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            of_it = count / size
            return f"{of_it:.{2 if of_it < 10 else 1 if of_it < 100 else 0}f}{unit}"
    return str(count)


def _rate(a_second: float) -> str:
    return f"{a_second:,.0f}" if a_second >= 10 or not a_second else f"{a_second:.1f}"
