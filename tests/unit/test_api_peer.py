"""broker/api/peer.py: whose word counts on where a request comes from."""

from __future__ import annotations

from typing import Any

import pytest

from broker.api.peer import Peers


def scope(client: str | None, *forwarded: str) -> dict[str, Any]:
    return {
        "client": None if client is None else (client, 4711),
        "headers": [(b"x-forwarded-for", line.encode()) for line in forwarded],
    }


@pytest.mark.parametrize(
    ("client", "forwarded", "expected"),
    [
        ("192.0.2.9", (), "192.0.2.9"),
        # Not from a proxy of ours: nobody believes it.
        ("192.0.2.9", ("10.0.0.1",), "192.0.2.9"),
        ("10.0.0.1", ("192.0.2.7",), "192.0.2.7"),
        # What the client itself put in front does not count.
        ("10.0.0.1", ("6.6.6.6, 192.0.2.7",), "192.0.2.7"),
        ("10.0.0.1", ("6.6.6.6", "192.0.2.7, 10.0.0.2"), "192.0.2.7"),
        ("10.0.0.1", ("10.0.0.3, 10.0.0.2",), "10.0.0.3"),
        ("10.0.0.1", ("192.0.2.7:8080",), "192.0.2.7"),
        ("10.0.0.1", ("[2001:db8::7]:8080",), "2001:db8::7"),
        ("10.0.0.1", ("2001:db8::7",), "2001:db8::7"),
        ("::ffff:10.0.0.1", ("192.0.2.7",), "192.0.2.7"),
        ("10.0.0.1", ("unknown",), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.7, evil\x1b[2J",), "10.0.0.1"),
        ("10.0.0.1", ("",), "10.0.0.1"),
        (None, ("192.0.2.7",), "an unknown address"),
        ("testclient", (), "an unknown address"),
    ],
)
def test_only_what_trusted_proxies_wrote_counts(
    client: str | None, forwarded: tuple[str, ...], expected: str
) -> None:
    assert Peers(["10.0.0.0/8"]).address(scope(client, *forwarded)) == expected


def test_without_trusted_proxies_it_is_the_peer() -> None:
    assert Peers([]).address(scope("127.0.0.1", "192.0.2.7")) == "127.0.0.1"
