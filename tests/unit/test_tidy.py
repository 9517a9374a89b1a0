"""Style as a test: what the linters do not look at."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from wheel_timer import metrics
from wheel_timer.queries import queries

CHECKOUT = Path(__file__).parents[2]
LINES_MAX = 450  # half of it is what a file of one idea has; more than this is two of them


@cache
def tracked(*suffixes: str) -> list[Path]:
    """The files of the checkout that are ours: tracked, or new and not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (CHECKOUT / line for line in listing.stdout.splitlines())
    return sorted(p for p in paths if p.suffix in suffixes and p.is_file())


@cache
def strings_of_the_code() -> frozenset[str]:
    """Every string literal of what ships."""
    found = set()
    for path in tracked(".py"):
        if path.relative_to(CHECKOUT).parts[0] in {"wheel_timer", "broker", "daemon"}:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(found)


def blocks(path: Path) -> list[str]:
    """The `-- name:` blocks of a file of queries."""
    return ["-- name:" + part for part in path.read_text().split("-- name:")[1:]]


def test_nothing_is_left_to_be_done_later() -> None:
    # In halves, so that this file does not find itself.
    words = "|".join(a + b for a, b in (("TO", "DO"), ("FIX", "ME"), ("X", "XX"), ("HA", "CK")))
    marks = re.compile(rf"\b({words})\b")
    left = [
        f"{path.relative_to(CHECKOUT)}:{number}"
        for path in tracked(".py", ".sql", ".lua", ".md", ".toml", ".html", ".js", ".css")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert left == []


def test_no_file_holds_two_ideas() -> None:
    long = [
        path.relative_to(CHECKOUT).as_posix()
        for path in tracked(".py")
        if path.read_text().count("\n") > LINES_MAX
    ]
    assert long == []


def test_every_query_is_used() -> None:
    assert sorted(set(queries()) - strings_of_the_code()) == []


def test_every_script_is_used() -> None:
    scripts = {path.stem for path in tracked(".lua")}
    assert sorted(scripts - strings_of_the_code()) == []


def test_every_query_says_what_it_takes_and_gives() -> None:
    bare = [
        block.splitlines()[0]
        for path in tracked(".sql")
        if path.parent.name == "queries"
        for block in blocks(path)
        if not all(f"\n-- {word}:" in block for word in ("In", "Out", "Locks"))
        or not re.match(r"-- name: \w+\n-- [A-Z\"].*\n", block)
    ]
    assert bare == []


def test_every_script_says_what_it_takes_and_gives() -> None:
    bare = [
        path.name
        for path in tracked(".lua")
        if not all(f"\n-- {word}:" in path.read_text() for word in ("KEYS", "ARGV", "Output"))
    ]
    assert bare == []


def test_every_migration_says_what_it_breaks_and_locks() -> None:
    for path in tracked(".sql"):
        if path.parent.name == "migrations":
            head = path.read_text().splitlines()
            assert head[0] in {"-- breaking: no", "-- breaking: yes"}, path.name
            assert head[1].startswith("-- Locks: "), path.name


def test_every_audit_says_what_a_row_means() -> None:
    for path in tracked(".sql"):
        if path.parent.name == "audit":
            assert path.read_text().startswith("-- "), path.name


def test_sql_is_a_hundred_columns_wide_and_ends_with_a_newline() -> None:
    for path in tracked(".sql", ".lua"):
        if path.name == "schema.sql":
            continue  # a dump
        text = path.read_text()
        assert text.endswith("\n"), path
        for number, line in enumerate(text.splitlines(), 1):
            assert len(line) <= 100, f"{path}:{number}"
            assert line == line.rstrip(), f"{path}:{number}"
            assert "\t" not in line, f"{path}:{number}"


def test_every_metric_is_recorded_somewhere() -> None:
    recorders = {
        name
        for name, value in vars(metrics).items()
        if callable(value) and getattr(value, "__module__", "") == metrics.__name__
        if not name.startswith("_") and not isinstance(value, type)
    }
    used = {
        node.attr
        for path in tracked(".py")
        if path.relative_to(CHECKOUT).parts[0] in {"wheel_timer", "broker", "daemon"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "metrics"
    }
    assert sorted(recorders - used) == []


@pytest.mark.parametrize("path", tracked(".md"), ids=lambda path: path.name)
def test_relative_links_of_the_docs_resolve(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as hosting sites make them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_claims_the_python_that_the_package_asks_for() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    server = tomllib.loads((CHECKOUT / "packaging/server/pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert server["requires-python"] == project["requires-python"]
    claims = re.findall(r"Python (3\.\d+)", (CHECKOUT / "README.md").read_text())
    assert set(claims) == {oldest}


def test_every_make_target_that_the_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for path in tracked(".md")
        for target in re.findall(r"(?:`|^|\n)make ([a-z-]+)", path.read_text())
    }
    assert sorted(named - targets) == []


def test_the_changelog_knows_the_version() -> None:
    from wheel_timer import __version__

    assert f"## [{__version__}]" in (CHECKOUT / "CHANGELOG.md").read_text()


def test_the_lock_pins_everything_and_names_no_place() -> None:
    lines = (CHECKOUT / "requirements.lock").read_text().splitlines()
    loose = [
        line
        for line in lines
        if not re.fullmatch(r"[a-z0-9.-]+==[0-9a-z.]+( ; [a-z_ ='<>!.0-9()A-Z]+)?", line)
    ]
    assert loose == []


def test_what_the_projects_require_is_what_the_lock_pins() -> None:
    client = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    server = tomllib.loads((CHECKOUT / "packaging/server/pyproject.toml").read_text())
    required = [
        *client["project"]["dependencies"],
        *client["dependency-groups"]["dev"],
        *server["tool"]["wheel-timer"]["dependencies"],
        *server["project"]["optional-dependencies"]["embedded"],
    ]
    names = {re.split(r"[<>=\[; ]", line)[0].lower() for line in required}
    lock = (CHECKOUT / "requirements.lock").read_text()
    pinned = {line.split("==")[0] for line in lock.splitlines()}
    assert sorted(names - pinned) == []


def test_every_module_of_wheel_timer_is_the_clients_or_the_servers() -> None:
    """One that is in neither list ships in the client without anybody having looked."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]
    targets = project["hatch"]["build"]["targets"]
    servers = {name.removesuffix(".py") for name in targets["wheel"]["exclude"]}
    assert targets["sdist"]["exclude"] == targets["wheel"]["exclude"]
    (contract,) = (
        contract
        for contract in project["importlinter"]["contracts"]
        if contract["name"] == "What ships in the client needs nothing of the server"
    )
    assert servers - {"wheel_timer/lua"} <= {
        name.replace(".", "/") for name in contract["forbidden_modules"]
    }
    clients = {name.replace(".", "/") for name in contract["source_modules"]}
    modules = {
        path.relative_to(CHECKOUT).with_suffix("").as_posix()
        for path in tracked(".py")
        if path.relative_to(CHECKOUT).parts[0] == "wheel_timer"
    }
    unknown = {
        module
        for module in modules - clients - servers - {"wheel_timer/__init__"}
        if not module.startswith("wheel_timer/cli/")
        if not any(module.startswith(f"{package}/") for package in clients | servers)
    }
    assert unknown == set()


def test_the_two_distributions_have_one_licence() -> None:
    own = (CHECKOUT / "LICENSE").read_text()
    assert (CHECKOUT / "packaging" / "server" / "LICENSE").read_text() == own
