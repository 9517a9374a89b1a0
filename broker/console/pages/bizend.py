"""The end of a biz_type's tasks, and of itself: both want its name typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from broker.api.bizverbs import existing
from broker.api.purging import begin_purge, delete
from broker.console.page import Page
from broker.console.pages.biz import HERE, path_of
from broker.console.visit import Visit
from wheel_timer.errors import Conflict
from wheel_timer.store.ledger import pending


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What is asked. wrong: why it was not done."""

    name: str
    title: str
    sentences: Sequence[str]
    button: str
    pending: int
    may_take_tasks: bool
    wrong: str
    back: str


async def ask_purge(visit: Visit) -> Response:
    """Whether its tasks are to go."""
    return await _ask(visit, "")


async def purge(visit: Visit) -> Response:
    """Begin to delete its tasks."""
    name = visit.params["biz_type"]
    if (wrong := _not_typed(visit)) is not None:
        return await _ask(visit, wrong)
    row = await begin_purge(visit.context, name, visit.actor)
    told = f"The tasks of {name} are being deleted."
    return visit.done(f"/console/operations/{row.operation_id}", told)


async def ask_delete(visit: Visit) -> Response:
    """Whether it is to go itself."""
    return await _ask(visit, "", is_delete=True)


async def remove(visit: Visit) -> Response:
    """Delete it, and its tasks where that is asked for."""
    name = visit.params["biz_type"]
    if (wrong := _not_typed(visit)) is not None:
        return await _ask(visit, wrong, is_delete=True)
    with_tasks = "purge" in visit.form
    try:
        row = await delete(visit.context, name, None, purge=with_tasks, actor=visit.actor)
    except Conflict as error:
        return await _ask(visit, str(error), is_delete=True)
    if row is None:
        return visit.done(HERE, f"{name} is deleted.")
    told = f"{name} is deleted, and its tasks are being deleted."
    return visit.done(f"/console/operations/{row.operation_id}", told)


def _not_typed(visit: Visit) -> str | None:
    name = visit.params["biz_type"]
    return None if visit.form.get("typed", "").strip() == name else f"type {name} to confirm it"


async def _ask(visit: Visit, wrong: str, *, is_delete: bool = False) -> Response:
    name = visit.params["biz_type"]
    await visit.context.registry.refresh()
    existing(name, visit.context.registry.get(name))
    if is_delete:
        title = f"Delete the biz_type {name}?"
        sentences = [
            "Submits for it are refused from then on. Its history stays.",
            "While tasks of it are pending or failed it is deleted only together with them.",
        ]
    else:
        title = f"Delete every task of {name}?"
        sentences = [
            "All of them, settled or not, for good: an operation that the daemon works off. What is"
            " being called at that moment stays, and what is submitted later.",
            "The biz_type itself stays.",
        ]
    data = End(
        name=name,
        title=title,
        sentences=sentences,
        button="Delete it" if is_delete else "Delete every task",
        pending=await pending(visit.context.db, name),
        may_take_tasks=is_delete,
        wrong=wrong,
        back=path_of(name),
    )
    return visit.render("biz-end.html", data, 422 if wrong else 200)


ONE: Final = f"{HERE}/{{biz_type}}"
PAGES: Final = (
    Page(path=f"{ONE}/purge", scope="operate", show=ask_purge, act=purge),
    Page(path=f"{ONE}/delete", scope="configure", show=ask_delete, act=remove),
)
