"""broker/guard.py: which addresses a callback may reach."""

from __future__ import annotations

import socket

import pytest

from broker.guard import AddressRefused, Dialling, Guard, dialling
from wheel_timer.biz import BizType
from wheel_timer.callback import check_url
from wheel_timer.errors import InvalidTask

PUBLIC = [
    "8.8.8.8",
    "1.0.0.1",
    "223.255.255.254",
    "2606:4700:4700::1111",
    "2a00:1450:4001:82f::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::",
]
OWN = [  # what a keyless server may reach, and no other
    "127.0.0.1",
    "127.8.9.10",
    "::1",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "fc00::1",
    "fd12:3456:789a::1",
]
WRAPPED = [  # the same, carried by another address: nobody needs that who has nothing to hide
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::7f00:1",
    "::ffff:0:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2001:0:808:808::80ff:fffe",
]
NEVER = [
    "169.254.169.254",
    "169.254.1.1",
    "100.64.1.1",
    "100.127.255.255",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "100::1",
    "4000::1",
    "5f00::1",
    "2001:db8::1",
    "3fff::1",
    "2001:20::1",
    "64:ff9b:1::1",
    "::ffff:169.254.169.254",
    "::ffff:0:a9fe:a9fe",
    "::a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::6440:1",
    "2002:a9fe:a9fe::",
    "2002:e000:1::",
    # Teredo: the relay is public, the hidden client 169.254.169.254; and the other way round.
    "2001:0:808:808::5601:5601",
    "2001:0:a9fe:a9fe::f7f7:f7f7",
    # ISATAP in a public prefix.
    "2606:4700::5efe:a9fe:a9fe",
    "2606:4700::200:5efe:6440:1",
]
ODD = ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "127.0.0.1.", "1.2.3.4.5"]


@pytest.mark.parametrize("host", PUBLIC)
def test_a_public_address_may_be_called(host: str) -> None:
    for is_keyless in (True, False):
        assert Guard((), (), is_keyless=is_keyless).refusal(host) is None


@pytest.mark.parametrize("host", [*OWN, *WRAPPED, *NEVER])
def test_an_address_that_is_not_public_may_not(host: str) -> None:
    refusal = Guard((), (), is_keyless=False).refusal(host)
    assert refusal == f"{host} is not a public address; CALLBACK_ALLOW can name it"


@pytest.mark.parametrize("host", OWN)
def test_a_keyless_server_calls_its_own_machine_and_networks(host: str) -> None:
    assert Guard((), (), is_keyless=True).refusal(host) is None


@pytest.mark.parametrize("host", [*WRAPPED, *NEVER])
def test_a_keyless_server_calls_no_other_special_address(host: str) -> None:
    assert Guard((), (), is_keyless=True).refusal(host) is not None


@pytest.mark.parametrize("host", ["localhost", "", *ODD])
@pytest.mark.parametrize("is_keyless", [True, False])
def test_what_is_no_address_is_refused(host: str, is_keyless: bool) -> None:
    assert Guard((), (), is_keyless=is_keyless).refusal(host) == f"{host} is not an address"


@pytest.mark.parametrize("host", [*ODD, "0X7F.0.0.1", "[fe80::1%25eth0]", "a%2eb", "127%2e0.0.1"])
def test_an_odd_spelling_is_refused_when_it_is_configured(host: str) -> None:
    assert check_url(f"http://{host}/", "#/callback_url") != []
    assert check_url(f"https://{host}:8080/x?y", "#/callback_url") != []


@pytest.mark.parametrize("host", ["a.example.", "1password.example", "x0.example", "0xa.example"])
def test_a_name_that_only_begins_like_a_number_is_a_name(host: str) -> None:
    assert check_url(f"http://{host}/", "#/callback_url") == []
    assert Guard((), (), is_keyless=False).check(f"http://{host}/", (), "#") == []


