"""What an agent asks its owner's code, and what it shows it. Every hook may be a plain function or an async one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from attrs import frozen

from turnwright.definition import Block, Rewrite
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from turnwright.ports import Model
from turnwright.tools import Tool, ToolOutput

__all__ = [
    "AfterToolCall",
    "BeforeToolCall",
    "ConvertToLlm",
    "GetApiKey",
    "GetContinuationMessages",
    "Listener",
    "NextTurn",
    "PrepareNextTurn",
    "ShouldStopAfterTurn",
    "ShouldStopBeforeTurn",
    "Signal",
    "ToolCallContext",
    "TransformContext",
    "TurnContext",
]

T = TypeVar("T")
Maybe: TypeAlias = T | Awaitable[T]


class Signal(Protocol):
    """Says that the run was aborted. It is set once and belongs to one run."""

    def is_set(self) -> bool:
        """Whether the run was aborted."""
        ...

    async def wait(self) -> object:
        """Return when it is."""
        ...


@frozen
class ToolCallContext:
    """One tool call: *call* as the model wrote it in *message*, *arguments* as they were validated."""

    message: AssistantMessage
    call: ToolCall
    tool: Tool[..., object]
    arguments: object
    messages: Sequence[Message]


@frozen
class TurnContext:
    """A turn that is over: its *message*, its results in the order of the calls, and all that was said."""

    message: AssistantMessage | None
    tool_results: tuple[ToolMessage, ...]
    messages: Sequence[Message]
    new_messages: Sequence[Message]
    """Those of this run."""


@frozen
class NextTurn:
    """What the rest of the run does otherwise; None keeps what is.

    No journal holds it: a run that is taken up in another process is as the agent there was made, until the hook is
    asked again at its next boundary.
    """

    model: Model | None = None
    system_prompt: str | None = None
    messages: Sequence[Message] | None = None
    thinking_level: str | None = None


Listener: TypeAlias = Callable[[LifecycleEvent, Signal], Awaitable[object] | object]
TransformContext: TypeAlias = Callable[[Sequence[Message], Signal], Maybe[Sequence[Message]]]
ConvertToLlm: TypeAlias = Callable[[Sequence[Message]], Maybe[Sequence[Message]]]
GetApiKey: TypeAlias = Callable[[str], Maybe[str | None]]
BeforeToolCall: TypeAlias = Callable[[ToolCallContext, Signal], Maybe[str | Block | Rewrite | None]]
AfterToolCall: TypeAlias = Callable[[ToolCallContext, ToolOutput, Signal], Maybe[ToolOutput | None]]
ShouldStopAfterTurn: TypeAlias = Callable[[TurnContext, Signal], Maybe[bool]]
ShouldStopBeforeTurn: TypeAlias = Callable[[], bool]
PrepareNextTurn: TypeAlias = Callable[[TurnContext, Signal], Maybe[NextTurn | None]]
GetContinuationMessages: TypeAlias = Callable[[TurnContext, Signal], Maybe[Sequence[UserMessage]]]
