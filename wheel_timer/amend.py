"""
What a PATCH or a rotation makes of a biz_type, and how two of its versions differ. Pure.

What a PUT makes of it is `biz.merged`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from wheel_timer.biz import BizType, BizTypeIn, SigningSecret, shown
from wheel_timer.callback import escaped, is_write_only
from wheel_timer.errors import FieldError, InvalidTask

# Each adds a signature to every callback; whoever has that many in their grace rotates too often.
SECRETS_MAX: Final = 5

# Not settings: the name stands beside them, and the version tells the two apart.
_NOT_SETTINGS: Final = frozenset({"biz_type", "version"})


def patched(before: BizType, patch: Mapping[str, Any]) -> dict[str, Any]:
    """
    What a PUT would have to say for `before` to become what `patch` asks for: RFC 7396 over what a
    GET shows. Removing (null) gives a setting its default; of a write-only value it removes that.

    One of retry's backoff and ladder takes the place of the other. Raises InvalidTask for what no
    PUT would show: an unknown name that is to be removed, a header given twice.
    """
    errors = [
        FieldError("unknown field", f"#/{escaped(name)}")
        for name in patch
        if name not in BizTypeIn.__struct_fields__
    ]
    wanted = dict(patch)
    stored = before.callback_headers
    if "callback_headers" in wanted:
        headers = wanted["callback_headers"]
        if headers is None:
            headers = dict.fromkeys(stored)
        if isinstance(headers, Mapping):
            if len({name.lower() for name in headers}) < len(headers):
                errors.append(FieldError("a header given twice", "#/callback_headers"))
            headers = {name.lower(): value for name, value in headers.items()}
        wanted["callback_headers"] = headers
    if errors:
        raise InvalidTask(errors)
    said: dict[str, Any] = _merged(settings(before), wanted)
    # A PUT keeps what it leaves out of these, so their removal is said.
    if "secret" in patch and patch["secret"] is None:
        said["secret"] = None
    removed = wanted.get("callback_headers")
    if isinstance(removed, Mapping):
        for name, value in removed.items():
            if value is None and name in stored and is_write_only(name):
                said["callback_headers"][name] = None
    retry = patch.get("retry")
    if isinstance(retry, Mapping) and isinstance(said["retry"], dict):
        if retry.get("ladder") is not None and "backoff" not in retry:
            said["retry"].pop("backoff", None)
        if retry.get("backoff") is not None and "ladder" not in retry:
            said["retry"].pop("ladder", None)
    return said


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def rotated(before: BizType, secret: str, *, grace_ms: int, now_ms: int) -> BizType:
    """
    `before` with `secret` as its current one; those before it go on signing for grace_ms, by the
    database's clock, those of an earlier rotation to the end of their own grace. A grace of 0 ends
    them all. Saying the current secret again changes nothing, unless the grace ends sooner now.

    Raises InvalidTask where too many secrets would sign at once.
    """
    end_ms = now_ms + grace_ms
    older: list[SigningSecret] = []
    is_current = bool(before.secrets) and before.secrets[0].value == secret
    for one in before.secrets:
        until_ms = end_ms if one.until_ms is None else one.until_ms
        if is_current:
            until_ms = min(until_ms, end_ms)
        if one.value != secret and grace_ms > 0 and until_ms > now_ms:
            older.append(SigningSecret(one.value, until_ms))
    if len(older) >= SECRETS_MAX:
        detail = f"{len(older)} older secrets are in their grace: wait, or end it with grace 0"
        raise InvalidTask([FieldError(detail, "#/grace")])
    return msgspec.structs.replace(before, secrets=(SigningSecret(secret), *older))


def differing(
    before: BizType | None, after: BizType | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """
    (old, new): the settings that differ, as a GET shows them; None where there is no such side.

    A write-only value that was changed is there on both sides, with the same mark.
    """
    old = None if before is None else settings(before)
    new = None if after is None else settings(after)
    if before is None or after is None or old is None or new is None:
        return old, new
    names = {name for name in old if old[name] != new[name]}
    if before.secrets != after.secrets:
        names.add("secret")
    if before.callback_headers != after.callback_headers:
        names.add("callback_headers")
    return _only(old, names), _only(new, names)


def settings(biz: BizType) -> dict[str, Any]:
    """The settings as a GET shows them, without the name and the version."""
    built: dict[str, Any] = msgspec.to_builtins(shown(biz))
    return {name: value for name, value in built.items() if name not in _NOT_SETTINGS}


def _only(settings: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}
