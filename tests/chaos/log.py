"""The two logs that are compared with the database: what was submitted, what was called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

# plain: one call. fails: its endpoint fails once. dies: its endpoint answers 410, for good.
Plan = Literal["plain", "fails", "dies"]
Answered = Literal["yes", "no", "unknown"]


@dataclass
class Submitted:
    """
    One task as its client knows it.

    asked_ms: every start_time that was ever asked for, the one that holds last. accepted_ns: when
    the 2xx came, None while no answer did; then the task may be there or not.
    is_neighbour: of a biz_type that the fault is nothing to.
    cancel, move: None where none was tried; what was answered (no: 409, too late), and when.
    """

    biz_id: str
    plan: Plan
    asked_ms: list[int]
    is_neighbour: bool = False
    accepted_ns: int | None = None
    cancel: Answered | None = None
    cancel_ns: int = 0
    move: Answered | None = None
    move_ns: int = 0


class Called(NamedTuple):
    """
    One callback at the endpoint. signed_s: when its broker began it, whole seconds of the
    database's clock. offset_ms: that clock against this machine's when the call came. attempt: its
    number, as the header says.
    """

    arrival_ns: int
    biz_id: str
    task_id: str
    start_time_ms: int
    status: int
    signed_s: int
    offset_ms: int
    attempt: int

    @property
    def arrival_ms(self) -> float:
        """By the database's clock."""
        return self.arrival_ns / 1e6 + self.offset_ms


class Row(NamedTuple):
    """
    A task in the database. retries, lost: of its attempts, those recorded so. ended_ms: by number,
    of those that have a record of their own, when they ended by the database's clock; None of the
    lost ones, of which nobody knows.
    """

    biz_id: str
    task_id: str
    status: int
    start_time_ms: int
    create_time_ms: int
    renew_time_ms: int
    retries: int
    lost: int
    ended_ms: Mapping[str, int | None] = MappingProxyType({})

    def was_over(self, attempt: int, by_ms: float) -> bool:
        """Whether an attempt is on record as one that ended without success by then."""
        ended_ms = self.ended_ms.get(str(attempt), math.inf)
        return ended_ms is None or ended_ms <= by_ms


@dataclass
class Books:
    """All that is known of one run. Times in ns of this machine; refused: answers no client should
    get, as said."""

    began_ns: int = 0
    ended_ns: int = 0
    load_ns: tuple[int, int] = (0, 0)
    submitted: dict[str, Submitted] = field(default_factory=dict)
    called: list[Called] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
