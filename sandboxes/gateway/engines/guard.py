"""Which hosts an engine may be on; what was checked is what is connected to.

A name is resolved, every address is checked, and the connection goes to a checked address, with the name in the Host
header and in TLS. So a name that later resolves to something else (DNS rebinding) reaches nothing that was not checked.
"""

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger(__name__)
RESOLVED_LIFE_S = 60.0  # a checked address is used for this long before the name is resolved again
RESOLVE_S = 5.0  # how long a call waits for a resolver

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class Unresolved(ValueError):
    """A name has no address now, which may pass by itself."""


class Guard:
    """One upstream's host under an allow-list of host names, addresses and networks.

    A host that is not listed must be this machine. A listed name may resolve to public addresses; any other (private,
    link-local, loopback) is refused unless that address, or a network that holds it, is listed too.
    """

    def __init__(self, url: str, allowed: Sequence[str] = ()) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"engine URL {url!r} is not an http(s) URL with a host")
        if parts.username or parts.password:
            raise ValueError("an engine URL holds no user name or password: it is shown in logs and in /health")
        self.host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._listed = self.host.lower() in {entry.lower() for entry in allowed}
        self._networks = [network for entry in allowed if (network := _network(entry)) is not None]
        self._good: list[str] = []
        self._until = 0.0
        self._resolving: asyncio.Future[list[str]] | None = (
            None  # of all who wait: a resolver that hangs holds one thread
        )

    def check(self) -> list[str]:
        """The addresses that may be connected to. ValueError, with cause and remedy, where one of them may not."""
        try:
            found = socket.getaddrinfo(self.host, self._port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise Unresolved(f"engine host {self.host!r} does not resolve: {error}") from error
        return self._checked(found)

    async def addresses(self) -> list[str]:
        """As `check`, without blocking and remembered for a minute; longer while the name cannot be resolved."""
        if time.monotonic() >= self._until:
            try:
                self._good = await self._resolved()
            except Unresolved as error:
                if not self._good:
                    raise
                log.warning("the addresses checked last are used: %s", error)
            self._until = time.monotonic() + RESOLVED_LIFE_S
        return self._good

    def forget(self) -> None:
        """Nobody answers at these addresses: the name is resolved again when it is asked for next."""
        self._until = 0.0

    async def _resolved(self) -> list[str]:
        if self._resolving is None or self._resolving.done():
            self._resolving = asyncio.ensure_future(asyncio.to_thread(self.check))
        resolving = self._resolving
        if not (await asyncio.wait([resolving], timeout=RESOLVE_S))[0]:
            raise Unresolved(f"engine host {self.host!r} does not resolve within {RESOLVE_S:g} s")
        return resolving.result()

    def _checked(self, found: Iterable[tuple[Any, ...]]) -> list[str]:
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        refused = [address for address in addresses if not self._may(ipaddress.ip_address(address.split("%")[0]))]
        if not refused:
            return addresses
        where = ", ".join(refused)
        if not self._listed:
            raise ValueError(
                f"engine host {self.host!r} is {where}, not this machine; "
                f"if that is meant, start with --allow-upstream {self.host}"
            )
        raise ValueError(
            f"engine host {self.host!r} is listed but resolves to {where}, which is no public address; "
            f"if that is meant, add --allow-upstream {refused[0]} or its network"
        )

    def _may(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        if any(address in network for network in self._networks):
            return True
        if isinstance(address, ipaddress.IPv6Address) and (inner := _inner(address)):
            return self._may(inner)
        if not self._listed or self.host.lower() == "localhost":
            return address.is_loopback
        return address.is_global and not address.is_multicast


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Where an IPv6 address leads that carries an IPv4 one: mapped, 6to4 (RFC 3056), NAT64 (RFC 6052), Teredo (RFC 4380) and the
    deprecated compatible form. Such an address looks public whatever it carries."""
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour
    if address.teredo:
        return address.teredo[1]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):  # ::1 is this machine, not 0.0.0.1
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """An allow-list entry as a network; None where it is a name."""
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None
