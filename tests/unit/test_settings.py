"""Where settings come from, what stops the start, and what nobody gets to see."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from wheel_timer.errors import StartRefused
from wheel_timer.settings import SECRET_URLS, SECRETS, Settings, load

DOCUMENTED = Path(__file__).parents[2] / "wheel_timer" / "settings.toml"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "wheel-timer.toml"


def test_every_setting_is_documented_and_only_those() -> None:
    named = re.findall(r"^(?:# )?([A-Z][A-Z_]+) =", DOCUMENTED.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(field.upper() for field in Settings.__struct_fields__)


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(config: Path) -> None:
    config.write_text('REDIS_PREFIX = "file"\nMAX_BODY = 2048\nDRAIN = 7')
    environ = {"WHEEL_TIMER_REDIS_PREFIX": "environment", "WHEEL_TIMER_MAX_BODY": "4096"}
    loaded = load({"redis_prefix": "flag", "url": None}, config, environ)
    settings, origins = loaded.settings, loaded.origins
    assert (settings.redis_prefix, origins["REDIS_PREFIX"]) == ("flag", "flag")
    assert (settings.max_body, origins["MAX_BODY"]) == (4096, "environment")
    assert (settings.drain, origins["DRAIN"]) == (7.0, f"file {config}")
    assert (settings.lookahead, origins["LOOKAHEAD"]) == (1.0, "default")


def test_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush\n")
    settings = Settings.load({}, None, {"WHEEL_TIMER_ADMIN_KEY_FILE": str(tmp_path / "key")})
    assert settings.admin_key == "hush"


def test_an_empty_variable_is_not_set() -> None:
    settings = Settings.load({}, None, {"WHEEL_TIMER_ADMIN_KEY": "", "WHEEL_TIMER_SHARDS": ""})
    assert (settings.admin_key, settings.shards) == (None, 1)


def test_a_list_in_the_environment_has_commas() -> None:
    settings = Settings.load({}, None, {"WHEEL_TIMER_CALLBACK_ALLOW": "10.0.0.0/8, ::1/128"})
    assert settings.callback_allow == ("10.0.0.0/8", "::1/128")


def test_an_unknown_name_in_the_environment_warns_with_the_nearest() -> None:
    loaded = load({}, None, {"WHEEL_TIMER_LOKAHEAD": "2", "PATH": "/bin"})
    assert loaded.warnings == [
        "environment: there is no setting WHEEL_TIMER_LOKAHEAD; did you mean WHEEL_TIMER_LOOKAHEAD?"
    ]


def test_the_variables_of_a_kubernetes_service_named_wheel_timer_mean_nothing() -> None:
    environ = {
        "WHEEL_TIMER_SERVICE_HOST": "10.96.0.7",
        "WHEEL_TIMER_SERVICE_PORT": "8080",
        "WHEEL_TIMER_SERVICE_PORT_HTTP": "8080",
        "WHEEL_TIMER_PORT": "tcp://10.96.0.7:8080",
        "WHEEL_TIMER_PORT_8080_TCP": "tcp://10.96.0.7:8080",
        "WHEEL_TIMER_PORT_8080_TCP_PROTO": "tcp",
        "WHEEL_TIMER_PORT_8080_TCP_PORT": "8080",
        "WHEEL_TIMER_PORT_8080_TCP_ADDR": "10.96.0.7",
        "WHEEL_TIMER_BROKER_SERVICE_HOST": "10.96.0.8",
        "WHEEL_TIMER_BROKER_PORT": "tcp://10.96.0.8:8080",
    }
    assert load({}, None, environ).warnings == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SHRADS = 2", "there is no setting SHRADS; did you mean SHARDS?"),
        ("shards = 2", "there is no setting shards; did you mean SHARDS?"),
        ("SHARDS = 0", "must be between 1 and 1024"),
        ('SHARDS = "many"', "SHARDS"),
        ("SHARDS = true", "SHARDS"),
        ("SHARDS = 1.5", "SHARDS"),
        ("VISIBILITY = nan", "must be between 1 and 86400"),
        ("VISIBILITY = inf", "must be between 1 and 86400"),
        ("VISIBILITY = 1.5", "at least twice LOOKAHEAD"),
        ("MAX_REQUEST = 100000", "is less than MAX_BODY"),
        ('LOG_LEVEL = "loud"', "LOG_LEVEL"),
        ('DATABASE_URL = "mysql://localhost"', "DATABASE_URL must begin with postgresql://"),
        ('DATABASE_DIRECT_URL = "postgresql://db"', "DATABASE_URL is not"),
        ('DATABASE_SCHEMA = "a; DROP"', "DATABASE_SCHEMA"),
        ('REDIS_PREFIX = "{a}"', "REDIS_PREFIX"),
        ('CALLBACK_DENY = ["10.0.0.300"]', "CALLBACK_DENY"),
        ('ADMIN_KEY = "a"\nADMIN_KEY_FILE = "b"', "both set"),
        ('ADMIN_KEY_FILE = "/nowhere/key"', "cannot be read"),
        ("SHARDS = ", "is not TOML"),
    ],
)
def test_what_cannot_be_right_stops_the_start_with_one_line(
    text: str, line: str, config: Path
) -> None:
    config.write_text(text)
    with pytest.raises(StartRefused) as refused:
        Settings.load({}, config, {})
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_empty_secret_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    with pytest.raises(StartRefused, match="is empty"):
        Settings.load({}, None, {"WHEEL_TIMER_ADMIN_KEY_FILE": str(tmp_path / "key")})


def test_a_missing_file_stops_the_start(config: Path) -> None:
    with pytest.raises(StartRefused, match="No such file"):
        Settings.load({}, config, {})


def test_secrets_are_masked_wherever_settings_are_shown() -> None:
    environ = {
        "WHEEL_TIMER_ADMIN_KEY": "hush",
        "WHEEL_TIMER_KEY": "hush",
        "WHEEL_TIMER_DATABASE_URL": "postgresql://user:hush@db/timers",
        "WHEEL_TIMER_DATABASE_DIRECT_URL": "postgresql://db/timers?user=u&password=hush",
        "WHEEL_TIMER_REDIS_URL": "redis://:hush@cache/0",
        "WHEEL_TIMER_CALLBACK_PROXY": "http://user:hush@proxy:3128",
    }
    settings = Settings.load({}, None, environ)
    assert {name.removeprefix("WHEEL_TIMER_") for name in environ} == SECRETS | SECRET_URLS
    assert "hush" not in repr(settings) + str(settings) + str(settings.shown())
    assert settings.shown()["DATABASE_URL"] == "postgresql://user:***@db/timers"


def test_a_child_reads_the_very_same_settings(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush")
    environ = {
        "PATH": "/bin",
        "WHEEL_TIMER_ADMIN_KEY_FILE": str(tmp_path / "key"),
        "WHEEL_TIMER_CALLBACK_ALLOW": "10.0.0.0/8,192.168.0.0/16",
        "WHEEL_TIMER_DRAIN": "0.5",
    }
    settings = Settings.load({}, None, environ)
    changed = msgspec.structs.replace(settings, redis_url="unix:///run/redis.sock")
    child = changed.child_environment(environ)
    assert Settings.load({}, None, child) == changed
    assert child["PATH"] == "/bin"
