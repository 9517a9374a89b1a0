"""The client commands that change a task's fate: cancel, reschedule, run-now, replay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wheel_timer.cli.confirm import Unasked, Yes, confirm
from wheel_timer.cli.moments import clock_time, in_words, parse_rfc3339
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import out, print_json
from wheel_timer.cli.tasks import TaskId, task_path, when

if TYPE_CHECKING:
    from wheel_timer.cli.server import Server


def cancel(
    task_id: TaskId,
    stop: Annotated[
        bool,
        typer.Option("--stop", help="If it is being called at this moment: no attempt after this."),
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="If it has failed: out of the dead letters.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Cancel a task: no callback starts after this.

    Exit code 3 where it is too late: it is being called, or it is settled.

    [bold]Examples[/]

    $ wheel-timer cancel orders/1017 --yes

    $ wheel-timer cancel 01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d --stop --yes
    """
    confirm(f"Cancel the task {task_id}?", yes)
    wanted = {"stop": stop, "discard": discard}
    query = "&".join(f"{name}=true" for name, is_wanted in wanted.items() if is_wanted)
    path = task_path(task_id) + (f"?{query}" if query else "")
    _change(lambda server: server.delete(path), url, key_file, config, as_json)


def reschedule(
    task_id: TaskId,
    in_: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help="From now: 45s, 30m, 1h30m, 2d. 0 is now."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="RFC 3339 with its offset, or epoch seconds."),
    ] = None,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Give a pending task another moment. Its id stays.

    [bold]Examples[/]

    $ wheel-timer reschedule orders/1017 --in 2h

    $ wheel-timer reschedule orders/1017 --at 2026-12-01T09:00:00+08:00
    """
    patch = when(in_, at)
    path = task_path(task_id)
    _change(lambda server: server.patch(path, patch), url, key_file, config, as_json)


def run_now(
    task_id: TaskId,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Call a pending task now, whatever it waits for.

    [bold]Examples[/]

    $ wheel-timer run-now orders/1017
    """
    path = f"{task_path(task_id)}/run"
    _change(lambda server: server.post(path, {}), url, key_file, config, as_json)


def replay(
    task_id: TaskId,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Start a settled task again.

    Its receiver is called once more: a finished or cancelled one gets a new life, with a webhook-id
    of its own; a failed one its whole retry budget.

    [bold]Examples[/]

    $ wheel-timer replay orders/1017
    """
    path = f"{task_path(task_id)}/replay"
    _change(lambda server: server.post(path, {}), url, key_file, config, as_json)


def _change(
    change: Callable[[Server], dict[str, Any]],
    url: str | None,
    key_file: KeyFile,
    config: Config,
    as_json: bool,
) -> None:
    """Make the change and show what the task is now."""
    with connect(url, key_file, config) as server:
        task = change(server)
    if as_json:
        print_json(task)
        return
    now = datetime.now(UTC)
    told = f"{task['task_id']} is {task['status']}"
    if task["status"] == "pending":
        start = parse_rfc3339(task["start_time"])
        left_ms = (start - now).total_seconds() * 1_000
        told += f", due in {in_words(left_ms)}, at {clock_time(start, now)}" if left_ms > 0 else ""
    out.print(told, soft_wrap=True)
