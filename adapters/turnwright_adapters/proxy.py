"""A model behind a proxy: its server has the provider's key and asks, we rebuild the answer from reduced frames.

Rule: an answer ends with its terminal frame. Nothing is read after it, and without it there is no answer
(tests/adapters/test_proxy.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

import httpx
import msgspec
from attrs import evolve as replace

from turnwright import journal
from turnwright.deltas import AttemptReset
from turnwright.errors import ModelError, ModelErrorKind
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    StopReason,
    Text,
    ToolCall,
    Usage,
)
from turnwright.ports import ModelRequest
from turnwright_adapters._proxied import (
    FAILURES,
    LARGEST_FRAME,
    LARGEST_REQUEST,
    OPTIONS,
    PATH,
    REASONS,
    SAMPLING,
    USAGE,
    VERSION,
)
from turnwright_adapters._wire import (
    Answer,
    ApiKey,
    Call,
    HttpModel,
    Kind,
    Remembered,
    ServerSentEvent,
    Timeouts,
    ToolNames,
    Words,
    check_choice,
    count,
    decode,
    encode,
    provider_error,
    string,
    table,
)

__all__ = ["ProxyModel", "Timeouts"]

log = logging.getLogger(__name__)

MOST_BLOCKS: Final = 10_000
"""Blocks of one answer."""


class ProxyModel(HttpModel):
    """A model that another server asks for us, by the name that it knows it under; a model port.

    ::

        model = ProxyModel("sonnet", base_url="https://models.example.org", api_key=lambda: session.token)
        await run_agent(definition, "Where is my order?", Ports(model=model))

    *api_key* is the bearer token of the proxy, or a function, also an asynchronous one, that is asked for each request.
    Of the options only these cross: temperature, sampling_params, max_tokens, thinking_level, thinking_budgets,
    cache_retention, session_id, headers, metadata, transport, max_retry_delay_ms. The names that sampling_params may
    hold, and thinking_budget, may also stand by themselves. All others stay here, and so does whoever watches.

    The answer is the upstream model's, with its signatures, its usage, and who gave it. What came before a failure is
    with the ModelError. A cancelled request is closed, which cancels the upstream model.

    One object serves any number of runs at a time, on any number of event loops one after another. A *client* that
    was given is never closed; one of our own closes with its event loop, or by `aclose`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: ApiKey,
        provider: str = "proxy",
        headers: Mapping[str, str | None] | None = None,
        client: httpx.AsyncClient | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - a frozen value is a safe default
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            provider=provider,
            headers=headers or {},
            client=client,
            timeouts=timeouts,
            stream=True,
        )
        self._url = self._at(PATH)
        self._messages: Remembered[Message, msgspec.Raw] = Remembered()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError."""
        check_choice(request)
        body = self._body(request)
        headers = await self._headers_for(replace(request, options={}), accept="text/event-stream")
        answer = _Rebuilt(request, self.provider)
        try:
            async with self._http.post(
                self._url,
                headers=headers,
                body=body,
                provider=self.provider,
                timeout=request.timeout,
                refusal=_refused,
            ) as reply:
                lines = LineDecoder()
                async with aclosing(reply.chunks()) as chunks:
                    async for chunk in chunks:
                        for line in lines.feed(chunk):
                            answer.hear(ServerSentEvent("", line))
                        if answer.done:
                            return answer.message()
                for line in lines.close():
                    answer.hear(ServerSentEvent("", line), last=True)
                return answer.message()
        except ModelError as error:
            error.partial = answer.so_far()
            raise

    def _body(self, request: ModelRequest) -> bytes:
        context: dict[str, object] = {}
        if request.instruction:
            context["systemPrompt"] = request.instruction
        context["messages"] = [self._messages.of(message, _message) for message in request.messages]
        if request.tools:
            context["tools"] = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in request.tools
            ]
        if request.tool_choice != "auto":
            context["toolChoice"] = request.tool_choice
        if request.output is not None:
            context["output"] = {"name": request.output.name, "schema": request.output.schema}
        body = encode({"model": {"id": self.model}, "context": context, "options": _options(request.options)})
        if len(body) > LARGEST_REQUEST:
            words = f"{self.provider}: a request of {len(body)} bytes, and a proxy takes {LARGEST_REQUEST}"
            raise ModelError("invalid_request", words, dispatched=False)
        return body


def _message(message: Message) -> msgspec.Raw:
    return msgspec.Raw(journal.encode(message)[1])


def _options(given: Mapping[str, object]) -> dict[str, object]:
    """Return the options that cross, by their names on the wire."""
    options = {name: value for name, value in given.items() if value is not None}
    sampling = {name: options[name] for name in sorted(SAMPLING & options.keys())} | table(
        options.get("sampling_params")
    )
    if sampling:
        options["sampling_params"] = sampling
    if (budget := options.get("thinking_budget")) is not None:
        level = options.setdefault("thinking_level", "medium")
        options["thinking_budgets"] = {**table(options.get("thinking_budgets")), str(level): budget}
    return {wire: options[name] for name, wire in OPTIONS.items() if name in options}


def _refused(provider: str, body: bytes, *, status: int, headers: Mapping[str, str]) -> ModelError:
    """Return what a reply means that is no stream: the words of its `error`, or its status."""
    failure = provider_error(provider, body, status=status, headers=headers)
    try:
        said = table(decode(body))
    except ValueError:
        said = {}
    words = string(said.get("error")) or string(table(said.get("error")).get("message"))
    failure.args = (f"Proxy error: {words or f'{status} {_phrase(status)}'.rstrip()}",)
    failure.kind = _kind(said.get("kind")) or failure.kind
    failure.dispatched = said.get("dispatched") is not False
    return failure


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _kind(value: object) -> ModelErrorKind | None:
    return next((kind for kind in FAILURES if kind == value), None)


class LineDecoder:
    """The data of lines that begin with `data:`, from bytes that come in pieces of any size.

    What the lines hold does not depend on the pieces; the last line needs no newline. ModelError for a line of more
    than *largest* bytes.
    """

    def __init__(self, *, largest: int = LARGEST_FRAME) -> None:
        self._largest = largest
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Give the data of each line that *chunk* completes; take them all before the next chunk."""
        if b"\n" not in chunk:
            self._keep(chunk)
            return
        if self._rest:
            chunk = bytes(self._rest) + chunk
            self._rest.clear()
        *lines, rest = chunk.split(b"\n")
        self._keep(rest)
        for line in lines:
            if len(line) > self._largest:
                raise self._too_long()
            if data := _data(line):
                yield data

    def close(self) -> Iterator[bytes]:
        """Give the data of the last line if it came without its newline."""
        if data := _data(bytes(self._rest)):
            yield data

    def _keep(self, rest: bytes) -> None:
        self._rest += rest
        if len(self._rest) > self._largest:
            raise self._too_long()

    def _too_long(self) -> ModelError:
        return ModelError("malformed", f"a frame of more than {self._largest} bytes")


