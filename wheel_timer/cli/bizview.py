"""biz_types for people: a table of them, one with all its settings, and what an apply changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_MARK: Final = {"set": True}
OWN_URL: Final = "each task's own"
_SIGNS: Final = {"created": ("+", "green"), "changed": ("~", "yellow"), "unchanged": ("=", "dim")}


def biz_table(items: Iterable[Mapping[str, Any]]) -> RenderableType:
    """One line for each."""
    table = Table("biz_type", "version", "calls", "rate", "concurrency", "priority", box=None)
    for item in items:
        name = Text(item["biz_type"])
        if item["paused"]:
            name.append(" (paused)", style="yellow")
        rate = item["rate_limit"]
        table.add_row(
            name,
            str(item["version"]),
            "(pulled)" if item.get("delivery") == "pull" else item["callback_url"] or OWN_URL,
            "-" if rate is None else f"{rate:g}/s",
            str(item["max_concurrency"]),
            str(item["priority"]),
        )
    return table


def settings_view(settings: Mapping[str, Any]) -> RenderableType:
    """Every member on a line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in settings.items():
        table.add_row(name, said(value))
    return table


def applied_view(applied: Mapping[str, Any]) -> RenderableType:
    """What was changed, or would be, setting by setting."""
    lines: list[RenderableType] = []
    counts = dict.fromkeys(_SIGNS, 0)
    for change in [*applied["changes"], *applied.get("schedules", ())]:
        counts[change["action"]] += 1
        sign, style = _SIGNS[change["action"]]
        name = change["biz_type"] + (f"/{change['name']}" if "name" in change else "")
        lines.append(Text(f"{sign} {name}", style=style))
        if change["action"] == "changed":
            lines += [_moved(n, change["old"][n], change["new"][n]) for n in change["new"]]
        elif change["action"] == "created":
            lines += [Text(f"    {name}: {said(new)}") for name, new in change["new"].items()]
    would = "would be " if applied["dry_run"] else ""
    told = ", ".join(f"{count} {would}{word}" for word, count in counts.items() if count)
    return Group(*lines, Text(told or "nothing is declared", style="bold"))


def _moved(name: str, old: Any, new: Any) -> Text:
    if old == new:
        # Only a write-only value differs without showing it.
        return Text(f"    {name}: {said(new)}, another one")
    return Text(f"    {name}: {said(old)} -> {said(new)}")


def said(value: Any) -> str:
    """A setting's value in a few words; write-only ones as they are: set."""
    if value == _MARK:
        return "(set)"
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{name} {said(member)}" for name, member in value.items()) or "-"
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
