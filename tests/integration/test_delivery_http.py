"""What goes over the wire in a callback, and what a receiver can do to us: no database needed."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from standardwebhooks import Webhook

from broker.attempt import BODY_BYTES_MAX, HELD_UP, attempt
from broker.deadlines import Deadlines
from broker.guard import Guard
from broker.listening import INTERIM_ANSWERS_MAX
from broker.outcome import Answer as Outcome
from broker.outward import DIRECT, Outward
from broker.terms import TermsOf
from broker.transport import CallbackRequest, CallbackTransport
from tests.fix_endpoint import Answer, Endpoint
from wheel_timer.biz import BizType
from wheel_timer.monotonic import monotonic_s
from wheel_timer.task import Claim
from wheel_timer.version import __version__
from wheel_timer.wheel import new_task_id

START_MS = 1_800_000_000_123  # 2027-01-15T08:00:00.123Z
NOW_MS = START_MS + 900.0
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
OLD_SECRET = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
TASK_ID = new_task_id(START_MS)


def a_claim(**given: Any) -> Claim:
    claim = Claim(
        task_id=TASK_ID,
        start_time_ms=START_MS,
        biz_type="orders",
        biz_id=None,
        attempt=1,
        failures=0,
        revision=1,
        life=1,
        stop=False,
        lease_until_ms=START_MS + 15_000,
        create_time_ms=START_MS - 60_000,
        first_attempt_ms=START_MS,
        biz_data=None,
        content_type=None,
        callback=None,
        retry=None,
        max_age_ms=None,
        schedule_id=None,
        traceparent=None,
        was_lost=False,
    )
    return claim._replace(**given)


class Caller:
    """Makes single attempts."""

    def __init__(self, guard: Guard, outward: Outward = DIRECT) -> None:
        self.transport = CallbackTransport(guard, outward)
        self._deadlines = Deadlines()

    async def __call__(self, url: str, claim: Claim | None = None, **given: Any) -> Outcome:
        fields = {"biz_type": "orders", "version": 1, "callback_url": url} | given
        biz = msgspec.convert(fields, BizType)
        claim = claim or a_claim()
        terms = TermsOf(biz).of(claim.callback, claim.retry)
        now_s = monotonic_s()
        return await attempt(self.transport, self._deadlines, claim, terms, NOW_MS, now_s)


@pytest_asyncio.fixture
async def call() -> AsyncIterator[Caller]:
    """Calls whatever it is told to, as a keyless server does."""
    caller = Caller(Guard((), (), is_keyless=True))
    yield caller
    await caller.transport.aclose()


# -- the request ----------------------------------------------------------------------------------


async def test_the_bytes_on_the_wire_are_these(call: Caller, endpoint: Endpoint) -> None:
    claim = a_claim(
        biz_data='{"price": "5 €"} '.encode(),
        biz_id="order 7/ü%",
        attempt=3,
        failures=1,
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    )
    await call(
        endpoint.url + "?a=b%2Fc",
        claim,
        callback_headers={"x-shop": "7"},
        secrets=[{"value": SECRET}],
    )
    (received,) = endpoint.received
    signature = received.headers["webhook-signature"]
    expected = (
        "POST /callback?a=b%2Fc HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{endpoint.port}\r\n"
        f"user-agent: wheel-timer/{__version__}\r\n"
        "wheel-timer-biz-type: orders\r\n"
        "x-shop: 7\r\n"
        f"webhook-id: {TASK_ID}\r\n"
        "webhook-timestamp: 1800000001\r\n"
        "wheel-timer-start-time: 2027-01-15T08:00:00.123Z\r\n"
        "wheel-timer-attempt: 3\r\n"
        "wheel-timer-last-attempt: false\r\n"
        "wheel-timer-life: 1\r\n"
        "content-type: application/json\r\n"
        "wheel-timer-biz-id: order%207/%C3%BC%25\r\n"
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
        f"webhook-signature: {signature}\r\n"
        "Content-Length: 19\r\n"
    )
    assert received.head.decode() == expected
    assert received.body == claim.biz_data


async def test_without_data_there_is_an_empty_body_and_no_content_type(
    call: Caller, endpoint: Endpoint
) -> None:
    await call(endpoint.url)
    (received,) = endpoint.received
    assert received.body == b""
    assert "content-type" not in received.headers
    assert received.headers["content-length"] == "0"


@pytest.mark.parametrize("secret", [SECRET, OLD_SECRET])
async def test_each_secret_verifies_the_signature(
    call: Caller, endpoint: Endpoint, secret: str
) -> None:
    body = b' {"b":1,\n "a": "\xc3\xbc"}'
    now_ms = time.time() * 1000
    fields = {"biz_type": "orders", "version": 1, "callback_url": endpoint.url}
    biz = msgspec.convert(fields | {"secrets": [{"value": SECRET}, {"value": OLD_SECRET}]}, BizType)
    terms = TermsOf(biz).of(None, None)
    claim = a_claim(biz_data=body)
    await attempt(call.transport, Deadlines(), claim, terms, now_ms, monotonic_s())
    (received,) = endpoint.received
    assert received.body == body
    Webhook(secret).verify(received.body, received.headers, json_parse=False)


async def test_a_later_life_has_an_id_of_its_own(call: Caller, endpoint: Endpoint) -> None:
    await call(endpoint.url, a_claim(life=3))
    (received,) = endpoint.received
    assert received.webhook_id == f"{TASK_ID}-r3"
    assert received.headers["wheel-timer-life"] == "3"


async def test_the_last_attempt_says_so(call: Caller, endpoint: Endpoint) -> None:
    await call(endpoint.url, a_claim(failures=15))
    assert endpoint.received[0].headers["wheel-timer-last-attempt"] == "true"


async def test_a_tasks_own_callback_is_called_in_place_of_the_biz_types(
    call: Caller, endpoint: Endpoint
) -> None:
    own = {"url": endpoint.url + "/own", "method": "PUT", "headers": {"X-Own": "1"}}
    claim = a_claim(callback=msgspec.json.encode(own).decode(), biz_data=b"x", content_type="a/b")
    await call(
        "http://biz.invalid/",
        claim,
        allow_callback_override=True,
        callback_headers={"authorization": "Bearer of-the-biz-type"},
    )
    (received,) = endpoint.received
    assert received.request_line == "PUT /callback/own HTTP/1.1"
    assert received.headers["x-own"] == "1"
    assert received.headers["content-type"] == "a/b"
    # The biz_type's credentials go to its own origin only.
    assert "authorization" not in received.headers


async def test_a_tasks_own_callback_at_the_biz_types_origin_keeps_its_headers(
    call: Caller, endpoint: Endpoint
) -> None:
    own = {"url": endpoint.url + "/own"}
    claim = a_claim(callback=msgspec.json.encode(own).decode())
    headers = {"authorization": "Bearer of-the-biz-type"}
    await call(endpoint.url, claim, allow_callback_override=True, callback_headers=headers)
    assert endpoint.received[0].headers["authorization"] == "Bearer of-the-biz-type"


async def test_a_tasks_own_callback_that_is_not_allowed_any_more_is_not_called(
    call: Caller, endpoint: Endpoint
) -> None:
    own = msgspec.json.encode({"url": endpoint.url}).decode()
    answer = await call(endpoint.url, a_claim(callback=own), allow_callback_override=False)
    assert (answer.status, answer.error_class, endpoint.received) == (None, "refused", [])


@pytest.mark.parametrize("evil", ["a/b\r\nx-evil: 1", "a/b\nx-evil: 1", "a/b\x00"])
async def test_no_header_can_be_smuggled_in(call: Caller, endpoint: Endpoint, evil: str) -> None:
    answer = await call(endpoint.url, a_claim(biz_data=b"x", content_type=evil))
    assert answer.status is None
    assert endpoint.received == []


async def test_a_request_shows_httpx_its_headers_and_body() -> None:
    url = httpx.URL("http://a.example/b")
    request = CallbackRequest("POST", url, [("x-a", "1")], b"body")
    assert request.headers["x-a"] == "1"
    assert request.content == b"body"


async def test_the_time_a_header_says_is_the_tasks(call: Caller, endpoint: Endpoint) -> None:
    await call(endpoint.url)
    said = datetime.fromisoformat(endpoint.received[0].start_time)
    assert said.astimezone(UTC).timestamp() == START_MS / 1000


# -- the answer -----------------------------------------------------------------------------------


async def test_a_connection_is_kept_for_the_next_call(call: Caller, endpoint: Endpoint) -> None:
    endpoint.answer = Answer(200, body=b"thanks" * 100)
    for _ in range(5):
        assert (await call(endpoint.url)).status == 200
    assert endpoint.connections == 1


async def test_a_redirect_is_not_followed(call: Caller, endpoint: Endpoint) -> None:
    endpoint.answer = Answer(307, headers=(("location", endpoint.url + "/elsewhere"),))
    assert (await call(endpoint.url)).status == 307
    assert len(endpoint.received) == 1


async def test_what_counts_of_an_answer_is_kept(call: Caller, endpoint: Endpoint) -> None:
    endpoint.answer = Answer(
        429, headers=(("Retry-After", "7"),), body="später\x00\n\x1b[31m".encode() + b"x" * 400
    )
    answer = await call(endpoint.url)
    assert (answer.status, answer.retry_after, answer.remote_address) == (429, "7", "127.0.0.1")
    assert answer.excerpt is not None
    assert answer.excerpt.startswith("später   [31mxxx")
    assert len(answer.excerpt.encode()) <= 256


async def test_the_deadline_is_one_for_the_whole_call(call: Caller, endpoint: Endpoint) -> None:
    endpoint.answer = Answer(fault="trickle", interval_s=0.02)
    begun_s = time.monotonic()
    answer = await call(endpoint.url, timeout=0.3)
    assert (answer.status, answer.error_class) == (None, "timeout")
    assert answer.error == "no complete answer within 0.3 s"
    # The body would go on for hours.
    assert 0.3 <= time.monotonic() - begun_s < 5.0


async def test_silence_ends_at_the_deadline_and_frees_the_connection(
    call: Caller, endpoint: Endpoint
) -> None:
    endpoint.answer = Answer(fault="silence")
    assert (await call(endpoint.url, timeout=0.1)).error_class == "timeout"
    await gone(endpoint)


async def test_an_endless_body_is_cut_and_its_connection_dropped(
    call: Caller, endpoint: Endpoint
) -> None:
    endpoint.answer = Answer(fault="flood")
    answer = await call(endpoint.url)
    assert answer.status == 200
    await gone(endpoint)


async def test_a_long_body_is_read_no_further_than_it_counts(
    call: Caller, endpoint: Endpoint
) -> None:
    endpoint.answer = Answer(500, body=b"x" * (BODY_BYTES_MAX + 1))
    answer = await call(endpoint.url)
    assert (answer.status, answer.excerpt) == (500, "x" * 256)


@pytest.mark.parametrize(
    ("fault", "error_class"),
    [
        ("reset", "reset"),
        ("close", "reset"),
        ("garbage", "status"),
        ("endless-headers", "status"),
        ("endless-hints", "status"),
        ("endless-lines", "status"),
        ("endless-extensions", "reset"),
        ("half", "reset"),
    ],
)
async def test_a_receiver_that_breaks_the_protocol_fails_the_attempt(
    call: Caller, endpoint: Endpoint, fault: Any, error_class: str
) -> None:
    endpoint.answer = Answer(fault=fault)
    answer = await call(endpoint.url)
    assert (answer.status, answer.error_class) == (None, error_class)
    await gone(endpoint)


async def test_an_answer_may_come_after_some_hints(call: Caller, endpoint: Endpoint) -> None:
    endpoint.answer = Answer(200, hints=INTERIM_ANSWERS_MAX)
    for _ in range(2):  # they are counted for each request anew
        assert (await call(endpoint.url)).status == 200
    endpoint.answer = Answer(200, hints=INTERIM_ANSWERS_MAX + 1)
    assert (await call(endpoint.url)).error_class == "status"


async def test_a_kept_connection_that_was_just_closed_costs_no_attempt(
    call: Caller, endpoint: Endpoint
) -> None:
    await call(endpoint.url)
    faults = iter([Answer(fault="reset"), Answer(200)])
    endpoint.script = lambda _: next(faults)
    assert (await call(endpoint.url)).status == 200
    assert len(endpoint.received) == 3


async def test_what_was_sent_once_is_never_taken_for_not_sent(
    call: Caller, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept connection is closed unanswered, and for the other one it is too late then."""
    endpoint.answer = Answer(delay_s=0.1)
    await asyncio.gather(call(endpoint.url), call(endpoint.url))
    assert endpoint.connections == 2
    endpoint.answer = Answer(fault="reset")
    now_s = monotonic_s()
    moments_s = iter((now_s, now_s, now_s + 11))
    monkeypatch.setattr("broker.transport.monotonic_s", lambda: next(moments_s))
    answer = await call(endpoint.url)
    assert len(endpoint.received) == 3
    assert (answer.status, answer.error_class) == (None, "timeout")
    assert answer is not HELD_UP


