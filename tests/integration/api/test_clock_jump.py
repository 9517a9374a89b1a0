"""A jump of the database's clock, as the API tells of it and as it is accepted."""

from __future__ import annotations

import time

import httpx
import psycopg

from broker.api.context import Context
from broker.changer import Changer, Wish
from broker.submission import Accepted, Submission
from broker.submitter import Submitter
from tests.fix_clock import DatabaseClock
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.store.change import Change
from wheel_timer.store.node import beat, nodes

HOUR_MS = 3_600_000


async def test_a_jump_is_told_and_accepted_once_and_recorded(
    client: httpx.AsyncClient, context: Context, clock: DatabaseClock, database_url: str
) -> None:
    assert (await client.get("/v1/wheel")).json()["clock_jump"] is None
    nothing = await client.post("/v1/wheel/accept-jump")
    assert (nothing.status_code, nothing.json()) == (200, {"clock_jump": None})
    clock.jump(HOUR_MS)
    await context.clock.measure()
    assert not context.clock.is_known()
    told = (await client.get("/v1/wheel")).json()["clock_jump"]
    assert HOUR_MS - 1_000 < told["ahead_ms"] <= HOUR_MS
    for _ in range(2):
        accepted = await client.post("/v1/wheel/accept-jump")
        assert (accepted.status_code, accepted.json()) == (200, {"clock_jump": None})
    assert context.clock.is_known()
    assert (await client.get("/v1/wheel")).json()["clock_jump"] is None
    # Who starts now has only its machine to compare with, which is an hour behind.
    late = Clock(context.db)
    await late.measure()
    assert late.is_known()
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT actor, action, object, (new ->> 'ahead_ms')::bigint FROM timer_change_view"
        ).fetchall()
    ((actor, action, object_, ahead_ms),) = rows
    assert (actor, action, object_) == ("local", "wheel.accept-jump", "wheel")
    assert abs(ahead_ms - HOUR_MS) < 1_000


async def test_a_broker_that_starts_after_a_jump_takes_submits_and_changes(
    context: Context, clock: DatabaseClock, db: Database
) -> None:
    """It calls nobody, and what it is sent is there."""
    clock.jump(HOUR_MS)
    late = Clock(db)
    await late.measure()
    assert not late.is_known()
    submitter = Submitter(db=db, event_center=context.event_center, clock=late)
    (soon,) = await submitter.submit([Submission("orders", None, delay_ms=500)])
    assert isinstance(soon, Accepted)
    assert abs(soon.start_time_ms - time.time() * 1000 - 500) < 1_000
    await submitter.stop()
    changer = Changer(db=db, event_center=context.event_center, clock=late)
    shift = Change(soon.task_id, "patch", "local", to_time_ms=0)
    granted = await changer.change(Wish(shift, delay_ms=60_000))
    assert granted.verdict == "changed" or granted.task is not None
    await changer.stop()


async def test_a_node_that_holds_back_alone_is_named_and_gets_its_consent(
    client: httpx.AsyncClient, db: Database
) -> None:
    """Its own machine's clock may be wrong; the broker that is asked sees nothing of it."""
    await beat(db, "daemon-a", "daemon", "1", HOUR_MS)
    await beat(db, "broker-b", "broker", "1", None)
    told = (await client.get("/v1/wheel")).json()["clock_jump"]
    assert told == {"ahead_ms": HOUR_MS, "nodes": ["daemon-a"]}
    listed = (await client.get("/v1/nodes")).json()["items"]
    facts = [(n["node"], n["role"], n["alive"], n["leads"], n["clock_jump_ms"]) for n in listed]
    assert facts == [
        ("broker-b", "broker", True, [], None),
        ("daemon-a", "daemon", True, [], HOUR_MS),
    ]
    before = await client.post("/v1/wheel/accept-jump")
    assert before.status_code == 200
    # It says so itself with its next heartbeat, not the API.
    assert [node.clock_jump_ms for node in await nodes(db)] == [None, HOUR_MS]
    await beat(db, "daemon-a", "daemon", "1", None)
    assert (await client.get("/v1/wheel")).json()["clock_jump"] is None
