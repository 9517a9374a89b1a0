"""
Every setting of every process, read once at start and passed down.

Order: flag, environment (`WHEEL_TIMER_NAME`), file (`NAME`), default. The defaults, and what each
setting means, stand in settings.toml beside this file. What cannot be right stops the start with
one line: StartRefused.
"""

from __future__ import annotations

import difflib
import logging
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from wheel_timer.errors import StartRefused
from wheel_timer.secrets import MASK, mask_secrets

PREFIX: Final = "WHEEL_TIMER_"
SECRETS: Final = frozenset({"ADMIN_KEY", "KEY"})
SECRET_URLS: Final = frozenset(
    {"DATABASE_URL", "DATABASE_DIRECT_URL", "REDIS_URL", "CALLBACK_PROXY"}
)

# Kubernetes sets these for each service; of one named wheel-timer they begin like ours.
_KUBERNETES: Final = re.compile(r"(_SERVICE_HOST|_PORT)$|_PORT_")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_INSTANCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REDIS_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")
_SCHEMES: Final = {
    "DATABASE_URL": ("postgresql", "postgres", "postgresql+psycopg"),
    "DATABASE_DIRECT_URL": ("postgresql", "postgres", "postgresql+psycopg"),
    "REDIS_URL": ("redis", "rediss", "unix"),
    "URL": ("http", "https"),
    "CALLBACK_PROXY": ("http", "https"),
}
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "DATABASE_POOL_SIZE": (2, 1_000),
    "SHARDS": (1, 1_024),
    "VISIBILITY": (1, 86_400),
    "LOOKAHEAD": (0.1, 60),
    "RETENTION": (86_400, 3_153_600_000),
    "SCHEDULE_HORIZON": (10, 14_400),
    "CLOCK_JUMP_MAX": (1, 31_536_000),
    "MAX_BODY": (1_024, 16 * 1_048_576),
    "MAX_REQUEST": (4_096, 1_073_741_824),
    "DRAIN": (0, 3_600),
    "DRAIN_DELAY": (0, 3_600),
    "METRICS_BIZ_TYPES": (0, 10_000),
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. Seconds are floats, sizes bytes; a URL or key not given is "" or None."""

    database_url: str = ""
    database_direct_url: str = ""
    database_schema: str
    database_pool_size: int
    redis_url: str = ""
    redis_prefix: str
    admin_key: str | None = None
    url: str
    key: str | None = None
    shards: int
    instance: str
    visibility: float
    lookahead: float
    retention: float
    schedule_horizon: float
    clock_jump_max: float
    max_body: int
    max_request: int
    drain: float | None = None
    drain_delay: float
    callback_allow: tuple[str, ...]
    callback_deny: tuple[str, ...]
    callback_ca_file: str = ""
    callback_client_cert: str = ""
    callback_proxy: str = ""
    trusted_proxies: tuple[str, ...]
    metrics_biz_types: int
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]

    @classmethod
    def load(
        cls,
        flags: Mapping[str, object],
        config: Path | None,
        environ: Mapping[str, str],
    ) -> Self:
        """
        The settings of this process; warns of names in the environment that mean nothing.

        flags: by field name; None is not given. Raises StartRefused.
        """
        loaded = load(flags, config, environ)
        for warning in loaded.warnings:
            logging.getLogger(__name__).warning("%s", warning)
        assert isinstance(loaded.settings, cls)
        return loaded.settings

    def child_environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with WHEEL_TIMER_* variables from which a child reads these very settings."""
        variables = {name: value for name, value in base.items() if not name.startswith(PREFIX)}
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if value is not None:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                variables[PREFIX + field.upper()] = text
        return variables

    def shown(self) -> dict[str, object]:
        """NAME -> value, with secrets masked."""
        return {field.upper(): _masked(field.upper(), getattr(self, field)) for field in _fields()}

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.shown().items())})"


