"""Whoever watches a run: telemetry, deltas, evidence streams and the listener. None of them can change it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from attrs import evolve as replace
from hypothesis import given, strategies as st

from tests.driver.hanging import Hang
from tests.driver.virtual import LoopClock, leftovers, run
from turnwright import (
    AgentDefinition,
    Completed,
    EvidenceStream,
    MemoryState,
    Outcome,
    Ports,
    Suspended,
    ToolContext,
    combine_delta_sinks,
    combine_telemetry,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.deltas import AttemptReset, Delta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.evidence import Evidence, verify
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import AssistantMessage, Usage
from turnwright.ports import ModelRequest
from turnwright.testing import Reply, ScriptedModel, call, fails, text


@tool(replay="safe")
async def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


LOOKER = AgentDefinition(name="looker", instruction="Look.", tools=[look])
SCRIPT: list[Reply] = [[call("look", n=1), call("look", n=2)], text("done")]


class Recorder:
    """Telemetry, delta sink and listener in one, which remembers what it was given and may raise at all of it."""

    def __init__(self, *, error: BaseException | None = None) -> None:
        self.evidence: list[Evidence] = []
        self.deltas: list[Delta] = []
        self.events: list[LifecycleEvent] = []
        self._error = error

    def record(self, evidence: Evidence) -> None:
        """Take evidence."""
        self.evidence.append(evidence)
        self._fail()

    def emit(self, delta: Delta) -> None:
        """Take a delta."""
        self.deltas.append(delta)
        self._fail()

    async def on_event(self, event: LifecycleEvent) -> None:
        """Take an event."""
        await asyncio.sleep(0)
        self.events.append(event)
        self._fail()

    def _fail(self) -> None:
        if self._error is not None:
            raise self._error

    @property
    def names(self) -> list[str]:
        """The types of the events, without those for the pieces of an answer."""
        return [event.type for event in self.events if event.type != "message_update"]


GOLDEN = [
    *["agent_start", "turn_start", "message_start", "message_end", "message_start", "message_end"],
    *["tool_execution_start", "tool_execution_start", "tool_execution_end", "tool_execution_end"],
    *["message_start", "message_end", "message_start", "message_end", "turn_end"],
    *["turn_start", "message_start", "message_end", "turn_end", "agent_end"],
]


def quiet(reported: list[dict[str, object]]) -> Callable[[asyncio.AbstractEventLoop, dict[str, object]], None]:
    """An exception handler of the loop that collects."""
    return lambda _, context: reported.append(context)


@pytest.mark.promise("N-14")
async def test_every_consumer_gets_every_step_in_order() -> None:
    """What telemetry saw is the evidence of the journal, item by item, for each consumer."""
    one, other, state = Recorder(), Recorder(), MemoryState()
    world = Ports(model=ScriptedModel(SCRIPT), state=state, telemetry=combine_telemetry(one, other))

    outcome = await run_agent(LOOKER, "go", world, run_id="r1")

    kept = [*await state.evidence("r1")]
    assert kept == one.evidence == other.evidence
    assert [*range(1, len(kept) + 1)] == [item.seq for item in kept]
    assert outcome.evidence_head == kept[-1].head == verify(kept)


@pytest.mark.promise("N-14", "N-15")
@pytest.mark.case("loo-08")
@pytest.mark.parametrize("error", [RuntimeError("broken"), ValueError("bad"), asyncio.CancelledError()])
async def test_observers_that_fail_at_everything_change_nothing(error: BaseException) -> None:
    """The run ends as without them; those beside a failing one get everything, and failures are counted or reported."""
    broken, fine = Recorder(error=error), Recorder()
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(quiet(reported))
    isolated = not isinstance(error, asyncio.CancelledError)
    telemetry, deltas = combine_telemetry(broken, fine), combine_delta_sinks(broken, fine)
    world = Ports(model=ScriptedModel(SCRIPT, chunk=1), listener=broken)
    if isolated:
        world = replace(world, telemetry=telemetry, deltas=deltas)

    outcome = await run_agent(LOOKER, "go", world)
    calm = await run_agent(LOOKER, "go", Ports(model=ScriptedModel(SCRIPT)))

    assert isinstance(outcome, Completed)
    assert (calm.transcript, calm.usage) == (outcome.transcript, outcome.usage)
    assert GOLDEN == broken.names
    assert [error] * len(broken.events) == [each["exception"] for each in reported]
    if isolated:
        assert (len(broken.evidence), len(broken.deltas)) == (len(fine.evidence), len(fine.deltas))
        assert (len(fine.evidence), len(fine.deltas)) == (telemetry.failed, deltas.failed)  # type: ignore[attr-defined]
    asyncio.get_running_loop().set_exception_handler(None)


@pytest.mark.promise("N-14", "N-15")
async def test_a_single_observer_that_fails_is_isolated_too() -> None:
    """Without a combination the engine itself holds the failure back."""
    broken = Recorder(error=RuntimeError("broken"))

    outcome = await run_agent(
        LOOKER, "go", Ports(model=ScriptedModel(SCRIPT, chunk=1), telemetry=broken, deltas=broken)
    )

    assert isinstance(outcome, Completed)
    assert len(broken.evidence) > 10
    assert len(broken.deltas) > 10


@pytest.mark.promise("N-15")
async def test_deltas_name_turn_and_attempt_and_are_not_stored() -> None:
    """Text, reasoning, argument text and usage arrive piece by piece; the journal knows only whole answers."""
    sink, state = Recorder(), MemoryState()

    class Thinking(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            assert request.on_delta is not None
            request.on_delta(ReasoningDelta(request.turn, request.attempt, "hm"))
            return await super().complete(request)

    usage = Usage(output_tokens=3)
    model = Thinking([[call("look", n=1)], text("done", usage=usage)], chunk=2)

    await run_agent(LOOKER, "go", Ports(model=model, state=state, deltas=sink), run_id="r1")

    assert [
        ReasoningDelta(1, 1, "hm"),
        *[ToolCallDelta(1, 1, 0, "look", piece) for piece in ('{"', 'n"', ":1", "}")],
        UsageDelta(1, 1, Usage()),
        ReasoningDelta(2, 1, "hm"),
        TextDelta(2, 1, "do"),
        TextDelta(2, 1, "ne"),
        UsageDelta(2, 1, usage),
    ] == sink.deltas
    assert not any([b"hm" in entry.body for entry in await state.load("r1")])


@pytest.mark.promise("N-15")
async def test_a_lost_attempt_is_followed_by_a_reset() -> None:
    """Who showed half an answer is told to drop it before the next attempt speaks."""
    sink = Recorder()
    error = RuntimeError("cut")

    class Cut(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            if request.attempt == 1:
                assert request.on_delta is not None
                request.on_delta(TextDelta(request.turn, 1, "hal"))
                raise error
            return await super().complete(request)

    world = Ports(model=Cut([text("whole")]), deltas=sink)
    await run_agent(LOOKER, "go", world, run_id="r1")
    await resume_agent(LOOKER, "r1", world)

    assert [TextDelta(1, 1, "hal"), AttemptReset(1, 1), TextDelta(1, 2, "whole")] == sink.deltas[:3]


@pytest.mark.promise("N-15")
async def test_nobody_streams_for_nobody() -> None:
    """Without a sink the model port is not asked for deltas."""
    model = ScriptedModel(SCRIPT)

    await run_agent(LOOKER, "go", Ports(model=model, listener=Recorder()))

    assert [None, None] == [request.on_delta for request in model.requests]


@pytest.mark.promise("N-16")
async def test_evidence_is_an_async_iterable() -> None:
    """A viewer in the process reads what happens, to the end."""
    stream, state = EvidenceStream(), MemoryState()

    async def view() -> list[Evidence]:
        return [item async for item in stream]

    viewer = asyncio.create_task(view())
    await run_agent(LOOKER, "go", Ports(model=ScriptedModel(SCRIPT), telemetry=stream, state=state), run_id="r1")
    stream.close()

    assert ([*await state.evidence("r1")], 0) == (await viewer, stream.dropped)


@pytest.mark.promise("N-16")
@given(size=st.integers(1, 20), count=st.integers(0, 60))
def test_a_viewer_that_falls_behind_loses_the_oldest_and_is_told_how_many(size: int, count: int) -> None:
    """The queue holds the newest; dropped and read together are all there was."""

    async def scene() -> tuple[list[int], int]:
        stream = EvidenceStream(size)
        for seq in range(1, count + 1):
            stream.record(Evidence(seq, 0.0, "k", 0, -1, 0, "", "", 0, 0, 0, 0, "", ""))
        stream.close()
        return [item.seq async for item in stream], stream.dropped

    read, dropped = run(scene())

    assert ([*range(1, count + 1)][-size:], max(0, count - size)) == (read, dropped)


@pytest.mark.promise("N-16")
@pytest.mark.case("con-08")
async def test_a_viewer_that_stops_reading_holds_up_nothing() -> None:
    """A stream of two places, of which one is read: the run ends, and memory is bounded."""
    stream = EvidenceStream(2)
    world = Ports(model=ScriptedModel([call("look", n=1)] * 7 + [text("done")]), telemetry=stream)

    outcome = await run_agent(LOOKER, "go", world)
    first = await anext(aiter(stream))

    assert isinstance(outcome, Completed)
    assert stream.dropped > 40
    assert "turn_started" != first.kind


@pytest.mark.promise("N-16")
@pytest.mark.parametrize("size", [0, -1])
def test_a_queue_needs_a_place(size: int) -> None:
    """A stream without a place for one item is refused."""
    with pytest.raises(ValueError, match="size"):
        EvidenceStream(size)


# --- the listener


@pytest.mark.promise("N-14")
async def test_a_listener_hears_every_event_in_order() -> None:
    """One at a time, from the start of the agent to its end, before the run returns."""
    listener = Recorder()

    await run_agent(LOOKER, "go", Ports(model=ScriptedModel(SCRIPT), listener=listener))

    assert GOLDEN == listener.names
    assert [*range(1, len(listener.events) + 1)] == [event.seq for event in listener.events]


async def test_the_run_waits_for_its_listener() -> None:
    """The end of an answer is heard before its tools run, the end of a tool before the next request."""
    story: list[str] = []

    class Slow:
        async def on_event(self, event: LifecycleEvent) -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            story.append(event.type)

    @tool
    async def work() -> str:
        """Work."""
        story.append("WORK")
        return "worked"

    def ask(request: ModelRequest) -> Reply:
        story.append("ASK")
        return call("work") if request.turn == 1 else text("done")

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    await run_agent(worker, "go", Ports(model=ScriptedModel([ask, ask]), listener=Slow()))

    assert [
        *["agent_start", "turn_start", "message_start", "message_end", "ASK", "message_start", "message_end"],
        *["tool_execution_start", "WORK", "tool_execution_end", "message_start", "message_end", "turn_end"],
        *["turn_start", "ASK", "message_start", "message_end", "turn_end", "agent_end"],
    ] == story


async def test_progress_is_heard_while_the_tool_works() -> None:
    """A tool that tells its progress is heard at once, and after its end no more."""
    heard = asyncio.Event()
    contexts: list[ToolContext] = []

    class Hearing(Recorder):
        async def on_event(self, event: LifecycleEvent) -> None:
            await super().on_event(event)
            if event.type == "tool_execution_update":
                heard.set()

    @tool
    async def work(context: ToolContext) -> str:
        """Work until somebody has heard."""
        contexts.append(context)
        context.update("half")
        await heard.wait()
        return "worked"

    listener = Hearing()
    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    await run_agent(worker, "go", Ports(model=ScriptedModel([call("work"), text("done")]), listener=listener))
    contexts[0].update("late")

    places = [listener.names.index(f"tool_execution_{what}") for what in ("start", "update", "end")]
    assert sorted(places) == places
    assert 1 == listener.names.count("tool_execution_update")


async def test_progress_from_a_thread_arrives_in_order() -> None:
    """A plain function may tell its progress too; all of it is heard before its end."""
    listener = Recorder()

    @tool
    def work(context: ToolContext) -> str:
        """Work in a thread."""
        for n in range(20):
            context.update(str(n))
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    await run_agent(worker, "go", Ports(model=ScriptedModel([call("work"), text("done")]), listener=listener))

    told = [event.text for event in listener.events if event.type == "tool_execution_update"]
    assert [str(n) for n in range(20)] == told
    assert listener.names.index("tool_execution_end") > max(
        [place for place, name in enumerate(listener.names) if name == "tool_execution_update"]
    )


async def test_the_first_delta_of_an_answer_starts_its_message() -> None:
    """Where deltas are wanted, the listener hears of an answer as soon as it is begun."""
    begun = asyncio.Event()

    class Hearing(Recorder):
        async def on_event(self, event: LifecycleEvent) -> None:
            await super().on_event(event)
            if event.type == "message_start" and event.role == "assistant":
                begun.set()

    class Waiting(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            assert request.on_delta is not None
            request.on_delta(TextDelta(request.turn, request.attempt, "d"))
            await begun.wait()
            return text("done")

    listener = Hearing()
    talker = AgentDefinition(name="talker", instruction="Talk.")
    await run_agent(talker, "go", Ports(model=Waiting([]), listener=listener, deltas=Recorder()))

    assert [
        "agent_start",
        "turn_start",
        *["message_start", "message_end"] * 2,
        "turn_end",
        "agent_end",
    ] == listener.names


@pytest.mark.promise("N-12", "T-10")
@pytest.mark.parametrize("how", ["deadline", "signal", "task"])
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("place", [1, 5, 9, 20])
def test_a_listener_that_hangs_is_raced_like_a_port(how: str, stubborn: bool, place: int) -> None:
    """At whatever event it hangs, the deadline, the signal and a cancelled task end the wait; the run is whole."""

    async def scene() -> None:
        hang, clock, signal = Hang(stubborn=stubborn and how != "task"), LoopClock(), asyncio.Event()

        class Hanging(Recorder):
            async def on_event(self, event: LifecycleEvent) -> None:
                self.events.append(event)
                if len(self.events) == place:
                    await hang()

        world = Ports(
            model=ScriptedModel(SCRIPT),
            listener=Hanging(),
            clock=clock,
            cancellation=signal if how == "signal" else None,
        )
        deadline = clock.now() + 60 if how == "deadline" else None
        task = asyncio.create_task(run_agent(LOOKER, "go", world, run_id="r1", deadline=deadline))
        await hang.reached.wait()
        if how == "signal":
            signal.set()
        elif how == "task":
            task.cancel()
        await asyncio.wait([task])

        if how == "task":
            assert task.cancelled()
        else:
            outcome: Outcome[str] = task.result()
            assert isinstance(outcome, Completed if place == 20 else Suspended)
        hang.let_go()
        for _ in range(8):
            await asyncio.sleep(0)
        assert set() == leftovers()
        ended = await resume_agent(LOOKER, "r1", Ports(model=ScriptedModel(SCRIPT), state=world.state))
        assert isinstance(ended, Completed)
        verify(await world.state.evidence("r1"))

    run(scene())


async def test_a_listener_sees_the_end_of_every_outcome() -> None:
    """However a run ends, the last that is heard is the end of the agent."""
    scripts: list[list[Reply]] = [[text("done")], [text("")] * 9, [fails(RuntimeError("no"), times=9, then=text(""))]]

    for script in scripts:
        listener = Recorder()
        await run_agent(LOOKER, "go", Ports(model=ScriptedModel(script), listener=listener))
        assert "agent_end" == listener.names[-1]
        opened = [name.removesuffix("_start") for name in listener.names if name.endswith("_start")]
        closed = [name.removesuffix("_end") for name in listener.names if name.endswith("_end")]
        assert sorted(opened) == sorted(closed)
