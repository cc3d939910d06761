"""The server of the proxy: `POST /api/stream` on any ASGI server asks a model and streams its answer in small frames.

Rule: a client is told only what is new, holds no more of our memory than a fixed backlog, and takes its model with it
when it leaves (tests/adapters/test_proxy_server.py).

What is refused, before the model is asked, in this order: a client without a known token (401), more streams than there
is room for (503), a body that is compressed or no JSON (415), too long (413) or too slow (408), or not what
contracts/schemas/proxy_request.json says (400), a model that is not served (404). Each is `{"error": words}`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

from attrs import evolve as replace, frozen

from turnwright.canonical import JSON, decode
from turnwright.deltas import AttemptReset, Delta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.errors import InvalidValue, MissingExtra, ModelError
from turnwright.messages import (
    NO_USAGE,
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    flaw,
)
from turnwright.ports import Model, ModelRequest, OutputSpec
from turnwright.tools import ToolSpec
from turnwright_adapters._proxied import (
    LARGEST_FRAME,
    LARGEST_REQUEST,
    OPTIONS,
    PATH,
    REASONS,
    REQUEST_SCHEMA,
    VERSION,
    usage_of,
)
from turnwright_adapters._wire import encode

if TYPE_CHECKING:
    from jsonschema_rs import Validator
    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

__all__ = ["proxy_app"]

log = logging.getLogger(__name__)

BACKLOG: Final = 2**20
"""Bytes of frames that may wait for a client. Of what comes then it is told when the answer is whole."""

PIECE: Final = 2**16
"""Characters of one delta, and bytes that are sent at a time."""

GRACE: Final = 5.0
"""Seconds that a cancelled model may take to end."""

T = TypeVar("T")


def proxy_app(
    models: Mapping[str, Model],
    *,
    tokens: Sequence[str],
    heartbeat: float = 15.0,
    answer_within: float = 600.0,
    read_within: float = 60.0,
    largest_request: int = LARGEST_REQUEST,
    most_streams: int = 64,
) -> Starlette:
    """Return the app that serves *models* by their names to whoever has one of *tokens*.

    ::

        app = proxy_app({"sonnet": AnthropicModel(...)}, tokens=[os.environ["PROXY_TOKEN"]])
        uvicorn.run(app, host="127.0.0.1", port=8080)

    A silent stream is kept alive by a comment each *heartbeat* seconds. A model that has not answered within
    *answer_within* seconds is cancelled; so is that of a client which reads nothing for *read_within* seconds, or
    leaves. A client's options may not name headers that carry secrets, nor what is asked of whom.
    """
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra("http", "starlette") from error
    if isinstance(tokens, str) or not tokens or not all(tokens):
        raise ValueError("tokens must be one or more bearer tokens, none of them empty")
    limits = _Limits(heartbeat, answer_within, read_within, largest_request, most_streams)
    return Starlette(routes=[Route(PATH, _Proxy(models, tokens, limits), methods=["POST"])])


@frozen
class _Limits:
    heartbeat: float
    answer_within: float
    read_within: float
    largest_request: int
    most_streams: int


class _Refused(Exception):
    """A request that is answered with *status* and these words, without asking the model."""

    def __init__(self, status: int, words: str, **headers: str) -> None:
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(words)


class _Left(Exception):
    """The client has left before its request was whole."""


class _Proxy:
    """The endpoint, as an ASGI app."""

    def __init__(self, models: Mapping[str, Model], tokens: Sequence[str], limits: _Limits) -> None:
        self._models = dict(models)
        self._tokens = [sha256(token.encode()).digest() for token in tokens]
        self._limits = limits
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import Headers
        from starlette.responses import JSONResponse

        headers = Headers(scope=scope)
        try:
            self._admit(headers)
            self._streams += 1
            try:
                model, request = self._read(await self._body(headers, receive))
                await self._stream(model, request, receive, send)
            finally:
                self._streams -= 1
        except _Refused as refused:
            said = {"error": str(refused), "dispatched": False}
            await JSONResponse(said, refused.status, refused.headers)(scope, receive, send)
        except _Left:
            pass

    def _admit(self, headers: Mapping[str, str]) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = sha256(token.strip().encode()).digest()
        # Each token is compared, and each comparison takes as long whether it holds or not.
        known = sum([compare_digest(given, token) for token in self._tokens])
        if scheme.lower() != "bearer" or not known:
            raise _Refused(401, "a known bearer token is needed", www_authenticate="Bearer")
        if self._streams >= self._limits.most_streams:
            raise _Refused(503, f"overloaded: {self._streams} streams are open", retry_after="1")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _Refused(415, "a compressed request is not taken")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(415, "a request is application/json")

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        most = self._limits.largest_request
        told = headers.get("content-length", "0")
        if told.isdecimal() and int(told[:20]) > most:
            raise _Refused(413, f"a request has at most {most} bytes")
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.read_within):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Left
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > most:
                        raise _Refused(413, f"a request has at most {most} bytes")
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            raise _Refused(408, f"the request was not there within {self._limits.read_within:g} s") from None

    def _read(self, body: bytes) -> tuple[Model, ModelRequest]:
        """Return the model that is asked, and what it is asked."""
        try:
            asked = decode(body)
        except InvalidValue as error:
            raise _Refused(400, f"the request is not JSON that can be taken: {error}"[:300]) from None
        for issue in _validator().iter_errors(asked):
            place = "/".join(map(str, issue.instance_path))
            raise _Refused(400, f"the request is not valid at {place or 'its root'}: {issue.message}"[:300])
        assert isinstance(asked, dict)
        name, context, options = _object(asked, "model")["id"], _object(asked, "context"), _object(asked, "options")
        model = self._models.get(str(name))
        if model is None:
            raise _Refused(404, f"no model {name!r} is served here")
        return model, _request(context, options, self._limits.answer_within)

    async def _stream(self, model: Model, request: ModelRequest, receive: Receive, send: Send) -> None:
        """Ask *model*, and send what it says as it comes, until the answer is all sent or the client has left."""
        frames = _Frames()
        asking = asyncio.ensure_future(self._ask(model, request, frames))
        asking.add_done_callback(frames.settle)
        sending = asyncio.ensure_future(self._send(frames, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (asking, sending, leaving):
                task.cancel()
            await asyncio.wait({asking, sending, leaving}, timeout=GRACE)
        if not asking.done():
            log.warning("a model that was cancelled still works after %g s", GRACE)
        with suppress(asyncio.CancelledError, TimeoutError, OSError):  # it has left, or does not read
            sending.result()

    async def _ask(self, model: Model, request: ModelRequest, frames: _Frames) -> AssistantMessage | ModelError:
        limit = self._limits.answer_within
        try:
            async with asyncio.timeout(limit):
                answer = await model.complete(replace(request, on_delta=frames.take))
        except ModelError as error:
            return error
        except TimeoutError:
            return ModelError("timeout", f"no answer within {limit:g} s", retryable=True)
        except Exception as error:  # noqa: BLE001 - a model port is somebody else's code
            log.warning("a model failed with %s", type(error).__name__)
            return ModelError("internal", f"the model failed with {type(error).__name__}")
        wrong = flaw(answer)
        return ModelError("malformed", f"the model's answer is none: {wrong}") if wrong else answer

    async def _send(self, frames: _Frames, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not frames.settled:
            try:
                async with asyncio.timeout(self._limits.heartbeat):
                    await frames.ready.wait()
            except TimeoutError:
                await self._say(send, b": heartbeat\n\n")
            else:
                await self._say(send, frames.waiting())
        for piece in frames.rest():
            await self._say(send, piece)
        await self._say(send, b"", more=False)

    async def _say(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._limits.read_within):
            await send({"type": "http.response.body", "body": body, "more_body": more})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# --- what is asked


@cache
def _validator() -> Validator:
    from jsonschema_rs import validator_for

    return validator_for(REQUEST_SCHEMA)


def _object(value: Mapping[str, JSON], name: str) -> dict[str, JSON]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _objects(value: Mapping[str, JSON], name: str) -> list[dict[str, JSON]]:
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _request(context: dict[str, JSON], options: dict[str, JSON], within: float) -> ModelRequest:
    """Return what a valid request asks. The run is the client's: here it has no name, and a turn for each answer."""
    messages = [_message(each) for each in _objects(context, "messages")]
    output = _object(context, "output")
    return ModelRequest(
        "",
        1 + sum([isinstance(message, AssistantMessage) for message in messages]),
        1,
        str(context.get("systemPrompt", "")),
        messages,
        tools=tuple([ToolSpec(**each) for each in _objects(context, "tools")]),  # type: ignore[arg-type]
        tool_choice=str(context.get("toolChoice", "auto")),
        output=OutputSpec(**output) if output else None,  # type: ignore[arg-type]
        options=_options(options),
        timeout=within,
    )


