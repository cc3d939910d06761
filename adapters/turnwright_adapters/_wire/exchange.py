"""One HTTP exchange with a model's server.

Rule: whatever goes wrong leaves as a `ModelError`, with the response closed and no secret in its words.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import cache
from typing import Final, Protocol, TypeAlias, cast
from weakref import WeakKeyDictionary

import httpx
from attrs import frozen

from turnwright.errors import ModelError, ModelErrorKind
from turnwright_adapters._wire.errors import LONGEST_MESSAGE, provider_error

LARGEST_REPLY: Final = 256 * 2**20
"""Bytes of a whole reply."""

LARGEST_ERROR: Final = 64 * 2**10
"""Bytes that are read of an error's body."""

ApiKey: TypeAlias = str | Callable[[], str | Awaitable[str]] | None
"""A key, or what gives it anew for each request."""


@frozen
class Timeouts:
    """How long to wait, in seconds: for the connection, for the answer's first byte, between its bytes, for all of it.

    None waits for ever. The time that is left to a request bounds *total* further.
    """

    connect: float | None = 10.0
    first_byte: float | None = 600.0
    between_chunks: float | None = 120.0
    total: float | None = None


class Reply:
    """The head of an HTTP response whose status is good, and its body as it comes."""

    def __init__(self, response: httpx.Response, patience: _Patience) -> None:
        self._response = response
        self._patience = patience

    @property
    def content_type(self) -> str:
        """The media type in lower case, without its parameters; empty if the server told none."""
        value: str = self._response.headers.get("content-type", "")
        return value.partition(";")[0].strip().lower()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Give the body's bytes as they arrive."""
        response, patience, size = self._response, self._patience, 0
        chunks = response.aiter_bytes() if "content-encoding" in response.headers else response.aiter_raw()
        async for chunk in chunks:
            patience.heard()
            size += len(chunk)
            if size > LARGEST_REPLY:
                raise ModelError("malformed", f"a reply of more than {LARGEST_REPLY} bytes")
            yield chunk

    async def read(self, at_most: int = LARGEST_REPLY) -> bytes:
        """Return the whole body, or its first *at_most* bytes and some."""
        pieces: list[bytes] = []
        size = 0
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                pieces.append(chunk)
                size += len(chunk)
                if size > at_most:
                    break
        return b"".join(pieces)


class Http:
    """The HTTP exchanges of one model adapter, over the client that it was given or over its own, one for each event
    loop.

    A client of our own is made for the first request and lives as long as its loop, this object, or until `aclose`,
    whichever ends first. A client that was given is never closed here; it may be of httpx or of httpx2.
    """

    def __init__(self, client: httpx.AsyncClient | None, timeouts: Timeouts) -> None:
        self._given = client
        self._timeouts = timeouts
        self._own: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None, None]]]
        self._own = WeakKeyDictionary()

    @asynccontextmanager
    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        provider: str,
        timeout: float | None = None,
        refusal: Callable[..., ModelError] = provider_error,
    ) -> AsyncGenerator[Reply, None]:
        """Post *body* and give the reply. On leaving, by whatever way, the response is closed.

        *refusal* says what a reply with a bad status means.

        Every failure of the exchange, also one inside the `async with`, becomes a ModelError. A connection that was
        kept from an earlier request and turns out to be dead before a byte came back is replaced once by a fresh one.
        """
        patience = _Patience(self._timeouts, timeout)
        trail = _Trail()
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(patience)
                response = await self._send(stack, trail, url, headers, body)
                stack.push_async_callback(response.aclose)
                reply = Reply(response, patience)
                if not 200 <= response.status_code < 300:
                    said = await reply.read(LARGEST_ERROR)
                    raise refusal(provider, said, status=response.status_code, headers=response.headers)
                yield reply
        except Exception as error:
            failure = _failure(provider, error, patience, trail)
            if failure is None:
                raise
            failure.args = (_without(headers, str(failure))[:LONGEST_MESSAGE],)
            if failure is error:
                raise
            raise failure from error

    async def _send(
        self, stack: AsyncExitStack, trail: _Trail, url: str, headers: Mapping[str, str], body: bytes
    ) -> httpx.Response:
        async def send(client: httpx.AsyncClient) -> httpx.Response:
            request = client.build_request(
                "POST",
                url,
                content=body,
                headers=dict(headers),
                timeout=(self._timeouts.connect, None, None, None),  # the others are ours to keep
                extensions={"trace": trail},
            )
            return await client.send(request, stream=True, follow_redirects=False)

        try:
            return await send(await self._client() if self._given is None else self._given)
        except Exception as error:
            if not trail.died_unheard(error):
                raise
        return await send(await stack.enter_async_context(_new_client()) if self._given is None else self._given)

    async def aclose(self) -> None:
        """Close the client that this loop uses, if it is ours. A later request makes another."""
        if (own := self._own.pop(asyncio.get_running_loop(), None)) is not None:
            await own[1].aclose()

    async def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if (own := self._own.get(loop)) is None:
            client = _new_client()
            # An unfinished asynchronous generator is closed by its loop when the loop ends, and by the collector when
            # we are gone: so no connection outlives either, although nobody called aclose.
            life = _life(client)
            own = self._own[loop] = (client, life)
            await anext(life)
        return own[0]


async def _life(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


def _new_client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)
    return httpx.AsyncClient(limits=limits, verify=_trusted())


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # reading the certificates takes longer than a short request


class _Stream(Protocol):
    async def aclose(self) -> None: ...


class _Trail:
    """What a request has come to, as the client's transport tells it."""

    def __init__(self) -> None:
        self.connected = False
        self.sent = False
        self._stream: _Stream | None = None

    async def __call__(self, event: str, info: Mapping[str, object]) -> None:
        if event.endswith("send_request_headers.started"):
            self.sent = True
        elif event.endswith(("connect_tcp.started", "connect_unix_socket.started")):
            self.connected = True
        elif event.endswith("connect_tcp.complete"):
            self._stream = cast("_Stream", info["return_value"])
        elif event.endswith("start_tls.failed") and self._stream is not None:
            # httpcore leaves the connection open if we are cancelled during the handshake.
            await self._stream.aclose()

    @property
    def dispatched(self) -> bool:
        """False only if we saw the transport connect and never saw it send."""
        return self.sent or not self.connected

    def died_unheard(self, error: Exception) -> bool:
        """Say whether *error* means that a kept connection was dead before a byte of the answer came."""
        if self.connected or not self.sent:
            return False
        return bool(_names(error) & {"ReadError", "WriteError"}) or "without sending a response" in str(error)


class _Patience:
    """Ends an exchange that is late, as `asyncio.timeout` does; *over* says then what it waited for.

    One timer for a whole answer: a chunk only writes down when it came, because setting a timer costs more than the
    chunk.
    """

    def __init__(self, timeouts: Timeouts, left: float | None) -> None:
        self.over = ""
        self._total = min([limit for limit in (timeouts.total, left) if limit is not None], default=None)
        self._silence = timeouts.first_byte
        self._between = timeouts.between_chunks
        self._begun = False
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        if self._total is not None and self._total <= 0:
            raise ModelError("timeout", "no time is left for this request", dispatched=False)
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(self._total)
        await self._scope.__aenter__()
        self._last = self._loop.time()
        self._arm()

    async def __aexit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._scope.__aexit__(*error)  # type: ignore[arg-type]
        finally:
            if self._scope.expired() and not self.over:
                self.over = f"not finished within {self._total:g} s"

    def heard(self) -> None:
        """Note that bytes of the body came."""
        self._last = self._loop.time()
        if not self._begun:
            self._begun = True
            self._silence = self._between
            if self._timer is not None:
                self._timer.cancel()
            self._arm()

    def _arm(self) -> None:
        if self._silence is not None:
            self._timer = self._loop.call_at(self._last + self._silence, self._check, self._silence)

    def _check(self, silence: float) -> None:
        if self._last + silence > self._loop.time():
            self._arm()
        elif not self._scope.expired():
            self.over = (
                f"silent for {silence:g} s in mid-answer" if self._begun else f"no first byte within {silence:g} s"
            )
            self._scope.reschedule(self._loop.time())


async def authorization(key: ApiKey, provider: str) -> str | None:
    """Return the key for one request, None if there is none. ModelError if there should be and is not."""
    if callable(key):
        try:
            given = key()
            key = given if isinstance(given, str) else await given
        except Exception as error:
            raise ModelError("auth", f"{provider}: the API key could not be had", dispatched=False) from error
    if key is None:
        return None
    key = key.strip()
    if not key or not _HEADER_VALUE.fullmatch(key):  # an HTTP library would print it in its error
        raise ModelError("auth", f"{provider}: the API key is empty or no header can carry it", dispatched=False)
    return key


def wire_headers(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return *headers*, their names in lower case. ValueError, without the value, for one that no request can carry."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or (value is not None and not _HEADER_VALUE.fullmatch(value)):
            raise ValueError(f"no request can carry the header {name!r} with this value")
    return {name.lower(): value for name, value in headers.items()}


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


def is_transport_failure(error: Exception) -> bool:
    """Say whether *error* is the HTTP client's."""
    return bool(_names(error) & {"HTTPError", "InvalidURL", "StreamError"})


def _names(error: BaseException) -> set[str]:
    # By name, because a client of httpx2 may be given: it has the same errors in classes of its own.
    return {cls.__name__ for cls in type(error).__mro__}


def _failure(provider: str, error: Exception, patience: _Patience, trail: _Trail) -> ModelError | None:
    """Return what *error* means, None if it is not of the exchange."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, TimeoutError) and patience.over:
        return ModelError("timeout", f"{provider}: {patience.over}", retryable=True, dispatched=trail.dispatched)
    if not is_transport_failure(error):
        return None
    names = _names(error)
    words = f"{provider}: {error}" if str(error) else f"{provider}: {type(error).__name__}"
    if names & {"InvalidURL", "UnsupportedProtocol", "LocalProtocolError"}:
        return ModelError("invalid_request", words, dispatched=False)
    if "DecodingError" in names:
        return ModelError("malformed", words, retryable=True)
    kind: ModelErrorKind = "timeout" if "TimeoutException" in names else "connection"
    unsent = bool(names & {"ConnectError", "ConnectTimeout", "PoolTimeout"})
    return ModelError(kind, words, retryable=True, dispatched=trail.dispatched and not unsent)


_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def _without(headers: Mapping[str, str], text: str) -> str:
    """Return *text* without the secrets that *headers* carry, which some providers repeat in their errors."""
    for name, value in headers.items():
        if _SECRET_HEADER.search(name):
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) > 3:
                    text = text.replace(secret, "[secret]")
    return text
