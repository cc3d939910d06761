"""An abort races everything, keeps what had come, gives every call a result, and leaves nothing at work behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.agent.listening import Heard
from tests.driver.virtual import LoopClock, leftovers, run
from tests.laws.test_balance import unbalanced
from turnwright import ModelError, Ports, tool
from turnwright.agent import Agent, Signal
from turnwright.deltas import TextDelta
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import AssistantMessage, Message, ToolMessage
from turnwright.outcomes import Cancelled
from turnwright.ports import ModelRequest
from turnwright.testing import ScriptedModel, call, text

GRACE = 2.0

PLACES = [
    *["transform_context", "convert_to_llm", "get_api_key", "model", "before_tool_call", "tool", "after_tool_call"],
    *["should_stop_after_turn", "prepare_next_turn", "listener"],
]


class Hang:
    """Something that waits for ever; where it is *stubborn*, also when it is cancelled, until it is let go."""

    def __init__(self, stubborn: bool) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        self.stubborn = stubborn

    async def __call__(self, *_: object) -> None:
        self.reached.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                if not self.stubborn:
                    raise


class Model(ScriptedModel):
    """Says half a sentence; in the first turn it then waits, if it is where to wait."""

    def __init__(self, replies: Sequence[AssistantMessage], wait: Callable[[], Awaitable[object]] | None) -> None:
        super().__init__(replies)
        self.wait = wait

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Answer."""
        if self.wait is not None:
            assert request.on_delta is not None
            request.on_delta(TextDelta(request.turn, request.attempt, "half a"))
            await self.wait()
        return await super().complete(request)


def agent_that_hangs(where: str, hang: Hang) -> Agent:
    """An agent that comes to *hang* in one place of the first turn."""

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        if where == "tool":
            await hang()
        return "worked"

    @tool(replay="safe")
    async def quick() -> str:
        """Be quick."""
        return "quick"

    async def passes(messages: Sequence[Message], *_: object) -> Sequence[Message]:
        await hang()
        return messages

    calls = AssistantMessage((call("work"), call("quick")), "tool_calls")
    model = Model([calls, text("never")], hang if where == "model" else None)
    agent = Agent(model, tools=[work, quick], ports=Ports(model, clock=LoopClock(), grace=GRACE))
    if where == "listener":

        async def listen(event: LifecycleEvent, _: Signal) -> None:
            if event.type == "turn_end":
                await hang()

        agent.subscribe(listen)
    elif where not in ("model", "tool"):
        setattr(agent, where, passes if where in ("transform_context", "convert_to_llm") else hang)
    return agent


@pytest.mark.promise("P-10", "P-12", "T-10")
@pytest.mark.case("loo-06")
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("where", PLACES)
def test_an_abort_settles_wherever_the_agent_is(where: str, stubborn: bool) -> None:
    """B9 and Q2: at once, or within the grace where its cancellation is ignored; nothing is asked or queued anew."""

    async def scene() -> None:
        hang = Hang(stubborn)
        agent = agent_that_hangs(where, hang)
        heard = Heard(agent)
        agent.follow_up("later")
        work = asyncio.ensure_future(agent.prompt("go"))
        await hang.reached.wait()
        began = asyncio.get_running_loop().time()

        agent.abort()
        agent.abort()
        outcome = await work

        took = asyncio.get_running_loop().time() - began
        slow = where == "listener" or stubborn
        assert isinstance(outcome, Cancelled)
        assert ([], "agent_end") == (unbalanced(heard.events), heard.events[-1].type)
        assert took <= (GRACE + 0.1 if slow else 0.1)
        assert ["later"] == [item.messages[0].text for item in agent.queued]
        assert len(agent.state.model.requests) <= 1  # type: ignore[attr-defined]
        calls = [part.id for each in agent.state.messages if isinstance(each, AssistantMessage) for part in each.calls]
        assert calls == [each.call_id for each in agent.state.messages if isinstance(each, ToolMessage)]
        assert not agent.state.is_streaming
        assert not agent.state.pending_tool_calls
        hang.released.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("P-10")
@pytest.mark.parametrize("stubborn", [False, True])
def test_what_was_being_said_when_it_was_aborted_is_kept(stubborn: bool) -> None:
    """B9, B11 and Q5: the answer ends as aborted, with its text, also where the model goes on talking."""

    async def scene() -> None:
        hang = Hang(stubborn)
        agent = agent_that_hangs("model", hang)
        heard = Heard(agent)
        work = asyncio.ensure_future(agent.prompt("go"))
        await hang.reached.wait()

        agent.abort()
        await work
        hang.released.set()
        await asyncio.sleep(0)

        last = agent.state.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert ("aborted", "half a") == (last.stop_reason, last.text)
        assert ["ms(asst)", "mu", "me(asst)", "turn_end(0)", "agent_end(2)"] == heard.order[-5:]

    run(scene())


@pytest.mark.promise("P-10")
@pytest.mark.parametrize("comes", ["answer", "error"])
def test_what_a_model_says_while_it_is_cancelled_counts(comes: str) -> None:
    """B11 and B12: a real answer is kept, and a real error is not told as an abort."""

    async def wait() -> None:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if comes == "error":
                raise ModelError("quota", "used up") from None

    async def scene() -> None:
        model = Model([text("whole")], wait)
        agent = Agent(model, ports=Ports(model, clock=LoopClock()))
        work = asyncio.ensure_future(agent.prompt("go"))
        await reached.wait()

        agent.abort()
        await work

        last = agent.state.messages[-1]
        assert isinstance(last, AssistantMessage)
        expected = ("stop", "whole", None) if comes == "answer" else ("error", "half a", "quota: used up")
        assert expected == (last.stop_reason, last.text, last.error)

    reached = asyncio.Event()
    run(scene())


