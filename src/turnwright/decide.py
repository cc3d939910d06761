"""Read a state and say what comes next. Rule: no I/O, no clock, no randomness, no user code; the same state, the same
answer.

`decide` is asked between waves only, so an intent without a result means that its performer is gone: a crash, an
interruption and a hand-over to another process look the same here, and a fresh run is the case in which nothing was
lost.

    ended or suspended            nothing: the run is at rest
    a request without answer      it is lost; ask again
    `cancel` was said             end, with the effects in doubt
    calls of the last answer      admit, ask for approval, execute, recover; then wait for people or go on
    an answer without calls       check it as output, unless somebody still has something to say
    otherwise                     the next turn, or its next attempt, within the limits
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TypeVar

from attrs import evolve as replace, frozen

from turnwright.commands import (
    AdmitCalls,
    AskModel,
    CheckOutput,
    Command,
    ConsultBoundary,
    ExecuteCall,
    Reconcile,
    RequestApproval,
)
from turnwright.definition import AgentDefinition, AnyDefinition
from turnwright.errors import InvalidValue
from turnwright.facts import (
    ApprovalDecided,
    ApprovalRequested,
    CallInDoubt,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    Fault,
    InboxReceived,
    ModelAsked,
    ModelLost,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunSuspended,
    SuspendReason,
    TurnStarted,
)
from turnwright.inbox import Approve, Cancel, Deny, FollowUp, LateResult, Resolve, Steer, Withdraw, Word
from turnwright.messages import AssistantMessage, ToolCall
from turnwright.outcomes import Cancelled, Completed, Failed, Outcome, Pending, Suspended
from turnwright.state import CallState, RunState
from turnwright.tools import DidNotHappen, Happened, Tool, bounded, parts_of_output

__all__ = ["AT_REST", "Rest", "Wave", "decide", "may_resume", "pending_calls", "receive", "resolution", "standing"]

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

TRUNCATED = (
    "not executed: the answer was cut at the output limit, so these arguments may be incomplete. "
    "Issue the call again with complete arguments."
)


@frozen
class Wave:
    """What happens next: *facts* are appended first, then all *commands* are performed together."""

    facts: tuple[Fact, ...] = ()
    commands: tuple[Command, ...] = ()


@frozen
class Rest:
    """Nothing is left to do until somebody says something; `standing` tells how the run stands."""


AT_REST = Rest()


def decide(definition: AnyDefinition, state: RunState) -> Wave | Rest:
    """Say what comes next for a run of *definition* that stands at *state*."""
    if state.ended is not None or state.suspended is not None:
        return AT_REST
    return _next(definition, state)


def _next(definition: AnyDefinition, state: RunState) -> Wave:
    if state.asked is not None:
        return Wave((ModelLost(state.asked.turn, state.asked.attempt),))
    if state.cancel is not None:
        return _cancelled(state, state.cancel)
    if state.open_calls:
        return _calls(definition, state)
    if state.answer is not None and not state.steering and not state.follow_ups:
        if definition.boundary is not None and state.boundary is None:
            return Wave((), (ConsultBoundary(state.turn + 1, ending=True),))
        if state.boundary is None or not state.boundary.messages:
            return _answer(state, state.answer)
    if state.rejections > definition.repairs:
        return Wave((RunFailed(Fault("output", "no valid output within the repair budget", state.issues)),))
    return _ask(definition, state)


def _cancelled(state: RunState, word: Cancel) -> Wave:
    doubted = [call for call in state.calls if call.started is not None and call.result is None]
    facts = [
        CallInDoubt(call.turn, call.index, call.started.attempt, "cancelled")
        for call in doubted
        if call.started and not call.doubt
    ]
    effects = tuple([state.effect_id(call.turn, call.index) for call in doubted])
    return Wave((*facts, RunCancelled(effects, word.reason)))


def _answer(state: RunState, answer: AssistantMessage) -> Wave:
    if answer.stop_reason in ("refusal", "content_filter"):
        return Wave((_declined(answer),))
    return Wave((), (CheckOutput(state.turn, answer),))


def _declined(answer: AssistantMessage) -> RunFailed:
    said = "".join([part.text for part in answer.parts if part.type == "refusal"]) or answer.text
    return RunFailed(Fault(answer.stop_reason, said[:1000] or "the model declined to answer"))


def _ask(definition: AnyDefinition, state: RunState) -> Wave:
    if state.failure is not None and not (state.failure.kind == "malformed" and state.malformed <= definition.repairs):
        return _suspend("model", state.failure.kind, state.failure.message)
    turn = state.turn if not state.answered else state.turn + 1
    if state.terminated and not state.steering and not state.follow_ups:
        return _suspend("external", "terminated")
    if turn > state.max_turns:
        return _suspend("max_turns")
    exhausted = _exhausted(definition, state)
    if exhausted:
        return _suspend("budget", exhausted)
    between = definition.boundary is not None and state.answered and state.turn > 0
    if between and state.boundary is None:
        return Wave((), (ConsultBoundary(turn),))
    if state.boundary is not None and state.boundary.stop:
        return _suspend("external", "stopped")
    if isinstance(definition.tool_choice, str):
        choice = definition.tool_choice
    elif state.tool_choice is None:
        return Wave((), (ConsultBoundary(turn),))
    else:
        choice = state.tool_choice
    attempt = state.attempts + 1 if turn == state.turn else 1
    asked = ModelAsked(turn, attempt, choice)
    command = AskModel(turn, attempt, choice)
    return Wave((asked,) if turn == state.turn else (TurnStarted(turn, _delivered(state)), asked), (command,))


def _delivered(state: RunState) -> tuple[int, ...]:
    """All steering; a follow-up, with its batch, only where the run would otherwise have ended."""
    if state.steering or not state.follow_ups or (state.answer is None and not state.terminated):
        return tuple(state.steering)
    first, *others = state.follow_ups
    batch = state.follow_ups[first].batch
    alike = takewhile(lambda position: batch is not None and batch == state.follow_ups[position].batch, others)
    return (first, *alike)


def _exhausted(definition: AnyDefinition, state: RunState) -> str:
    """The axis of the definition's own limits that allows no further request, empty if none does."""
    limits, used = definition.limits, state.tokens
    if limits.requests is not None and state.requests >= limits.requests:
        return "requests"
    if limits.input_tokens is not None and used.input_tokens >= limits.input_tokens:
        return "input_tokens"
    if limits.output_tokens is not None and used.output_tokens >= limits.output_tokens:
        return "output_tokens"
    return ""