class Loaded(NamedTuple):
    """origins: NAME -> "default", "file PATH", "environment" or "flag". warnings: a line each."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: list[str]


def load(flags: Mapping[str, object], config: Path | None, environ: Mapping[str, str]) -> Loaded:
    """As Settings.load; also says where each value came from. Raises StartRefused."""
    values: dict[str, object] = dict(_defaults())
    origins = dict.fromkeys((field.upper() for field in _fields()), "default")
    sources: list[tuple[str, Mapping[str, object]]] = []
    if config is not None:
        sources.append((f"file {config}", _from_file(config)))
    from_environment, warnings = _from_environment(environ)
    sources.append(("environment", from_environment))
    given = {name.upper(): value for name, value in flags.items() if value is not None}
    sources.append(("flag", given))
    for origin, found in sources:
        for name, value in _without_files(found, origin).items():
            if name not in origins:
                raise StartRefused(f"{origin}: {_unknown(name)}")
            values[name] = value
            origins[name] = origin
    settings = _convert(values, origins)
    _check(settings)
    return Loaded(settings, origins, warnings)


@cache
def _fields() -> tuple[str, ...]:
    return Settings.__struct_fields__


@cache
def _defaults() -> Mapping[str, object]:
    return tomllib.loads((Path(__file__).parent / "settings.toml").read_text(encoding="utf-8"))


def _from_file(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartRefused(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartRefused(f"the settings file {path} is not TOML: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, object], list[str]]:
    """What the environment sets, an empty value not being one; a line for each unknown name."""
    found: dict[str, object] = {}
    warnings: list[str] = []
    for variable, value in sorted(environ.items()):
        name = variable.removeprefix(PREFIX)
        if name == variable or _KUBERNETES.search(variable) or value == "":
            continue
        if name in _names():
            found[name] = value
        else:
            warnings.append(f"environment: {_unknown(name, PREFIX)}")
    return found, warnings


@cache
def _names() -> frozenset[str]:
    """Every name that may be given, NAME_FILE of the secrets among them."""
    files = {f"{name}_FILE" for name in SECRETS | SECRET_URLS}
    return frozenset(field.upper() for field in _fields()) | files


def _unknown(name: str, prefix: str = "") -> str:
    near = difflib.get_close_matches(name.upper(), sorted(_names()), n=1, cutoff=0.5)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    return f"there is no setting {prefix}{name}{hint}"


def _without_files(found: Mapping[str, object], origin: str) -> dict[str, object]:
    """The same with each NAME_FILE replaced by NAME and what is in the file."""
    values = dict(found)
    for name in SECRETS | SECRET_URLS:
        path = values.pop(f"{name}_FILE", None)
        if path is None:
            continue
        if name in values:
            raise StartRefused(f"{origin}: {name} and {name}_FILE are both set; keep one")
        try:
            values[name] = Path(str(path)).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StartRefused(f"{origin}: {name}_FILE {path} cannot be read: {error}") from error
        if values[name] == "":
            raise StartRefused(f"{origin}: {name}_FILE {path} is empty")
    return values


def _convert(values: Mapping[str, object], origins: Mapping[str, str]) -> Settings:
    """Give each value its type, one by one: the error then names the setting, not the value."""
    typed: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        name = field.name.upper()
        if name not in values:
            continue
        value = values[name]
        if isinstance(value, str) and field.type == tuple[str, ...]:
            value = [part.strip() for part in value.split(",") if part.strip()]
        try:
            # Text from the environment stands for a number where a number is wanted.
            typed[field.name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError as error:
            reason = str(error).partition(" - at ")[0]
            raise StartRefused(f"{name} ({origins[name]}): {reason}") from None
        low, high = _RANGES.get(name, (0.0, 0.0))
        if name in _RANGES and not low <= typed[field.name] <= high:
            raise StartRefused(f"{name} ({origins[name]}) must be between {low:g} and {high:g}")
    return Settings(**typed)


def _check(settings: Settings) -> None:
    """What no type says: forms, and settings that contradict each other."""
    for name, schemes in _SCHEMES.items():
        url = getattr(settings, name.lower())
        if url and urlsplit(url).scheme not in schemes:
            raise StartRefused(f"{name} must begin with {schemes[0]}://")
    if not _SCHEMA.fullmatch(settings.database_schema):
        raise StartRefused("DATABASE_SCHEMA must be a lower-case SQL name")
    if not _INSTANCE.fullmatch(settings.instance):
        raise StartRefused("INSTANCE takes 1 to 64 letters, digits and . _ -")
    if not _REDIS_PREFIX.fullmatch(settings.redis_prefix):
        raise StartRefused("REDIS_PREFIX takes 1 to 32 letters, digits and . _ -")
    for name, ranges in (
        ("CALLBACK_ALLOW", settings.callback_allow),
        ("CALLBACK_DENY", settings.callback_deny),
        ("TRUSTED_PROXIES", settings.trusted_proxies),
    ):
        for text in ranges:
            try:
                ip_network(text, strict=False)
            except ValueError as error:
                raise StartRefused(f"{name}: {error}") from None
    if settings.database_direct_url and not settings.database_url:
        raise StartRefused("DATABASE_DIRECT_URL is set, DATABASE_URL is not")
    if settings.visibility < 2 * settings.lookahead:
        raise StartRefused(
            f"VISIBILITY ({settings.visibility:g} s) must be at least twice LOOKAHEAD "
            f"({settings.lookahead:g} s): the sweep would publish what is not due yet"
        )
    if settings.max_request < settings.max_body:
        raise StartRefused(
            f"MAX_REQUEST ({settings.max_request}) is less than MAX_BODY ({settings.max_body}): "
            "a task of the allowed size could not be sent"
        )


def _masked(name: str, value: object) -> object:
    if isinstance(value, str):
        if name in SECRETS:
            return MASK
        if name in SECRET_URLS:
            return mask_secrets(value)
    return value
