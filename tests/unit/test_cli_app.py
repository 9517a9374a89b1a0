"""The command line without a server: usage, help, settings, exit codes."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from wheel_timer.cli import main

NOWHERE = "http://127.0.0.1:1"
COMMANDS = (
    *("up", "demo", "listen", "submit", "get", "explain", "list", "audit", "config", "completion"),
    *("export", "forecast", "migrate", "broker", "daemon"),
)


class Done(NamedTuple):
    """How a command ended."""

    returncode: int | str | None
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run_it(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["wheel-timer", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(ended.value.code, said.out, said.err)

    return run_it


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("submit",), 2, "--in"),
        (("submit", "--in", "soon"), 2, "1h30m"),
        (("submit", "--in", "1h", "--at", "2030-01-01T00:00:00Z"), 2, "not both"),
        (("submit", "--at", "2030-01-01T00:00:00"), 2, "no offset"),
        (("submit", "--in", "0", "--data", "{"), 2, "not JSON"),
        (("submit", "--in", "0", "--method", "PUT"), 2, "--callback"),
        (
            (
                "submit",
                "--sometime",
            ),
            2,
            "--sometime",
        ),
        (("get",), 2, "ID"),
        (("get", "x", "--url", "localhost"), 2, "http://"),
        (("get", "x", "--key-file", "/nowhere"), 2, "/nowhere"),
        (("get", "x", "--url", NOWHERE), 4, "wheel-timer up"),
        (("migrate",), 2, "DATABASE_URL"),
        (("no-such-command",), 2, "no-such-command"),
    ],
)
def test_what_is_wrong_is_told_in_a_line_and_an_exit_code(
    run: Run, arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_an_export_that_breaks_off_is_told_and_4(run: Run) -> None:
    """Its lines so far are written; who pipes them away learns by the exit code."""
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n"

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=[listener])
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = run("export", "--day", "2026-12-24", "--url", url)
        server.join()
    assert (done.returncode, done.stdout) == (4, "{}\n")
    assert "not whole" in done.stderr


def test_config_shows_origins_and_no_secret(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('LOOKAHEAD = 2\nADMIN_KEY = "wtk_secret"\n')
    monkeypatch.setenv("WHEEL_TIMER_DATABASE_URL", "postgresql://app:s3cr3t@db/app")
    shown = run("config", "--config", str(file))
    assert shown.returncode == 0, shown.stderr
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert "file" in lines["LOOKAHEAD"]
    assert "environment" in lines["DATABASE_URL"]
    assert "default" in lines["SHARDS"]
    assert "s3cr3t" not in shown.stdout
    assert "wtk_secret" not in shown.stdout
    rows = [json.loads(line) for line in run("config", "--json").stdout.splitlines()]
    assert {row["origin"] for row in rows} == {"default", "environment"}
    told = run("config", "--json", "--config", str(file)).stdout.splitlines()
    origins = {row["name"]: row["origin"] for row in map(json.loads, told)}
    assert origins["LOOKAHEAD"].endswith(str(file))


def test_an_unknown_setting_stops_from_a_file_and_warns_from_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("LOOKAHED = 2\n")
    stopped = run("config", "--config", str(file))
    assert stopped.returncode == 2
    assert "LOOKAHEAD" in stopped.stderr
    assert len(stopped.stderr.splitlines()) == 1
    monkeypatch.setenv("WHEEL_TIMER_LOOKAHED", "2")
    warned = run("config")
    assert warned.returncode == 0
    assert "WHEEL_TIMER_LOOKAHEAD" in warned.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_example(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0, done.stderr
    assert re.search(rf"\$ .*wheel-timer {command}", done.stdout)


def test_the_overview_names_every_command_on_one_line(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"│ {command} +[A-Z].*[.] +│", done.stdout), command


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    done = run()
    assert done.returncode == 2
    assert "Usage: wheel-timer" in done.stdout + done.stderr


def test_the_version_is_printed(run: Run) -> None:
    assert re.fullmatch(r"wheel-timer \d+\.\d+\.\d+\n", run("--version").stdout)