def _suspend(reason: SuspendReason, detail: str = "", message: str = "") -> Wave:
    return Wave((RunSuspended(reason, detail, message),))


def _calls(definition: AnyDefinition, state: RunState) -> Wave:
    fresh = tuple([(call.index, call.part) for call in state.calls if call.admitted is None and call.result is None])
    if fresh:
        return _admit(state, fresh)
    facts: list[Fact] = []
    commands: list[Command] = []
    allowance = definition.limits.tool_calls
    left = len(state.calls) if allowance is None else allowance - state.tool_calls
    denied = earlier_open = held = False
    room = definition.limits.calls_at_once
    for call in state.calls:
        if call.result is not None:
            continue
        if room is not None and sum([isinstance(command, ExecuteCall) for command in commands]) >= room:
            break
        assert call.admitted is not None
        tool = definition.toolbox.get(call.admitted.name)
        if call.doubt is None and call.admitted.contract not in ("", definition.contracts.get(call.admitted.name)):
            facts.append(_void(call))
            continue
        if call.admitted.needs_approval and call.requested is None:
            _ask_approval(definition, state, call, facts, commands)
        # A sequential call waits for every earlier one, and every later one waits for it.
        sequential = tool is not None and tool.sequential
        held = held or (sequential and earlier_open)
        earlier_open = True
        if call.started is not None and call.doubt is None:
            _recover(state, call, tool, facts, commands)
        elif call.may_run and not held:
            requested = call.requested
            if requested is not None and requested.expires_at is not None and state.now >= requested.expires_at:
                why = "not executed: the approval expired before the call could run"
                facts.append(CallRefused(call.turn, call.index, "approval", why))
            elif left > 0:
                left -= 1
                _execute(state, call, 1, facts, commands)
            else:
                denied = True
        held = held or sequential
    if facts or commands:
        return Wave(tuple(facts), tuple(commands))
    if denied:
        return _suspend("budget", "tool_calls")
    return _suspend("approval" if any([call.waits for call in state.calls]) else "in-doubt")


