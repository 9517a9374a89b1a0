"""`top`: the wheel at a glance, in a terminal."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from wheel_timer.cli.exits import UNREACHABLE, Failure
from wheel_timer.cli.keyboard import Keyboard
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import print_failure, print_json
from wheel_timer.cli.screen import Screen, Sort
from wheel_timer.cli.topview import top_view
from wheel_timer.cli.watch import Picture, Watch, Watcher

# Between the two looks of --once: rates need some time to be of.
ONCE_S: Final = 1.0
# Nothing else wakes the screen then: it keeps its clock, and what is late grows.
REDRAW_S: Final = 60.0


def top(
    interval_s: Annotated[
        float,
        typer.Option("--interval", min=0.2, max=3600, metavar="S", help="Look this often."),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="One picture, after a second.")] = False,
    sort: Annotated[Sort, typer.Option("--sort", help="The order of the lanes.")] = Sort.LATE,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Watch the wheel: its hands, rates, lateness and lanes.

    Keys: q quits, s sorts the lanes by something else, p pauses, up and down go through the lanes.
    Without a terminal, a picture after the other is printed. Rates and lateness are those of the
    machine that answers at the URL. Two requests for each picture.

    [bold]Examples[/]

    $ wheel-timer top

    $ wheel-timer top --once --json | jq '.wheel.lanes[] | select(.breaker == "open") | .biz_type'
    """
    # Never closed: a thread may be in the middle of a request when we leave.
    watch = Watch(connect(url, key_file, config))
    console = Console(highlight=False)
    if once:
        _print_once(watch, min(interval_s, ONCE_S), console, sort, as_json)
    elif as_json or not _is_screen(console):
        _print_on_and_on(watch, interval_s, console, sort, as_json)
    else:
        _Show(watch, console, Screen(0, sort=sort, interval_s=interval_s, keys=True)).run()


def _is_screen(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal and sys.stdin.isatty()


def _print_once(watch: Watch, seconds: float, console: Console, sort: Sort, as_json: bool) -> None:
    watch.look()
    time.sleep(seconds)
    _print(watch.look(), watch.url, console, sort, as_json)


def _print_on_and_on(
    watch: Watch, interval_s: float, console: Console, sort: Sort, as_json: bool
) -> None:
    is_first = True
    while True:
        began_s = time.monotonic()
        try:
            _print(watch.look(), watch.url, console, sort, as_json)
        except Failure as failure:
            if is_first and failure.exit_code != UNREACHABLE:
                raise
            print_failure(failure, as_json=as_json)
        is_first = False
        sys.stdout.flush()
        time.sleep(max(0.0, interval_s - (time.monotonic() - began_s)))


def _print(picture: Picture, url: str, console: Console, sort: Sort, as_json: bool) -> None:
    if as_json:
        print_json(picture.as_json(url))
        return
    console.print(top_view(picture, url, Screen(console.width, sort=sort)))
    console.print()


class _Show:
    """The whole screen, until somebody quits."""

    def __init__(self, watch: Watch, console: Console, screen: Screen) -> None:
        self._url = watch.url
        self._console = console
        self._screen = screen
        self._kept: Picture | None = None
        self._keyboard = Keyboard()
        self._watcher = Watcher(watch, screen.interval_s, self._keyboard.wake)

    def run(self) -> None:
        """
        Until q is pressed. Raises Failure where the server refuses the first look, for a key does
        not get better; KeyboardInterrupt.
        """
        live = Live(console=self._console, screen=True, auto_refresh=False)
        with self._keyboard as keyboard, live:
            self._watcher.start()
            while True:
                failure = self._watcher.failure
                if failure and failure.exit_code != UNREACHABLE and not self._watcher.picture:
                    raise failure
                live.update(self._view(), refresh=True)
                for key in keyboard.wait(REDRAW_S):
                    if key in ("q", "Q"):
                        return
                    lanes = len(self._kept.wheel["lanes"]) if self._kept else 0
                    self._screen = self._screen.pressed(key, lanes)
                if keyboard.is_suspended:
                    live.stop()
                    keyboard.suspend()
                    live.start()

    def _view(self) -> RenderableType:
        """In a pause the picture stays, and only what is said beside it changes."""
        if self._kept is None or not self._screen.is_paused:
            self._kept = self._watcher.picture
        failure = self._watcher.failure
        size = self._console.size
        screen = self._screen._replace(
            columns=size.width,
            lines=size.height,
            failure=None if failure is None else str(failure),
            failed_since=self._watcher.failed_since,
        )
        return top_view(self._kept, self._url, screen)
