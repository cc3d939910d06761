"""Facts and deltas told as lifecycle events, for people who watch. A pure projection: it decides nothing.

    RunOpened, RunResumed               agent_start
    TurnStarted                         turn_start, then message_start and message_end of what was delivered
    first delta, or the answer          message_start of the answer
    ModelAnswered, ModelFailed, ...     message_end of the answer
    CallStarted, or a refusal           tool_execution_start
    a delta                             message_update
    a tool's progress                   tool_execution_update
    a call's result                     tool_execution_end, in the order in which calls end
    the last result of a turn           message_start and message_end of each result, in the order of the calls; where
                                        calls run one after another, that of each as it ends
    an answer without calls, the last   turn_end
    result of a turn, or rest
    rest                                agent_end

Rule: every opened agent, turn, message and tool execution is closed once, on every path (tests/laws/test_balance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

from attrs import define, field

from turnwright.deltas import AttemptReset, Delta, UsageDelta
from turnwright.facts import (
    ApprovalDecided,
    BoundaryDecided,
    CallFinished,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    InboxReceived,
    ModelAnswered,
    ModelFailed,
    ModelLost,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunOpened,
    RunResumed,
    RunSuspended,
    TurnStarted,
)
from turnwright.inbox import FollowUp, Steer
from turnwright.messages import AssistantMessage, Message, StopReason, Text, ToolCall, ToolMessage, UserMessage
from turnwright.values import frozen

__all__ = [
    "AgentEnd",
    "AgentStart",
    "Lifecycle",
    "LifecycleEvent",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnStart",
]


NOT_EXECUTED: Final = "not executed: the run was ended before this call could run"
UNKNOWN: Final = "the run was ended while this call ran: whether it took effect is unknown"


@frozen(kw_only=True)
class _Event:
    """What every event tells: the run, its place among the run's events, the turn, the time in seconds since 1970."""

    run_id: str
    seq: int
    turn: int
    at: float


@frozen(kw_only=True)
class AgentStart(_Event):
    """The run works."""

    type: Literal["agent_start"] = field(default="agent_start", init=False, repr=False)


@frozen(kw_only=True)
class AgentEnd(_Event):
    """The run rests. *messages* are those that it produced since it started to work."""

    messages: tuple[Message, ...]
    type: Literal["agent_end"] = field(default="agent_end", init=False, repr=False)


@frozen(kw_only=True)
class TurnStart(_Event):
    """A turn begins, or is taken up again."""

    type: Literal["turn_start"] = field(default="turn_start", init=False, repr=False)


@frozen(kw_only=True)
class TurnEnd(_Event):
    """A turn ends, or is interrupted. *results* are in the order of the calls."""

    message: AssistantMessage | None
    results: tuple[ToolMessage, ...]
    type: Literal["turn_end"] = field(default="turn_end", init=False, repr=False)


@frozen(kw_only=True)
class MessageStart(_Event):
    """A message begins. Of an answer that is still being said, *message* is None and deltas follow."""

    role: Literal["user", "assistant", "tool"]
    message: Message | None
    type: Literal["message_start"] = field(default="message_start", init=False, repr=False)


@frozen(kw_only=True)
class MessageUpdate(_Event):
    """A piece of the answer. The text so far is not repeated in each."""

    delta: Delta
    type: Literal["message_update"] = field(default="message_update", init=False, repr=False)


@frozen(kw_only=True)
class MessageEnd(_Event):
    """A message is over.

    Where the model failed, *error* says how, and *message* is what had come of the answer, with the stop reason `error`
    or `aborted`; None where the answer was lost.
    """

    role: Literal["user", "assistant", "tool"]
    message: Message | None
    error: str = ""
    type: Literal["message_end"] = field(default="message_end", init=False, repr=False)


@frozen(kw_only=True)
class ToolExecutionStart(_Event):
    """A call starts, or is refused without starting. *arguments* is the raw text that the model wrote."""

    tool_call_id: str
    tool_name: str
    arguments: str
    type: Literal["tool_execution_start"] = field(default="tool_execution_start", init=False, repr=False)


@frozen(kw_only=True)
class ToolExecutionUpdate(_Event):
    """A tool tells of its progress."""

    tool_call_id: str
    tool_name: str
    text: str
    type: Literal["tool_execution_update"] = field(default="tool_execution_update", init=False, repr=False)


@frozen(kw_only=True)
class ToolExecutionEnd(_Event):
    """A call has its result, or is left in doubt (*result* is None)."""

    tool_call_id: str
    tool_name: str
    result: ToolMessage | None
    is_error: bool
    type: Literal["tool_execution_end"] = field(default="tool_execution_end", init=False, repr=False)


LifecycleEvent: TypeAlias = (
    AgentStart
    | AgentEnd
    | TurnStart
    | TurnEnd
    | MessageStart
    | MessageUpdate
    | MessageEnd
    | ToolExecutionStart
    | ToolExecutionUpdate
    | ToolExecutionEnd
)


