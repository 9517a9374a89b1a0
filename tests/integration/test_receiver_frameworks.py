"""The same receiver in Starlette, Flask and Django, called by what each has for tests."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from tests.unit.test_receiver import SECRET, Handler, callback
from wheel_timer.receiver import Gone, Receiver, Release, Timer


async def test_starlette() -> None:
    seen = []

    async def handler(timer: Timer) -> Release:
        seen.append(timer.json())
        return Release(60)

    app = Starlette(routes=[Route("/timers", Receiver(SECRET).asgi(handler), methods=["POST"])])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://orders") as client:
        headers, body = callback()
        answer = await client.post("/timers", content=body, headers=headers)
        assert (answer.status_code, answer.headers["wheel-timer-release"]) == (204, "60")
        assert seen == [{"order": 1017}]
        assert (await client.get("/timers")).status_code == 405
        assert (await client.post("/timers", content=b"x")).status_code == 400
        large = await client.post("/timers", content=b"x" * 1_048_577, headers=headers)
        assert large.status_code == 413


async def test_a_handler_that_raises_is_a_500_of_the_framework() -> None:
    handler = Handler(RuntimeError("secret of the house"))
    app = Starlette(routes=[Route("/timers", Receiver(SECRET).asgi(handler), methods=["POST"])])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://orders") as client:
        headers, body = callback()
        answer = await client.post("/timers", content=body, headers=headers)
        assert answer.status_code == 500
        handler.returns = None
        assert (await client.post("/timers", content=body, headers=headers)).status_code == 204


def test_flask() -> None:
    import flask

    handler = Handler()
    app = flask.Flask(__name__)
    receiver = Receiver(SECRET, body_bytes_max=100)
    app.add_url_rule("/timers", "timers", receiver.flask(handler), methods=["POST"])
    client = app.test_client()
    headers, body = callback()
    assert client.post("/timers", data=body, headers=headers).status_code == 204
    assert client.post("/timers", data=body, headers=headers).status_code == 200
    assert client.post("/timers", data=body + b" ", headers=headers).status_code == 401
    assert client.post("/timers", data=b"x" * 101, headers=headers).status_code == 413
    assert [timer.body for timer in handler.timers] == [body]


def test_flask_names_the_view_after_its_handler() -> None:
    import flask

    def close_order(timer: Timer) -> None:
        """Close it."""

    app = flask.Flask(__name__)
    app.post("/timers")(Receiver(SECRET).flask(close_order))
    assert "close_order" in app.view_functions


def test_django() -> None:
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.test import RequestFactory

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["testserver"])
        django.setup()
    handler = Handler(Gone("no such order"))
    view = Receiver(SECRET, body_bytes_max=100).django(handler)
    assert view.csrf_exempt  # type: ignore[attr-defined]
    headers, body = callback()

    def post(data: bytes) -> tuple[int, bytes]:
        request = RequestFactory().post(
            "/timers", data, content_type="application/json", headers=headers
        )
        answer = view(request)
        return answer.status_code, answer.content

    assert post(body) == (410, b"no such order")
    handler.returns = None
    assert post(body)[0] == 204
    assert post(body)[0] == 200
    assert post(b"x" * 101)[0] == 413
    assert [timer.body for timer in handler.timers] == [body, body]


def test_a_sync_handler_does_not_hold_the_loop() -> None:
    """Under ASGI it runs in a thread: the loop serves a second callback meanwhile."""
    import threading

    other_came = threading.Event()
    receiver = Receiver(SECRET)

    def handler(timer: Timer) -> None:
        if timer.attempt == 1:
            assert other_came.wait(10)
        else:
            other_came.set()

    async def both() -> list[int]:
        second = callback("01980a4c-3b61-8000-9d0e-1f6f3c1a2b4e", wheel_timer_attempt="2")
        replies = await asyncio.gather(
            receiver.receive_async(*callback(), handler),
            receiver.receive_async(*second, handler),
        )
        return [reply.status for reply in replies]

    assert asyncio.run(both()) == [204, 204]