def _options(given: dict[str, JSON]) -> dict[str, object]:
    """Return the options by our names. Named ones give way to those of `samplingParams`, a level to its budget."""
    for name in _object(given, "headers"):
        if _NOT_FOR_CLIENTS.search(name):
            raise _Refused(400, f"the header {name!r:.80} is not for a client to set")
    options: dict[str, object] = {ours: given[wire] for ours, wire in OPTIONS.items() if wire in given}
    options |= _object({"found": options.pop("sampling_params", {})}, "found")  # type: ignore[dict-item]
    budgets = options.pop("thinking_budgets", {})
    if isinstance(budgets, dict) and (level := options.get("thinking_level")) in budgets:
        options["thinking_budget"] = budgets[level]
    return options


_NOT_FOR_CLIENTS: Final = re.compile(
    r"auth|key|token|secret|cookie|credential|organi[sz]ation|project|account|workspace|tenant|billing"
    r"|forwarded|override|real-ip|^(?:host|connection|content-.*|transfer-.*|te|upgrade|accept-encoding|via)$"
    r"|^(?:expect|trailer|keep-alive|proxy-.*)$",
    re.IGNORECASE,
)
"""Headers that say who asks, who pays or how it is sent: those are ours."""

_PARTS: Final[dict[object, Callable[..., Part]]] = {
    "text": Text,
    "image": Image,
    "file": File,
    "reasoning": Reasoning,
    "refusal": Refusal,
    "tool_call": ToolCall,
}

