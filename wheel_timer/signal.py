"""
Named points in the code that a test can wait on, or fail at.

In production `reached` is one look into an empty dict. A test installs a handler for a point: an
event to wait for instead of sleeping, an exception to raise, a `kill -9` of its own process. The
names are `<step>.<what has just happened>`: `due.closed`, `due.published`, `delivery.claimed`.
"""

from __future__ import annotations

from collections.abc import Callable

_handlers: dict[str, Callable[[], None]] = {}


def reached(point: str) -> None:
    """Say that the code has come to `point`."""
    handler = _handlers.get(point)
    if handler is not None:
        handler()


def on(point: str, handler: Callable[[], None]) -> None:
    """Call `handler` whenever `point` is reached; one handler a point."""
    _handlers[point] = handler


def clear() -> None:
    """Forget all handlers."""
    _handlers.clear()
