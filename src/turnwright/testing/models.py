"""Models for tests: one that follows a script, one that replays what another model said.

Neither needs a network, and neither remembers anything over a crash: what they answer depends on the request alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from attrs import evolve as replace, frozen

from turnwright import journal
from turnwright.canonical import encode, plain
from turnwright.deltas import ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.errors import ModelError
from turnwright.messages import (
    NO_USAGE,
    AssistantMessage,
    Part,
    Reasoning,
    StopReason,
    Text,
    ToolCall,
    Transcript,
    Usage,
)
from turnwright.ports import Model, ModelRequest

__all__ = ["Fails", "RecordedModel", "Reply", "ScriptedModel", "call", "fails", "text"]


@frozen
class Fails:
    """A scripted failure; see `fails`."""

    error: Exception
    times: int
    then: Reply


Reply: TypeAlias = (
    "AssistantMessage | ToolCall | Sequence[ToolCall] | Exception | Fails | Callable[[ModelRequest], Reply]"
)


def text(content: str, *, stop_reason: StopReason = "stop", usage: Usage = NO_USAGE) -> AssistantMessage:
    """A reply of plain text."""
    return AssistantMessage((Text(content),), stop_reason, usage)


def call(name: str, /, **arguments: object) -> ToolCall:
    """A reply that calls one tool; a list of them is one reply with parallel calls. The script gives each its id."""
    return ToolCall("", name, encode(plain(arguments)).decode())


def fails(error: Exception, *, times: int = 1, then: Reply) -> Fails:
    """A reply that raises *error* on the first *times* attempts of its turn, and then succeeds."""
    return Fails(error, times, then)


class ScriptedModel:
    """Answers from a list of replies: the nth answers a request that holds n - 1 assistant messages.

    ::

        ScriptedModel([call("add", a=1, b=2), text("3")])

    So it needs no memory, and a run that goes on in another process meets the same model. A reply may be a message, a
    call, a list of calls, an exception to raise, `fails(...)`, or a function of the request that gives one of these.
    *requests* records what it was asked. With *chunk*, its text and arguments are streamed in pieces of that many
    characters.
    """

    def __init__(self, replies: Sequence[Reply], *, chunk: int | None = None) -> None:
        self._replies = tuple(replies)
        self._chunk = chunk
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Answer from the script. Past its end, a ModelError says how many replies it has."""
        self.requests.append(request)
        place = _answers(request)
        if place >= len(self._replies):
            message = f"the script has {len(self._replies)} replies, and this request asks for number {place + 1}"
            raise ModelError("invalid_request", message)
        answer = _message(self._replies[place], request, place)
        if request.on_delta is not None:
            await _stream(answer, request, self._chunk)
        return answer


