"""The wheel now: its hands, its lanes, its processes; and what stops it or lets it go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from broker.api.brake import BrakeOut, brake_out, check_sees_all, reason_of
from broker.api.jump import (
    ClockJumpOut,
    NodeOut,
    accept,
    check_clock_is_his,
    clock_jump,
    jump_of,
    node_out,
)
from broker.api.wheel import LaneOut, ShardOut, lanes_out, shard_out
from broker.console.page import Page
from broker.console.pages.wheelcharts import Charts, charts
from broker.console.visit import Confirmation, Visit
from wheel_timer.errors import FieldError, InvalidTask
from wheel_timer.store import lanetime
from wheel_timer.store.lanetime import HeldTime
from wheel_timer.store.ledger import totals_now
from wheel_timer.store.node import nodes
from wheel_timer.store.wheel import shards

HERE: Final = "/console/wheel"
# A page is as large, and costs as much, with a thousand biz_types as with these.
LANES_MAX: Final = 15
HELD_MAX: Final = 200
# The id of the part that is fetched every few seconds; the charts move slowly.
NOW_PART: Final = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """
    What the page shows. lanes: those that hold back something, then those with the most pending
    tasks, of what `search` finds; lanes_all: of how many. held: for how long in the last hours,
    and mostly why. pending, dead: of all that the key sees. charts: None where only the
    part above them is fetched.
    """

    now_ms: int
    brake: BrakeOut | None
    clock_jump: ClockJumpOut | None
    shards: Sequence[ShardOut]
    nodes: Sequence[NodeOut]
    lanes: Sequence[LaneOut]
    held: Mapping[str, HeldTime]
    lanes_all: int
    search: str
    pending: int
    dead: int
    lag_ms: int
    may_stop: bool
    charts: Charts | None


async def show(visit: Visit) -> Response:
    """The page."""
    return visit.render("wheel.html", await _wheel(visit))


async def _wheel(visit: Visit) -> Wheel:
    context, actor = visit.context, visit.actor
    search = visit.query.get("search", "").strip().lower()
    found = await shards(context.db)
    now_ms = found[0].now_ms if found else int(context.clock.now_ms())
    processes = await nodes(context.db)
    totals = {n: one for n, one in (await totals_now(context.db)).items() if actor.sees(n)}
    seen = [name for name in context.registry.names() if actor.sees(name)]
    seen.sort(key=lambda name: (-totals[name].pending if name in totals else 0, name))
    held: dict[str, HeldTime] = {}
    for one in await lanetime.held(context.db, HELD_MAX):
        if actor.sees(one.biz_type):
            held.setdefault(one.biz_type, one)

    def holds(name: str) -> bool:
        biz = context.registry.get(name)
        is_held = name in held or (biz is not None and biz.paused)
        return is_held and name in totals and totals[name].pending > 0

    names = sorted((name for name in seen if search in name), key=lambda name: not holds(name))
    return Wheel(
        now_ms=now_ms,
        brake=brake_out(context.registry.brake),
        clock_jump=jump_of(context, processes),
        shards=[shard_out(shard) for shard in found],
        nodes=[node_out(node) for node in processes],
        lanes=await lanes_out(context, names[:LANES_MAX], totals, now_ms),
        held=held,
        lanes_all=len(names),
        search=search,
        pending=sum(one.pending for one in totals.values()),
        dead=sum(one.dead for one in totals.values()),
        lag_ms=max([shard.lag_ms for shard in found], default=0),
        may_stop=visit.may("operate") and not actor.is_narrowed,
        charts=None if visit.part == NOW_PART else await charts(visit, seen, now_ms),
    )


async def ask_pause(visit: Visit) -> Response:
    """The brake's reason is asked for; then whether it is meant."""
    check_sees_all(visit.actor)
    errors: list[FieldError] = []
    if "reason" in visit.query:
        try:
            return _confirm_pause(visit, reason_of(visit.query["reason"]))
        except InvalidTask as error:
            errors = error.errors
    return visit.render("pause.html", errors, 422 if errors else 200)


def _confirm_pause(visit: Visit, reason: str) -> Response:
    return visit.confirm(
        Confirmation(
            title="Stop all callbacks?",
            sentences=[
                "Within two seconds no new callback starts, of any biz_type. Calls under way end,"
                " and submits go on.",
                "What comes due meanwhile waits, over restarts too, and is called when the brake is"
                " taken off.",
            ],
            facts=[("Reason, for who finds it stopped", reason)],
            fields={"reason": reason},
            button="Stop all callbacks",
            back=HERE,
            is_danger=True,
        )
    )


async def pause(visit: Visit) -> Response:
    """Put the brake on."""
    check_sees_all(visit.actor)
    reason = reason_of(visit.form.get("reason", ""))
    await visit.context.registry.pull_brake(reason, actor=visit.actor.name)
    return visit.done(HERE, "The brake is on: nothing new is called.")


async def ask_resume(visit: Visit) -> Response:
    """Whether the brake is to come off."""
    check_sees_all(visit.actor)
    brake = brake_out(visit.context.registry.brake)
    facts = [] if brake is None else [("It was put on for", brake.reason), ("By", brake.actor)]
    return visit.confirm(
        Confirmation(
            title="Let callbacks go on?",
            sentences=["Within two seconds callbacks start again; what came due is called now."],
            facts=facts,
            button="Let them go on",
            back=HERE,
        )
    )


async def resume(visit: Visit) -> Response:
    """Take the brake off."""
    check_sees_all(visit.actor)
    await visit.context.registry.pull_brake(None, actor=visit.actor.name)
    return visit.done(HERE, "The brake is off: what came due is called now.")


async def ask_accept(visit: Visit) -> Response:
    """Whether the database's clock is right."""
    check_clock_is_his(visit.actor)
    jump = await clock_jump(visit.context)
    ahead = "not at all" if jump is None else f"{jump.ahead_ms / 1000:,.1f} s"
    return visit.confirm(
        Confirmation(
            title="Is the database's clock right?",
            sentences=[
                "It has jumped forward, and nothing is closed, called or deleted until somebody"
                " says that it is right.",
                "Say so only after looking at the clock of the database's machine: what is due by"
                " it is then called at once, and that cannot be taken back.",
            ],
            facts=[
                ("Ahead by", ahead),
                ("Found by", ", ".join(jump.nodes if jump else []) or "this broker"),
            ],
            button="It is right: go on by it",
            back=HERE,
            is_danger=True,
        )
    )


async def accept_jump(visit: Visit) -> Response:
    """Go on by the database's clock."""
    check_clock_is_his(visit.actor)
    await accept(visit.context, visit.actor)
    return visit.done(HERE, "The clock is accepted: it goes on within two seconds.")


PAGES: Final = (
    Page(path=HERE, scope="read", show=show, menu="Wheel"),
    Page(path=f"{HERE}/pause", scope="operate", show=ask_pause, act=pause),
    Page(path=f"{HERE}/resume", scope="operate", show=ask_resume, act=resume),
    Page(path=f"{HERE}/accept-jump", scope="operate", show=ask_accept, act=accept_jump),
)
