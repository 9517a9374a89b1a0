"""
Logging: a line of text or a JSON object each, to stdout, never waiting for whoever reads it.

The loggers are the standard library's: `logging.getLogger(__name__)`; `extra={"task_id": ...}`
becomes fields of the JSON object, and ` task_id=...` at the end of a line of text. Passwords of
URLs, API keys and `password=` values are masked in every line, tracebacks too.

What cannot be written is held in a bounded queue; when that is full, lines are dropped and counted,
and the count is logged once stdout takes lines again.
"""

from __future__ import annotations

import atexit
import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import IO, Any, Final, Literal, Protocol
from uuid import UUID

from wheel_timer.secrets import mask_secrets

LINES_MAX: Final = 10_000  # about 2 MB of text
FLUSH_S: Final = 1.0  # what a process that ends gives a slow reader
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class OneAttempt(Protocol):
    """A claim, or its result."""

    @property
    def task_id(self) -> UUID: ...
    @property
    def biz_type(self) -> str: ...
    @property
    def attempt(self) -> int: ...


def fields_of(one: OneAttempt) -> dict[str, Any]:
    """The fields of a line about one attempt, for `extra`: the same names everywhere."""
    return {"task_id": str(one.task_id), "biz_type": one.biz_type, "attempt": one.attempt}


class TextFormat(logging.Formatter):
    """2026-11-21T05:07:33.120Z WARNING wheel_timer.broker: text key=value"""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{_moment(record)} {record.levelname} {record.name}: {record.getMessage()}{fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return mask_secrets(line)


class JsonFormat(logging.Formatter):
    """{"time", "level", "logger", "message", ... extra fields, "exception"} in one line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return mask_secrets(json.dumps(entry, default=str, ensure_ascii=False))


class Writer(logging.Handler):
    """
    Puts formatted lines into a queue that a thread of its own writes out.

    on_drop: told how many lines were dropped, when the stream takes lines again.
    """

    def __init__(
        self,
        stream: IO[str],
        lines_max: int = LINES_MAX,
        on_drop: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(lines_max)
        self._dropped = 0
        self._on_drop = on_drop
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Called under the handler's lock, so `_dropped` has one writer here."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:  # noqa: BLE001 - a record that cannot be formatted must not stop its caller
            self.handleError(record)

    def close(self) -> None:
        """Write out what is queued, for FLUSH_S at most. Idempotent."""
        if self._thread.is_alive():
            deadline = time.monotonic() + FLUSH_S
            try:
                self._lines.put(None, timeout=FLUSH_S)
                self._thread.join(max(0.0, deadline - time.monotonic()))
            except queue.Full:
                pass  # nobody reads: what is queued is lost with the process
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._write_line(line)
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                # The reader has gone for good, or the stream was closed: there is nobody to tell.
                return
            if self._dropped:
                self._tell_dropped()

    def _write_line(self, line: str) -> None:
        try:
            self._stream.write(f"{line}\n")
        except UnicodeEncodeError:
            # Half a character of somebody's, or a terminal of another time: no reason to be silent.
            plain = line.encode("ascii", "backslashreplace").decode()
            self._stream.write(f"{plain}\n")

    def _tell_dropped(self) -> None:
        with self.lock or threading.RLock():
            dropped, self._dropped = self._dropped, 0
        record = logging.LogRecord(
            __name__, logging.WARNING, __file__, 0, "%d log lines were dropped", (dropped,), None
        )
        self._stream.write(f"{self.format(record)}\n")
        if self._on_drop is not None:
            self._on_drop(dropped)


class RateLimited:
    """
    Warnings that may come by the thousand: one a second a key, with a count of those held back.

        failures = RateLimited(log)
        failures.warning(biz_type, "attempt failed: %s", reason)
    """

    KEYS_MAX: Final = 1_000

    def __init__(
        self,
        logger: logging.Logger,
        every_s: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._every_s = every_s
        self._monotonic = monotonic
        self._keys: dict[str, tuple[float, int]] = {}  # key -> (when last logged, held back since)

    def warning(self, key: str, message: str, *args: object, **extra: object) -> None:
        """Log now, or count. extra: fields of the line."""
        now = self._monotonic()
        last, held_back = self._keys.get(key, (now - self._every_s, 0))
        if now - last < self._every_s:
            self._keys[key] = (last, held_back + 1)
            return
        if key not in self._keys and len(self._keys) >= self.KEYS_MAX:
            self._keys.clear()
        self._keys[key] = (now, 0)
        if held_back:
            message, args = f"{message} (and %d more like it)", (*args, held_back)
        self._logger.warning(message, *args, extra=extra)


def set_up(
    level: str,
    form: Literal["text", "json"],
    stream: IO[str] | None = None,
    on_drop: Callable[[int], None] | None = None,
) -> Writer:
    """
    Once at start: all loggers of the process go through one Writer to `stream` (stdout).

    level: LOG_LEVEL, for our own loggers; other libraries speak from warning on.
    """
    writer = Writer(stream or sys.stdout, on_drop=on_drop)
    writer.setFormatter(JsonFormat() if form == "json" else TextFormat())
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.WARNING)
    for name in ("wheel_timer", "broker", "daemon"):
        logging.getLogger(name).setLevel(level.upper())
    atexit.register(writer.close)
    return writer


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
