"""
Which addresses a callback may reach. A callback URL is a tenant's input, and names change their
meaning, so it is the address being dialled that is judged, at the moment of dialling: a name that
passed an earlier check and points elsewhere now (DNS rebinding) gains nothing.

The order: `callback_deny` refuses, `callback_allow` lets through, and what neither names is
refused where it is not a public address. A keyless server (no admin key) binds loopback only and
belongs to whoever sits at the machine, so there nothing but `callback_deny` refuses.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any, Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64: Final = ip_network("64:ff9b::/96")
_IPV4_COMPATIBLE: Final = ip_network("::/96")
_CGNAT: Final = ip_network("100.64.0.0/10")
_SITE_LOCAL: Final = ip_network("fec0::/10")

# The addresses dialled in the present context, where somebody wants to know: `broker/transport.py`
# tells a fresh connection from a reused one by it, and an attempt's record names the last.
dialled: ContextVar[list[str] | None] = ContextVar("dialled", default=None)


class AddressRefused(OSError):
    """The address policy forbids to dial this address; its errno is EACCES."""


class Guard:
    """
    The address policy of one process, as the socket factory of its connections.

    allow, deny: CIDR texts. is_keyless: no admin key, see above.
    """

    def __init__(self, allow: Sequence[str], deny: Sequence[str], *, is_keyless: bool) -> None:
        self._allow = [ip_network(cidr, strict=False) for cidr in allow]
        self._deny = [ip_network(cidr, strict=False) for cidr in deny]
        self._is_keyless = is_keyless
        self._refusal = lru_cache(maxsize=4096)(self._judge)

    def refusal(self, host: str) -> str | None:
        """Why this numeric address must not be dialled; None where it may."""
        return self._refusal(host)

    def socket_for(self, address_info: tuple[Any, ...]) -> socket.socket:
        """
        A socket to dial `address_info` (as getaddrinfo gives it) with. Raises AddressRefused.

        aiohttp calls this with what it is about to connect to, nothing lies in between.
        """
        family, kind, protocol, _, address = address_info
        seen = dialled.get()
        if seen is not None:
            seen.append(address[0])
        refusal = self.refusal(address[0])
        if refusal is not None:
            raise AddressRefused(errno.EACCES, refusal)
        return socket.socket(family=family, type=kind, proto=protocol)

    def _judge(self, host: str) -> str | None:
        try:
            address = ip_address(host)
        except ValueError:
            # Nothing that only looks like an address ("127.1") is given to the kernel to guess.
            return f"{host} is not an address"
        carried = _carried(address)
        if any(_is_in(form, self._deny) for form in (address, *carried)):
            return f"{host} is denied by callback_deny"
        # A form that carries others leads to those, whatever prefix it stands under.
        judged = carried or [address]
        if self._is_keyless or _is_in(address, self._allow):
            return None
        if all(_is_public(form) or _is_in(form, self._allow) for form in judged):
            return None
        return f"{host} is not a public address; callback_allow can name it"


def _carried(address: Address) -> list[Address]:
    """The addresses hidden in this one: IPv4 mapped, compatible, by NAT64, 6to4 or Teredo."""
    if isinstance(address, IPv4Address):
        return []
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return [*address.teredo]
    if address in _NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 0xFFFF):
        return [IPv4Address(int(address) & 0xFFFF_FFFF)]
    return []


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _is_public(address: Address) -> bool:
    return not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
        or address in _CGNAT
        or address in _SITE_LOCAL
    )
