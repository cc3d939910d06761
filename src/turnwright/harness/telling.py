"""One turn, told as events. A projection of the facts and deltas of its run, in one line with what its code asks for.

    ModelAsked            progress `sent`, after `retry` where tools have answered
    deltas                text, thinking, tool_input_delta
    ModelAnswered         text, where what was shown is not what was said; tool_use
    CallStarted           progress `tool`
    a call's result       tool_result, in the order of the calls, then what the call asked to remember

Rule: the run never waits for whoever reads, and what is read is in the order in which it happened.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from turnwright.canonical import decode
from turnwright.deltas import AttemptReset, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from turnwright.errors import InvalidValue
from turnwright.facts import (
    ApprovalDecided,
    CallFinished,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    TurnStarted,
)
from turnwright.harness.events import (
    AgentEvent,
    GuardrailEvent,
    MemoryEvent,
    ProgressEvent,
    Said,
    TextEvent,
    ThinkingEvent,
    ToolInputDeltaEvent,
    ToolResultEvent,
    ToolUseEvent,
    TraceEvent,
    TracePhase,
    TraceRecord,
)
from turnwright.messages import Part, Text, ToolCall
from turnwright.ports import Clock

__all__ = ["Feed", "Telling", "TraceSink", "Tracer", "console", "sink_of"]

TraceSink: TypeAlias = Callable[[TraceRecord], object]


def console(record: TraceRecord) -> None:
    """Write *record* to standard error, one line each."""
    sys.stderr.write(f"{record.phase}: {record.name} {dict(record.data)}\n")


def sink_of(*, trace: bool | TraceSink) -> TraceSink | None:
    """The sink that *trace* stands for: none, the console, or a function of the caller's own."""
    if callable(trace):
        return trace
    return console if trace else None


class Feed:
    """What happened and nobody has read, in order. It may be written from any thread."""

    def __init__(self) -> None:
        self._events: deque[AgentEvent] = deque()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._wake: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, event: AgentEvent) -> None:
        """Tell *event*."""
        self._events.append(event)
        if self._wake is not None:
            self._rouse()

    def close(self) -> None:
        """Nothing will follow."""
        self._closed = True
        self._rouse()

    def _rouse(self) -> None:
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._rouse)
            return
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def more(self) -> deque[AgentEvent]:
        """What was told, to be taken from the left; empty at the end."""
        while not self._events and not self._closed:
            self._wake = self._loop.create_future()
            if self._events:  # another thread was quicker
                break
            await self._wake
        return self._events


