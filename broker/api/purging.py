"""The end of a biz_type: DELETE, and the purge of its tasks, which is an operation."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.bizverbs import biz_type_of, existing
from broker.api.condition import IF_MATCH, expected_version
from broker.api.context import Context
from broker.api.operating import LOCATION, OperationOut, begun
from broker.api.operation import Answer, Operation
from broker.api.problems import invalid
from broker.api.verb import read_nothing
from wheel_timer.errors import Conflict
from wheel_timer.store import operation as operations
from wheel_timer.store.biz import has_tasks, load
from wheel_timer.store.filter import Filter
from wheel_timer.store.operation import OperationRow


async def purge_biz_type(context: Context, request: Request) -> Response:
    """Begin to delete every task of a biz_type; the biz_type stays."""
    name = biz_type_of(request)
    await read_nothing(context, request)
    return begun(await begin_purge(context, name, actor_of(request)))


async def begin_purge(context: Context, name: str, actor: Actor) -> OperationRow:
    """The operation that has begun. Raises NotFound."""
    existing(name, await load(context.db, name))
    recorded = {"action": "purge", "filter": {"biz_type": name}}
    return await operations.create(
        context.db,
        uuid4(),
        "purge",
        Filter(biz_type=name),
        actor=actor.name,
        recorded=msgspec.json.encode(recorded),
    )


async def delete_biz_type(context: Context, request: Request) -> Response:
    """Delete a biz_type that nothing is waiting for; or with purge, whatever waits."""
    name = biz_type_of(request)
    await read_nothing(context, request)
    purge = request.query_params.get("purge", "false")
    if purge not in ("true", "false"):
        raise invalid("purge: true or false")
    expected = await expected_version(context, request, name)
    row = await delete(context, name, expected, purge=purge == "true", actor=actor_of(request))
    return Response(status_code=204) if row is None else begun(row)


async def delete(
    context: Context, name: str, expected: int | None, *, purge: bool, actor: Actor
) -> OperationRow | None:
    """
    Delete a biz_type; with purge, the operation that deletes its tasks.

    Raises NotFound, StaleVersion, and Conflict where something waits for it.
    """
    existing(name, await load(context.db, name))
    if purge:
        purge_id = uuid4()
        await context.registry.delete(name, expected, actor=actor.name, purge_id=purge_id)
        row = await operations.get(context.db, purge_id)
        assert row is not None
        return row
    if await has_tasks(context.db, name):
        detail = "it has schedules, or tasks that are pending, or failed and could be replayed"
        raise Conflict(detail, "biz-type-in-use")
    await context.registry.delete(name, expected, actor=actor.name)
    return None


OPERATIONS: Final = (
    Operation(
        method="DELETE",
        path="/v1/biz/{biz_type}",
        handler=delete_biz_type,
        name="deleteBizType",
        scope="configure",
        summary="Delete a biz_type",
        text="Refused while it has schedules, or tasks that are pending or failed, unless purge "
        "says that these go with it: then an operation begins, in the same transaction, that "
        "deletes every task. Always refused while another biz_type names it in on_failed. "
        "Settled tasks stay for their retention, the history for good. For two seconds other "
        "brokers may still take a submit for it: such a task waits, uncalled, for a biz_type of "
        "this name, or for a purge.",
        query={"purge": ({"type": "boolean", "default": False}, "delete its tasks too")},
        headers=IF_MATCH,
        answers={
            204: Answer(text="It is gone"),
            202: Answer(
                text="It is gone, and its tasks are being deleted",
                body=OperationOut,
                headers=LOCATION,
            ),
        },
        problems=("not-found", "stale-version", "biz-type-in-use", "overloaded"),
    ),
    Operation(
        method="POST",
        path="/v1/biz/{biz_type}/purge",
        handler=purge_biz_type,
        name="purgeBizType",
        scope="operate",
        summary="Delete every task of a biz_type",
        text="An operation, done in chunks by the daemon; what is being called at that moment "
        "stays, and so does what is submitted later. The biz_type stays too, and so do its "
        "schedules: of each, what is to come within the next hour is deleted with the rest.",
        answers={
            202: Answer(text="It has begun", body=OperationOut, headers=LOCATION),
        },
        problems=("not-found", "overloaded"),
    ),
)
