"""Tool calls for models that have none of their own: a reply held by a JSON Schema to one call or to the answer.

Rule: what the model is told stays the same from turn to turn, so that a server's prefix cache holds; what changes,
above all the tool choice, is only in the schema of the reply.

A reply is `{"tool": <name>, "arguments": <object>}` or `{"answer": <text, or the output>}`, and the history shows the
model's own replies in the same form. A tool's result is JSON too, so no text in it can pass for another message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from attrs import evolve as replace, frozen

from turnwright.canonical import well_formed
from turnwright.context.history import in_words, text_of
from turnwright.deltas import Delta, TextDelta, ToolCallDelta
from turnwright.messages import (
    AssistantMessage,
    File,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turnwright.ports import ModelRequest, OutputSpec
from turnwright_adapters._wire import as_object_text, decode, encode, is_object_text, result_text, shown_in

__all__ = ["Constrained", "constrain", "shown"]

_INSTRUCTION: Final = """\
You reply with one JSON object and nothing else. To call a tool, write {"tool": its name, "arguments": its arguments}; \
you will be shown its result. When you have all you need, write {"answer": your answer}."""


@frozen
class Constrained:
    """A request without tools that stands for *original*."""

    original: ModelRequest
    request: ModelRequest

    def reply(self, message: AssistantMessage) -> AssistantMessage:
        """Return the ordinary message that the model's reply stands for.

        Of a reply that was cut, what is there of the call or of the answer; one that is neither, from a server that
        does not hold to schemas, is taken as the answer's text.
        """
        if not message.text.strip():
            return message
        turn, attempt, watch = self.original.turn, self.original.attempt, self.original.on_delta
        meaning = _read(message.text, cut=message.stop_reason != "stop")
        told = self.request.on_delta.told if isinstance(self.request.on_delta, _Watch) else ""
        rest = meaning.text.removeprefix(told)
        thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
        if meaning.tool is None:
            if watch is not None and rest:
                watch(TextDelta(turn, attempt, rest))
            return replace(message, parts=[*thoughts, Text(meaning.text)])
        if watch is not None:
            watch(ToolCallDelta(turn, attempt, 0, meaning.tool, rest))
        stop = "tool_calls" if message.stop_reason == "stop" else message.stop_reason
        call = ToolCall(f"call_{turn}_0", meaning.tool, meaning.text)
        return replace(message, parts=[*thoughts, call], stop_reason=stop)


@frozen
class _Meaning:
    """What a reply means: the raw arguments of a call of *tool*, or the answer's text."""

    tool: str | None
    text: str


def _read(reply: str, *, cut: bool) -> _Meaning:
    try:
        found = _reply.decode(reply)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        seen = _Watch(lambda _: None)
        seen(TextDelta(0, 0, reply))
        return _Meaning(seen.tool, seen.told if seen.tool is not None or (seen.begun and cut) else reply)
    if "tool" in found:
        return _Meaning(_text(found["tool"]), bytes(found["arguments"]).decode() if "arguments" in found else "{}")
    return _Meaning(None, _text(found["answer"]) if "answer" in found else reply)


def constrain(request: ModelRequest) -> Constrained:
    """Return *request*, which has tools, as one without, whose reply is a call or the answer in JSON."""
    told = [request.instruction] if request.instruction else []
    told.append(_INSTRUCTION)
    if request.output is not None:
        told.append(f"The answer is JSON that is valid under this schema:\n{encode(request.output.schema).decode()}")
    tools = [
        encode({"tool": tool.name, "description": tool.description, "arguments": tool.parameters}).decode()
        for tool in request.tools
    ]
    told.append("\n".join(["Tools:", *tools]))
    return Constrained(
        request,
        replace(
            request,
            instruction="\n\n".join(told),
            tools=(),
            tool_choice="auto",
            output=OutputSpec("reply", _schema(request)),
            on_delta=None if request.on_delta is None else _Watch(request.on_delta),
        ),
    )


