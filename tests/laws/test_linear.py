"""Law 9, linear: what a turn writes and asks does not grow with the turns before it."""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import FrameType

import pytest

from turnwright import AgentDefinition, Completed, MemoryState, Ports, run_agent, tool
from turnwright.evidence import Entry
from turnwright.messages import AssistantMessage
from turnwright.ports import Append, ModelRequest
from turnwright.testing import ScriptedModel, call, text


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Counted(MemoryState):
    """A store that writes down how much each append holds."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[tuple[list[str], int]] = []

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Count, then write."""
        self.appends.append(([each.kind for each in facts], sum([len(each.body) for each in facts])))
        return await super().append(run_id, epoch, expected, append_id, facts)


async def appends_of(turns: int) -> list[tuple[list[str], int]]:
    """What a run of *turns* tool turns and an answer appends."""
    state = Counted()
    model = ScriptedModel([*[call("add", a=1000 + turn, b=2) for turn in range(turns)], text("done")])
    outcome = await run_agent(
        AgentDefinition(name="adder", instruction="Add.", tools=[add]),
        "go",
        Ports(model=model, state=state),
        max_turns=999,
    )
    assert isinstance(outcome, Completed)
    return state.appends


@pytest.mark.promise("T-08")
async def test_turn_200_writes_what_turn_50_writes() -> None:
    """The same facts, the same bytes, but for the digits of the turn's number."""
    appends = await appends_of(220)

    kinds_50, bytes_50 = appends[2 * 50]
    kinds_200, bytes_200 = appends[2 * 200]

    assert kinds_50 == kinds_200
    assert abs(bytes_200 - bytes_50) <= 40


@pytest.mark.promise("T-08")
def test_turn_200_takes_as_many_operations_as_turn_50() -> None:
    """Every step of the interpreter counts, so that no loop over the past can hide in the engine."""
    counted = 0
    marks: list[int] = []

    def count(frame: FrameType, event: str, arg: object) -> Callable[..., object]:
        nonlocal counted
        counted += event == "opcode"
        frame.f_trace_opcodes = True
        return count

    class Marking(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            marks.append(counted)
            return await super().complete(request)

    model = Marking([*[call("add", a=1000 + turn, b=2) for turn in range(220)], text("done")])
    adder = AgentDefinition(name="adder", instruction="Add.", tools=[add])
    before = sys.gettrace()
    sys.settrace(count)
    try:
        asyncio.run(run_agent(adder, "go", Ports(model=model), max_turns=999))
    finally:
        sys.settrace(before)

    steps = [later - earlier for earlier, later in pairwise(marks)]
    assert statistics.median(steps[45:55]) == statistics.median(steps[195:205])


@pytest.mark.promise("T-08")
async def test_a_text_turn_takes_two_appends_and_a_tool_turn_at_most_four() -> None:
    """Facts that need no acknowledgement before an effect ride with the next append."""
    assert 2 == len(await appends_of(0))
    assert 2 + 2 * 10 >= len(await appends_of(10))
