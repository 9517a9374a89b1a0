"""
Writes tests/schema.sql, what the migrations add up to: `make schema`.

A review reads the difference there, and a test compares it with a freshly migrated database. Of the
hundred partitions the first stands for all.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from wheel_timer.embedded import DataDirectory, EmbeddedPostgres
from wheel_timer.store.migrate import migrate

FILE = Path(__file__).parent / "schema.sql"


def dump(server: EmbeddedPostgres, url: str) -> str:
    """The schema of a migrated database, without what differs from one dump to the next."""
    command = [
        *(str(server.program("pg_dump")), "--schema-only", "--no-owner", "--no-privileges"),
        *("--exclude-table=timer_task_0[1-9]", "--exclude-table=timer_task_[1-9][0-9]"),
        *("--dbname", url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [
        line
        for line in done.stdout.splitlines()
        if not line.startswith(("--", "SET ", "SELECT pg_catalog.set_config", "\\"))
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="wheel-timer-schema-") as path,
        DataDirectory(Path(path)) as directory,
    ):
        server = EmbeddedPostgres(directory, settings={"fsync": "off"})
        server.start()
        try:
            server.wait_ready(60)
            migrate(server.url, "public", 1)
            FILE.write_text(dump(server, server.url))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
