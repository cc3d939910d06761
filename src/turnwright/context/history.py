"""What a model is sent of a history. Rule: it is valid for every provider, and nothing stored changes.

    paired      over all messages: each call has its one result right after it, and what is no answer is left out
    fitted      of one message: nothing empty, no half characters, nobody else's signatures, no images for the blind,
                no files for who cannot read them
    repaired    both

Most messages are sound, and a sound one is given as it is, the same object: so what was made of it can be remembered.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import evolve as replace

from turnwright.canonical import well_formed
from turnwright.context.remembered import Remembered
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
)

__all__ = [
    "EARLIER",
    "EMPTY_MESSAGE",
    "EMPTY_RESULT",
    "LOST_RESULT",
    "NO_FILE",
    "NO_IMAGE",
    "Takes",
    "fitted",
    "in_words",
    "paired",
    "repaired",
    "text_of",
]

LOST_RESULT: Final = "(no result was recorded; the call may or may not have run)"
EMPTY_MESSAGE: Final = "(empty message)"
EMPTY_RESULT: Final = "(no tool output)"
NO_IMAGE: Final = "(an image that this model cannot see)"
NO_FILE: Final = "(a file that this model cannot read)"
EARLIER: Final = "(the conversation goes on)"
"""What stands before an answer that a history begins with, for providers that want a user to begin."""

LONGEST_NAME: Final = 200
"""How much is shown of the name or the address of a file that is not."""


Takes: TypeAlias = Callable[[Image | File], bool]
"""Says whether a model is sent an image or a file as it is."""


def repaired(
    messages: Iterable[Message], *, apart: bool = False, provider: str | None = None, takes: Takes | None = None
) -> Iterator[Message]:
    """Give *messages* as a model may be sent them: `paired`, and each of them `fitted`."""
    for message in paired(messages, apart=apart):
        if (fit := fitted(message, provider=provider, takes=takes)) is not None:
            yield fit


def paired(messages: Iterable[Message], *, apart: bool = False) -> Iterator[Message]:
    """Give *messages* so that every tool call is followed by its one result, in the order of the calls.

    A call without a result gets a neutral one, a second result for a call and a result without its call are left out,
    and what stood between a call and its result comes after. The calls of a message have distinct ids; *apart*, all
    calls of the history have. An attempt that failed or was aborted is no answer and is left out with the results of
    its calls, and so is a message with a kind, which is nobody's but its owner's.
    """
    taken: dict[str, int] = {}
    waiting: list[tuple[ToolCall, str]] = []  # calls without a result, each with the id it is to have, the last first
    early: dict[str, list[ToolMessage]] = {}  # results that came out of their turn
    others: list[Message] = []
    for message in messages:
        match message:
            case ToolMessage():
                if not waiting:
                    continue
                call, id = waiting[-1]
                if call.id != message.call_id or early:
                    early.setdefault(message.call_id, []).append(message)
                    continue
                yield message if id == call.id else _renamed(message, (id,))
                waiting.pop()
                if not waiting and others:
                    yield from others
                    others = []
            case AssistantMessage():
                if waiting:
                    yield from _closed(waiting, early)
                    yield from others
                    waiting, early, others = [], {}, []
                if message.stop_reason in _NO_ANSWER:
                    continue
                calls = message.calls
                if not calls:
                    yield message
                    continue
                ids = [call.id for call in calls]
                if len(ids) > 1 or apart:
                    given, ids = ids, _distinct_ids(ids, taken if apart else {})
                    yield message if ids == given else _renamed(message, tuple(ids))
                else:
                    yield message
                waiting = [*zip(calls, ids, strict=True)]
                waiting.reverse()
            case _ if message.kind:
                pass
            case _ if waiting:
                others.append(message)
            case _:
                yield message
    yield from _closed(waiting, early)
    yield from others


_NO_ANSWER: Final = frozenset({"error", "aborted"})


def _closed(waiting: Sequence[tuple[ToolCall, str]], early: Mapping[str, list[ToolMessage]]) -> Iterator[Message]:
    for call, id in reversed(waiting):
        found = early.get(call.id)
        result = found.pop(0) if found else ToolMessage(call.id, call.name, (Text(LOST_RESULT),))
        yield result if id == call.id else _renamed(result, (id,))


def _renamed(message: AssistantMessage | ToolMessage, ids: tuple[str, ...]) -> Message:
    """Return *message* with *ids* for those of its calls, or for that of the call it answers; the same object each
    time, so that a history of one id is no dearer than one of many.
    """
    known = _RENAMED.of(message, lambda _: {})
    if ids not in known:
        known.clear()
        known[ids] = _with(message, ids)
    return known[ids]


_RENAMED: Final[Remembered[Message, dict[tuple[str, ...], Message]]] = Remembered()


def _with(message: AssistantMessage | ToolMessage, ids: tuple[str, ...]) -> Message:
    if isinstance(message, ToolMessage):
        return replace(message, call_id=ids[0])
    left = iter(ids)
    parts = [replace(part, id=next(left)) if isinstance(part, ToolCall) else part for part in message.parts]
    return replace(message, parts=parts)


def _distinct_ids(given: Sequence[str], taken: dict[str, int]) -> list[str]:
    """Return *given*, a number added to each that is *taken*. They are taken then, and tell the next number to try."""
    ids: list[str] = []
    for place, id in enumerate(given):
        distinct = id
        if id in taken:
            number = max(place, taken[id])
            while distinct in taken:
                distinct = f"{id}_{number}"
                number += 1
            taken[id] = number
        taken[distinct] = 0
        ids.append(distinct)
    return ids


def fitted(message: Message, *, provider: str | None = None, takes: Takes | None = None) -> Message | None:
    """Return *message* as it may be sent, itself if nothing is wrong with it, None if there is nothing to send of it.

    Signatures are opaque and good for nobody but the provider that made them: those of another than *provider* are
    taken off, and thoughts that nobody can read without them are left out. For an image or a file that the model does
    not *takes*, words stand: the text of a file that holds text, else that it is there, once for a run of them. None
    takes all. A person's message and a result always say something, if only that they are empty; an answer of thoughts
    alone says nothing.
    """
    ours = not isinstance(message, AssistantMessage) or provider is None or message.provider in (None, provider)
    return message if _is_sound(message, ours=ours) else _mended(message, takes, ours=ours)


def _is_sound(message: Message, *, ours: bool) -> bool:
    """Say whether it is seen at a glance that nothing is wrong with *message*, as with most there is not."""
    speaks = False
    for part in message.parts:
        if type(part) is Text:
            text, speaks = part.text, True
        elif type(part) is ToolCall and type(message) is AssistantMessage:
            text, speaks = part.arguments or "{}", True
        elif type(part) is Reasoning and type(message) is AssistantMessage and ours:
            text = part.text
        else:
            return False
        if part.signature is not None and (type(message) is not AssistantMessage or not ours):
            return False
        if not text or text.isspace() or well_formed(text) is not text:
            return False
    return speaks


def _mended(message: Message, takes: Takes | None, *, ours: bool) -> Message | None:
    parts: list[Part] = []
    if isinstance(message, AssistantMessage):
        for part in message.parts:
            _add(parts, part if ours else _unsigned(part))
        if not any([_speaks(part) for part in parts]):
            return None
    else:
        for part in message.parts:
            if isinstance(part, Text):
                _add(parts, _unsigned(part))  # only a model signs
            elif isinstance(part, Image | File):
                _add_shown(parts, part, takes)
        if not parts:
            parts.append(Text(EMPTY_RESULT if isinstance(message, ToolMessage) else EMPTY_MESSAGE))
    same = len(parts) == len(message.parts) and all([a is b for a, b in zip(parts, message.parts, strict=True)])
    return message if same else replace(message, parts=parts)


def _add(parts: list[Part], part: Part) -> None:
    """Add *part* unless it is empty. White space of its own goes to the text before it, for no block may be blank."""
    match part:
        case ToolCall():
            arguments = well_formed(part.arguments)
            parts.append(part if arguments is part.arguments else replace(part, arguments=arguments))
        case Image() | File():  # no model's answer holds one that could be sent back
            pass
        case Refusal() if not part.text.strip():
            pass
        case Text() | Reasoning() if not part.text.strip() and not part.signature:
            last = parts[-1] if parts else None
            if isinstance(part, Text) and isinstance(last, Text) and last.text and not last.signature:
                parts[-1] = replace(last, text=last.text + part.text) if part.text else last
        case _:
            text = well_formed(part.text)
            parts.append(part if text is part.text else replace(part, text=text))


def _add_shown(parts: list[Part], shown: Image | File, takes: Takes | None) -> None:
    part = shown if takes is None or takes(shown) else in_words(shown)
    if part is shown or parts[-1:] != [part]:
        parts.append(part)


def in_words(shown: Image | File) -> Text:
    """Return what stands for *shown*: the text of a file that holds text, else that it is there, in one line."""
    if isinstance(shown, Image):
        return Text(NO_IMAGE)
    name = " ".join(well_formed(shown.name or shown.url or "").split())[:LONGEST_NAME]
    if (text := text_of(shown)) is not None:
        return Text(f"\nThe file{name and ' '}{name}:\n{text}\n")
    return Text(f"(the file {name}, which this model cannot read)" if name else NO_FILE)


def text_of(file: File) -> str | None:
    """Return the text that *file* holds, None if it holds none, is not here, or cannot be read as UTF-8."""
    if file.data is None or not _TEXTUAL.match(file.media_type):
        return None
    try:
        return b64decode(file.data, validate=True).decode()
    except ValueError:
        return None


_TEXTUAL: Final = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|toml)\b", re.ASCII | re.IGNORECASE)


def _unsigned(part: Part) -> Part:
    match part:
        case Reasoning(redacted=True):
            return Reasoning("")
        case Text() | Reasoning() | ToolCall() if part.signature is not None:
            return replace(part, signature=None)
        case _:
            return part


def _speaks(part: Part) -> bool:
    return isinstance(part, ToolCall | Refusal) or (isinstance(part, Text) and bool(part.text.strip()))
