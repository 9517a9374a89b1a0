"""
How late first calls were, over the last hours: brokers add what they have counted to hashes in
Redis, whoever shows it reads them. Lost with Redis, nothing is missing but the picture.

Counted in classes, five to each power of ten from 1 ms to an hour, so that the counts of all
brokers add up; a percentile is the end of its class, too high by a factor of 1.6 at most. For all
biz_types together by minute, for each alone by five minutes: who sees only some gets theirs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from wheel_timer.streams import Streams

MINUTE_MS: Final = 60_000
FIVE_MS: Final = 300_000
KEPT_MS: Final = 7_200_000
# Commands that go out together; the callbacks of this process have the loop between two of these.
AT_ONCE: Final = 250
# The upper end of each class but the last, in ms: the last holds all that is later.
ENDS_MS: Final = tuple(10 ** (n / 5) for n in range(33))

# class -> first calls
Counts = dict[int, int]


def class_of(lateness_ms: float) -> int:
    """The class of a lateness."""
    return bisect_left(ENDS_MS, lateness_ms)


def percentile_ms(counts: Mapping[int, int], share: float) -> float | None:
    """The end of the class that this share of the calls lies below; None where there was none."""
    left = share * sum(counts.values())
    for place in sorted(counts):
        left -= counts[place]
        if left <= 0:
            return ENDS_MS[min(place, len(ENDS_MS) - 1)]
    return None


class Lateness(Streams):
    """The counts, as one process adds to them and reads them."""

    def _minute_key(self, minute_ms: int) -> str:
        return f"{self._prefix}:late:{minute_ms}"

    def _five_key(self, biz_type: str, five_ms: int) -> str:
        return f"{self.beside('late', biz_type)}:{five_ms}"

    async def add_lateness(self, counts: Mapping[tuple[str, int], int], now_ms: float) -> None:
        """
        Add what was counted lately, by biz_type and class. Raises EventCenterUnavailable: some of
        it may have been added then; it is not to be said again.
        """
        minute_ms = int(now_ms) // MINUTE_MS * MINUTE_MS
        five_ms = int(now_ms) // FIVE_MS * FIVE_MS
        total: Counts = {}
        added: list[tuple[str, int, int]] = []
        for (biz_type, place), calls in counts.items():
            total[place] = total.get(place, 0) + calls
            added.append((self._five_key(biz_type, five_ms), place, calls))
        added += [(self._minute_key(minute_ms), place, calls) for place, calls in total.items()]
        rest = iter(added)
        while some := list(islice(rest, AT_ONCE)):
            async with self._redis.pipeline(transaction=False) as pipe:
                for key, place, calls in some:
                    pipe.hincrby(key, str(place), calls)
                for key in dict.fromkeys(key for key, _, _ in some):
                    pipe.pexpire(key, KEPT_MS)
                await self._run(pipe.execute())

    async def lateness(self, now_ms: float, minutes: int) -> list[Counts]:
        """Of all biz_types, minute by minute, the present one last. Raises as above."""
        last = int(now_ms) // MINUTE_MS
        keys = [self._minute_key((last - n) * MINUTE_MS) for n in reversed(range(minutes))]
        return await self._counts(keys)

    async def lateness_of(
        self, biz_types: Sequence[str], now_ms: float, fives: int
    ) -> list[Counts]:
        """Of some biz_types together, five minutes by five minutes. Raises as above."""
        last = int(now_ms) // FIVE_MS
        starts = [(last - n) * FIVE_MS for n in reversed(range(fives))]
        found = await self._counts(
            [self._five_key(name, start) for start in starts for name in biz_types]
        )
        width = len(biz_types)
        return [summed(found[n * width : (n + 1) * width]) for n in range(fives)]

    async def _counts(self, keys: Sequence[str]) -> list[Counts]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hgetall(key)
            answers = await self._run(pipe.execute())
        return [{int(place): int(calls) for place, calls in hash_.items()} for hash_ in answers]


def summed(parts: Iterable[Mapping[int, int]]) -> Counts:
    """Counts added up."""
    sums: Counts = {}
    for part in parts:
        for place, calls in part.items():
            sums[place] = sums.get(place, 0) + calls
    return sums
