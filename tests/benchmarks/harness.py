"""The declarative harness: a turn beside a plain run, the reducer, and a long session as JSON."""

from __future__ import annotations

import json
import time

from tests.benchmarks.measuring import Effort, Row, alternate
from tests.benchmarks.turns import ADD, ARGUMENTS, Replies, answer, calling
from turnwright import AgentDefinition, Completed, MemoryState, Ports, run_agent
from turnwright.harness import (
    AgentEvent,
    DoneEvent,
    MessageEvent,
    Session,
    TextEvent,
    ToolResultEvent,
    ToolUseEvent,
    create_agent,
    prompt_layer,
    reduce,
)
from turnwright.harness.events import Said
from turnwright.messages import AssistantMessage
from turnwright.ports import ModelRequest

__all__ = ["harness"]


class Counted(Replies):
    """The same replies for a request whose messages a context port made."""

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give the next reply."""
        return self._replies[sum([isinstance(each, AssistantMessage) for each in request.messages])]


async def harness(effort: Effort) -> list[Row]:
    """Measure all three."""
    return [*await _turns(effort), *_reducing(effort), _writing(effort)]


async def _turns(effort: Effort) -> list[Row]:
    replies = [calling(("add", ARGUMENTS)), answer("3")]
    definition = AgentDefinition("bench", "You answer questions.", tools=[ADD])
    ports = Ports(model=Replies(replies), state=MemoryState(finished=1))
    agent = create_agent(
        model=Counted(replies), tools=[ADD], prompt=[prompt_layer("identity", "You answer questions.")]
    )
    session = Session("s")
    number = effort.of(500)

    async def plain() -> None:
        for _ in range(number):
            outcome = await run_agent(definition, "1 + 2?", ports)
            assert isinstance(outcome, Completed)

    async def sent() -> None:
        for _ in range(number):
            async for event in agent.send(session, "1 + 2?"):
                last = event
            assert isinstance(last, DoneEvent)

    theirs, own = await alternate(plain, sent, units=number, rounds=effort.rounds)
    return [Row("harness: send with one tool (run_agent)", own.cpu, theirs.cpu, times_bare=1.5)]


def _reducing(effort: Effort) -> list[Row]:
    best = {size: min([_reduced(_story(size)) for _ in range(effort.rounds)]) for size in (1000, 10_000)}
    each = best[10_000] / 10_000
    return [Row("harness: reduce, an event of 10,000 (of 1,000)", each, best[1000] / 1000, times_bare=1.3)]


def _story(size: int) -> list[AgentEvent]:
    pieces: list[str] = []
    events: list[AgentEvent] = []
    while len(events) < size:
        events.append(MessageEvent("user", "what is it?"))
        for _ in range(6):
            pieces.append("word ")
            events.append(TextEvent("word ", Said(pieces, len(pieces))))
        pieces = []
        events += [ToolUseEvent("c1", "look", {"q": 1}), ToolResultEvent("c1", "look", "found"), DoneEvent("It is so.")]
    return events[:size]


def _reduced(events: list[AgentEvent]) -> float:
    session = Session("s")
    began = time.process_time()
    for event in events:
        session = reduce(session, event)
    return time.process_time() - began


def _writing(effort: Effort) -> Row:
    session = Session("s")
    events = _story(10_000)
    while len(session.messages) < 1000:
        session = reduce(session, events.pop(0))
    times = []
    for _ in range(effort.rounds):
        began = time.process_time()
        json.dumps(session.to_json())
        times.append(time.process_time() - began)
    return Row("harness: 1,000 messages to JSON text", min(times), at_most=20e-3)
