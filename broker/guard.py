"""
Which addresses a callback may reach. A callback URL is a tenant's input, and names change their
meaning, so it is the address being dialled that is judged, at the moment of dialling: a name that
passed an earlier check and points elsewhere now (DNS rebinding) gains nothing. A URL that names an
address itself is judged when it is configured, too: its owner hears of it at once.

The order: CALLBACK_DENY refuses; then the biz_type's callback_allow, where it names networks,
refuses all others (it narrows, it never widens: it is a tenant's input as well); CALLBACK_ALLOW
lets through; and what neither names is refused where it is not a public address. A keyless server
(no admin key) binds loopback only and belongs to whoever sits at the machine: there loopback and
private networks may be reached, by their own addresses and not wrapped up in another (mapped, NAT64
and the like), and the rest of what is not public may not.

Through CALLBACK_PROXY the address is the proxy's to find, and to judge: only a host that is an
address itself is judged here, and a biz_type with a callback_allow can reach nothing else.
"""

from __future__ import annotations

import errno
import math
import re
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
from typing import Any, Final, Self
from urllib.parse import urlsplit

from wheel_timer.biz import BizType
from wheel_timer.callback import looks_numeric
from wheel_timer.errors import FieldError, InvalidTask
from wheel_timer.settings import Settings

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# What the kernel takes of an answer that nobody reads on; the kernel doubles it. An answer's body
# is read up to as much (broker/attempt.py).
RECEIVE_BYTES: Final = 65_536

# Stated here and not left to ipaddress.is_private, whose meaning differs between Python's releases.
_PRIVATE: Final = (
    ip_network("10.0.0.0/8"),
    ip_network("172.16.0.0/12"),
    ip_network("192.168.0.0/16"),
    ip_network("fc00::/7"),
)
_LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
# Cloud metadata in private ranges: AWS, Google. Not for a keyless server either.
_METADATA: Final = (ip_network("fd00:ec2::254/128"), ip_network("fd20:ce::254/128"))
_SPECIAL: Final = (
    ip_network("0.0.0.0/8"),  # this network; the unspecified address is loopback to a kernel
    ip_network("100.64.0.0/10"),  # carriers' NAT
    ip_network("169.254.0.0/16"),  # link-local, cloud metadata
    ip_network("192.0.0.0/24"),  # protocol assignments
    ip_network("192.0.2.0/24"),  # documentation
    ip_network("192.88.99.0/24"),  # 6to4 relays
    ip_network("198.18.0.0/15"),  # benchmarks
    ip_network("198.51.100.0/24"),
    ip_network("203.0.113.0/24"),
    ip_network("224.0.0.0/4"),  # multicast
    ip_network("240.0.0.0/4"),  # reserved, broadcast
)
# Of IPv6 the one range that is given out; all else is special, or nobody's yet.
_GLOBAL_IPV6: Final = ip_network("2000::/3")
_SPECIAL_IPV6: Final = (
    ip_network("2001::/23"),  # protocol assignments; Teredo is judged by what it carries
    ip_network("2001:db8::/32"),  # documentation
    ip_network("3fff::/20"),  # documentation
)
_NAT64: Final = ip_network("64:ff9b::/96")
_IPV4_COMPATIBLE: Final = ip_network("::/96")
_IPV4_TRANSLATED: Final = ip_network("::ffff:0:0:0/96")
# An interface identifier of ISATAP: 0000:5efe or 0200:5efe, then an IPv4 address.
_ISATAP: Final = 0x5EFE
_LOCAL_NAME: Final = re.compile(r"(?:.*\.)?localhost\.?", re.IGNORECASE)

Allowed = tuple[str, ...]


class Dialling:
    """
    What one attempt dials. within: its biz_type's callback_allow; until_s: after this (monotonic_s)
    it sends nothing; addresses: those dialled; is_sent: whether a request has gone out.
    """

    def __init__(self, within: Allowed = (), until_s: float = math.inf) -> None:
        self.within = within
        self.until_s = until_s
        self.addresses: list[str] = []
        self.is_sent = False


# The attempt of the present context: `broker/transport.py` tells a fresh connection from a reused
# one by its addresses, and an attempt's record names the last.
dialling: ContextVar[Dialling | None] = ContextVar("dialling", default=None)


class AddressRefused(OSError):
    """The address policy forbids to dial this address; its errno is EACCES."""


