"""What a callback looks like in a terminal."""

from __future__ import annotations

import msgspec
import pytest

from wheel_timer.echo import GOOD, Arrival, as_json, as_text

START_MS = 1_796_115_600_000.0
HEADERS = {
    "host": "127.0.0.1:9000",
    "content-length": "17",
    "webhook-id": "01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d",
    "wheel-timer-biz-type": "orders",
    "wheel-timer-start-time": "2026-12-01T09:00:00.000Z",
    "wheel-timer-attempt": "1",
}


def arrival(
    late_ms: float = 0.6, body: bytes = b"", headers: dict[str, str] | None = None
) -> Arrival:
    return Arrival("POST", "/hook", HEADERS | (headers or {}), body, START_MS + late_ms)


def test_arrival_lateness_and_headers_are_shown() -> None:
    assert as_text(arrival(body=b'{"hello": "wheel"}')).splitlines() == [
        "←  09:00:00.000 UTC  0.6 ms late  POST /hook  orders  attempt 1",
        "    webhook-id: 01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d",
        "    wheel-timer-biz-type: orders",
        "    wheel-timer-start-time: 2026-12-01T09:00:00.000Z",
        "    wheel-timer-attempt: 1",
        '    {"hello": "wheel"}',
    ]


def test_an_early_one_is_called_early() -> None:
    assert "0.4 ms EARLY" in as_text(arrival(-0.4))


def test_a_retry_is_not_called_late() -> None:
    assert "5.001 s after start_time  POST" in as_text(
        arrival(5_001.0, headers={"wheel-timer-attempt": "2"})
    )


def test_what_is_no_callback_of_ours_has_no_lateness() -> None:
    text = as_text(Arrival("GET", "/", {}, b"", START_MS))
    assert text == "←  09:00:00.000 UTC  GET /\n"


@pytest.mark.parametrize("name", ["authorization", "cookie", "x-api-key", "x-auth-token"])
def test_what_looks_like_a_secret_is_masked(name: str) -> None:
    came = arrival(headers={name: "s3cr3t"})
    assert "s3cr3t" not in as_text(came) + as_json(came)


def test_a_payload_cannot_move_the_cursor() -> None:
    text = as_text(arrival(body=b"\x1b[2J\x07gone\r\nnext", headers={"x-note": "\x1b]0;title\x07"}))
    assert not set("\x1b\x07\r") & set(text)


def test_a_bad_signature_is_told_and_a_good_one_too() -> None:
    assert (
        as_text(arrival(), signature="no signature matches")
        .splitlines()[0]
        .endswith("no signature matches")
    )
    assert as_text(arrival(), signature=GOOD).splitlines()[0].endswith("signature good")


def test_json_is_one_line_of_the_same_facts() -> None:
    line = as_json(arrival(body=b"x\ny"))
    assert line.count("\n") == 1
    told = msgspec.json.decode(line)
    assert (told["arrived"], told["late_ms"]) == ("2026-12-01T09:00:00.000+00:00", 0.6)
    assert (told["body"], told["headers"]["wheel-timer-attempt"]) == ("x\ny", "1")
