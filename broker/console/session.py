"""
Who has signed in: a signed cookie, and the tokens that every form carries. Pure.

The cookie holds no key. It names the key (its id and the SHA-256 of its secret, by which the API
compares it, too), a random number and an end, under a MAC. So each request looks the key up as the
API does: revoked, expired or rotated away, it opens nothing within two seconds. All brokers make
the MAC with the same secret, drawn from ADMIN_KEY and the database's identity: it survives
restarts, stands nowhere, and neither a copy of the database nor a cookie alone gives it away.

A token belongs to one session, one path and one step. A form of another site cannot know it, and
the one for the step `act` is on the page that asks for a confirmation only.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final, Literal, NamedTuple

from wheel_timer.bearer import GivenKey

COOKIE: Final = "wheel_timer_console"
LIFETIME_S: Final = 12 * 3600
_CHARACTERS_MAX: Final = 512

Step = Literal["review", "act"]


class Session(NamedTuple):
    """subject: `local`, `admin`, or a key's id; digest: SHA-256 of that key's secret, or empty."""

    subject: str
    digest: bytes
    nonce: str
    expire_s: int

    @property
    def given(self) -> GivenKey | None:
        """The key that it was opened with; None where it is of none that is stored."""
        return GivenKey(self.subject, self.digest) if self.digest else None


class Seal:
    """Signs and reads sessions. secret: the same for all brokers of one database."""

    def __init__(self, admin_key: str | None, cluster: bytes) -> None:
        self._secret = hmac.digest((admin_key or "").encode(), b"console " + cluster, "sha256")

    def begin(self, subject: str, digest: bytes, now_s: float) -> Session:
        """A new session."""
        return Session(subject, digest, token_urlsafe(16), int(now_s) + LIFETIME_S)

    def write(self, session: Session) -> str:
        """The cookie's value."""
        text = f"{session.subject}.{session.digest.hex()}.{session.nonce}.{session.expire_s}"
        return f"{text}.{self._mac('session', text)}"

    def read(self, cookie: str | None, now_s: float) -> Session | None:
        """The session again; None where it is none of ours, or over."""
        if cookie is None or len(cookie) > _CHARACTERS_MAX:
            return None
        text, _, mac = cookie.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._mac("session", text).encode()):
            return None
        subject, digest, nonce, expire = text.split(".")
        session = Session(subject, bytes.fromhex(digest), nonce, int(expire))
        return session if now_s < session.expire_s else None

    def token(self, session: Session, path: str, step: Step) -> str:
        """What a form of this session that posts to this path carries."""
        return self._mac("token", f"{session.nonce} {step} {path}")

    def is_token(self, given: str, session: Session, path: str, step: Step) -> bool:
        """Whether a form's token is the one it should carry."""
        expected = self.token(session, path, step)
        return hmac.compare_digest(given.encode(), expected.encode())

    def write_notice(self, session: Session, text: str) -> str:
        """A line to be shown on the next page of this session, as a cookie's value."""
        packed = text.encode().hex()
        return f"{packed}.{self._mac('notice', f'{session.nonce} {packed}')}"

    def read_notice(self, session: Session, cookie: str | None) -> str | None:
        """The line again; None where there is none, or it is not for this session."""
        packed, _, mac = (cookie or "").partition(".")
        expected = self._mac("notice", f"{session.nonce} {packed}")
        if not packed or not hmac.compare_digest(mac.encode(), expected.encode()):
            return None
        return bytes.fromhex(packed).decode()

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose} {text}".encode(), sha256).hexdigest()
