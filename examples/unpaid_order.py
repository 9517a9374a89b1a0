"""
Close an order that is not paid within 30 minutes.

The timer is set with the order and cancelled with the payment. The two can meet in the same
instant: then the callback finds the order paid and leaves it. So the order itself decides, and the
timer only makes somebody look.
"""

from __future__ import annotations

from contextlib import suppress

from starlette.applications import Starlette
from starlette.routing import Route

from examples.serving import serve
from wheel_timer import Client
from wheel_timer.client import Conflict
from wheel_timer.receiver import Receiver, Timer
from wheel_timer.testing import Clock, Server

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # the biz_type's; yours is in your vault
TIME_TO_PAY_S = 30 * 60


class Shop:
    """Orders by number, and what became of each."""

    def __init__(self, timers: Client) -> None:
        self.timers = timers
        self.orders: dict[int, str] = {}

    def place(self, order: int) -> None:
        """A customer has ordered."""
        self.orders[order] = "unpaid"
        # The biz_id makes it safe to do this twice: it stays one timer.
        self.timers.submit(
            "orders", biz_id=str(order), delay=TIME_TO_PAY_S, biz_data={"order": order}
        )

    def pay(self, order: int) -> None:
        """The money has come."""
        self.orders[order] = "paid"
        # Where it is being called, or was, close_if_unpaid sees that the order is paid.
        with suppress(Conflict):
            self.timers.cancel("orders", str(order))

    def close_if_unpaid(self, timer: Timer) -> None:
        """The callback. What it raises brings it again."""
        order = timer.json()["order"]
        if self.orders[order] == "unpaid":
            self.orders[order] = "closed"


def story(server: Server, advance: Clock) -> None:
    """Two orders, one payment, half an hour."""
    shop = Shop(server.client)
    endpoint = Receiver(SECRET).asgi(shop.close_if_unpaid)
    with serve(Starlette(routes=[Route("/timers", endpoint, methods=["POST"])])) as url:
        server.biz("orders", callback_url=f"{url}/timers", secret=SECRET)
        shop.place(1017)
        shop.place(1018)
        advance(minutes=29)
        shop.pay(1018)
        assert shop.orders == {1017: "unpaid", 1018: "paid"}
        advance(minutes=1)
        assert shop.orders == {1017: "closed", 1018: "paid"}
    print("unpaid order: 1017 was closed after 30 minutes, 1018 was paid in time")
