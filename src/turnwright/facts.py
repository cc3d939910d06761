"""What happened in a run, in the past tense. Rule: facts are immutable JSON values, and the journal of them is the
only truth.

A call is (turn, index): the place of a tool call in the turn's answer. Times are seconds: *deadline* and *expires_at*
of the store's clock since 1970, *seconds* a duration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import field

from turnwright.errors import ModelErrorKind
from turnwright.inbox import Word
from turnwright.messages import NO_USAGE, AssistantMessage, Part, Usage, UserMessage
from turnwright.values import frozen

__all__ = [
    "ApprovalDecided",
    "ApprovalRequested",
    "BoundaryDecided",
    "CallAdmitted",
    "CallFinished",
    "CallInDoubt",
    "CallRefused",
    "CallResolved",
    "CallStarted",
    "Fact",
    "Fault",
    "InboxReceived",
    "ModelAnswered",
    "ModelAsked",
    "ModelFailed",
    "ModelLost",
    "OutputRejected",
    "RefusalStage",
    "RunCancelled",
    "RunCompleted",
    "RunFailed",
    "RunMigrated",
    "RunOpened",
    "RunResumed",
    "RunSuspended",
    "SuspendReason",
    "TurnStarted",
]

SuspendReason: TypeAlias = Literal[
    "approval", "budget", "model", "cancelled", "max_turns", "in-doubt", "definition", "external"
]

RefusalStage: TypeAlias = Literal[
    "truncated", "limit", "lookup", "prepare", "validate", "capability", "policy", "guard", "approval", "idempotency"
]


@frozen
class Fault:
    """A failure as data: a closed *code*, a bounded *message* without secrets, and the issues of an invalid value."""

    code: str
    message: str
    issues: tuple[str, ...] = ()


@frozen
class RunOpened:
    """The run exists. *salt* keys the digests of its evidence; *input* is JSON, *messages* is how the model sees it.

    *principal* is on whose behalf it acts, all its life. *base* is the fingerprint of the definition without its tools,
    *contracts* the digests of these by name: a definition that only has more tools may go on with the run.
    """

    run_id: str
    definition: str
    fingerprint: str
    input: object
    messages: tuple[UserMessage, ...]
    max_turns: int
    deadline: float | None
    salt: str
    principal: str = ""
    base: str = ""
    contracts: Mapping[str, str] = field(factory=dict)


@frozen
class InboxReceived:
    """A word was folded. *refused* says why it changed nothing, empty if it did."""

    position: int
    word: Word
    refused: str = ""


@frozen
class TurnStarted:
    """Turn *turn* began; *delivered* are the queued words, by inbox position, that entered the transcript with it."""

    turn: int
    delivered: tuple[int, ...] = ()


@frozen
class ModelAsked:
    """The intent of a model request."""

    turn: int
    attempt: int
    tool_choice: str


@frozen
class ModelAnswered:
    """A complete answer."""

    turn: int
    attempt: int
    message: AssistantMessage
    seconds: float


@frozen
class ModelFailed:
    """A definite failure of the model port. *parts* and *usage* are what had come of the answer, for people."""

    turn: int
    attempt: int
    kind: ModelErrorKind
    message: str
    retryable: bool
    seconds: float
    parts: tuple[Part, ...] = ()
    usage: Usage = NO_USAGE


@frozen
class ModelLost:
    """A request whose answer is unknown: its performer died or was interrupted. It may have been charged."""

    turn: int
    attempt: int


@frozen
class CallAdmitted:
    """A call passed every rule before approval; *arguments* are validated and defaulted, *digest* binds them."""

    turn: int
    index: int
    name: str
    arguments: object
    digest: str
    needs_approval: int
    """0: no approval; 1 and up: the level that the approver must have."""
    contract: str = ""
    """The digest of the tool's contract. A call runs under the contract that it was admitted under, or not at all."""


@frozen
class CallRefused:
    """A call that will not run; the model sees *message* as an error result. *terminate* as in CallFinished."""

    turn: int
    index: int
    stage: RefusalStage
    message: str
    terminate: bool = False


@frozen
class ApprovalRequested:
    """Somebody is asked about exactly these arguments."""

    turn: int
    index: int
    effect_id: str
    digest: str
    expires_at: float | None


@frozen
class ApprovalDecided:
    """The answer. A denial becomes an error result that gives *reason* to the model."""

    turn: int
    index: int
    approved: bool
    digest: str
    by: str | None
    reason: str = ""


@frozen
class CallStarted:
    """The intent of a tool execution; it consumes the approval."""

    turn: int
    index: int
    attempt: int
    effect_id: str


@frozen
class CallFinished:
    """A result. *is_error* with a `never` tool may still have had effects.

    When every result of a turn says *terminate*, the model is not asked about them.
    """

    turn: int
    index: int
    attempt: int
    output: object
    parts: tuple[Part, ...]
    is_error: bool
    seconds: float
    terminate: bool = False


@frozen
class CallInDoubt:
    """A call was started and what became of it is unknown."""

    turn: int
    index: int
    attempt: int
    why: str


@frozen
class CallResolved:
    """Somebody, or the tool's own `reconcile`, said what became of a call in doubt."""

    turn: int
    index: int
    happened: bool
    output: object
    parts: tuple[Part, ...]
    by: str | None


@frozen
class BoundaryDecided:
    """What the definition's own code decided before turn *turn*: how, with what else said, and whether at all."""

    turn: int
    tool_choice: str
    stop: bool = False
    messages: tuple[UserMessage, ...] = ()


@frozen
class OutputRejected:
    """The answer of *turn* is not valid output; the model sees *issues* and may repair it."""

    turn: int
    issues: tuple[str, ...]


@frozen
class RunSuspended:
    """The run waits. *detail* says for what within *reason*, in a closed word (`deadline`, an axis, an error kind)."""

    reason: SuspendReason
    detail: str = ""
    message: str = ""


@frozen
class RunResumed:
    """The run goes on, perhaps with new limits."""

    max_turns: int
    deadline: float | None


@frozen
class RunMigrated:
    """The run goes on under another, compatible definition."""

    fingerprint: str


@frozen
class RunCompleted:
    """The run ended with *output* (JSON)."""

    output: object


@frozen
class RunFailed:
    """The run ended without output."""

    fault: Fault


@frozen
class RunCancelled:
    """The run was ended by the word `cancel`; *in_doubt* are the effects whose result is unknown."""

    in_doubt: tuple[str, ...]
    reason: str = ""


Fact: TypeAlias = (
    RunOpened
    | InboxReceived
    | TurnStarted
    | ModelAsked
    | ModelAnswered
    | ModelFailed
    | ModelLost
    | CallAdmitted
    | CallRefused
    | ApprovalRequested
    | ApprovalDecided
    | CallStarted
    | CallFinished
    | CallInDoubt
    | CallResolved
    | BoundaryDecided
    | OutputRejected
    | RunSuspended
    | RunResumed
    | RunMigrated
    | RunCompleted
    | RunFailed
    | RunCancelled
)
