"""Which hosts an engine may be on, and a transport that connects to the very address that was checked.

A name is resolved, every address is checked, and the connection goes to a checked address, with the name in the Host
header and in TLS. So a name that later resolves to something else (DNS rebinding) reaches nothing that was not checked.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from sandboxes.gateway.waiting import CURRENT, TimedStream, Waiting

RESOLVED_LIFE_S = 60.0  # a checked address is used for this long before the name is resolved again


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
        self._resolving = asyncio.Lock()

    def check(self) -> list[str]:
        """The addresses that may be connected to. ValueError, with cause and remedy, where one of them may not."""
        try:
            found = socket.getaddrinfo(self.host, self._port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ValueError(f"engine host {self.host!r} does not resolve: {error}") from error
        return self._checked(found)

    async def addresses(self) -> list[str]:
        """As `check`, without blocking and remembered for a minute; the one that answered last comes first."""
        if time.monotonic() >= self._until:
            async with self._resolving:
                if time.monotonic() >= self._until:
                    self._good = await asyncio.to_thread(self.check)
                    self._until = time.monotonic() + RESOLVED_LIFE_S
        return self._good

    def prefer(self, address: str) -> None:
        """This one answers: try it first from now on."""
        if self._good[:1] != [address]:
            self._good = [address, *(other for other in self._good if other != address)]

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
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            return True
        if not self._listed or self.host.lower() == "localhost":
            return address.is_loopback
        return address.is_global and not address.is_multicast


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends to a checked address of the guard's host, and counts how long the current call waits for it."""

    def __init__(self, guard: Guard, inner: httpx.AsyncBaseTransport) -> None:
        self._guard = guard
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        waiting = CURRENT.get() or Waiting()
        request.headers.update(waiting.headers)
        with waiting.wait():
            response = await self._send(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = TimedStream(response.stream, waiting)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        """To the first address that accepts a connection: nothing has been sent where one does not."""
        try:
            addresses = await self._guard.addresses()
        except ValueError as error:
            raise httpx.ConnectError(str(error), request=request) from error
        host, url = self._guard.host, request.url
        if request.url.host != host:
            raise httpx.ConnectError(f"{request.url.host} is not the engine's host {host}", request=request)
        for address in addresses:
            if address != host:
                request.url = url.copy_with(host=address)
                request.extensions = {**request.extensions, "sni_hostname": host}
            try:
                response = await self._inner.handle_async_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if address == addresses[-1]:
                    raise
                continue
            self._guard.prefer(address)
            return response
        raise httpx.ConnectError(f"{host} has no address", request=request)


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """An allow-list entry as a network; None where it is a name."""
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None
