"""A tool that is an endpoint behind HTTP, for `define_tool(endpoint=...)`. Rule: a request goes to a public address,
and to the very address that was looked at.

    address      resolved once for each hop; every answer must be public, and the connection goes to one of them
    metadata     the addresses of cloud metadata services are refused, whatever is allowed
    redirects    at most five, each looked at anew; credentials stay with their host
    answer       at most so many bytes, decoded as JSON where it says so; a bad status is an error
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias

import httpx

from turnwright.canonical import decode
from turnwright.errors import PortError

__all__ = ["BlockedAddress", "HttpEndpoint"]

Address: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

HOPS: Final = 5
MESSAGE: Final = 500
"""How much of a bad answer the model is told."""

METADATA: Final = frozenset(map(ip_address, ["169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254"]))
_NAT64: Final = ip_network("64:ff9b::/96")
_HOLDING_IPV4: Final = (_NAT64, *map(ip_network, ["64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"]))
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class BlockedAddress(PortError):
    """A URL that no request may go to."""


class HttpEndpoint:
    """One endpoint. The input of the tool is its JSON body, or its query for GET and DELETE.

    ::

        define_tool(name="weather", description="...", endpoint=HttpEndpoint("https://api.example.com/weather"))

    *private* allows addresses that are not public, for services of one's own; *client* is a client of one's own, which
    is never closed. Each call carries its idempotency key in the header `idempotency-key`.
    """

    def __init__(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        private: bool = False,
        timeout: float = 30.0,
        most: int = 1_048_576,
        client: httpx.AsyncClient | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._url = _usable(httpx.URL(url))
        self._method = method.upper()
        self._headers = dict(headers or {})
        self._private = private
        self._timeout = timeout
        self._most = most
        self._client = client
        self._resolve = resolve or _resolved

    def __repr__(self) -> str:
        return f"<HttpEndpoint {self._method} {self._url.copy_with(query=None)}>"

    async def call(self, input: Mapping[str, object], *, key: str) -> object:
        """Send *input* and give the answer. Raises for a bad status, a blocked address, and what httpx raises."""
        if self._client is not None:
            return await self._exchange(self._client, input, key)
        async with httpx.AsyncClient(trust_env=False, timeout=self._timeout) as client:
            return await self._exchange(client, input, key)

    async def _exchange(self, client: httpx.AsyncClient, given: Mapping[str, object], key: str) -> object:
        url, method = self._url, self._method
        headers = {"accept": "application/json, text/*", "accept-encoding": "identity", "idempotency-key": key}
        headers |= {name.lower(): value for name, value in self._headers.items()}
        body: bytes | None = None
        if method in ("GET", "DELETE"):
            url = url.copy_merge_params({name: _query(value) for name, value in given.items()})
        else:
            body = json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
            headers["content-type"] = "application/json"
        async with asyncio.timeout(self._timeout):
            for _ in range(HOPS + 1):
                reply = await self._hop(client, method, url, headers, body)
                if not isinstance(reply, httpx.Response):
                    return reply
                there = _usable(url.join(reply.headers["location"]))
                if (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
                    headers = {name: value for name, value in headers.items() if name not in _SECRET}
                if reply.status_code == 303 or (reply.status_code in (301, 302) and method == "POST"):
                    method, body = "GET", None
                    headers.pop("content-type", None)
                url = there
        raise PortError(f"{self._url.host} redirects more than {HOPS} times")

    async def _hop(
        self, client: httpx.AsyncClient, method: str, url: httpx.URL, headers: Mapping[str, str], body: bytes | None
    ) -> object:
        """Send one request: to the address that was looked at, under the name that was asked for."""
        address = await self._looked_at(url)
        host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
        pinned = url.copy_with(host=host)
        named = {**headers, "host": url.netloc.decode("ascii")}
        request = client.build_request(
            method, pinned, headers=named, content=body, extensions={"sni_hostname": url.raw_host.decode("ascii")}
        )
        reply = await client.send(request, stream=True, follow_redirects=False)
        try:
            if reply.status_code in _REDIRECTS and "location" in reply.headers:
                return reply
            return await self._answer(reply)
        finally:
            await reply.aclose()

    async def _looked_at(self, url: httpx.URL) -> Address:
        """Resolve the host of *url*, once. BlockedAddress unless every address of it is one to go to."""
        port = url.port or (443 if url.scheme == "https" else 80)
        found = [ip_address(each.partition("%")[0]) for each in await self._resolve(url.host, port)]
        if not found:
            raise BlockedAddress(f"{url.host} has no address")
        for each in found:
            for address in _meant(each):
                if address in METADATA or not (self._private or _is_public(address)):
                    raise BlockedAddress(f"{url.host} is at {each}, where no request may go")
        return found[0]

    async def _answer(self, reply: httpx.Response) -> object:
        read = bytearray()
        async for chunk in reply.aiter_bytes():
            read += chunk
            if len(read) > self._most:
                raise PortError(f"{self._url.host} answered with more than {self._most:,} bytes")
        if not reply.is_success:
            told = bytes(read[:MESSAGE]).decode("utf-8", "replace")
            raise PortError(f"{self._url.host} answered {reply.status_code}: {told}")
        if "json" in reply.headers.get("content-type", ""):
            return decode(bytes(read))
        return read.decode(reply.encoding or "utf-8", "replace")


def _usable(url: httpx.URL) -> httpx.URL:
    if url.scheme not in ("http", "https") or not url.host:
        raise BlockedAddress(f"a request goes to an http or https URL, not to {url.scheme or 'none'}")
    if url.userinfo:
        raise BlockedAddress(f"the URL of {url.host} holds credentials; give them as headers")
    return url


def _query(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def _meant(address: Address) -> list[Address]:
    """*address*, and the IPv4 addresses that it stands for."""
    meant: list[Address] = [address]
    if isinstance(address, IPv6Address):
        number = int(address)
        if address.ipv4_mapped is not None:
            meant.append(address.ipv4_mapped)
        if address.sixtofour is not None:
            meant.append(address.sixtofour)
        if address.teredo is not None:
            meant += address.teredo
        if any([address in network for network in _HOLDING_IPV4]) or number >> 32 & 0xFFFFFFFF in _ISATAP:
            meant.append(IPv4Address(number & 0xFFFFFFFF))
    return meant


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address in _NAT64):
        return True  # what it stands for is looked at by itself
    return address.is_global and not address.is_multicast


async def _resolved(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise PortError(f"{host} cannot be found: {error}") from error
    return [str(address[0]) for *_, address in found]
