"""Fold a journal into a state. Rule: every transition lives in this file, and each costs the same however long the run.

`evolve` advances the state that it is given and returns it: the state belongs to the fold, nobody else holds it, and
nothing is copied. The same facts always fold to the same state (tests/core/test_state.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, evolve as replace, field

from turnwright.definition import RunCall
from turnwright.errors import JournalError
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
from turnwright.inbox import Cancel, FollowUp, Steer, Withdraw
from turnwright.messages import (
    NO_USAGE,
    AssistantMessage,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
)

__all__ = ["CallState", "RunState", "evolve", "fold"]


@define(eq=False)
class CallState:
    """One call of the current turn: how far it has come. It is open until *result* is set."""

    turn: int
    index: int
    part: ToolCall
    admitted: CallAdmitted | None = None
    requested: ApprovalRequested | None = None
    approved: bool = False
    started: CallStarted | None = None
    doubt: CallInDoubt | None = None
    result: ToolMessage | None = None
    made: RunCall | None = None
    """The finished call as the definition's own code sees it."""
    terminate: bool = False

    @property
    def may_run(self) -> bool:
        """Admitted, approved where that is needed, not started and without a result."""
        return (
            self.admitted is not None
            and self.result is None
            and self.started is None
            and (self.approved or not self.admitted.needs_approval)
        )

    @property
    def waits(self) -> bool:
        """Somebody was asked for approval and has not answered."""
        return self.requested is not None and not self.approved and self.result is None


@define(eq=False)
class RunState:
    """Where a run stands."""

    length: int = 0
    now: float = 0.0
    """When the newest fact was recorded: the only time that the decider knows."""
    opened: RunOpened | None = None
    fingerprint: str = ""
    max_turns: int = 0
    deadline: float | None = None
    turn: int = 0
    answered: bool = True
    """Whether the model gave its answer of this turn."""
    tool_choice: str | None = None
    boundary: BoundaryDecided | None = None
    """What was decided about the coming turn."""
    stopped: int = 0
    """The turn before which the run was stopped and resumed."""
    terminated: bool = False
    """Whether no result of the last turn needs another answer."""
    transcript: Transcript = field(factory=Transcript)
    asked: ModelAsked | None = None
    attempts: int = 0
    failure: ModelFailed | None = None
    answer: AssistantMessage | None = None
    """The answer of this turn that still has to be checked as output."""
    malformed: int = 0
    rejections: int = 0
    issues: tuple[str, ...] = ()
    calls: list[CallState] = field(factory=list)
    open_calls: int = 0
    history: list[RunCall] = field(factory=list)
    failures: dict[str, int] = field(factory=dict)
    """How often in a row each tool failed."""
    requests: int = 0
    tool_calls: int = 0
    tokens: Usage = NO_USAGE
    inbox: int = 0
    steering: dict[int, Steer] = field(factory=dict)
    follow_ups: dict[int, FollowUp] = field(factory=dict)
    cancel: Cancel | None = None
    suspended: RunSuspended | None = None
    ended: RunCompleted | RunFailed | RunCancelled | None = None

    @property
    def usage(self) -> Usage:
        """All that the run has used so far: what the models reported, and what was counted here."""
        used = self.tokens
        return Usage(
            self.requests,
            used.input_tokens,
            used.output_tokens,
            used.cache_read_tokens,
            used.cache_write_tokens,
            used.reasoning_tokens,
            self.tool_calls,
        )

    def call(self, effect_id: str) -> CallState | None:
        """The call of the current turn that has this effect id."""
        return next((call for call in self.calls if effect_id == self.effect_id(call.turn, call.index)), None)

    def effect_id(self, turn: int, index: int) -> str:
        """The identity of a call: the same on every attempt, in every process."""
        assert self.opened is not None
        return f"{self.opened.run_id}:{turn}.{index}"


