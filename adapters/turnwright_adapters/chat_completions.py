"""OpenAI's Chat Completions dialect over HTTP, as OpenAI and many other servers speak it.

Rule: an answer is finished only when the provider says so, by a finish reason or by `[DONE]`; every other end of a
stream is a ModelError. Streamed or not, in whatever pieces, one reply gives one message
(tests/adapters/test_chat_completions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import httpx
import msgspec
from attrs import frozen

from turnwright.context.history import paired, text_of
from turnwright.errors import ModelError
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
    ToolMessage,
    Usage,
    UserMessage,
)
from turnwright.ports import ModelRequest
from turnwright.tools import ToolSpec
from turnwright_adapters._constrained import constrain, shown
from turnwright_adapters._wire import (
    Answer,
    ApiKey,
    Call,
    HttpModel,
    Kind,
    Remembered,
    Thoughts,
    Timeouts,
    ToolNames,
    Words,
    as_object_text,
    call_id,
    check_choice,
    count,
    data_url,
    encode,
    file_name,
    openai_cache,
    openai_effort,
    options_of,
    plain_text,
    prompted,
    provider_error,
    result_text,
    shown_in,
    string,
    table,
    take_common,
    wire_name,
)

__all__ = ["OPENAI", "ChatCompletionsModel", "Compat", "Timeouts"]


@frozen
class Compat:
    """What a server makes of the dialect. The defaults are what most servers understand.

    *max_tokens* is the name on the wire of the option `max_tokens`. *reasoning* is the field in which an assistant's
    reasoning is sent back (`reasoning_content` for DeepSeek's thinking mode), None to send none. *output* says when
    the server takes a JSON Schema for its answer; when it does not, the schema is put into the instruction. *files* are
    the media types of the files that it takes, None for all: words stand for others, and for files that hold text
    their text does, which every server takes. *cache_key* says whether the server's cache goes by a key.
    """

    system_role: Literal["system", "developer"] = "system"
    max_tokens: str = "max_tokens"
    stream_usage: bool = True
    reasoning: str | None = None
    output: Literal["always", "without_tools", "never"] = "always"
    strict_output: bool = False
    files: Collection[str] | None = None
    cache_key: bool = False


OPENAI: Final = Compat(max_tokens="max_completion_tokens", files=("application/pdf",), cache_key=True)


class ChatCompletionsModel(HttpModel):
    """A model behind a server that speaks OpenAI's Chat Completions; a model port.

    ::

        model = ChatCompletionsModel("gpt-4.1-mini", api_key=lambda: os.environ["OPENAI_API_KEY"])
        await run_agent(definition, "Where is my order?", Ports(model=model))

    The key may be a function, also an asynchronous one, that is asked for each request; None sends none. *headers*
    are sent with each request, and a None among them takes one of ours away. With *stream* None a request is streamed
    if somebody watches it. *compat* None is `OPENAI` for OpenAI's own host and `Compat()` for others. *tool_mode*
    `constrained` is for small models that have no dependable tool calls of their own: the tools are described in the
    instruction and the reply is held to the JSON of one call or of the answer. *modalities* is what the model takes
    in, of `text`, `image`, `audio`, `video` and `file`: words stand for what it does not. None is all.
    *thinking* is its effort for each level that it takes.

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
        modalities: Iterable[str] | None = None,
        thinking: Thoughts | None = None,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            provider=provider,
            headers=headers or {},
            client=client,
            timeouts=timeouts,
            stream=stream,
            modalities=modalities,
            thinking=thinking,
        )
        self.tool_mode = tool_mode
        self._url = self._at("/chat/completions")
        self._compat = compat or (OPENAI if self._base.host.lower() == "api.openai.com" else Compat())
        self._native: Remembered[Message, _Encoded] = Remembered()
        self._shown: Remembered[Message, _Encoded] = Remembered()
        self._tools: Remembered[ToolSpec, bytes] = Remembered()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError."""
        check_choice(request)
        if self.tool_mode == "native" or not request.tools:
            return await self._complete(request, self._encoded)
        constrained = constrain(request)
        return constrained.reply(await self._complete(constrained.request, self._encoded_as_shown))

    async def _complete(self, request: ModelRequest, encoded: _Encoder) -> AssistantMessage:
        stream = self._streams(request)
        body = self._body(request, encoded, stream=stream)
        answer = _Answer(request, ToolNames([tool.name for tool in request.tools]), self.provider)
        return await self._ask(request, self._url, body, answer, stream=stream)

    def _body(self, request: ModelRequest, encoded: _Encoder, *, stream: bool) -> bytes:
        """Return the request's body. Equal requests give equal bytes, and what is not asked for leaves none."""
        compat = self._compat
        options = options_of(request, "messages", "stream", "tools")
        common = take_common(options)
        model = options.pop("model", self.model)
        if (effort := openai_effort(str(model), common, self._thoughts_of(model))) is not None:
            options.setdefault("reasoning_effort", effort)
        if compat.cache_key:
            openai_cache(str(model), common, options, longest="30m")
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
                instruction.append(prompted(request.output))
        messages = _joined(encoded, request.messages)
        if instruction:
            messages.insert(0, encode({"role": compat.system_role, "content": "\n\n".join(instruction)}))
        members = [encode({"model": model})[1:-1]]
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
        match self._fitted(message):
            case None:
                return b"", ()
            case UserMessage() as message:
                return encode({"role": "user", "content": _content(message.parts)}), ()
            case ToolMessage() as message:
                id = call_id(message.call_id)
                wire = {"role": "tool", "tool_call_id": id, "content": result_text(message.parts)}
                return encode(wire), tuple([encode(_shown(part)) for part in shown_in(message.parts)])
            case AssistantMessage() as message:
                return self._encode_answer(message), ()

    def _takes(self, shown: Image | File) -> bool:
        """Say so also of what the dialect has a word for: a file by its address is none, and text is said as text."""
        if isinstance(shown, File):
            kinds = self._compat.files
            if shown.url is not None or text_of(shown) is not None or not (kinds is None or shown.media_type in kinds):
                return False
        return super()._takes(shown)

    def _encode_answer(self, message: AssistantMessage) -> bytes:
        """Return an assistant's message."""
        text = "".join([part.text for part in message.parts if isinstance(part, _SAID)])
        calls = message.calls
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


_SAID: Final = (Text, Refusal)

_Encoded: TypeAlias = tuple[bytes, tuple[bytes, ...]]
"""A message's JSON, and that of the images and files that follow once all results of its batch are there."""


_Encoder: TypeAlias = Callable[[Message], _Encoded]


def _joined(encoded: _Encoder, messages: Sequence[Message]) -> list[bytes]:
    """Return the JSON of each message that is sent; *encoded* makes it once, however many requests it is in."""
    chunks: list[bytes] = []
    waiting: list[bytes] = []
    for message in paired(messages):
        chunk, shown = encoded(message)
        if waiting and type(message) is not ToolMessage:
            chunks.append(_showing(waiting))
            waiting = []
        if chunk:
            chunks.append(chunk)
        if shown:
            waiting += shown
    if waiting:
        chunks.append(_showing(waiting))
    return chunks


def _tool(tool: ToolSpec) -> bytes:
    parameters = {key: value for key, value in tool.parameters.items() if key != "$schema"}
    if parameters.get("type") == "object":
        parameters.setdefault("properties", {})
    function = {"name": wire_name(tool.name), "description": tool.description, "parameters": parameters}
    return encode({"type": "function", "function": function})


def _content(parts: Sequence[Part]) -> str | list[object]:
    """Return the content of *parts*, a string unless there are images or files in it."""
    if not shown_in(parts):
        return plain_text(parts)
    content: list[object] = []
    for part in parts:
        match part:
            case Text() if part.text.strip():
                content.append({"type": "text", "text": part.text})
            case Image() | File():
                content.append(_shown(part))
            case _:
                pass
    return content


def _shown(part: Image | File) -> dict[str, object]:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": data_url(part) if part.url is None else part.url}}
    if part.id is not None:
        return {"type": "file", "file": {"file_id": part.id}}
    return {"type": "file", "file": {"filename": file_name(part), "file_data": data_url(part)}}


def _showing(parts: list[bytes]) -> bytes:
    return b'{"role":"user","content":[' + b",".join(parts) + b"]}"


class _Answer(Answer):
    """One answer of this dialect."""

    _ends_with_marker = True

    def __init__(self, request: ModelRequest, names: ToolNames, provider: str) -> None:
        super().__init__(request, names, provider)
        self._words: dict[str, Words] = {}
        self._by_index: dict[int | None, Call] = {}
        self._by_id: dict[tuple[int | None, str], Call] = {}

    def _take_event(self, payload: dict[str, object], event: str) -> None:
        self._take(payload, "delta", event)

    def _take_reply(self, payload: dict[str, object]) -> None:
        self._take(payload, "message", "")

    def _take(self, payload: dict[str, object], key: str, event: str) -> None:
        choices = payload.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index"):  # of several alternatives the first is the answer
            choice = {}
        if payload.get("error") or choice.get("error") or (choices is None and _tells_error(payload, event)):
            raise provider_error(self._provider, choice if choice.get("error") else payload)
        if self._id is None:
            self._id = string(payload.get("id"))
        if self._model is None:
            self._model = string(payload.get("model"))
        delta = choice.get(key)
        if isinstance(delta, dict):
            self._take_delta(delta, whole=key == "message")
        if finish := string(choice.get("finish_reason")):
            if finish in _FAILURES:
                raise ModelError("internal", f"{self._provider} ended the answer with {finish!r}", retryable=True)
            self._finish = finish
        if usage := payload.get("usage") or choice.get("usage"):
            self._take_usage(usage)

    def _take_delta(self, delta: dict[str, object], *, whole: bool) -> None:
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._take_words("reasoning", thought)
        if content := delta.get("content"):
            self._take_words("text", content)
        if refusal := delta.get("refusal"):
            self._take_words("refusal", refusal)
        if calls := delta.get("tool_calls"):
            for piece in calls if isinstance(calls, list) else ():
                if isinstance(piece, dict) and isinstance(function := piece.get("function"), dict):
                    self._take_call(piece, function, whole=whole)

    def _take_words(self, kind: Kind, text: object) -> None:
        if isinstance(text, list):  # some servers write content as parts, and thoughts among them
            for part in text:
                if isinstance(part, dict):
                    inner: Kind = "reasoning" if "thinking" in part else kind
                    self._take_words(inner, part.get("thinking") or part.get("text"))
            return
        if not isinstance(text, str) or not text:
            return
        words = self._words.get(kind)
        if words is None:
            words = self._words[kind] = self._begin(kind)
        self._say(words, text)

    def _take_call(self, piece: dict[str, object], function: dict[str, object], *, whole: bool) -> None:
        id = string(piece.get("id")) or ""
        name = string(function.get("name")) or ""
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else encode(arguments).decode()
        index = piece.get("index")
        index = index if isinstance(index, int) else None
        call = None if whole else self._begun(index, id, name, text)
        if call is None:
            call = self._begin_call()
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

    def _begun(self, index: int | None, id: str, name: str, text: str) -> Call | None:
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

    def _stop_reason(self) -> StopReason:
        if self._finish in {"length", "max_tokens", "model_length"}:
            return "length"
        if self._finish == "content_filter":
            return "content_filter"
        if "refusal" in self._words:
            return "refusal"
        # Some say "stop" beside calls, and some say a word of their own: the calls decide.
        return "tool_calls" if self._calls else "stop"

    def _counted(self, raw: Mapping[str, object]) -> Usage:
        """Cached tokens are no input tokens, reasoning is part of the output."""
        prompt, completion = table(raw.get("prompt_tokens_details")), table(raw.get("completion_tokens_details"))
        read = count(prompt.get("cached_tokens") or raw.get("cached_tokens") or raw.get("prompt_cache_hit_tokens"))
        written = count(prompt.get("cache_write_tokens"))
        return Usage(
            input_tokens=max(0, count(raw.get("prompt_tokens")) - read - written),
            output_tokens=count(raw.get("completion_tokens")),
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=count(completion.get("reasoning_tokens")),
        )


_FAILURES: Final = frozenset({"error", "network_error", "failed"})


def _tells_error(payload: Mapping[str, object], event: str) -> bool:
    return event == "error" or "error" in (payload.get("object"), payload.get("type"))
