"""examples/: they run, as a reader runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_the_examples_run() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "unpaid order",
        "refund poll",
        "debit after notice",
    ]
