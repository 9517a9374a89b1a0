"""
What stands between a lane's references and their claims: one gate a lane. Pure bookkeeping.

    rate     tokens in hand, taken from a bucket that all brokers share (broker/tokens.py)

A gate is asked before a claim, never after: what is claimed starts. So a claim never waits for
leave while its lease runs, and a lane that is held keeps nobody else waiting.
"""

from __future__ import annotations

from typing import Final

from broker.bucket import Bucket, Shape, callback_shape
from wheel_timer.biz import BizType

# A token that found no use for so long is dropped: used later, it would come beside its successors.
TOKEN_KEPT_MS: Final = 100.0
ENDLESS: Final = 1 << 30


class Gate:
    """is_narrow: whether anything is to be asked here at all; the way of most lanes is free."""

    def __init__(self, biz: BizType) -> None:
        self._tokens = 0
        self._tokens_until_ms = 0.0
        self.next_ask_s = 0.0  # broker/tokens.py: no use to ask before
        self.local: Bucket | None = None  # while the shared one is out of reach
        self.configure(biz)

    def configure(self, biz: BizType) -> None:
        """Work by this configuration from now on."""
        self.shape: Shape | None = callback_shape(biz)
        self.next_ask_s = 0.0
        self.local = None
        self.is_narrow = self.shape is not None

    def allowed(self, now_ms: float) -> int:
        """How many may be claimed now."""
        if self.shape is None:
            return ENDLESS
        return self._tokens if now_ms <= self._tokens_until_ms else 0

    def missing(self, wanted: int, now_ms: float) -> int:
        """How many tokens are missing for as many claims."""
        return 0 if self.shape is None else max(0, wanted - self.allowed(now_ms))

    def grant(self, tokens: int, now_ms: float) -> None:
        """Tokens were taken for this lane."""
        self._tokens = self.allowed(now_ms) + tokens
        self._tokens_until_ms = now_ms + TOKEN_KEPT_MS

    def spend(self, claims: int) -> None:
        """So many are about to be claimed."""
        self._tokens -= claims

    def refund(self, now_ms: float) -> None:
        """A claim was not made after all: its token serves the next one, if that comes soon."""
        if self.shape is not None:
            self.grant(1, now_ms)
