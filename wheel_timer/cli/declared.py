"""
The file of `biz apply`: biz_types and their schedules in TOML or JSON, secrets by reference.

    [biz_types.orders]
    callback_url = "https://shop.example/timer"
    rate_limit = 50
    secret = { env = "ORDERS_SECRET" }                  # or { file = "orders.secret" }
    callback_headers = { authorization = { env = "ORDERS_TOKEN" }, x-shop = "7" }

    [biz_types.orders.schedules.report]
    cron = "0 9 * * MON"
    timezone = "Asia/Shanghai"

A reference stands where a write-only value does, a file's name is relative to the file that it
stands in. `{ set = true }` keeps what is stored, `{ set = false }` removes it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from wheel_timer.cli.exits import USAGE, Failure

_SECTION: Final = "biz_types"
_SCHEDULES: Final = "schedules"


class Declared(NamedTuple):
    """
    What a PUT of each biz_type says, by its name; of each schedule, by biz_type and name. A
    biz_type of which only schedules are declared is not among the first.
    """

    biz_types: dict[str, Any]
    schedules: dict[str, dict[str, Any]]


def read_declared(name: str, environment: Mapping[str, str] = os.environ) -> Declared:
    """
    What the file declares, with every reference resolved. name: a path, or -.

    Raises Failure (usage) for whatever is wrong with the file itself, before anything is sent.
    """
    text, directory = _text(name)
    parsed = _parsed(name, text)
    if not isinstance(parsed, dict):
        raise Failure(f"{name}: a table [{_SECTION}.NAME] is missing", USAGE)
    for section in parsed:
        if section == _SCHEDULES:
            detail = f"a schedule belongs to its biz_type: {_SECTION}.NAME.{_SCHEDULES}.NAME"
            raise Failure(f"{name}: {detail}", USAGE)
        if section != _SECTION:
            raise Failure(f"{name}: unknown section {section!r}; only {_SECTION}.NAME", USAGE)
    declared = parsed.get(_SECTION, {})
    if not isinstance(declared, dict):
        raise Failure(f"{name}: {_SECTION} is not a table of biz_types", USAGE)
    found = Declared({}, {})
    for biz_type, settings in declared.items():
        where = f"{name}: {_SECTION}.{biz_type}"
        if isinstance(settings, dict):
            settings = dict(settings)
            schedules = settings.pop(_SCHEDULES, None)
            if schedules is not None:
                found.schedules[biz_type] = _schedules(
                    schedules, f"{where}.{_SCHEDULES}", directory, environment
                )
                if not settings:
                    continue
            settings = _resolved(settings, where, directory, environment)
        _check_sendable(settings, where)
        found.biz_types[biz_type] = settings
    return found


def _schedules(
    declared: Any, where: str, directory: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The schedules of a biz_type by their names, references replaced, times as texts."""
    if not isinstance(declared, dict):
        raise Failure(f"{where}: not a table of schedules", USAGE)
    schedules: dict[str, Any] = {}
    for name, given in declared.items():
        at = f"{where}.{name}"
        if isinstance(given, dict):
            given = {member: _moment(value) for member, value in given.items()}
            callback = given.get("callback")
            if isinstance(callback, dict) and isinstance(callback.get("headers"), dict):
                resolved = _resolved(
                    {"callback_headers": callback["headers"]}, at, directory, environment
                )
                given["callback"] = callback | {"headers": resolved["callback_headers"]}
        _check_sendable(given, at)
        schedules[name] = given
    return schedules


def _moment(value: Any) -> Any:
    """TOML has times of its own; one without an offset is refused as any other of its kind."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.isoformat()
    return value


def _text(name: str) -> tuple[str, Path]:
    try:
        if name == "-":
            return sys.stdin.buffer.read().decode(), Path()
        path = Path(name)
        return path.read_bytes().decode(), path.parent
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}", USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"{name}: not UTF-8", USAGE) from None


def _parsed(name: str, text: str) -> Any:
    """JSON where the file says so by its name or its first character, else TOML."""
    try:
        if name.endswith(".json") or text.lstrip().startswith("{"):
            return json.loads(text, object_pairs_hook=_without_twins)
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # A parser's complaint names line and column, never the line itself.
        raise Failure(f"{name}: {error}", USAGE) from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """TOML refuses a name that is given twice; so does this."""
    members = dict(pairs)
    if len(members) < len(pairs):
        twin = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise ValueError(f"{twin!r} is given twice")
    return members


def _resolved(
    settings: dict[str, Any], where: str, directory: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The settings with the references of secret and callback_headers replaced."""

    def value_of(value: Any, at: str) -> Any:
        if not (isinstance(value, dict) and value.keys() & {"env", "file"}):
            return value
        if len(value) != 1 or not all(isinstance(target, str) for target in value.values()):
            raise Failure(f"{at}: {{ env = NAME }} or {{ file = PATH }}", USAGE)
        ((kind, target),) = value.items()
        if kind == "env":
            found = environment.get(target)
            if not found:
                raise Failure(f"{at}: the environment has no {target}", USAGE)
            return found
        try:
            found = (directory / target).read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise Failure(f"{at}: {target}: {reason}", USAGE) from None
        if not found:
            raise Failure(f"{at}: {target} is empty", USAGE)
        return found

    resolved = dict(settings)
    if "secret" in resolved:
        resolved["secret"] = value_of(resolved["secret"], f"{where}.secret")
    headers = resolved.get("callback_headers")
    if isinstance(headers, dict):
        resolved["callback_headers"] = {
            header: value_of(value, f"{where}.callback_headers.{header}")
            for header, value in headers.items()
        }
    return resolved


def _check_sendable(value: Any, where: str) -> None:
    """Raises Failure for what TOML knows and JSON does not: it would arrive as something else."""
    if isinstance(value, dict):
        for name, member in value.items():
            _check_sendable(member, f"{where}.{name}")
    elif isinstance(value, list):
        for place, member in enumerate(value):
            _check_sendable(member, f"{where}[{place}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise Failure(f"{where}: not a finite number", USAGE)
    elif not (value is None or isinstance(value, str | int | float)):
        raise Failure(f"{where}: a {type(value).__name__} has no place here", USAGE)
