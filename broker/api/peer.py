"""
Where a request comes from, for the log: the peer, or whom a trusted proxy names.

X-Forwarded-For is what each hop says of the one before it, so only the part that trusted proxies
have written counts: it is read from its end, up to the first address that is not one of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

UNKNOWN: Final = "an unknown address"

Address = IPv4Address | IPv6Address
Headers = Iterable[tuple[bytes, bytes]]


class Peers:
    """trusted: CIDR texts, the TRUSTED_PROXIES setting."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted: list[IPv4Network | IPv6Network] = [
            ip_network(cidr, strict=False) for cidr in trusted
        ]

    def address(self, scope: Mapping[str, Any]) -> str:
        """The address that a request came from, as far as it can be believed."""
        client = scope.get("client")
        nearest = None if client is None else _address(client[0])
        if nearest is None:
            return UNKNOWN
        for hop in reversed(forwarded_for(scope["headers"])):
            if not any(nearest in network for network in self._trusted):
                break
            before = _address(hop)
            if before is None:
                break
            nearest = before
        return str(nearest)

    def is_https(self, scope: Mapping[str, Any]) -> bool:
        """Whether the browser came over TLS, to us or to a trusted proxy before us."""
        if scope.get("scheme") == "https":
            return True
        client = scope.get("client")
        address = None if client is None else _address(client[0])
        if address is None or not any(address in network for network in self._trusted):
            return False
        named = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
        return bool(named) and named[-1].rpartition(b",")[2].strip().lower() == b"https"


def forwarded_for(headers: Headers) -> list[str]:
    """The hops that a request claims to have come over, the farthest first."""
    lines = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
    return [hop.strip() for line in lines for hop in line.split(",")]


def is_loopback(hop: str) -> bool:
    """Whether a hop is this machine; what is no address is not."""
    address = _address(hop)
    return address is not None and address.is_loopback


def _address(text: str) -> Address | None:
    """192.0.2.1, 192.0.2.1:80, 2001:db8::1 or [2001:db8::1]:80; None for all else."""
    host = text[1:].partition("]")[0] if text.startswith("[") else text
    if host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
