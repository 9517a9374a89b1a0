"""GET /v1/forecast: right where it does not say that it estimates, and within its budget."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from broker import forecast as forecasts
from broker.api.context import Context
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands
from tests.integration.api.conftest import client_of
from wheel_timer.database import Database
from wheel_timer.store import forecast as store
from wheel_timer.store.change import Change, change
from wheel_timer.store.forecast import quarters, within_laps
from wheel_timer.store.ledger import fold
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask
from wheel_timer.wheel import LAP_S, new_task_id

LAP_MS = LAP_S * 1000
# Ten minutes and a bit before the ring's end, which lies in the middle of a quarter hour.
NOW_MS = 1_800_000_000_000 + LAP_MS - 610_500
ADMIN_KEY = "correct horse battery staple"


@pytest.fixture(autouse=True)
def _looks_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is asked each time, and what changed is read again at once."""
    monkeypatch.setattr(forecasts, "BUDGET_SHARE", 1e9)
    monkeypatch.setattr(forecasts, "CHANGED_AGAIN_S", 0.0)
    monkeypatch.setattr(forecasts, "PRESENT_AGAIN_S", 0.0)
    monkeypatch.setattr(forecasts, "LOOK_MS", 5_000.0)


@pytest.fixture
async def at_now(context: Context, clock: DatabaseClock) -> None:
    clock.freeze(NOW_MS)
    await context.clock.measure()


async def put_tasks(db: Database, moments_ms: list[int], biz_type: str = "orders") -> list[NewTask]:
    tasks = [NewTask(new_task_id(at), at, biz_type) for at in moments_ms]
    for begin in range(0, len(tasks), 1_000):
        await submit(db, 0, tasks[begin : begin + 1_000])
    return tasks


