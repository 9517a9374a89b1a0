"""`wheel-timer biz`: the configuration centre."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
import typer
from rich.text import Text

from wheel_timer.cli.bizview import applied_view, biz_table, settings_view
from wheel_timer.cli.confirm import Unasked, Yes, confirm
from wheel_timer.cli.declared import read_declared
from wheel_timer.cli.exits import NO, USAGE, Failure
from wheel_timer.cli.moments import parse_duration
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect, read_secret
from wheel_timer.cli.output import err, out, print_json, print_ndjson

# What the server allows a test call, and some.
TEST_S: Final = 40.0

Name = Annotated[str, typer.Argument(metavar="NAME", help="A biz_type.", show_default=False)]

biz = typer.Typer(no_args_is_help=True, help="Configure biz_types, and look after each.")


@biz.command("list")
def list_biz_types(
    url: Url = None, key_file: KeyFile = None, config: Config = None, as_json: AsJson = False
) -> None:
    """
    List all biz_types.

    [bold]Examples[/]

    $ wheel-timer biz list --json | jq -r 'select(.paused) | .biz_type'
    """
    items: list[dict[str, Any]] = []
    with connect(url, key_file, config) as server:
        cursor: str | None = ""
        while cursor is not None:
            page = server.get("/v1/biz", limit=1000, **({"cursor": cursor} if cursor else {}))
            items += page["items"]
            cursor = page["next_cursor"]
    if as_json:
        print_ndjson(items)
    else:
        out.print(biz_table(items))


@biz.command()
def show(
    name: Name,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Show a biz_type's settings; secrets only as set.

    [bold]Examples[/]

    $ wheel-timer biz show orders
    """
    with connect(url, key_file, config) as server:
        found = server.get(_path(name))
    _print(found, as_json)


@biz.command()
def apply(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="TOML or JSON; - reads stdin.", show_default=False)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")
    ] = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Make biz_types, and their schedules, what a file declares.

    All of it or, where anything is wrong, nothing. A setting that the file leaves out gets its
    default, a secret that it leaves out stays. What it does not name is left alone.
    Applying it again changes nothing.

    [bold]Examples[/]

    $ wheel-timer biz apply orders.toml --dry-run

    $ printf '[biz_types.orders]\\ncallback_url = "https://shop.example/timer"\\n\
secret = { env = "ORDERS_SECRET" }\\n' | wheel-timer biz apply -
    """
    declared = read_declared(file)
    body = {
        "biz_types": declared.biz_types,
        "schedules": declared.schedules,
        "dry_run": dry_run,
    }
    with connect(url, key_file, config) as server:
        applied = server.post("/v1/apply", body)
    if as_json:
        print_json(applied)
    else:
        out.print(applied_view(applied))


@biz.command()
def pause(
    name: Name,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Call nothing of a biz_type; submits go on.

    [bold]Examples[/]

    $ wheel-timer biz pause orders
    """
    with connect(url, key_file, config) as server:
        done = server.post(f"{_path(name)}/pause", {})
    _tell(done, f"{name} is paused", as_json)


