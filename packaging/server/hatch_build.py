"""
What goes into wheel-timer-server, and its dependency on the client of the same version.

From a checkout it takes `broker`, `daemon`, `sql` and those parts of wheel_timer that the client's
wheel leaves out: the client's `exclude` list is read, so a file is in exactly one of the two.
From its own sdist it takes everything, because the sdist holds nothing else.
"""

from __future__ import annotations

import email
import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


def checkout_of(here: Path) -> Path | None:
    """The checkout that `here` (packaging/server) lies in; None inside an unpacked sdist."""
    checkout = here.parent.parent
    return checkout if (checkout / "wheel_timer" / "version.py").is_file() else None


def version_of(here: Path) -> str:
    checkout = checkout_of(here)
    if checkout is None:
        return email.message_from_bytes((here / "PKG-INFO").read_bytes())["Version"]
    source = (checkout / "wheel_timer" / "version.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    assert found is not None, "wheel_timer/version.py names no version"
    return found[1]


def files_of(checkout: Path) -> dict[Path, str]:
    """source -> place in the wheel. Directories stand for everything in them."""
    client = tomllib.loads((checkout / "pyproject.toml").read_text())
    server_only = client["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    places = {checkout / name: name for name in ("broker", "daemon", *server_only)}
    places[checkout / "sql"] = "wheel_timer/sql"
    return places


class Version(MetadataHookInterface):
    """Fills in the version and the dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        here = Path(self.root)
        metadata["version"] = version_of(here)
        own = tomllib.loads((here / "pyproject.toml").read_text())
        metadata["dependencies"] = [
            f"wheel-timer=={metadata['version']}",
            *own["tool"]["wheel-timer"]["dependencies"],
        ]


class Contents(BuildHookInterface):  # type: ignore[type-arg]
    """Fills in the files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        here = Path(self.root)
        checkout = checkout_of(here)
        if checkout is not None:
            places = {str(source): place for source, place in files_of(checkout).items()}
        else:
            places = {str(here / name): name for name in ("broker", "daemon", "wheel_timer")}
        build_data["force_include"].update(places)
