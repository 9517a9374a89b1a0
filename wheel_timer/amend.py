"""
What a PATCH or a rotation makes of a biz_type, and how two of its versions differ. Pure.

What a PUT makes of it is `biz.merged`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from wheel_timer.biz import BizType, shown

# Not settings: the name stands beside them, and the version tells the two apart.
_NOT_SETTINGS: Final = frozenset({"biz_type", "version"})


def differing(
    before: BizType | None, after: BizType | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """
    (old, new): the settings that differ, as a GET shows them; None where there is no such side.

    A write-only value that was changed is there on both sides, with the same mark.
    """
    old = None if before is None else _settings(before)
    new = None if after is None else _settings(after)
    if before is None or after is None or old is None or new is None:
        return old, new
    names = {name for name in old if old[name] != new[name]}
    if before.secrets != after.secrets:
        names.add("secret")
    if before.callback_headers != after.callback_headers:
        names.add("callback_headers")
    return _only(old, names), _only(new, names)


def _settings(biz: BizType) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(shown(biz))
    return {name: value for name, value in built.items() if name not in _NOT_SETTINGS}


def _only(settings: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}
