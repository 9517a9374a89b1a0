"""A small file system for one server's data, that can be filled and freed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from tests.chaos.case import Skipped


class Disk(NamedTuple):
    """Of so many MiB, in memory."""

    server: Literal["postgres", "redis"]
    mib: int

    @contextmanager
    def mounted(self, directory: Path) -> Iterator[None]:
        """Where that server keeps its data within a case's directory. Raises Skipped."""
        place = directory / self.server
        place.mkdir()
        options = f"size={self.mib}m,mode=0700"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skipped(f"a small file system needs root on Linux: {error}") from error
        try:
            yield
        finally:
            # Lazy: it goes once nobody uses it any more.
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(data: Path) -> Path:
    """Take all the room there is; the file to remove for it to be free again."""
    ballast = data / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast
