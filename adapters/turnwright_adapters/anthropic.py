"""Anthropic's Messages over HTTP.

Rule: an answer is finished only at `message_stop`, and what Claude thought goes back byte for byte as it was signed
(tests/adapters/test_anthropic.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import httpx
import msgspec

from turnwright.context.history import EARLIER, paired, text_of
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
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from turnwright.ports import ModelRequest, OutputSpec
from turnwright.tools import ToolSpec
from turnwright_adapters._wire import (
    ROOM,
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
    claude_output,
    claude_thinking,
    closed_form,
    count,
    decode,
    encode,
    is_object_text,
    options_of,
    prompted,
    provider_error,
    refuses_sampling,
    result_text,
    shown_in,
    string,
    table,
    tables,
    take_common,
    thinks_always,
    wire_name,
)

__all__ = ["AnthropicModel", "Timeouts"]

VERSION: Final = "2023-06-01"
"""The dialect's version, which every request names."""


class AnthropicModel(HttpModel):
    """A Claude model behind Anthropic's Messages; a model port.

    ::

        model = AnthropicModel("claude-sonnet-4-5", api_key=lambda: os.environ["ANTHROPIC_API_KEY"])
        await run_agent(definition, "Where is my order?", Ports(model=model))

    The key may be a function, also an asynchronous one, that is asked for each request; None sends none. *headers*
    are sent with each request, and a None among them takes one of ours away. With *stream* None a request is streamed
    if somebody watches it. *cache* marks the instruction, the last tool and the newest message for the provider's
    cache: `short` for five minutes, `long` for an hour. *output_mode* says how an output is asked for: `prompted` in
    words, `tool` as the arguments of a tool that only asks for it, `native` by its schema, to which the provider then
    holds the answer. None is `native` for models that are known to have it; a schema without a closed form goes in
    words. The option `max_tokens` is needed by the dialect: without it, it is 8192 and the thinking budget. Thinking
    goes back to the provider whose name is *provider* only. *modalities* is what the model takes in, of `text`,
    `image`, `audio`, `video` and `file`: words stand for what it does not. None is all. Files are PDF or text.
    *thinking* is its effort, or its budget, for each level that it takes.

    One object serves any number of runs at a time, on any number of event loops one after another. A *client* that
    was given is never closed; one of our own closes with its event loop, or by `aclose`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.anthropic.com",
        api_key: ApiKey = None,
        provider: str = "anthropic",
        headers: Mapping[str, str | None] | None = None,
        client: httpx.AsyncClient | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - a frozen value is a safe default
        stream: bool | None = None,
        cache: Literal["none", "short", "long"] = "short",
        output_mode: Literal["native", "prompted", "tool"] | None = None,
        modalities: Iterable[str] | None = None,
        thinking: Thoughts | None = None,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key=api_key,
            provider=provider,
            headers={"anthropic-version": VERSION, **{name.lower(): value for name, value in (headers or {}).items()}},
            client=client,
            timeouts=timeouts,
            stream=stream,
            modalities=modalities,
            thinking=thinking,
        )
        self._url = self._at("/v1/messages")
        self._mark = _MARKS[cache]
        self._output_mode = output_mode
        self._messages: Remembered[Message, _Turn] = Remembered()
        self._tools: Remembered[ToolSpec, bytes] = Remembered()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError."""
        check_choice(request)
        stream = self._streams(request)
        # A tool must be called when one is required: then the output has to wait for another turn.
        by_tool = self._output_mode == "tool" and request.tool_choice in {"auto", "none"}
        output = request.output if by_tool else None
        if output is not None and any(wire_name(tool.name) == wire_name(output.name) for tool in request.tools):
            words = f"a tool has the name of the output, {output.name!r}; give one of them another"
            raise ModelError("invalid_request", words, dispatched=False)
        body = self._body(request, output, stream=stream)
        answer = _Answer(request, ToolNames([tool.name for tool in request.tools]), self.provider, output)
        return await self._ask(request, self._url, body, answer, stream=stream)

    def _credentials(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def _body(self, request: ModelRequest, output: OutputSpec | None, *, stream: bool) -> bytes:
        """Return the request's body; with *output*, a tool asks for it."""
        options = options_of(request, "messages", "stream", "system", "tools")
        common = take_common(options)
        mark = self._mark if common.cache_retention is None else _MARKS[common.cache_retention]
        model = str(options.pop("model", self.model))
        room, own = 0, options.get("max_tokens")
        answer = own if type(own) is int else ROOM  # what the caller allows is for the answer
        thoughts = self._thoughts_of(model)
        if "thinking" not in options and (asked := claude_thinking(model, common, thoughts, answer=answer)):
            if effort := asked.pop("output_config", None):
                options["output_config"] = table(effort) | table(options.get("output_config"))
            options |= asked
            if common.budget:
                room = count(table(asked.get("thinking")).get("budget_tokens")) or common.budget
                options.pop("temperature", None)  # refused while it thinks
        if refuses_sampling(model):
            for name in ("temperature", "top_p", "top_k"):
                options.pop(name, None)
        thinking = table(options.get("thinking"))
        if own is None:
            room = room or count(thinking.get("budget_tokens"))
        if own is None or type(own) is int:
            most = claude_output(model)
            options["max_tokens"] = answer + room if most is None else min(answer + room, max(answer, most))
        if (stop := options.pop("stop", None)) is not None:
            options["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        instruction = [request.instruction] if request.instruction.strip() else []
        if output is not None:
            instruction.append(f"Give your final answer by calling the tool {wire_name(output.name)}.")
        elif request.output is not None and (form := self._form(model, request.output)) is not None:
            options["output_config"] = {"format": form} | table(options.get("output_config"))
        elif request.output is not None:
            instruction.append(prompted(request.output))
        tools = [self._tools.of(tool, _tool) for tool in request.tools]
        if output is not None:
            asks = ToolSpec(output.name, "Give your final answer.", output.schema)
            tools.append(_tool(asks))
        free = thinking.get("type") in {None, "disabled"} and not thinks_always(model)
        choice = _choice(request, output, free=free)
        if options.pop("parallel_tool_calls", None) is False and tools and choice.get("type") != "none":
            choice["disable_parallel_tool_use"] = True
        if tools and choice != {"type": "auto"}:
            options["tool_choice"] = choice
        if stream:
            options["stream"] = True
        members = [encode({"model": model})[1:-1], encode(options, ordered=True)[1:-1]]
        if instruction:
            members.append(b'"system":[' + b",".join(_system("\n\n".join(instruction), request.stable, mark)) + b"]")
        if tools:
            members.append(b'"tools":[' + b",".join([*tools[:-1], _marked(tools[-1], mark)]) + b"]")
        members.append(b'"messages":[' + b",".join(self._turns(request.messages, mark)) + b"]")
        return b"{" + b",".join(members) + b"}"

    def _form(self, model: str, output: OutputSpec) -> msgspec.Raw | None:
        """Return what asks for *output* by its schema, None if it is to be asked for in words."""
        native = self._output_mode == "native" or (self._output_mode is None and _NATIVE.search(model))
        schema = closed_form(output.schema) if native else None
        # Members stay in the order of the schema: it is the order in which they are written.
        return None if schema is None else msgspec.Raw(encode({"type": "json_schema", "schema": schema}))

    def _turns(self, messages: Sequence[Message], mark: bytes = b"") -> list[bytes]:
        """Return the turns that are sent: user and assistant by turns, the user first."""
        turns: list[tuple[str, list[bytes]]] = []

        def add(role: str, blocks: Sequence[bytes]) -> None:
            if blocks and turns and turns[-1][0] == role:
                turns[-1][1].extend(blocks)
            elif blocks:
                turns.append((role, [*blocks]))

        waiting: list[bytes] = []
        for message in paired(messages, apart=True):
            role, blocks, shown = self._messages.of(message, self._encode)
            if waiting and message.role != "tool":
                add("user", waiting)
                waiting = []
            add(role, blocks)
            waiting += shown
        add("user", waiting)
        if not turns or turns[0][0] == "assistant":
            turns.insert(0, ("user", [_text(EARLIER)]))
        last_role, last = turns[-1]
        if last_role == "assistant":
            last[-1] = _without_trailing_space(last[-1])
        last[-1] = _marked(last[-1], mark)
        return [b'{"role":"%b","content":[%b]}' % (role.encode(), b",".join(blocks)) for role, blocks in turns]

    def _encode(self, message: Message) -> _Turn:
        match self._fitted(message):
            case None:
                return message.role, (), ()
            case UserMessage() as message:
                return "user", tuple(_blocks(message.parts)), ()
            case ToolMessage() as message:
                shown = shown_in(message.parts)
                content: object = result_text(message.parts)
                if shown and not message.is_error:
                    content = [msgspec.Raw(block) for block in _blocks(message.parts)]
                result = {"type": "tool_result", "tool_use_id": call_id(message.call_id, _PLAIN_ID), "content": content}
                if message.is_error:  # an error is told in text alone
                    return "user", (encode({**result, "is_error": True}),), tuple(_blocks(shown))
                return "user", (encode(result),), ()
            case AssistantMessage() as message:
                return "assistant", tuple(self._answer_blocks(message)), ()

    def _takes(self, shown: Image | File) -> bool:
        """Say so also of what the dialect has a word for: PDF, and text that need not be fetched."""
        if isinstance(shown, File) and shown.media_type != "application/pdf":
            stored = shown.id is not None and shown.media_type.startswith("text/")
            if not stored and not (text_of(shown) or "").strip():
                return False
        return super()._takes(shown)

    @staticmethod
    def _answer_blocks(message: AssistantMessage) -> list[bytes]:
        """Return the blocks of an answer, none if there is nothing in it but thoughts."""
        blocks: list[bytes] = []
        worth = 0
        for part in message.parts:
            match part:
                case Text() | Refusal() if part.text.strip():
                    blocks.append(_text(part.text))
                case ToolCall():
                    arguments = msgspec.Raw(as_object_text(part.arguments).encode())
                    id = call_id(part.id, _PLAIN_ID)
                    blocks.append(
                        encode({"type": "tool_use", "id": id, "name": wire_name(part.name), "input": arguments})
                    )
                case Reasoning() if part.signature:
                    blocks.append(_thought(part))
                    continue
                case _:
                    continue
            worth = len(blocks)  # no message may end with a thought
        return blocks[:worth]


_Turn: TypeAlias = tuple[str, tuple[bytes, ...], tuple[bytes, ...]]
"""A message's role, its blocks in JSON, and those that follow once all results of its batch are there."""

_MARKS: Final = {
    "none": b"",
    "short": b',"cache_control":{"type":"ephemeral"}',
    "long": b',"cache_control":{"type":"ephemeral","ttl":"1h"}',
}

_NATIVE: Final = re.compile(r"claude-(?:opus-4-1|fable|mythos|[a-z]+-(?:4-[5-9]|[5-9]|\d\d))(?!\d)")
"""The models that are known to hold an answer to a schema."""

_PLAIN_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _marked(block: bytes, mark: bytes) -> bytes:
    return block[:-1] + mark + b"}"


def _system(instruction: str, stable: int | None, mark: bytes) -> list[bytes]:
    """Return the blocks of the instruction; what is *stable* of it is marked, and the rest is a block of its own."""
    kept, rest = instruction[:stable], "" if stable is None else instruction[stable:].lstrip("\n")
    return [_marked(_text(kept), mark), *([_text(rest)] if rest.strip() else [])] if kept.strip() else [_text(rest)]


def _choice(request: ModelRequest, output: OutputSpec | None, *, free: bool) -> dict[str, object]:
    """Return the tool choice. While it thinks, the model is *free* of nothing but its own choice."""
    if output is not None and free:
        forced = not request.tools or request.tool_choice == "none"
        return {"type": "tool", "name": wire_name(output.name)} if forced else {"type": "any"}
    match request.tool_choice:
        case "auto" | "none" if output is not None:
            return {"type": "auto"}
        case "auto" | "none":
            return {"type": request.tool_choice}
        case "required":
            return {"type": "any"}
        case name:
            return {"type": "tool", "name": wire_name(name)}


def _tool(tool: ToolSpec) -> bytes:
    schema = {"type": "object", **{key: value for key, value in tool.parameters.items() if key != "$schema"}}
    return encode({"name": wire_name(tool.name), "description": tool.description, "input_schema": schema})


def _blocks(parts: Sequence[Part]) -> list[bytes]:
    blocks: list[bytes] = []
    for part in parts:
        match part:
            case Text() if part.text.strip():
                blocks.append(_text(part.text))
            case Image():
                source = (
                    {"type": "url", "url": part.url}
                    if part.url is not None
                    else {"type": "base64", "media_type": part.media_type, "data": part.data}
                )
                blocks.append(encode({"type": "image", "source": source}))
            case File():
                title = {"title": part.name} if part.name else {}
                blocks.append(encode({"type": "document", "source": _document(part), **title}))
            case _:
                pass
    return blocks


def _document(file: File) -> dict[str, object]:
    """Return where *file* is, or what it says. Files at the provider need no beta header since August 2026.

    Source: https://platform.claude.com/docs/en/build-with-claude/files, and the types of the SDK.
    """
    if file.id is not None:
        return {"type": "file", "file_id": file.id}
    if file.url is not None:
        return {"type": "url", "url": file.url}
    if (text := text_of(file)) is not None:
        return {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "base64", "media_type": file.media_type, "data": file.data}


def _text(text: str) -> bytes:
    return encode({"type": "text", "text": text})


def _thought(part: Reasoning) -> bytes:
    if part.redacted:
        return encode({"type": "redacted_thinking", "data": part.signature})
    return encode({"type": "thinking", "thinking": part.text, "signature": part.signature})


def _without_trailing_space(block: bytes) -> bytes:
    text = string(table(decode(block)).get("text"))
    return block if text is None else _text(text.rstrip())


class _Answer(Answer):
    """One answer of this dialect."""

    def __init__(self, request: ModelRequest, names: ToolNames, provider: str, output: OutputSpec | None) -> None:
        super().__init__(request, names, provider)
        self._output_name = None if output is None else wire_name(output.name)
        self._output: Words | None = None
        self._blocks: dict[int, Words | Call] = {}

    @property
    def finished(self) -> bool:
        """Whether the provider said so: the stop reason alone does not."""
        return self.done

    def _take_event(self, payload: dict[str, object], event: str) -> None:
        index = count(payload.get("index"))
        match payload.get("type") or event:
            case "content_block_delta":
                self._go_on(index, table(payload.get("delta")))
            case "content_block_start":
                self._start(index, table(payload.get("content_block")))
            case "message_start":
                self._take_head(table(payload.get("message")))
            case "message_delta":
                self._take_end(table(payload.get("delta")), payload.get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise provider_error(self._provider, payload)
            case _:
                pass

    def _take_reply(self, payload: dict[str, object]) -> None:
        if payload.get("error") or payload.get("type") == "error":
            raise provider_error(self._provider, payload)
        for index, block in enumerate(tables(payload.get("content"))):
            self._start(index, block)
        self._take_end(payload, None)
        self._take_head(payload)

    def _take_head(self, message: dict[str, object]) -> None:
        self._id = string(message.get("id")) or self._id
        self._model = string(message.get("model")) or self._model
        self._take_usage(message.get("usage"))

    def _take_end(self, delta: dict[str, object], usage: object) -> None:
        self._finish = string(delta.get("stop_reason")) or self._finish
        if why := string(table(delta.get("stop_details")).get("explanation")):
            self._say(self._begin("refusal"), why)
        self._take_usage(usage)

    def _start(self, index: int, block: dict[str, object]) -> None:
        match block.get("type"):
            case "text":
                self._start_words(index, "text", block.get("text"))
            case "thinking":
                words = self._start_words(index, "reasoning", block.get("thinking"))
                words.signature = string(block.get("signature")) or ""
            case "redacted_thinking":
                words = self._start_words(index, "reasoning", None)
                words.signature = string(block.get("data")) or ""
                words.redacted = True
            case "tool_use":
                self._start_call(index, block)
            case _:
                pass

    def _start_words(self, index: int, kind: Kind, text: object) -> Words:
        words = self._blocks[index] = self._begin(kind)
        if isinstance(text, str) and text:
            self._say(words, text)
        return words

    def _start_call(self, index: int, block: dict[str, object]) -> None:
        name, given = string(block.get("name")) or "", block.get("input")
        arguments = encode(given).decode() if given else ""
        if name == self._output_name:
            self._output = self._start_words(index, "text", arguments)
            return
        call = self._blocks[index] = self._begin_call()
        call.id = string(block.get("id")) or ""
        call.name = name
        if arguments:
            call.pieces.append(arguments)
            self._tell_call(call)

    def _go_on(self, index: int, delta: dict[str, object]) -> None:
        block = self._blocks.get(index)
        match delta.get("type"):
            case "text_delta":
                self._go_on_saying(index, block, "text", delta.get("text"))
            case "thinking_delta":
                self._go_on_saying(index, block, "reasoning", delta.get("thinking"))
            case "signature_delta" if isinstance(block, Words):
                block.signature = string(delta.get("signature")) or block.signature
            case "input_json_delta" if isinstance(piece := delta.get("partial_json"), str) and piece:
                if isinstance(block, Call):
                    block.pieces.append(piece)
                    self._tell_call(block)
                elif block is not None and block is self._output:
                    self._say(block, piece)
            case _:
                pass

    def _go_on_saying(self, index: int, block: Words | Call | None, kind: Kind, text: object) -> None:
        if not isinstance(block, Words):
            self._start_words(index, kind, text)
        elif isinstance(text, str) and text:
            self._say(block, text)

    def message(self) -> AssistantMessage:
        """Return the answer. Arguments are written in one way, streamed or not."""
        for call in self._calls:
            call.pieces = [_arguments("".join(call.pieces))]
        if self._output is not None:
            self._output.pieces = [_arguments(self._output.text)]
            self._output.half = ""
            if not self._calls:  # the answer is what the tool was given, not what was said before it
                keep = self._output
                self._parts = [
                    part for part in self._parts if part is keep or (isinstance(part, Words) and part.kind != "text")
                ]
        return super().message()

    def _stop_reason(self) -> StopReason:
        match self._finish:
            case "max_tokens" | "model_context_window_exceeded":
                return "length"
            case "refusal":
                return "refusal"
            case _:
                return "tool_calls" if self._calls else "stop"

    def _counted(self, raw: Mapping[str, object]) -> Usage:
        """Input tokens are those without the cached ones already."""
        return Usage(
            input_tokens=count(raw.get("input_tokens")),
            output_tokens=count(raw.get("output_tokens")),
            cache_read_tokens=count(raw.get("cache_read_input_tokens")),
            cache_write_tokens=count(raw.get("cache_creation_input_tokens")),
            reasoning_tokens=count(table(raw.get("output_tokens_details")).get("thinking_tokens")),
        )


def _arguments(raw: str) -> str:
    """Return an object's text as `encode` writes it, no arguments as none, and other text as it is."""
    if not raw.strip():
        return "{}"
    return encode(decode(raw.encode())).decode() if is_object_text(raw) else raw
