"""
A row of timer_biz: a biz_type as two JSON values.

`config` is for whoever reads the database; `secrets` holds every write-only value.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wheel_timer.biz import BizType, SigningSecret
from wheel_timer.callback import is_write_only


def to_stored(biz: BizType) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(config, secrets) of a row, as JSON values."""
    config: dict[str, Any] = msgspec.to_builtins(biz)
    for name in ("biz_type", "version", "secrets"):
        del config[name]
    hidden: list[dict[str, Any]] = []
    for secret in biz.secrets:
        item = {"kind": "signing", "value": secret.value}
        hidden.append(item if secret.until_ms is None else item | {"until_ms": secret.until_ms})
    for name, value in biz.callback_headers.items():
        if is_write_only(name):
            hidden.append({"kind": "header", "name": name, "value": value})
            del config["callback_headers"][name]
    return config, hidden


def from_stored(name: str, version: int, config: Any, hidden: Any) -> BizType:
    """The biz_type of a row; settings that only a newer release knows are passed over."""
    headers = dict(config.get("callback_headers", {}))
    headers |= {item["name"]: item["value"] for item in hidden if item["kind"] == "header"}
    secrets = [
        SigningSecret(item["value"], item.get("until_ms"))
        for item in hidden
        if item["kind"] == "signing"
    ]
    own = {"biz_type": name, "version": version, "callback_headers": headers}
    made = msgspec.convert(config | own, BizType)
    return msgspec.structs.replace(made, secrets=tuple(secrets))
