"""Schedules of a biz_type whose tasks workers reserve."""

from __future__ import annotations

import httpx

from tests.fix_audits import AuditsHold
from tests.fix_pull import reserved, said, shown

PATH = "/v1/biz/jobs/schedules/nightly"


async def test_workers_get_occurrences_and_none_beside_another(
    client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    """It needs no callback_url; overlap holds for what a worker has in hand, too."""
    body = {"cron": "0 3 1 1 *", "overlap": "skip", "biz_data": {"n": 1}}
    made = await client.put(PATH, json=body)
    assert made.status_code == 201, made.text
    first = (await client.post(f"{PATH}/run")).json()["task_id"]
    (task,) = await reserved(client)
    assert (task["task_id"], task["schedule_id"]) == (first, made.json()["schedule_id"])
    second = (await client.post(f"{PATH}/run")).json()["task_id"]
    assert await reserved(client, wait=0.5) == []
    passed_over = await shown(client, second)
    assert passed_over["status"] == "cancelled"
    assert passed_over["last_error"].startswith("skipped: another occurrence")
    # What was reserved once is a task like any other.
    assert (await said(client, "release", task, delay=0)).status_code == 200
    (again,) = await reserved(client)
    assert (await said(client, "finish", again)).status_code == 200
    third = (await client.post(f"{PATH}/run")).json()["task_id"]
    (task,) = await reserved(client)
    assert task["task_id"] == third
    assert (await said(client, "finish", task)).status_code == 200
    await audits_hold()