def _admit(state: RunState, fresh: tuple[tuple[int, ToolCall], ...]) -> Wave:
    answer = state.transcript[-1]
    assert isinstance(answer, AssistantMessage)
    if answer.stop_reason in ("refusal", "content_filter"):
        return Wave((_declined(answer),))
    if answer.stop_reason == "length":
        return Wave(tuple([CallRefused(state.turn, index, "truncated", TRUNCATED) for index, _ in fresh]))
    return Wave((), (AdmitCalls(state.turn, fresh),))


def _ask_approval(
    definition: AnyDefinition, state: RunState, call: CallState, facts: list[Fact], commands: list[Command]
) -> None:
    assert call.admitted is not None
    effect_id = state.effect_id(call.turn, call.index)
    expires_at = None if definition.approval_seconds is None else state.now + definition.approval_seconds
    request = ApprovalRequested(call.turn, call.index, effect_id, call.admitted.digest, expires_at)
    facts.append(request)
    commands.append(RequestApproval(call.admitted, request))


def _void(call: CallState) -> CallInDoubt | CallRefused:
    """A call whose contract is another now is not run under it: neither for the first time nor again."""
    if call.started is not None:
        return CallInDoubt(call.turn, call.index, call.started.attempt, "started under another contract of the tool")
    why = "not executed: the tool's contract changed while the call waited. Issue it again if it is still right."
    return CallRefused(call.turn, call.index, "approval", why)


def _execute(state: RunState, call: CallState, attempt: int, facts: list[Fact], commands: list[Command]) -> None:
    assert call.admitted is not None
    effect_id = state.effect_id(call.turn, call.index)
    facts.append(CallStarted(call.turn, call.index, attempt, effect_id))
    commands.append(ExecuteCall(call.admitted, attempt, effect_id))


def _recover(
    state: RunState, call: CallState, tool: Tool[..., object] | None, facts: list[Fact], commands: list[Command]
) -> None:
    """Apply the tool's replay policy to a call that was started and whose result is unknown."""
    assert call.started is not None and call.admitted is not None
    attempt = call.started.attempt
    if tool is not None and tool.replay != "never" and attempt < tool.max_attempts:
        _execute(state, call, attempt + 1, facts, commands)
    elif tool is not None and tool.reconcile is not None:
        commands.append(Reconcile(call.admitted, call.started.effect_id))
    else:
        why = (
            "started, and no result was recorded"
            if tool is None or tool.replay == "never"
            else f"no result after {attempt} attempts"
        )
        facts.append(CallInDoubt(call.turn, call.index, attempt, why))


def may_resume(
    definition: AnyDefinition, state: RunState, *, max_turns: int, now: float, deadline: float | None
) -> bool:
    """Whether a suspended run has anything to do: what it waited for came, or was never in the run's own hands."""
    assert state.suspended is not None
    if state.cancel is not None:
        return True
    match state.suspended.reason:
        case "max_turns":
            return state.turn < max_turns or _next(definition, state).facts != (state.suspended,)
        case "budget" if state.suspended.detail == "deadline":
            return deadline is None or now < deadline
        case "approval" | "in-doubt" | "budget":
            return _next(definition, state).facts != (state.suspended,)
        case "definition":
            return state.fingerprint == definition.fingerprint
        case "model" | "cancelled" | "external":
            return True


def receive(definition: AnyDefinition, state: RunState, position: int, word: Word, *, now: float) -> tuple[Fact, ...]:
    """Say what *word* changes: the facts that follow from it, the first of which records it."""
    match word:
        case Steer() | FollowUp() | Cancel() | LateResult():
            return (InboxReceived(position, word),)
        case Withdraw(id):
            queued: list[Steer | FollowUp] = [*state.steering.values(), *state.follow_ups.values()]
            waits = any([id == each.id for each in queued])
            return (InboxReceived(position, word, "" if waits else f"no message {id!r} waits"),)
        case Approve() | Deny():
            return _receive_decision(state, position, word, now)
        case Resolve():
            return _receive_resolution(definition, state, position, word)


