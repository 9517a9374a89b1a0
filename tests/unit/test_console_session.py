"""The console's cookie and its tokens."""

from __future__ import annotations

from hashlib import sha256

import pytest

from broker.console.session import LIFETIME_S, Seal, Session

NOW_S = 1_800_000_000.0
DIGEST = sha256(b"secret").digest()


@pytest.fixture
def seal() -> Seal:
    return Seal("an admin key", b"a cluster")


@pytest.fixture
def session(seal: Seal) -> Session:
    return seal.begin("0a1b2c3d", DIGEST, NOW_S)


def test_a_session_is_read_by_every_broker_that_shares_key_and_database(session: Session) -> None:
    cookie = Seal("an admin key", b"a cluster").write(session)
    assert Seal("an admin key", b"a cluster").read(cookie, NOW_S) == session
    assert Seal("another key", b"a cluster").read(cookie, NOW_S) is None
    assert Seal("an admin key", b"another cluster").read(cookie, NOW_S) is None
    assert Seal(None, b"a cluster").read(cookie, NOW_S) is None


def test_a_session_ends(seal: Seal, session: Session) -> None:
    cookie = seal.write(session)
    assert seal.read(cookie, NOW_S + LIFETIME_S - 1) == session
    assert seal.read(cookie, NOW_S + LIFETIME_S) is None


def test_a_cookie_that_was_touched_is_none(seal: Seal, session: Session) -> None:
    cookie = seal.write(session)
    for place in range(len(cookie)):
        other = "0" if cookie[place] != "0" else "1"
        assert seal.read(cookie[:place] + other + cookie[place + 1 :], NOW_S) is None, place
    for text in ("", ".", "....", "a.b.c.d.e", "ä" * 40, "x" * 100_000):
        assert seal.read(text, NOW_S) is None
    assert seal.read(None, NOW_S) is None


def test_a_cookie_holds_no_secret(seal: Seal, session: Session) -> None:
    assert b"secret" not in seal.write(session).encode()
    given = session.given
    assert given is not None
    assert (given.key_id, given.digest) == ("0a1b2c3d", DIGEST)
    assert seal.begin("admin", b"", NOW_S).given is None


def test_a_token_is_of_one_session_one_path_and_one_step(seal: Seal, session: Session) -> None:
    token = seal.token(session, "/console/wheel/pause", "act")
    assert seal.is_token(token, session, "/console/wheel/pause", "act")
    assert not seal.is_token(token, session, "/console/wheel/pause", "review")
    assert not seal.is_token(token, session, "/console/wheel/resume", "act")
    again = seal.begin(session.subject, session.digest, NOW_S)
    assert not seal.is_token(token, again, "/console/wheel/pause", "act")
    assert not seal.is_token("", session, "/console/wheel/pause", "act")
    assert not seal.is_token("ä", session, "/console/wheel/pause", "act")


def test_a_notice_is_for_its_session_only(seal: Seal, session: Session) -> None:
    cookie = seal.write_notice(session, "Nächste Woche; <b>")
    assert seal.read_notice(session, cookie) == "Nächste Woche; <b>"
    again = seal.begin(session.subject, session.digest, NOW_S)
    assert seal.read_notice(again, cookie) is None
    for text in (None, "", ".", "zz.zz", cookie[:-1]):
        assert seal.read_notice(session, text) is None
