"""Columns of a batch, as arrays for unnest."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def sparse(values: list[Value | None]) -> list[Value | None] | None:
    """
    A column of which most batches have nothing: NULL instead of an array of nulls.

    Beside longer arrays unnest fills it up with nulls all the same, and nobody has had to write,
    send, read and keep them: half of the columns of a submit.
    """
    return None if values.count(None) == len(values) else values