def _data(line: bytes) -> bytes:
    return line[5:].strip() if line.startswith(b"data:") else b""


class _Rebuilt(Answer):
    """An answer, put together from frames: blocks at their indexes, pieces at the end of what each holds."""

    def __init__(self, request: ModelRequest, provider: str) -> None:
        super().__init__(request, ToolNames(()), provider)
        self._blocks: dict[int, Words | Call | Image | File] = {}
        self._order: list[int] | None = None
        self._last = 0
        self._end: dict[str, object] = {}
        self._aborted = False

    def message(self) -> AssistantMessage:
        """Return the answer. ModelError without a terminal frame."""
        if not self.done:
            words = f"{self._provider}: connection closed by the proxy before its terminal frame"
            raise ModelError("connection", words, retryable=True)
        return AssistantMessage(
            self._made(),
            self._stop_reason(),
            self._counted(self._usage),
            model=string(self._end.get("model")),
            provider=string(self._end.get("provider")) or self._provider,
            response_id=string(self._end.get("responseId")),
            raw_stop_reason=string(self._end.get("rawStopReason")),
        )

    def so_far(self) -> AssistantMessage | None:
        """Return what came before a failure, None if nothing did."""
        if not self._blocks and not self._usage:
            return None
        ended: StopReason = "aborted" if self._aborted else "error"
        return AssistantMessage(self._made(), ended, self._counted(self._usage), provider=self._provider)

    def _take_reply(self, payload: dict[str, object]) -> None:
        raise NotImplementedError("a proxy always streams")

    def _take_event(self, payload: dict[str, object], event: str) -> None:
        kind = string(payload.get("type")) or ""
        self._check_place(payload)
        match kind.partition("_"):
            case ("start", _, ""):
                pass
            case (("text" | "thinking" | "toolcall"), _, "start"):
                self._start(kind, payload)
            case ("text", _, ("delta" | "end") as step):
                self._go_on(step, payload, self._words(payload, "text", "refusal"))
            case ("thinking", _, ("delta" | "end") as step):
                self._go_on(step, payload, self._words(payload, "reasoning"))
            case ("toolcall", _, "delta"):
                self._argue(payload)
            case ("toolcall", _, "end"):
                self._end_call(payload)
            case (("image" | "file"), _, ""):
                self._put(payload, _shown(kind, table(payload.get(kind))))
            case ("usage", _, ""):
                self._take_usage(payload.get("usage"))
            case ("reset", _, ""):
                self._blocks.clear()
                self._calls.clear()
                if self._on_delta is not None:
                    self._on_delta(AttemptReset(self._turn, self._attempt))
            case ("done", _, ""):
                self._finish_with(payload)
            case ("error", _, ""):
                self._take_usage(payload.get("usage"))
                raise self._failure(payload)
            case _:
                log.warning("%s: a frame of the unknown type %r is ignored", self._provider, kind[:40])

    def _check_place(self, frame: dict[str, object]) -> None:
        """ModelError if a frame is of a version that we don't know, or not the next. Older servers number none."""
        version = frame.get("v", VERSION)
        if type(version) is not int or not 1 <= version <= VERSION:
            words = f"{self._provider}: a frame of version {version!r:.20}, and we know {VERSION}; upgrade turnwright"
            raise ModelError("malformed", words)
        if (number := frame.get("seq")) is not None:
            if number != self._last + 1:
                words = f"{self._provider}: frame {number!r:.20} came after frame {self._last}"
                raise ModelError("malformed", words, retryable=True)
            self._last += 1

    def _start(self, kind: str, frame: dict[str, object]) -> None:
        if kind == "toolcall_start":
            call = Call(len(self._calls))
            self._put(frame, call)
            self._calls.append(call)
            call.id, call.name = string(frame.get("id")) or "", string(frame.get("toolName")) or ""
            self._tell_call(call)
            return
        told: Kind = "reasoning" if kind == "thinking_start" else "refusal" if frame.get("refusal") else "text"
        self._put(frame, Words(told))

    def _put(self, frame: dict[str, object], block: Words | Call | Image | File) -> None:
        index = _index(frame)
        if index is None or index in self._blocks or len(self._blocks) >= MOST_BLOCKS:
            raise self._broken(frame, "cannot be a new block")
        self._blocks[index] = block

    def _block(self, frame: dict[str, object]) -> Words | Call | Image | File | None:
        index = _index(frame)
        return None if index is None else self._blocks.get(index)

    def _words(self, frame: dict[str, object], *kinds: Kind) -> Words:
        block = self._block(frame)
        if not isinstance(block, Words) or block.kind not in kinds:
            raise self._broken(frame, "is no block of that kind")
        return block

    def _go_on(self, step: str, frame: dict[str, object], words: Words) -> None:
        if step == "delta":
            if text := string(frame.get("delta")):
                self._say(words, text)
            return
        words.signature = string(frame.get("contentSignature")) or words.signature
        words.redacted = frame.get("redacted") is True
        if frame.get("refusal") is True:
            words.kind = "refusal"

    def _argue(self, frame: dict[str, object]) -> None:
        block = self._block(frame)
        if not isinstance(block, Call):
            raise self._broken(frame, "is no block of that kind")
        if text := string(frame.get("delta")):
            block.pieces.append(text)
            self._tell_call(block)

    def _end_call(self, frame: dict[str, object]) -> None:
        """Lay the whole call over what was told of it; on a block that is no call it says nothing."""
        call, whole = self._block(frame), table(frame.get("toolCall"))
        if not isinstance(call, Call):
            return
        call.id = string(whole.get("id")) or call.id
        call.name = string(whole.get("name")) or call.name
        call.signature = string(whole.get("signature")) or string(whole.get("thoughtSignature")) or call.signature
        arguments = whole.get("arguments")
        if isinstance(arguments, dict):  # some servers parse them; the model's own text is better if it says the same
            arguments = None if _says(call.arguments, arguments) else encode(arguments).decode()
        if isinstance(arguments, str) and arguments != (told := call.arguments):
            call.pieces.append(arguments.removeprefix(told))
            if arguments.startswith(told):
                self._tell_call(call)
            else:
                call.pieces[:] = [arguments]
                call.told = 1

    def _finish_with(self, frame: dict[str, object]) -> None:
        self._take_usage(frame.get("usage"))
        order = frame.get("order")
        if order is not None:
            if not isinstance(order, list) or {*map(type, order)} - {int} or sorted(order) != sorted(self._blocks):
                raise self._broken(frame, "does not order the blocks that are there")
            self._order = order
        self._end = frame
        self._stop_reason()
        self.done = True

    def _failure(self, frame: dict[str, object]) -> ModelError:
        self._aborted = frame.get("reason") == "aborted"
        words = string(frame.get("errorMessage")) or "no reason was given"
        failure = provider_error(self._provider, {"message": words})
        kind = _kind(frame.get("kind"))
        if kind is not None or self._aborted:
            failure.kind, failure.retryable = kind or "cancelled", frame.get("retryable") is True
        wait, status = frame.get("retryAfter"), frame.get("status")
        failure.retry_after = float(wait) if isinstance(wait, int | float) and 0 <= wait < float("inf") else None
        failure.status = status if type(status) is int else None
        failure.dispatched = frame.get("dispatched") is not False
        return failure

    def _stop_reason(self) -> StopReason:
        reason, ours = self._end.get("reason"), self._end.get("stopReason")
        for word, wire in REASONS.items():
            if wire == reason and ours in {None, word}:
                return word  # type: ignore[return-value]
        raise self._broken(self._end, f"ends for the unknown reason {reason!r:.20}")

    def _counted(self, raw: Mapping[str, object]) -> Usage:
        return Usage(**{ours: count(raw.get(wire)) for wire, ours in USAGE.items()})

    def _made(self) -> list[Part]:
        order = sorted(self._blocks) if self._order is None else self._order
        return [_part(self._blocks[index]) for index in order]

    def _broken(self, frame: dict[str, object], what: str) -> ModelError:
        place = f"{frame.get('type')!r:.40} at {frame.get('contentIndex')!r:.20}"
        return ModelError("malformed", f"{self._provider}: the frame {place} {what}", retryable=True)


def _part(block: Words | Call | Image | File) -> Part:
    match block:
        case Image() | File():
            return block
        case Call():
            return ToolCall(block.id, block.name, block.arguments, block.signature or None)
        case Words(kind="reasoning"):
            return Reasoning(block.text, block.signature or None, block.redacted)
        case Words(kind="refusal"):
            return Refusal(block.text)
        case Words():
            return Text(block.text, block.signature or None)


def _shown(kind: str, told: dict[str, object]) -> Image | File:
    media_type, data, url = string(told.get("mediaType")) or "", string(told.get("data")), string(told.get("url"))
    if kind == "image":
        return Image(media_type, data, url)
    return File(media_type, data, url, string(told.get("id")), string(told.get("name")))


def _index(frame: dict[str, object]) -> int | None:
    index = frame.get("contentIndex")
    return index if type(index) is int and 0 <= index <= 2**53 else None


def _says(text: str, arguments: dict[str, object]) -> bool:
    try:
        return decode(text.encode()) == arguments
    except ValueError:
        return False
