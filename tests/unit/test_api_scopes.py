"""Scopes against routes: made from the list of operations, so that no route is forgotten."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response

from broker.api import clock
from broker.api.actor import SCOPES, Actor, Scope
from broker.api.app import OPERATIONS, Api, Served
from broker.api.openapi import document
from broker.api.operation import Described
from broker.api.pages import DESCRIBED
from tests.fix_asgi import call

# As under --test-clock.
ALL: tuple[Described, ...] = (*OPERATIONS, *clock.OPERATIONS, *DESCRIBED)
OPEN = {
    "getHealth",
    "getReadiness",
    "getOpenapi",
    "getDocs",
    "listProblems",
    "getProblem",
}


async def _answered(_: Request) -> Response:
    return Response(status_code=204)


async def _status(operation: Described, actor: Actor, biz_type: str = "orders") -> int:
    async def check(*_: object) -> Actor:
        return actor

    served = [Served(o.method, o.path, o.scopes, _answered) for o in ALL]
    path = operation.path.replace("{biz_type}", biz_type)
    for name in ("task_id", "biz_id", "name", "key_id", "operation_id"):
        path = path.replace(f"{{{name}}}", "x")
    assert "{" not in path
    return (await call(Api(served, check), operation.method, path))[0]


def test_only_these_are_open() -> None:
    assert {operation.name for operation in ALL if not operation.scopes} == OPEN


def test_what_needs_a_scope_lies_where_a_key_is_asked_for() -> None:
    for operation in ALL:
        if operation.scopes:
            assert operation.path.startswith("/v1/") or operation.path == "/metrics"


def test_what_changes_something_is_not_for_readers() -> None:
    for operation in ALL:
        if operation.method != "GET":
            assert "read" not in operation.scopes, operation.name


@pytest.mark.parametrize("operation", ALL, ids=lambda o: f"{o.method} {o.path}")
async def test_each_route_asks_for_its_scope(operation: Described) -> None:
    for scope in SCOPES:
        expected = 204 if not operation.scopes or scope in operation.scopes else 403
        assert await _status(operation, Actor("key:1", frozenset({scope}))) == expected
    assert await _status(operation, Actor("key:1", frozenset(SCOPES))) == 204


@pytest.mark.parametrize(
    "operation", [o for o in ALL if "{biz_type}" in o.path], ids=lambda o: f"{o.method} {o.path}"
)
async def test_a_foreign_biz_type_in_the_path_is_not_there(operation: Described) -> None:
    actor = Actor("key:1", frozenset(SCOPES), ("orders.*", "refunds"))
    assert await _status(operation, actor, "orders.close") == 204
    assert await _status(operation, actor, "refunds") == 204
    for foreign in ("orders", "refunds.x", "Orders.x", "payments", "%6frders", "orders%2e"):
        expected = 204 if foreign == "orders%2e" else 404
        assert await _status(operation, actor, foreign) == expected
    lacks: frozenset[Scope] = frozenset(SCOPES) - set(operation.scopes)
    assert await _status(operation, Actor("key:1", lacks, ("orders.*",)), "payments") == 403


def test_the_document_says_which_scope() -> None:
    described = document(ALL)
    for operation in ALL:
        security = described["paths"][operation.path][operation.method.lower()]["security"]
        if operation.scopes:
            assert security == [{}, *({"key": [scope]} for scope in operation.scopes)]
        else:
            assert security == []
