"""
What a biz_type's configuration and a task's own overrides come to: where a callback goes, with
what fixed headers and keys, and how often. Made once a version of the configuration, and kept.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec

from broker.guard import Allowed
from broker.outcome import Policy
from broker.transport import Field
from wheel_timer.biz import BizType, RetryIn
from wheel_timer.callback import Callback
from wheel_timer.signing import key_of
from wheel_timer.version import __version__

# Overrides kept per biz_type; tasks with a URL each would fill the memory otherwise.
KEPT_MAX: Final = 256

_callback = msgspec.json.Decoder(Callback)
_retry = msgspec.json.Decoder(RetryIn)


class Key(NamedTuple):
    """A signing key. until_ms: from this moment on it does not sign; None: it does."""

    key: bytes
    until_ms: int | None


class Target(NamedTuple):
    """
    Where one kind of callback goes, and how.

    within: the networks that it may reach, where they are named. refusal: why it cannot be called
    as its configuration stands; None where it can be.
    """

    method: str
    url: httpx.URL
    fields: tuple[Field, ...]
    keys: tuple[Key, ...]
    timeout_ms: int
    refusal: str | None
    within: Allowed

    def keys_at(self, now_ms: float) -> list[bytes]:
        """
        What signs a callback now. now_ms: by the database's clock, so that all brokers let an old
        secret go at the same moment.
        """
        return [key.key for key in self.keys if key.until_ms is None or now_ms < key.until_ms]


class Terms(NamedTuple):
    """All that counts for an attempt at one task."""

    target: Target
    policy: Policy


class TermsOf:
    """The terms of one biz_type, at one version of its configuration."""

    def __init__(self, biz: BizType) -> None:
        self.biz = biz
        self._keys = tuple(Key(key_of(one.value), one.until_ms) for one in biz.secrets)
        self._final_statuses = frozenset(biz.final_statuses)
        self._plain = self._make(None, None)
        self._kept: dict[tuple[str | None, str | None], Terms] = {}

    def of(self, callback: str | None, retry: str | None) -> Terms:
        """The terms of a task with these overrides (JSON texts, as stored)."""
        if callback is None and retry is None:
            return self._plain
        terms = self._kept.get((callback, retry))
        if terms is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            terms = self._kept[callback, retry] = self._make(callback, retry)
        return terms

    def _make(self, callback: str | None, retry: str | None) -> Terms:
        policy = self.biz.retry
        try:
            own = None if callback is None else _callback.decode(callback)
            if retry is not None:
                policy = policy.overridden(_retry.decode(retry))
        except msgspec.MsgspecError:
            # Written by a newer release than this broker's; another broker may know it.
            target = self._target(None)._replace(refusal="the task's overrides are not understood")
        else:
            target = self._target(own)
        return Terms(target, Policy(policy, self.biz.max_age_ms, self._final_statuses))

    def _target(self, own: Callback | None) -> Target:
        biz = self.biz
        url = biz.callback_url if own is None else own.url
        refusal = None
        if url is None:
            refusal = "the biz_type has no callback_url"
        elif own is not None and not biz.allow_callback_override:
            refusal = "the biz_type does not allow a task's own callback any more"
        headers = biz.callback_headers
        timeout_ms = biz.timeout_ms
        if own is not None:
            # The biz_type's headers may carry its credentials: they go to its own origin only.
            kept = headers if _origin(own.url) == _origin(biz.callback_url) else {}
            headers = kept | {name.lower(): value for name, value in own.headers.items()}
            timeout_ms = timeout_ms if own.timeout is None else round(own.timeout * 1000)
        fixed = {
            "user-agent": f"wheel-timer/{__version__}",
            "wheel-timer-biz-type": biz.biz_type,
            **headers,
        }
        try:
            parsed = httpx.URL(url or "")
        except httpx.InvalidURL as error:
            # It was checked when it was given; what another release let through fails its own
            # tasks only.
            parsed, refusal = httpx.URL(""), f"the callback URL cannot be called: {error}"
        return Target(
            biz.callback_method if own is None or own.method is None else own.method,
            parsed,
            tuple(fixed.items()),
            self._keys,
            timeout_ms,
            refusal,
            biz.callback_allow,
        )


def _origin(url: str | None) -> tuple[str, str | None, int | None] | None:
    if url is None:
        return None
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
