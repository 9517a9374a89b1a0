"""One trace from the submit to the callback, and nothing of it while traces are off."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from broker import tracing
from broker.api.context import Context
from tests.fix_delivery import CLUSTER, Delivery
from tests.fix_endpoint import Answer, Endpoint
from wheel_timer.eventcenter import EventCenter
from wheel_timer.settings import Settings

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{TRACE}-00f067aa0ba902b7-01"
SECRET = "payload and header that nobody may see"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What is sent, while traces are on."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    yield exporter
    tracing.use(None)
    provider.shutdown()


class Stuck(InMemorySpanExporter):
    """One that cannot end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stopping = threading.Event()
        self.is_over = threading.Event()

    def shutdown(self) -> None:
        self.is_stopping.set()
        self.is_over.wait()


def id_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return f"{context.span_id:016x}"


def by_name(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def parent_of(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


async def submit(client: httpx.AsyncClient, traceparent: str | None) -> str:
    """A task that is due, with what no span may show; its id."""
    body = {"biz_type": "orders", "delay": 0, "biz_data": SECRET}
    headers = {} if traceparent is None else {"traceparent": traceparent}
    answer = await client.post("/v1/tasks", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["task_id"])


@pytest_asyncio.fixture
async def event_center(settings: Settings) -> AsyncIterator[EventCenter]:
    """The API's, with the lanes of `delivery`."""
    center = EventCenter(
        settings.redis_url, prefix=settings.redis_prefix, consumer="api", cluster_id=CLUSTER
    )
    yield center
    await center.close()


@pytest_asyncio.fixture
async def calling(client: httpx.AsyncClient, endpoint: Endpoint, delivery: Delivery) -> Endpoint:
    """orders calls this endpoint, with a header that no span may show."""
    body: dict[str, Any] = {"callback_url": endpoint.url, "retry": {"ladder": [0.1]}}
    body["callback_headers"] = {"x-secret": SECRET}
    assert (await client.put("/v1/biz/orders", json=body)).status_code == 200
    await delivery.registry.refresh()
    return endpoint


async def test_one_trace_goes_from_the_submit_to_each_callback(
    client: httpx.AsyncClient,
    calling: Endpoint,
    delivery: Delivery,
    spans: InMemorySpanExporter,
) -> None:
    calling.script = lambda request: Answer(status=500 if request.attempt == 1 else 200)
    task_id = await submit(client, GIVEN)
    await calling.wait_for(2)
    await delivery.until(lambda: len(by_name(spans, "callback")) == 2)
    (taken,) = by_name(spans, "submit")
    calls = by_name(spans, "callback")
    for span in (taken, *calls):
        context = span.get_span_context()
        assert context is not None
        assert f"{context.trace_id:032x}" == TRACE
        attributes = dict(span.attributes or {})
        assert attributes["wheel_timer.task_id"] == task_id
        assert attributes["wheel_timer.biz_type"] == "orders"
        assert SECRET not in span.to_json()
    assert parent_of(taken) == "00f067aa0ba902b7"
    assert [parent_of(call) for call in calls] == [id_of(taken)] * 2
    told = [dict(call.attributes or {}) for call in calls]
    assert [one["wheel_timer.outcome"] for one in told] == ["retry", "finished"]
    assert [one["wheel_timer.attempt"] for one in told] == [1, 2]
    assert [one["http.response.status_code"] for one in told] == [500, 200]
    assert [call.status.is_ok for call in calls] == [False, True]
    assert all(isinstance(one["wheel_timer.lateness_ms"], float) for one in told)
    assert [event.name for event in calls[0].events] == ["published"]
    # The receiver's own spans follow on each attempt.
    heard = [request.headers["traceparent"] for request in calling.received]
    assert heard == [f"00-{TRACE}-{id_of(call)}-01" for call in calls]


async def test_without_one_of_the_callers_the_submit_begins_a_trace(
    client: httpx.AsyncClient,
    calling: Endpoint,
    delivery: Delivery,
    spans: InMemorySpanExporter,
) -> None:
    for given in (None, "00-zz", f"00-{'0' * 32}-00f067aa0ba902b7-01"):
        await submit(client, given)
    await delivery.until(lambda: len(by_name(spans, "callback")) == 3)
    begun = {id_of(span): parent_of(span) for span in by_name(spans, "submit")}
    assert set(begun.values()) == {""}
    assert {parent_of(span) for span in by_name(spans, "callback")} == begun.keys()


async def test_off_the_callers_goes_on_as_it_came(
    client: httpx.AsyncClient, calling: Endpoint, delivery: Delivery
) -> None:
    await submit(client, GIVEN)
    await submit(client, f"ff-{TRACE}-00f067aa0ba902b7-01")
    await calling.wait_for(2)
    heard = [request.headers.get("traceparent") for request in calling.received]
    assert sorted(heard, key=str) == [GIVEN, None]


async def test_a_refused_submit_tells_its_kind_and_not_its_words(
    client: httpx.AsyncClient, orders: str, spans: InMemorySpanExporter, context: Context
) -> None:
    body = {"biz_type": SECRET, "delay": 1}
    assert (await client.post("/v1/tasks", json=body)).status_code == 422
    many = {"tasks": [{"biz_type": "orders", "delay": 3600}] * 3}
    assert (await client.post("/v1/tasks/batch", json=many)).status_code == 200
    refused, batch = by_name(spans, "submit")
    assert not refused.status.is_ok
    assert SECRET not in refused.to_json()
    assert dict(batch.attributes or {})["wheel_timer.tasks"] == 3
    with psycopg.connect(context.settings.database_url) as connection:
        stored = connection.execute("SELECT DISTINCT traceparent FROM timer_task").fetchall()
    assert [row[0].split("-")[2] for row in stored] == [id_of(batch)]


@pytest.mark.parametrize(
    ("environ", "is_wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_they_are_on_only_where_the_environment_asks(
    environ: dict[str, str], is_wanted: bool
) -> None:
    assert tracing.is_wanted(environ) is is_wanted


async def test_a_collector_that_is_away_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FLUSH_S", 0.1)
    exporter = Stuck()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(provider)
    await tracing.stop()
    assert exporter.is_stopping.is_set()
    exporter.is_over.set()
    await tracing.stop()
