"""Operations: changes of many tasks, how far they are; and what stops one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from broker.api.operating import OperationOut, operation_of, operations_of, stop
from broker.console.page import Page
from broker.console.visit import Confirmation, Visit

HERE: Final = "/console/operations"
ROWS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """A page of operations, newest first. It may be short and still have a next one."""

    items: Sequence[OperationOut]
    onward: str | None


async def show(visit: Visit) -> Response:
    """The list."""
    query = {name: text for name, text in visit.query.items() if name == "cursor"}
    found = await operations_of(visit.context, visit.actor, query, ROWS)
    onward = None
    if found.next_cursor is not None:
        onward = f"{HERE}?{urlencode({'cursor': found.next_cursor})}"
    return visit.render("operations.html", Operations(items=found.items, onward=onward))


async def show_one(visit: Visit) -> Response:
    """One of them."""
    return visit.render("operation.html", await _found(visit))


async def ask_stop(visit: Visit) -> Response:
    """Whether it is to stop."""
    found = await _found(visit)
    return visit.confirm(
        Confirmation(
            title=f"Stop this {found.action}?",
            sentences=["What it has changed stays changed; the rest is left alone."],
            facts=[
                ("Operation", str(found.operation_id)),
                ("Of", told_filter(found)),
                ("Done so far", f"{found.done:,} of {found.matched:,} that it has come by"),
            ],
            button="Stop it",
            back=f"{HERE}/{found.operation_id}",
            is_danger=True,
        )
    )


async def stop_it(visit: Visit) -> Response:
    """Stop it."""
    stopped = await stop(visit.context, visit.actor, visit.params["operation_id"])
    path = f"{HERE}/{stopped.operation_id}"
    if stopped.state == "stopped":
        return visit.done(path, "It is stopped.")
    return visit.done(path, "It had ended before.")


def told_filter(operation: OperationOut) -> str:
    """Which tasks are meant."""
    return ", ".join(f"{name} {one}" for name, one in operation.filter.items()) or "every task"


async def _found(visit: Visit) -> OperationOut:
    return await operation_of(visit.context, visit.actor, visit.params["operation_id"])


PAGES: Final = (
    Page(path=HERE, scope="read", show=show, menu="Operations"),
    Page(path=f"{HERE}/{{operation_id}}", scope="read", show=show_one),
    Page(path=f"{HERE}/{{operation_id}}/stop", scope="operate", show=ask_stop, act=stop_it),
)
