"""A conversation as a JSON value. Rule: `reduce` is its only writer, and it is pure.

Where the JSON is kept is the caller's business. A tool or a guardrail that wants something remembered asks for it with
a `memory` event; it never touches the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final, assert_never

import msgspec
from attrs import evolve as replace, field

from turnwright import journal
from turnwright.canonical import GREATEST, JSON, LEAST, decode, encode, plain, step, well_formed
from turnwright.errors import InvalidValue, Issue
from turnwright.harness.events import (
    AgentEvent,
    DoneEvent,
    ErrorEvent,
    GuardrailEvent,
    MemoryEvent,
    MessageEvent,
    ProgressEvent,
    Said,
    StepEvent,
    SurfaceEvent,
    TextEvent,
    ThinkingEvent,
    ToolInputDeltaEvent,
    ToolResultEvent,
    ToolUseEvent,
    TraceEvent,
)
from turnwright.messages import (
    AssistantMessage,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
)
from turnwright.schema.coercion import copied
from turnwright.values import frozen

__all__ = ["Draft", "Session", "reduce", "remember", "with_every_result"]

DEPTH: Final = 64
NO_RESULT: Final = "the turn was cut before this call had a result; what became of it is unknown"


@frozen
class Draft:
    """An answer that is still being said: what was *said* so far, and the *calls* that have no result yet."""

    said: Said = Said([], 0)
    calls: tuple[ToolCall, ...] = ()


NO_DRAFT: Final = Draft()


def _transcript(messages: Sequence[Message]) -> Transcript:
    return messages if isinstance(messages, Transcript) else Transcript(messages)


@frozen
class Session:
    """A conversation: what was said, what is remembered, and what is being said just now.

    ::

        session = Session("s1")
        async for event in agent.send(session, "hello"):
            session = reduce(session, event)
        assert Session.from_json(session.to_json()) == session
    """

    id: str
    messages: Transcript = field(factory=Transcript, converter=_transcript)
    memory: Mapping[str, object] = field(factory=dict)
    draft: Draft = NO_DRAFT

    def to_json(self) -> dict[str, JSON]:
        """The session as a plain JSON value, which shares nothing with it."""
        written: dict[str, JSON] = {
            "id": self.id,
            "messages": _written(list(self.messages)),
            "memory": copied(dict(self.memory)),  # type: ignore[arg-type] # JSON, checked when it was written
        }
        if self.draft != NO_DRAFT:
            written["draft"] = {"text": well_formed(str(self.draft.said)), "calls": _written(list(self.draft.calls))}
        return written

    @classmethod
    def from_json(cls, value: Mapping[str, object] | str | bytes) -> Session:
        """Read what `to_json` gave, as a value or as text. InvalidValue for what is no session."""
        read: object = decode(value) if isinstance(value, str | bytes) else value
        try:
            match read:
                case {"id": str(id), "messages": list(messages), "memory": dict(memory)}:
                    return cls(id, Transcript(list(map(_message, messages))), _checked(memory), _draft(read))
                case _:
                    raise TypeError("a session is an object with id, messages and memory")
        except InvalidValue:
            raise
        except Exception as error:
            raise InvalidValue([Issue("", f"this is no session: {error}")]) from error


def remember(patch: Mapping[str, object]) -> MemoryEvent:
    """The event that makes a session remember *patch*; None forgets a key.

    InvalidValue, with the path, for what would not come back from JSON as it is: a date, a tuple, an object of a class.
    """
    return MemoryEvent(_checked(patch))


def reduce(session: Session, event: AgentEvent) -> Session:
    """Return *session* after *event*. Pure: the same session and event, the same result, and nothing else happens."""
    match event:
        case TextEvent():
            return replace(session, draft=replace(session.draft, said=event.said))
        case ToolUseEvent():
            arguments = event.input if isinstance(event.input, str) else encode(plain(event.input)).decode()
            call = ToolCall(event.id, event.name, arguments, event.signature)
            return replace(session, draft=replace(session.draft, calls=(*session.draft.calls, call)))
        case ToolResultEvent():
            said = _said(session)
            result = ToolMessage(event.id, event.name, event.parts or event.output, event.is_error)
            return replace(session, messages=said.append(result), draft=NO_DRAFT)
        case MessageEvent():
            # What came of an answer that was never finished is no part of the conversation.
            messages = with_every_result(session.messages).append(UserMessage(event.text))
            return replace(session, messages=messages, draft=NO_DRAFT)
        case DoneEvent():
            messages = session.messages.append(AssistantMessage(event.text)) if event.text else session.messages
            return replace(session, messages=messages, draft=NO_DRAFT)
        case MemoryEvent():
            merged = {**session.memory, **event.patch}
            return replace(session, memory={key: value for key, value in merged.items() if value is not None})
        case (
            ThinkingEvent()
            | ToolInputDeltaEvent()
            | StepEvent()
            | ProgressEvent()
            | SurfaceEvent()
            | GuardrailEvent()
            | TraceEvent()
            | ErrorEvent()
        ):
            return session
        case _:
            assert_never(event)


def with_every_result(said: Transcript) -> Transcript:
    """*said*, and a result for each call that has none: the turn was cut before, and no model takes it like that."""
    results = 0
    while results < len(said) and isinstance(said[-1 - results], ToolMessage):
        results += 1
    asked = said[-1 - results] if results < len(said) else None
    if isinstance(asked, AssistantMessage):
        for call in asked.calls[results:]:
            said = said.append(ToolMessage(call.id, call.name, NO_RESULT, is_error=True))
    return said


def _said(session: Session) -> Transcript:
    """What was said, with the draft once one of its calls has a result."""
    draft = session.draft
    if not draft.calls:
        return session.messages
    text = str(draft.said)
    parts: list[Part] = [Text(text), *draft.calls] if text else [*draft.calls]
    return session.messages.append(AssistantMessage(parts, "tool_calls"))


def _written(values: list[Message] | list[ToolCall]) -> JSON:
    """*values* as JSON; half surrogate pairs, which no JSON can hold, are replaced."""
    read: JSON = msgspec.json.decode(journal.encode(values)[1])
    return read


def _message(value: object) -> Message:
    match value:
        case {"role": "assistant"}:
            return journal.decode_message(msgspec.json.encode(value))
        case {"role": "user", "parts": parts, "kind": str(kind), "data": data}:
            return UserMessage(journal.parts_of(parts), kind, data)
        case {"role": "tool", "call_id": str(id), "name": str(name), "parts": parts, "is_error": bool(is_error)}:
            return ToolMessage(id, name, journal.parts_of(parts), is_error)
        case _:
            raise TypeError(f"no message: {value!r:.80}")


def _draft(session: object) -> Draft:
    match session:
        case {"draft": {"text": str(text), "calls": list(calls)}}:
            parts = journal.parts_of(calls)
            return Draft(Said([text], 1), tuple([part for part in parts if isinstance(part, ToolCall)]))
        case _:
            return NO_DRAFT


def _checked(patch: object) -> dict[str, object]:
    if not isinstance(patch, Mapping):
        raise InvalidValue([Issue("", f"a patch of the memory is an object, not {type(patch).__name__}")])
    return _safe(dict(patch), "", DEPTH)  # type: ignore[return-value]


def _safe(value: object, path: str, room: int) -> object:
    """A copy of *value*, which JSON would give back as it is. InvalidValue, with the path, where it would not."""
    if room == 0:
        raise InvalidValue([Issue(path, f"nested more than {DEPTH} deep")])
    if value is None or type(value) is bool or (type(value) is float and isfinite(value)):
        return value
    if type(value) is int and LEAST < value < GREATEST:
        return value
    if type(value) is str and well_formed(value) is value:
        return value
    if type(value) is list:
        return [_safe(each, step(path, index), room - 1) for index, each in enumerate(value)]
    if type(value) is dict and all([type(key) is str and well_formed(key) is key for key in value]):
        return {key: _safe(each, step(path, key), room - 1) for key, each in value.items()}
    raise InvalidValue([Issue(path, f"{type(value).__name__} does not come back from JSON as it is; use plain values")])
