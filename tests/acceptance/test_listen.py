"""`wheel-timer listen`: shows callbacks, checks their signatures."""

from __future__ import annotations

import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.acceptance.fix_up import PROGRAM, wheel_timer
from wheel_timer.signing import key_of, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="


@contextmanager
def listening(*arguments: str) -> Iterator[tuple[str, IO[str]]]:
    """Its URL, and what it prints."""
    process = subprocess.Popen(
        [str(PROGRAM), "listen", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found is not None
        yield found[0], process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        process.stdout.close()
        process.stderr.close()


def call(url: str, body: bytes, headers: dict[str, str]) -> int:
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("body", "verdict"),
    [(b'{"a": 1}', "signature good"), (b'{"a": 2}', "no signature matches")],
)
def test_a_signature_is_checked(tmp_path: Path, body: bytes, verdict: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    now_s = int(time.time())
    headers = {
        "webhook-id": "m1",
        "webhook-timestamp": str(now_s),
        "webhook-signature": sign([key_of(SECRET)], "m1", now_s, b'{"a": 1}'),
    }
    for option in (("--secret-file", str(secret)), ("--secret", OLD_SECRET, "--secret", SECRET)):
        with listening(*option) as (url, said):
            assert call(url, body, headers) == 200
            assert said.readline().rstrip().endswith(verdict)


def test_the_answer_is_as_asked_for() -> None:
    with listening("--status", "503", "--json") as (url, said):
        assert call(url, b"", {}) == 503
        assert '"method":"POST"' in said.readline()


def test_a_taken_port_is_one_line() -> None:
    with listening() as (url, _):
        done = wheel_timer("listen", "--port", url.rpartition(":")[2])
    assert done.returncode == 4
    assert "address already in use" in done.stderr