async def test_a_closed_port_is_refused(call: Caller, endpoint: Endpoint) -> None:
    url = endpoint.url
    await endpoint.stop()
    answer = await call(url)
    await endpoint.start()
    assert (answer.status, answer.error_class) == (None, "refused")
    assert answer.error is not None
    assert "Connection refused" in answer.error
    assert answer.remote_address == "127.0.0.1"


async def test_a_name_that_does_not_exist_is_a_dns_error(call: Caller) -> None:
    answer = await call("http://does-not-exist.invalid/path?token=hidden")
    assert (answer.status, answer.error_class) == (None, "dns")
    assert answer.error is not None
    assert "hidden" not in answer.error


async def test_a_certificate_that_nobody_signed_is_a_tls_error(
    call: Caller, own_certificate: ssl.SSLContext
) -> None:
    endpoint = Endpoint()
    await endpoint.start(tls=own_certificate)
    answer = await call(endpoint.url)
    await endpoint.stop()
    assert (answer.status, answer.error_class) == (None, "tls")
    assert endpoint.received == []


async def test_what_is_connected_too_late_is_not_sent(
    call: Caller, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timer may have come to run since: a broker that was frozen goes on where it was."""
    moments_s = iter((monotonic_s(), monotonic_s() + 11))
    monkeypatch.setattr("broker.transport.monotonic_s", lambda: next(moments_s))
    answer = await call(endpoint.url)
    assert (answer.status, answer.error_class) == (None, "timeout")
    assert (endpoint.connections, endpoint.received) == (1, [])


@pytest.fixture
def own_certificate() -> ssl.SSLContext:
    """A server's TLS with a certificate for 127.0.0.1 that is signed by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).parent.parent / "own_certificate.pem")
    return context


async def gone(endpoint: Endpoint) -> None:
    """Wait until the endpoint has no open connection."""
    async with asyncio.timeout(5):
        await endpoint.all_closed.wait()
