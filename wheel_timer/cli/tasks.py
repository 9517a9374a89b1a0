"""The client commands on tasks: submit, get, explain."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.text import Text

from wheel_timer.cli.exits import NO, USAGE, Failure
from wheel_timer.cli.moments import clock_time, in_words, parse_duration, parse_moment
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import err, out, print_json
from wheel_timer.cli.story import explain as tell
from wheel_timer.cli.taskview import task_view

if TYPE_CHECKING:
    from wheel_timer.cli.server import Server

WAIT_POLL_S: Final = 0.2
SETTLED: Final = frozenset({"finished", "failed", "cancelled"})

TaskId = Annotated[
    str, typer.Argument(metavar="ID", help="A task_id, or BIZ_TYPE/BIZ_ID.", show_default=False)
]


def submit(
    in_: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help="From now: 45s, 30m, 1h30m, 2d. 0 is now."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="RFC 3339 with its offset, or epoch seconds."),
    ] = None,
    biz_type: Annotated[
        str, typer.Option("--biz-type", metavar="NAME", help="The line of business it belongs to.")
    ] = "default",
    biz_id: Annotated[
        str | None,
        typer.Option("--biz-id", metavar="ID", help="Your own id: submitting it twice sets one."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="JSON|-", help="The callback's body; - reads stdin."),
    ] = None,
    callback: Annotated[
        str | None,
        typer.Option("--callback", metavar="URL", help="Call this, not the biz_type's own URL."),
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="VERB", help="The callback's method.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="'NAME: VALUE'", help="A header of it; repeatable."),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="How long it may take.")
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option("--max-age", metavar="DURATION", help="No attempt starts later than this."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until it is settled; exit 1 if it failed.")
    ] = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Set a timer.

    Prints its task_id. The data travels byte for byte as given; the callback's URL is the
    biz_type's unless --callback names another and the biz_type allows that.

    [bold]Examples[/]

    $ wheel-timer submit --in 30m --biz-type orders --biz-id 1017 --data '{"order": 1017}'

    $ wheel-timer submit --at 2026-12-01T09:00:00+08:00 --callback http://127.0.0.1:9000/hook

    $ jq -c . order.json | wheel-timer submit --in 5s --data - --wait
    """
    task: dict[str, Any] = {"biz_type": biz_type, **when(in_, at)}
    if biz_id is not None:
        task["biz_id"] = biz_id
    if data is not None:
        task["biz_data"] = _json_of(sys.stdin.buffer.read() if data == "-" else data.encode())
    override = _callback(callback, method, header or [], timeout)
    if override:
        task["callback"] = override
    if max_age is not None:
        task["max_age"] = _seconds("--max-age", max_age)
    with connect(url, key_file, config) as server:
        stored = server.post("/v1/tasks", task)
        if wait:
            stored = _wait(server, stored["task_id"], quiet=as_json)
    if as_json:
        print_json(stored)
    elif wait:
        out.print(task_view(stored, datetime.now(UTC)))
    else:
        _print_submitted(stored)
    if wait and stored["status"] == "failed":
        raise typer.Exit(NO)


def get(
    task_id: TaskId,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Show a task: its state, its times, every attempt.

    [bold]Examples[/]

    $ wheel-timer get 01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d

    $ wheel-timer get orders/1017 --json | jq .status
    """
    task = _fetch(task_id, url, key_file, config)
    if as_json:
        print_json(task)
    else:
        out.print(task_view(task, datetime.now(UTC)))


def explain(
    task_id: TaskId,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Tell a task's story in sentences.

    When it was due, what happened, what comes next and why.

    [bold]Examples[/]

    $ wheel-timer explain 01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d

    $ wheel-timer explain orders/1017
    """
    task = _fetch(task_id, url, key_file, config)
    sentences = tell(task, datetime.now(UTC))
    if as_json:
        print_json({"task_id": task["task_id"], "status": task["status"], "story": sentences})
    else:
        for sentence in sentences:
            out.print(Text(sentence), soft_wrap=False)


def task_path(task_id: str) -> str:
    """The path of a task by its task_id, or by BIZ_TYPE/BIZ_ID."""
    from urllib.parse import quote

    biz_type, slash, biz_id = task_id.partition("/")
    if slash:
        return f"/v1/biz/{quote(biz_type, safe='')}/tasks/{quote(biz_id, safe='')}"
    return f"/v1/tasks/{quote(task_id, safe='')}"


def _fetch(task_id: str, url: Url, key_file: KeyFile, config: Config) -> dict[str, Any]:
    with connect(url, key_file, config) as server:
        task: dict[str, Any] = server.get(task_path(task_id))
    return task


def when(in_: str | None, at: str | None) -> dict[str, Any]:
    """`start_time` or `delay` of a request, from --at or --in."""
    if (in_ is None) == (at is None):
        raise Failure(
            "when? Give one of --in and --at" if in_ is None else "--in or --at, not both",
            USAGE,
            hint="for example --in 30m, or --in 0 for now",
        )
    if in_ is not None:
        return {"delay": _seconds("--in", in_)}
    assert at is not None
    try:
        return {"start_time": parse_moment(at)}
    except ValueError as error:
        raise Failure(f"--at: {error}", USAGE) from None


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text) / 1_000
    except ValueError as error:
        raise Failure(f"{option}: {error}", USAGE) from None


def _json_of(data: bytes) -> msgspec.Raw:
    """The bytes as they are: the callback's body is what was given, spaces and all."""
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Failure(
            f"--data is not JSON: {error}", USAGE, hint="""text needs its quotes: '"hello"'"""
        ) from None
    return msgspec.Raw(data.strip())


def _callback(
    url: str | None, method: str | None, headers: list[str], timeout: str | None
) -> dict[str, Any]:
    callback: dict[str, Any] = {}
    if url is not None:
        callback["url"] = url
    if method is not None:
        callback["method"] = method.upper()
    if headers:
        callback["headers"] = dict(_header(text) for text in headers)
    if timeout is not None:
        callback["timeout"] = _seconds("--timeout", timeout)
    if callback and url is None:
        raise Failure("--method, --header and --timeout go with --callback", USAGE)
    return callback


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise Failure(f"--header {text!r}: write 'name: value'", USAGE)
    return name.strip(), value.strip()


def _wait(server: Server, task_id: str, *, quiet: bool) -> dict[str, Any]:
    """Look at the task until it is settled."""
    with err.status("waiting until it is settled (Ctrl-C leaves it running)") as status:
        if quiet or not err.is_terminal:
            status.stop()
        while True:
            task: dict[str, Any] = server.get(f"/v1/tasks/{task_id}")
            if task["status"] in SETTLED:
                return task
            time.sleep(WAIT_POLL_S)


def _print_submitted(stored: dict[str, Any]) -> None:
    """The id alone on stdout, for `id=$(wheel-timer submit ...)`; the rest on stderr."""
    print(stored["task_id"])
    now = datetime.now(UTC)
    start = datetime.fromisoformat(stored["start_time"]).astimezone(UTC)
    left_ms = (start - now).total_seconds() * 1_000
    when = f"in {in_words(left_ms)}, at {clock_time(start, now)}" if left_ms > 0 else "now"
    known = "was there already; it is due" if stored.get("duplicate") else "due"
    err.print(f"{known} {when}", style="dim")
