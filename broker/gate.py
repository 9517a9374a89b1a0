"""
What stands between a lane's references and their claims: one gate a lane. Pure bookkeeping.

    hold     nothing passes: the biz_type is paused, or the whole wheel is; or the breaker is open
    slots    one at a time, as a probe, while the breaker is half-open
    tokens   the rate limit: tokens in hand, from a bucket that all brokers share (broker/tokens.py)
    slowing  the pace after a 429
    spacing  the pace of an endpoint whose connections have to be dropped, one after the other

A gate is asked before a claim, never after: what is claimed starts. So a claim never waits for
leave while its lease runs, and a lane that is held keeps nobody else waiting.
"""

from __future__ import annotations

from typing import Final, Literal

from broker.breaker import Breaker
from broker.bucket import Bucket, Shape, callback_shape
from broker.slowing import Slowing
from broker.spacing import Spacing
from wheel_timer.biz import BizType

# A token that found no use for so long is dropped: used later, it would come beside its successors.
TOKEN_KEPT_MS: Final = 100.0
ENDLESS: Final = 1 << 30
# Of an answer too long to read the connection is dropped, and the next call dials. As fast as such
# an endpoint answers, that takes a core, and the machine's 28,000 ports in a minute: a connection
# stays in the kernel's books for so long on the side that dropped it. Some of a busy lane's, or of
# a task's own URL, are no reason to keep all others back.
DROPS_PER_S: Final = 100.0
DROPS_FREE: Final = 25.0
DROPS_FREE_PER_S: Final = 50.0
DROPS_FORGOTTEN_MS: Final = 10_000.0

Hold = Literal["paused", "breaker_open"]


class Gate:
    """is_narrow: whether anything is to be asked here at all; the way of most lanes is free."""

    def __init__(self, biz: BizType, *, is_braked: bool = False) -> None:
        self._tokens = 0
        self._tokens_until_ms = 0.0
        self._slowing: Slowing | None = None
        self._spacing: Spacing | None = None
        self._spaced_until_ms = 0.0
        self._drops = 0.0
        self._dropped_ms = 0.0
        self._is_braked = is_braked
        self.next_ask_s = 0.0  # broker/tokens.py: no use to ask before
        self.local: Bucket | None = None  # while the shared one is out of reach
        self.breaker = Breaker(biz.breaker)
        self.configure(biz)

    def configure(self, biz: BizType) -> None:
        """Work by this configuration from now on."""
        self.shape: Shape | None = callback_shape(biz)
        self.next_ask_s = 0.0
        self.is_new = True
        self.local = None
        self.breaker.configure(biz.breaker)
        self._is_paused = biz.paused
        self._see()

    def brake(self, is_on: bool) -> None:
        """Nothing is to be called anywhere, or it is again."""
        self._is_braked = is_on
        self._see()

    def answered(self, is_good: bool | None, pace: float, started_ms: float, now_ms: float) -> None:
        """A call ended; is_good: None where it was a 429. pace: calls started a second, lately."""
        if is_good and self.breaker.is_calm:
            return
        if is_good is not None:
            self.breaker.answered(is_good, started_ms, now_ms)
        elif self._slowing is None:
            self._slowing = Slowing(pace, now_ms)
        else:
            self._slowing.refused(now_ms)
        self._see()

    def dropped(self, now_ms: float) -> None:
        """The connection of a call had to be dropped, whatever its answer was."""
        forgotten = max(0.0, now_ms - self._dropped_ms) / 1000 * DROPS_FREE_PER_S
        self._drops = min(DROPS_FREE, max(0.0, self._drops - forgotten) + 1)
        self._dropped_ms = now_ms
        if self._drops < DROPS_FREE:
            return
        if self._spacing is None:
            self._spacing = Spacing(DROPS_PER_S, now_ms)
            self._see()
        self._spaced_until_ms = now_ms + DROPS_FORGOTTEN_MS

    def _see(self) -> None:
        self.is_narrow = (
            self.shape is not None
            or self._is_paused
            or self._is_braked
            or self._slowing is not None
            or self._spacing is not None
            or not self.breaker.is_closed
        )

    def hold(self, now_ms: float) -> Hold | None:
        """Why nothing passes."""
        if self._is_paused or self._is_braked:
            return "paused"
        return "breaker_open" if self.breaker.is_open(now_ms) else None

    def slots(self, slots: int, now_ms: float) -> int:
        """How many of these slots may be used."""
        if self.hold(now_ms) is not None:
            return 0
        return slots if self.breaker.is_closed else min(slots, 1)

    def allowed(self, now_ms: float) -> int:
        """How many may be claimed now, as far as tokens and pace go."""
        room = ENDLESS
        if self._slowing is not None:
            if self._slowing.is_over(now_ms):
                self._slowing = None
                self._see()
            else:
                room = self._slowing.room(now_ms)
        if self._spacing is not None:
            if now_ms > self._spaced_until_ms:
                self._spacing = None
                self._see()
            else:
                room = min(room, self._spacing.room(now_ms))
        if self.shape is None:
            return room
        return min(room, self._in_hand(now_ms))

    def next_ms(self, now_ms: float) -> float | None:
        """When time alone lets something pass; None: it does not, or now."""
        if self._is_paused or self._is_braked:
            return None
        if self.breaker.is_open(now_ms):
            return self.breaker.until_ms
        spacings = [one for one in (self._slowing, self._spacing) if one is not None]
        waits = [one.next_ms(now_ms) for one in spacings if one.room(now_ms) < 1]
        return max(waits, default=None)

    def _in_hand(self, now_ms: float) -> int:
        return self._tokens if now_ms <= self._tokens_until_ms else 0

    def missing(self, wanted: int, now_ms: float) -> int:
        """How many tokens are missing for as many claims."""
        return 0 if self.shape is None else max(0, wanted - self._in_hand(now_ms))

    def grant(self, tokens: int, now_ms: float) -> None:
        """Tokens were taken for this lane."""
        self._tokens = self._in_hand(now_ms) + tokens
        self._tokens_until_ms = now_ms + TOKEN_KEPT_MS

    def spend(self, claims: int) -> None:
        """So many are about to be claimed."""
        self._tokens -= claims
        for one in (self._slowing, self._spacing):
            if one is not None:
                one.spend(claims)

    def refund(self, now_ms: float) -> None:
        """A claim was not made after all: its token serves the next one, if that comes soon."""
        if self.shape is not None:
            self.grant(1, now_ms)
