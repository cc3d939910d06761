"""A tool that is an endpoint behind HTTP, for `define_tool(endpoint=...)`. Rule: a request goes to a public address,
and to the very address that was looked at.

    address      resolved once for each hop; every answer must be public, and the connection goes to one of them
    metadata     the addresses of cloud metadata services are refused, whatever is allowed
    redirects    at most five, each looked at anew; what the owner and the client say of themselves stays with its host
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
from httpx import USE_CLIENT_DEFAULT

from turnwright.canonical import decode
from turnwright.errors import PortError

__all__ = ["BlockedAddress", "HttpEndpoint"]

Address: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

HOPS: Final = 5
MESSAGE: Final = 500
"""How much of a bad answer the model is told."""

METADATA: Final = frozenset(
    map(
        ip_address,
        [
            *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
            *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
        ],
    )
)
_NAT64: Final = ip_network("64:ff9b::/96")
_HOLDING_IPV4: Final = (_NAT64, *map(ip_network, ["64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96"]))
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
ASKED: Final = {"accept": "application/json, text/*", "accept-encoding": "identity"}
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
        headers = {**ASKED, "idempotency-key": key}
        headers |= {name.lower(): value for name, value in self._headers.items()}
        body: bytes | None = None
        if method in ("GET", "DELETE"):
            url = url.copy_merge_params({name: _query(value) for name, value in given.items()})
        else:
            body = json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
            headers["content-type"] = "application/json"
        at_home = True
        async with asyncio.timeout(self._timeout):
            for _ in range(HOPS + 1):
                request = await self._request(client if at_home else None, method, url, headers, body)
                reply = await self._hop(client, request, at_home=at_home)
                if not isinstance(reply, httpx.Response):
                    return reply
                there = _usable(url.join(reply.headers["location"]))
                if at_home and (there.scheme, there.host, there.port) != (url.scheme, url.host, url.port):
                    at_home = False  # any header of the owner's may be a credential, by whatever name
                    own = {name.lower() for name in self._headers} - {"content-type"}
                    headers = {name: value for name, value in headers.items() if name not in own} | ASKED
                if reply.status_code == 303 or (reply.status_code in (301, 302) and method == "POST"):
                    method, body = "GET", None
                    headers.pop("content-type", None)
                url = there
        raise PortError(f"{self._url.host} redirects more than {HOPS} times")

    async def _request(
        self,
        client: httpx.AsyncClient | None,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> httpx.Request:
        """Make one request: to the address that was looked at, under the name that was asked for.

        Without *client* it says nothing that a client says of itself: no header, cookie or parameter of its own.
        """
        address = await self._looked_at(url)
        host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
        make = httpx.Request if client is None else client.build_request
        return make(
            method,
            url.copy_with(host=host),
            headers={**headers, "host": url.netloc.decode("ascii")},
            content=body,
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )

    async def _hop(self, client: httpx.AsyncClient, request: httpx.Request, *, at_home: bool) -> object:
        """Send one request. Its answer, or the response where that leads on."""
        auth = USE_CLIENT_DEFAULT if at_home else None
        reply = await client.send(request, stream=True, auth=auth, follow_redirects=False)
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
        # A piece may be a thousand times as long as what came, and more: before anybody can count it.
        if (coding := reply.headers.get("content-encoding", "identity").lower()) not in ("identity", ""):
            raise PortError(f"{self._url.host} answered in {coding!r:.40}, and was asked for no compression")
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
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not site_local


async def _resolved(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise PortError(f"{host} cannot be found: {error}") from error
    return [str(address[0]) for *_, address in found]
