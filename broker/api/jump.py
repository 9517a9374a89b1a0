"""
Nodes, and the consent that a jump of the database's clock needs.

A process that finds the clock ahead by more than CLOCK_JUMP_MAX holds back, and says so with its
heartbeat. A consent reaches every process by the clock's pulse, within two seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.operation import Answer, Operation, json_answer
from broker.api.times import format_time
from broker.api.verb import read_nothing
from broker.api.view import Time
from wheel_timer.errors import Forbidden
from wheel_timer.store.jump import accept_jump
from wheel_timer.store.node import Node, nodes


class NodeOut(Struct):
    """
    One process. alive: it was heard of in the last 50 s. leads: its shards. clock_jump_ms: how far
    it finds the database's clock ahead, while it holds back for that.
    """

    node: str
    role: Literal["daemon", "broker"]
    version: str
    started: Time
    heartbeat: Time
    alive: bool
    leads: list[int]
    clock_jump_ms: int | None


class NodesOut(Struct):
    """Those that were heard of in the last day and have not left in order."""

    items: list[NodeOut]
    next_cursor: Annotated[None, Meta(description="always null: this is all of them")] = None


class ClockJumpOut(Struct):
    """The database's clock has jumped forward, and nobody has accepted that."""

    ahead_ms: Annotated[int, Meta(description="at the process that finds it furthest ahead")]
    nodes: Annotated[list[str], Meta(description="those that hold back for it")]


class JumpStateOut(Struct):
    """clock_jump: null where the clock is followed everywhere."""

    clock_jump: ClockJumpOut | None


async def clock_jump(context: Context) -> ClockJumpOut | None:
    """What this broker and the other processes find. Raises DatabaseUnavailable."""
    return jump_of(context, await nodes(context.db))


def jump_of(context: Context, found: Iterable[Node]) -> ClockJumpOut | None:
    """The same by what these processes have said of themselves."""
    held = {
        node.node: node.clock_jump_ms
        for node in found
        if node.is_alive and node.clock_jump_ms is not None
    }
    own_ms = context.clock.jump_ms
    aheads_ms = [*held.values(), *([] if own_ms is None else [round(own_ms)])]
    return ClockJumpOut(max(aheads_ms), sorted(held)) if aheads_ms else None


async def accept_clock_jump(context: Context, request: Request) -> Response:
    """The clock is right: go on by it."""
    actor = actor_of(request)
    check_clock_is_his(actor)
    await read_nothing(context, request)
    await accept(context, actor)
    return json_answer(JumpStateOut(None))


def check_clock_is_his(actor: Actor) -> None:
    """Raises Forbidden where a jump is not for this actor to accept."""
    if actor.is_narrowed:
        raise Forbidden("the clock is everybody's; this key is narrowed to some biz_types")


async def accept(context: Context, actor: Actor) -> None:
    """Say that the clock is right, where somebody holds back for it."""
    await context.clock.measure()
    if await clock_jump(context) is not None:
        # Against the machine's clock, which is all that a process has when it starts.
        await accept_jump(context.db, context.clock.offset_ms, actor=actor.name)
        await context.clock.measure()


async def list_nodes(context: Context, request: Request) -> Response:
    """Every process there is."""
    del request
    return json_answer(NodesOut([node_out(node) for node in await nodes(context.db)]))


def node_out(node: Node) -> NodeOut:
    """A process as it is shown."""
    return NodeOut(
        node=node.node,
        role=node.role,
        version=node.version,
        started=format_time(node.started_ms),
        heartbeat=format_time(node.heartbeat_ms),
        alive=node.is_alive,
        leads=node.leads,
        clock_jump_ms=node.clock_jump_ms,
    )


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/wheel/accept-jump",
        handler=accept_clock_jump,
        name="acceptClockJump",
        scope="operate",
        summary="Accept a jump of the database's clock",
        text="While the clock is ahead by more than CLOCK_JUMP_MAX nothing is closed or called. "
        "This says that it is right: what is due by it is called now. Safe to repeat; does nothing "
        "where nothing has jumped.",
        answers={200: Answer(text="It goes on within two seconds", body=JumpStateOut)},
        problems=("overloaded",),
    ),
    Operation(
        method="GET",
        path="/v1/nodes",
        handler=list_nodes,
        name="listNodes",
        scope="read",
        summary="The daemons and brokers",
        answers={200: Answer(text="The nodes", body=NodesOut)},
        problems=("overloaded",),
    ),
)
