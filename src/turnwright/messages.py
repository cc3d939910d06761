"""What people, models and tools say: parts, messages, usage, and the transcript that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from types import NoneType
from typing import Final, Literal, TypeAlias, get_args, get_type_hints, overload

from attrs import field, fields

from turnwright.values import frozen

__all__ = [
    "NO_USAGE",
    "AssistantMessage",
    "File",
    "Image",
    "Message",
    "Part",
    "Reasoning",
    "Refusal",
    "StopReason",
    "Text",
    "ToolCall",
    "ToolMessage",
    "Transcript",
    "Usage",
    "UserMessage",
    "flaw",
    "flaw_of_parts",
]


@frozen
class Text:
    """Plain text. *signature* is a provider's opaque mark, sent back to that provider unchanged."""

    text: str
    signature: str | None = None
    type: Literal["text"] = field(default="text", init=False, repr=False)


@frozen
class Image:
    """A picture: *data* in base64, or the *url* of one; exactly one of the two."""

    media_type: str
    data: str | None = field(default=None, repr=False)
    url: str | None = None
    type: Literal["image"] = field(default="image", init=False, repr=False)


@frozen
class File:
    """A document: *data* in base64, the *url* of one, or the *id* under which a provider has it; one of the three.

    An id means something to the provider that gave it, and to no other. *name* is what people call the file.
    """

    media_type: str
    data: str | None = field(default=None, repr=False)
    url: str | None = None
    id: str | None = None
    name: str | None = None
    type: Literal["file"] = field(default="file", init=False, repr=False)


@frozen
class Reasoning:
    """What the model thought. *signature* is opaque and goes back unchanged; *redacted* text is not readable."""

    text: str
    signature: str | None = field(default=None, repr=False)
    redacted: bool = False
    type: Literal["reasoning"] = field(default="reasoning", init=False, repr=False)


@frozen
class Refusal:
    """The provider's own way of saying that the model will not answer."""

    text: str
    type: Literal["refusal"] = field(default="refusal", init=False, repr=False)


@frozen
class ToolCall:
    """One tool call as the model wrote it.

    *arguments* is the raw JSON text: it may be malformed, and is parsed at admission only. *id* is the provider's; it
    repeats across turns with some, so the engine never takes it for the call's identity.
    """

    id: str
    name: str
    arguments: str
    signature: str | None = field(default=None, repr=False)
    type: Literal["tool_call"] = field(default="tool_call", init=False, repr=False)


Part: TypeAlias = Text | Image | File | Reasoning | Refusal | ToolCall

StopReason: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "content_filter", "error", "aborted"]
"""`error` and `aborted` are no answers of a model: they mark what a transcript shows of an attempt that failed."""


@frozen
class Usage:
    """What was used, in tokens and counts.

    *input_tokens* holds only what was not read from or written to a cache; *output_tokens* includes *reasoning_tokens*.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    tool_calls: int = 0

    @property
    def total_tokens(self) -> int:
        """All tokens that a provider bills: input, cache reads, cache writes and output."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.tool_calls + other.tool_calls,
        )


NO_USAGE: Final = Usage()


def _parts(content: str | Sequence[Part]) -> tuple[Part, ...]:
    return (Text(content),) if isinstance(content, str) else tuple(content)


@frozen
class UserMessage:
    """What a person, or the engine on a person's behalf, says to the model.

    With a *kind*, it is a message of your own, such as a notice or a bookmark, with *data* (JSON): it has its place in
    the transcript, and what the model sees of it, by default nothing, is for `Agent.convert_to_llm` to say.
    """

    parts: tuple[Part, ...] = field(converter=_parts)
    kind: str = ""
    data: object = None
    role: Literal["user"] = field(default="user", init=False, repr=False)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text(self.parts)


@frozen
class AssistantMessage:
    """One complete answer of a model.

    *stop_reason* is normalised, *raw_stop_reason* is the provider's own word. An answer that was cut off by a broken
    stream is never taken for one: it is a ModelError. *error* says what went wrong where the stop reason is `error`.
    """

    parts: tuple[Part, ...] = field(converter=_parts)
    stop_reason: StopReason = "stop"
    usage: Usage = NO_USAGE
    model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    raw_stop_reason: str | None = None
    error: str | None = None
    role: Literal["assistant"] = field(default="assistant", init=False, repr=False)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order in which the model wrote them."""
        return tuple([part for part in self.parts if type(part) is ToolCall])


@frozen
class ToolMessage:
    """The result of one tool call, as the model sees it. *call_id* is the provider's id of the call it answers."""

    call_id: str
    name: str
    parts: tuple[Part, ...] = field(converter=_parts)
    is_error: bool = False
    role: Literal["tool"] = field(default="tool", init=False, repr=False)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return _text(self.parts)


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


