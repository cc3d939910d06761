"""Law 7, balance: every opened agent, turn, message and tool execution is closed once, on every path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from tests.core.histories import opened, turn
from tests.laws.playing import Weather, play, ports, weathers
from turnwright import AgentDefinition, MemoryState, PortError, Ports, run_agent, stream_agent
from turnwright.deltas import TextDelta
from turnwright.evidence import Entry
from turnwright.facts import ModelFailed, RunSuspended
from turnwright.inbox import Approve, Deny
from turnwright.lifecycle import Lifecycle, LifecycleEvent, ToolExecutionEnd, TurnEnd
from turnwright.ports import Append
from turnwright.run import open_and_drive, validated
from turnwright.testing import ScriptedModel, call, text
from turnwright.testing.strategies import Sketch, ToolSketch, sketches

PAIRS = {
    "agent_start": "agent_end",
    "turn_start": "turn_end",
    "message_start": "message_end",
    "tool_execution_start": "tool_execution_end",
}


def unbalanced(events: Iterable[LifecycleEvent]) -> list[str]:
    """What was opened and not closed, closed and not open, or closed in the wrong order."""
    breaches: list[str] = []
    open_: dict[tuple[str, object], int] = {}
    for event in events:
        key = (event.type, getattr(event, "tool_call_id", None))
        if event.type in PAIRS:
            open_[PAIRS[event.type], key[1]] = open_.get((PAIRS[event.type], key[1]), 0) + 1
        elif event.type in PAIRS.values():
            if not open_.get(key):
                breaches.append(f"{event.type} of nothing")
            open_[key] = open_.get(key, 0) - 1
        if event.type != "agent_end" and not open_.get(("agent_end", None)):
            breaches.append(f"{event.type} outside of the agent")
        if event.type == "turn_end" and any([n for (kind, _), n in open_.items() if kind[:4] in ("mess", "tool")]):
            breaches.append("a turn ended around something open")
    return breaches + [f"{kind} is missing" for (kind, _), times in open_.items() if times > 0]


@pytest.mark.promise("N-15")
@given(sketches(), weathers(), st.integers(1, 3))
@settings(max_examples=60)
async def test_events_balance_to_the_end(sketch: Sketch, weather: Weather, chunk: int) -> None:
    """From start to rest, over every rest between, whatever the model says, the tools do and people decide."""
    played = await play(sketch, weather=weather, chunk=chunk, watch=True)

    events = [each for each in played.seen if hasattr(each, "seq")]

    assert [] == unbalanced(events)  # type: ignore[arg-type]
    assert sorted({each.seq for each in events}) == [each.seq for each in events]  # type: ignore[union-attr]


@given(sketches(), st.integers(0, 40))
@settings(max_examples=60)
async def test_events_balance_when_the_run_is_cancelled_anywhere(sketch: Sketch, steps: int) -> None:
    """A cancelled run closes what it opened, and tells so."""
    given_, _ = ports(sketch, chunk=2)
    definition = sketch.definition()
    events: list[LifecycleEvent] = []
    run = asyncio.ensure_future(
        open_and_drive(
            *(definition, given_),
            run_id="run",
            opening=validated(definition, "go"),
            max_turns=8,
            deadline=None,
            watch=Lifecycle(events.append),
        )
    )
    for _ in range(steps):
        await asyncio.sleep(0)

    run.cancel()
    await asyncio.wait([run], timeout=10)

    assert run.done()
    assert [] == unbalanced(events)


async def test_a_call_that_is_interrupted_is_closed_with_its_run() -> None:
    """One that may run again has no result and no doubt: whoever watches is told that it ended without."""
    sketch = Sketch((ToolSketch("look", replay="safe", pauses=1000),))
    given_ = Ports(model=ScriptedModel([call("look"), text("done")]))
    events: list[LifecycleEvent] = []
    lifecycle = Lifecycle(events.append)
    reached = asyncio.Event()
    definition = sketch.definition(lambda _: reached.set())
    options = {"opening": validated(definition, "go"), "run_id": "run", "max_turns": 8, "deadline": None}
    run = asyncio.ensure_future(open_and_drive(definition, given_, watch=lifecycle, **options))  # type: ignore[arg-type]
    await reached.wait()

    run.cancel()
    await asyncio.wait([run])

    assert [] == unbalanced(events)
    assert [None] == [event.result for event in events if isinstance(event, ToolExecutionEnd)]


async def told(definition: AgentDefinition[str, str], given_: Ports) -> list[LifecycleEvent]:
    """What somebody who watches from here on is told."""
    async with stream_agent(definition, "go", given_, run_id="run") as stream:
        return [item async for item in stream if hasattr(item, "seq")]  # type: ignore[misc]


@given(sketches(), st.integers(1, 12))
@settings(max_examples=60)
async def test_events_balance_for_whoever_watches_after_a_crash(sketch: Sketch, appends: int) -> None:
    """A new watcher sees a whole agent, whatever its dead owner had opened and told to others."""
    given_, _ = ports(sketch, state=Dying(appends))
    with suppress(PortError):
        await run_agent(sketch.definition(), "go", given_, run_id="run")
    given_, _ = ports(sketch, chunk=3, state=given_.state.reopen())  # type: ignore[attr-defined]

    assert [] == unbalanced(await told(sketch.definition(), given_))


class Dying(MemoryState):
    """A store that is gone after some appends."""

    def __init__(self, appends: int) -> None:
        super().__init__()
        self._left = appends

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write while there is a store."""
        self._left -= 1
        if self._left < 0:
            raise PortError("gone")
        return await super().append(run_id, epoch, expected, append_id, facts)


