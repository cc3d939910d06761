"""The account of a run: what ran, paused, was denied, retried, is in doubt, and what it used.

Rule: the evidence tells the story, and content only adds to it, so that a run whose content was erased has an account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, assert_never

from attrs import evolve as replace, frozen

from turnwright.canonical import encode, plain
from turnwright.cli.histories import History
from turnwright.errors import JournalError
from turnwright.evidence import Evidence
from turnwright.facts import (
    ApprovalDecided,
    ApprovalRequested,
    BoundaryDecided,
    CallAdmitted,
    CallFinished,
    CallInDoubt,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    InboxReceived,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLost,
    OutputRejected,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunMigrated,
    RunOpened,
    RunResumed,
    RunSuspended,
    TurnStarted,
)
from turnwright.heads import STATUSES, RunStatus
from turnwright.inbox import Approve, Cancel, Deny, FollowUp, LateResult, Resolve, Steer, Withdraw, Word
from turnwright.messages import AssistantMessage, Usage

__all__ = ["Account", "Chain", "OpenCall", "Step", "account"]

Openness: TypeAlias = Literal["approval", "approved", "started", "in-doubt"]

LEFT_OPEN: Final[Mapping[str, Openness]] = {
    "approval_requested": "approval",
    "call_started": "started",
    "call_in_doubt": "in-doubt",
}
"""How a call stands after evidence of that kind; approval is decided by its code."""

APPROVED: Final = "approved"

CLOSED: Final = frozenset({"call_refused", "call_finished", "call_resolved"})


@frozen
class Chain:
    """Whether the evidence holds together. *broken_at* is the first entry that does not, 0 if all do."""

    verified: bool
    head: str
    broken_at: int = 0
    message: str = ""


@frozen
class Step:
    """One entry: its evidence, in words, and what was said, which is empty where the content is gone."""

    evidence: Evidence
    told: str
    content: str


@frozen
class OpenCall:
    """A call without a result: it waits for approval, may run, was started, or is in doubt."""

    call: str
    tool: str
    standing: Openness
    arguments: object
    digest: str


@frozen
class Account:
    """All of it. *flaw* says which content cannot be read, and is empty where all can. *unread* are words that wait."""

    run_id: str
    definition: str
    status: RunStatus
    reason: str
    usage: Usage
    chain: Chain
    flaw: str
    steps: Sequence[Step]
    open_calls: Sequence[OpenCall]
    unread: Sequence[str]


def account(history: History) -> Account:
    """Give the account of a run."""
    evidence = [entry.evidence for entry in history.entries]
    opened, flaw = history.facts[0], "" if history.flaw is None else str(history.flaw)
    status: RunStatus = "running"
    reason = ""
    for entry, item in zip(history.entries, evidence, strict=True):
        if entry.kind in STATUSES:
            status, reason = STATUSES[entry.kind], item.code
    try:
        usage = history.state().usage
    except JournalError as error:
        usage, flaw = _counted(evidence), flaw or str(error)
    return Account(
        run_id=history.run_id,
        definition=opened.definition if isinstance(opened, RunOpened) else "",
        status=status,
        reason=reason,
        usage=usage,
        chain=_chain(history),
        flaw=flaw,
        steps=list(_steps(history, evidence)),
        open_calls=_open_calls(history, evidence),
        unread=[f"{word.type}: {_said(word)}" for _, word in history.unread],
    )


def _chain(history: History) -> Chain:
    try:
        return Chain(verified=True, head=history.verify())
    except JournalError as error:
        return Chain(verified=False, head="", broken_at=error.position, message=str(error))


def _counted(evidence: Sequence[Evidence]) -> Usage:
    kinds = [item.kind for item in evidence]
    return Usage(
        requests=kinds.count("model_asked"),
        input_tokens=sum([item.input_tokens for item in evidence]),
        output_tokens=sum([item.output_tokens for item in evidence]),
        tool_calls=kinds.count("call_started"),
    )


def _open_calls(history: History, evidence: Sequence[Evidence]) -> Sequence[OpenCall]:
    calls: dict[tuple[int, int], OpenCall] = {}
    for item, fact in zip(evidence, history.facts, strict=True):
        place = item.turn, item.index
        if item.kind == "call_admitted":
            arguments, digest = (fact.arguments, fact.digest) if isinstance(fact, CallAdmitted) else (None, "")
            calls[place] = OpenCall(_place(item), item.name, APPROVED, arguments, digest)
        elif item.kind in CLOSED or (item.kind, item.code) == ("approval_decided", "denied"):
            calls.pop(place, None)
        elif place in calls:
            calls[place] = replace(calls[place], standing=LEFT_OPEN.get(item.kind, APPROVED))
    return list(calls.values())


# --- in words


def _steps(history: History, evidence: Sequence[Evidence]) -> Iterator[Step]:
    names: dict[tuple[int, int], str] = {}
    for item, fact in zip(evidence, history.facts, strict=True):
        if item.name:
            names[item.turn, item.index] = item.name
        call = f"call {_place(item)}" if item.index >= 0 else ""
        if name := names.get((item.turn, item.index)):
            call = f"{call} ({name})"
        yield Step(item, _told(item, call), "" if fact is None else _content(fact))


def _place(item: Evidence) -> str:
    return f"{item.turn}.{item.index}"


def _told(item: Evidence, call: str) -> str:
    """Say what happened, by the evidence alone."""
    match item.kind:
        case "run_opened":
            return "opened"
        case "inbox_received" if item.code.endswith("_refused"):
            return f"refused the word {item.code.removesuffix('_refused')}"
        case "inbox_received":
            return f"heard the word {item.code}"
        case "turn_started":
            return f"turn {item.turn} began"
        case "model_asked":
            return "asked the model" if item.attempt == 1 else f"asked the model again (attempt {item.attempt})"
        case "model_answered":
            used = f"{item.input_tokens:,} tokens in, {item.output_tokens:,} out"
            return f"the model answered ({item.code}) after {item.ms:,} ms; {used}"
        case "model_failed":
            return f"the model failed ({item.code}) after {item.ms:,} ms"
        case "model_lost":
            return "the model's answer was lost; it may have been charged"
        case "call_admitted":
            return f"{call} may run once it is approved" if item.code == "approval" else f"{call} may run"
        case "call_refused":
            return f"{call} was refused ({item.code})"
        case "approval_requested":
            return f"{call} asked for approval"
        case "approval_decided":
            return f"{call} was {item.code}"
        case "call_started":
            return f"{call} started" if item.attempt == 1 else f"{call} started again (attempt {item.attempt})"
        case "call_finished":
            return f"{call} {'failed' if item.code == 'error' else 'finished'} after {item.ms:,} ms"
        case "call_in_doubt":
            return f"{call} is in doubt: nobody knows whether it took effect"
        case "call_resolved":
            return f"{call} was resolved: it {item.code.replace('_', ' ')}"
        case "boundary_decided":
            return "the definition's own code decided what follows"
        case "output_rejected":
            return "the answer was no valid output, and the model was told"
        case "run_suspended":
            return f"paused ({item.code})"
        case "run_resumed":
            return "went on"
        case "run_migrated":
            return "went on under another version of its definition"
        case "run_failed":
            return f"failed ({item.code})"
        case _:
            return item.kind.removeprefix("run_").replace("_", " ")


def _content(fact: Fact) -> str:
    """Say what was said, in full; whoever shows it bounds it."""
    match fact:
        case RunOpened():
            return _json(fact.input)
        case InboxReceived():
            return f"{_said(fact.word)}: {fact.refused}" if fact.refused else _said(fact.word)
        case ModelAnswered():
            return _spoken(fact.message)
        case CallAdmitted():
            return _json(fact.arguments)
        case ModelFailed() | CallRefused():
            return fact.message
        case ApprovalRequested():
            return f"digest {fact.digest}"
        case ApprovalDecided():
            return _by(fact.by, fact.reason)
        case CallFinished():
            return _json(fact.output)
        case CallInDoubt():
            return fact.why
        case CallResolved():
            return _by(fact.by, _json(fact.output))
        case BoundaryDecided():
            return "stop" if fact.stop else fact.tool_choice
        case OutputRejected():
            return "; ".join(fact.issues)
        case RunSuspended():
            return ": ".join(filter(None, [fact.detail, fact.message]))
        case RunMigrated():
            return fact.fingerprint
        case RunCompleted():
            return _json(fact.output)
        case RunFailed():
            return "; ".join([fact.fault.message, *fact.fault.issues])
        case RunCancelled():
            return fact.reason
        case TurnStarted() | ModelAsked() | ModelLost() | CallStarted() | RunResumed():
            return ""
        case _:
            assert_never(fact)


def _said(word: Word) -> str:
    match word:
        case Approve():
            return _by(word.by, word.effect_id)
        case Deny():
            return _by(word.by, f"{word.effect_id}: {word.reason}" if word.reason else word.effect_id)
        case Resolve():
            what = f"it returned {_json(word.output)}" if word.happened else "it did not happen"
            return _by(word.by, f"{word.effect_id}: {what}")
        case Cancel():
            return _by(word.by, word.reason)
        case Steer() | FollowUp():
            return word.message.text
        case Withdraw():
            return word.id
        case LateResult():
            return f"{word.effect_id}: {_json(word.output)}"
        case _:
            assert_never(word)


def _by(by: str | None, said: str) -> str:
    return ": ".join(filter(None, [f"by {by}" if by else "", said]))


def _spoken(message: AssistantMessage) -> str:
    calls = [f"{call.name} {call.arguments}" for call in message.calls]
    return "; ".join(filter(None, [message.text, *calls]))


def _json(value: object) -> str:
    return value if isinstance(value, str) else encode(plain(value)).decode()
