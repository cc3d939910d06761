"""The stateful agent: a prompt beside a run, many pieces to one listener and to ten, and how soon an abort settles."""

from __future__ import annotations

import asyncio
import time

from tests.benchmarks.measuring import Effort, Row, alternate, factor, memory, traced_peak
from tests.benchmarks.turns import ADD, ARGUMENTS, answer, calling
from turnwright import AgentDefinition, Completed, Ports, run_agent, tool
from turnwright.agent import Agent, Signal
from turnwright.deltas import TextDelta
from turnwright.lifecycle import LifecycleEvent, MessageUpdate
from turnwright.messages import AssistantMessage
from turnwright.outcomes import Cancelled
from turnwright.ports import ModelRequest

__all__ = ["aborts", "agent_deltas", "prompts"]

PIECE = "token "
BREATH = 64


class _Adder:
    """A model that adds by calling the tool, and then says what it got."""

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        return answer("3") if len(request.messages) > 1 else calling(("add", ARGUMENTS))


async def prompts(effort: Effort) -> list[Row]:
    """Measure a prompt with one tool beside `run_agent` for the same work."""
    number = effort.of(400)
    definition, ports = AgentDefinition("bench", "You add.", tools=[ADD]), Ports(model=_Adder())
    quiet, heard = [Agent(_Adder(), system_prompt="You add.", tools=[ADD]) for _ in range(2)]
    heard.subscribe(lambda *_: None)

    async def by_run() -> None:
        for _ in range(number):
            assert isinstance(await run_agent(definition, "1 + 2?", ports), Completed)

    async def by(agent: Agent) -> None:
        for _ in range(number):
            assert isinstance(await agent.prompt("1 + 2?"), Completed)
            agent.reset()

    run, own = await alternate(by_run, lambda: by(quiet), units=number, rounds=effort.rounds)
    run_too, watched = await alternate(by_run, lambda: by(heard), units=number, rounds=effort.rounds)
    return [
        Row("prompt with one tool, beside run_agent", own.cpu, run.cpu, times_bare=1.5),
        Row("  with a listener", watched.cpu, run_too.cpu),
    ]


class _Talker:
    """A model that says so many pieces."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self._whole = answer(PIECE * pieces)

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        emit, turn, attempt = request.on_delta, request.turn, request.attempt
        assert emit is not None
        for number in range(self._pieces):
            emit(TextDelta(turn, attempt, PIECE))
            if number % BREATH == 0:
                await asyncio.sleep(0)
        return self._whole


async def _talk(pieces: int, listeners: int) -> None:
    seen = [0] * listeners
    agent = Agent(_Talker(pieces))

    def listener(place: int) -> None:
        def listen(event: LifecycleEvent, _: Signal) -> None:
            seen[place] += type(event) is MessageUpdate

        agent.subscribe(listen)

    for place in range(listeners):
        listener(place)
    assert isinstance(await agent.prompt("Talk."), Completed)
    assert [pieces] * listeners == seen


async def agent_deltas(effort: Effort) -> list[Row]:
    """Measure 20,000 pieces of an answer to one listener and to ten."""
    many = effort.of(20_000)
    few = many // 4
    one, ten = await alternate(lambda: _talk(many, 1), lambda: _talk(many, 10), units=many, rounds=effort.rounds)
    _, quarter = await alternate(lambda: _talk(few, 1), lambda: _talk(few, 1), units=few, rounds=effort.rounds)
    size_few, size_many = await traced_peak(lambda: _talk(few, 1)), await traced_peak(lambda: _talk(many, 1))
    return [
        Row(f"{many:,} deltas to one listener, each", one.cpu, at_most=6e-6),
        Row("  all to a quarter of them", 4 * one.cpu / quarter.cpu, unit=factor, at_most=4.6),
        Row("  to ten listeners, to one", ten.cpu / one.cpu, unit=factor, at_most=10),
        Row("  peak memory each (6 bytes of text)", (size_many - size_few) / (many - few), unit=memory),
    ]


async def aborts(effort: Effort) -> list[Row]:
    """Measure how long after the grace an abort settles while a tool ignores it, and how long where it heeds it."""
    taken = {stubborn: [await _aborted(stubborn) for _ in range(effort.rounds)] for stubborn in (True, False)}
    return [
        Row("abort of a tool that ignores it, after the grace", min(taken[True]), at_most=0.1),
        Row("abort of a tool that heeds it", min(taken[False]), at_most=0.1),
    ]


async def _aborted(stubborn: bool) -> float:
    started, release = asyncio.Event(), asyncio.Event()

    @tool(replay="safe")
    async def hang() -> str:
        """Hang."""
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise
        return "late"

    class _Caller:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            return calling(("hang", "{}"))

    grace = 0.2
    agent = Agent(_Caller(), tools=[hang], ports=Ports(_Caller(), grace=grace))
    work = asyncio.ensure_future(agent.prompt("go"))
    await started.wait()
    began = time.perf_counter()
    agent.abort()
    assert isinstance(await work, Cancelled)
    took = time.perf_counter() - began
    release.set()
    await asyncio.sleep(0)
    return max(took - grace, 1e-6) if stubborn else took
