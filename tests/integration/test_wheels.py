"""The two distributions: what is in each, and that together they run away from the checkout."""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from wheel_timer import __version__

CHECKOUT = Path(__file__).parents[2]


class Wheel(NamedTuple):
    """files: without the directory of metadata."""

    path: Path
    files: frozenset[str]
    metadata: email.message.Message


class Wheels(NamedTuple):
    client: Wheel
    server: Wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Both, built as they are published: the checkout makes an sdist, the sdist the wheel."""
    out = tmp_path_factory.mktemp("wheels")
    for project in (CHECKOUT, CHECKOUT / "packaging" / "server"):
        build = (sys.executable, "-m", "build", "--no-isolation")
        done = subprocess.run(
            [*build, "--outdir", str(out), str(project)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return Wheels(_read(out, "wheel_timer-"), _read(out, "wheel_timer_server-"))


def _read(directory: Path, prefix: str) -> Wheel:
    (path,) = directory.glob(f"{prefix}*.whl")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        parsed = email.message_from_bytes(archive.read(metadata))
    return Wheel(path, frozenset(n for n in names if ".dist-info/" not in n), parsed)


def test_no_file_is_in_both(wheels: Wheels) -> None:
    assert wheels.client.files & wheels.server.files == set()


def test_the_client_brings_one_package_and_nothing_of_the_server(wheels: Wheels) -> None:
    assert {name.split("/")[0] for name in wheels.client.files} == {"wheel_timer"}
    assert not [name for name in wheels.client.files if name.endswith((".sql", ".lua"))]
    assert {"wheel_timer/settings.toml", "wheel_timer/py.typed"} <= wheels.client.files


def test_together_they_are_the_whole_of_the_checkout(wheels: Wheels) -> None:
    tracked = {
        path.relative_to(CHECKOUT).as_posix()
        for package in ("wheel_timer", "broker", "daemon", "sql")
        for path in (CHECKOUT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name.replace("wheel_timer/sql/", "sql/") for name in wheels.client.files}
    packed |= {name.replace("wheel_timer/sql/", "sql/") for name in wheels.server.files}
    assert packed == tracked


def test_both_are_of_one_version_and_ask_for_each_other_at_it(wheels: Wheels) -> None:
    client, server = wheels.client.metadata, wheels.server.metadata
    assert client["Version"] == server["Version"] == __version__
    wanted = server.get_all("Requires-Dist") or []
    assert f"wheel-timer=={__version__}" in wanted
    extras = client.get_all("Requires-Dist") or []
    assert f"wheel-timer-server=={__version__}; extra == 'server'" in extras
    assert f"wheel-timer-server[embedded]=={__version__}; extra == 'embedded'" in extras


def test_the_client_needs_neither_a_database_nor_a_web_server(wheels: Wheels) -> None:
    required = wheels.client.metadata.get_all("Requires-Dist") or []
    names = {re.split(r"[<>=\[]", line)[0] for line in required if "extra ==" not in line}
    assert names == {"httpx", "msgspec", "rich", "tenacity", "typer"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with our dependencies, and not the checkout, on its path."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = root / "lib" / version / "site-packages"
    # A .pth file within a directory that is added by a .pth file is not read: that of the
    # checkout's own editable installation stays out.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return root


def _install(environment: Path, *wheels: Wheel) -> None:
    pip = (sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"))
    options = ("install", "--quiet", "--no-index", "--no-deps", "--force-reinstall")
    subprocess.run([*pip, *options, *(str(wheel.path) for wheel in wheels)], check=True)


def test_the_client_alone_runs_and_says_what_the_server_needs(
    environment: Path, wheels: Wheels, tmp_path: Path
) -> None:
    _install(environment, wheels.client)
    python = environment / "bin" / "python"
    looking = (
        "import importlib.util as u; print([n for n in ('broker', 'daemon') if u.find_spec(n)])"
    )
    found = subprocess.run([python, "-c", looking], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == "[]\n"
    program = environment / "bin" / "wheel-timer"
    help_text = subprocess.run([program, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert help_text.returncode == 0, help_text.stderr
    up = subprocess.run([program, "up"], cwd=tmp_path, capture_output=True, text=True)
    assert up.returncode == 2
    assert "pip install 'wheel-timer[server,embedded]'" in up.stderr
    assert "Traceback" not in up.stderr


def test_both_run_a_demo_away_from_the_checkout_and_its_audits_hold(
    environment: Path, wheels: Wheels, tmp_path: Path
) -> None:
    _install(environment, *wheels)
    program = environment / "bin" / "wheel-timer"
    demo = subprocess.run(
        [program, "demo", "--tasks", "200", "--seconds", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    for word in ("p50", "p99.9", "early", "duplicates", "lost", "misplaced"):
        assert re.search(rf"\b{word}\b", demo.stdout), word