_MESSAGES: Final[dict[object, Callable[..., Message]]] = {
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
}


def _message(value: dict[str, JSON]) -> Message:
    parts = [_made(_PARTS, each, "type") for each in _objects(value, "parts")]
    more: dict[str, object] = {"usage": Usage(**used)} if (used := _object(value, "usage")) else {}  # type: ignore[arg-type]
    return _made(_MESSAGES, {**value, "parts": parts, **more}, "role")


def _made(kinds: Mapping[object, Callable[..., T]], value: Mapping[str, object], tag: str) -> T:
    return kinds[value[tag]](**{name: each for name, each in value.items() if name != tag})


# --- what is answered


class _Block:
    """A part as far as it was told."""

    __slots__ = ("index", "kind", "name", "pieces")

    def __init__(self, index: int, kind: _BlockKind, name: str = "") -> None:
        self.index = index
        self.kind = kind
        self.name = name
        self.pieces: list[str] = []


_BlockKind: TypeAlias = Literal["text", "thinking", "toolcall", "image", "file"]


class _TooLarge(Exception):
    """A frame that no client would take."""


class _Frames:
    """What a model says, as frames: first its deltas as they come, then what they did not tell of the answer.

    Deltas are not waited for, so those of a client that does not read are dropped once the backlog is full; the rest
    of the answer tells the same, and is made piece by piece as the client reads.
    """

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.settled = False
        self._ended: AssistantMessage | ModelError | None = None
        self._number = 0
        self._waiting: list[bytes] = []
        self._size = 0
        self._late = False
        self._blocks: list[_Block] = []
        self._calls: dict[int, _Block] = {}
        self._usage = NO_USAGE
        self._put("start")

    def take(self, delta: Delta) -> None:
        """Take one delta of the model."""
        self._late = self._late or self._size > BACKLOG
        match delta:
            case UsageDelta(usage=usage):
                self._usage = usage
                if not self._late:
                    self._put("usage", usage=usage_of(usage))
            case AttemptReset():
                self._reset()
            case _ if self._late:
                pass
            case TextDelta(text=text):
                self._piece("text", text)
            case ReasoningDelta(text=text):
                self._piece("thinking", text)
            case ToolCallDelta(index=index, name=name, text=text):
                if index not in self._calls:
                    self._calls[index] = self._begin("toolcall", name)
                self._add(self._calls[index], text)

    def settle(self, asking: asyncio.Task[AssistantMessage | ModelError]) -> None:
        """Take the end of the request."""
        aborted = ModelError("cancelled", "the model was cancelled")
        self._ended = aborted if asking.cancelled() else asking.result()
        self.settled = True
        self.ready.set()

    def waiting(self) -> bytes:
        """Return the frames that wait."""
        frames = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self.ready.clear()
        return frames

    def rest(self) -> Iterator[bytes]:
        """Give the frames that wait, what was not told yet, and the terminal frame."""
        yield self.waiting()
        ended = self._ended
        try:
            if isinstance(ended, AssistantMessage):
                yield from self._whole(ended)
                return
            assert ended is not None
            if ended.partial is not None and (blocks := self._told(ended.partial.parts)) is not None:
                yield from self._remainder(ended.partial.parts, blocks)
        except _TooLarge:
            ended = ModelError("malformed", f"the answer has a part that no frame of {LARGEST_FRAME} bytes can hold")
        yield self._failure(ended)

    def _whole(self, answer: AssistantMessage) -> Iterator[bytes]:
        """Tell the answer to its end, anew if it is not what its deltas told."""
        blocks = self._told(answer.parts)
        if blocks is None:
            self._reset()
            yield self.waiting()
            blocks = [None] * len(answer.parts)
        order = yield from self._remainder(answer.parts, blocks)
        end: dict[str, object] = {
            "reason": REASONS[answer.stop_reason],
            "stopReason": answer.stop_reason,
            "usage": usage_of(answer.usage),
            "model": answer.model,
            "provider": answer.provider,
            "responseId": answer.response_id,
            "rawStopReason": answer.raw_stop_reason,
            "order": None if order == sorted(order) else order,
        }
        yield self._made("done", **_given(end))

    def _failure(self, error: ModelError) -> bytes:
        used = self._usage if error.partial is None else error.partial.usage
        end = {
            "reason": "aborted" if error.kind == "cancelled" else "error",
            "errorMessage": str(error),
            "usage": usage_of(used),
            "kind": error.kind,
            "retryable": error.retryable,
            "retryAfter": error.retry_after,
            "status": error.status,
            "dispatched": error.dispatched,
        }
        return self._made("error", **_given(end))

    def _told(self, parts: Sequence[Part]) -> list[_Block | None] | None:
        """Return the block of each part, None for a part of which nothing was told; None if they do not fit."""
        left = {kind: [block for block in self._blocks if block.kind == kind][::-1] for kind in ("text", "thinking")}
        left["toolcall"] = [self._calls[index] for index in sorted(self._calls, reverse=True)]
        blocks: list[_Block | None] = []
        for part in parts:
            kind, text = _content(part)
            candidates = left.get(kind)
            if not candidates or (kind != "toolcall" and not text):
                blocks.append(None)
            elif text.startswith("".join(candidates[-1].pieces)) and candidates[-1].name == getattr(part, "name", ""):
                blocks.append(candidates.pop())
            else:
                return None
        return None if any(left.values()) else blocks

    def _remainder(self, parts: Sequence[Part], blocks: Sequence[_Block | None]) -> Generator[bytes, None, list[int]]:
        """Give the frames that tell *parts* from where *blocks* stand; return the indexes in the order of the parts."""
        order: list[int] = []
        for part, told in zip(parts, blocks, strict=True):
            kind, text = _content(part)
            block = told or self._begin(kind, getattr(part, "name", ""), refusal=type(part) is Refusal)
            order.append(block.index)
            if isinstance(part, Image | File):
                self._put(kind, contentIndex=block.index, **{kind: _shown(part)})
            start = sum(map(len, block.pieces))
            for place in range(start, len(text), PIECE):
                self._put(f"{kind}_delta", contentIndex=block.index, delta=text[place : place + PIECE])
                yield self.waiting()
            if not isinstance(part, Image | File):
                self._put(f"{kind}_end", contentIndex=block.index, **_end(part))
            yield self.waiting()
        return order

    def _piece(self, kind: _BlockKind, text: str) -> None:
        """Add *text* to the block that is told now, or to a new one if that is of another kind."""
        if text:
            block = self._blocks[-1] if self._blocks else None
            self._add(self._begin(kind) if block is None or block.kind != kind else block, text)

    def _begin(self, kind: _BlockKind, name: str = "", *, refusal: bool = False) -> _Block:
        block = _Block(len(self._blocks), kind, name)
        self._blocks.append(block)
        if kind == "toolcall":
            self._put("toolcall_start", contentIndex=block.index, id=f"call_{block.index}", toolName=name)
        elif kind not in {"image", "file"}:
            self._put(f"{kind}_start", contentIndex=block.index, **({"refusal": True} if refusal else {}))
        return block

    def _add(self, block: _Block, text: str) -> None:
        block.pieces.append(text)
        for place in range(0, len(text), PIECE):
            self._put(f"{block.kind}_delta", contentIndex=block.index, delta=text[place : place + PIECE])

    def _reset(self) -> None:
        self._blocks.clear()
        self._calls.clear()
        self._put("reset")

    def _put(self, kind: str, /, **fields: object) -> None:
        frame = self._made(kind, **fields)
        self._waiting.append(frame)
        self._size += len(frame)
        self.ready.set()

    def _made(self, kind: str, /, **fields: object) -> bytes:
        frame = encode({"v": VERSION, "seq": self._number + 1, "type": kind, **fields})
        if len(frame) > LARGEST_FRAME - len(b"data: "):
            raise _TooLarge
        self._number += 1
        return b"data: " + frame + b"\n\n"


def _content(part: Part) -> tuple[_BlockKind, str]:
    """Return as what *part* is told, and what of it comes in pieces."""
    match part:
        case Text() | Refusal():
            return "text", part.text
        case Reasoning():
            return "thinking", part.text
        case ToolCall():
            return "toolcall", part.arguments
        case Image() | File():
            return part.type, ""


def _shown(part: Image | File) -> dict[str, object]:
    """Return *part* as its frame holds it."""
    more = {"id": part.id, "name": part.name} if isinstance(part, File) else {}
    return _given({"mediaType": part.media_type, "data": part.data, "url": part.url, **more})


def _end(part: Text | Refusal | Reasoning | ToolCall) -> dict[str, object]:
    """Return what the end of *part* tells beside its text."""
    match part:
        case ToolCall():
            # Arguments of usual size come again, for clients that do not keep the pieces.
            again = part.arguments if len(part.arguments) <= PIECE else None
            call = {"id": part.id, "name": part.name, "arguments": again, "signature": part.signature}
            return {"toolCall": _given(call)}
        case Refusal():
            return {"refusal": True}
        case Text():
            return _given({"contentSignature": part.signature})
        case Reasoning():
            return _given({"contentSignature": part.signature, "redacted": part.redacted or None})


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