@pytest.mark.parametrize("host", ["10.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"])
def test_an_address_in_a_url_is_judged_when_it_is_configured(host: str) -> None:
    guard = Guard((), (), is_keyless=False)
    biz = BizType(biz_type="orders", version=1, callback_url=f"http://{host}:81/x")
    with pytest.raises(InvalidTask) as refused:
        guard.judge(biz, None)
    assert [error.pointer for error in refused.value.errors] == ["#/callback_url"]
    # What stands there already is not judged again by a change of something else.
    guard.judge(biz, biz)


def test_an_allowed_network_may_be_called_in_all_its_forms() -> None:
    guard = Guard(("10.0.0.0/8",), (), is_keyless=False)
    assert guard.refusal("10.1.2.3") is None
    assert guard.refusal("::ffff:10.1.2.3") is None
    assert guard.refusal("192.168.0.1") is not None


@pytest.mark.parametrize("host", [one for one in WRAPPED if one != "::ffff:10.0.0.1"])
def test_an_allowed_loopback_is_called_by_its_own_address_only(host: str) -> None:
    guard = Guard(("127.0.0.0/8", "::1/128"), (), is_keyless=False)
    assert guard.refusal("127.0.0.1") is None
    assert guard.refusal(host) is not None


def test_metadata_can_be_allowed_by_name_only() -> None:
    guard = Guard(("169.254.169.254/32",), (), is_keyless=False)
    assert guard.refusal("169.254.169.254") is None
    assert guard.refusal("169.254.169.253") is not None


@pytest.mark.parametrize("is_keyless", [True, False])
def test_a_denied_network_is_denied_in_all_its_forms_and_before_it_is_allowed(
    is_keyless: bool,
) -> None:
    guard = Guard(("8.0.0.0/8",), ("8.8.8.0/24",), is_keyless=is_keyless)
    for host in ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606::5efe:808:808"):
        assert guard.refusal(host) == f"{host} is denied by CALLBACK_DENY"
    assert guard.refusal("8.9.0.1") is None


def test_a_biz_types_networks_narrow_and_never_widen() -> None:
    guard = Guard(("10.0.0.0/8",), ("10.9.0.0/16",), is_keyless=False)
    within = ("10.1.0.0/16", "192.168.0.0/16", "8.8.8.0/24", "10.9.0.0/16")
    assert guard.refusal("10.1.2.3", within) is None
    assert guard.refusal("::ffff:10.1.2.3", within) is None
    assert guard.refusal("8.8.8.8", within) is None
    for outside in ("10.2.0.1", "8.8.4.4", "2001:0:808:808::f7f7:fbfb"):
        refusal = guard.refusal(outside, within)
        assert refusal == f"{outside} is not in the biz_type's callback_allow"
    assert guard.refusal("192.168.0.1", within) is not None
    assert guard.refusal("10.9.0.1", within) == "10.9.0.1 is denied by CALLBACK_DENY"


def test_through_a_proxy_only_the_text_of_a_host_can_be_judged() -> None:
    guard = Guard((), (), is_keyless=False, is_proxied=True)
    for host in ("10.0.0.1", "[::1]", "::1", "2130706433", "127.1", "localhost", "a.LOCALHOST."):
        assert guard.refusal_of_host(host) is not None
    for host in ("a.example", "8.8.8.8", "[2606:4700:4700::1111]"):
        assert guard.refusal_of_host(host) is None
    assert guard.refusal_of_host("a.example", ("8.8.8.0/24",)) is not None
    assert guard.refusal_of_host("8.8.8.8", ("8.8.8.0/24",)) is None
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 3128))
    guard.socket_for(address).close()


def test_a_refused_address_gets_no_socket_and_is_told_of() -> None:
    attempt = Dialling()
    token = dialling.set(attempt)
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80))
    with pytest.raises(AddressRefused):
        Guard((), (), is_keyless=False).socket_for(address)
    attempt.within = ("10.0.0.0/8",)
    with pytest.raises(AddressRefused):
        Guard((), (), is_keyless=True).socket_for(address)
    dialling.reset(token)
    assert attempt.addresses == ["127.0.0.1", "127.0.0.1"]
