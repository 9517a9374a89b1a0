"""
Putting references into lanes: by the due hand, under its epoch; by brokers, what is near.

A lane takes no more than its window (window.py). Who finds it full leaves the reference to its
requeue row, and the due hand makes it one that stands in line in Postgres. While anything stands in
line for a lane, the leader says so in Redis, and near tasks do not overtake it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.signal import reached
from wheel_timer.streams import TAGS, Call, Streams, pack
from wheel_timer.task import Ref
from wheel_timer.window import WINDOW_UNMEASURED

LINE_TOLD_MS: Final = 3_000


class Room(NamedTuple):
    """Up to how many entries a lane may be filled; keeps_tenth: but for a tenth of its room."""

    window: int
    keeps_tenth: bool


class Published(NamedTuple):
    """
    What became of a page. refused_by: the higher epoch that leads, or None. missing: Redis did not
    know us: lost. full: no room in their lane. failed: Redis refused them, or was not there, and
    why; some may have been added all the same. before: entries that each lane held.
    """

    refused_by: int | None
    missing: bool
    full: Sequence[Ref] = ()
    failed: Sequence[Ref] = ()
    error: str = ""
    before: Mapping[str, int] = {}


class Level(NamedTuple):
    """Entries that a lane holds, and how many were ever acknowledged in it."""

    depth: int
    done: int


# Tag -> lane -> its references.
_Pages = dict[str, dict[str, list[Ref]]]


class Publishing(Streams):
    """The ways in, as one process sees them. window_of: a broker's windows, by biz_type."""

    _cluster: str  # the database's id: an epoch is compared with epochs of the same database only

    def __init__(self, redis_url: str, *, prefix: str, consumer: str) -> None:
        super().__init__(redis_url, prefix=prefix, consumer=consumer)
        self.window_of: Callable[[str], int] = lambda _: WINDOW_UNMEASURED
        self._publish = self._script("publish")
        self._publish_near = self._script("publish_near")

    def _epoch_key(self, tag: str, shard: int) -> str:
        return f"{self._prefix}:{tag}:epoch:{self._cluster}:{shard}"

    async def publish(
        self,
        shard: int,
        epoch: int,
        refs: Sequence[Ref],
        room_of: Callable[[str], Room] = lambda _: Room(WINDOW_UNMEASURED, False),
    ) -> Published:
        """
        Put a page of references into their lanes under `epoch`: one script call a tag, in order.

        A page refused for a higher epoch in one tag may have been added in another; publishing it
        again is harmless. Raises EventCenterUnavailable where nothing answers.
        """
        by_tag: _Pages = defaultdict(lambda: defaultdict(list))
        for ref in refs:
            key = self.lane_key(ref.biz_type)
            by_tag[key[len(self._prefix) + 1 : key.index("}") + 1]][ref.biz_type].append(ref)
        published = await self._publish_pages(shard, epoch, by_tag, room_of)
        reached("eventcenter.published")
        return published

    async def announce(self, shard: int, epoch: int) -> Published:
        """Make `epoch` known in every tag: nothing is taken under an older one from now on."""
        by_tag: _Pages = {f"{{{tag}}}": {} for tag in range(TAGS)}
        published = await self._publish_pages(shard, epoch, by_tag, lambda _: Room(0, False))
        if published.error:
            raise EventCenterUnavailable(published.error)
        return published

    async def _publish_pages(
        self, shard: int, epoch: int, by_tag: _Pages, room_of: Callable[[str], Room]
    ) -> Published:
        calls = [
            self._call(epoch, self._epoch_key(tag, shard), lanes, room_of)
            for tag, lanes in by_tag.items()
        ]
        refused_by, missing, error = 0, False, ""
        full: list[Ref] = []
        failed: list[Ref] = []
        before: dict[str, int] = {}
        answers = await self._call_all(self._publish, calls)
        for lanes, answer in zip(by_tag.values(), answers, strict=True):
            if isinstance(answer, Exception):
                error = str(answer)
                failed += [ref for refs in lanes.values() for ref in refs]
                continue
            refused_by = max(refused_by, answer[0])
            missing = missing or bool(answer[1])
            if answer[0]:
                continue
            for at, (name, refs) in enumerate(lanes.items()):
                added, before[name] = answer[2 + 2 * at], answer[3 + 2 * at]
                full += refs[added:]
        return Published(refused_by or None, missing, full, failed, error, before)

    def _call(
        self,
        epoch: int,
        epoch_key: str,
        lanes: Mapping[str, list[Ref]],
        room_of: Callable[[str], Room],
    ) -> Call:
        arguments: list[bytes | str | int] = [epoch]
        for name in lanes:
            room = room_of(name)
            arguments += (room.window, int(room.keeps_tenth))
        for index, refs in enumerate(lanes.values(), start=2):
            for ref in refs:
                arguments += (index, pack(ref))
        return Call([epoch_key, *map(self.lane_key, lanes)], arguments)

    async def publish_direct(self, refs: Sequence[Ref]) -> int:
        """
        Put near tasks' references into their lanes, as far as there is room; unfenced, for brokers.

        Returns how many were left to their nets. Raises EventCenterUnavailable.
        """
        lanes: dict[str, list[Ref]] = defaultdict(list)
        for ref in refs:
            lanes[ref.biz_type].append(ref)
        calls = [
            Call(
                [self.lane_key(name), self.beside("line", name)],
                [self.window_of(name), *map(pack, of_lane)],
            )
            for name, of_lane in lanes.items()
        ]
        answers = await self._call_all(self._publish_near, calls)
        for answer in answers:
            if isinstance(answer, Exception):
                raise EventCenterUnavailable(str(answer)) from answer
        added: int = sum(answers)
        return len(refs) - added

    async def tell_lines(self, names: Sequence[str]) -> None:
        """For LINE_TOLD_MS from now on, near tasks of these are not to overtake those in line."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.set(self.beside("line", name), "1", px=LINE_TOLD_MS)
            await self._run(pipe.execute())

    async def levels(self, names: Sequence[str]) -> dict[str, Level]:
        """How full these lanes are, and how far they were worked off."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.xlen(self.lane_key(name))
                pipe.get(self.beside("done", name))
            answers: list[Any] = await self._run(pipe.execute())
        return {
            name: Level(depth, int(done or 0))
            for name, depth, done in zip(names, answers[::2], answers[1::2], strict=True)
        }
