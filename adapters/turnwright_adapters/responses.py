"""OpenAI's Responses over HTTP, with nothing stored at the provider.

Rule: an answer is finished only when its status says so, and reasoning goes back encrypted, never alone and never empty
(tests/adapters/test_responses.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import httpx
import msgspec

from turnwright.context.history import EMPTY_MESSAGE, paired
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
from turnwright.ports import ModelRequest
from turnwright.tools import ToolSpec
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
    is_object_text,
    openai_cache,
    openai_effort,
    options_of,
    plain_text,
    provider_error,
    shown_in,
    string,
    table,
    tables,
    take_common,
    wire_name,
)

__all__ = ["ResponsesModel", "Timeouts"]


class ResponsesModel(HttpModel):
    """A model behind OpenAI's Responses; a model port.

    ::

        model = ResponsesModel("gpt-5-mini", api_key=lambda: os.environ["OPENAI_API_KEY"])
        await run_agent(definition, "Where is my order?", Ports(model=model))

    The key may be a function, also an asynchronous one, that is asked for each request; None sends none. *headers*
    are sent with each request, and a None among them takes one of ours away. With *stream* None a request is streamed
    if somebody watches it. *reasoning* says whether the model's reasoning is asked for in encrypted form, so that it
    can go back; models that do not reason refuse to be asked. None goes by the option `reasoning` and by the names of
    OpenAI's models. *strict_output* has the provider hold the answer to the schema, of which it takes a part only.
    Reasoning goes back to the provider whose name is *provider* only. *modalities* is what the model takes in, of
    `text`, `image`, `audio`, `video` and `file`: words stand for what it does not. None is all.
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
        provider: str = "openai-responses",
        headers: Mapping[str, str | None] | None = None,
        client: httpx.AsyncClient | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - a frozen value is a safe default
        stream: bool | None = None,
        reasoning: bool | None = None,
        strict_output: bool = False,
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
        self._url = self._at("/responses")
        self._reasoning = reasoning
        self._strict_output = strict_output
        self._messages: Remembered[Message, tuple[bytes, ...]] = Remembered()
        self._tools: Remembered[ToolSpec, bytes] = Remembered()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError."""
        check_choice(request)
        stream = self._streams(request)
        body = self._body(request, stream=stream)
        answer = _Answer(request, ToolNames([tool.name for tool in request.tools]), self.provider)
        return await self._ask(request, self._url, body, answer, stream=stream)

    def _body(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the request's body. What is not asked for leaves no trace."""
        options = options_of(request, "input", "instructions", "store", "stream", "tools")
        common = take_common(options)
        model = options.pop("model", self.model)
        if (effort := openai_effort(str(model), common, self._thoughts_of(model))) is not None:
            options.setdefault("reasoning", {"effort": effort} | ({} if effort == "none" else {"summary": "auto"}))
        openai_cache(str(model), common, options, longest="12h")
        if "max_tokens" in options:
            options["max_output_tokens"] = options.pop("max_tokens")
        if self._asks_reasoning(str(model), options):
            options.setdefault("include", ["reasoning.encrypted_content"])
        if not request.tools:
            options.pop("tool_choice", None)
            options.pop("parallel_tool_calls", None)
        elif request.tool_choice in {"none", "required"}:
            options["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            options["tool_choice"] = {"type": "function", "name": wire_name(request.tool_choice)}
        text = table(options.pop("text", None))
        if request.output is not None:
            shape = {"name": wire_name(request.output.name), "schema": request.output.schema}
            # Members stay in the order of the schema: it is the order in which they are written.
            form = encode({"type": "json_schema", **shape, "strict": self._strict_output})
            text = {**text, "format": msgspec.Raw(form)}
        if text:
            options["text"] = text
        if stream:
            options["stream"] = True
        members: dict[str, object] = {"model": model, "store": False, **dict(sorted(options.items()))}
        if request.instruction.strip():
            members["instructions"] = request.instruction
        if request.tools:
            members["tools"] = [msgspec.Raw(self._tools.of(tool, _tool)) for tool in request.tools]
        members["input"] = [msgspec.Raw(item) for item in self._items(request.messages)]
        return encode(members)

    def _asks_reasoning(self, model: str, options: Mapping[str, object]) -> bool:
        if self._reasoning is not None:
            return self._reasoning
        return "reasoning" in options or _REASONS.match(model) is not None

    def _items(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the items that are sent of a history."""
        items = [item for message in paired(messages, apart=True) for item in self._messages.of(message, self._encode)]
        return items or [_says("user", EMPTY_MESSAGE)]

    def _encode(self, message: Message) -> tuple[bytes, ...]:
        match self._fitted(message):
            case None:
                return ()
            case UserMessage() as message:
                return (_says("user", _content(message.parts)),)
            case ToolMessage() as message:
                output = _content(message.parts)
                result = {"type": "function_call_output", "call_id": call_id(message.call_id), "output": output}
                return (encode(result),)
            case AssistantMessage() as message:
                return tuple(self._answer_items(message))

    @staticmethod
    def _answer_items(message: AssistantMessage) -> list[bytes]:
        """Return the items of an answer, without states, and without ids that need not be there."""
        items: list[bytes] = []
        thoughts: list[bytes] = []
        for part in message.parts:
            match part:
                case Text() | Refusal() if part.text.strip():
                    item = _says("assistant", part.text)
                case ToolCall():
                    call = {"type": "function_call", "call_id": call_id(part.id), "name": wire_name(part.name)}
                    item = encode({**call, "arguments": as_object_text(part.arguments)})
                case Reasoning() if part.signature:
                    thoughts.append(_thought(part))
                    continue
                case _:
                    continue
            items += [*thoughts, item]  # a thought that nothing follows is refused
            thoughts = []
        return items


_REASONS: Final = re.compile(r"(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat)|codex)")


def _tool(tool: ToolSpec) -> bytes:
    parameters = {key: value for key, value in tool.parameters.items() if key != "$schema"}
    if parameters.get("type") == "object":
        parameters.setdefault("properties", {})
    function = {"name": wire_name(tool.name), "description": tool.description, "parameters": parameters}
    return encode({"type": "function", **function, "strict": False})  # the default is to rewrite the schema


def _says(role: str, content: object) -> bytes:
    return encode({"role": role, "content": content})


def _thought(part: Reasoning) -> bytes:
    id, _, sealed = (part.signature or "").rpartition(" ")
    summary = [{"type": "summary_text", "text": part.text}] if part.text else []
    named = {"id": id} if id else {}
    return encode({"type": "reasoning", **named, "summary": summary, "encrypted_content": sealed})


def _content(parts: Sequence[Part]) -> str | list[object]:
    """Return the content of *parts*, a string unless there are images or files in it, empty if it says nothing."""
    if not shown_in(parts):
        return plain_text(parts)
    content: list[object] = []
    for part in parts:
        match part:
            case Text() if part.text.strip():
                content.append({"type": "input_text", "text": part.text})
            case Image():
                url = data_url(part) if part.url is None else part.url
                content.append({"type": "input_image", "image_url": url, "detail": "auto"})
            case File():
                content.append({"type": "input_file", **_source(part)})
            case _:
                pass
    return content


def _source(file: File) -> dict[str, object]:
    """Return where *file* is. Its name goes with its data, and is refused beside an address or an id."""
    if file.id is not None:
        return {"file_id": file.id}
    if file.url is not None:
        return {"file_url": file.url}
    return {"filename": file_name(file), "file_data": data_url(file)}


class _Item:
    """What is known of one item of the output, as it comes; *said* by what it is and its place in the item."""

    __slots__ = ("call", "id", "index", "said", "words")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.call: Call | None = None
        self.words: dict[tuple[Kind, int], Words] = {}
        self.said: dict[tuple[str, int], list[str]] = {}


class _Answer(Answer):
    """One answer of this dialect.

    An item is told of up to four times: when it begins, in pieces, when it ends, and at the end of all. What is told
    later adds what was missing, and takes nothing back.
    """

    def __init__(self, request: ModelRequest, names: ToolNames, provider: str) -> None:
        super().__init__(request, names, provider)
        self._items: dict[int, _Item] = {}
        self._places: dict[Words | Call, int] = {}

    def _take_event(self, payload: dict[str, object], event: str) -> None:
        match kind := payload.get("type") or event:
            case "response.output_text.delta":
                self._say_more(payload, "text", "content_index")
            case "response.refusal.delta":
                self._say_more(payload, "refusal", "content_index")
            case "response.reasoning_summary_text.delta":
                self._say_more(payload, "summary", "summary_index")
            case "response.reasoning_text.delta":
                self._say_more(payload, "thought", "content_index")
            case "response.function_call_arguments.delta":
                self._add_arguments(self._call(self._item(payload)), payload.get("delta"))
            case "response.function_call_arguments.done":
                self._settle_arguments(self._call(self._item(payload)), payload.get("arguments"))
            case "response.output_item.added" | "response.output_item.done":
                told = table(payload.get("item"))
                self._take_item(self._item({**payload, "item_id": told.get("id")}), told)
            case "response.created" | "response.in_progress" | "response.queued":
                self._take_head(table(payload.get("response")))
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._take_response(table(payload.get("response")), str(kind).partition(".")[2])
                self.done = True
            case "error":
                raise provider_error(self._provider, payload)
            case _:
                pass

    def _take_reply(self, payload: dict[str, object]) -> None:
        self._take_response(payload, string(payload.get("status")) or "")

    def _take_head(self, response: dict[str, object]) -> None:
        self._id = self._id or string(response.get("id"))
        self._model = self._model or string(response.get("model"))

    def _take_response(self, response: dict[str, object], status: str) -> None:
        self._take_head(response)
        self._take_usage(response.get("usage"))
        if response.get("error"):
            raise provider_error(self._provider, response)
        if status not in {"completed", "incomplete"}:
            words = f"{self._provider}: the answer is not finished, its status is {status!r:.40}"
            raise ModelError("internal" if status in {"failed", "cancelled"} else "malformed", words, retryable=True)
        for index, told in enumerate(tables(response.get("output"))):
            self._take_item(self._item({"output_index": index, "item_id": told.get("id")}), told)
        reason = string(table(response.get("incomplete_details")).get("reason"))
        self._finish = reason if reason and status == "incomplete" else status

    def _item(self, event: Mapping[str, object]) -> _Item:
        """Return the item that *event* is about: by its id if that is known, else by its place."""
        index, id = event.get("output_index"), string(event.get("item_id"))
        if id:
            for item in self._items.values():
                if item.id == id:
                    return item
        if not isinstance(index, int):
            index = len(self._items) if id or not self._items else max(self._items)
        item = self._items.setdefault(index, _Item(index))
        item.id = item.id or id
        return item

    def _take_item(self, item: _Item, told: dict[str, object]) -> None:
        match told.get("type"):
            case "function_call":
                call = self._call(item)
                call.id = string(told.get("call_id")) or string(told.get("id")) or call.id
                call.name = string(told.get("name")) or call.name
                self._settle_arguments(call, told.get("arguments"))
            case "message":
                for index, content in enumerate(tables(told.get("content"))):
                    kind = "refusal" if content.get("type") == "refusal" else "text"
                    self._settle(item, kind, index, content.get(kind))
            case "reasoning":
                for index, summary in enumerate(tables(told.get("summary"))):
                    self._settle(item, "summary", index, summary.get("text"))
                for index, thought in enumerate(tables(told.get("content"))):
                    self._settle(item, "thought", index, thought.get("text"))
                if sealed := string(told.get("encrypted_content")):
                    # The dialect wants an item's id with its seal; a made-up one means nothing to it.
                    known = item.id is not None and item.id.startswith("rs_")
                    self._words(item, "reasoning", 0).signature = f"{item.id} {sealed}" if known else sealed
            case _:
                pass

    def _say_more(self, event: Mapping[str, object], what: str, index: str) -> None:
        self._add(self._item(event), what, count(event.get(index)), event.get("delta"))

    def _settle(self, item: _Item, what: str, index: int, whole: object) -> None:
        """Say what is missing of *whole*."""
        if isinstance(whole, str):
            said = "".join(item.said.get((what, index), ()))
            self._add(item, what, index, whole[len(said) :] if whole.startswith(said) else "")

    def _add(self, item: _Item, what: str, index: int, text: object) -> None:
        if not isinstance(text, str) or not text:
            return
        kind = _KINDS[what]
        words = self._words(item, kind, 0 if kind == "reasoning" else index)
        key = (what, index)
        said = item.said.get(key)
        if said is None:
            said = item.said[key] = []
            if kind == "reasoning" and words.pieces:
                self._say(words, "\n\n")  # an item of reasoning is one thought, in some paragraphs
        said.append(text)
        self._say(words, text)

    def _words(self, item: _Item, kind: Kind, index: int) -> Words:
        if (kind, index) not in item.words:
            item.words[kind, index] = words = self._begin(kind)
            self._places[words] = item.index
        return item.words[kind, index]

    def _call(self, item: _Item) -> Call:
        if item.call is None:
            item.call = self._begin_call()
            self._places[item.call] = item.index
        return item.call

    def _add_arguments(self, call: Call, piece: object) -> None:
        if isinstance(piece, str) and piece:
            call.pieces.append(piece)
        if call.name and call.pieces:
            self._tell_call(call)

    def _settle_arguments(self, call: Call, whole: object) -> None:
        """Add what is missing of *whole*; it replaces only what is no object. Some say `{}` in the end of any call."""
        if not isinstance(whole, str):
            return
        known = "".join(call.pieces)
        if whole.startswith(known):
            self._add_arguments(call, whole[len(known) :])
        elif not call.complete and is_object_text(whole) and whole != "{}":
            call.pieces = [whole]

    def message(self) -> AssistantMessage:
        """Return the answer, its items in the order in which they belong."""
        self._parts.sort(key=self._places.__getitem__)
        return super().message()

    def _stop_reason(self) -> StopReason:
        if self._finish == "content_filter":
            return "content_filter"
        if self._finish != "completed":
            return "length"
        if any(isinstance(part, Words) and part.kind == "refusal" for part in self._parts):
            return "refusal"
        return "tool_calls" if self._calls else "stop"

    def _counted(self, raw: Mapping[str, object]) -> Usage:
        """Cached tokens are no input tokens, reasoning is part of the output."""
        given, made = table(raw.get("input_tokens_details")), table(raw.get("output_tokens_details"))
        read, written = count(given.get("cached_tokens")), count(given.get("cache_write_tokens"))
        return Usage(
            input_tokens=max(0, count(raw.get("input_tokens")) - read - written),
            output_tokens=count(raw.get("output_tokens")),
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=count(made.get("reasoning_tokens")),
        )


_KINDS: Final[Mapping[str, Kind]] = {
    "text": "text",
    "refusal": "refusal",
    "summary": "reasoning",
    "thought": "reasoning",
}