@define(eq=False)
class _Call:
    part: ToolCall
    open: bool = False
    result: ToolMessage | None = None
    told: bool = False
    shown: bool = False
    """Whether its result was told as a message."""


class Lifecycle:
    """The projection of one run: give it every fact in order, and every delta; it gives events to *emit*.

    With *updates*, each delta is an event as well, for whoever does not get the deltas themselves.
    """

    def __init__(self, emit: Callable[[LifecycleEvent], None], *, updates: bool = False) -> None:
        self._updates = updates
        self._emit: Callable[[LifecycleEvent], None] | None = emit
        self._sink = emit
        self._run_id = ""
        self._seq = 0
        self._at = 0.0
        self._turn = 0
        self._agent_open = False
        self._turn_open = False
        self._speaking: tuple[int, int] | None = None
        """Turn and attempt of the answer whose message is open."""
        self._spoken = (0, 0)
        """Turn and attempt of the newest answer whose message was closed."""
        self._answer: AssistantMessage | None = None
        self._calls: list[_Call] = []
        self._queued: dict[int, UserMessage] = {}
        self._first: list[UserMessage] = []
        self._added: tuple[UserMessage, ...] = ()
        self._produced: list[Message] = []

    def seen(self, fact: Fact) -> None:
        """Take a fact of the past: its events were for whoever watched then."""
        self._emit = None
        self.record(fact, 0.0)
        self._emit = self._sink

    def noted(self, fact: Fact) -> None:
        """Take a fact that is not written yet: nobody is told of it before."""

    def record(self, fact: Fact, at: float) -> None:
        """Take a new fact."""
        self._at = at
        match fact:
            case RunOpened():
                self._run_id = fact.run_id
                self._first = [*fact.messages]
                self._start()
            case RunResumed():
                self._start()
            case InboxReceived(position, Steer(message) | FollowUp(message), ""):
                self._queued[position] = message
            case TurnStarted():
                self._end_turn()
                self._turn, self._calls, self._answer = fact.turn, [], None
                self._start_turn()
                delivered = [self._queued.pop(position) for position in fact.delivered]
                for message in [*self._first, *delivered, *self._added]:
                    self._whole("user", message)
                self._first, self._added = [], ()
            case BoundaryDecided():
                self._added = fact.messages
            case ModelAnswered():
                self._answered(fact)
            case ModelFailed():
                self._failed(fact)
            case ModelLost():
                self._finish_speaking(None, "lost")
            case CallRefused():
                self._end_call(fact.index, fact.message, is_error=True)
            case ApprovalDecided(approved=False):
                self._end_call(fact.index, f"denied: {fact.reason}" if fact.reason else "denied", is_error=True)
            case CallStarted():
                self._start_call(fact.index)
            case CallFinished():
                self._end_call(fact.index, fact.parts, is_error=fact.is_error)
                if not any([call.open for call in self._calls]):
                    self._show_results()
            case CallResolved():
                self._end_call(fact.index, fact.parts, is_error=not fact.happened)
            case RunCancelled():
                self._give_up(fact.in_doubt)
                self._rest()
            case RunFailed(fault) if fault.code == "boundary":
                self._fail(f"{fault.code}: {fault.message}")
                self._rest()
            case RunSuspended() | RunCompleted() | RunFailed():
                self._rest()
            case _:
                pass

    def delta(self, delta: Delta) -> None:
        """Take a delta: the first of an attempt opens its message."""
        if isinstance(delta, AttemptReset):
            spoken = self._spoken
            self._finish_speaking(None, "lost")
            self._spoken = spoken  # a gateway tries again within the attempt that it was asked for
            return
        if self._speaking is None and self._agent_open and (delta.turn, delta.attempt) > self._spoken:
            self._say(delta.turn, delta.attempt)  # a late piece of an abandoned attempt opens nothing
        if self._updates and self._speaking == (delta.turn, delta.attempt) and not isinstance(delta, UsageDelta):
            self._give(MessageUpdate, delta=delta)

    def progress(self, index: int, text: str) -> None:
        """Take a tool's word on its progress; dropped once the call has its result."""
        call = self._calls[index] if index < len(self._calls) else None
        if call is not None and call.open:
            part = call.part
            self._give(ToolExecutionUpdate, tool_call_id=part.id, tool_name=part.name, text=text)

    def _give(self, event: Callable[..., LifecycleEvent], **fields: object) -> None:
        self._seq += 1
        if self._emit is not None:
            self._emit(event(run_id=self._run_id, seq=self._seq, turn=self._turn, at=self._at, **fields))

    def _answered(self, fact: ModelAnswered) -> None:
        self._say(fact.turn, fact.attempt)
        self._answer = fact.message
        self._produced.append(fact.message)
        self._finish_speaking(fact.message)
        self._calls = [_Call(part) for part in fact.message.calls]
        if not self._calls:
            self._end_turn()

    def _failed(self, fact: ModelFailed) -> None:
        self._say(fact.turn, fact.attempt)
        why: StopReason = "aborted" if fact.kind == "cancelled" else "error"
        error = f"{fact.kind}: {fact.message}"
        self._answer = AssistantMessage(fact.parts, why, fact.usage, error=error)
        self._produced.append(self._answer)
        self._finish_speaking(self._answer, error)

    def _fail(self, error: str) -> None:
        """A failure between two turns is told as an answer that is one, in a turn of its own."""
        self._end_turn()
        self._calls, self._answer = [], AssistantMessage((), "error", error=error)
        self._start_turn()
        self._say(self._turn + 1, 1)
        self._produced.append(self._answer)
        self._finish_speaking(self._answer, error)

    def _start(self) -> None:
        """Open the agent, the turn that is not over, and then tell what was decided while the run was at rest."""
        self._forget()
        self._agent_open = True
        self._produced = []
        self._give(AgentStart)
        unfinished = [index for index, call in enumerate(self._calls) if not call.told]
        if self._turn and (self._answer is None or unfinished):
            self._start_turn()
        for index in unfinished:
            if self._calls[index].result is not None:
                self._tell_call(index)

    def _forget(self) -> None:
        """What an owner that died had opened was for whoever watched it."""
        self._speaking = None
        self._turn_open = False
        for call in self._calls:
            call.open = False

    def _start_turn(self) -> None:
        self._turn_open = True
        self._give(TurnStart)

    def _end_turn(self) -> None:
        if self._turn_open:
            self._turn_open = False
            results = tuple([call.result for call in self._calls if call.result is not None])
            self._give(TurnEnd, message=self._answer, results=results)

    def _rest(self) -> None:
        """Close whatever is open, innermost first."""
        self._finish_speaking(None, "interrupted")
        for index, call in enumerate(self._calls):
            if call.open:
                self._doubt(index)
        self._end_turn()
        if self._agent_open:
            self._agent_open = False
            self._give(AgentEnd, messages=tuple(self._produced))

    def _whole(self, role: str, message: Message) -> None:
        self._produced.append(message)
        self._give(MessageStart, role=role, message=message)
        self._give(MessageEnd, role=role, message=message)

    def _say(self, turn: int, attempt: int) -> None:
        if self._speaking is None:
            self._speaking = (turn, attempt)
            self._give(MessageStart, role="assistant", message=None)

    def _finish_speaking(self, message: AssistantMessage | None, error: str = "") -> None:
        if self._speaking is not None:
            self._spoken, self._speaking = self._speaking, None
            self._give(MessageEnd, role="assistant", message=message, error=error)

    def _start_call(self, index: int) -> None:
        call = self._calls[index]
        if not call.open:
            call.open = True
            part = call.part
            self._give(ToolExecutionStart, tool_call_id=part.id, tool_name=part.name, arguments=part.arguments)

    def _end_call(self, index: int, content: object, *, is_error: bool) -> None:
        call = self._calls[index]
        parts = (Text(content),) if isinstance(content, str) else content
        call.result = ToolMessage(call.part.id, call.part.name, parts, is_error)  # type: ignore[arg-type]
        if self._agent_open:
            self._tell_call(index)

    def _tell_call(self, index: int) -> None:
        """Close the call; after the last of its turn, show all results in the order of the calls."""
        self._start_call(index)
        call = self._calls[index]
        part, result = call.part, call.result
        assert result is not None
        call.open, call.told = False, True
        self._give(ToolExecutionEnd, tool_call_id=part.id, tool_name=part.name, result=result, is_error=result.is_error)
        if all([each.told for each in self._calls]):
            self._show_results()

    def _show_results(self) -> None:
        """Tell the results that are known as messages, up to the first call without one."""
        for each in self._calls:
            if not each.told:
                return
            if not each.shown:
                each.shown = True
                assert each.result is not None
                self._whole("tool", each.result)
        self._end_turn()

    def _give_up(self, in_doubt: Collection[str]) -> None:
        """The run was ended: every call that has no result gets one, and what was said before any turn is told."""
        if self._first and self._agent_open:
            self._start_turn()
            for message in self._first:
                self._whole("user", message)
            self._first = []
        for index, call in enumerate(self._calls):
            if call.result is None:
                doubtful = f"{self._run_id}:{self._turn}.{index}" in in_doubt
                self._end_call(index, UNKNOWN if doubtful else NOT_EXECUTED, is_error=True)

    def _doubt(self, index: int) -> None:
        call = self._calls[index]
        if call.open:
            call.open = False
            part = call.part
            self._give(ToolExecutionEnd, tool_call_id=part.id, tool_name=part.name, result=None, is_error=True)
