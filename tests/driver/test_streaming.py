"""A stream: the run as it happens, its outcome as the last item, and nothing left when the viewer leaves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given, settings, strategies as st

from tests.driver.hanging import Hang, agent as hanging_agent, ports as hanging_ports
from tests.driver.virtual import leftovers, run
from turnwright import (
    AgentDefinition,
    Cancelled,
    Completed,
    Failed,
    InvalidValue,
    MemoryState,
    Outcome,
    Ports,
    RunBusy,
    RunMismatch,
    Suspended,
    resume_agent,
    run_agent,
    stream_agent,
    tool,
)
from turnwright.deltas import Delta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.evidence import Entry
from turnwright.lifecycle import LifecycleEvent, ToolExecutionStart
from turnwright.messages import AssistantMessage, Text, Usage
from turnwright.ports import Append, ModelRequest
from turnwright.streaming import BACKLOG
from turnwright.testing import Reply, ScriptedModel, call, text


@tool(replay="safe")
async def look(word: str = "") -> str:
    """Look."""
    return f"seen {word}"


LOOKER = AgentDefinition(name="looker", instruction="Look.", tools=[look])
TALKER = AgentDefinition(name="talker", instruction="Talk.")
OUTCOMES = (Completed, Suspended, Failed, Cancelled)


@pytest.mark.promise("N-15")
async def test_a_stream_ends_with_the_outcome() -> None:
    """Events and deltas come in one order, the outcome is last, and after it there is nothing."""
    world = Ports(model=ScriptedModel([call("look", word="it"), text("done")], chunk=2))

    async with stream_agent(LOOKER, "go", world, run_id="r1") as stream:
        items = [item async for item in stream]
        assert [] == [item async for item in stream]

    assert isinstance(items[-1], Completed)
    assert "done" == items[-1].output
    assert "done" == "".join([item.text for item in items if isinstance(item, TextDelta)])
    assert '{"word":"it"}' == "".join([item.text for item in items if isinstance(item, ToolCallDelta)])
    kinds = [item.type for item in items[:-1] if not isinstance(item, OUTCOMES)]
    assert ("agent_start", "agent_end") == (kinds[0], kinds[-1])
    assert kinds.index("message_start") < kinds.index("tool_call") < kinds.index("tool_execution_start")


@pytest.mark.promise("N-15")
async def test_a_stream_starts_nothing_before_it_is_read() -> None:
    """Making one asks no model, and one that is never read leaves nothing."""
    model = ScriptedModel([text("hi")])

    stream = stream_agent(TALKER, "hello", Ports(model=model))
    await asyncio.sleep(0)
    await stream.aclose()
    del stream
    gc.collect()

    assert ([], set()) == (model.requests, leftovers())


async def test_a_stream_raises_what_a_run_raises() -> None:
    """A bad input at once, everything about the run when it is read."""
    world = Ports(model=ScriptedModel([text("hi")]))
    await run_agent(TALKER, "hello", world, run_id="r1")

    with pytest.raises(InvalidValue):
        stream_agent(TALKER, 7, world)  # type: ignore[misc]
    with pytest.raises(RunMismatch):
        await anext(stream_agent(TALKER, "good bye", world, run_id="r1"))
    with pytest.raises(ValueError, match="run id"):
        await anext(stream_agent(TALKER, "hello", world, run_id="a b"))
    assert set() == leftovers()


@pytest.mark.promise("N-10")
async def test_two_streams_of_one_run_do_not_both_run_it() -> None:
    """One has it, the other is told that it is busy."""
    world = Ports(model=ScriptedModel([text("hi")]))

    async def outcome() -> object:
        try:
            return [item async for item in stream_agent(TALKER, "hello", world, run_id="r1")][-1]
        except RunBusy as busy:
            return busy

    assert {Completed, RunBusy} == {type(each) for each in await asyncio.gather(outcome(), outcome())}


@pytest.mark.promise("N-12", "T-10")
@pytest.mark.case("con-06")
@pytest.mark.parametrize("after", range(12))
async def test_a_viewer_that_leaves_interrupts_the_run_and_leaves_nothing(after: int) -> None:
    """Leaving at any item closes what the model port had open before the block ends; the run can be resumed."""
    opened = closed = 0

    class Wire(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            nonlocal opened, closed
            opened += 1
            try:
                await asyncio.sleep(0)
                answer = await super().complete(request)
                await asyncio.sleep(0)
                return answer
            finally:
                closed += 1

    world = Ports(model=Wire([call("look", word="it"), text("done")], chunk=3))
    async with stream_agent(LOOKER, "go", world, run_id="r1") as stream:
        for _ in range(after):
            await anext(stream)

    assert (opened, set()) == (closed, leftovers())
    if after:
        ended = await resume_agent(LOOKER, "r1", world)
        assert isinstance(ended, Completed)


@pytest.mark.promise("T-10")
@pytest.mark.case("con-06")
async def test_a_stream_that_is_dropped_without_a_word_takes_its_run_along() -> None:
    """A viewer that breaks out of a bare loop and forgets the stream leaves no run behind."""
    hang = Hang()

    async def watch() -> None:
        async for item in stream_agent(hanging_agent("tool", hang), "go", hanging_ports("tool", hang)):
            if isinstance(item, ToolExecutionStart):
                break
        await hang.reached.wait()

    await watch()
    gc.collect()
    for _ in range(30):
        await asyncio.sleep(0)

    assert (1, set()) == (hang.cancelled, leftovers())


async def test_leaving_twice_is_harmless() -> None:
    """Before the start, in the middle, after the end."""
    world = Ports(model=ScriptedModel([text("hi")]))

    for taken in (0, 1, 100):
        stream = stream_agent(TALKER, "hello", world)
        for _ in range(taken):
            await anext(stream, None)
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    assert set() == leftovers()


async def test_a_run_that_breaks_while_nobody_reads_complains_to_nobody() -> None:
    """A viewer that left does not find the error of the run in the log of the loop."""
    reported: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))

    class Broken(MemoryState):
        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            message = "disk full"
            raise OSError(message)

    async with stream_agent(TALKER, "hello", Ports(model=ScriptedModel([text("hi")]), state=Broken())) as stream:
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    del stream, task
    gc.collect()
    loop.set_exception_handler(None)

    assert [] == reported


@pytest.mark.promise("N-16", "N-15")
@pytest.mark.case("con-08")
async def test_a_viewer_that_reads_late_loses_no_text_and_holds_little() -> None:
    """A flood of pieces while nobody reads is joined, not queued piece by piece; the text is whole."""
    flood = BACKLOG * 20

    class Flood:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            assert request.on_delta is not None
            for n in range(flood):
                request.on_delta(TextDelta(request.turn, request.attempt, str(n % 10)))
            return text("done")

    stream = stream_agent(TALKER, "hello", Ports(model=Flood()))
    first = await anext(stream)
    for _ in range(50):
        await asyncio.sleep(0)
    held = len(stream._feed.items)
    rest = [item async for item in stream]

    assert not isinstance(first, TextDelta)
    assert held < BACKLOG + 20
    assert "".join([str(n % 10) for n in range(flood)]) == "".join(
        [item.text for item in rest if isinstance(item, TextDelta)]
    )
    assert isinstance(rest[-1], Completed)


@st.composite
def chunkings(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text and one way to cut it."""
    whole = draw(st.text(max_size=60))
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return whole, [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@pytest.mark.promise("N-15")
@settings(max_examples=60)
@given(said=chunkings(), word=chunkings())
def test_however_an_answer_is_cut_the_run_is_the_same(said: tuple[str, list[str]], word: tuple[str, list[str]]) -> None:
    """Transcript, outcome and usage do not depend on the pieces, nor on whether anybody saw them."""
    usage = Usage(input_tokens=3, output_tokens=4)

    class Chunked:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            if request.on_delta is not None:
                for piece in said[1]:
                    request.on_delta(TextDelta(request.turn, request.attempt, piece))
                    await asyncio.sleep(0)
                for piece in word[1]:
                    request.on_delta(ToolCallDelta(request.turn, request.attempt, 0, "look", piece))
                request.on_delta(UsageDelta(request.turn, request.attempt, usage))
            if request.turn == 1:
                return AssistantMessage((Text(said[0]), call("look", word=word[0])), "tool_calls", usage)
            return AssistantMessage("done", "stop", usage)

    async def streamed() -> Outcome[str]:
        outcome = [item async for item in stream_agent(LOOKER, "go", Ports(model=Chunked()), run_id="r1")][-1]
        assert isinstance(outcome, OUTCOMES)
        return outcome

    one = run(run_agent(LOOKER, "go", Ports(model=Chunked()), run_id="r1"))
    other = run(streamed())

    assert (type(one), one.transcript, one.usage) == (type(other), other.transcript, other.usage)


async def test_a_stream_and_a_sink_of_ones_own_see_the_same() -> None:
    """Who has a delta sink already keeps it."""

    class Sink:
        def __init__(self) -> None:
            self.deltas: list[Delta] = []

        def emit(self, delta: Delta) -> None:
            self.deltas.append(delta)

    sink = Sink()
    model = ScriptedModel([text("hello")], chunk=1)

    seen = [item async for item in stream_agent(TALKER, "hi", Ports(model=model, deltas=sink))]

    assert sink.deltas == [item for item in seen if isinstance(item, TextDelta | UsageDelta)]


async def test_many_streams_at_once_keep_apart() -> None:
    """Each viewer sees its own run."""

    def echo(request: ModelRequest) -> Reply:
        return text(request.messages[0].text)

    world = Ports(model=ScriptedModel([echo], chunk=1))

    async def watch(word: str) -> str:
        pieces: AsyncIterator[object] = stream_agent(TALKER, word, world)
        return "".join([item.text async for item in pieces if isinstance(item, TextDelta)])

    words = [f"word {n}" for n in range(30)]

    assert words == await asyncio.gather(*[watch(word) for word in words])


async def test_a_resumed_run_can_be_watched_too() -> None:
    """Starting it again under its id continues it, and the viewer sees what happens now."""
    world = Ports(model=ScriptedModel([call("look"), text("done")]))
    await run_agent(LOOKER, "go", world, run_id="r1", max_turns=1)

    items = [item async for item in stream_agent(LOOKER, "go", world, run_id="r1", max_turns=2)]

    assert isinstance(items[-1], Completed)
    events: list[LifecycleEvent] = [item for item in items if not isinstance(item, (*OUTCOMES, TextDelta, UsageDelta))]  # type: ignore[misc]
    assert ("agent_start", "agent_end") == (events[0].type, events[-1].type)
    assert 1 == [event.type for event in events].count("message_end")
