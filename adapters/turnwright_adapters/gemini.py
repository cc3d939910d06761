"""Google's Gemini over HTTP: its own API, and Vertex by its address.

Rule: a thought signature stays on the part it came with and is never made up; a finish reason that nobody knows yet is
an answer, one that says that the call was spoilt is a ModelError and no tool runs (tests/adapters/test_gemini.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import httpx
import msgspec

from turnwright.context.history import EARLIER, paired
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
    encode,
    gemini_thinking,
    is_own_call_id,
    options_of,
    prompted,
    provider_error,
    result_text,
    shown_in,
    string,
    table,
    tables,
    take_common,
    wire_name,
)

__all__ = ["GeminiModel", "Timeouts"]


class GeminiModel(HttpModel):
    """A Gemini model behind Google's generateContent; a model port.

    ::

        model = GeminiModel("gemini-2.5-flash", api_key=lambda: os.environ["GEMINI_API_KEY"])
        await run_agent(definition, "Where is my order?", Ports(model=model))

    The key may be a function, also an asynchronous one, that is asked for each request; None sends none. With *bearer*
    it is an access token. So Vertex is reached, with a *base_url* up to and with `publishers/google`. *headers* are
    sent with each request, and a None among them takes one of ours away. With *stream* None a request is streamed if
    somebody watches it. *output* says when the model takes a JSON Schema for its answer, which older ones do not beside
    tools; when it does not, the schema is put into the instruction. Options are those of `generationConfig`, in
    Google's words or in everybody's (`max_tokens`, `top_p`, `stop`, ...), or members of the request such as
    `safetySettings`. Signatures go back to the provider whose name is *provider* only. *modalities* is what the model
    takes in, of `text`, `image`, `audio`, `video` and `file`: words stand for what it does not. None is all.
    *thinking* is its level, or its budget, for each level that it takes.

    One object serves any number of runs at a time, on any number of event loops one after another. A *client* that
    was given is never closed; one of our own closes with its event loop, or by `aclose`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://generativelanguage.googleapis.com/v1beta",
        api_key: ApiKey = None,
        bearer: bool = False,
        provider: str = "gemini",
        headers: Mapping[str, str | None] | None = None,
        client: httpx.AsyncClient | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - a frozen value is a safe default
        stream: bool | None = None,
        output: Literal["always", "without_tools", "never"] = "without_tools",
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
        self._bearer = bearer
        self._output = output
        self._messages: Remembered[Message, _Content] = Remembered()
        self._tools: Remembered[ToolSpec, bytes] = Remembered()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError."""
        check_choice(request)
        stream = self._streams(request)
        options = options_of(request, "contents", "systemInstruction", "tools", "toolConfig")
        options.pop("parallel_tool_calls", None)  # the dialect has no word for it
        model = str(options.pop("model", self.model))
        if thinking := gemini_thinking(model, take_common(options), self._thoughts_of(model)):
            options.setdefault("thinkingConfig", thinking)
        path = f"/{model}" if "/" in model else f"/models/{model}"
        url = self._at(f"{path}:streamGenerateContent", alt="sse") if stream else self._at(f"{path}:generateContent")
        body = self._body(request, options)
        answer = _Answer(request, ToolNames([tool.name for tool in request.tools]), self.provider)
        return await self._ask(request, url, body, answer, stream=stream)

    def _credentials(self, key: str) -> dict[str, str]:
        return super()._credentials(key) if self._bearer else {"x-goog-api-key": key}

    def _body(self, request: ModelRequest, options: dict[str, object]) -> bytes:
        """Return the request's body. What is not asked for leaves no trace."""
        members = {name: options.pop(name) for name in sorted(_MEMBERS & options.keys())}
        config = table(options.pop("generationConfig", None)) | {
            _OPTIONS.get(name, name): value for name, value in sorted(options.items())
        }
        if isinstance(stop := config.get("stopSequences"), str):
            config["stopSequences"] = [stop]
        instruction = [request.instruction] if request.instruction.strip() else []
        if request.output is not None:
            if self._output == "always" or (self._output == "without_tools" and not request.tools):
                config["responseMimeType"] = "application/json"
                config["responseJsonSchema"] = _taken(request.output.schema)
            else:
                instruction.append(prompted(request.output))
        if config:
            members["generationConfig"] = config
        if instruction:
            members["systemInstruction"] = {"parts": [{"text": "\n\n".join(instruction)}]}
        if request.tools:
            declared = [msgspec.Raw(self._tools.of(tool, _declaration)) for tool in request.tools]
            members["tools"] = [{"functionDeclarations": declared}]
            if (choice := _choice(request)) is not None:
                members["toolConfig"] = {"functionCallingConfig": choice}
        members["contents"] = [msgspec.Raw(content) for content in self._contents(request.messages)]
        return encode(members)

    def _contents(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the contents that are sent, a user's first. All results of a batch are in one, right after it."""
        contents: list[tuple[str, list[bytes]]] = []

        def add(role: str, parts: Sequence[bytes]) -> None:
            if parts and contents and contents[-1][0] == role:
                contents[-1][1].extend(parts)
            elif parts:
                contents.append((role, [*parts]))

        waiting: list[bytes] = []
        for message in paired(messages):
            role, parts, shown = self._messages.of(message, self._encode)
            if role != "function":
                add("user", waiting)
                waiting = []
            add(role, parts)
            waiting.extend(shown)
        add("user", waiting)
        if not contents or contents[0][0] == "model":
            contents.insert(0, ("user", [_text(EARLIER)]))
        return [
            b'{"role":"%b","parts":[%b]}' % (b"model" if role == "model" else b"user", b",".join(parts))
            for role, parts in contents
        ]

    def _encode(self, message: Message) -> _Content:
        match self._fitted(message):
            case None:
                return "model", (), ()
            case UserMessage() as message:
                return "user", tuple(self._parts(message.parts)), ()
            case ToolMessage() as message:
                result = {
                    **_id(message.call_id),
                    "name": wire_name(message.name),
                    "response": {"error" if message.is_error else "output": result_text(message.parts)},
                }
                shown = self._parts(shown_in(message.parts))
                return "function", (encode({"functionResponse": result}),), tuple(shown)
            case AssistantMessage() as message:
                return "model", tuple(self._answer_parts(message)), ()

    def _parts(self, parts: Sequence[Part]) -> list[bytes]:
        sent: list[bytes] = []
        for part in parts:
            match part:
                case Text() if part.text.strip():
                    sent.append(_text(part.text))
                case Image() | File() if part.data is not None:
                    sent.append(encode({"inlineData": {"mimeType": part.media_type, "data": part.data}}))
                case Image() | File():
                    sent.append(encode({"fileData": {"mimeType": part.media_type, "fileUri": self._uri(part)}}))
                case _:
                    pass
        return sent

    def _uri(self, shown: Image | File) -> str | None:
        """Return where *shown* is; a file of the provider's has its address under its name, `files/...`."""
        if isinstance(shown, Image) or shown.id is None:
            return shown.url
        return shown.id if "://" in shown.id else self._at(f"/files/{shown.id.removeprefix('files/')}")

    @staticmethod
    def _answer_parts(message: AssistantMessage) -> list[bytes]:
        """Return the parts of an answer, none if there is nothing in it but thoughts."""
        parts: list[bytes] = []
        worth = False
        for part in message.parts:
            signature = getattr(part, "signature", None)
            signed = {} if signature is None else {"thoughtSignature": signature}
            match part:
                case Text() | Refusal() if part.text.strip() or signed:
                    parts.append(encode({"text": part.text, **signed}))
                    worth = worth or bool(part.text.strip())
                case ToolCall():
                    arguments = msgspec.Raw(as_object_text(part.arguments).encode())
                    call = {**_id(part.id), "name": wire_name(part.name), "args": arguments}
                    parts.append(encode({"functionCall": call, **signed}))
                    worth = True
                case Reasoning() if signed and not part.redacted:
                    parts.append(encode({"text": part.text, "thought": True, **signed}))
                case _:
                    pass
        return parts if worth else []


_Content: TypeAlias = tuple[str, tuple[bytes, ...], tuple[bytes, ...]]
"""A message's role, its parts in JSON, and the images and files that follow once all results of its batch are there."""

_MEMBERS: Final = frozenset({"safetySettings", "cachedContent", "labels", "serviceTier", "modelArmorConfig"})

_OPTIONS: Final = {
    "frequency_penalty": "frequencyPenalty",
    "max_tokens": "maxOutputTokens",
    "presence_penalty": "presencePenalty",
    "stop": "stopSequences",
    "top_k": "topK",
    "top_p": "topP",
}


def _id(given: str) -> dict[str, str]:
    # A call that came without an id goes back without one: the order of the results tells them apart.
    return {} if is_own_call_id(given) else {"id": call_id(given)}


def _choice(request: ModelRequest) -> dict[str, object] | None:
    match request.tool_choice:
        case "auto":
            return None
        case "none":
            return {"mode": "NONE"}
        case "required":
            return {"mode": "ANY"}
        case name:
            return {"mode": "ANY", "allowedFunctionNames": [wire_name(name)]}


def _declaration(tool: ToolSpec) -> bytes:
    declared: dict[str, object] = {"name": wire_name(tool.name), "description": tool.description}
    if tool.parameters.get("properties") or tool.parameters.keys() & {"$ref", "anyOf", "oneOf"}:
        # An object without members is refused, a function without parameters is not.
        declared["parametersJsonSchema"] = _taken(tool.parameters)
    return encode(declared)


_KEYWORDS: Final = frozenset(
    [
        "$anchor",
        "$defs",
        "$id",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "oneOf",
        "prefixItems",
        "properties",
        "required",
        "title",
        "type",
    ]
)
"""What the dialect takes of JSON Schema. What it does not is held to when the call is admitted, as all of it is."""


def _taken(schema: object) -> object:
    """Return what the dialect takes of *schema*, which stays as it is."""
    if not isinstance(schema, Mapping):
        return {} if schema is True else schema
    taken: dict[str, object] = {}
    for key, value in schema.items():
        match key:
            case "properties" | "$defs" | "definitions" if isinstance(value, Mapping):
                taken["$defs" if key == "definitions" else key] = {name: _taken(each) for name, each in value.items()}
            case "anyOf" | "oneOf" | "prefixItems" if isinstance(value, list | tuple):
                taken[key] = [_taken(each) for each in value]
            case "items":
                taken[key] = _taken(value)
            case "additionalProperties":
                taken[key] = value if isinstance(value, bool) else _taken(value)
            case "const":
                taken["enum"] = [value]
            case "$ref" if isinstance(value, str):
                taken[key] = value.replace("#/definitions/", "#/$defs/")
            case _ if key in _KEYWORDS:
                taken[key] = value
            case _:
                pass
    return taken


def _text(text: str) -> bytes:
    return encode({"text": text})


class _Answer(Answer):
    """One answer of this dialect. Each event of a stream has the form of a whole reply, with some of the parts."""

    def __init__(self, request: ModelRequest, names: ToolNames, provider: str) -> None:
        super().__init__(request, names, provider)
        self._words: Words | None = None
        self._blocked = False

    def _take_event(self, payload: dict[str, object], event: str) -> None:
        if payload.get("error") or event == "error":
            raise provider_error(self._provider, payload)
        self._id = self._id or string(payload.get("responseId"))
        self._model = self._model or string(payload.get("modelVersion"))
        candidate = next(iter(tables(payload.get("candidates"))), {})
        if candidate.get("index"):  # of several alternatives the first is the answer
            candidate = {}
        for part in tables(table(candidate.get("content")).get("parts")):
            self._take_part(part)
        self._take_usage(payload.get("usageMetadata"))
        if blocked := string(table(payload.get("promptFeedback")).get("blockReason")):
            self._blocked = True
            self._finish = blocked
        elif finish := string(candidate.get("finishReason")):
            self._finish = finish
            words = f"{self._provider} ended the answer with {finish}"
            if finish in _SPOILT:
                raise ModelError("malformed", words, retryable=True)
            if finish == "MISSING_THOUGHT_SIGNATURE":
                raise ModelError("invalid_request", words)

    def _take_reply(self, payload: dict[str, object]) -> None:
        self._take_event(payload, "")

    def _take_part(self, part: dict[str, object]) -> None:
        signature = string(part.get("thoughtSignature")) or ""
        if called := table(part.get("functionCall")):
            call = self._begin_call()
            call.id = string(called.get("id")) or ""
            call.name = string(called.get("name")) or ""
            call.signature = signature
            call.pieces.append(encode(called.get("args") or {}).decode())
            self._tell_call(call)
            self._words = None
        elif isinstance(text := part.get("text"), str):
            kind: Kind = "reasoning" if part.get("thought") else "text"
            if self._words is None or self._words.kind != kind:
                self._words = self._begin(kind)
            if text:
                self._say(self._words, text)
            if signature:  # it ends its part: a later one may have its own
                self._words.signature = signature
                self._words = None

    def _stop_reason(self) -> StopReason:
        if self._blocked or self._finish in _FILTERED:
            return "content_filter"
        if self._finish == "MAX_TOKENS":
            return "length"
        return "tool_calls" if self._calls else "stop"

    def _counted(self, raw: Mapping[str, object]) -> Usage:
        """The prompt holds the cached tokens, and the candidates leave the thoughts out."""
        cached, thoughts = count(raw.get("cachedContentTokenCount")), count(raw.get("thoughtsTokenCount"))
        prompt = count(raw.get("promptTokenCount")) + count(raw.get("toolUsePromptTokenCount"))
        return Usage(
            input_tokens=max(0, prompt - cached),
            output_tokens=count(raw.get("candidatesTokenCount")) + thoughts,
            cache_read_tokens=cached,
            reasoning_tokens=thoughts,
        )


_FILTERED: Final = frozenset(
    [
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    ]
)

_SPOILT: Final = frozenset(
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"]
)
"""The model wrote something that is no answer; another try may be one."""
