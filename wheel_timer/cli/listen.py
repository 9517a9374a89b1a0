"""`listen`: an endpoint for any shell, that shows what arrives."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from wheel_timer.cli.endpoint import Endpoint, Handler
from wheel_timer.cli.exits import UNREACHABLE, USAGE, Failure
from wheel_timer.cli.moments import parse_duration
from wheel_timer.cli.options import AsJson, read_secret
from wheel_timer.cli.output import err
from wheel_timer.echo import GOOD, Arrival, as_json, as_text
from wheel_timer.signing import key_of, verify


def listen(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="The port; 0 takes a free one.")
    ] = 9000,
    status: Annotated[
        int, typer.Option("--status", min=200, max=599, help="Answer with this.")
    ] = 200,
    delay: Annotated[
        str, typer.Option("--delay", metavar="DURATION", help="Wait this long before answering.")
    ] = "0",
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="SECRET",
            help="The biz_type's secret: check signatures. Repeat it while it rotates. "
            "Seen by whoever lists this machine's processes.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="The same from a file, a line each; - reads stdin.",
            dir_okay=False,
        ),
    ] = None,
    json_lines: AsJson = False,
) -> None:
    """
    Receive callbacks and show them.

    Arrival, lateness, headers, body, and what the signature is worth. Answers 200 at once unless
    told otherwise, so that retries and timeouts can be seen.

    [bold]Examples[/]

    $ wheel-timer listen

    $ wheel-timer listen --port 9001 --status 503

    $ wheel-timer listen --delay 15s

    $ wheel-timer listen --secret-file orders.secret
    """
    try:
        delay_s = parse_duration(delay) / 1_000
    except ValueError as error:
        raise Failure(f"--delay: {error}", USAGE) from None
    keys = [_key("--secret", text) for text in secret or ()]
    if secret_file is not None:
        keys += _read_keys(secret_file)

    def show(arrival: Arrival) -> tuple[int, float]:
        signature = _judge(arrival, keys) if keys else ""
        text = (
            as_json(arrival, signature=signature)
            if json_lines
            else as_text(arrival, signature=signature, color=sys.stdout.isatty())
        )
        sys.stdout.write(text)
        sys.stdout.flush()
        return status, delay_s

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(show, host, port))


async def _serve(show: Handler, host: str, port: int) -> None:
    endpoint = Endpoint(show)
    try:
        bound = await endpoint.start(host, port)
    except OSError as error:
        raise Failure(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}",
            UNREACHABLE,
            hint="another port: --port 0 takes a free one",
        ) from None
    err.print(f"listening on [bold]http://{host}:{bound}[/]  (Ctrl-C stops)")
    await asyncio.get_running_loop().create_future()


def _judge(arrival: Arrival, keys: Sequence[bytes]) -> str:
    """A word on the callback's signature."""
    headers = arrival.headers
    if "webhook-signature" not in headers:
        return "not signed"
    wrong = verify(
        keys,
        headers.get("webhook-id", ""),
        headers.get("webhook-timestamp", ""),
        headers["webhook-signature"],
        arrival.body,
        time.time(),
    )
    return wrong or GOOD


def _read_keys(secret_file: Path) -> list[bytes]:
    keys = [_key(str(secret_file), line) for line in read_secret(secret_file).split()]
    if not keys:
        raise Failure(f"{secret_file} holds no secret", USAGE)
    return keys


def _key(source: str, secret: str) -> bytes:
    try:
        return key_of(secret)
    except ValueError:
        raise Failure(f"{source}: a secret is whsec_ and base64", USAGE) from None
