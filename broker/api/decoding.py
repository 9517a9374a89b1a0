"""JSON bodies by msgspec, its complaints as ours: 400 for no JSON, a pointer for the rest."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from broker.api.problems import invalid
from wheel_timer.callback import escaped
from wheel_timer.errors import FieldError, InvalidTask

NESTING_MAX: Final = 64

_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_AT: Final = " - at `"
_DETAIL_CHARACTERS_MAX: Final = 300

T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], raw: bytes | Raw) -> T:
    """
    What a decoder makes of a body, with its complaints as ours.

    Raises InvalidTask with a pointer to the field, or Refused with 400 where it is not JSON.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise InvalidTask([_field_error(str(error))]) from None
    except UnicodeDecodeError:
        raise invalid("the body is not UTF-8", status=400) from None
    except msgspec.DecodeError as error:
        raise invalid(f"the body is not JSON: {error}", status=400) from None
    except RecursionError:
        raise InvalidTask([FieldError(f"nested deeper than {NESTING_MAX}", "#")]) from None


def _field_error(message: str) -> FieldError:
    """msgspec's complaint with its `$.a.b[3]` path as a JSON pointer."""
    detail, _, path = message[:-1].rpartition(_AT) if _AT in message else (message, "", "$")
    tokens = path.replace("[...]", "").replace("[", ".").replace("]", "").split(".")[1:]
    for pattern, said in ((_UNKNOWN_FIELD, "unknown field"), (_MISSING_FIELD, "missing")):
        if (found := pattern.fullmatch(detail)) is not None:
            detail = said
            tokens.append(found[1][:_DETAIL_CHARACTERS_MAX])
    pointer = "".join(f"/{escaped(token)}" for token in tokens)
    return FieldError(detail[:_DETAIL_CHARACTERS_MAX], f"#{pointer}")
