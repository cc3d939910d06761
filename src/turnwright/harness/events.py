"""What a composed agent tells while it works: one closed union. Rule: `reduce` folds five of them; the rest are for
whoever renders.

    message, text, tool_use, tool_result, done      change what was said
    memory                                          changes what is remembered
    thinking, tool_input_delta, step, progress,
    surface, guardrail, trace, error                change nothing
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, TypeGuard, get_args

from attrs import field

from turnwright.messages import NO_USAGE, Part, Usage
from turnwright.outcomes import Pending
from turnwright.values import frozen

__all__ = [
    "PROGRESS_STAGES",
    "TRACE_PHASES",
    "AgentEvent",
    "DoneEvent",
    "ErrorEvent",
    "GuardrailEvent",
    "MemoryEvent",
    "MessageEvent",
    "ProgressEvent",
    "ProgressStage",
    "Said",
    "StepEvent",
    "SurfaceEvent",
    "TextEvent",
    "ThinkingEvent",
    "ToolInputDeltaEvent",
    "ToolResultEvent",
    "ToolUseEvent",
    "TraceEvent",
    "TracePhase",
    "TraceRecord",
    "is_progress_stage",
    "is_trace_phase",
]

ProgressStage: TypeAlias = Literal["sent", "started", "reasoning", "content", "validating", "retry", "tool", "done"]
TracePhase: TypeAlias = Literal["prompt", "request", "response", "tool", "workflow", "guardrail", "usage", "mcp"]

PROGRESS_STAGES: Final[tuple[ProgressStage, ...]] = get_args(ProgressStage)
"""What a turn can be at. Closed: label it from a table of your own, never with the word itself."""

TRACE_PHASES: Final[tuple[TracePhase, ...]] = get_args(TracePhase)
"""What a trace record can be about. Closed."""


def is_progress_stage(value: object) -> TypeGuard[ProgressStage]:
    """Whether *value*, read from a wire or a store, is one of the stages."""
    return isinstance(value, str) and value in PROGRESS_STAGES


def is_trace_phase(value: object) -> TypeGuard[TracePhase]:
    """Whether *value*, read from a wire or a store, is one of the phases."""
    return isinstance(value, str) and value in TRACE_PHASES


class Said:
    """A text as it was when *count* of its *pieces* were known. Nothing is joined until somebody asks."""

    __slots__ = ("_count", "_pieces")

    def __init__(self, pieces: list[str], count: int) -> None:
        self._pieces = pieces
        self._count = count

    def __str__(self) -> str:
        return "".join(self._pieces[: self._count])

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Said) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _said(text: str | Said) -> Said:
    return text if isinstance(text, Said) else Said([text], 1)


@frozen
class MessageEvent:
    """Somebody said something, whole: the person, before the turn."""

    role: Literal["user"]
    text: str
    type: Literal["message"] = field(default="message", init=False, repr=False)


@frozen
class TextEvent:
    """A piece of the answer. An empty *text* replaces all that was shown of it by the *snapshot*."""

    text: str
    said: Said = field(converter=_said, alias="snapshot")
    type: Literal["text"] = field(default="text", init=False, repr=False)

    @property
    def snapshot(self) -> str:
        """The answer so far."""
        return str(self.said)


@frozen
class ThinkingEvent:
    """A piece of what the model thinks."""

    text: str
    type: Literal["thinking"] = field(default="thinking", init=False, repr=False)


@frozen
class ToolInputDeltaEvent:
    """A piece of the raw arguments of a call. No *snapshot* is parsed: it is not complete before the `tool_use`.

    The provider's *id* comes with the complete call, so this one names the call's place: its turn and its index.
    """

    id: str
    name: str
    partial: str
    said: Said = field(converter=_said, alias="snapshot")
    type: Literal["tool_input_delta"] = field(default="tool_input_delta", init=False, repr=False)

    @property
    def snapshot(self) -> str:
        """The raw text so far."""
        return str(self.said)


@frozen
class ToolUseEvent:
    """A complete call. *input* is the parsed object, or the raw text where that is no JSON."""

    id: str
    name: str
    input: object
    signature: str | None = field(default=None, repr=False)
    place: str = ""
    """The id under which the pieces of its arguments were told."""
    type: Literal["tool_use"] = field(default="tool_use", init=False, repr=False)


@frozen
class ToolResultEvent:
    """What came of a call, as the model sees it; *parts* where that is more than text."""

    id: str
    name: str
    output: str
    is_error: bool = False
    parts: Sequence[Part] = ()
    type: Literal["tool_result"] = field(default="tool_result", init=False, repr=False)


@frozen
class StepEvent:
    """A step of a workflow begins (without *data*), or has its verdict (in *data*)."""

    workflow: str
    step: str
    data: object = None
    type: Literal["step"] = field(default="step", init=False, repr=False)


@frozen
class ProgressEvent:
    """The turn reached *stage*."""

    stage: ProgressStage
    type: Literal["progress"] = field(default="progress", init=False, repr=False)


@frozen
class SurfaceEvent:
    """One wire line for a surface that somebody else renders."""

    surface_id: str
    line: str
    type: Literal["surface"] = field(default="surface", init=False, repr=False)


@frozen
class GuardrailEvent:
    """A guardrail did not let something pass as it was."""

    name: str
    target: Literal["tool_call", "output"]
    action: Literal["rewrite", "deny"]
    reason: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    type: Literal["guardrail"] = field(default="guardrail", init=False, repr=False)


@frozen
class TraceRecord:
    """What the harness did: *at* is in seconds since 1970, *data* is JSON."""

    phase: TracePhase
    name: str
    at: float
    session_id: str = ""
    data: Mapping[str, object] = field(factory=dict)


@frozen
class TraceEvent:
    """A trace record, also on the stream."""

    record: TraceRecord
    type: Literal["trace"] = field(default="trace", init=False, repr=False)


@frozen
class MemoryEvent:
    """Somebody asks the session to remember; see `remember`."""

    patch: Mapping[str, object]
    type: Literal["memory"] = field(default="memory", init=False, repr=False)


@frozen
class DoneEvent:
    """The turn is over. *stop_reason* is the provider's own word, `max_tool_rounds` or `guardrail_denied`."""

    text: str
    usage: Usage = NO_USAGE
    stop_reason: str = "stop"
    run_id: str = ""
    type: Literal["done"] = field(default="done", init=False, repr=False)


@frozen
class ErrorEvent:
    """The turn came to nothing, or waits for somebody.

    *code* is why: the reason of a suspension, or the code of a failure. *pending* is what it waits for; `send` with the
    *run_id* and decisions goes on.
    """

    error: str
    code: str = ""
    run_id: str = ""
    pending: tuple[Pending, ...] = ()
    type: Literal["error"] = field(default="error", init=False, repr=False)


AgentEvent: TypeAlias = (
    MessageEvent
    | TextEvent
    | ThinkingEvent
    | ToolInputDeltaEvent
    | ToolUseEvent
    | ToolResultEvent
    | StepEvent
    | ProgressEvent
    | SurfaceEvent
    | GuardrailEvent
    | TraceEvent
    | MemoryEvent
    | DoneEvent
    | ErrorEvent
)
