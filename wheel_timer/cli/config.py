"""`config`: the settings in force, and where each came from."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from wheel_timer.cli.options import AsJson, Config, load_with_origins
from wheel_timer.cli.output import out, print_ndjson


def config(config: Config = None, as_json: AsJson = False) -> None:
    """
    Show every setting and where its value came from.

    Secrets are masked. A flag wins over the environment (WHEEL_TIMER_NAME), that over the file,
    that over the default.

    [bold]Examples[/]

    $ wheel-timer config

    $ WHEEL_TIMER_LOOKAHEAD=2 wheel-timer config --config production.toml
    """
    loaded = load_with_origins(config)
    rows = [(name, value, loaded.origins[name]) for name, value in loaded.settings.shown().items()]
    if as_json:
        print_ndjson(
            {"name": name, "value": value, "origin": origin} for name, value, origin in rows
        )
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("origin", overflow="fold")
    for name, value, origin in rows:
        style = "dim" if origin == "default" else "bold"
        table.add_row(Text(name, style), Text(_text(value), style), Text(origin, style))
    out.print(table)


def _text(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
