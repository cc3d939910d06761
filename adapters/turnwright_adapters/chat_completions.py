"""OpenAI's Chat Completions dialect over HTTP, as OpenAI and many other servers speak it.

Rule: an answer is finished only when the provider says so, by a finish reason or by `[DONE]`; every other end of a
stream is a ModelError. Streamed or not, in whatever pieces, one reply gives one message
(tests/adapters/test_chat_completions.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Literal, Self, TypeAlias

import httpx
import msgspec
from attrs import frozen

from turnwright.canonical import well_formed
from turnwright.deltas import ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.errors import ModelError
from turnwright.messages import (
    AssistantMessage,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from turnwright.ports import ModelRequest
from turnwright.tools import ToolSpec
from turnwright_adapters._constrained import constrain, shown
from turnwright_adapters._wire import (
    ApiKey,
    Http,
    Remembered,
    Reply,
    ServerSentEvent,
    SseDecoder,
    Timeouts,
    ToolNames,
    as_object_text,
    authorization,
    call_id,
    decode,
    encode,
    is_object_text,
    is_transport_failure,
    paired,
    provider_error,
    wire_headers,
    wire_name,
)

__all__ = ["OPENAI", "ChatCompletionsModel", "Compat", "Timeouts"]


@frozen
class Compat:
    """What a server makes of the dialect. The defaults are what most servers understand.

    *max_tokens* is the name on the wire of the option `max_tokens`. *reasoning* is the field in which an assistant's
    reasoning is sent back (`reasoning_content` for DeepSeek's thinking mode), None to send none. *output* says when
    the server takes a JSON Schema for its answer; when it does not, the schema is put into the instruction. Without
    *images* a placeholder stands for each.
    """

    system_role: Literal["system", "developer"] = "system"
    max_tokens: str = "max_tokens"
    stream_usage: bool = True
    images: bool = True
    reasoning: str | None = None
    output: Literal["always", "without_tools", "never"] = "always"
    strict_output: bool = False


OPENAI: Final = Compat(max_tokens="max_completion_tokens")


class ChatCompletionsModel:
    """A model behind a server that speaks OpenAI's Chat Completions; a model port.

    ::

        model = ChatCompletionsModel("gpt-4.1-mini", api_key=lambda: os.environ["OPENAI_API_KEY"])
        await run_agent(definition, "Where is my order?", Ports(model=model))

    The key may be a function, also an asynchronous one, that is asked for each request; None sends none. *headers*
    are sent with each request, and a None among them takes one of ours away. With *stream* None a request is streamed
    if somebody watches it. *compat* None is `OPENAI` for OpenAI's own host and `Compat()` for others. *tool_mode*
    `constrained` is for small models that have no dependable tool calls of their own: the tools are described in the
    instruction and the reply is held to the JSON of one call or of the answer.

    One object serves any number of runs at a time, on any number of event loops one after another. A *client* that
    was given is never closed; one of our own closes with its event loop, or by `aclose`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: ApiKey = None,
        provider: str = "openai",
        headers: Mapping[str, str | None] | None = None,
        client: httpx.AsyncClient | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - a frozen value is a safe default
        stream: bool | None = None,
        compat: Compat | None = None,
        tool_mode: Literal["native", "constrained"] = "native",
    ) -> None:
        url = httpx.URL(base_url)
        if url.scheme not in {"http", "https"} or not url.host:
            raise ValueError("base_url must be an http or https URL such as https://api.openai.com/v1")
        self.model = model
        self.provider = provider
        self.tool_mode = tool_mode
        self._url = str(url.copy_with(path=url.path.rstrip("/") + "/chat/completions"))
        self._headers = wire_headers(headers or {})
        self._key = api_key if callable(api_key) or api_key is None else lambda: api_key
        self._http = Http(client, timeouts)
        self._stream = stream
        self._compat = compat or (OPENAI if url.host.lower() == "api.openai.com" else Compat())
        self._native: Remembered[Message, _Encoded] = Remembered()
        self._shown: Remembered[Message, _Encoded] = Remembered()
        self._tools: Remembered[ToolSpec, bytes] = Remembered()

    def __repr__(self) -> str:
        return f"<ChatCompletionsModel {self.model!r} of {self.provider!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what this event loop holds open. The model may be used again, and a second call does nothing."""
        await self._http.aclose()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError."""
        named = request.tool_choice not in {"auto", "required", "none"}
        if named and all(tool.name != request.tool_choice for tool in request.tools):
            raise ModelError(
                "invalid_request", f"tool_choice {request.tool_choice!r} is no tool of this request", dispatched=False
            )
        if self.tool_mode == "native" or not request.tools:
            return await self._complete(request, self._encoded)
        constrained = constrain(request)
        return constrained.reply(await self._complete(constrained.request, self._encoded_as_shown))

    async def _complete(self, request: ModelRequest, encoded: _Encoder) -> AssistantMessage:
        stream = request.on_delta is not None if self._stream is None else self._stream
        names = ToolNames([tool.name for tool in request.tools])
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if stream else "application/json",
            "accept-encoding": "identity",
        }
        if (key := await authorization(self._key, self.provider)) is not None:
            headers["authorization"] = f"Bearer {key}"
        answer = _Answer(request, names, self.provider)
        async with self._http.post(
            self._url,
            headers={name: value for name, value in {**headers, **self._headers}.items() if value is not None},
            body=self._body(request, encoded, stream=stream),
            provider=self.provider,
            timeout=request.timeout,
        ) as reply:
            if reply.content_type == "text/event-stream" or (stream and "json" not in reply.content_type):
                await _listen(reply, answer)
            else:
                answer.take_whole(await reply.read())
            return answer.message()

    def _body(self, request: ModelRequest, encoded: _Encoder, *, stream: bool) -> bytes:
        """Return the request's body. Equal requests give equal bytes, and what is not asked for leaves none."""
        compat = self._compat
        options = {name: value for name, value in request.options.items() if value is not None}
        if taken := options.keys() & {"messages", "stream", "tools"}:
            raise ModelError("invalid_request", f"the option {min(taken)!r} is not to be set", dispatched=False)
        if "max_tokens" in options:
            options[compat.max_tokens] = options.pop("max_tokens")
        if not request.tools:
            options.pop("tool_choice", None)
            options.pop("parallel_tool_calls", None)
        elif request.tool_choice in {"none", "required"}:
            options["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            options["tool_choice"] = {"type": "function", "function": {"name": wire_name(request.tool_choice)}}
        if stream:
            options["stream"] = True
            if compat.stream_usage:
                options["stream_options"] = {"include_usage": True}
        instruction = [request.instruction] if request.instruction else []
        if request.output is not None:
            if compat.output == "always" or (compat.output == "without_tools" and not request.tools):
                strict = {"strict": True} if compat.strict_output else {}
                shape = {"name": wire_name(request.output.name), "schema": request.output.schema, **strict}
                # Members stay in the order of the schema: it is the order in which they are written.
                options["response_format"] = msgspec.Raw(encode({"type": "json_schema", "json_schema": shape}))
            else:
                schema = encode(request.output.schema).decode()
                instruction.append(f"Give your final answer as JSON alone, valid under this JSON Schema:\n{schema}")
        messages = _joined(encoded, request.messages)
        if instruction:
            messages.insert(0, encode({"role": compat.system_role, "content": "\n\n".join(instruction)}))
        members = [encode({"model": options.pop("model", self.model)})[1:-1]]
        if options:
            members.append(encode(options, ordered=True)[1:-1])
        members.append(b'"messages":[' + b",".join(messages) + b"]")
        if request.tools:
            members.append(b'"tools":[' + b",".join([self._tools.of(tool, _tool) for tool in request.tools]) + b"]")
        return b"{" + b",".join(members) + b"}"

    def _encoded(self, message: Message) -> _Encoded:
        return self._native.of(message, self._encode)

    def _encoded_as_shown(self, message: Message) -> _Encoded:
        return self._shown.of(message, lambda message: self._encode(shown(message)))

    def _encode(self, message: Message) -> _Encoded:
        match message:
            case UserMessage():
                return encode({"role": "user", "content": self._content(message.parts)}), ()
            case ToolMessage():
                images = [part for part in message.parts if isinstance(part, Image)] if self._compat.images else []
                text = _text(message.parts, images=not images) or (
                    "(see attached image)" if images else "(no tool output)"
                )
                id = call_id(message.call_id)
                wire = {"role": "tool", "tool_call_id": id, "content": text}
                return encode(wire), tuple([encode(_image(image)) for image in images])
            case AssistantMessage():
                return self._encode_answer(message), ()

    def _encode_answer(self, message: AssistantMessage) -> bytes:
        """Return an assistant's message, empty if nothing of it can be sent."""
        text = "".join([part.text for part in message.parts if isinstance(part, Text | Refusal)])
        calls = message.calls
        if not calls and not text.strip():
            return b""
        wire: dict[str, object] = {"role": "assistant", "content": text if text.strip() else None}
        if self._compat.reasoning is not None:
            thoughts = [part.text for part in message.parts if isinstance(part, Reasoning) and not part.redacted]
            wire[self._compat.reasoning] = "".join(thoughts)
        if calls:
            wire["tool_calls"] = [
                {
                    "id": call_id(call.id),
                    "type": "function",
                    "function": {"name": wire_name(call.name), "arguments": as_object_text(call.arguments)},
                }
                for call in calls
            ]
        return encode(wire)

    def _content(self, parts: Sequence[Part]) -> str | list[object]:
        if not self._compat.images or not any(isinstance(part, Image) for part in parts):
            return _text(parts, images=True) or "(empty message)"
        content: list[object] = []
        for part in parts:
            if isinstance(part, Image):
                content.append(_image(part))
            elif isinstance(part, Text) and part.text.strip():
                content.append({"type": "text", "text": part.text})
        return content


_Encoded: TypeAlias = tuple[bytes, tuple[bytes, ...]]
"""A message's JSON, and that of the images that follow once all results of its batch are there."""


_Encoder: TypeAlias = Callable[[Message], _Encoded]


def _joined(encoded: _Encoder, messages: Sequence[Message]) -> list[bytes]:
    """Return the JSON of each message that is sent; *encoded* makes it once, however many requests it is in."""
    chunks: list[bytes] = []
    pictures: list[bytes] = []
    for message in paired(messages):
        chunk, images = encoded(message)
        if pictures and type(message) is not ToolMessage:
            chunks.append(_pictures(pictures))
            pictures = []
        if chunk:
            chunks.append(chunk)
        if images:
            pictures += images
    if pictures:
        chunks.append(_pictures(pictures))
    return chunks


def _tool(tool: ToolSpec) -> bytes:
    parameters = {key: value for key, value in tool.parameters.items() if key != "$schema"}
    if parameters.get("type") == "object":
        parameters.setdefault("properties", {})
    function = {"name": wire_name(tool.name), "description": tool.description, "parameters": parameters}
    return encode({"type": "function", "function": function})


def _image(image: Image) -> dict[str, object]:
    url = image.url if image.url is not None else f"data:{image.media_type};base64,{image.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _pictures(images: list[bytes]) -> bytes:
    return b'{"role":"user","content":[' + b",".join(images) + b"]}"


def _text(parts: Sequence[Part], *, images: bool) -> str:
    """Return the text of *parts*, empty if it is blank; with *images* a placeholder for each run of images."""
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            pieces.append(part.text)
        elif images and isinstance(part, Image) and pieces[-1:] != [_NO_IMAGE]:
            pieces.append(_NO_IMAGE)
    text = "".join(pieces)
    return text if text.strip() else ""


_NO_IMAGE: Final = "(an image that this model cannot see)"


SETTLE: Final = 2.0
"""Seconds that a stream may take after its finish reason to tell the usage and to end."""

LINGER: Final = 0.05
"""Seconds that a finished stream is read on, so that its connection can be kept."""


async def _listen(reply: Reply, answer: _Answer) -> None:
    decoder = SseDecoder()
    async with aclosing(reply.chunks()) as chunks:
        async for chunk in chunks:
            for event in decoder.feed(chunk):
                answer.hear(event)
            if answer.finished:
                break
        else:
            for event in decoder.close():
                answer.hear(event, last=True)
        if answer.finished:
            await _hear_out(chunks, decoder, answer)


async def _hear_out(chunks: AsyncIterator[bytes], decoder: SseDecoder, answer: _Answer) -> None:
    """Read what comes after the end of the answer: its usage; only an error could still take the answer back."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LINGER if answer.done else SETTLE) as bound:
            async for chunk in chunks:
                for event in decoder.feed(chunk):
                    answer.hear(event)
                if answer.done:
                    bound.reschedule(min(bound.when() or 0.0, loop.time() + LINGER))
            for event in decoder.close():
                answer.hear(event, last=True)
    except TimeoutError:
        pass
    except Exception as error:
        if not is_transport_failure(error):
            raise


class _Words:
    """Text of one kind, as it comes."""

    __slots__ = ("half", "kind", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.half = ""


class _Call:
    """A tool call, as it comes; *told* counts the pieces that watchers have seen."""

    __slots__ = ("id", "name", "pieces", "place", "told")

    def __init__(self, place: int) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.place = place
        self.told = -1

    @property
    def complete(self) -> bool:
        """Whether the arguments so far are a whole object, so that nothing can follow."""
        text = "".join(self.pieces)
        return text.rstrip().endswith("}") and is_object_text(text)


class _Answer:
    """One answer, put together from the events of a stream or from a whole reply."""

    def __init__(self, request: ModelRequest, names: ToolNames, provider: str) -> None:
        self.done = False
        self._finish: str | None = None
        self._turn = request.turn
        self._attempt = request.attempt
        self._on_delta = request.on_delta
        self._names = names
        self._provider = provider
        self._parts: list[_Words | _Call] = []
        self._words: dict[str, _Words] = {}
        self._calls: list[_Call] = []
        self._by_index: dict[int | None, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}
        self._usage: dict[str, object] = {}
        self._model: str | None = None
        self._id: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is all there."""
        return self.done or self._finish is not None

    def hear(self, event: ServerSentEvent, *, last: bool = False) -> None:
        """Take one event of a stream; the *last* one may have been cut."""
        if self.done:
            return
        if event.data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            payload = decode(event.data)
        except ValueError:
            if last and self.finished:  # only its usage can be missing
                return
            if last:
                words = f"{self._provider}: the stream ended in the middle of an event"
                raise ModelError("connection", words, retryable=True) from None
            words = f"{self._provider}: an event of the stream is not JSON"
            raise ModelError("malformed", words, retryable=True) from None
        if isinstance(payload, dict):
            self._take(payload, "delta", event.event)

    def take_whole(self, data: bytes) -> None:
        """Take a reply that was not streamed."""
        try:
            payload = decode(data)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            raise ModelError("malformed", f"{self._provider}: the reply is not a JSON object", retryable=True)
        self._take(payload, "message", "")
        self.done = True

    def _take(self, payload: dict[str, object], key: str, event: str) -> None:
        choices = payload.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index"):  # of several alternatives the first is the answer
            choice = {}
        if payload.get("error") or choice.get("error") or (choices is None and _tells_error(payload, event)):
            raise provider_error(self._provider, choice if choice.get("error") else payload)
        if self._id is None:
            self._id = _string(payload.get("id"))
        if self._model is None:
            self._model = _string(payload.get("model"))
        delta = choice.get(key)
        if isinstance(delta, dict):
            self._take_delta(delta, whole=key == "message")
        if finish := _string(choice.get("finish_reason")):
            if finish in _FAILURES:
                raise ModelError("internal", f"{self._provider} ended the answer with {finish!r}", retryable=True)
            self._finish = finish
        usage = payload.get("usage") or choice.get("usage")
        if isinstance(usage, dict):
            self._usage.update({name: value for name, value in usage.items() if value is not None})
            if self._on_delta is not None:
                self._on_delta(UsageDelta(self._turn, self._attempt, _usage(self._usage)))

    def _take_delta(self, delta: dict[str, object], *, whole: bool) -> None:
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._say("reasoning", thought)
        if content := delta.get("content"):
            self._say("text", content)
        if refusal := delta.get("refusal"):
            self._say("refusal", refusal)
        if calls := delta.get("tool_calls"):
            for piece in calls if isinstance(calls, list) else ():
                if isinstance(piece, dict) and isinstance(function := piece.get("function"), dict):
                    self._take_call(piece, function, whole=whole)

    def _say(self, kind: str, text: object) -> None:
        if isinstance(text, list):  # some servers write content as parts, and thoughts among them
            for part in text:
                if isinstance(part, dict):
                    self._say("reasoning" if "thinking" in part else kind, part.get("thinking") or part.get("text"))
            return
        if not isinstance(text, str) or not text:
            return
        words = self._words.get(kind)
        if words is None:
            words = self._words[kind] = _Words(kind)
            self._parts.append(words)
        if words.half:
            text = words.half + text
            words.half = ""
        if "\ud800" <= text[-1] <= "\udbff":  # the other half of the character comes with the next piece
            words.half = text[-1]
            text = text[:-1]
        text = well_formed(text)
        words.pieces.append(text)
        if self._on_delta is not None and text:
            self._tell(kind, text)

    def _tell(self, kind: str, text: str) -> None:
        assert self._on_delta is not None
        if kind == "text":
            self._on_delta(TextDelta(self._turn, self._attempt, text))
        elif kind == "reasoning":
            self._on_delta(ReasoningDelta(self._turn, self._attempt, text))

    def _take_call(self, piece: dict[str, object], function: dict[str, object], *, whole: bool) -> None:
        id = _string(piece.get("id")) or ""
        name = _string(function.get("name")) or ""
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else encode(arguments).decode()
        index = piece.get("index")
        index = index if isinstance(index, int) else None
        call = None if whole else self._begun(index, id, name, text)
        if call is None:
            call = _Call(len(self._calls))
            self._calls.append(call)
            self._parts.append(call)
        self._by_index[index] = self._by_index[None] = call
        if id:
            self._by_id[index, id] = self._by_id[None, id] = call
        call.id = call.id or id
        if name and name != call.name and not call.pieces:
            call.name += name  # a name in pieces; one that is only repeated is not added
        if text:
            call.pieces.append(text)
        if call.name and call.pieces:
            self._tell_call(call)

    def _begun(self, index: int | None, id: str, name: str, text: str) -> _Call | None:
        """Return the call that a piece goes on with, None if it begins one.

        The index should say it. But some servers leave it out or write 0 for all, some repeat the name or the id in
        each piece, some give each piece another id. So a piece begins a call if its index is new, if it brings a name
        after complete arguments, if it brings another id with a name, or if it has a new name and nothing else to go
        by.
        """
        call = self._by_id.get((index, id)) if id else None
        if call is None:
            call = self._by_index.get(index)
            if call is not None and name and not (name == call.name and call.pieces):
                other_id = id and call.id
                nothing_else = index is None and not id and call.name
                if other_id or nothing_else:
                    return None
        if call is None and id and not name:
            call = self._by_id.get((None, id))
        if call is not None and name and text and call.complete:
            return None
        return call

    def _tell_call(self, call: _Call) -> None:
        told, call.told = max(call.told, 0), len(call.pieces)
        if self._on_delta is not None:
            text = well_formed("".join(call.pieces[told:]))
            self._on_delta(ToolCallDelta(self._turn, self._attempt, call.place, self._names.meant(call.name), text))

    def message(self) -> AssistantMessage:
        """Return the answer. ModelError if it was not finished, or if nothing was said."""
        if not self.finished:
            words = f"{self._provider}: the stream ended before the answer was finished"
            raise ModelError("connection", words, retryable=True)
        if self._finish is None and not self._parts:
            raise ModelError("malformed", f"{self._provider}: the reply holds no answer", retryable=True)
        for call in self._calls:
            if call.told < 0:
                self._tell_call(call)
        parts: list[Part] = []
        ids: set[str] = set()
        for part in self._parts:
            if isinstance(part, _Call):
                parts.append(self._tool_call(part, ids))
            else:
                words = "".join(part.pieces) + well_formed(part.half)
                parts.append(_PARTS[part.kind](words))
        return AssistantMessage(
            parts,
            self._stop_reason(),
            _usage(self._usage),
            model=self._model,
            provider=self._provider,
            response_id=self._id,
            raw_stop_reason=self._finish,
        )

    def _tool_call(self, call: _Call, ids: set[str]) -> ToolCall:
        id = call.id or f"call_{self._turn}_{call.place}"
        if id in ids:
            id = f"{id}_{call.place}"
        ids.add(id)
        return ToolCall(id, self._names.meant(call.name), well_formed("".join(call.pieces)))

    def _stop_reason(self) -> StopReason:
        if self._finish in {"length", "max_tokens", "model_length"}:
            return "length"
        if self._finish == "content_filter":
            return "content_filter"
        if "refusal" in self._words:
            return "refusal"
        # Some say "stop" beside calls, and some say a word of their own: the calls decide.
        return "tool_calls" if self._calls else "stop"


_FAILURES: Final = frozenset({"error", "network_error", "failed"})

_PARTS: Final[dict[str, Callable[[str], Part]]] = {"text": Text, "reasoning": Reasoning, "refusal": Refusal}


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _tells_error(payload: Mapping[str, object], event: str) -> bool:
    return event == "error" or "error" in {payload.get("object"), payload.get("type")}


def _usage(raw: Mapping[str, object]) -> Usage:
    """Return a provider's usage in our terms: cached tokens are no input tokens, reasoning is part of the output."""
    prompt, completion = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    prompt = prompt if isinstance(prompt, dict) else {}
    completion = completion if isinstance(completion, dict) else {}
    read = _count(prompt.get("cached_tokens") or raw.get("cached_tokens") or raw.get("prompt_cache_hit_tokens"))
    written = _count(prompt.get("cache_write_tokens"))
    return Usage(
        input_tokens=max(0, _count(raw.get("prompt_tokens")) - read - written),
        output_tokens=_count(raw.get("completion_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count(completion.get("reasoning_tokens")),
    )


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