class Guard:
    """
    The address policy of one process, as the socket factory of its connections.

    allow, deny: CIDR texts. is_keyless: no admin key. is_proxied: by CALLBACK_PROXY. See above.
    """

    def __init__(
        self,
        allow: Sequence[str],
        deny: Sequence[str],
        *,
        is_keyless: bool,
        is_proxied: bool = False,
    ) -> None:
        self._allow = _networks(tuple(allow))
        self._own = (*_LOOPBACK, *_PRIVATE) if is_keyless else ()
        self._deny = _networks(tuple(deny))
        self._is_keyless = is_keyless
        self._is_proxied = is_proxied
        self._refusal = lru_cache(maxsize=4096)(self._judge)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The guard that the settings ask for."""
        return cls(
            settings.callback_allow,
            settings.callback_deny,
            is_keyless=not settings.admin_key,
            is_proxied=bool(settings.callback_proxy),
        )

    def refusal(self, address: str, within: Allowed = ()) -> str | None:
        """Why this numeric address must not be dialled; None where it may."""
        return self._refusal(address, within)

    def refusal_of_host(self, host: str, within: Allowed = ()) -> str | None:
        """
        Why a URL with this host cannot be called, as far as its text tells; None where it may be.

        A name that is no address is judged when it is dialled, but through a proxy.
        """
        text = host.strip("[]")
        if ":" in text or looks_numeric(text):
            return self.refusal(text, within)
        if not self._is_proxied:
            return None
        if within:
            return f"{host}: through CALLBACK_PROXY callback_allow cannot be kept for a name"
        if _LOCAL_NAME.fullmatch(text) and not self._is_keyless:
            return f"{host} is the proxy's own machine"
        return None

    def check(self, url: str, within: Allowed, pointer: str) -> list[FieldError]:
        """What is wrong with a URL, checked already, that names an address itself."""
        refusal = self.refusal_of_host(urlsplit(url).hostname or "", within)
        return [] if refusal is None else [FieldError(refusal, pointer)]

    def judge(self, biz: BizType, before: BizType | None) -> None:
        """Raises InvalidTask where a biz_type is to get a URL of an address that is refused."""
        is_new = before is None or (biz.callback_url, biz.callback_allow) != (
            before.callback_url,
            before.callback_allow,
        )
        if is_new and biz.callback_url is not None:
            errors = self.check(biz.callback_url, biz.callback_allow, "#/callback_url")
            if errors:
                raise InvalidTask(errors)

    def socket_for(self, address_info: tuple[Any, ...]) -> socket.socket:
        """
        A socket to dial `address_info` (as getaddrinfo gives it) with. Raises AddressRefused.

        aiohttp calls this with what it is about to connect to, nothing lies in between.
        """
        family, kind, protocol, _, address = address_info
        attempt = dialling.get()
        if attempt is not None:
            attempt.addresses.append(address[0])
        if not self._is_proxied:
            refusal = self.refusal(address[0], () if attempt is None else attempt.within)
            if refusal is not None:
                raise AddressRefused(errno.EACCES, refusal)
        made = socket.socket(family=family, type=kind, proto=protocol)
        # The kernel's own bound grows to megabytes: so much a receiver could send for nothing.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        return made

    def _judge(self, host: str, within: Allowed) -> str | None:
        try:
            address = ip_address(host)
        except ValueError:
            # Nothing that only looks like an address ("127.1") is given to the kernel to guess.
            return f"{host} is not an address"
        forms = _forms(address)
        if any(_is_in(form, self._deny) for form in (address, *forms)):
            return f"{host} is denied by CALLBACK_DENY"
        if within and not all(_is_in(form, _networks(within)) for form in forms):
            return f"{host} is not in the biz_type's callback_allow"
        if _is_in(address, self._allow) or all(self._may_reach(form, address) for form in forms):
            return None
        return f"{host} is not a public address; CALLBACK_ALLOW can name it"

    def _may_reach(self, form: Address, address: Address) -> bool:
        """Whether `form`, which is `address` or is carried by it, is public or stands open."""
        if _is_public(form):
            return True
        if form == address:
            return _is_in(form, self._own) and not _is_in(form, _METADATA)
        # What is private is called by its own name: only who hides something wraps it up. Mapped
        # is the kernel's own spelling, so the operator's networks hold for it; no loopback though.
        is_mapped = isinstance(address, IPv6Address) and address.ipv4_mapped is not None
        return is_mapped and _is_in(form, self._allow) and not _is_in(form, _LOOPBACK)


def _forms(address: Address) -> list[Address]:
    """
    Where this address leads: itself, or the IPv4 addresses that it carries, whatever prefix it
    stands under: mapped, compatible, translated, by NAT64, 6to4, Teredo or ISATAP.
    """
    if isinstance(address, IPv4Address):
        return [address]
    last = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return [*address.teredo]
    if address in _NAT64 or address in _IPV4_TRANSLATED:
        return [last]
    if address in _IPV4_COMPATIBLE and int(address) > 0xFFFF:
        return [last]
    if int(address) >> 32 & 0xFDFF_FFFF == _ISATAP:
        return [address, last]
    return [address]


@lru_cache(maxsize=256)
def _networks(texts: Allowed) -> tuple[Network, ...]:
    return tuple(ip_network(text, strict=False) for text in texts)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(_is_in(address, some) for some in (_PRIVATE, _LOOPBACK, _SPECIAL))
    # An address with a zone is of one link, whatever else it says.
    return address in _GLOBAL_IPV6 and not _is_in(address, _SPECIAL_IPV6) and not address.scope_id
