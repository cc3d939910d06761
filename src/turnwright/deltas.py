"""What a model says while it is still saying it. Rule: deltas are for people who watch; nothing is decided from them.

Each names its turn and attempt. A consumer that gets an `AttemptReset` drops what it showed of that turn's lost try.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import field

from turnwright.messages import Usage
from turnwright.values import frozen

__all__ = ["AttemptReset", "Delta", "ReasoningDelta", "TextDelta", "ToolCallDelta", "UsageDelta"]


@frozen
class TextDelta:
    """A piece of the answer's text."""

    turn: int
    attempt: int
    text: str
    type: Literal["text"] = field(default="text", init=False, repr=False)


@frozen
class ReasoningDelta:
    """A piece of what the model thinks."""

    turn: int
    attempt: int
    text: str
    type: Literal["reasoning"] = field(default="reasoning", init=False, repr=False)


@frozen
class ToolCallDelta:
    """A piece of the raw argument text of the call at *index*; *name* is known from its first piece on.

    The text is not parsed before the call is complete: what was shown of it is never more than raw text.
    """

    turn: int
    attempt: int
    index: int
    name: str
    text: str
    type: Literal["tool_call"] = field(default="tool_call", init=False, repr=False)


@frozen
class UsageDelta:
    """The usage of this attempt as far as the provider has told; each replaces the one before."""

    turn: int
    attempt: int
    usage: Usage
    type: Literal["usage"] = field(default="usage", init=False, repr=False)


@frozen
class AttemptReset:
    """The attempt is lost: drop what was shown of it. What comes of it afterwards is a try of a gateway's own, anew."""

    turn: int
    attempt: int
    type: Literal["attempt_reset"] = field(default="attempt_reset", init=False, repr=False)


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | UsageDelta | AttemptReset
