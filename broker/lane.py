"""
One lane in one broker: the references of a biz_type held here, in order of their moments.

A reference moves through a lane like this; every number is a bound of this lane alone, so that a
dead endpoint, or a million tasks in one second, keeps nobody else waiting:

    read --> waiting (heap by moment; READ_AHEAD at most)
         --> claiming (through the gate, in a claim call, from CLAIM_AHEAD_MS before the moment)
         --> claimed (heap by moment; what can start within CLAIMED_AHEAD_S at the present pace)
         --> in flight (`slots` at most: this broker's share of max_concurrency)
         --> settled and acknowledged: only then its stream entry is given up (`held`)

Pure bookkeeping, no I/O; the timekeeper drives it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import Final, Literal

from broker.gate import Gate
from broker.outcome import SETTLE_MS
from broker.share import ALONE, Share
from broker.terms import TermsOf
from wheel_timer.biz import BizType
from wheel_timer.store.claim import LEASE_MARGIN_MS
from wheel_timer.task import Claim, Ref

# References waiting in one lane of one broker: a fraction of a second of work at full speed.
READ_AHEAD: Final = 2_000
# As long as none of them is due: else a task of now would wait unread behind thousands of later
# ones (of one instant to come, or under the leases of a broker that died).
READ_AHEAD_MAX: Final = 6_000
# Fetched from Postgres beside what waits here already.
FETCH_AHEAD_S: Final = 2.0
FETCH_AHEAD_MAX: Final = 500
# What was held is brought back for so long ahead: what is new waits behind it.
REFILL_S: Final = 0.2
# Of a lane that is held for its endpoint so many stay here, or are brought back, to be its probes.
PROBES: Final = 4
# A claim is worth a call for so long after it was made; then it goes back, for another broker.
HOLD_MS: Final = LEASE_MARGIN_MS - SETTLE_MS
# A claim takes 2-5 ms; three times that, and still inside the 20 ms that a claim may be early.
CLAIM_AHEAD_MS: Final = 12
# What is due within this is claimed along, once a claim is made anyway.
CLAIM_REACH_MS: Final = 16
# In a hot lane so much work lies claimed, beyond the free slots, that claims come in batches of
# about a hundred; at 20 ms of pace they came in batches of five.
CLAIMED_AHEAD_S: Final = 0.1
CLAIMED_AHEAD_MAX: Final = 250
PACE_WINDOW_S: Final = 0.05
# Below this a lane with a rate limit claims nothing beyond its free slots: what is claimed starts
# at once, so the calls keep the limit as exactly as the tokens do.
EXACT_PER_S: Final = 500
# Above, tokens are taken for so long ahead of the slots that come free: claims stay batches.
TOKENS_AHEAD_S: Final = 0.01

_order = count()


# A reference this far behind its moment waits for something; before that it is just being claimed.
LATE_MS: Final = 100

HoldsBack = Literal["paused", "breaker_open", "rate_limited", "concurrency"]


class Lane:
    """
    The references of one biz_type. slots: callbacks that may be in flight here at once.

    ahead_ms, reach_ms: how long before its moment a reference is claimed, and is claimed along.
    """

    ahead_ms = CLAIM_AHEAD_MS
    reach_ms = CLAIM_REACH_MS

    def __init__(self, biz: BizType, share: Share = ALONE, *, is_braked: bool = False) -> None:
        self.biz_type = biz.biz_type
        self.gate = Gate(biz, is_braked=is_braked)
        self.slots = 0
        self.configure(biz, share)
        self.claiming = 0
        self.in_flight = 0
        self.is_touched = False  # the timekeeper's marks: in its list of lanes to look at,
        self.is_hungry = False  # and in its queue for the next claim
        self.alarm_ms: float | None = None
        self._waiting: list[tuple[int, int, Ref]] = []
        self._claimed: list[tuple[int, int, Claim, Ref, float]] = []
        self._stale_ms: float | None = None  # when the first of them may have to go back
        self._held: set[bytes] = set()
        self.is_full = False
        self._pace = 0.0  # callbacks started a second, lately
        self._started = 0
        self._window_began_s = 0.0

    def configure(self, biz: BizType, share: Share) -> None:
        """Work by this configuration from now on."""
        self.terms = TermsOf(biz)
        # Of a claim call that everybody wants: 9 gets a hundred times the part of 0, never all.
        self.weight = (biz.priority + 1) ** 2
        self.gate.configure(biz)
        self.share(share)

    def share(self, share: Share) -> None:
        """Use this part of max_concurrency."""
        slots = share.of(self.terms.biz.max_concurrency, self.biz_type)
        self.slots = slots if share.is_settled else min(self.slots, slots)

    @property
    def depth(self) -> int:
        """References held that no callback was started for."""
        return len(self._waiting) + self.claiming + len(self._claimed)

    def first_ms(self, now_ms: float) -> float:
        """The moment of what waits first; now, where that is to come or nothing waits."""
        return min(now_ms, self._waiting[0][0]) if self._waiting else now_ms

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this lane is held here."""
        return not (self._held or self.depth or self.in_flight)

    def has_room(self, now_ms: float) -> bool:
        """
        Whether more may be read; once full, only after half was worked off. Without a slot another
        broker reads.
        """
        if not self.slots:
            return False
        waiting = self._waiting
        limit = READ_AHEAD
        if waiting and waiting[0][0] > now_ms + self.reach_ms:
            limit = READ_AHEAD_MAX
        self.is_full = len(waiting) >= (limit // 2 if self.is_full else limit)
        return not self.is_full

    def fetchable(self, now_ms: float) -> int:
        """
        How many references to fetch straight from Postgres: FETCH_AHEAD_S of work at most, since
        what is fetched here is nobody else's.
        """
        gate = self.gate
        if not self.slots or not gate.breaker.is_closed or gate.hold(now_ms) is not None:
            return 0
        ahead = FETCH_AHEAD_MAX
        if gate.shape is not None:
            ahead = min(ahead, max(1, int(gate.shape.per_s * FETCH_AHEAD_S)))
        return max(0, ahead - len(self._waiting))

    def refillable(self, now_ms: float) -> int:
        """How many held references to bring back: what keeps the slots busy for REFILL_S."""
        if not self.slots:
            return 0
        if not self.gate.breaker.is_closed:
            return 0 if self.depth else PROBES
        ahead = max(0, self.slots - self.in_flight) + self._pace * REFILL_S
        if self.gate.shape is not None:
            ahead = min(ahead, max(1.0, self.gate.shape.per_s * REFILL_S))
        limit = min(FETCH_AHEAD_MAX, int(ahead))
        # What was read ahead of its moment keeps no slot busy.
        ready = self._due(limit, now_ms) + self.claiming + len(self._claimed)
        return max(0, limit - ready)

    def add(self, ref: Ref, not_before_ms: int = 0) -> bool:
        """
        Hold a reference, to be claimed not before not_before_ms; False where its stream entry is
        held already (it was read again).
        """
        if ref.entry_id:
            if ref.entry_id in self._held:
                return False
            self._held.add(ref.entry_id)
        self.put_back(ref, max(ref.moment_ms, not_before_ms))
        return True

    def put_back(self, ref: Ref, when_ms: int) -> None:
        """Claim a reference that is held not before when_ms."""
        heapq.heappush(self._waiting, (when_ms, next(_order), ref))

    def let_go(self, ref: Ref) -> None:
        """A reference's stream entry was acknowledged, or is somebody else's now."""
        self._held.discard(ref.entry_id)

    def wants(self, now_ms: float) -> bool:
        """Whether something is due that there is room for, and a claim is worth its price."""
        if not self._waiting or self._waiting[0][0] - self.ahead_ms > now_ms:
            return False
        slots, ahead = self._bounds(now_ms)
        if not slots or (self.gate.is_narrow and self.gate.allowed(now_ms) < 1):
            return False
        taken = self.in_flight + self.claiming + len(self._claimed)
        return taken < slots or slots + ahead - taken > ahead // 2

    def holds_back(self, now_ms: float) -> tuple[HoldsBack, float | None] | None:
        """
        Why what is due is not being called, and when that ends by itself; None: nothing is late.
        """
        gate = self.gate
        hold = gate.hold(now_ms)
        if hold is not None:
            return hold, gate.next_ms(now_ms)
        if not gate.breaker.is_closed:
            return "breaker_open", None  # half-open: one at a time
        if not self.slots or not self._waiting or self._waiting[0][0] > now_ms - LATE_MS:
            return None
        if self.in_flight + self.claiming + len(self._claimed) >= self.slots:
            return "concurrency", None
        return ("rate_limited", gate.next_ms(now_ms)) if gate.is_narrow else None

    def _bounds(self, now_ms: float) -> tuple[int, int]:
        """(slots that may be used, claims that may lie ready beyond them)."""
        ahead = min(CLAIMED_AHEAD_MAX, int(self._pace * CLAIMED_AHEAD_S))
        gate = self.gate
        if not gate.is_narrow:
            return self.slots, ahead
        slots = gate.slots(self.slots, now_ms)
        is_exact = gate.shape is not None and gate.shape.per_s < EXACT_PER_S
        return slots, 0 if is_exact or slots < self.slots else ahead

    def is_short(self, now_ms: float) -> bool:
        """Whether there may be use for more tokens; `missing_tokens` counts, which costs more."""
        if self.gate.shape is None or not self._waiting:
            return False
        if not self.gate.missing(self.slots + CLAIMED_AHEAD_MAX, now_ms):
            return False  # the way of a limit that does not bind, at every turn of the loop
        slots, ahead = self._bounds(now_ms)
        room = slots + ahead - self.in_flight - self.claiming - len(self._claimed)
        return (
            slots > 0
            and room > 0
            and self._waiting[0][0] - self.ahead_ms <= now_ms
            and self.gate.missing(min(room, len(self._waiting)), now_ms) > 0
        )

    def missing_tokens(self, now_ms: float) -> int:
        """How many tokens the gate is short of for what is due and has room."""
        shape = self.gate.shape
        if shape is None or not self._waiting or self._waiting[0][0] - self.ahead_ms > now_ms:
            return 0
        slots, ahead = self._bounds(now_ms)
        room = slots + ahead - self.in_flight - self.claiming - len(self._claimed)
        if not slots or room <= 0:
            return 0
        room += int(shape.per_s * TOKENS_AHEAD_S)
        return self.gate.missing(self._due(room, now_ms + self.reach_ms), now_ms)

    def _due(self, limit: int, until_ms: float) -> int:
        """How many references wait for a moment until then; counts up to the limit."""
        found, heap, todo = 0, self._waiting, [0]
        while todo and found < limit:
            at = todo.pop()
            if at < len(heap) and heap[at][0] <= until_ms:
                found += 1
                todo += (2 * at + 1, 2 * at + 2)
        return found

    def take(self, now_ms: float, limit: int) -> list[Ref]:
        """Take what is to be claimed now, at most `limit`; it counts as claiming."""
        slots, ahead = self._bounds(now_ms)
        taken = self.in_flight + self.claiming + len(self._claimed)
        limit = min(limit, slots + ahead - taken)
        if self.gate.is_narrow:
            limit = min(limit, self.gate.allowed(now_ms))
        reach_ms = now_ms + self.reach_ms
        refs: list[Ref] = []
        waiting = self._waiting
        while waiting and len(refs) < limit and waiting[0][0] <= reach_ms:
            refs.append(heapq.heappop(waiting)[2])
        self.claiming += len(refs)
        if self.gate.is_narrow:
            self.gate.spend(len(refs))
        return refs

    def claimed(self, claim: Claim, ref: Ref, now_ms: float) -> None:
        """Hold a claim until its moment and a free slot; for HOLD_MS, it was made now."""
        # A claim is granted ahead of its moment; a reference that was put back may say "now". What
        # is late starts in the order of the claims: by moments an old backlog would go before all.
        moment_ms = max(ref.moment_ms, claim.start_time_ms, int(now_ms))
        heapq.heappush(self._claimed, (moment_ms, next(_order), claim, ref, now_ms + HOLD_MS))
        if self._stale_ms is None:
            self._stale_ms = now_ms + HOLD_MS

    def stale(self, now_ms: float) -> list[tuple[Claim, Ref]]:
        """Take the claims that found no slot while they were worth a call; of a held lane all."""
        if self._claimed and self.gate.hold(now_ms) is not None:
            return self.give_up_claimed()
        if self._stale_ms is None or now_ms < self._stale_ms:
            return []
        stale = [(claim, ref) for *_, claim, ref, until_ms in self._claimed if until_ms <= now_ms]
        self._claimed = [entry for entry in self._claimed if entry[4] > now_ms]
        heapq.heapify(self._claimed)
        self._stale_ms = min((entry[4] for entry in self._claimed), default=None)
        return stale

    def startable(self, now_ms: float, now_s: float) -> Iterator[tuple[Claim, Ref]]:
        """Take the claims whose moment has come, while slots are free; they count as in flight."""
        claimed = self._claimed
        slots = self.slots if not self.gate.is_narrow else self.gate.slots(self.slots, now_ms)
        while claimed and self.in_flight < slots and claimed[0][0] <= now_ms:
            _, _, claim, ref, _ = heapq.heappop(claimed)
            self.in_flight += 1
            self._started += 1
            yield claim, ref
        elapsed_s = now_s - self._window_began_s
        if elapsed_s >= PACE_WINDOW_S:
            self._pace = (self._pace + self._started / elapsed_s) / 2
            self._started = 0
            self._window_began_s = now_s

    def next_ms(self, now_ms: float) -> float | None:
        """
        The moment to look at this lane again; None where only something else can change it (a
        slot that comes free, a reference that is read).
        """
        start_ms: float | None = None
        claim_ms: float | None = None
        if self._claimed:
            start_ms = self._claimed[0][0] if self.in_flight < self.slots else self._stale_ms
        if self._waiting:
            claim_ms = self._waiting[0][0] - self.ahead_ms
            if claim_ms <= now_ms:
                claim_ms = self.gate.next_ms(now_ms) if self.gate.is_narrow else None
        if start_ms is None or claim_ms is None:
            return claim_ms if start_ms is None else start_ms
        return min(start_ms, claim_ms)

    def give_up_waiting(self, limit: int | None = None, keep: int = 0) -> list[Ref]:
        """What is not claimed, but for the first `keep`; at most `limit`, the last ones."""
        if limit is None and not keep:
            refs = [ref for _, _, ref in self._waiting]
            self._waiting.clear()
            return refs
        waiting = sorted(self._waiting)
        first = max(keep, 0 if limit is None else len(waiting) - limit)
        self._waiting = waiting[:first]
        return [ref for _, _, ref in waiting[first:]]

    def answered(self, is_good: bool | None, started_ms: float, now_ms: float) -> None:
        """A call has ended: see Gate.answered."""
        self.gate.answered(is_good, self._pace, started_ms, now_ms)

    def give_up_claimed(self) -> list[tuple[Claim, Ref]]:
        """Every claim that was not started."""
        claims = [(claim, ref) for _, _, claim, ref, _ in self._claimed]
        self._claimed.clear()
        self._stale_ms = None
        return claims
