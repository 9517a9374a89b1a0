"""broker/guard.py: which addresses a callback may reach."""

from __future__ import annotations

import socket

import pytest

from broker.guard import AddressRefused, Guard, dialled

PUBLIC = [
    "8.8.8.8",
    "2606:4700:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::",
]
NOT_PUBLIC = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.0.1",
    "169.254.169.254",
    "100.64.1.1",
    "192.0.2.1",
    "224.0.0.1",
    "255.255.255.255",
    "0.0.0.0",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2001:0:808:808::80ff:fffe",
]


@pytest.mark.parametrize("host", PUBLIC)
def test_a_public_address_may_be_called(host: str) -> None:
    assert Guard((), (), is_keyless=False).refusal(host) is None


@pytest.mark.parametrize("host", NOT_PUBLIC)
def test_an_address_that_is_not_public_may_not(host: str) -> None:
    refusal = Guard((), (), is_keyless=False).refusal(host)
    assert refusal == f"{host} is not a public address; callback_allow can name it"


@pytest.mark.parametrize("host", NOT_PUBLIC)
def test_a_keyless_server_calls_whatever_its_machine_reaches(host: str) -> None:
    assert Guard((), (), is_keyless=True).refusal(host) is None


@pytest.mark.parametrize("host", ["127.1", "localhost", "", "1.2.3.4.5"])
@pytest.mark.parametrize("is_keyless", [True, False])
def test_what_is_no_address_is_refused(host: str, is_keyless: bool) -> None:
    assert Guard((), (), is_keyless=is_keyless).refusal(host) == f"{host} is not an address"


def test_an_allowed_network_may_be_called_in_all_its_forms() -> None:
    guard = Guard(("10.0.0.0/8",), (), is_keyless=False)
    assert guard.refusal("10.1.2.3") is None
    assert guard.refusal("::ffff:10.1.2.3") is None
    assert guard.refusal("192.168.0.1") is not None


@pytest.mark.parametrize("is_keyless", [True, False])
def test_a_denied_network_is_denied_in_all_its_forms_and_before_it_is_allowed(
    is_keyless: bool,
) -> None:
    guard = Guard(("8.0.0.0/8",), ("8.8.8.0/24",), is_keyless=is_keyless)
    for host in ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808"):
        assert guard.refusal(host) == f"{host} is denied by callback_deny"
    assert guard.refusal("8.9.0.1") is None


def test_a_refused_address_gets_no_socket_and_is_told_of() -> None:
    seen: list[str] = []
    token = dialled.set(seen)
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80))
    with pytest.raises(AddressRefused):
        Guard((), (), is_keyless=False).socket_for(address)
    dialled.reset(token)
    assert seen == ["127.0.0.1"]
