"""
OpenTelemetry traces, from the submit to the callback; an extra: `wheel-timer-server[otel]`.

    submit      server: one a request; child of the caller's traceparent, where it sent one
    callback    client: one an attempt; child of its submit. Its own context is the traceparent that
                the receiver gets, so the receiver's spans follow in the same trace

The task's row carries the submit's context over the wheel, however long that takes. When it was
published is an event of the attempt. Spans name tasks, never payloads, headers, URLs or texts from
outside.

Off, and without any cost but a comparison, unless the environment asks for it (is_wanted); what
goes where, and how much of it, say the standard variables: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, ... Off, the caller's traceparent is passed on as it came.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from wheel_timer.task import Claim, Ref
from wheel_timer.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer
    from starlette.requests import Request
    from starlette.responses import Response

    from broker.api.context import Context
    from broker.outcome import Answer, Outcome

    Handler = Callable[[Context, Request], Awaitable[Response]]

PREFIX: Final = "wheel_timer."
# What a broker that ends gives the collector for the last spans.
FLUSH_S: Final = 3.0
SERVER_ERROR: Final = 500
_ASKING: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SCOPE_KEY: Final = "wheel_timer.traceparent"

log = logging.getLogger(__name__)


class _State:
    """tracer: None where traces are off."""

    tracer: Tracer | None = None
    provider: TracerProvider | None = None


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether the standard variables ask for traces: an exporter or its endpoint is named."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").lower()
    return exporter == "otlp" or (exporter != "none" and any(environ.get(n) for n in _ASKING))


def set_up(environ: Mapping[str, str]) -> None:
    """Once at start: send spans, if that is asked for and the extra is installed."""
    if not is_wanted(environ):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        log.warning(
            "traces are asked for, and not installed: pip install 'wheel-timer-server[otel]'"
        )
        return
    given = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": "wheel-timer"}
    provider = TracerProvider(resource=Resource.create(given), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)
    log.info("traces are sent")


def use(provider: TracerProvider | None) -> None:
    """Make spans with this provider; None: none are made any more."""
    _State.provider = provider
    _State.tracer = None if provider is None else provider.get_tracer("wheel-timer", __version__)


async def stop() -> None:
    """Send what was not sent yet, for FLUSH_S at most: a collector may be away."""
    if _State.provider is not None:
        sending = threading.Thread(target=_State.provider.shutdown, name="traces", daemon=True)
        use(None)
        sending.start()
        await asyncio.to_thread(sending.join, FLUSH_S)


def submitting(handler: Handler) -> Handler:
    """A handler that takes tasks in, with a span of its own while traces are on."""

    @wraps(handler)
    async def traced(context: Context, request: Request) -> Response:
        if _State.tracer is None:
            return await handler(context, request)
        return await _traced(_State.tracer, handler, context, request)

    return traced


async def _traced(tracer: Tracer, handler: Handler, context: Context, request: Request) -> Response:
    from opentelemetry.trace import SpanKind

    parent = _context_of(request.headers.get("traceparent"))
    with tracer.start_as_current_span(
        "submit",
        context=parent,
        kind=SpanKind.SERVER,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        request.scope[_SCOPE_KEY] = _traceparent_of(span)
        try:
            response = await handler(context, request)
        except Exception as error:
            # Its text may quote what was sent.
            _failed(span, type(error).__name__)
            raise
        span.set_attribute("http.response.status_code", response.status_code)
        if response.status_code >= SERVER_ERROR:
            _failed(span, str(response.status_code))
        return response


def traceparent_of(request: Request) -> str | None:
    """What the tasks of a request that is traced carry; None: it is not."""
    found: str | None = request.scope.get(_SCOPE_KEY)
    return found


def note(**attributes: str | int | UUID) -> None:
    """Something of the present submit."""
    if _State.tracer is None:
        return
    from opentelemetry.trace import get_current_span

    for name, value in attributes.items():
        text = str(value) if isinstance(value, UUID) else value
        get_current_span().set_attribute(PREFIX + name, text)


class CallSpan:
    """The span of one attempt. claim: the same, with the traceparent that its receiver gets."""

    def __init__(self, tracer: Tracer, claim: Claim, ref: Ref, started_ms: float) -> None:
        from opentelemetry.trace import SpanKind

        due_ms = max(ref.moment_ms, claim.create_time_ms)
        self._span = tracer.start_span(
            "callback",
            context=_context_of(claim.traceparent),
            kind=SpanKind.CLIENT,
            attributes={
                PREFIX + "task_id": str(claim.task_id),
                PREFIX + "biz_type": claim.biz_type,
                PREFIX + "attempt": claim.attempt,
                PREFIX + "lateness_ms": round(started_ms - due_ms, 1),
            },
        )
        self._span.add_event("published", timestamp=ref.published_ms * 1_000_000)
        self.claim = claim._replace(traceparent=_traceparent_of(self._span))

    def end(self, outcome: Outcome, answer: Answer | None) -> None:
        """What came of it."""
        self._span.set_attribute(PREFIX + "outcome", type(outcome).__name__.lower())
        if answer is not None and answer.status is not None:
            self._span.set_attribute("http.response.status_code", answer.status)
        if answer is not None and answer.error_class is not None:
            _failed(self._span, answer.error_class)
        elif answer is not None and answer.status is not None and answer.status > 299:
            _failed(self._span, str(answer.status))
        self._span.end()


def calling(claim: Claim, ref: Ref, started_ms: float) -> CallSpan | None:
    """The span of an attempt that begins; None while traces are off."""
    if _State.tracer is None:
        return None
    return CallSpan(_State.tracer, claim, ref, started_ms)


def _context_of(traceparent: str | None) -> Any:
    """Where a span belongs; malformed ones count for none, as W3C Trace Context has it."""
    from opentelemetry.context import Context as TraceContext
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, context=TraceContext())


def _traceparent_of(span: Span) -> str:
    at = span.get_span_context()
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"


def _failed(span: Span, kind: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))
