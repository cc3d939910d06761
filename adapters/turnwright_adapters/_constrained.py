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
from turnwright.deltas import Delta, TextDelta, ToolCallDelta
from turnwright.messages import (
    AssistantMessage,
    Image,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turnwright.ports import ModelRequest, OutputSpec
from turnwright_adapters._wire import as_object_text, encode, is_object_text

__all__ = ["Constrained", "constrain", "shown"]

_INSTRUCTION: Final = """

You reply with one JSON object and nothing else. To call a tool, write {"tool": its name, "arguments": its arguments}; \
you will be shown its result. When you have all you need, write {"answer": your answer}.

Tools:
"""


@frozen
class Constrained:
    """A request without tools that stands for *original*."""

    original: ModelRequest
    request: ModelRequest

    def reply(self, message: AssistantMessage) -> AssistantMessage:
        """Return the ordinary message that the model's reply stands for.

        A reply that is neither a call nor an answer, from a server that does not hold to schemas, is taken as the
        answer's text.
        """
        if not self.original.tools:
            return message
        text = message.text
        try:
            found = _reply.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return message
        watch = self.original.on_delta
        turn, attempt = self.original.turn, self.original.attempt
        told = self.request.on_delta.told if isinstance(self.request.on_delta, _Watch) else ""
        thoughts: list[Part] = [part for part in message.parts if isinstance(part, Reasoning)]
        if "tool" in found:
            name = _name(found["tool"])
            arguments = bytes(found["arguments"]).decode() if "arguments" in found else "{}"
            if watch is not None:
                watch(ToolCallDelta(turn, attempt, 0, name, arguments.removeprefix(told)))
            stop = message.stop_reason if message.stop_reason != "stop" else "tool_calls"
            call = ToolCall(f"call_{turn}_0", name, arguments)
            return replace(message, parts=[*thoughts, call], stop_reason=stop)
        if "answer" in found:
            answer = _text(bytes(found["answer"]))
            if watch is not None and answer != told:
                watch(TextDelta(turn, attempt, answer.removeprefix(told)))
            return replace(message, parts=[*thoughts, Text(answer)])
        return message


def constrain(request: ModelRequest) -> Constrained:
    """Return *request* as one without tools, whose reply is a call or the answer in JSON."""
    if not request.tools:
        return Constrained(request, request)
    tools = "\n".join(
        encode({"tool": tool.name, "description": tool.description, "arguments": tool.parameters}).decode()
        for tool in request.tools
    )
    return Constrained(
        request,
        replace(
            request,
            instruction=request.instruction + _INSTRUCTION + tools,
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
            return replace(message, parts=(Text("\n".join(calls)),))
        case AssistantMessage() if text := message.text.strip():
            answer = text if is_object_text(text) else encode(text).decode()
            return replace(message, parts=(Text(f'{{"answer": {answer}}}'),))
        case AssistantMessage():
            return message
        case ToolMessage():
            images = [part for part in message.parts if isinstance(part, Image)]
            text = message.text or ("(see the image)" if images else "(no tool output)")
            result = text if is_object_text(text) else encode(text).decode()
            word = "error" if message.is_error else "result"
            label = f'Tool result: {{"tool": {encode(message.name).decode()}, "{word}": {result}}}'
            return UserMessage((Text(label), *images))


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


def _name(raw: msgspec.Raw) -> str:
    return _text(bytes(raw))


def _text(raw: bytes) -> str:
    """Return the string that *raw* JSON is, or its JSON text if it is no string."""
    value = msgspec.json.decode(raw)
    return value if isinstance(value, str) else raw.decode()


class _Watch:
    """Passes on, of the JSON that the model writes, what it means: the text of its answer, or the raw arguments of
    its call.

    What can't be told for sure while it is being written is left for the end; *told* is what was passed on.
    """

    def __init__(self, watch: Callable[[Delta], None]) -> None:
        self.told = ""
        self._watch = watch
        self._written = ""
        self._place = 0
        self._tool: str | None = None

    def __call__(self, delta: Delta) -> None:
        if not isinstance(delta, TextDelta):
            self._watch(delta)
            return
        self._written += delta.text
        if not self._place:
            self._find_beginning()
        if self._place and self._tool is None:
            if text := self._more_answer():
                self.told += text
                self._watch(replace(delta, text=text))
        elif self._place and self._tool is not None:
            # The brackets at the end may be those of the reply.
            end = len(self._written.rstrip("} \t\r\n"))
            if text := self._written[self._place : end]:
                self._place = end
                self.told += text
                self._watch(ToolCallDelta(delta.turn, delta.attempt, 0, self._tool, text))

    def _find_beginning(self) -> None:
        if found := _ANSWER.match(self._written):
            self._place = found.end()
        elif found := _TOOL.match(self._written):
            self._place = found.end()
            self._tool = _text(found[1].encode())

    def _more_answer(self) -> str:
        found = _CHARACTERS.match(self._written, self._place)
        assert found is not None
        end = found.end()
        if _HALF.fullmatch(self._written, max(self._place, end - 6), end):
            end -= 6
        piece, self._place = self._written[self._place : end], end
        return well_formed(json.loads(f'"{piece}"', strict=False)) if piece else ""


_ANSWER: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_TOOL: Final = re.compile(r'\s*\{\s*"tool"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
_CHARACTERS: Final = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HALF: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
