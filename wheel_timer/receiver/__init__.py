"""
The other end of a callback: is it ours, was it handled before, and what to answer.

    from wheel_timer.receiver import Memory, Receiver, Release

    receiver = Receiver("whsec_...", store=Memory())

    def close_if_unpaid(timer):
        order = timer.json()["order"]
        if payment_is_under_way(order):
            return Release(60)          # again in a minute; no failure is counted
        close(order)                    # raise, and the callback comes again

    app = Starlette(routes=[Route("/timers", receiver.asgi(close_if_unpaid), methods=["POST"])])

A callback comes at least once, each copy with the same webhook-id. The receiver marks an id as done
only after the handler has succeeded, so a handler that raised sees the next copy; a copy that comes
while the handler is at work is answered 409, with a Retry-After.
"""

from __future__ import annotations

from wheel_timer.receiver.receiver import Receiver
from wheel_timer.receiver.reply import Gone, Release, Reply
from wheel_timer.receiver.stores import Memory, Redis, Seen, Store
from wheel_timer.receiver.timer import Timer

__all__ = ["Gone", "Memory", "Receiver", "Redis", "Release", "Reply", "Seen", "Store", "Timer"]
