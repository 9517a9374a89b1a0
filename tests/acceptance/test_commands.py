"""The client commands of the installed program: what they print, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.acceptance.fix_up import Up, beside, wheel_timer
from tests.fix_endpoint import Answer, Endpoint


def test_submit_get_and_explain_tell_of_the_same_task(up: Up) -> None:
    submitted = wheel_timer(
        *("submit", "--url", up.url, "--in", "1h30m", "--biz-id", "order/1017"),
        *("--data", "-", "--callback", "http://127.0.0.1:1/", "--header", "x-api-key: s3cr3t"),
        stdin='{"order": 1017}\n',
    )
    assert submitted.returncode == 0, submitted.stderr
    task_id = submitted.stdout.strip()
    assert "due in 1 h" in submitted.stderr

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


def test_list_goes_on_over_pages(up: Up) -> None:
    for n in range(3):
        wheel_timer(
            *("submit", "--url", up.url, "--in", "2h", "--biz-id", f"list-{n}"),
            *("--callback", "http://127.0.0.1:1/"),
        )
    of_them = ("list", "--url", up.url, "--biz-type", "default", "--prefix", "list-")
    shown = wheel_timer(*of_them, environ={"COLUMNS": "60"})
    assert shown.returncode == 0, shown.stderr
    # A line a task: what is to be copied from it is whole, however narrow the terminal.
    lines = [line.split() for line in shown.stdout.splitlines()[1:]]
    assert [(len(line[0]), line[2]) for line in lines] == [
        *((36, "list-0"), (36, "list-1"), (36, "list-2"))
    ]
    first = wheel_timer(*of_them, "--json", "--limit", "2")
    assert [json.loads(line)["biz_id"] for line in first.stdout.splitlines()] == [
        *("list-0", "list-1")
    ]
    assert "there are more" in first.stderr
    refused = wheel_timer("list", "--url", up.url, "--prefix", "list-")
    assert (refused.returncode, "needs biz_type" in refused.stderr) == (3, True)


def test_export_writes_a_line_for_each_task_of_a_day(up: Up) -> None:
    at = "2031-05-06T23:59:59.999Z"
    submitted = wheel_timer(
        *("submit", "--url", up.url, "--at", at, "--callback", "http://127.0.0.1:1/"),
    )
    done = wheel_timer("export", "--url", up.url, "--day", "2031-05-06")
    assert (done.returncode, done.stderr.strip()) == (0, "1 task")
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["task_id"] == submitted.stdout.strip()
    other = wheel_timer("export", "--url", up.url, "--day", "2031-05-07", "--json")
    assert (other.returncode, other.stdout, other.stderr) == (0, "", "")
    assert wheel_timer("export", "--url", up.url, "--day", "May").returncode == 2


def test_an_operation_is_begun_watched_and_told(up: Up) -> None:
    for n in range(3):
        wheel_timer(
            *("submit", "--url", up.url, "--in", "2h", "--biz-id", f"ops-{n}"),
            *("--callback", "http://127.0.0.1:1/"),
        )
    of_them = ("--url", up.url, "--biz-type", "default", "--prefix", "ops-")
    dry = wheel_timer("ops", "start", "cancel", *of_them, "--dry-run")
    assert "3 tasks are meant" in dry.stdout, dry.stderr
    unasked = wheel_timer("ops", "start", "cancel", *of_them)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    begun = wheel_timer("ops", "start", "cancel", *of_them, "--yes")
    assert begun.returncode == 0, begun.stderr
    operation_id = begun.stdout.strip()
    deadline = time.monotonic() + 20
    while True:
        shown = wheel_timer("ops", "show", operation_id, "--url", up.url, "--json")
        operation = json.loads(shown.stdout)
        if operation["state"] != "running":
            break
        assert time.monotonic() < deadline
    assert (operation["state"], operation["matched"], operation["done"]) == ("done", 3, 3)
    listed = wheel_timer("ops", "list", "--url", up.url)
    assert operation_id in listed.stdout
    stopped = wheel_timer("ops", "stop", operation_id, "--url", up.url, "--yes")
    assert (stopped.returncode, "done" in stopped.stdout) == (0, True)
    cancelled = wheel_timer("list", *of_them, "--status", "cancelled", "--json")
    assert len(cancelled.stdout.splitlines()) == 3


async def test_wait_exits_1_where_the_task_failed(up: Up, endpoint: Endpoint) -> None:
    endpoint.answer = Answer(status=410)
    command = ("submit", "--url", up.url, "--in", "0", "--callback", endpoint.url, "--wait")
    failed = await beside(*command)
    assert failed.returncode == 1, failed.stderr
    assert "failed" in failed.stdout
    task_id = next(line.split()[1] for line in failed.stdout.splitlines() if "task_id" in line)
    told = wheel_timer("explain", task_id, "--url", up.url)
    assert "answered 410" in told.stdout
    assert "failed for good" in told.stdout

    endpoint.answer = Answer(status=200)
    assert (await beside(*command)).returncode == 0


def test_audits_hold(up: Up) -> None:
    done = wheel_timer("audit", "--url", up.url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost" in done.stdout


def test_the_forecast_counts_what_is_to_come(up: Up) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=30)
    for _ in range(3):
        told = wheel_timer(
            *(
                "submit",
                "--url",
                up.url,
                "--at",
                at.isoformat(),
                "--callback",
                f"{up.url}/demo/echo",
            )
        )
        assert told.returncode == 0, told.stderr
    told = wheel_timer("forecast", "--url", up.url, "--hours", "48", "--biz-type", "default")
    assert told.returncode == 0, told.stderr
    assert f"3 at {at:%H:%M}" in told.stdout
    found = json.loads(wheel_timer("forecast", "--url", up.url, "--hours", "48", "--json").stdout)
    minute = f"{at:%Y-%m-%dT%H:%M}:00.000Z"
    assert [b["tasks"] for b in found["buckets"] if b["start"] == minute] == [3]
    assert wheel_timer("forecast", "--url", up.url, "--hours", "73").returncode == 2


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


def test_completion_prints_a_script_that_completes() -> None:
    for shell in ("bash", "zsh", "fish"):
        done = wheel_timer("completion", shell)
        assert done.returncode == 0, done.stderr
        assert "_WHEEL_TIMER_COMPLETE" in done.stdout
    asked = {
        "_WHEEL_TIMER_COMPLETE": "complete_bash",
        "COMP_WORDS": "wheel-timer su",
        "COMP_CWORD": "1",
    }
    assert wheel_timer(environ=asked).stdout.split() == ["submit"]


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


def test_a_task_is_moved_called_now_cancelled_and_replayed(up: Up) -> None:
    def told(*command: str, ends: int = 0) -> str:
        done = wheel_timer(*command, "--url", up.url)
        assert done.returncode == ends, done.stderr
        return done.stdout if ends == 0 else done.stderr

    name = "default/change/1"
    callback = f"{up.url}/demo/echo"
    told("submit", "--in", "1h", "--biz-id", "change/1", "--callback", callback)
    assert "is pending, due in 2 h" in told("reschedule", name, "--in", "2h1s")
    assert "--yes" in told("cancel", name, ends=2)
    assert "is cancelled" in told("cancel", name, "--yes")
    assert "is cancelled" in told("cancel", name, "--yes")
    assert "/replay" in told("run-now", name, ends=3)
    problem = json.loads(told("run-now", name, "--json", ends=3))
    assert problem["type"] == "/problems/task-settled"
    assert json.loads(told("replay", name, "--json"))["life"] == 2
    assert "is pending" in told("run-now", name, "--yes")
    assert "is cancelled" not in told("get", name)
    assert "no such task" in told("cancel", "default/none", "--yes", ends=1)
    assert "when?" in told("reschedule", name, ends=2)
