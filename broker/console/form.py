"""What forms of the console have in common: texts read, errors put beside their fields. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from wheel_timer.errors import FieldError, InvalidTask

NUMBER_MAX: Final = 1e15
OVERTAKEN: Final = (
    "somebody else has changed it meanwhile: what you see is what you have filled in; sent once"
    " more it is compared with what is there now"
)


def number_of(text: str, pointer: str, errors: list[FieldError]) -> float | None:
    """A number; None for nothing, and for what is none, which is told."""
    if not text.strip():
        return None
    try:
        number = float(text)
    except ValueError:
        number = NUMBER_MAX
    # Neither infinite nor no number at all: JSON has none of these.
    if abs(number) < NUMBER_MAX:
        return int(number) if number.is_integer() else number
    errors.append(FieldError(f"{text[:40]!r} is no number", pointer))
    return None


def json_of(text: str, pointer: str, errors: list[FieldError]) -> Raw | None:
    """JSON, as it was typed; None for what is none, which is told."""
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        errors.append(FieldError("this is no JSON", pointer))
        return None
    return Raw(text.encode())


def version_of(form: Mapping[str, str]) -> int:
    """The version that a form was filled in for. Raises InvalidTask."""
    text = form.get("version", "")
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) > 0):
        raise InvalidTask([FieldError("the form is not whole: load it again", "#/version")])
    return int(text)


def without_nones(patch: Mapping[str, Any]) -> dict[str, Any]:
    """A PATCH as the PUT of something new: what has its default is left out."""
    return {
        name: without_nones(value) if isinstance(value, Mapping) else value
        for name, value in patch.items()
        if value is not None
    }


def by_field(
    errors: Iterable[FieldError], fields: Container[str]
) -> tuple[dict[str, str], list[FieldError]]:
    """
    Errors by the field that they belong to, the innermost there is; and those that belong to none.

    Fields are named by their pointers, with dots: `retry.max_attempts`.
    """
    placed: dict[str, str] = {}
    others: list[FieldError] = []
    for error in errors:
        name = error.pointer.removeprefix("#/").replace("/", ".")
        while name and name not in fields:
            name = name.rpartition(".")[0]
        if name:
            placed[name] = f"{placed[name]}; {error.detail}" if name in placed else error.detail
        else:
            others.append(error)
    return placed, others
