"""What is sent of a history. Rule: every call has its one result right after it, whatever was stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar
from weakref import ref

from attrs import evolve as replace

from turnwright.messages import AssistantMessage, Image, Message, Part, Text, ToolCall, ToolMessage
from turnwright.ports import OutputSpec
from turnwright_adapters._wire.json_text import encode

K = TypeVar("K")
V = TypeVar("V")

LOST_RESULT: Final = "(no result was recorded; the call may or may not have run)"

EMPTY_MESSAGE: Final = "(empty message)"
EMPTY_RESULT: Final = "(no tool output)"
ONLY_IMAGES: Final = "(see attached image)"
EARLIER: Final = "(the conversation goes on)"
"""What stands before an answer that a history begins with, for providers that want a user to begin."""


def paired(messages: Iterable[Message], *, apart: bool = False) -> Iterator[Message]:
    """Give *messages* so that every tool call is followed by its one result, in the order of the calls.

    A call without a result gets a neutral one, a second result for a call and a result without its call are left out,
    and what stood between a call and its result comes after. The calls of a message have distinct ids; *apart*, all
    calls of the history have.
    """
    calls: tuple[ToolCall, ...] = ()
    ids: list[str] = []
    taken: set[str] = set()
    results: dict[str, list[ToolMessage]] = {}
    others: list[Message] = []
    for message in messages:
        match message:
            case ToolMessage():
                if calls:
                    results.setdefault(message.call_id, []).append(message)
            case AssistantMessage():
                if calls:
                    yield from _closed(calls, ids, results)
                    yield from others
                    results = {}
                    others = []
                calls = message.calls
                ids = [call.id for call in calls]
                if len(ids) > 1 or (ids and apart):
                    ids = _distinct_ids(ids, taken if apart else set())
                    yield _with_ids(message, calls, ids)
                else:
                    yield message
            case _ if calls:
                others.append(message)
            case _:
                yield message
    yield from _closed(calls, ids, results)
    yield from others


def _closed(
    calls: Sequence[ToolCall], ids: Sequence[str], results: Mapping[str, list[ToolMessage]]
) -> Iterator[Message]:
    for call, id in zip(calls, ids, strict=True):
        found = results.get(call.id)
        result = found.pop(0) if found else ToolMessage(call.id, call.name, (Text(LOST_RESULT),))
        yield result if id == call.id else replace(result, call_id=id)


def _with_ids(message: AssistantMessage, calls: Sequence[ToolCall], ids: Sequence[str]) -> AssistantMessage:
    if all([call.id == id for call, id in zip(calls, ids, strict=True)]):
        return message
    left = iter(ids)
    parts = [replace(part, id=next(left)) if isinstance(part, ToolCall) else part for part in message.parts]
    return replace(message, parts=parts)


def _distinct_ids(given: Sequence[str], taken: set[str]) -> list[str]:
    """Return *given*, a number added to each that is *taken*. They are taken then."""
    ids: list[str] = []
    for place, id in enumerate(given):
        distinct, number = id, place
        while distinct in taken:
            distinct = f"{id}_{number}"
            number += 1
        taken.add(distinct)
        ids.append(distinct)
    return ids


def plain_text(parts: Iterable[Part], *, images: bool = False) -> str:
    """Return the text of *parts*, empty if it is blank; with *images* a placeholder for each run of images."""
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            pieces.append(part.text)
        elif images and isinstance(part, Image) and pieces[-1:] != [_NO_IMAGE]:
            pieces.append(_NO_IMAGE)
    text = "".join(pieces)
    return text if text.strip() else ""


_NO_IMAGE: Final = "(an image that this model cannot see)"


def prompted(output: OutputSpec) -> str:
    """Return the words that ask for *output* where its schema cannot be sent."""
    schema = encode(output.schema).decode()
    return f"Give your final answer as JSON alone, valid under this JSON Schema:\n{schema}"


class Remembered(Generic[K, V]):
    """What was made of values, by their identity, for as long as they live: it outlives no run's messages."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ref[K], V]] = {}

    def __len__(self) -> int:
        return len(self._made)

    def of(self, value: K, make: Callable[[K], V]) -> V:
        """Return what was made of *value*; the first time, *make* it."""
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        made, place, forget = make(value), id(value), self._made.pop
        self._made[place] = (ref(value, lambda _: forget(place, None)), made)
        return made