def fold(facts: Iterable[Fact]) -> RunState:
    """Fold *facts* from the first on."""
    state = RunState()
    for fact in facts:
        evolve(state, fact)
    return state


def evolve(state: RunState, fact: Fact, at: float = 0.0) -> RunState:
    """Advance *state* by one fact, recorded *at* that time. Raises JournalError for a fact that cannot follow."""
    state.length += 1
    state.now = max(state.now, at)
    kind = type(fact)
    if state.opened is None and kind is not RunOpened:
        raise JournalError(state.length, f"{kind.__name__} before RunOpened")
    if state.ended is not None:
        raise JournalError(state.length, f"{kind.__name__} after {type(state.ended).__name__}")
    if state.suspended is not None and kind not in _WHILE_SUSPENDED:
        raise JournalError(state.length, f"{kind.__name__} while the run is suspended ({state.suspended.reason})")
    _TRANSITIONS[kind](state, fact)
    return state


def _opened(state: RunState, fact: RunOpened) -> None:
    if state.opened is not None:
        raise JournalError(state.length, "a second RunOpened")
    state.opened = fact
    state.fingerprint = fact.fingerprint
    state.max_turns = fact.max_turns
    state.deadline = fact.deadline
    for message in fact.messages:
        state.transcript = state.transcript.append(message)


def _received(state: RunState, fact: InboxReceived) -> None:
    if fact.position < state.inbox:  # what the caller of a resume says has the place of the newest word
        raise JournalError(state.length, f"word {fact.position} after word {state.inbox}")
    state.inbox = fact.position
    if not fact.refused:
        match fact.word:
            case Steer():
                state.steering[fact.position] = fact.word
            case FollowUp():
                state.follow_ups[fact.position] = fact.word
            case Withdraw(id):
                for queue in (state.steering, state.follow_ups):
                    for position in [place for place, word in queue.items() if word.id == id]:
                        del queue[position]
            case Cancel():
                state.cancel = fact.word
            case _:
                pass  # words about a call are followed by a fact of their own


def _turn_started(state: RunState, fact: TurnStarted) -> None:
    if fact.turn != state.turn + 1 or not state.answered or state.open_calls:
        raise JournalError(state.length, f"turn {fact.turn} begins while turn {state.turn} is not over")
    state.turn = fact.turn
    state.answered = False
    state.attempts = 0
    state.calls = []
    state.answer = None
    for position in fact.delivered:
        word = state.steering.pop(position, None) or state.follow_ups.pop(position, None)
        if word is None:
            raise JournalError(state.length, f"word {position} was delivered and does not wait")
        state.transcript = state.transcript.append(word.message)
    if state.boundary is not None:
        for message in state.boundary.messages:
            state.transcript = state.transcript.append(message)
    state.boundary = None
    state.terminated = False


def _asked(state: RunState, fact: ModelAsked) -> None:
    if fact.turn != state.turn or state.answered or state.asked is not None or fact.attempt != state.attempts + 1:
        raise JournalError(state.length, f"no request {fact.attempt} can follow here (turn {fact.turn})")
    state.asked = fact
    state.attempts = fact.attempt
    state.requests += 1


def _answered(state: RunState, fact: ModelAnswered) -> None:
    _close_request(state, fact)
    state.answered = True
    state.failure = None
    state.malformed = 0
    state.tool_choice = None
    message = fact.message
    state.transcript = state.transcript.append(message)
    if message.usage is not NO_USAGE:
        _count(state, message.usage)
    calls = message.calls
    if calls:
        state.calls = [CallState(fact.turn, index, part) for index, part in enumerate(calls)]
        state.open_calls = len(calls)
    else:
        state.answer = message


def _failed(state: RunState, fact: ModelFailed) -> None:
    _close_request(state, fact)
    state.failure = fact
    if fact.usage is not NO_USAGE:
        _count(state, fact.usage)
    if fact.kind == "malformed":
        state.malformed += 1