@pytest.mark.promise("P-10", "P-08")
@pytest.mark.case("loo-04")
async def test_an_abort_at_the_end_of_a_turn_adds_no_answer_and_takes_no_message() -> None:
    """B10, B12, Q3 and P11: what was queued while tools ran is delivered once by the next prompt, before its text."""

    @tool(replay="safe", sequential=True)
    async def work() -> str:
        """Work."""
        if not agent.queued:
            agent.steer("stop that")
        return "worked"

    model = ScriptedModel([[call("work"), call("work")], text("done")])
    agent = Agent(model, tools=[work])
    heard = Heard(agent)
    stop = agent.subscribe(lambda event, _: agent.abort() if event.type == "turn_end" else None)

    await agent.prompt("go")
    assert ["turn_end(2)", "agent_end(4)"] == heard.order[-2:]
    assert ["stop that"] == [item.messages[0].text for item in agent.queued]
    stop()
    await agent.prompt("next")

    users = [each.text for each in model.requests[-1].messages if each.role == "user"]
    assert (["go", "next", "stop that"], ()) == (sorted(users), agent.queued)


@pytest.mark.promise("P-10")
async def test_a_result_that_was_there_before_the_abort_is_kept() -> None:
    """B13: the tool succeeded, and the abort came while that was told."""

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    agent = Agent(ScriptedModel([call("work"), text("never")]), tools=[work])
    agent.subscribe(lambda event, _: agent.abort() if event.type == "tool_execution_end" else None)

    await agent.prompt("go")

    assert ("worked", 3) == (agent.state.messages[-1].text, len(agent.state.messages))


@pytest.mark.promise("P-10")
async def test_a_call_in_doubt_is_told_as_such() -> None:
    """Q2: a `never` tool that ran has the result that nobody knows, one that had not started that it did not run."""

    @tool
    async def pay() -> str:
        """Pay."""
        agent.abort()
        await asyncio.Event().wait()
        return "paid"

    @tool(sequential=True)
    async def tell() -> str:
        """Tell."""
        return "told"

    agent = Agent(ScriptedModel([[call("pay"), call("tell")], text("never")]), tools=[pay, tell])
    heard = Heard(agent)

    outcome = await agent.prompt("go")

    assert isinstance(outcome, Cancelled)
    first, other = [each for each in agent.state.messages if isinstance(each, ToolMessage)]
    assert ("unknown" in first.text, "not executed" in other.text, []) == (True, True, unbalanced(heard.events))
    assert 1 == len(outcome.in_doubt)


@pytest.mark.promise("P-10")
async def test_an_abort_of_nothing_is_harmless() -> None:
    """Idle before and after, and the next prompt is as if nothing had been."""
    agent = Agent(ScriptedModel([text("1"), text("2")]))

    agent.abort()
    await agent.prompt("go")
    agent.abort()
    await agent.prompt("go on")

    assert ("2", False) == (agent.state.messages[-1].text, agent.signal.is_set())


@pytest.mark.promise("P-10")
async def test_an_abort_before_anything_was_asked_keeps_the_prompt() -> None:
    """The model is not asked; what was said is in the transcript, and can be continued."""
    model = ScriptedModel([text("done")])
    agent = Agent(model)
    heard = Heard(agent)
    work = asyncio.ensure_future(agent.prompt("go"))
    await asyncio.sleep(0)

    agent.abort()
    await work

    assert ([], [], ["go"]) == (model.requests, unbalanced(heard.events), [m.text for m in agent.state.messages[:1]])
    await agent.continue_()
    assert "done" == agent.state.messages[-1].text


@pytest.mark.promise("P-10")
async def test_a_cancelled_prompt_lets_its_cancellation_through_and_can_be_continued() -> None:
    """The caller gave up, the run rests; nothing of it is left at work."""
    reached = asyncio.Event()

    @tool(replay="safe")
    async def work() -> str:
        """Work, at the second try."""
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return "worked"

    agent = Agent(ScriptedModel([call("work"), text("done")]), tools=[work])
    heard = Heard(agent)
    task = asyncio.ensure_future(agent.prompt("go"))
    await reached.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ([], False, set()) == (unbalanced(heard.events), agent.state.is_streaming, leftovers())
    await agent.continue_()
    assert ["go", "", "worked", "done"] == [each.text for each in agent.state.messages]


@pytest.mark.promise("P-10", "P-11")
@pytest.mark.parametrize("how", ["cancel", "abort"])
def test_a_prompt_may_be_ended_at_any_step_and_the_next_one_works(how: str) -> None:
    """Whatever it was at: the agent is idle, holds nothing, and what it says next is whole."""

    async def scene(steps: int) -> bool:
        @tool(replay="safe")
        async def work() -> str:
            """Work."""
            await asyncio.sleep(0)
            return "worked"

        replies = iter([call("work"), text("done"), text("next"), text("next")])
        model = ScriptedModel([lambda _: next(replies)] * 9)
        agent = Agent(model, tools=[work], ports=Ports(model, clock=LoopClock()))
        heard = Heard(agent)
        task = asyncio.ensure_future(agent.prompt("go"))
        for _ in range(steps):
            await asyncio.sleep(0)
        if how == "abort":
            agent.abort()
        over = task.done() or (how == "cancel" and not task.cancel())
        await asyncio.wait([task])
        assert set() == leftovers()

        await agent.prompt("again")

        users = [each.text for each in agent.state.messages if each.role == "user"]
        assert users in (["go", "again"], ["again"])
        assert how == "cancel" or steps == 0 or users == ["go", "again"]
        assert [] == unbalanced(heard.events)
        assert set() == leftovers()
        return over

    steps = 0
    while not run(scene(steps)):
        steps += 1
    assert steps > 20
