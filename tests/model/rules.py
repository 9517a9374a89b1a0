"""
The rules of the protocol, each one that can be taken out of the model, one at a time.

A rule names the section of DESIGN it stands in, what it says, the search that shows what
happens without it, and the violation that search must then find:

loss    a pending task is behind the sweep hand and has no requeue row ahead of the due hand
stuck   nothing is wrong yet, but fair execution no longer settles the task
order   sweep_time <= current_time <= closed_to is broken
back    a hand went back
and the alarms of state.py (early, burned budget, double, wrong data, stale write, twice).

`harmless` rules keep something other than safety (lateness, load): without them the whole space
of that search holds, which the tests check too, so that nobody relies on them for more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """One rule. Compared by identity: an action asks `c.without is THE_RULE`."""

    key: str
    section: str
    says: str
    search: str
    finds: str


LOSS: Final = "loss"
HARMLESS: Final = "harmless"

RULES: Final[list[Rule]] = []


def _rules(section: str) -> Callable[[str, str, str, str], Rule]:
    """Register the rules of one section of DESIGN."""

    def rule(key: str, search: str, finds: str, says: str) -> Rule:
        new = Rule(key, section, says, search, finds)
        RULES.append(new)
        return new

    return rule


_3 = _rules("3")
MOVE_DELETES = _3(
    "move-deletes-row", "moves", "loss", "a move to a time not closed yet deletes the requeue row"
)
MOVE_UPSERTS = _3(
    "move-upserts-row", "moves", "loss", "a move to a closed time upserts it with the new place"
)
CHANGE_REVISION = _3(
    "change-grows-revision", "delivery", "wrong data", "every change grows the revision"
)
UNSET_RAISES = _3(
    "unset-closed-to-raises",
    "sequence",
    "loss",
    "whoever reads closed_to raises where the sequence was never set",
)

_4 = _rules("4")
FENCE_SUBMIT = _4("fence-submit", "fence", "loss", "submit takes the shared fence")
FENCE_MOVE = _4("fence-move", "moves", "loss", "reschedule takes the shared fence")
FENCE_REPLAY = _4("fence-replay", "delivery", "loss", "replay takes the shared fence")
FENCE_RUN = _4("fence-run", "delivery", "loss", "run takes the shared fence")
FENCE_REPLACE = _4(
    "fence-replace", "minds", "loss", "a replace takes the shared fence, as a new life does"
)
FENCE_RETRY = _4("fence-retry", "delivery", "loss", "a failure's retry takes the shared fence")
FENCE_HOLD = _4("fence-hold", "hold", "loss", "a hold takes the shared fence")
FENCE_UNHOLD = _4("fence-unhold", "hold", "loss", "bringing back what is held takes it")
FENCE_RECALL = _4("fence-recall", "recall", "loss", "recalling a retry takes it")
FENCE_FETCH = _4("fence-fetch", "line", "loss", "taking a row out of the line takes it")
FENCE_PULL = _4("fence-pull", "line", "loss", "pulling a row forward takes it")
FENCE_SWEEP = _4("fence-sweep", "fence", "loss", "the sweep's page takes the shared fence")
FENCE_REARM = _4("fence-rearm", "pages", "harmless", "a re-arm takes the shared fence")
FENCE_OVERFLOW = _4("fence-overflow", "pages", "loss", "an overflow row is written under it")
CLOSED_AFTER_FENCE = _4(
    "closed-to-after-fence", "fence", "loss", "closed_to is read after the fence was taken"
)
RESEND_NOTHING = _4(
    "resend-writes-nothing", "resend", "loss", "a task sent again that is there gets no new net"
)
NET_ROW = _4("net-row", "fence", "loss", "a near task gets a requeue row, the net")
NET_BEYOND = _4(
    "net-beyond-closed-to", "fence", "loss", "the net's due_at lies beyond closed_to, too"
)
NEAR_CLOSED = _4(
    "near-up-to-closed-to", "clock", "loss", "near is what is due up to closed_to, not only to now"
)
FLOOR_REPLAY = _4("due-at-replay", "delivery", "loss", "replay: due_at is at least closed_to + 1")
FLOOR_RUN = _4("due-at-run", "delivery", "loss", "run: due_at is at least closed_to + 1")
FLOOR_RETRY = _4("due-at-retry", "delivery", "loss", "retry: due_at is at least closed_to + 1")
FLOOR_HOLD = _4("due-at-hold", "hold", "loss", "hold: due_at is at least closed_to + 1")
FLOOR_UNHOLD = _4("due-at-unhold", "hold", "loss", "brought back: at least closed_to + 1")
FLOOR_RECALL = _4("due-at-recall", "recall", "loss", "recall: due_at is at least closed_to + 1")
FLOOR_FETCH = _4("due-at-fetch", "line", "loss", "fetch: due_at is at least closed_to + 1")
FLOOR_PULL = _4("due-at-pull", "line", "loss", "pulled forward: at least closed_to + 1")
FLOOR_SWEEP = _4("due-at-sweep", "fence", "loss", "sweep: due_at is at least closed_to + 1")
FLOOR_REARM = _4("due-at-rearm", "clock", "loss", "re-arm: due_at is at least closed_to + 1")
FLOOR_DEFER = _4(
    "due-at-rearm-to-lease", "delivery", "loss", "re-arm to a lease's end: at least closed_to + 1"
)
FLOOR_OVERFLOW = _4(
    "due-at-overflow", "overflow", "loss", "overflow: due_at is at least closed_to + 1"
)
CLOSE_LOCK = _4("close-locks-pointer", "leaders", "back", "close locks the pointer row for setval")
CLOSE_EPOCH = _4("close-checks-epoch", "leaders", "stale write", "close: where epoch = mine")
CLOSE_ITSELF = _4("close-keeps-itself", "clock", "back", "closed_to = greatest(itself, ...)")
CLOSE_CURRENT = _4(
    "close-keeps-current", "sequence", "order", "closed_to = greatest(current_time, ...)"
)
CLOSE_CLOCK = _4(
    "close-bounded-by-clock", "sequence", "harmless", "closed_to <= database clock + look-ahead"
)
TICK_H = _4("tick-h-is-closed-to", "clock", "order", "the tick's h is the value close returned")
BARRIER_TAKEN = _4("barrier", "fence", "loss", "the exclusive fence is taken once before reading")
BARRIER_AFTER_CLOSE = _4("barrier-after-close", "fence", "loss", "the barrier follows the commit")
READ_AFTER_BARRIER = _4(
    "read-after-barrier", "fence", "loss", "rows are read after the barrier, in a new statement"
)
UNFENCED_STAYS = _4(
    "unfenced-stays", "fence", "loss", "an unfenced tick does not move current_time"
)
UNFENCED_WRITES_NOTHING = _4(
    "unfenced-writes-nothing",
    "delivery",
    "loss",
    "an unfenced tick writes, re-arms and drops no requeue row",
)
UNFENCED_REMEMBERS = _4(
    "unfenced-remembers", "once", "twice", "an unfenced tick reads from the last unfenced h on"
)
FENCED_REREADS = _4(
    "fenced-reads-again", "fence", "loss", "the next fenced tick reads the unfenced range again"
)
HAND_RELOADS = _4(
    "hand-reloads", "postgres", "order", "a leader whose connection fell reads the hands anew"
)

_5 = _rules("5")
RANGE_OPEN = _5("range-half-open", "once", "twice", "a tick reads (current_time, h], not [")
ONLY_DUE = _5("only-due-rows", "delivery", "loss", "re-arm and drop only where due_at <= h")
SENT_REARMED = _5("sent-row-rearmed", "fence", "loss", "a published row is re-armed, not dropped")
LEASED_REARMED = _5(
    "leased-row-rearmed", "delivery", "loss", "a leased task's row is re-armed, not dropped"
)
DEFERRED_REARMED = _5(
    "deferred-row-rearmed", "delivery", "loss", "the row of a task with a later next_at is kept"
)
ADVANCE_LAST = _5("advance-last", "leaders", "loss", "current_time moves after the re-arm")
UPSERT_MOVE = _5("upsert-move", "moves", "loss", "a move to a closed time: DO UPDATE")
UPSERT_REPLAY = _5("upsert-replay", "delivery", "loss", "run and replay: DO UPDATE")
UPSERT_RETRY = _5("upsert-retry", "budget", "harmless", "retry: DO UPDATE")
UPSERT_OVERFLOW = _5("upsert-overflow", "overflow", "harmless", "overflow: DO UPDATE")
SWEEP_NOTHING = _5("sweep-does-nothing", "moves", "harmless", "the sweep inserts with DO NOTHING")
SWEEP_LOCKS = _5(
    "sweep-locks-task", "moves", "loss", "a sweep's row needs its task pending at its place, too"
)
OVERFLOW_LOCKS = _5(
    "overflow-locks-task", "overflow", "loss", "an overflow row needs its task pending at its place"
)
OVERFLOW_ROW = _5("overflow-row", "overflow", "harmless", "what does not fit gets a requeue row")
EPOCH_PUBLISH = _5("publish-checks-epoch", "leaders", "stale write", "publish checks the epoch")

_6 = _rules("6")
EPOCH_PAGE = _6("page-checks-epoch", "leaders", "stale write", "a re-arm: where epoch = mine")
EPOCH_ADVANCE = _6("advance-checks-epoch", "leaders", "stale write", "advance: where epoch = mine")
EPOCH_SWEEP = _6("sweep-checks-epoch", "leaders", "stale write", "the sweep: where epoch = mine")

_7 = _rules("7")
CANCEL_LEASE = _7("cancel-lease", "minds", "contradiction", "a cancel needs no lease that runs")
REPLACE_REVISION = _7(
    "replace-revision", "minds", "wrong data", "a replace and a new life grow the revision"
)
CLAIM_PENDING = _7("claim-pending", "delivery", "double", "a claim needs status pending here")
CLAIM_LEASE = _7("claim-lease", "delivery", "double", "a claim needs the lease null or run out")
CLAIM_NEXT_AT = _7("claim-next-at", "delivery", "burned budget", "a claim needs next_at passed")
CLAIM_EARLY = _7("claim-not-early", "redis", "early", "a claim refuses what lies ahead")
SUCCESS_REVISION = _7(
    "success-revision", "delivery", "wrong data", "a success needs revision = mine"
)
FAILURE_ATTEMPTS = _7("failure-attempts", "budget", "double", "a failure needs attempts = mine")
RETRY_ROW = _7("retry-row", "budget", "harmless", "a failure writes next_at and a requeue row")
HOLD_LOCKS = _7("hold-locks-task", "hold", "loss", "a held row needs its task pending at its place")
REPLAY_ROW = _7("replay-row", "delivery", "loss", "a replay writes a requeue row")

_8 = _rules("8")
SWEEP_BEHIND = _8("sweep-behind-current", "sweep", "order", "the sweep never passes current_time")
SWEEP_STOOD = _8(
    "sweep-waits", "sweep", "harmless", "it follows where current_time stood a visibility ago"
)
SWEEP_WHOLE_MS = _8(
    "sweep-whole-ms", "sweep", "loss", "sweep_time advances to the last complete millisecond"
)
SWEEP_ONE_TX = _8("sweep-one-transaction", "sweep", "loss", "rows and sweep_time in one commit")
FETCH_KEEPS_ROW = _8("fetch-keeps-row", "line", "loss", "what is fetched keeps its row")
