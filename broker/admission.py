"""
Whether a submit is taken: submit_rate_limit, exact over all brokers.

Each task is a token of its biz_type's bucket in Redis, as a callback is of another. A request asks
once for all its tasks of a biz_type; the first ones get what there is. Nothing is asked where there
is no limit. A bucket is full at first: nobody is to be refused for being the first. While Redis is
away each broker has a bucket of its own, empty at first, with its share of the rate.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import Final

from broker.bucket import Bucket, Shape, submit_shape
from wheel_timer.biz import BizType
from wheel_timer.buckets import Ask, Granted
from wheel_timer.errors import EventCenterUnavailable, RateLimited
from wheel_timer.eventcenter import EventCenter

KIND: Final = "submits"

logger = logging.getLogger(__name__)


class Admission:
    """What one broker's API takes in."""

    def __init__(self, event_center: EventCenter) -> None:
        self._event_center = event_center
        self._local: dict[str, Bucket] = {}

    async def refused(
        self, wanted: Iterable[tuple[BizType, int]]
    ) -> dict[str, tuple[int, RateLimited]]:
        """
        How many tasks of each biz_type are one too many, and with what error.

        wanted: tasks of biz_types that have a submit_rate_limit. Those over it took no token.
        """
        asks = [
            Ask(KIND, biz.biz_type, *shape, tasks, is_full_at_first=True)
            for biz, tasks in wanted
            if (shape := submit_shape(biz)) is not None
        ]
        answers = await self._answers(asks) if asks else []
        refused: dict[str, tuple[int, RateLimited]] = {}
        for ask, answer in zip(asks, answers, strict=True):
            over = ask.wanted - answer.tokens
            if over:
                detail = f"more tasks of {ask.biz_type!r} than its submit_rate_limit allows"
                # When all of them could come, but for what others take.
                wait_s = answer.wait_s + (min(over, ask.capacity) - 1) / ask.per_s
                refused[ask.biz_type] = over, RateLimited(detail, max(1, math.ceil(wait_s)))
        return refused

    async def _answers(self, asks: list[Ask]) -> list[Granted]:
        reach = self._event_center.reach
        if not reach.is_away:
            try:
                answers = await self._event_center.take_tokens(asks)
                self._local.clear()
                return answers
            except EventCenterUnavailable as error:
                logger.warning("submit rates are kept by each broker for itself: %s", error)
                reach.failed(error)
        now_s = asyncio.get_running_loop().time()
        return [self._take_local(ask, now_s) for ask in asks]

    def _take_local(self, ask: Ask, now_s: float) -> Granted:
        shape = Shape(ask.per_s, ask.capacity).shared(self._event_center.brokers)
        bucket = self._local.get(ask.biz_type)
        if bucket is None:
            bucket = self._local[ask.biz_type] = Bucket(shape, now_s)
        bucket.shape = shape
        return Granted(*bucket.take(ask.wanted, now_s))
