"""A key that is narrowed to some biz_types finds nothing of the others, by whatever way it asks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest_asyncio

from broker.api import app
from broker.api.actor import SCOPES
from broker.api.context import Context
from broker.api.operation import Operation
from broker.api.pull import claim_text
from tests.integration.api.conftest import client_of
from wheel_timer.wheel import home_of

ADMIN = {"authorization": "Bearer correct horse battery staple"}
CALLBACK = {"callback_url": "http://a.example/callback", "allow_callback_override": True}
MARK = "payments"  # stands in everything that must not be seen


class Ground:
    """Two biz_types with a task each; `ours` may do everything to one of them."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.ours: dict[str, str] = {}
        self.tasks: dict[str, str] = {}
        self.operations: dict[str, str] = {}

    async def prepare(self) -> None:
        for name in ("orders.close", MARK):
            await self._admin("PUT", f"/v1/biz/{name}", CALLBACK)
            task = {"biz_type": name, "biz_id": f"{name}-1", "delay": 3600}
            self.tasks[name] = (await self._admin("POST", "/v1/tasks", task))["task_id"]
            wanted = {"action": "cancel", "filter": {"biz_type": name, "biz_id_prefix": "none"}}
            made = await self._admin("POST", "/v1/operations", wanted)
            self.operations[name] = made["operation_id"]
        body = {"name": "ours", "scopes": list(SCOPES), "biz_types": ["orders.*"]}
        key = (await self._admin("POST", "/v1/keys", body))["key"]
        self.ours = {"authorization": f"Bearer {key}"}

    async def _admin(self, method: str, path: str, body: dict[str, Any]) -> Any:
        answer = await self.http.request(method, path, json=body, headers=ADMIN)
        assert answer.is_success, answer.text
        return answer.json()

    async def everything(self) -> Any:
        """What the hidden biz_type and its task look like."""
        paths = (f"/v1/biz/{MARK}", f"/v1/tasks/{self.tasks[MARK]}", "/v1/keys")
        shown = [(await self.http.get(path, headers=ADMIN)).json() for path in paths]
        return [shown, (await self.http.get("/v1/wheel", headers=ADMIN)).json()["brake"]]


@pytest_asyncio.fixture
async def ground(context: Context) -> Ground:
    made = Ground(client_of(context, admin_key="correct horse battery staple"))
    await made.prepare()
    return made


def foreign_claims(ground: Ground) -> list[dict[str, str]]:
    """Made up by who knows the task's id: its own biz_type's, and as if it were one of ours."""
    task_id = UUID(ground.tasks[MARK])
    start_ms, _ = home_of(task_id)
    return [
        {"claim": claim_text(task_id, start_ms, 1, 1, biz_type)}
        for biz_type in (MARK, "orders.close")
    ]


def foreign_path(operation: Operation, ground: Ground) -> str:
    """The path of an operation, about what must not be seen."""
    return (
        operation.path.replace("{biz_type}", MARK)
        .replace("{task_id}", ground.tasks[MARK])
        .replace("{biz_id}", f"{MARK}-1")
        .replace("{operation_id}", ground.operations[MARK])
        .replace("{key_id}", uuid4().hex[:16])
    )


async def test_what_is_named_by_a_path_is_not_there(ground: Ground) -> None:
    """Every route with a task, biz_type, operation or key in its path, whoever adds one."""
    before = await ground.everything()
    for operation in app.OPERATIONS:
        if "{" not in operation.path:
            continue
        path = foreign_path(operation, ground)
        bodies: list[Any] = [None, {}, {"start_time": 2_000_000_000}, CALLBACK]
        bodies += foreign_claims(ground)
        statuses = {
            (
                await ground.http.request(operation.method, path, json=body, headers=ground.ours)
            ).status_code
            for body in bodies
        }
        # A body that is wrong in itself may be told of first; nothing else.
        assert 404 in statuses, f"{operation.name}: {statuses}"
        assert statuses <= {400, 404, 422}, f"{operation.name}: {statuses}"
    assert await ground.everything() == before


async def test_no_list_and_no_sum_tells_of_it(ground: Ground) -> None:
    for operation in app.OPERATIONS:
        if operation.method != "GET" or "{" in operation.path:
            continue
        # An export is of a day: of the one that the tasks are due on.
        day = datetime.now(UTC) + timedelta(hours=1)
        asked = {"day": f"{day:%Y-%m-%d}"} if operation.name == "exportTasks" else {}
        answer = await ground.http.get(operation.path, params=asked, headers=ground.ours)
        assert answer.status_code == 200, f"{operation.name}: {answer.text}"
        for hidden in (MARK, ground.tasks[MARK], ground.operations[MARK]):
            assert hidden not in answer.text, operation.name
        everything = await ground.http.get(operation.path, params=asked, headers=ADMIN)
        assert everything.status_code == 200
    listed = await ground.http.get("/v1/tasks", headers=ground.ours)
    assert [task["biz_type"] for task in listed.json()["items"]] == ["orders.close"]
    named = await ground.http.get(f"/v1/tasks?biz_type={MARK}", headers=ground.ours)
    assert named.status_code == 404
    assert MARK not in (await ground.http.get("/metrics", headers=ground.ours)).text


async def test_no_body_reaches_it(ground: Ground) -> None:
    before = await ground.everything()
    attempts: list[tuple[str, Any]] = [
        ("/v1/tasks", {"biz_type": MARK, "delay": 1}),
        ("/v1/tasks/batch", {"tasks": [{"biz_type": MARK, "delay": 1}]}),
        ("/v1/operations", {"action": "cancel", "filter": {"biz_type": MARK}}),
        ("/v1/apply", {"biz_types": {MARK: CALLBACK}}),
        ("/v1/wheel/pause", {"reason": "ours"}),
        ("/v1/wheel/resume", None),
    ]
    for path, body in attempts:
        answer = await ground.http.post(path, json=body, headers=ground.ours)
        if path == "/v1/tasks/batch":
            assert answer.json()["results"][0]["error"]["status"] == 404
        else:
            assert answer.status_code in (403, 404, 422), f"{path}: {answer.text}"
    everywhere = {"action": "cancel", "filter": {}, "all": True, "dry_run": True}
    dry = await ground.http.post("/v1/operations", json=everywhere, headers=ground.ours)
    assert dry.json()["matched"] == 1
    assert ground.tasks[MARK] not in dry.text
    assert await ground.everything() == before
