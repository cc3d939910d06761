"""What the model adapters share on the wire: HTTP exchanges, server-sent events, errors, tool names, valid histories.

Rule: whatever goes wrong below an adapter leaves this module as a `ModelError`, with the response closed and no
secret in its words (tests/adapters/test_chat_completions.py, tests/adapters/test_sse.py).
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final, Generic, NamedTuple, TypeVar, get_args
from weakref import WeakKeyDictionary

import httpx
import msgspec
from attrs import evolve as replace, frozen

from turnwright.canonical import well_formed
from turnwright.errors import ModelError, ModelErrorKind
from turnwright.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage

__all__ = [
    "ApiKey",
    "Http",
    "Remembered",
    "Reply",
    "ServerSentEvent",
    "SseDecoder",
    "Timeouts",
    "ToolNames",
    "as_object_text",
    "authorization",
    "call_id",
    "decode",
    "encode",
    "is_object_text",
    "is_transport_failure",
    "paired",
    "provider_error",
    "retry_after",
    "wire_headers",
    "wire_name",
]

LONGEST_MESSAGE: Final = 4_000
"""Characters of an error's message."""

LARGEST_EVENT: Final = 4 * 2**20
"""Bytes of one server-sent event, and so of one line."""

LARGEST_REPLY: Final = 256 * 2**20
"""Bytes of a whole reply."""

LARGEST_ERROR: Final = 64 * 2**10
"""Bytes that are read of an error's body."""

ApiKey = str | Callable[[], str | Awaitable[str]] | None
"""A key, or what gives it anew for each request."""

T = TypeVar("T")


# --- JSON ---


def encode(value: object, *, ordered: bool = False) -> bytes:
    """Return *value* as JSON, lone surrogates replaced; members in their own order, or *ordered* by their keys."""
    encoder = _ordered if ordered else _encoder
    try:
        return encoder.encode(value)
    except UnicodeEncodeError:
        return encoder.encode(_well_formed(value))


def _dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encoder: Final = msgspec.json.Encoder(enc_hook=_dict)
_ordered: Final = msgspec.json.Encoder(enc_hook=_dict, order="sorted")


def _well_formed(value: object) -> object:
    match value:
        case str():
            return well_formed(value)
        case Mapping():
            return {_well_formed(key): _well_formed(item) for key, item in value.items()}
        case list() | tuple():
            return [_well_formed(item) for item in value]
        case _:
            return value


def decode(data: bytes) -> object:
    """Return the JSON value that a provider sent. ValueError if it is none.

    Lenient where providers are sloppy and nothing is lost by it: half of a surrogate pair stays half (its other half
    may be in the next event), bytes that are not UTF-8 become U+FFFD, NaN is let through.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode(errors="replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def as_object_text(raw: str) -> str:
    """Return *raw* argument text if it is a JSON object, and else an object that holds it.

    A call is sent back as the model wrote it; what would make the provider refuse the whole history is wrapped.
    Nothing, and null, stand for no arguments.
    """
    raw = well_formed(raw)
    if is_object_text(raw):
        return raw
    if raw.strip() in {"", "null"}:
        return "{}"
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = None
    # An object after all, that holds half a surrogate pair in an escape.
    return encode(value if isinstance(value, dict) else {"_invalid_json": raw}).decode()


def is_object_text(text: str) -> bool:
    """Say whether *text* is a JSON object."""
    try:
        _object.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


# --- Server-sent events ---


class ServerSentEvent(NamedTuple):
    """One event with data: its name, empty if it has none, and the data's bytes."""

    event: str
    data: bytes


class SseDecoder:
    """Decodes server-sent events from bytes that come in pieces of any size; the events do not depend on the pieces.

    By the WHATWG rules (HTML, section 9.2.6): lines end with CR, LF or CRLF and with nothing else, an event ends with
    an empty line, comments and events without data give nothing. One leniency: `close` gives the last event even if
    its empty line never came. ModelError for an event of more than *largest* bytes.
    """

    def __init__(self, *, largest: int = LARGEST_EVENT) -> None:
        self.last_event_id = ""
        self._largest = largest
        self._rest = bytearray()
        self._after_cr = False
        self._at_start = True
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that *chunk* completes."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest += chunk
            self._bound(len(self._rest))
            return []
        if self._rest:
            chunk = bytes(self._rest) + chunk
            self._rest.clear()
        lines = chunk.splitlines()  # of bytes: at CR, LF and CRLF only
        if not chunk.endswith((b"\n", b"\r")):
            self._rest += lines.pop()
        self._after_cr = chunk.endswith(b"\r")
        events: list[ServerSentEvent] = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                self._dispatch(events)
            else:
                self._event = ""
        self._bound(self._size + len(self._rest))
        return events

    def close(self) -> list[ServerSentEvent]:
        """Return the last event if the stream ended without its empty line."""
        events: list[ServerSentEvent] = []
        if self._rest:
            self._take(bytes(self._rest))
            self._rest.clear()
        if self._data:
            self._dispatch(events)
        return events

    def _take(self, line: bytes) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.startswith(b"data: "):
            value = line[6:]
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name != b"data":
                if name == b"event":
                    self._event = value.decode(errors="replace")
                elif name == b"id" and b"\0" not in value:
                    self.last_event_id = value.decode(errors="replace")
                return
        self._data.append(value)
        self._size += len(value)
        self._bound(self._size)

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        if data:
            events.append(ServerSentEvent(self._event, data))
        self._event = ""
        self._data.clear()
        self._size = 0

    def _bound(self, size: int) -> None:
        if size > self._largest:
            raise ModelError("malformed", f"a server-sent event of more than {self._largest} bytes")


# --- HTTP ---


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
    """HTTP exchanges of one model adapter, over the client that it was given or over one of its own for each event
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
        self, url: str, *, headers: Mapping[str, str], body: bytes, provider: str, timeout: float | None = None
    ) -> AsyncIterator[Reply]:
        """Post *body* and give the reply. On leaving, by whatever way, the response is closed.

        Every failure of the exchange, also one inside the `async with`, becomes a ModelError. A connection that was
        kept from an earlier request and turns out to be dead before a byte came back is replaced once by a fresh one.
        """
        patience = _Patience(self._timeouts, timeout)
        trail = _Trail()
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(patience)

                async def send(client: httpx.AsyncClient) -> httpx.Response:
                    request = client.build_request(
                        "POST",
                        url,
                        content=body,
                        headers=dict(headers),
                        timeout=(self._timeouts.connect, None, None, None),
                        extensions={"trace": trail},
                    )
                    return await client.send(request, stream=True, follow_redirects=False)

                client = await self._client() if self._given is None else self._given
                try:
                    response = await send(client)
                except Exception as error:
                    if not _died_unheard(error, trail):
                        raise
                    fresh = await stack.enter_async_context(_new_client()) if self._given is None else self._given
                    response = await send(fresh)
                stack.push_async_callback(response.aclose)
                reply = Reply(response, patience)
                await _refuse_failure(provider, response, reply)
                yield reply
        except TimeoutError as error:
            if not patience.over:
                raise
            raise ModelError(
                "timeout", f"{provider}: {patience.over}", retryable=True, dispatched=trail.dispatched
            ) from error
        except ModelError as error:
            error.args = (_without(headers, str(error))[:LONGEST_MESSAGE],)
            raise
        except Exception as error:
            failure = _transport_failure(provider, error, trail)
            if failure is None:
                raise
            raise failure from error

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


async def _refuse_failure(provider: str, response: httpx.Response, reply: Reply) -> None:
    if not 200 <= response.status_code < 300:
        body = await reply.read(LARGEST_ERROR)
        raise provider_error(provider, body, status=response.status_code, headers=response.headers)


async def _life(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


def _new_client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)
    return httpx.AsyncClient(limits=limits)


class _Trail:
    """What a request has come to, as the client's transport tells it."""

    def __init__(self) -> None:
        self.connected = False
        self.sent = False

    async def __call__(self, event: str, info: object) -> None:
        if event.endswith("send_request_headers.started"):
            self.sent = True
        elif event.endswith(("connect_tcp.started", "connect_unix_socket.started")):
            self.connected = True

    @property
    def dispatched(self) -> bool:
        """False only if we saw the transport connect and never saw it send."""
        return self.sent or not self.connected


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


# --- Errors ---

_RETRYABLE: Final = frozenset({"rate_limit", "overloaded", "timeout", "connection", "malformed", "internal"})


def _codes(**codes: str) -> dict[str, ModelErrorKind]:
    return {code: kind for kind in _KINDS for code in codes.get(kind, "").split()}


_KINDS: Final[tuple[ModelErrorKind, ...]] = get_args(ModelErrorKind)

