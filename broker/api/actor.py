"""
Who calls, and what they may do: scopes say which operations, patterns which biz_types. Pure.

What an actor may not see is as if it were not there (404); a scope that it lacks is 403.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, get_args

from starlette.requests import Request

from wheel_timer.bearer import covers
from wheel_timer.errors import Forbidden, NotFound

Scope = Literal["submit", "read", "operate", "configure", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
# Of an operation that any key may call.
ANY_SCOPE: Final = SCOPES
# Changing one's own tasks: who submits may, and who operates.
CHANGE_SCOPE: Final[tuple[Scope, ...]] = ("submit", "operate")


class Actor(NamedTuple):
    """
    Who calls. name stands in timer_change: `local` (a server without keys), `admin` or `key:ID`.

    biz_types: the patterns of a key that sees a part only, a name or a prefix and `*`; None: all.
    """

    name: str
    scopes: frozenset[Scope]
    biz_types: tuple[str, ...] | None = None

    @property
    def is_narrowed(self) -> bool:
        """Whether there are biz_types that this actor does not see."""
        return self.biz_types is not None

    def sees(self, biz_type: str) -> bool:
        """Whether this biz_type, and what belongs to it, is there for this actor."""
        return self.biz_types is None or any(covers(p, biz_type) for p in self.biz_types)

    def check_sees(self, biz_type: str) -> None:
        """Raises NotFound where the actor does not see this biz_type."""
        if not self.sees(biz_type):
            raise NotFound(f"there is no biz_type {biz_type[:64]!r} for this key")

    def check_may(self, scopes: Iterable[Scope]) -> None:
        """Raises Forbidden where the actor has none of these scopes. No scopes: open to all."""
        wanted = tuple(scopes)
        if wanted and self.scopes.isdisjoint(wanted):
            raise Forbidden(f"this key lacks the scope {' or '.join(wanted)}")


def actor_of(request: Request) -> Actor:
    """Who sent this request."""
    actor: Actor = request.scope["actor"]
    return actor