@biz.command()
def resume(
    name: Name,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Call again what came due in a pause.

    [bold]Examples[/]

    $ wheel-timer biz resume orders
    """
    with connect(url, key_file, config) as server:
        done = server.post(f"{_path(name)}/resume", {})
    _tell(done, f"{name} is called again", as_json)


@biz.command("test")
def call_now(
    name: Name,
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON|-", help="Its body; - reads stdin.")
    ] = None,
    callback: Annotated[
        str | None,
        typer.Option("--callback", metavar="URL", help="Call this, if the biz_type allows it."),
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Make one signed call now, and tell what came of it.

    Ends with 1 where a task would not have been finished by the answer.

    [bold]Examples[/]

    $ wheel-timer biz test orders --data '{"order": 1017}'
    """
    body: dict[str, Any] = {}
    if data is not None:
        body["biz_data"] = _json_of(sys.stdin.buffer.read() if data == "-" else data.encode())
    if callback is not None:
        body["callback"] = {"url": callback}
    with connect(url, key_file, config) as server:
        told = server.post(f"{_path(name)}/test", body, total_s=TEST_S)
    if as_json:
        print_json(told)
    else:
        _print_test(told)
    if told["outcome"] != "finished":
        raise typer.Exit(NO)


@biz.command()
def stats(
    name: Name,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Show how a biz_type goes: the last minute, the next hour, what waits, what is dead.

    [bold]Examples[/]

    $ wheel-timer biz stats orders --json | jq .last_minute.lateness_p99_ms
    """
    with connect(url, key_file, config) as server:
        found = server.get(f"{_path(name)}/stats")
    _print(found, as_json)


@biz.command("rotate-secret")
def rotate_secret(
    name: Name,
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="How long the old one signs on.")
    ] = "1d",
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="The new secret; - reads stdin. Default: one is made.",
            dir_okay=False,
        ),
    ] = None,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Sign with a new secret, and for a grace with the old one too.

    A secret that is made here goes to stdout, once. Asks where the old one would end at once.

    [bold]Examples[/]

    $ wheel-timer biz rotate-secret orders --grace 2h > orders.secret
    """
    try:
        body: dict[str, Any] = {"grace": parse_duration(grace) / 1000}
    except ValueError as error:
        raise Failure(f"--grace: {error}", USAGE) from None
    if secret_file is not None:
        body["secret"] = read_secret(secret_file)
    if body["grace"] == 0:
        confirm(f"End the present secret of {name} at once?", yes)
    with connect(url, key_file, config) as server:
        rotated = server.post(f"{_path(name)}/rotate-secret", body)
    if as_json:
        print_json(rotated)
        return
    if isinstance(rotated["secret"], str):
        sys.stdout.write(rotated["secret"] + "\n")
    until = rotated["previous_until"]
    told = "no older one signs" if until is None else f"the older one signs until {until}"
    err.print(f"{name} signs with the new secret; {told}", style="dim")


@biz.command()
def purge(
    name: Name,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Delete every task of a biz_type, settled or not. The biz_type stays.

    Begins an operation, and prints its id: `wheel-timer ops show ID` tells how far it is.

    [bold]Examples[/]

    $ wheel-timer biz purge orders
    """
    confirm(f"Delete every task of {name} for good?", yes)
    with connect(url, key_file, config) as server:
        begun = server.post(f"{_path(name)}/purge", {})
    _print_begun(begun, as_json)


@biz.command()
def delete(
    name: Name,
    with_tasks: Annotated[bool, typer.Option("--purge", help="Delete its tasks too.")] = False,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Delete a biz_type that nothing waits for; with --purge, whatever waits.

    [bold]Examples[/]

    $ wheel-timer biz delete orders
    """
    and_tasks = " and every task of it, for good" if with_tasks else ""
    confirm(f"Delete the biz_type {name}{and_tasks}?", yes)
    query = {"purge": "true"} if with_tasks else {}
    with connect(url, key_file, config) as server:
        begun = server.delete(_path(name), **query)
    if begun is not None:
        _print_begun(begun, as_json)
    elif as_json:
        print_json({"biz_type": name, "deleted": True})
    else:
        err.print(f"{name} is deleted")


def _print_begun(begun: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(begun)
        return
    out.print(begun["operation_id"])
    err.print("its tasks are being deleted: wheel-timer ops show ID tells how far", style="dim")


def _path(name: str) -> str:
    return f"/v1/biz/{quote(name, safe='')}"


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        out.print(settings_view(found))


def _tell(done: dict[str, Any], told: str, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        err.print(told)


def _json_of(raw: bytes) -> msgspec.Raw:
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise Failure(f"--data is not JSON: {error}", USAGE) from None
    return msgspec.Raw(raw)


def _print_test(told: dict[str, Any]) -> None:
    sent, answer = told["request"], told["answer"]
    out.print(Text(f"> {sent['method']} {sent['url']}  ({told['address'] or 'no address'})"))
    for header in sent["headers"]:
        value = header["value"] if isinstance(header["value"], str) else "(set)"
        out.print(Text(f"> {header['name']}: {value}", style="dim"))
    if answer is None:
        out.print(Text(f"! {told['error']} ({told['error_class']})", style="red"))
    else:
        out.print(Text(f"< {answer['status']}"))
        for header in answer["headers"]:
            value = header["value"] if isinstance(header["value"], str) else "(set)"
            out.print(Text(f"< {header['name']}: {value}", style="dim"))
        if answer["excerpt"]:
            out.print(Text(answer["excerpt"]))
    good = told["outcome"] == "finished"
    words = f"{told['outcome']} after {told['duration_ms']} ms"
    out.print(Text(words, style="green" if good else "yellow"))