class RecordedModel:
    """Replays what a model said, from a file of recordings, keyed by the rendered request; fails closed on any other
    request.

    With *model*, it asks that model and records what it answers; without, it replays and needs neither network nor
    key, and a miss says in what the nearest recording differs. The file holds one JSON object a line: the key, the
    request as rendered, the answer.
    """

    def __init__(self, path: str | Path, *, model: Model | None = None) -> None:
        self._path = Path(path)
        self._model = model
        self._answers: dict[str, bytes] = {}
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                entry = msgspec.json.decode(line)
                self._answers[entry["key"]] = msgspec.json.encode(entry["answer"])

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give the recorded answer, or record a new one. ModelError when there is neither a recording nor a model."""
        rendered = _rendered(request)
        key = sha256(rendered).hexdigest()
        if key in self._answers:
            answer = journal.decode_message(self._answers[key])
        elif self._model is None:
            missing = f"no recording of this request in {self._path.name} (key {key[:12]}){self._nearest(rendered)}"
            raise ModelError("invalid_request", f"{missing}; record it with a model first")
        else:
            return await self._record(request, key, rendered, self._model)
        if request.on_delta is not None:
            await _stream(answer, request, None)
        return answer

    def _nearest(self, rendered: bytes) -> str:
        """Say in what the recording that is most like the request differs from it, nothing if there is none."""
        if not self._answers:
            return ""
        asked, lines = msgspec.json.decode(rendered), self._path.read_bytes().splitlines()
        found = [
            (number, _differences(msgspec.json.decode(line)["request"], asked)) for number, line in enumerate(lines)
        ]
        number, differences = min(found, key=lambda each: len(each[1]))
        more = f" and in {len(differences) - 1} more places" if len(differences) > 1 else ""
        return f"; the nearest, line {number + 1}, differs at {differences[0]}{more}" if differences else ""

    async def _record(self, request: ModelRequest, key: str, rendered: bytes, model: Model) -> AssistantMessage:
        answer = await model.complete(request)
        body = msgspec.json.encode(answer)
        self._answers[key] = body
        line = {"key": key, "request": msgspec.Raw(rendered), "answer": msgspec.Raw(body)}
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        return answer


def _differences(recorded: object, asked: object, path: str = "") -> list[str]:
    """Name each place in which two JSON values differ, and what stands there in either."""
    match recorded, asked:
        case dict(), dict():
            names = [*recorded, *[name for name in asked if name not in recorded]]
            inner = [(recorded.get(name, _ABSENT), asked.get(name, _ABSENT), f"{path}.{name}") for name in names]
        case list(), list():
            pairs = enumerate(zip_longest(recorded, asked, fillvalue=_ABSENT))
            inner = [(first, second, f"{path}[{place}]") for place, (first, second) in pairs]
        case _ if recorded == asked and type(recorded) is type(asked):
            return []
        case _:
            return [f"{path.removeprefix('.')}: recorded {_short(recorded)}, asked {_short(asked)}"]
    return [difference for first, second, place in inner for difference in _differences(first, second, place)]


_ABSENT: Final = object()


def _short(value: object) -> str:
    if value is _ABSENT:
        return "nothing"
    words = encode(plain(value)).decode()
    return words if len(words) <= 80 else f"{words[:77]}..."


def _answers(request: ModelRequest) -> int:
    messages = request.messages
    if isinstance(messages, Transcript):
        return messages.answers
    return sum([isinstance(message, AssistantMessage) for message in messages])


def _message(reply: Reply, request: ModelRequest, place: int) -> AssistantMessage:
    match reply:
        case AssistantMessage():
            return reply
        case Exception():
            raise reply
        case Fails(error, times, then):
            if request.attempt <= times:
                raise error
            return _message(then, request, place)
        case ToolCall():
            return _calling([reply], place)
        case Sequence():
            return _calling(reply, place)
        case _:
            return _message(reply(request), request, place)


def _calling(calls: Sequence[ToolCall], place: int) -> AssistantMessage:
    parts: list[Part] = [
        each if each.id else replace(each, id=f"call-{place + 1}-{index}") for index, each in enumerate(calls)
    ]
    return AssistantMessage(tuple(parts), "tool_calls")


async def _stream(answer: AssistantMessage, request: ModelRequest, chunk: int | None) -> None:
    emit, turn, attempt = request.on_delta, request.turn, request.attempt
    assert emit is not None
    index = sent = 0
    for part in answer.parts:
        whole = part.arguments if isinstance(part, ToolCall) else getattr(part, "text", "")
        size = chunk or len(whole) or 1
        for start in range(0, len(whole), size):
            piece = whole[start : start + size]
            if isinstance(part, ToolCall):
                emit(ToolCallDelta(turn, attempt, index, part.name, piece))
            elif isinstance(part, Reasoning):
                emit(ReasoningDelta(turn, attempt, piece))
            else:
                emit(TextDelta(turn, attempt, piece))
            sent += 1
            if sent % 64 == 0:
                await asyncio.sleep(0)  # as a network would, let whoever watches keep up
        index += isinstance(part, ToolCall)
    emit(UsageDelta(turn, attempt, answer.usage))


def _rendered(request: ModelRequest) -> bytes:
    """The request without what differs from run to run."""
    return encode(
        plain(
            {
                "instruction": request.instruction,
                "messages": list(request.messages),
                "tools": list(request.tools),
                "tool_choice": request.tool_choice,
                "output": request.output,
                "options": dict(request.options),
            }
        )
    )