def _count(state: RunState, usage: Usage) -> None:
    state.tokens = state.tokens + usage
    state.requests += max(0, usage.requests - 1)  # a gateway may ask more than once for one answer


def _lost(state: RunState, fact: ModelLost) -> None:
    _close_request(state, fact)


def _close_request(state: RunState, fact: ModelAnswered | ModelFailed | ModelLost) -> None:
    asked = state.asked
    if asked is None or asked.turn != fact.turn or asked.attempt != fact.attempt:
        raise JournalError(state.length, f"request {fact.attempt} was not asked (turn {fact.turn})")
    state.asked = None


def _admitted(state: RunState, fact: CallAdmitted) -> None:
    call = _open_call(state, fact.turn, fact.index)
    if call.admitted is not None:
        raise JournalError(state.length, f"call {fact.index} was admitted before (turn {fact.turn})")
    call.admitted = fact


def _refused(state: RunState, fact: CallRefused) -> None:
    call = _open_call(state, fact.turn, fact.index)
    if call.started is not None:
        raise JournalError(state.length, f"call {fact.index} was started and cannot be refused (turn {fact.turn})")
    call.terminate = fact.terminate
    _settle(state, call, (Text(fact.message),), fact.message, is_error=True)


def _requested(state: RunState, fact: ApprovalRequested) -> None:
    call = _open_call(state, fact.turn, fact.index)
    if call.requested is not None or call.admitted is None or call.admitted.digest != fact.digest:
        raise JournalError(state.length, f"no approval of {fact.effect_id!r} can be asked for here")
    call.requested = fact


def _decided(state: RunState, fact: ApprovalDecided) -> None:
    call = _open_call(state, fact.turn, fact.index)
    if not call.waits or call.requested is None or call.requested.digest != fact.digest:
        raise JournalError(state.length, f"call {fact.index} does not wait for this approval (turn {fact.turn})")
    if fact.approved:
        call.approved = True
    else:
        message = f"denied: {fact.reason}" if fact.reason else "denied"
        _settle(state, call, (Text(message),), message, is_error=True)


def _started(state: RunState, fact: CallStarted) -> None:
    call = _open_call(state, fact.turn, fact.index)
    if call.admitted is None or (call.admitted.needs_approval and not call.approved):
        raise JournalError(state.length, f"call {fact.effect_id!r} was started without leave")
    if call.doubt is not None or fact.attempt != (1 if call.started is None else call.started.attempt + 1):
        raise JournalError(state.length, f"call {fact.effect_id!r} cannot be started for the time {fact.attempt}")
    call.started = fact
    state.tool_calls += 1


def _finished(state: RunState, fact: CallFinished) -> None:
    call = _started_call(state, fact.turn, fact.index)
    assert call.started is not None
    if call.doubt is not None or fact.attempt != call.started.attempt:
        raise JournalError(state.length, f"attempt {fact.attempt} of call {fact.index} is not on its way")
    call.terminate = fact.terminate
    _settle(state, call, fact.parts, fact.output, is_error=fact.is_error)


def _in_doubt(state: RunState, fact: CallInDoubt) -> None:
    call = _started_call(state, fact.turn, fact.index)
    if call.doubt is not None:
        raise JournalError(state.length, f"call {fact.index} is in doubt already (turn {fact.turn})")
    call.doubt = fact


def _resolved(state: RunState, fact: CallResolved) -> None:
    call = _started_call(state, fact.turn, fact.index)
    _settle(state, call, fact.parts, fact.output, is_error=not fact.happened)


def _boundary(state: RunState, fact: BoundaryDecided) -> None:
    coming = state.turn + 1 if state.answered else state.turn
    if fact.turn != coming:
        raise JournalError(state.length, f"a decision about turn {fact.turn} before turn {coming}")
    state.tool_choice = fact.tool_choice
    if state.answered:  # in the middle of a turn only the choice of tools counts
        state.boundary = replace(fact, stop=False) if fact.turn == state.stopped else fact