async def test_what_was_decided_while_nobody_worked_is_told_inside_the_next_agent() -> None:
    """A denial and an approval given at rest: their calls end after agent and turn were opened, each once."""
    sketch = Sketch((ToolSketch("pay", approval="required"), ToolSketch("book", approval="required")))
    replies = [[call("pay", n=1), call("book", n=2)], text("done")]
    given_ = Ports(model=ScriptedModel(replies))
    first = await told(sketch.definition(), given_)
    await given_.state.post("run", Deny("run:1.0", "too dear"))
    between = await told(sketch.definition(), given_)
    await given_.state.post("run", Approve("run:1.1"))

    last = await told(sketch.definition(), given_)

    assert [[], [], []] == [unbalanced(events) for events in (first, between, last)]
    assert [] == between
    assert ["agent_start", "turn_start", "tool_execution_start", "tool_execution_end"] == [e.type for e in last][:4]
    ends = [event for event in last if isinstance(event, ToolExecutionEnd)]
    assert [("pay", True), ("book", False)] == [(event.tool_name, event.is_error) for event in ends]
    turns = [event for event in last if isinstance(event, TurnEnd)]
    assert [["pay", "book"], []] == [[each.name for each in event.results] for event in turns]


async def test_a_turn_that_is_over_is_not_taken_up_again() -> None:
    """A run that waited for more turns tells of none but the new one."""
    sketch = Sketch((ToolSketch("add"),))
    given_ = Ports(model=ScriptedModel([call("add"), text("done")]))
    await run_agent(sketch.definition(), "go", given_, run_id="run", max_turns=1)

    events = await told(sketch.definition(), given_)

    assert [2] == [event.turn for event in events if event.type == "turn_start"]
    assert [] == unbalanced(events)


def test_a_late_piece_of_an_abandoned_attempt_opens_nothing() -> None:
    """Neither after its attempt was closed nor after the run came to rest."""
    events: list[LifecycleEvent] = []
    lifecycle = Lifecycle(events.append)
    for fact in (opened(), *turn(1), ModelFailed(1, 1, "timeout", "", True, 1.0)):
        lifecycle.record(fact, 0.0)
    lifecycle.delta(TextDelta(1, 1, "late"))
    lifecycle.record(RunSuspended("model"), 0.0)
    lifecycle.delta(TextDelta(1, 2, "later"))

    assert [] == unbalanced(events)
    assert 2 == len([event for event in events if event.type == "message_start"])


async def test_a_stream_that_is_left_leaves_nothing() -> None:
    """Breaking out of the stream ends the run's task before the block is left."""
    given_, _ = ports(Sketch(replies=()), chunk=1)
    before = asyncio.all_tasks()

    async with stream_agent(Sketch().definition(), "go", given_) as stream:
        async for _item in stream:
            break

    assert before == asyncio.all_tasks()