class Tracer:
    """Where the records of a turn go: to the sink, and onto the stream. Without a sink there are none."""

    def __init__(
        self, sink: TraceSink | None, put: Callable[[AgentEvent], None], clock: Clock, session_id: str
    ) -> None:
        self._sink = sink
        self._put = put
        self._clock = clock
        self._session_id = session_id

    @property
    def is_on(self) -> bool:
        """Whether anybody wants records."""
        return self._sink is not None

    def record(self, phase: TracePhase, name: str, data: Mapping[str, object]) -> None:
        """Tell the sink. One that fails is warned of, and the turn goes on."""
        if self._sink is None:
            return
        record = TraceRecord(phase, name, self._clock.now(), self._session_id, data)
        self._put(TraceEvent(record))
        try:
            self._sink(record)
        except Exception as error:  # noqa: BLE001 - who watches changes nothing
            warnings.warn(f"the trace sink failed: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)


class Telling:
    """One turn's projection: the watch and the delta sink of its run."""

    def __init__(self, feed: Feed, tracer: Tracer, *, model: str, tools: int) -> None:
        self.feed = feed
        self.tracer = tracer
        self._about = {"model": model, "tools": tools}
        self._quiet = False
        self._turn = 0
        self._pieces: list[str] = []
        self._arguments: dict[int, list[str]] = {}
        self._calls: tuple[ToolCall, ...] = ()
        self._results: dict[int, ToolResultEvent] = {}
        self._shown = 0
        self._asked: dict[int | None, list[MemoryEvent]] = {}

    def put(self, event: AgentEvent, index: int | None = None) -> None:
        """Tell what the code of call *index*, or of the turn, asks for. What is to be remembered follows the result."""
        if isinstance(event, MemoryEvent):
            self._asked.setdefault(index, []).append(event)
        else:
            self._tell(event)
        if isinstance(event, GuardrailEvent) and self.tracer.is_on:
            data = {"action": event.action, "target": event.target, "reason": event.reason, "tool": event.tool_name}
            self.tracer.record("guardrail", event.name, data)

    def drain(self) -> None:
        """Tell what is still to be remembered: nothing that was asked for is dropped."""
        for each in [event for events in self._asked.values() for event in events]:
            self._tell(each)
        self._asked.clear()

    def seen(self, fact: Fact) -> None:
        """Take a fact of the past: whoever reads now has been told, or never will be."""
        self._quiet = True
        self._take(fact)
        self._quiet = False

    def noted(self, fact: Fact) -> None:
        """Take a fact that is not written yet: nobody is told of it before."""

    def record(self, fact: Fact, at: float) -> None:
        """Take a new fact."""
        if type(fact) in _TOLD:
            self._take(fact)

    def progress(self, index: int, text: str) -> None:
        """Take a tool's word on its progress, which has no event of its own here."""

    def emit(self, delta: Delta) -> None:
        """Take a delta."""
        if delta.turn != self._turn:
            return
        match delta:
            case TextDelta(text=text):
                self._pieces.append(text)
                self._tell(TextEvent(text, Said(self._pieces, len(self._pieces))))
            case ReasoningDelta(text=text):
                self._tell(ThinkingEvent(text))
            case ToolCallDelta(index=index, name=name, text=text):
                pieces = self._arguments.setdefault(index, [])
                pieces.append(text)
                place = f"{self._turn}.{index}"
                self._tell(ToolInputDeltaEvent(place, name, text, Said(pieces, len(pieces))))
            case AttemptReset():
                self._unsay()
            case _:
                pass

    def _tell(self, event: AgentEvent) -> None:
        if not self._quiet:
            self.feed.put(event)

    def _take(self, fact: Fact) -> None:
        match fact:
            case TurnStarted():
                self._turn = fact.turn
                self._calls, self._results, self._shown = (), {}, 0
                self._forget()
            case ModelAsked():
                self._unsay()
                self._ask(fact)
            case ModelAnswered():
                self._answered(fact)
            case ModelFailed():
                self._trace("response", {"round": fact.turn, "error": fact.kind, "ms": round(fact.seconds * 1000, 3)})
            case CallStarted():
                self._tell(_TOOL)
            case CallFinished():
                if self.tracer.is_on:
                    call = self._calls[fact.index]
                    data = {"id": _id(call, fact.turn, fact.index), "ms": round(fact.seconds * 1000, 3)}
                    self._trace("tool", {**data, "is_error": fact.is_error}, call.name)
                self._finished(fact.index, fact.parts, is_error=fact.is_error)
            case CallRefused():
                self._finished(fact.index, (Text(fact.message),), is_error=True)
            case ApprovalDecided(approved=False):
                words = f"denied: {fact.reason}" if fact.reason else "denied"
                self._finished(fact.index, (Text(words),), is_error=True)
            case CallResolved():
                self._finished(fact.index, fact.parts, is_error=not fact.happened)
            case _:
                pass

    def _forget(self) -> None:
        self._pieces, self._arguments = [], {}

    def _unsay(self) -> None:
        """What was shown of this answer is lost, and it is asked for again."""
        if self._pieces:
            self._tell(TextEvent("", ""))
        self._forget()

    def _ask(self, fact: ModelAsked) -> None:
        if fact.turn > 1:
            self._tell(_RETRY)
        self._tell(_SENT)
        if self.tracer.is_on:
            self._trace("request", {"round": fact.turn, **self._about})

    def _answered(self, fact: ModelAnswered) -> None:
        message = fact.message
        text = message.text
        if (shown := "".join(self._pieces)) != text or message.raw_stop_reason == "guardrail_denied":
            self._tell(TextEvent("" if shown or not text else text, text))
        if self.tracer.is_on:
            stop = message.raw_stop_reason or message.stop_reason
            self._trace("response", {"round": fact.turn, "stop_reason": stop, "ms": round(fact.seconds * 1000, 3)})
        self._calls = message.calls
        for index, call in enumerate(self._calls):
            id, place = _id(call, fact.turn, index), f"{fact.turn}.{index}"
            self._tell(ToolUseEvent(id, call.name, _input(call.arguments), call.signature, place))

    def _trace(self, phase: TracePhase, data: Mapping[str, object], name: str = "") -> None:
        if self.tracer.is_on and not self._quiet:
            self.tracer.record(phase, name or phase, data)

    def _finished(self, index: int, parts: tuple[Part, ...], *, is_error: bool) -> None:
        call = self._calls[index]
        text = "".join([part.text for part in parts if isinstance(part, Text)])
        more = () if all([isinstance(part, Text) for part in parts]) else parts
        self._results[index] = ToolResultEvent(_id(call, self._turn, index), call.name, text, is_error, more)
        while (result := self._results.get(self._shown)) is not None:
            self._tell(result)
            for each in (*self._asked.pop(self._shown, ()), *self._asked.pop(None, ())):
                self._tell(each)
            self._shown += 1


_SENT: Final = ProgressEvent("sent")
_RETRY: Final = ProgressEvent("retry")
_TOOL: Final = ProgressEvent("tool")

_TOLD: Final = frozenset(
    {
        *(TurnStarted, ModelAsked, ModelAnswered, ModelFailed),
        *(CallStarted, CallFinished, CallRefused, CallResolved, ApprovalDecided),
    }
)
"""The facts that `_take` looks at: asking for the type is quicker than trying each."""


def _id(call: ToolCall, turn: int, index: int) -> str:
    return call.id or f"{turn}.{index}"


def _input(arguments: str) -> object:
    if not arguments.strip():
        return {}
    try:
        return decode(arguments)
    except InvalidValue:
        return arguments
