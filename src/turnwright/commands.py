"""What the core asks for, in the imperative. A wave of commands is performed together; each ends in facts."""

from __future__ import annotations

from typing import TypeAlias

from turnwright.facts import ApprovalRequested, CallAdmitted
from turnwright.messages import AssistantMessage, ToolCall
from turnwright.values import frozen

__all__ = [
    "AdmitCalls",
    "AskModel",
    "CheckOutput",
    "Command",
    "ConsultBoundary",
    "ExecuteCall",
    "Reconcile",
    "RequestApproval",
]


@frozen
class AskModel:
    """Ask the model for the answer of this turn."""

    turn: int
    attempt: int
    tool_choice: str


@frozen
class AdmitCalls:
    """Take the calls of one answer, in its order, through every stage that comes before approval."""

    turn: int
    calls: tuple[tuple[int, ToolCall], ...]


@frozen
class RequestApproval:
    """Ask whether the call may run with exactly these arguments."""

    call: CallAdmitted
    request: ApprovalRequested


@frozen
class ExecuteCall:
    """Run the tool."""

    call: CallAdmitted
    attempt: int
    effect_id: str


@frozen
class Reconcile:
    """Ask the tool's own `reconcile` what became of a call in doubt."""

    call: CallAdmitted
    effect_id: str


@frozen
class CheckOutput:
    """Hold the answer against the output type and the definition's checks."""

    turn: int
    answer: AssistantMessage


@frozen
class ConsultBoundary:
    """Ask the definition's own code about the coming turn; *ending*: there will be none unless it says so."""

    turn: int
    ending: bool = False


Command: TypeAlias = AskModel | AdmitCalls | RequestApproval | ExecuteCall | Reconcile | CheckOutput | ConsultBoundary
