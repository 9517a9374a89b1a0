"""Log lines: their two forms, what is masked, and a reader that does not read."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import time
from collections.abc import Iterator

import pytest

from broker.report import Report
from wheel_timer.log import JsonFormat, RateLimited, TextFormat, Writer
from wheel_timer.task import Result
from wheel_timer.wheel import new_task_id


class Gate(io.StringIO):
    """A stream that takes nothing until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self.is_waiting = threading.Event()

    def write(self, text: str) -> int:
        self.is_waiting.set()
        self.is_open.wait()
        return super().write(text)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("wheel_timer.test_log")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()


def test_a_line_of_text_has_time_level_name_and_fields(logger: logging.Logger) -> None:
    stream = io.StringIO()
    writer = Writer(stream)
    writer.setFormatter(TextFormat())
    logger.addHandler(writer)
    logger.warning("%d attempts failed", 3, extra={"biz_type": "orders"})
    writer.close()
    moment, rest = stream.getvalue().split(" ", 1)
    assert moment.endswith("Z")
    assert rest == "WARNING wheel_timer.test_log: 3 attempts failed biz_type=orders\n"


def test_a_json_line_is_one_object_with_the_traceback(logger: logging.Logger) -> None:
    stream = io.StringIO()
    writer = Writer(stream)
    writer.setFormatter(JsonFormat())
    logger.addHandler(writer)
    try:
        raise ValueError("postgresql://u:pa55@db refused")
    except ValueError:
        logger.exception("broke", extra={"task_id": "x"})
    writer.close()
    entry = json.loads(stream.getvalue())
    assert entry["level"] == "error"
    assert entry["message"] == "broke"
    assert entry["task_id"] == "x"
    assert "postgresql://u:***@db refused" in entry["exception"]
    assert stream.getvalue().count("\n") == 1


def test_a_blocked_stream_drops_and_counts_and_never_blocks_the_caller(
    logger: logging.Logger,
) -> None:
    gate = Gate()
    told: list[int] = []
    writer = Writer(gate, lines_max=5, on_drop=told.append)
    writer.setFormatter(TextFormat())
    logger.addHandler(writer)
    logger.info("first")
    assert gate.is_waiting.wait(5)
    for number in range(20):
        logger.info("line %d", number)
    gate.is_open.set()
    writer.close()
    assert told == [15]
    assert "15 log lines were dropped" in gate.getvalue()
    assert "line 4" in gate.getvalue()
    assert "line 5" not in gate.getvalue()


@pytest.mark.timing
def test_a_process_with_a_blocked_stdout_ends_all_the_same(logger: logging.Logger) -> None:
    gate = Gate()
    writer = Writer(gate, lines_max=1)
    writer.setFormatter(TextFormat())
    logger.addHandler(writer)
    for _ in range(3):
        logger.info("line")
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 3
    gate.is_open.set()


def test_a_reader_that_has_gone_ends_nobody(logger: logging.Logger) -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w", buffering=1)
    writer = Writer(stream)
    writer.setFormatter(TextFormat())
    logger.addHandler(writer)
    logger.info("nobody reads this")
    writer.close()
    logger.info("nor this")
    with pytest.raises(BrokenPipeError):
        stream.close()  # it still holds what nobody read


def test_a_rate_limited_warning_comes_once_a_second_a_key_with_a_count(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    logger.addHandler(caplog.handler)
    failures = RateLimited(logger, monotonic=lambda: now)
    for _ in range(4):
        failures.warning("orders", "attempt failed: %s", "timeout", biz_type="orders")
    failures.warning("mails", "attempt failed: %s", "reset")
    now = 1.0
    failures.warning("orders", "attempt failed: %s", "refused")
    now = 2.0
    failures.warning("orders", "attempt failed: %s", "refused")
    assert [record.getMessage() for record in caplog.records] == [
        "attempt failed: timeout",
        "attempt failed: reset",
        "attempt failed: refused (and 3 more like it)",
        "attempt failed: refused",
    ]


def test_a_failed_attempt_is_a_line_with_its_task(caplog: pytest.LogCaptureFixture) -> None:
    """The fields by which a line is found, and no line break of somebody's."""
    task_id = new_task_id(1_800_000_000_000)
    result = Result(
        task_id=task_id,
        start_time_ms=1_800_000_000_000,
        biz_type="orders",
        attempt=3,
        revision=1,
        outcome="retry",
        error="HTTP 500\nforged",
    )
    with caplog.at_level(logging.DEBUG, "broker.report"):
        Report().ended(result, 0.0)
    lines = [JsonFormat().format(record) for record in caplog.records]
    named = {"task_id": str(task_id), "biz_type": "orders", "attempt": 3}
    warned, ended = (json.loads(line) for line in lines)
    assert warned == warned | named | {"level": "warning", "outcome": "retry"}
    assert "HTTP 500\nforged" in warned["message"]
    assert ended == ended | named | {"level": "debug", "logger": "broker.report"}
    assert warned.keys() >= {"time", "level", "logger", "message"}
    assert not any("\n" in line for line in lines)


def test_half_a_character_silences_nobody() -> None:
    raw = io.BytesIO()
    writer = Writer(io.TextIOWrapper(raw, "utf-8", write_through=True))
    writer.setFormatter(TextFormat())
    # By no logger: pytest would send what it captures to its parent, and breaks off at it.
    for told in (b"of somebody's: \xed\xa0\x80".decode("utf-8", "surrogatepass"), "and on"):
        writer.emit(logging.LogRecord("broker", logging.WARNING, "", 0, told, None, None))
    writer.close()
    written = raw.getvalue().decode()
    assert "of somebody's: \\ud800\n" in written
    assert "and on\n" in written