def _rejected(state: RunState, fact: OutputRejected) -> None:
    if state.answer is None:
        raise JournalError(state.length, f"there is no answer to reject (turn {fact.turn})")
    state.answer = None
    state.rejections += 1
    state.issues = fact.issues
    lines = "\n".join([f"- {issue}" for issue in fact.issues])
    state.transcript = state.transcript.append(
        UserMessage(f"That answer cannot be accepted:\n{lines}\nPlease answer again.")
    )


def _suspended(state: RunState, fact: RunSuspended) -> None:
    state.suspended = fact


def _resumed(state: RunState, fact: RunResumed) -> None:
    if state.suspended is not None and state.suspended.detail == "terminated":
        state.terminated = False
    if state.boundary is not None and state.boundary.stop:
        state.stopped = state.boundary.turn
        state.boundary = None
    state.suspended = None
    state.failure = None
    state.malformed = 0
    state.max_turns = fact.max_turns
    state.deadline = fact.deadline


def _migrated(state: RunState, fact: RunMigrated) -> None:
    state.fingerprint = fact.fingerprint


def _completed(state: RunState, fact: RunCompleted) -> None:
    if state.answer is None:
        raise JournalError(state.length, "RunCompleted without an answer")
    state.ended = fact


def _run_failed(state: RunState, fact: RunFailed) -> None:
    state.ended = fact


def _cancelled(state: RunState, fact: RunCancelled) -> None:
    if state.cancel is None:
        raise JournalError(state.length, "RunCancelled, and nobody said so")
    state.ended = fact


def _open_call(state: RunState, turn: int, index: int) -> CallState:
    if turn != state.turn or not 0 <= index < len(state.calls) or state.calls[index].result is not None:
        raise JournalError(state.length, f"no open tool call {index} (turn {turn})")
    return state.calls[index]


def _started_call(state: RunState, turn: int, index: int) -> CallState:
    call = _open_call(state, turn, index)
    if call.started is None:
        raise JournalError(state.length, f"tool call {index} was not started (turn {turn})")
    return call


def _settle(state: RunState, call: CallState, parts: tuple[Part, ...], output: object, *, is_error: bool) -> None:
    """Give *call* its result. The results of a turn become known together, in the order of its calls."""
    part = call.part
    call.result = ToolMessage(part.id, part.name, parts, is_error)
    if call.started is not None:
        state.failures[part.name] = state.failures.get(part.name, 0) + 1 if is_error else 0
    arguments = call.admitted.arguments if call.admitted else part.arguments
    call.made = RunCall(call.turn, part.name, arguments, output, is_error)
    state.open_calls -= 1
    if state.open_calls == 0:
        state.terminated = all([each.terminate for each in state.calls])
        for each in state.calls:
            assert each.result is not None and each.made is not None
            state.transcript = state.transcript.append(each.result)
            state.history.append(each.made)


_TRANSITIONS: dict[type, Callable[..., None]] = {  # one for each member of Fact: tests/core/test_state.py
    RunOpened: _opened,
    InboxReceived: _received,
    TurnStarted: _turn_started,
    ModelAsked: _asked,
    ModelAnswered: _answered,
    ModelFailed: _failed,
    ModelLost: _lost,
    CallAdmitted: _admitted,
    CallRefused: _refused,
    ApprovalRequested: _requested,
    ApprovalDecided: _decided,
    CallStarted: _started,
    CallFinished: _finished,
    CallInDoubt: _in_doubt,
    CallResolved: _resolved,
    BoundaryDecided: _boundary,
    OutputRejected: _rejected,
    RunSuspended: _suspended,
    RunResumed: _resumed,
    RunMigrated: _migrated,
    RunCompleted: _completed,
    RunFailed: _run_failed,
    RunCancelled: _cancelled,
}
_WHILE_SUSPENDED = frozenset({InboxReceived, ApprovalDecided, CallResolved, RunSuspended, RunResumed, RunMigrated})
