"""One answer, put together from the events of a stream or from a whole reply.

Rule: both ways lead through the same steps, so the same reply gives the same message by either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from turnwright.canonical import well_formed
from turnwright.deltas import ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.errors import ModelError
from turnwright.messages import (
    AssistantMessage,
    Part,
    Reasoning,
    Refusal,
    StopReason,
    Text,
    ToolCall,
    Usage,
)
from turnwright.ports import ModelRequest
from turnwright_adapters._wire.json_text import decode, is_object_text
from turnwright_adapters._wire.names import ToolNames, own_call_id
from turnwright_adapters._wire.sse import ServerSentEvent

Kind: TypeAlias = Literal["text", "reasoning", "refusal"]


class Words:
    """Text of one kind, as it comes."""

    __slots__ = ("half", "kind", "pieces", "redacted", "signature")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.half = ""
        self.signature = ""
        self.redacted = False

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.pieces) + well_formed(self.half)


class Call:
    """A tool call, as it comes; *told* counts the pieces that watchers have seen."""

    __slots__ = ("id", "name", "pieces", "place", "signature", "told")

    def __init__(self, place: int) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.place = place
        self.signature = ""
        self.told = -1

    @property
    def arguments(self) -> str:
        """The raw text of the arguments so far."""
        return well_formed("".join(self.pieces))

    @property
    def complete(self) -> bool:
        """Whether the arguments so far are a whole object, so that nothing can follow."""
        text = "".join(self.pieces)
        return text.rstrip().endswith("}") and is_object_text(text)


class Answer(ABC):
    """What one reply says. A provider's own class reads its events and its whole replies.

    Some servers end every stream with `[DONE]`; it means something only where no event tells the end.
    """

    _ends_with_marker: ClassVar = False

    def __init__(self, request: ModelRequest, names: ToolNames, provider: str) -> None:
        self.done = False
        self._finish: str | None = None
        self._turn = request.turn
        self._attempt = request.attempt
        self._on_delta = request.on_delta
        self._names = names
        self._provider = provider
        self._parts: list[Words | Call] = []
        self._calls: list[Call] = []
        self._usage: dict[str, object] = {}
        self._model: str | None = None
        self._id: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the provider said that the answer is all there."""
        return self.done or self._finish is not None

    @abstractmethod
    def _take_event(self, payload: dict[str, object], event: str) -> None:
        """Take the object of one event of a stream, and the event's name."""

    @abstractmethod
    def _take_reply(self, payload: dict[str, object]) -> None:
        """Take the object of a reply that was not streamed."""

    @abstractmethod
    def _stop_reason(self) -> StopReason:
        """Return why the answer ended, in our terms."""

    @abstractmethod
    def _counted(self, raw: Mapping[str, object]) -> Usage:
        """Return the provider's usage in our terms."""

    def hear(self, event: ServerSentEvent, *, last: bool = False) -> None:
        """Take one event of a stream; the *last* one may have been cut."""
        if self.done:
            return
        if event.data.strip() == b"[DONE]":
            self.done = self._ends_with_marker
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
            self._take_event(payload, event.event)

    def take_whole(self, data: bytes) -> None:
        """Take a reply that was not streamed."""
        try:
            payload = decode(data)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            raise ModelError("malformed", f"{self._provider}: the reply is not a JSON object", retryable=True)
        self._take_reply(payload)
        self.done = True

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
        return AssistantMessage(
            self._made(),
            self._stop_reason(),
            self._counted(self._usage),
            model=self._model,
            provider=self._provider,
            response_id=self._id,
            raw_stop_reason=self._finish,
        )

    def so_far(self) -> AssistantMessage | None:
        """Return what came before a failure, None if nothing did."""
        if not self._parts and not self._usage:
            return None
        usage = self._counted(self._usage)
        return AssistantMessage(self._made(), "error", usage, self._model, self._provider, self._id)

    def _made(self) -> list[Part]:
        """Return the parts, without those that say nothing and are signed by nobody."""
        parts: list[Part] = []
        ids: set[str] = set()
        for part in self._parts:
            if isinstance(part, Call):
                id = part.id or own_call_id(self._turn, part.place)
                if id in ids:
                    id = f"{id}_{part.place}"
                ids.add(id)
                parts.append(ToolCall(id, self._names.meant(part.name), part.arguments, part.signature or None))
            elif (text := part.text) or part.signature:
                parts.append(_part(part, text))
        return parts

    def _begin(self, kind: Kind) -> Words:
        words = Words(kind)
        self._parts.append(words)
        return words

    def _begin_call(self) -> Call:
        call = Call(len(self._calls))
        self._calls.append(call)
        self._parts.append(call)
        return call

    def _say(self, words: Words, text: str) -> None:
        """Add *text*, which is not empty, to *words* and tell watchers of it."""
        if words.half:
            text = words.half + text
            words.half = ""
        if "\ud800" <= text[-1] <= "\udbff":  # the other half of the character comes with the next piece
            words.half = text[-1]
            text = text[:-1]
        text = well_formed(text)
        words.pieces.append(text)
        if self._on_delta is not None and text:
            if words.kind == "text":
                self._on_delta(TextDelta(self._turn, self._attempt, text))
            elif words.kind == "reasoning":
                self._on_delta(ReasoningDelta(self._turn, self._attempt, text))

    def _tell_call(self, call: Call) -> None:
        """Tell watchers what they have not seen of *call*."""
        told, call.told = max(call.told, 0), len(call.pieces)
        if self._on_delta is not None:
            text = well_formed("".join(call.pieces[told:]))
            self._on_delta(ToolCallDelta(self._turn, self._attempt, call.place, self._names.meant(call.name), text))

    def _take_usage(self, usage: object) -> None:
        """Take a running total: what it leaves out, or says null of, stays as it was."""
        if isinstance(usage, dict):
            self._usage.update({name: value for name, value in usage.items() if value is not None})
            if self._on_delta is not None:
                self._on_delta(UsageDelta(self._turn, self._attempt, self._counted(self._usage)))


def _part(words: Words, text: str) -> Part:
    if words.kind == "reasoning":
        return Reasoning(text, words.signature or None, words.redacted)
    return Refusal(text) if words.kind == "refusal" else Text(text, words.signature or None)


def string(value: object) -> str | None:
    """Return *value* if it is a string with something in it."""
    return value if isinstance(value, str) and value else None


def table(value: object) -> dict[str, object]:
    """Return *value* if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, object]]:
    """Return the objects of *value* if it is a JSON array."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: object) -> int:
    """Return *value* if it is a number of things, or a place among them, else 0."""
    return value if type(value) is int and value > 0 else 0