def _text(parts: tuple[Part, ...]) -> str:
    if len(parts) == 1 and type(parts[0]) is Text:
        return parts[0].text
    return "".join([part.text for part in parts if type(part) is Text])


def flaw(answer: object) -> str:
    """What is wrong with *answer* as the answer of a model, empty if nothing is.

    A model port is somebody else's code: what it gives is looked at once, before it is believed and written down.
    """
    if type(answer) is not AssistantMessage:
        return f"it is {type(answer).__name__}, not an AssistantMessage"
    reason: object = answer.stop_reason
    if not isinstance(reason, str) or reason not in _STOP_REASONS:
        return f"stop_reason is {reason!r:.40}"
    wrong, usage = _misshapen(answer) or flaw_of_parts(answer.parts), answer.usage
    if wrong or usage is NO_USAGE:
        return wrong
    wrong = _misshapen(usage) if type(usage) is Usage else f"usage is {usage!r:.40}"
    counts = () if wrong else (getattr(usage, each.name) for each in fields(Usage))
    return wrong or ("" if all([0 <= count <= 2**53 for count in counts]) else "Usage counts below 0 or beyond 2**53")


def flaw_of_parts(parts: Sequence[object]) -> str:
    """What is wrong with the first of *parts* that is none, or that holds what it cannot; empty if nothing is."""
    for value in parts:
        kind: type = type(value)
        wrong = _misshapen(value) if kind in _PARTS else f"{kind.__name__} is no part"
        if wrong:
            return wrong
        sources = _SOURCES.get(kind, ())
        if sources and len([name for name in sources if getattr(value, name) is not None]) != 1:
            return f"{kind.__name__} has exactly one of {', '.join(sources)}"
    return ""


def _misshapen(value: object) -> str:
    kind: type = type(value)
    for name, kinds in _shape(kind):
        if type(getattr(value, name)) not in kinds:
            return f"{kind.__name__}.{name} is {type(getattr(value, name)).__name__}"
    return ""


@cache
def _shape(kind: type) -> tuple[tuple[str, tuple[object, ...]], ...]:
    """The fields of *kind* that hold something plain, and the exact types that each may have."""
    hints = get_type_hints(kind)
    held = [(each.name, get_args(hints[each.name]) or (hints[each.name],)) for each in fields(kind) if each.init]
    return tuple([(name, kinds) for name, kinds in held if {*kinds} <= {str, int, bool, NoneType}])


_STOP_REASONS: Final = frozenset(get_args(StopReason)) - {"error", "aborted"}
_SOURCES: Final[dict[type, tuple[str, ...]]] = {Image: ("data", "url"), File: ("data", "url", "id")}
_PARTS: Final = frozenset(get_args(Part))


class Transcript(Sequence[Message]):
    """All messages of a run so far; an immutable sequence that grows in constant time.

    `append` gives a longer transcript that shares its storage with this one, so a turn costs the same at the start of a
    run and after hundreds of turns. Appending twice to the same transcript copies once and keeps both true.
    """

    __slots__ = ("_length", "_messages", "answers")

    answers: int
    """How many assistant messages it holds."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._messages = list(messages)
        self._length = len(self._messages)
        self.answers = sum([type(message) is AssistantMessage for message in self._messages])

    def append(self, message: Message) -> Transcript:
        """Return a transcript that ends with *message*."""
        longer = Transcript.__new__(Transcript)
        fits = len(self._messages) == self._length
        longer._messages = self._messages if fits else self._messages[: self._length]
        longer._messages.append(message)
        longer._length = self._length + 1
        longer.answers = self.answers + (type(message) is AssistantMessage)
        return longer

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        return islice(self._messages, self._length)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple([self._messages[place] for place in range(*index.indices(self._length))])
        if not -self._length <= index < self._length:
            message = "transcript index out of range"
            raise IndexError(message)
        return self._messages[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<Transcript of {self._length} messages>"
