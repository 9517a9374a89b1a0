"""
Who calls: a key's owner, or, on a server without ADMIN_KEY, whoever sits at this machine.

Without ADMIN_KEY the server is open to whoever reaches its loopback port. A web page that the user
of this machine happens to look at reaches it too, by its own name rebound to 127.0.0.1 or by a form
that posts here; so the Host must be a name of this machine, and a browser's request from another
origin may change nothing. With a key none of that matters: a page does not know it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from broker.api.actor import SCOPES, Actor
from broker.api.peer import forwarded_for, is_loopback
from wheel_timer.bearer import KEY_PREFIX, GivenKey, given_key, is_key, split_key
from wheel_timer.errors import Forbidden, Unauthorized

_LOCAL_HOST: Final = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# What tells of browsers and proxies.
_TELLING: Final = frozenset({b"host", b"origin", b"sec-fetch-site", b"x-forwarded-for"})
_NO_KEY_OF_OURS: Final = "this key is not one of this server, or not any more"
_OWN_SITE: Final = frozenset({b"same-origin", b"none"})

LOCAL: Final = Actor("local", frozenset(SCOPES))
ADMIN: Final = Actor("admin", frozenset(SCOPES))
# Of a path that is open although there are keys.
ANYONE: Final = Actor("anyone", frozenset())

Headers = Sequence[tuple[bytes, bytes]]


class KnownKeys(Protocol):
    """What Access asks of broker/keys.py."""

    def actor_of(self, given: GivenKey) -> Actor | None:
        """Who presents this key, as far as is known here."""

    async def look_again(self) -> None:
        """Know what others have changed."""


class Access:
    """
    Says by a request's headers who calls. admin_key: None or empty for a server that is open.

    A key that was made with POST /v1/keys counts on an open server too, so that it can be tried.
    """

    def __init__(self, admin_key: str | None, keys: KnownKeys) -> None:
        self._admin_key = admin_key or None
        self._keys = keys

    async def check(self, method: str, path: str, headers: Headers) -> Actor:
        """Raises Unauthorized or Forbidden. path: as it came, not decoded."""
        if self._admin_key is None:
            check_local(method, headers)
        if not (path.startswith("/v1/") or path == "/metrics"):
            return ANYONE
        return await self.of_key(given_key(headers))

    async def of_key(self, given: bytes | None) -> Actor:
        """Who presents this text as his key. Raises Unauthorized."""
        if self._admin_key is None and (given is None or not given.startswith(KEY_PREFIX)):
            return LOCAL
        if given is None:
            raise Unauthorized("a key is needed: Authorization: Bearer KEY")
        if self._admin_key is not None and is_key(given, self._admin_key):
            return ADMIN
        key = split_key(given)
        if key is None:
            raise Unauthorized(_NO_KEY_OF_OURS)
        return await self.owner(key)

    async def owner(self, key: GivenKey) -> Actor:
        """Whose key this is. Raises Unauthorized."""
        actor = self._keys.actor_of(key)
        if actor is None:
            await self._keys.look_again()
            actor = self._keys.actor_of(key)
        if actor is None:
            raise Unauthorized(_NO_KEY_OF_OURS)
        return actor


def check_local(method: str, headers: Headers) -> None:
    """Raises Forbidden where a request is not of this machine's user, or of a foreign page."""
    telling = [header for header in headers if header[0] in _TELLING]
    hosts = [value.lower() for name, value in telling if name == b"host"]
    if len(hosts) != 1 or not _LOCAL_HOST.fullmatch(hosts[0]):
        raise Forbidden("without ADMIN_KEY only localhost, 127.0.0.1 and [::1] are served")
    if len(telling) == 1:
        return  # no browser, no proxy: nearly every request
    if not all(is_loopback(hop) for hop in forwarded_for(telling)):
        # A proxy on this machine lets others in, who would find everything open.
        raise Forbidden("without ADMIN_KEY nobody beyond this machine is served")
    if method in _READING:
        return
    own = b"http://" + hosts[0]
    for name, value in telling:
        # Another port of this machine is another origin, and may be anybody's page.
        is_foreign = (name == b"origin" and value.lower() != own) or (
            name == b"sec-fetch-site" and value not in _OWN_SITE
        )
        if is_foreign:
            raise Forbidden("without ADMIN_KEY a page of another origin may change nothing")
