"""The loops without a memory: streams that end, and variants that wait for whoever listens."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.agent.listening import short
from tests.driver.virtual import leftovers
from tests.laws.test_balance import unbalanced
from turnwright import AgentError, MemoryState, PortError, Ports, tool
from turnwright.agent import (
    Agent,
    LoopOptions,
    Signal,
    agent_loop,
    agent_loop_continue,
    loop as loop_module,
    run_agent_loop,
    run_agent_loop_continue,
)
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import AssistantMessage, Message, UserMessage
from turnwright.ports import Append, ModelRequest
from turnwright.testing import ScriptedModel, call, text

pytestmark = pytest.mark.promise("P-19")


@tool(replay="safe")
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_stream_gives_every_event_and_then_the_messages() -> None:
    """Q1: the caller's list is as it was; the result begins with the prompt."""
    context: list[Message] = [UserMessage("hi"), text("hello")]
    model = ScriptedModel([text("never"), call("look"), text("done")])

    stream = agent_loop("go", model=model, messages=context, tools=[look], system_prompt="Be brief.")
    events = [event async for event in stream]

    assert ([], "agent_start", "agent_end(4)") == (unbalanced(events), short(events[0]), short(events[-1]))
    assert ["go", "", "seen", "done"] == [each.text for each in await stream.result()]
    assert (2, "hi", "Be brief.") == (len(context), model.requests[0].messages[0].text, model.requests[0].instruction)


async def test_to_continue_a_stream_tells_no_message_of_the_past() -> None:
    """A33: what comes first is the answer."""
    context = [UserMessage("go")]

    stream = agent_loop_continue(model=ScriptedModel([text("done")]), messages=context)
    words = [short(event) async for event in stream]

    assert ["agent_start", "turn_start", "ms(asst)", "mu", "me(asst)", "turn_end(0)", "agent_end(1)"] == words
    assert (1, ["done"]) == (len(context), [each.text for each in await stream.result()])


@pytest.mark.parametrize("context", [[], [UserMessage("go"), AssistantMessage("done")]])
async def test_to_continue_from_nothing_fails_at_once(context: list[Message]) -> None:
    """A33: before anything is started."""
    model = ScriptedModel([])

    with pytest.raises(AgentError, match="use agent_loop"):
        agent_loop_continue(model=model, messages=context)
    with pytest.raises(AgentError, match="use agent_loop"):
        await run_agent_loop_continue(lambda *_: None, model=model, messages=context)

    assert ([], set()) == (model.requests, leftovers())


@pytest.mark.parametrize("failing", ["model", "hook"])
async def test_a_stream_ends_whatever_fails(failing: str) -> None:
    """A34, A35 and Q7: the failure is the last message; nothing hangs and nothing is left unheard."""

    class Broken(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            raise RuntimeError("boom")

    def broken(*_: object) -> list[Message]:
        raise RuntimeError("boom")

    model = Broken([]) if failing == "model" else ScriptedModel([])
    stream = agent_loop("go", model=model, transform_context=broken if failing == "hook" else None)
    events = [event async for event in stream]

    last = (await stream.result())[-1]
    assert isinstance(last, AssistantMessage)
    assert ("error", "internal: boom", []) == (last.stop_reason, last.error, unbalanced(events))


async def test_a_stream_ends_when_its_journal_cannot_be_written() -> None:
    """Q7: the result raises what the state port raised, and no task complains that nobody asked."""

    class Full(MemoryState):
        async def append(self, *_: object) -> Append:
            raise PortError("the disk is full")

    model = ScriptedModel([text("never")])
    stream = agent_loop("go", model=model, ports=Ports(model, Full()))

    assert [] == [event async for event in stream]
    with pytest.raises(PortError, match="full"):
        await stream.result()


@pytest.mark.case("con-06")
async def test_leaving_a_stream_ends_what_goes_on() -> None:
    """The model is cancelled before the block is left, and nothing stays at work."""
    cleaned: list[bool] = []

    class Slow(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(True)
            return text("never")

    async with agent_loop("go", model=Slow([])) as stream:
        async for event in stream:
            if event.type == "message_end":
                break

    assert ([True], set()) == (cleaned, leftovers())
    await stream.aclose()
    assert "aborted" == getattr((await stream.result())[-1], "stop_reason", "")


async def test_leaving_a_stream_at_once_asks_nobody() -> None:
    """It was not at work yet, and does not begin when everybody has gone."""
    model = ScriptedModel([text("never")])
    async with agent_loop("go", model=model):
        pass

    assert ([], set()) == (model.requests, leftovers())


@pytest.mark.case("con-08")
async def test_a_reader_who_stops_reading_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result comes; what waits is bounded, and only pieces of answers are missing from it."""
    monkeypatch.setattr(loop_module, "BACKLOG", 5)
    stream = agent_loop("go", model=ScriptedModel([text("x" * 100)], chunk=1))

    await stream.result()
    events = [event async for event in stream]

    assert ([], 0) == (unbalanced(events), sum([event.type == "message_update" for event in events]))


async def test_a_signal_aborts_a_loop() -> None:
    """As `Agent.abort` would; a signal that is never given leaves nothing behind."""
    signal = asyncio.Event()

    async def emit(event: LifecycleEvent, _: Signal) -> None:
        if event.type == "tool_execution_start":
            signal.set()

    @tool(replay="safe")
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([call("hang"), text("never")])
    messages = await run_agent_loop("go", emit, model=model, tools=[hang], signal=signal)
    await run_agent_loop("go", lambda *_: None, model=ScriptedModel([text("hi")]), signal=asyncio.Event())

    assert (["user", "assistant", "tool"], 1, set()) == ([m.role for m in messages], len(model.requests), leftovers())


async def test_a_loop_waits_for_its_listener() -> None:
    """The variants with an emit settle after it."""
    told: list[str] = []

    async def emit(event: LifecycleEvent, _: Signal) -> None:
        await asyncio.sleep(0)
        told.append(event.type)

    await run_agent_loop("go", emit, model=ScriptedModel([text("hi")]))
    first = [*told]
    told.clear()
    added = await run_agent_loop_continue(emit, model=ScriptedModel([text("hi")]), messages=[UserMessage("go")])

    assert ("agent_end", "agent_end", ["hi"]) == (first[-1], told[-1], [each.text for each in added])


def test_a_loop_takes_what_an_agent_takes() -> None:
    """But for what only a memory needs: its state, its session, its queues."""
    parameters = {*inspect.signature(Agent).parameters}
    memory = {"model", "messages", "state", "session_id", "steering_mode", "follow_up_mode", "definition"}

    assert parameters - memory == LoopOptions.__optional_keys__ - {"signal"}
