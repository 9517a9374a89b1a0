"""The client commands of the installed program: what they print, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.fix_up import Up, wheel_timer
from tests.fix_endpoint import Answer, Endpoint

NOWHERE = "http://127.0.0.1:1"


def test_submit_get_and_explain_tell_of_the_same_task(up: Up) -> None:
    submitted = wheel_timer(
        *("submit", "--url", up.url, "--in", "1h30m", "--biz-id", "order/1017"),
        *("--data", "-", "--callback", "http://127.0.0.1:1/", "--header", "x-api-key: s3cr3t"),
        stdin='{"order": 1017}\n',
    )
    assert submitted.returncode == 0, submitted.stderr
    task_id = submitted.stdout.strip()
    assert "due in 1 h 29 min" in submitted.stderr

    shown = wheel_timer("get", task_id, "--url", up.url)
    assert shown.returncode == 0, shown.stderr
    assert "pending" in shown.stdout
    assert "order/1017" in shown.stdout
    assert "s3cr3t" not in shown.stdout

    told = wheel_timer("explain", "default/order/1017", "--url", up.url)
    assert told.returncode == 0, told.stderr
    assert task_id in told.stdout
    assert "its moment has not come" in told.stdout


def test_json_is_one_object(up: Up) -> None:
    submitted = wheel_timer(
        "submit", "--url", up.url, "--in", "1h", "--callback", f"{up.url}/demo/echo", "--json"
    )
    task_id = json.loads(submitted.stdout)["task_id"]
    shown = wheel_timer("get", task_id, "--url", up.url, "--json")
    assert json.loads(shown.stdout)["status"] == "pending"
    told = wheel_timer("explain", task_id, "--url", up.url, "--json")
    assert len(json.loads(told.stdout)["story"]) == 2
    assert [len(one.stdout.splitlines()) for one in (submitted, shown, told)] == [1, 1, 1]


async def test_wait_exits_1_where_the_task_failed(up: Up, endpoint: Endpoint) -> None:
    endpoint.answer = Answer(status=410)
    command = ("submit", "--url", up.url, "--in", "0", "--callback", endpoint.url, "--wait")
    failed = await in_thread(*command)
    assert failed.returncode == 1, failed.stderr
    assert "failed" in failed.stdout
    task_id = next(line.split()[1] for line in failed.stdout.splitlines() if "task_id" in line)
    told = wheel_timer("explain", task_id, "--url", up.url)
    assert "answered 410" in told.stdout
    assert "failed for good" in told.stdout

    endpoint.answer = Answer(status=200)
    assert (await in_thread(*command)).returncode == 0


def test_audits_hold(up: Up) -> None:
    done = wheel_timer("audit", "--url", up.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost" in done.stdout


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
    arguments: tuple[str, ...], code: int, told: str
) -> None:
    done = wheel_timer(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_what_the_server_refuses_is_3_and_what_is_not_there_1(up: Up) -> None:
    refused = wheel_timer("submit", "--url", up.url, "--in", "1h", "--biz-type", "nobody")
    assert refused.returncode == 3
    assert "nobody" in refused.stderr
    missing = wheel_timer("get", "01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d", "--url", up.url)
    assert missing.returncode == 1


def test_with_json_an_error_is_a_problem_on_stderr(up: Up) -> None:
    refused = wheel_timer("submit", "--url", up.url, "--in", "1h", "--biz-type", "nobody", "--json")
    assert json.loads(refused.stderr)["type"].endswith("biz-type-unknown")
    usage = wheel_timer("submit", "--json")
    assert json.loads(usage.stderr)["title"] == "Wrong usage"
    assert refused.stdout == usage.stdout == ""


def test_config_shows_origins_and_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('LOOKAHEAD = 2\nADMIN_KEY = "wtk_secret"\n')
    database = {"WHEEL_TIMER_DATABASE_URL": "postgresql://app:s3cr3t@db/app"}
    shown = wheel_timer("config", "--config", str(file), environ=database)
    assert shown.returncode == 0, shown.stderr
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert str(file) in lines["LOOKAHEAD"]
    assert "environment" in lines["DATABASE_URL"]
    assert "default" in lines["SHARDS"]
    assert "s3cr3t" not in shown.stdout
    assert "wtk_secret" not in shown.stdout
    as_json = wheel_timer("config", "--json")
    assert {json.loads(line)["origin"] for line in as_json.stdout.splitlines()} == {"default"}


def test_an_unknown_setting_stops_from_a_file_and_warns_from_the_environment(
    tmp_path: Path,
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("LOOKAHED = 2\n")
    stopped = wheel_timer("config", "--config", str(file))
    assert stopped.returncode == 2
    assert "LOOKAHEAD" in stopped.stderr
    assert len(stopped.stderr.splitlines()) == 1
    warned = wheel_timer("config", environ={"WHEEL_TIMER_LOOKAHED": "2"})
    assert warned.returncode == 0
    assert "WHEEL_TIMER_LOOKAHEAD" in warned.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_completes(shell: str) -> None:
    done = wheel_timer("completion", shell)
    assert done.returncode == 0, done.stderr
    assert "_WHEEL_TIMER_COMPLETE" in done.stdout


def test_every_command_teaches_by_example() -> None:
    for command in (
        *("up", "demo", "listen", "submit", "get", "explain", "audit", "config", "completion"),
        *("migrate", "broker", "daemon"),
    ):
        done = wheel_timer(command, "--help")
        assert done.returncode == 0, done.stderr
        assert "$ " in done.stdout
        assert f"wheel-timer {command}" in done.stdout


def test_a_client_command_imports_nothing_of_the_server() -> None:
    code = (
        "import sys; sys.argv = ['wheel-timer', '--help']\n"
        "from wheel_timer.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    loaded = set(done.stderr.split())
    server = {"broker", "daemon", "sqlalchemy", "psycopg", "redis", "starlette", "aiohttp"}
    assert not loaded & server
    assert "httpx" not in loaded


def test_without_the_server_installed_up_says_what_to_install(tmp_path: Path) -> None:
    # The client alone, as its wheel holds it: what the server ships is not there.
    missing = tmp_path / "sitecustomize.py"
    missing.write_text(
        "import sys\n"
        "for name in ('wheel_timer.database', 'wheel_timer.store', 'wheel_timer.embedded',\n"
        "             'psycopg', 'sqlalchemy', 'broker', 'daemon'):\n"
        "    sys.modules[name] = None\n"
    )
    environ = {"PYTHONPATH": str(tmp_path)}
    for command in (("up",), ("demo",), ("daemon",), ("migrate",)):
        done = wheel_timer(*command, environ=environ)
        assert done.returncode == 2
        assert "pip install 'wheel-timer[server,embedded]'" in done.stderr
        assert len(done.stderr.splitlines()) == 2


async def in_thread(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, while this loop goes on answering callbacks."""
    import asyncio

    return await asyncio.to_thread(wheel_timer, *arguments)
