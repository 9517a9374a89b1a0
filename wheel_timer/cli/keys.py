"""`wheel-timer keys`: API keys made, listed, rotated, revoked. A key goes to stdout, once."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table

from wheel_timer.cli.confirm import Yes, confirm
from wheel_timer.cli.exits import USAGE, Failure
from wheel_timer.cli.moments import parse_duration, parse_moment
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import err, out, print_json, print_ndjson

KeyId = Annotated[
    str, typer.Argument(metavar="ID", help="The part between the underscores.", show_default=False)
]

keys = typer.Typer(no_args_is_help=True, help="Make, list, rotate and revoke API keys.")


@keys.command("list")
def list_keys(
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    List all keys, without their secrets.

    [bold]Examples[/]

    $ wheel-timer keys list --key-file admin.key
    """
    items: list[dict[str, Any]] = []
    with connect(url, key_file, config) as server:
        cursor: str | None = ""
        while cursor is not None:
            page = server.get("/v1/keys", limit=1000, **({"cursor": cursor} if cursor else {}))
            items += page["items"]
            cursor = page["next_cursor"]
    if as_json:
        print_ndjson(items)
        return
    table = Table("id", "name", "status", "scopes", "biz_types", "made", "expires", box=None)
    for key in items:
        times = [(key[field] or "never")[:19] for field in ("create_time", "expires")]
        lists = [", ".join(key[field]) for field in ("scopes", "biz_types")]
        table.add_row(key["key_id"], key["name"], key["status"], *lists, *times)
    out.print(table)


@keys.command()
def create(
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Who uses it, and where.")],
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="submit, read, operate, configure or admin; repeatable.",
        ),
    ],
    biz_type: Annotated[
        list[str] | None,
        typer.Option(
            "--biz-type",
            metavar="PATTERN",
            help="A biz_type, or the beginning of some and *; repeatable. Default: all.",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="RFC 3339 with its offset."),
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Make a key.

    The key goes to stdout, and nothing can show it again; all else goes to stderr.

    [bold]Examples[/]

    $ wheel-timer keys create --name shop --scope submit --biz-type 'orders.*' > shop.key
    """
    body: dict[str, Any] = {"name": name, "scopes": scope}
    if biz_type:
        body["biz_types"] = biz_type
    if expires is not None:
        try:
            body["expires"] = parse_moment(expires)
        except ValueError as error:
            raise Failure(f"--expires: {error}", USAGE) from None
    with connect(url, key_file, config) as server:
        made = server.post("/v1/keys", body)
    _print_made(made, as_json)


@keys.command()
def rotate(
    key_id: KeyId,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="DURATION", help="How long the old secret holds on."),
    ] = "1d",
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Give a key a new secret; the old one holds on for a while.

    [bold]Examples[/]

    $ wheel-timer keys rotate 5f0c9e6a1b2d3c4f --overlap 2h > shop.key
    """
    try:
        overlap_s = parse_duration(overlap) / 1_000
    except ValueError as error:
        raise Failure(f"--overlap: {error}", USAGE) from None
    with connect(url, key_file, config) as server:
        made = server.post(f"/v1/keys/{quote(key_id, safe='')}/rotate", {"overlap": overlap_s})
    _print_made(made, as_json)


@keys.command()
def revoke(
    key_id: KeyId,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Revoke a key for good.

    [bold]Examples[/]

    $ wheel-timer keys revoke 5f0c9e6a1b2d3c4f
    """
    confirm(f"Revoke the key {key_id} for good?", yes)
    with connect(url, key_file, config) as server:
        revoked = server.delete(f"/v1/keys/{quote(key_id, safe='')}")
    if as_json:
        print_json(revoked)
    else:
        err.print(f"revoked {revoked['key_id']} ({revoked['name']})")


def _print_made(made: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    sys.stdout.write(made["key"] + "\n")
    until = made["overlap_until"]
    if until is not None:
        err.print(f"the secret before holds until {until}", style="dim")
    err.print(f"key {made['key_id']} ({made['name']}): keep it, it is not shown again", style="dim")