async def forecast(client: httpx.AsyncClient, query: str = "") -> dict[str, Any]:
    answer = await client.get(f"/v1/forecast{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["tasks"] == sum(bucket["tasks"] for bucket in found["buckets"])
    return found


def held(found: dict[str, Any]) -> dict[int, int]:
    """Tasks by minutes from the present one, where there are some."""
    return {n: bucket["tasks"] for n, bucket in enumerate(found["buckets"]) if bucket["tasks"]}


@pytest.mark.usefixtures("at_now")
async def test_each_minute_is_counted_also_over_the_rings_end(
    client: httpx.AsyncClient, orders: str, db: Database
) -> None:
    minute_ms = NOW_MS // 60_000 * 60_000
    await put_tasks(db, [NOW_MS - 200, NOW_MS + 100, NOW_MS + 200])
    await put_tasks(db, [minute_ms + 60_000 * n + 7 for n in (1, 10, 10, 11, 30, 1_439, 1_500)])
    # Of another lap, in the same slots; and what is not to be called any more.
    await put_tasks(db, [minute_ms + 60_000 * 10 + 7 + LAP_MS])
    (gone,) = await put_tasks(db, [minute_ms + 60_000 * 12])
    await change(db, [Change(gone.task_id, "cancel")])
    found = await forecast(client)
    assert held(found) == {0: 2, 1: 1, 10: 2, 11: 1, 30: 1, 1_439: 1}
    assert not found["estimated"]
    assert found["buckets"][0]["start"] == "2027-05-11T01:36:00.000Z"
    assert {bucket["limit"] for bucket in found["buckets"]} == {None}
    assert held(await forecast(client, "?hours=1")) == {0: 2, 1: 1, 10: 2, 11: 1, 30: 1}


@pytest.mark.usefixtures("at_now")
async def test_what_changes_is_read_again(
    client: httpx.AsyncClient, orders: str, db: Database
) -> None:
    at_ms = NOW_MS // 60_000 * 60_000 + 60 * 60_000
    first, *_ = await put_tasks(db, [at_ms, at_ms + 60_000])
    assert held(await forecast(client)) == {60: 1, 61: 1}
    await put_tasks(db, [at_ms + 120_000] * 3)
    assert held(await forecast(client)) == {60: 1, 61: 1, 62: 3}
    await change(db, [Change(first.task_id, "cancel")])
    assert held(await forecast(client)) == {61: 1, 62: 3}


@pytest.mark.usefixtures("at_now")
async def test_a_second_with_more_than_the_limit_is_hot(
    client: httpx.AsyncClient, orders: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "PIECE_ROWS_MAX", 50)  # a hot second lies in several pieces
    for name in ("refunds", "free"):
        await client.put(f"/v1/biz/{name}", json={"callback_url": "http://127.0.0.1:9/"})
    await client.patch("/v1/biz/orders", json={"rate_limit": 10})
    await client.patch("/v1/biz/refunds", json={"rate_limit": 0.5, "burst": 40})
    at_ms = NOW_MS // 60_000 * 60_000 + 3_600_000
    await put_tasks(db, [at_ms + n for n in range(10)])
    await put_tasks(db, [at_ms + 1_000 + n for n in range(211)])
    await put_tasks(db, [at_ms + 2_000] * 40 + [at_ms + 3_000] * 41, "refunds")
    await put_tasks(db, [at_ms + 3_000] * 1_000, "free")
    found = await forecast(client)
    assert [(h["biz_type"], h["start"], h["tasks"], h["limit"]) for h in found["hot_seconds"]] == [
        ("orders", "2027-05-11T02:36:01.000Z", 211, 10.0),
        ("refunds", "2027-05-11T02:36:03.000Z", 41, 0.5),
    ]
    own = await forecast(client, "?biz_type=orders")
    assert (held(own), own["buckets"][0]["limit"]) == ({60: 221}, 600.0)
    assert found["buckets"][0]["limit"] is None
    await client.patch("/v1/biz/orders", json={"rate_limit": 5})
    lower = await forecast(client, "?biz_type=orders")
    assert [hot["tasks"] for hot in lower["hot_seconds"]] == [10, 211]


@pytest.mark.usefixtures("at_now")
async def test_what_was_not_read_is_spread_over_its_quarter_and_says_so(
    client: httpx.AsyncClient, orders: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarter_ms = NOW_MS // 900_000 * 900_000 + 3_600_000
    await put_tasks(db, [quarter_ms + 60_000 * 14] * 31)
    monkeypatch.setattr(forecasts, "LOOK_MS", 0.0)
    found = await forecast(client)
    first = next(iter(held(found)))
    assert list(held(found).values()) == [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]
    assert found["buckets"][first]["start"] == "2027-05-11T02:30:00.000Z"
    assert found["estimated"]
    assert sum(bucket["estimated"] for bucket in found["buckets"]) == 15
    monkeypatch.setattr(forecasts, "LOOK_MS", 5_000.0)
    read = await forecast(client)
    assert (held(read), read["estimated"]) == ({first + 14: 31}, False)
    # In its shape, as long as it may not be read again.
    monkeypatch.setattr(forecasts, "CHANGED_AGAIN_S", 60.0)
    await put_tasks(db, [quarter_ms])
    later = await forecast(client)
    assert (held(later), later["estimated"]) == ({first + 14: 32}, True)


@pytest.mark.usefixtures("at_now")
async def test_who_asks_meanwhile_takes_nothing_from_under_a_reader(
    client: httpx.AsyncClient, orders: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    minute_ms = NOW_MS // 60_000 * 60_000
    near, *_ = await put_tasks(db, [minute_ms + 3_600_000, minute_ms + 20 * 3_600_000])
    read_piece = store.piece
    asked: list[dict[str, Any]] = []

    async def disturbed(*given: Any) -> store.Piece:
        if not asked:
            asked.append({})
            await change(db, [Change(near.task_id, "cancel")])
            asked[0] = await forecast(client, "?hours=2")
        return await read_piece(*given)

    monkeypatch.setattr(store, "piece", disturbed)
    found = await forecast(client)
    assert held(asked[0]) == {}
    assert (held(found), found["estimated"]) == ({20 * 60: 1}, False)
    # What is known of the later hours is not forgotten for one who asks for few.
    monkeypatch.setattr(forecasts, "LOOK_MS", 0.0)
    await forecast(client, "?hours=1")
    later = await forecast(client)
    assert (held(later), later["estimated"]) == ({20 * 60: 1}, False)


@pytest.mark.usefixtures("at_now")
async def test_a_look_reads_no_more_than_its_budget(
    context: Context, orders: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "BUDGET_MS_MAX", 0.0)
    await put_tasks(db, [NOW_MS + 7_200_000])
    async with client_of(context) as http:
        found = await forecast(http)
    assert (found["tasks"], found["estimated"]) == (1, True)


@pytest.mark.usefixtures("at_now")
async def test_a_narrowed_key_sees_its_own(context: Context, db: Database) -> None:
    async with client_of(context, admin_key=ADMIN_KEY) as http:
        http.headers["authorization"] = f"Bearer {ADMIN_KEY}"
        for name in ("orders.close", "orders.pay", "payments"):
            await http.put(f"/v1/biz/{name}", json={"callback_url": "http://127.0.0.1:9/"})
            await put_tasks(db, [NOW_MS + 7_200_000] * 1_100, name)
        body = {"name": "shop", "scopes": ["read"], "biz_types": ["orders.*"]}
        made = (await http.post("/v1/keys", json=body)).json()
        assert (await forecast(http))["tasks"] == 3_300
        http.headers["authorization"] = f"Bearer {made['key']}"
        found = await forecast(http)
        assert found["tasks"] == 2_200
        assert {h["biz_type"] for h in found["hot_seconds"]} == {"orders.close", "orders.pay"}
        assert (await forecast(http, "?biz_type=orders.pay"))["tasks"] == 1_100
        assert (await http.get("/v1/forecast?biz_type=payments")).status_code == 404
        assert (await http.get("/v1/forecast?biz_type=orders.none")).status_code == 404


async def test_hours_are_a_number_in_bounds(client: httpx.AsyncClient) -> None:
    for text in ("0", "73", "1.5", "-1", "", "x", "9" * 400, "%C2%B2"):
        assert (await client.get(f"/v1/forecast?hours={text}")).status_code == 422
    assert len((await forecast(client, "?hours=72"))["buckets"]) in (4_320, 4_321)
    assert (await client.get("/v1/forecast?biz_type=A")).status_code == 422


async def test_the_sum_of_all_biz_types_is_kept_by_the_fold(
    hands: Hands, db: Database, clock: DatabaseClock
) -> None:
    at_ms = clock.now_ms() // 900_000 * 900_000 + 7_200_000
    span = at_ms - 900_000, at_ms + 1_800_000
    tasks = await put_tasks(db, [at_ms, at_ms + 1, at_ms + 900_000])
    await put_tasks(db, [at_ms], "refunds")
    for expected in ({at_ms: 3, at_ms + 900_000: 1}, {at_ms: 2, at_ms + 900_000: 1}):
        for _ in range(2):
            assert await quarters(db, None, *span) == expected
            assert await quarters(db, ["orders", "refunds"], *span) == expected
            await fold(db, hands.leader.epoch, 1_000)
        await change(db, [Change(tasks[0].task_id, "cancel")])
    assert await quarters(db, ["refunds"], *span) == {at_ms: 1}


def test_a_span_is_cut_at_the_rings_end() -> None:
    end_ms = 180 * LAP_MS
    assert within_laps(end_ms - 5, end_ms + 7) == [(end_ms - 5, end_ms), (end_ms, end_ms + 7)]
    assert within_laps(end_ms - 5, end_ms) == [(end_ms - 5, end_ms)]
    assert within_laps(end_ms, end_ms + 5) == [(end_ms, end_ms + 5)]