def _receive_decision(state: RunState, position: int, word: Approve | Deny, now: float) -> tuple[Fact, ...]:
    call = state.call(word.effect_id)
    if call is None or not call.waits:
        return (InboxReceived(position, word, f"no call {word.effect_id!r} waits for approval"),)
    assert call.requested is not None and call.admitted is not None
    digest = call.requested.digest
    if call.requested.expires_at is not None and now >= call.requested.expires_at:
        expired = ApprovalDecided(call.turn, call.index, False, digest, None, "the request for approval expired")
        return (InboxReceived(position, word, "the request expired"), expired)
    if isinstance(word, Deny):
        return (
            InboxReceived(position, word),
            ApprovalDecided(call.turn, call.index, False, digest, word.by, word.reason),
        )
    if word.digest is not None and word.digest != digest:
        return (InboxReceived(position, word, "the digest is not that of the call's arguments"),)
    needed = call.admitted.needs_approval
    if needed > 1 and (word.level or 0) < needed:
        return (InboxReceived(position, word, f"approval of level {needed} is needed"),)
    return (InboxReceived(position, word), ApprovalDecided(call.turn, call.index, True, digest, word.by))


def _receive_resolution(definition: AnyDefinition, state: RunState, position: int, word: Resolve) -> tuple[Fact, ...]:
    call = state.call(word.effect_id)
    if call is None or call.doubt is None or call.result is not None:
        return (InboxReceived(position, word, f"no call {word.effect_id!r} is in doubt"),)
    tool = definition.toolbox.get(call.part.name)
    said = Happened(word.output) if word.happened else DidNotHappen()
    try:
        resolved = resolution(tool, call.turn, call.index, said, by=word.by)
    except InvalidValue as error:
        return (InboxReceived(position, word, f"the output is not what the tool returns: {error}"),)
    parts, output = bounded(resolved.parts, resolved.output, definition.limits.output_bytes)
    return (InboxReceived(position, word), replace(resolved, output=output, parts=parts))


def resolution(
    tool: Tool[..., object] | None, turn: int, index: int, said: Happened | DidNotHappen, *, by: str | None
) -> CallResolved:
    """The fact that settles a call in doubt. Raises InvalidValue for an output that the tool would not return."""
    match said:
        case Happened(output):
            if tool is not None and tool.output is not None:
                output = tool.output.accept(output)  # type: ignore[arg-type]
            return CallResolved(turn, index, True, output, parts_of_output(output), by)
        case DidNotHappen():
            message = "this call did not take effect; it may be issued again"
            return CallResolved(turn, index, False, message, parts_of_output(message), by)


def standing(
    definition: AgentDefinition[InputT, OutputT], state: RunState, head: Callable[[], str]
) -> Outcome[OutputT]:
    """Tell how a run at rest stands. *head* gives the head of its evidence chain."""
    assert state.opened is not None
    run_id, usage, transcript = state.opened.run_id, state.usage, state.transcript
    match state.ended:
        case RunCompleted(output):
            typed = definition.output_schema.load(output)  # type: ignore[arg-type]
            return Completed(run_id=run_id, usage=usage, transcript=transcript, head=head, output=typed)
        case RunFailed(fault):
            return Failed(run_id=run_id, usage=usage, transcript=transcript, head=head, error=fault)
        case RunCancelled(in_doubt, reason):
            return Cancelled(
                run_id=run_id, usage=usage, transcript=transcript, head=head, in_doubt=in_doubt, reason=reason
            )
        case None:
            waits = state.suspended
            assert waits is not None
            return Suspended(
                run_id=run_id,
                usage=usage,
                transcript=transcript,
                head=head,
                reason=waits.reason,
                pending=pending_calls(state),
                detail=waits.detail,
                message=waits.message,
            )


def pending_calls(state: RunState) -> tuple[Pending, ...]:
    """The calls that somebody has to decide over, or say what became of, in their order."""
    pending = []
    for call in state.calls:
        if call.result is not None or call.admitted is None:
            continue
        effect_id = state.effect_id(call.turn, call.index)
        name, arguments, digest = call.admitted.name, call.admitted.arguments, call.admitted.digest
        if call.doubt is not None:
            pending.append(Pending("in-doubt", effect_id, name, arguments, digest, why=call.doubt.why))
        elif call.waits and call.requested is not None:
            level, expires = call.admitted.needs_approval, call.requested.expires_at
            pending.append(Pending("approval", effect_id, name, arguments, digest, level, expires))
    return tuple(pending)
