"""GET of the audits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.operation import Answer, Operation, json_answer

AUDIT_ROWS_MAX: Final = 1000


class AuditOut(Struct):
    """
    One audit. A violation's rows are wrong, each of them; a report's rows are figures. holds:
    false where a violation has rows.
    """

    name: str
    kind: Literal["violation", "report"]
    holds: bool
    columns: list[str]
    rows: Annotated[list[list[Any]], Meta(description=f"the first {AUDIT_ROWS_MAX}")]


class AuditsOut(Struct):
    """holds: whether every audit does."""

    holds: bool
    items: list[AuditOut]


async def get_audits(context: Context, request: Request) -> Response:
    """Run every audit now, on the database."""
    actor = actor_of(request)
    items = []
    for audit in await context.auditor.run():
        rows = seen(audit.columns, audit.rows, actor)
        holds = audit.kind != "violation" or not rows
        shown = [list(row) for row in rows[:AUDIT_ROWS_MAX]]
        items.append(AuditOut(audit.name, audit.kind, holds, list(audit.columns), shown))
    return json_answer(AuditsOut(all(item.holds for item in items), items))


Row = TypeVar("Row", bound=Sequence[Any])


def seen(columns: Sequence[str], rows: list[Row], actor: Actor) -> list[Row]:
    """An audit's rows; for a narrowed key those of its biz_types, where they tell theirs."""
    if not actor.is_narrowed:
        return rows
    if "biz_type" not in columns:
        return []
    place = columns.index("biz_type")
    return [row for row in rows if row[place] is not None and actor.sees(row[place])]


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/audits",
        handler=get_audits,
        name="getAudits",
        scope="read",
        summary="Run the audits",
        text="They read the database in bounded time and change nothing. A key that is narrowed to "
        "some biz_types gets the rows that are theirs.",
        answers={200: Answer(text="What they found", body=AuditsOut)},
        problems=("overloaded",),
    ),
)
