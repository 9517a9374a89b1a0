"""What a daemon knows of the biz_types: their rate limits, and which are paused."""

from __future__ import annotations

from wheel_timer.biz import BizType
from wheel_timer.database import Database
from wheel_timer.store.biz import load_newer


class Limits:
    """Every biz_type by its name, a second or two behind the database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._version = 0
        self._told = 0
        self.biz_types: dict[str, BizType] = {}

    def pulse(self, version: int) -> None:
        """The database's highest version, as the clock's pulse brings it."""
        self._told = max(self._told, version)

    async def refresh(self) -> None:
        """Know what the last pulse told of. Raises DatabaseUnavailable."""
        told = self._told
        if told <= self._version:
            return
        news = await load_newer(self._db, self._version)
        for biz in news.biz_types:
            self.biz_types[biz.biz_type] = biz
        for name in news.deleted:
            self.biz_types.pop(name, None)
        self._version = max(told, news.version)
