"""
A biz_type's configuration as a form: what its fields hold, and the PATCH that a filled-in form is.

Fields are named as the configuration is, with dots where it nests (`retry.max_attempts`), so that
the API's own pointers lead to them. What the form does not know stays as it is. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from broker.console.form import number_of
from wheel_timer.biz import BizTypeOut, Delivery
from wheel_timer.callback import Mark, Method, is_write_only
from wheel_timer.errors import FieldError, InvalidTask

Kind = Literal["text", "number", "numbers", "lines", "headers", "secret", "check", "choice"]

# Stands in the field of a header whose value is kept from those who look.
KEPT: Final = "(kept)"
REMOVE_SECRET: Final = "secret.remove"
_HINT_S: Final = "seconds"


class Field(NamedTuple):
    """One field. options: of a choice."""

    name: str
    label: str
    kind: Kind = "number"
    hint: str = ""
    options: Sequence[str] = ()

    @property
    def is_seconds(self) -> bool:
        """Whether it is a duration."""
        return self.hint.startswith(_HINT_S)


class Group(NamedTuple):
    """Fields that belong together."""

    title: str
    fields: Sequence[Field]


GROUPS: Final = (
    Group(
        "The call",
        (
            Field("delivery", "Delivery", "choice", "pull: workers ask", get_args(Delivery)),
            Field("callback_url", "URL", "text", "http or https; what is called at the moment"),
            Field("callback_method", "Method", "choice", options=get_args(Method)),
            Field("timeout", "Timeout", hint="seconds, from DNS to the last byte"),
            Field(
                "callback_headers",
                "Headers",
                "headers",
                "name: value, one a line; credentials are never shown: (kept) keeps one",
            ),
            Field("secret", "Signing secret", "secret", "left empty it stays as it is"),
            Field(
                "allow_callback_override",
                "A task may bring its own URL",
                "check",
            ),
            Field(
                "callback_allow",
                "Only these networks are called",
                "lines",
                "CIDR, one a line; empty: what the server allows",
            ),
        ),
    ),
    Group(
        "Pace",
        (
            Field("rate_limit", "Calls a second", hint="empty: no limit"),
            Field("burst", "Burst", hint="calls at once after a pause; empty: a second's"),
            Field("max_concurrency", "Calls at once", hint="over all brokers"),
            Field("priority", "Priority", hint="0 to 9, 9 is served first"),
            Field("submit_rate_limit", "Submits a second", hint="empty: no limit"),
            Field("max_pending", "Pending tasks at most", hint="empty: no limit"),
            Field("spread", "Spread", hint="seconds over which starts are drawn"),
        ),
    ),
    Group(
        "When a call fails",
        (
            Field("retry.max_attempts", "Attempts", hint="calls that may fail, all in all"),
            Field("retry.backoff.initial", "First delay", hint=_HINT_S),
            Field("retry.backoff.factor", "Factor", hint="each delay is so many times the last"),
            Field("retry.backoff.max", "Longest delay", hint=_HINT_S),
            Field("retry.backoff.jitter", "Jitter", hint="0 to 1: the share that is drawn"),
            Field(
                "retry.ladder",
                "Ladder",
                "numbers",
                "delays in seconds, 5 60 600; where there are some, in place of the four above",
            ),
            Field("max_age", "Max age", hint="seconds after its moment; no attempt after it"),
            Field("max_past", "Max past", hint="seconds a submitted moment may lie back"),
            Field("final_statuses", "Final answers", "numbers", "404 422: no further attempt"),
            Field("on_failed", "Hears of failed tasks", "text", "another biz_type"),
        ),
    ),
    Group(
        "Breaker",
        (
            Field("breaker.enabled", "Stop calling an endpoint that keeps failing", "check"),
            Field("breaker.consecutive", "After failures in a row"),
            Field("breaker.open_for", "First for", hint="seconds, 5 to 300"),
        ),
    ),
    Group(
        "Kept for",
        (
            Field("retention.finished", "Finished tasks", hint=_HINT_S),
            Field("retention.failed", "Failed tasks", hint=_HINT_S),
            Field("retention.cancelled", "Cancelled tasks", hint=_HINT_S),
            Field("erase_data", "Erase biz_data once a task is finished", "check"),
        ),
    ),
)
FIELDS: Final[Mapping[str, Field]] = {one.name: one for group in GROUPS for one in group.fields}


def texts_of(biz: BizTypeOut) -> dict[str, str]:
    """What the fields hold for a biz_type; a box that is not ticked is missing."""
    settings: dict[str, Any] = msgspec.to_builtins(biz)
    texts: dict[str, str] = {}
    for name, field in FIELDS.items():
        value: Any = settings
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if field.kind == "check":
            if value:
                texts[name] = "on"
        elif field.kind == "headers":
            lines = (f"{header}: {_shown(one)}" for header, one in biz.callback_headers.items())
            texts[name] = "\n".join(lines)
        elif field.kind == "secret":
            texts[name] = ""
        elif field.kind == "lines":
            texts[name] = "\n".join(value or ())
        elif field.kind == "numbers":
            texts[name] = " ".join(_number_text(one) for one in value or ())
        else:
            texts[name] = "" if value is None else _number_text(value)
    return texts


def patch_of(form: Mapping[str, str], before: BizTypeOut | None) -> dict[str, Any]:
    """
    The PATCH that a form asks for, every field of it; None gives a setting its default.

    before: None where the biz_type is to be made. Raises InvalidTask for what is no number or no
    header line; what a value may be is the API's to judge.
    """
    errors: list[FieldError] = []
    patch: dict[str, Any] = {}
    for name, field in FIELDS.items():
        text, pointer = form.get(name, "").strip(), f"#/{name.replace('.', '/')}"
        value: Any = text or None
        if field.kind == "check":
            value = name in form
        elif field.kind == "number":
            value = number_of(text, pointer, errors)
        elif field.kind == "numbers":
            numbers = [number_of(one, pointer, errors) for one in text.replace(",", " ").split()]
            value = numbers or None
        elif field.kind == "lines":
            value = text.split() or None
        elif field.kind == "headers":
            value = _headers(text, before, errors)
        elif field.kind == "secret" and not text and REMOVE_SECRET not in form:
            continue
        _put(patch, name.split("."), value)
    retry: dict[str, Any] = patch["retry"]
    # Of the two the API takes one.
    del retry["backoff" if retry["ladder"] is not None else "ladder"]
    if errors:
        raise InvalidTask(errors)
    return patch


def _put(patch: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        patch = patch.setdefault(part, {})
    patch[path[-1]] = value


def _headers(
    text: str, before: BizTypeOut | None, errors: list[FieldError]
) -> dict[str, str | None]:
    """Header lines; one that is there and not named any more is removed."""
    stored = {} if before is None else before.callback_headers
    headers: dict[str, str | None] = {}
    kept: set[str] = set()
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not name:
            errors.append(FieldError(f"{line[:40]!r}: write name: value", "#/callback_headers"))
        elif value == KEPT and is_write_only(name):
            kept.add(name.lower())
        else:
            headers[name.lower()] = value
    missing = kept - stored.keys()
    if missing:
        detail = f"there is no stored value to keep: {', '.join(sorted(missing))}"
        errors.append(FieldError(detail, "#/callback_headers"))
    return headers | {name: None for name in stored if name not in headers and name not in kept}


def _shown(value: str | Mark) -> str:
    return value if isinstance(value, str) else KEPT


def _number_text(value: Any) -> str:
    """A number as people write it; any other value as it is."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
