"""
Ask the bank a day after a refund whether it went through; then again every 6 hours until it did.

"Not yet" is no failure: the handler returns a Release, and the same timer comes again. Nobody is
asked more often than needed, and `max_age` ends it after a week.
"""

from __future__ import annotations

from datetime import timedelta

from starlette.applications import Starlette
from starlette.routing import Route

from examples.serving import serve
from wheel_timer import Client
from wheel_timer.receiver import Gone, Receiver, Release, Timer
from wheel_timer.testing import Clock, Server

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ASK_AGAIN_AFTER = timedelta(hours=6)


class Refunds:
    """bank: what it answers for each refund, one answer a question."""

    def __init__(self, timers: Client, bank: dict[str, list[str]]) -> None:
        self.timers = timers
        self.bank = bank
        self.settled: dict[str, str] = {}

    def begin(self, refund: str) -> None:
        """The bank has been told to pay back."""
        self.timers.submit(
            "refunds",
            biz_id=refund,
            delay=timedelta(days=1),
            biz_data={"refund": refund},
            max_age=timedelta(days=7),
        )

    async def ask(self, timer: Timer) -> Release | Gone | None:
        """The callback."""
        refund = timer.json()["refund"]
        answer = self.bank[refund].pop(0)
        if answer == "pending":
            return Release(ASK_AGAIN_AFTER)
        if answer == "unknown":
            return Gone("the bank knows no such refund")  # failed at once; somebody has to look
        self.settled[refund] = answer
        return None


def story(server: Server, advance: Clock) -> None:
    """One refund takes a day and a half, one was never there."""
    bank = {"r1": ["pending", "pending", "paid"], "r2": ["unknown"]}
    refunds = Refunds(server.client, bank)
    endpoint = Receiver(SECRET).asgi(refunds.ask)
    with serve(Starlette(routes=[Route("/timers", endpoint, methods=["POST"])])) as url:
        server.biz("refunds", callback_url=f"{url}/timers", secret=SECRET)
        refunds.begin("r1")
        refunds.begin("r2")
        advance(days=1)
        assert refunds.settled == {}
        assert server.client.get("refunds", "r2").status == "failed"
        advance(hours=13)
        assert refunds.settled == {"r1": "paid"}
        task = server.client.get("refunds", "r1")
        assert (task.status, task.failures) == ("finished", 0)
    print("refund poll: r1 was asked for three times and is paid, r2 is unknown to the bank")
