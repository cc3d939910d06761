"""Law 5, quiescence: a run in a task group, cancelled at any of its awaits, goes at once and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest
from attrs import evolve as replace
from hypothesis import given, settings, strategies as st

from tests.driver.virtual import LoopClock, leftovers, run
from turnwright import (
    AgentDefinition,
    CallView,
    Completed,
    Go,
    MemoryState,
    Ports,
    Suspended,
    ToolOutput,
    TurnView,
    replay_agent,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.deltas import Delta
from turnwright.lifecycle import LifecycleEvent
from turnwright.memory import MemoryBudgets
from turnwright.messages import AssistantMessage, UserMessage
from turnwright.ports import ApprovalAnswer, ApprovalRequest, Decision, ModelRequest
from turnwright.testing import ScriptedModel, call, text

SLOW, LONG = 0.25, 3.0
"""Seconds that ports and code take, and that effects take; the clock is the loop's, so nobody waits for them."""


class Slow(ScriptedModel):
    """Every port and listener of the run, each of which takes its time."""

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Answer slowly."""
        await asyncio.sleep(LONG)
        return await super().complete(request)

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Approve slowly."""
        await asyncio.sleep(SLOW)
        return Decision(approved=True)

    async def on_event(self, event: LifecycleEvent) -> None:
        """Listen slowly."""
        await asyncio.sleep(SLOW)

    def emit(self, delta: Delta) -> None:
        """Look."""


class SlowState(MemoryState):
    """A store that takes its time."""

    async def append(self, *args: object, **options: object) -> object:  # type: ignore[override]
        """Write slowly: done first, told later."""
        answer = await super().append(*args, **options)  # type: ignore[arg-type]
        await asyncio.sleep(SLOW)
        return answer

    async def load(self, *args: object, **options: object) -> object:  # type: ignore[override]
        """Read slowly."""
        await asyncio.sleep(SLOW)
        return await super().load(*args, **options)  # type: ignore[arg-type]

    async def read(self, *args: object, **options: object) -> object:  # type: ignore[override]
        """Read slowly."""
        await asyncio.sleep(SLOW)
        return await super().read(*args, **options)  # type: ignore[arg-type]


async def cut_off(work: Coroutine[object, object, object], moment: float) -> float:
    """Let *work* run in a task group until a sibling fails at that *moment*; the seconds that the group took to end."""
    loop = asyncio.get_running_loop()
    began = loop.time() + moment
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            await asyncio.sleep(moment)
            ended = task.done()
            raise RuntimeError("sibling")
    except ExceptionGroup as errors:
        others = [each for each in errors.exceptions if str(each) != "sibling"]
    assert ([], True, not ended) == (others, task.done(), task.cancelled())
    return loop.time() - began


@pytest.mark.promise("N-12", "T-10", "N-05", "T-01")
@given(st.lists(st.floats(0, 8 * LONG), min_size=1, max_size=4), st.booleans())
@settings(max_examples=60)
def test_a_run_in_a_task_group_is_cancelled_anywhere(moments: list[float], deadline: bool) -> None:
    """Again and again, by a sibling that fails: the group ends within the grace with that error alone, no task of the
    run is left, and who goes on comes to the end. Nothing is paid twice, and the journal replays.
    """
    paid: list[str] = []

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        paid.append("paid")
        await asyncio.sleep(LONG)
        return "paid"

    @tool(replay="safe")
    async def look() -> str:
        """Look."""
        await asyncio.sleep(LONG)
        return "seen"

    async def guard(_: CallView) -> None:
        await asyncio.sleep(SLOW)

    async def looked(_: CallView, output: ToolOutput) -> None:
        await asyncio.sleep(SLOW)

    async def boundary(view: TurnView) -> Go | None:
        await asyncio.sleep(SLOW)
        return Go([UserMessage("and?")]) if view.ending and view.turn == 3 else None

    async def check(output: str, calls: object) -> None:
        await asyncio.sleep(SLOW)

    async def scene() -> None:
        clerk = AgentDefinition(
            *("clerk", "Pay.", [pay, look]),
            guards=[guard],
            result_guards=[looked],
            boundary=boundary,
            check_output=[check],
        )
        model = Slow([[call("pay"), call("look")], text("paid"), text("done")])
        ports = Ports(model=model, state=SlowState(), clock=LoopClock(), approvals=model, listener=model, grace=1.0)
        ports = replace(ports, budgets=MemoryBudgets({}))
        until = ports.clock.now() + 1e5 if deadline else None

        for moment in moments:
            seconds = await cut_off(run_agent(clerk, "go", ports, run_id="r1", deadline=until), moment)
            assert seconds <= 6 * ports.grace
            assert set() == leftovers()

        outcome = await run_agent(clerk, "go", ports, run_id="r1", deadline=until)
        if isinstance(outcome, Suspended) and outcome.reason == "approval":  # nobody is asked twice; a word decides
            decided = {each.effect_id: "approve" for each in outcome.pending}
            outcome = await resume_agent(clerk, "r1", ports, decisions=decided, deadline=until)
        if isinstance(outcome, Suspended):
            assert "in-doubt" == outcome.reason
            assert len(paid) <= 1
        else:
            assert isinstance(outcome, Completed)
            assert (["paid"], "done") == (paid, outcome.output)
        assert None is (await replay_agent(clerk, "r1", ports)).divergence
        await resume_agent(clerk, "r1", ports)
        assert len(paid) <= 1
        assert set() == leftovers()

    run(scene())
