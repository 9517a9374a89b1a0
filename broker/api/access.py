"""
Who may call: the key, or, on a server without one, only this machine.

Without ADMIN_KEY the server is open to whoever reaches its loopback port. A web page that the user
of this machine happens to look at reaches it too, by its own name rebound to 127.0.0.1 or by a form
that posts here; so the Host must be a name of this machine, and a browser's request from another
origin may change nothing. With a key none of that matters: a page does not know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from broker.api.actor import SCOPES, Actor
from wheel_timer.bearer import given_key, is_key
from wheel_timer.errors import Forbidden, Unauthorized

_LOCAL_HOST: Final = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


LOCAL: Final = Actor("local", frozenset(SCOPES))
ADMIN: Final = Actor("admin", frozenset(SCOPES))
# Of a path that is open although there are keys.
ANYONE: Final = Actor("anyone", frozenset())


class Access:
    """Judges a request by its headers. admin_key: None or empty for a server that is open."""

    def __init__(self, admin_key: str | None) -> None:
        self._key = admin_key or None

    def check(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Actor:
        """Raises Unauthorized or Forbidden. path: as it came, not decoded."""
        if self._key is None:
            self._check_local(method, headers)
            return LOCAL
        if path.startswith("/v1/") or path == "/metrics":
            self._check_key(self._key, headers)
            return ADMIN
        return ANYONE

    def _check_key(self, key: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        given = given_key(headers)
        if given is None:
            raise Unauthorized("a key is needed: Authorization: Bearer KEY")
        if not is_key(given, key):
            raise Unauthorized("this key is not one of this server")

    def _check_local(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        hosts: list[bytes] = []
        origin = None
        is_cross_site = False
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                is_cross_site = value == b"cross-site"
        if len(hosts) != 1 or not _LOCAL_HOST.fullmatch(hosts[0]):
            raise Forbidden("without ADMIN_KEY only localhost, 127.0.0.1 and [::1] are served")
        if method in _READING:
            return
        if is_cross_site or (
            origin is not None and origin.lower() != b"http://" + hosts[0].lower()
        ):
            raise Forbidden("without ADMIN_KEY a page of another origin may change nothing")
