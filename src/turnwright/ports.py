"""Every port as a Protocol with its promise in words, and `Ports`, the value that holds one of each.

Only `model` is required. Rule: this module says what the engine needs of the world and nothing of how it is done; the
in-memory and null adapters are in `memory.py`, the others in `turnwright_adapters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from attrs import field, frozen

from turnwright.messages import AssistantMessage, Message

if TYPE_CHECKING:
    from turnwright.deltas import Delta
    from turnwright.tools import ToolSpec

ToolChoice: TypeAlias = str
"""`auto`, `required`, `none`, or the name of the one tool that must be called."""


@frozen
class OutputSpec:
    """The shape that the final answer must have, as a JSON Schema whose root is an object."""

    name: str
    schema: Mapping[str, object]


@frozen
class ModelRequest:
    """All that a model port needs for one answer.

    *messages* may share storage with the run's transcript: read it, never keep it past the call. *options* are the
    definition's own (temperature, max_tokens, ...). *timeout* is what is left in seconds, None without a limit.
    *on_delta*, if given, may be called with each piece of the answer as it arrives; it is plain, quick and never raises.
    """

    run_id: str
    turn: int
    attempt: int
    instruction: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    output: OutputSpec | None = None
    options: Mapping[str, object] = field(factory=dict)
    timeout: float | None = None
    on_delta: Callable[[Delta], None] | None = field(default=None, eq=False, repr=False)


@runtime_checkable
class Model(Protocol):
    """A language model.

    ::

        answer = await model.complete(request)
        answer.text, answer.calls, answer.usage
    """

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError.

        A stream that was cut, or that never said that it is finished, is a ModelError and never a shorter answer. When the
        caller cancels, the request is closed before CancelledError leaves.
        """
        ...