_BY_CODE: Final = _codes(
    context_overflow="""context_length_exceeded model_context_window_exceeded exceed_context_size_error
    request_too_large""",
    quota="""insufficient_quota billing_error billing_hard_limit_reached billing_not_active
    insufficient_balance
        exceeded_current_quota_error""",
    rate_limit="""rate_limit_exceeded rate_limit_error rate_limit rate_limited rate_limit_reached_error
    too_many_requests
        resource_exhausted""",
    overloaded="""overloaded_error overloaded engine_overloaded engine_overloaded_error server_overloaded unavailable
        unavailable_error service_unavailable service_unavailable_error""",
    timeout="timeout timeout_error request_timeout deadline_exceeded",
    auth="""invalid_api_key authentication_error invalid_authentication_error permission_error permission_denied
        unauthenticated""",
    content_filter="content_filter content_policy_violation responsibleaipolicyviolation",
)

_BY_VAGUE_CODE: Final = _codes(
    internal="server_error internal_error internal_server_error api_error internal upstream_error",
    invalid_request="invalid_request_error invalid_request invalid_argument not_found not_found_error model_not_found",
)
"""Codes that say little: the words and the status are asked first."""

_BY_TEXT: Final[tuple[tuple[ModelErrorKind, re.Pattern[str]], ...]] = (
    (
        "quota",
        re.compile(
            r"insufficient[ _](?:quota|balance|credit|funds)|quota exceeded|exceeded your current quota|billing"
            r"|out of budget|available balance|credit balance|monthly (?:usage )?limit|payment required"
        ),
    ),
    (
        "rate_limit",
        re.compile(r"rate[ _-]?limit|too many requests|throttl|(?:tokens|requests) per (?:minute|second|hour|day)"),
    ),
    ("overloaded", re.compile(r"overloaded|service unavailable|at capacity|server is busy|loading model")),
    (
        "context_overflow",
        re.compile(
            r"prompt (?:is )?too long|input (?:is )?too long|request_too_large|request entity too large"
            r"|exceeds? (?:the |this |our )?(?:model'?s? )?(?:available |maximum |max |allowed )*(?:input |prompt )?"
            r"(?:context|input length|prompt length)"
            r"|exceeds? (?:the )?limit of \d|input token count|maximum (?:context|prompt) length|max context length"
            r"|maximum allowed input length|longer than (?:the )?model'?s? context|greater than the context length"
            r"|reduce the length of|context[ _](?:window|length|size)[ _]exceed|exceeded model token limit"
            r"|too large for (?:the )?model|configured context size|range of input length should be|too many tokens"
            r"|token limit exceeded"
        ),
    ),
    ("content_filter", re.compile(r"content[ _]filter|content management policy|content policy|safety system")),
    ("timeout", re.compile(r"timed out|timeout")),
    (
        "connection",
        re.compile(r"disconnect|connection (?:error|reset|refused|closed|lost)|upstream connect|socket hang up"),
    ),
)

