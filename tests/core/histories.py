"""Histories in few words: facts for the tests of the core, with everything that a test does not speak of filled in."""

from __future__ import annotations

from turnwright.facts import (
    ApprovalDecided,
    ApprovalRequested,
    CallAdmitted,
    CallFinished,
    CallStarted,
    Fact,
    ModelAnswered,
    ModelAsked,
    RunOpened,
    TurnStarted,
)
from turnwright.messages import AssistantMessage, StopReason, Text, ToolCall, UserMessage

__all__ = [
    "admitted",
    "answered",
    "approved",
    "asked",
    "calling",
    "done",
    "opened",
    "requested",
    "started",
    "turn",
]

DIGEST = "d" * 64


def opened(*, max_turns: int = 8) -> RunOpened:
    """The run `r` of somebody who said `go`."""
    return RunOpened("r", "agent", "f", "go", (UserMessage("go"),), max_turns, None, "salt")


def turn(number: int, *delivered: int) -> list[Fact]:
    """A turn begins, and the model is asked."""
    return [TurnStarted(number, delivered), asked(number)]


def asked(number: int, attempt: int = 1) -> ModelAsked:
    """The model is asked."""
    return ModelAsked(number, attempt, "auto")


def answered(number: int, *parts: Text | ToolCall, attempt: int = 1, stop: StopReason = "stop") -> ModelAnswered:
    """The model answers."""
    return ModelAnswered(number, attempt, AssistantMessage(parts, stop), 0.0)


def calling(*names: str) -> list[ToolCall]:
    """Calls of tools by these names, with ids of the same names."""
    return [ToolCall(name, name, "{}") for name in names]


def admitted(number: int, index: int, name: str, *, needs: int = 0) -> CallAdmitted:
    """A call is admitted; with *needs*, somebody of that level must approve."""
    return CallAdmitted(number, index, name, {}, DIGEST, needs)


def requested(number: int, index: int) -> ApprovalRequested:
    """Somebody is asked."""
    return ApprovalRequested(number, index, f"r:{number}.{index}", DIGEST, None)


def approved(number: int, index: int, *, yes: bool = True, reason: str = "") -> ApprovalDecided:
    """Somebody decides."""
    return ApprovalDecided(number, index, yes, DIGEST, "ada", reason)


def started(number: int, index: int, attempt: int = 1) -> CallStarted:
    """A call is started."""
    return CallStarted(number, index, attempt, f"r:{number}.{index}")


def done(number: int, index: int, output: str = "done", *, attempt: int = 1, error: bool = False) -> CallFinished:
    """A call has its result."""
    return CallFinished(number, index, attempt, output, (Text(output),), error, 0.0)
