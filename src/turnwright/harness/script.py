"""A model for tests that says its turns one after another, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypeAlias, TypedDict

from turnwright.canonical import encode, plain
from turnwright.deltas import ReasoningDelta, TextDelta, ToolCallDelta
from turnwright.errors import ModelError
from turnwright.messages import AssistantMessage, Part, Reasoning, Text, ToolCall
from turnwright.ports import ModelRequest

__all__ = ["ScriptClient", "ScriptToolUse", "ScriptTurn", "script_client"]


class ScriptToolUse(TypedDict):
    """One call of a scripted turn. Without *id* it gets one."""

    id: NotRequired[str]
    name: str
    input: NotRequired[object]


class ScriptTurn(TypedDict, total=False):
    """One scripted answer."""

    text: str
    thinking: str
    tool_use: Sequence[ScriptToolUse]
    stop_reason: str


Scripted: TypeAlias = str | ScriptTurn | AssistantMessage | Exception


class ScriptClient:
    """See `script_client`. *calls* holds the requests, in order."""

    def __init__(self, turns: Sequence[Scripted], chunk: int | None) -> None:
        self._turns = tuple(turns)
        self._chunk = chunk
        self.calls: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Say the next turn. Past the end, a ModelError says how many there are."""
        place = len(self.calls)
        self.calls.append(request)
        if place >= len(self._turns):
            said = f"the script has {len(self._turns)} turns, and this request asks for number {place + 1}"
            raise ModelError("invalid_request", said)
        turn = self._turns[place]
        if isinstance(turn, Exception):
            raise turn
        answer = turn if isinstance(turn, AssistantMessage) else _answer(turn, place)
        self._stream(answer, request)
        return answer

    def _stream(self, answer: AssistantMessage, request: ModelRequest) -> None:
        emit = request.on_delta
        if emit is None:
            return
        turn, attempt, index = request.turn, request.attempt, 0
        for part in answer.parts:
            match part:
                case Text(text=text):
                    for piece in self._pieces(text):
                        emit(TextDelta(turn, attempt, piece))
                case Reasoning(text=text):
                    for piece in self._pieces(text):
                        emit(ReasoningDelta(turn, attempt, piece))
                case ToolCall(name=name, arguments=arguments):
                    for piece in self._pieces(arguments):
                        emit(ToolCallDelta(turn, attempt, index, name, piece))
                    index += 1
                case _:
                    pass

    def _pieces(self, text: str) -> list[str]:
        size = self._chunk or len(text) or 1
        return [text[start : start + size] for start in range(0, len(text), size)]


def script_client(turns: Sequence[Scripted], *, chunk: int | None = None) -> ScriptClient:
    """A model that needs no key and no network.

    ::

        script_client([{"text": "Let me look.", "tool_use": [{"name": "look", "input": {"q": "x"}}]}, "Found it."])

    A turn is text, an object with `text`, `thinking`, `tool_use` and `stop_reason`, a message, or an exception to
    raise. With *chunk*, it is streamed in pieces of that many characters.
    """
    return ScriptClient(turns, chunk)


def _answer(turn: str | Mapping[str, object] | ScriptTurn, place: int) -> AssistantMessage:
    if isinstance(turn, str):
        return AssistantMessage((Text(turn),))
    if unknown := sorted(turn.keys() - ScriptTurn.__annotations__.keys()):
        raise ValueError(f"a scripted turn has no {unknown[0]!r}; it has {', '.join(ScriptTurn.__annotations__)}")
    parts: list[Part] = []
    if thinking := turn.get("thinking"):
        parts.append(Reasoning(str(thinking)))
    if text := turn.get("text"):
        parts.append(Text(str(text)))
    uses: Sequence[ScriptToolUse] = turn.get("tool_use", ())  # type: ignore[assignment]
    for index, use in enumerate(uses):
        given = use.get("input", {})
        arguments = given if isinstance(given, str) else encode(plain(given)).decode()
        parts.append(ToolCall(use.get("id", f"call-{place + 1}-{index}"), use["name"], arguments))
    stop = turn.get("stop_reason")
    return AssistantMessage(
        parts, "tool_calls" if uses else "stop", raw_stop_reason=None if stop is None else str(stop)
    )