_BY_STATUS: Final[dict[int, ModelErrorKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "timeout",
    409: "internal",
    413: "context_overflow",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}


def provider_error(
    provider: str, payload: object, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ModelError:
    """Return what a provider's error means. *payload* is the body's bytes, or the decoded object of an error in a
    stream.

    Codes are believed first, then the words, then the status.
    """
    empty = payload == b""
    if isinstance(payload, bytes):
        body = payload
        try:
            payload = decode(body)
        except ValueError:
            payload = body.decode(errors="replace")
    message, codes, delay = _read_error(payload)
    for code in codes:
        if status is None and code.isdecimal() and len(code) == 3:
            status = int(code)
    headers = headers or {}
    wait = retry_after(headers)
    if wait is None:
        wait = delay
    kind = _kind(message[:LONGEST_MESSAGE].lower(), codes, status, delayed=wait is not None, empty=empty)
    retryable = kind in _RETRYABLE
    if (told := headers.get("x-should-retry", "").lower()) in {"true", "false"}:
        retryable = told == "true"
    head = f"{provider} answered {status}" if status is not None else f"{provider} reported an error"
    return ModelError(
        kind,
        well_formed(f"{head}: {message}" if message else head)[:LONGEST_MESSAGE],
        retryable=retryable,
        retry_after=wait,
        status=status,
    )


def _kind(text: str, codes: Sequence[str], status: int | None, *, delayed: bool, empty: bool) -> ModelErrorKind:
    for code in codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
    if empty and status == 400:  # some servers say no more than this of a prompt that is too long
        return "context_overflow"
    by_text = next((kind for kind, pattern in _BY_TEXT if pattern.search(text)), None)
    if by_text is not None and (status is None or status in _TELLING.get(by_text, ())):
        # A quota that comes back by itself is a rate.
        return "rate_limit" if by_text == "quota" and delayed else by_text
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None:
        return "internal" if status >= 500 else "invalid_request"
    return next((_BY_VAGUE_CODE[code] for code in codes if code in _BY_VAGUE_CODE), "internal")


_TELLING: Final[dict[ModelErrorKind, Sequence[int]]] = {
    "quota": (400, 401, 403, 404, 422, 429),
    "context_overflow": (400, 404, 413, 422, *range(500, 600)),
    "content_filter": (400, 403, 422),
    "overloaded": range(500, 600),
    "timeout": range(500, 600),
}
"""Under which statuses the words of an error are believed. One of 429 about too many tokens is never an overflow."""


def _read_error(payload: object) -> tuple[str, list[str], float | None]:
    """Return the message, the codes in lower case, and the delay that the body asks for."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if isinstance(payload, str):
        page = payload.lstrip()[:15].lower()
        return ("an HTML page" if page.startswith(("<!doctype", "<html")) else payload.strip()), [], None
    if not isinstance(payload, dict):
        return "", [], None
    inner = payload.get("error") or payload.get("detail") or payload
    if isinstance(inner, dict):
        message = inner.get("message") or inner.get("detail")
        codes = [str(inner[key]).lower() for key in ("code", "type", "status") if inner.get(key)]
        return message if isinstance(message, str) else encode(inner).decode(), codes, _retry_info(inner.get("details"))
    codes = [str(payload[key]).lower() for key in ("code", "type", "status") if payload.get(key)]
    return inner if isinstance(inner, str) else encode(inner).decode(), codes, None


def _retry_info(details: object) -> float | None:
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(delay := detail.get("retryDelay"), str):
            return _seconds(delay.removesuffix("s"))
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait, None if it asks nothing that can be understood.

    `retry-after-ms` comes before `retry-after`, which is in seconds or a date; a date in the past is 0.
    """
    if (milliseconds := _seconds(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    if (seconds := _seconds(value)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _names(error: BaseException) -> set[str]:
    # By name, because a client of httpx2 may be given: it has the same errors in classes of its own.
    return {cls.__name__ for cls in type(error).__mro__}


def is_transport_failure(error: Exception) -> bool:
    """Say whether *error* is the HTTP client's."""
    return bool(_names(error) & {"HTTPError", "InvalidURL", "StreamError"})


def _died_unheard(error: Exception, trail: _Trail) -> bool:
    """Say whether a kept connection was dead before a byte of the answer came."""
    if trail.connected or not trail.sent:
        return False
    return bool(_names(error) & {"ReadError", "WriteError"}) or "without sending a response" in str(error)


def _transport_failure(provider: str, error: Exception, trail: _Trail) -> ModelError | None:
    if not is_transport_failure(error):
        return None
    names = _names(error)
    words = f"{provider}: {error}" if str(error) else f"{provider}: {type(error).__name__}"
    if names & {"InvalidURL", "UnsupportedProtocol", "LocalProtocolError"}:
        return ModelError("invalid_request", words, dispatched=False)
    if names & {"ConnectError", "ConnectTimeout", "PoolTimeout"}:
        kind: ModelErrorKind = "timeout" if "TimeoutException" in names else "connection"
        return ModelError(kind, words, retryable=True, dispatched=False)
    if "DecodingError" in names:
        return ModelError("malformed", words, retryable=True)
    kind = "timeout" if "TimeoutException" in names else "connection"
    return ModelError(kind, words, retryable=True, dispatched=trail.dispatched)


_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def _without(headers: Mapping[str, str], text: str) -> str:
    """Return *text* without the secrets that *headers* carry, which some providers repeat in their errors."""
    for name, value in headers.items():
        if _SECRET_HEADER.search(name):
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) > 3:
                    text = text.replace(secret, "[secret]")
    return text


# --- Tool names ---

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_DECORATION = re.compile(r"<\|.*|:\d+$", re.DOTALL)
_PREFIX = re.compile(r"[.:/]+")


@lru_cache(4096)
def wire_name(name: str) -> str:
    """Return *name* as providers take it: itself if it matches ^[a-zA-Z0-9_-]{1,64}$, else a form of it with a digest.

    It depends on *name* alone, so a name means the same in every request of a history.
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    return f"{_FOREIGN.sub('_', name)[:55]}_{sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"


class ToolNames:
    """The tools of one request by the names that a model may call them by."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_wire: dict[str, str] = {}
        for name in names:
            if self._by_wire.setdefault(wire_name(name), name) != name:
                other = self._by_wire[wire_name(name)]
                raise ModelError(
                    "invalid_request", f"tools {other!r} and {name!r} have one wire name", dispatched=False
                )
        self._known = {**{name: name for name in self._by_wire.values()}, **self._by_wire}

    def meant(self, called: str) -> str:
        """Return the tool that a model means by *called*; *called* itself if that is no tool or not clear.

        Models decorate names: `functions.view`, `default_api:view`, `view<|channel|>commentary` all mean `view`.
        """
        if called in self._known:
            return self._known[called]
        bare = _DECORATION.sub("", called).strip()
        tails = [bare, *(bare[separator.end() :] for separator in _PREFIX.finditer(bare))]
        meant = {self._known[tail] for tail in tails if tail in self._known}
        return meant.pop() if len(meant) == 1 else called


def call_id(given: str) -> str:
    """Return the id of a call as providers take it: itself if it has at most 40 plain characters, else a digest."""
    if _PLAIN_ID.fullmatch(given):
        return given
    return f"call_{sha256(given.encode(errors='surrogatepass')).hexdigest()[:32]}"


_PLAIN_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,40}")


# --- Histories ---

LOST_RESULT: Final = "(no result was recorded; the call may or may not have run)"


def paired(messages: Iterable[Message]) -> Iterator[Message]:
    """Give *messages* so that every tool call is followed by its one result, in the order of the calls.

    A call without a result gets a neutral one, a second result for a call and a result without its call are left out,
    and what stood between a call and its result comes after.
    """
    calls: tuple[ToolCall, ...] = ()
    results: dict[str, list[ToolMessage]] = {}
    others: list[Message] = []
    for message in messages:
        match message:
            case ToolMessage():
                if calls:
                    results.setdefault(message.call_id, []).append(message)
            case AssistantMessage():
                if calls:
                    yield from _closed(calls, results)
                    yield from others
                    results = {}
                    others = []
                calls = message.calls
                yield message if len(calls) < 2 else _with_distinct_ids(message, calls)
            case _ if calls:
                others.append(message)
            case _:
                yield message
    yield from _closed(calls, results)
    yield from others


def _closed(calls: Sequence[ToolCall], results: Mapping[str, list[ToolMessage]]) -> Iterator[Message]:
    for call, id in zip(calls, _distinct_ids(calls), strict=True):
        found = results.get(call.id)
        result = found.pop(0) if found else ToolMessage(call.id, call.name, (Text(LOST_RESULT),))
        yield result if id == call.id else replace(result, call_id=id)


def _with_distinct_ids(message: AssistantMessage, calls: Sequence[ToolCall]) -> AssistantMessage:
    ids = _distinct_ids(calls)
    if all(call.id == id for call, id in zip(calls, ids, strict=True)):
        return message
    left = iter(ids)
    parts = [replace(part, id=next(left)) if isinstance(part, ToolCall) else part for part in message.parts]
    return replace(message, parts=parts)


def _distinct_ids(calls: Sequence[ToolCall]) -> list[str]:
    """Return the calls' ids; one that repeats has its place in the message added."""
    ids: list[str] = []
    for place, call in enumerate(calls):
        ids.append(f"{call.id}_{place}" if call.id in ids else call.id)
    return ids


# --- Memory ---


class Remembered(Generic[T]):
    """What was made of an object, by the object's identity, while there is room; what came first goes first.

    The objects are kept alive with what was made of them, so that an identity is never taken for another's. *room* is
    in bytes.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._made: dict[int, tuple[object, T, int]] = {}

    def get(self, key: object) -> T | None:
        """Return what was made of *key*, None if that is not known."""
        made = self._made.get(id(key))
        return None if made is None else made[1]

    def keep(self, key: object, made: T, size: int) -> None:
        """Remember *made* of *key*; *size* in bytes."""
        self._made[id(key)] = (key, made, size)
        self._room -= size
        while self._room < 0 and len(self._made) > 1:
            self._room += self._made.pop(next(iter(self._made)))[2]