def shown(message: Message) -> Message:
    """Return *message* as the model is shown it later: replies as it wrote them, results as labelled user messages."""
    match message:
        case UserMessage():
            return message
        case AssistantMessage() if message.calls:
            calls = [
                f'{{"tool": {encode(call.name).decode()}, "arguments": {as_object_text(call.arguments)}}}'
                for call in message.calls
            ]
            said = [message.text] if message.text.strip() else []
            return replace(message, parts=(Text("\n".join(said + calls)),))
        case AssistantMessage() if text := message.text.strip():
            return replace(message, parts=(Text(f'{{"answer": {_embedded(text)}}}'),))
        case AssistantMessage():
            return message
        case ToolMessage():
            # The text of a file is embedded like any other.
            parts = [
                in_words(part) if isinstance(part, File) and text_of(part) is not None else part
                for part in message.parts
            ]
            result = _embedded(result_text(parts))
            word = "error" if message.is_error else "result"
            label = f'Tool result: {{"tool": {encode(message.name).decode()}, "{word}": {result}}}'
            return UserMessage((Text(label), *shown_in(parts)))


def _embedded(text: str) -> str:
    """Return *text* as JSON: itself if it is an object, else a string."""
    return text if is_object_text(text) else encode(text).decode()


def _schema(request: ModelRequest) -> dict[str, object]:
    shared: dict[str, object] = {}
    kinds: list[object] = [
        _object(tool={"type": "string", "const": tool.name}, arguments=_held(tool.name, tool.parameters, shared))
        for tool in request.tools
        if request.tool_choice in {"auto", "required", tool.name}
    ]
    if request.tool_choice in {"auto", "none"}:
        output = request.output
        answer = {"type": "string"} if output is None else _held("answer", output.schema, shared)
        kinds.append(_object(answer=answer))
    return {"anyOf": kinds, **({"$defs": shared} if shared else {})}


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _held(name: str, schema: Mapping[str, object], shared: dict[str, object]) -> object:
    """Return *schema* for a place inside another, by way of *shared* definitions if it refers to itself."""
    inner = {key: value for key, value in schema.items() if key != "$schema"}
    if b'"$ref"' not in encode(inner):
        return inner
    place = f"{len(shared)}_{re.sub('[^a-zA-Z0-9_-]', '_', name)}"
    shared[place] = _moved(inner, f"#/$defs/{place}")
    return {"$ref": f"#/$defs/{place}"}


def _moved(schema: object, root: str) -> object:
    """Return *schema* with each reference to its own root made one to *root*."""
    if isinstance(schema, list | tuple):
        return [_moved(item, root) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: root + value[1:] if key == "$ref" and isinstance(value, str) and value[:1] == "#" else _moved(value, root)
        for key, value in schema.items()
    }


_reply: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _text(raw: msgspec.Raw) -> str:
    """Return the string that *raw* JSON is, or its JSON text if it is no string."""
    data = bytes(raw)
    value = decode(data)
    return well_formed(value) if isinstance(value, str) else data.decode()


class _Watch:
    """Passes on what the JSON that a model writes means: the text of its answer, or the raw arguments of its call.

    What can't be told for sure while it is being written is left for the end. *told* is what was passed on, *tool*
    the tool that is being called, *begun* is whether it is clear what is being written.
    """

    def __init__(self, watch: Callable[[Delta], None]) -> None:
        self.tool: str | None = None
        self.begun = False
        self._watch = watch
        self._told: list[str] = []
        self._rest = ""
        self._in_string = False

    @property
    def told(self) -> str:
        return "".join(self._told)

    def __call__(self, delta: Delta) -> None:
        if not isinstance(delta, TextDelta):
            self._watch(delta)
            return
        self._rest += delta.text
        if not self.begun:
            self._begin()
        if self.begun and (text := self._more_of_string() if self._in_string else self._more_of_json()):
            self._told.append(text)
            if self.tool is None:
                self._watch(replace(delta, text=text))
            else:
                self._watch(ToolCallDelta(delta.turn, delta.attempt, 0, self.tool, text))

    def _begin(self) -> None:
        if found := _ANSWER.match(self._rest):
            self._in_string = bool(found[1])
        elif found := _TOOL.match(self._rest):
            self.tool = json.loads(found[1], strict=False)
        else:
            return
        self.begun = True
        self._rest = self._rest[found.end() :]

    def _more_of_string(self) -> str:
        found = _CHARACTERS.match(self._rest)
        assert found is not None
        piece = _HALF.sub(r"\1", found[0])
        self._rest = self._rest[len(piece) :]
        return well_formed(json.loads(f'"{piece}"', strict=False))

    def _more_of_json(self) -> str:
        piece = self._rest.rstrip("} \t\r\n")  # brackets at the end may be those of the reply
        self._rest = self._rest[len(piece) :]
        return piece


_ANSWER: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*(?:(")|(?=[^"\s]))')
_TOOL: Final = re.compile(r'\s*\{\s*"tool"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
_CHARACTERS: Final = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HALF: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
