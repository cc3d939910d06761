"""The engine itself: short runs, parallel tools, long runs. The models answer at once."""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.benchmarks import bare
from tests.benchmarks.measuring import Effort, Row, alternate, factor, memory
from turnwright import AgentDefinition, Completed, MemoryState, Ports, run_agent, tool
from turnwright.messages import AssistantMessage, Text, ToolCall
from turnwright.ports import ModelRequest

__all__ = ["ADD", "ARGUMENTS", "Replies", "add", "answer", "calling", "eight_tools", "long_run", "one_tool", "text"]

Tick: TypeAlias = Callable[[], None]

ARGUMENTS = '{"a": 1, "b": 2}'


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = tool(add)


class Replies:
    """A model that answers from a list, by how often it has answered in the run."""

    def __init__(self, replies: Sequence[AssistantMessage]) -> None:
        self._replies = replies

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give the next reply."""
        return self._replies[request.messages.answers]  # type: ignore[attr-defined] # a Transcript, as no context cuts it


def answer(text: str) -> AssistantMessage:
    """A reply of plain text."""
    return AssistantMessage((Text(text),))


def calling(*calls: tuple[str, str]) -> AssistantMessage:
    """A reply that calls tools, each by name and raw arguments."""
    parts = [ToolCall(f"call-{index}", name, arguments) for index, (name, arguments) in enumerate(calls)]
    return AssistantMessage(parts, "tool_calls")


async def text(effort: Effort) -> list[Row]:
    """Measure a run of one answer."""
    return await _runs("text run", 0, 1000, 60e-6, effort)


async def one_tool(effort: Effort) -> list[Row]:
    """Measure a run of one tool call and an answer."""
    return await _runs("one-tool run", 1, 500, 180e-6, effort)


async def eight_tools(effort: Effort) -> list[Row]:
    """Measure a run of eight parallel calls and an answer."""
    return await _runs("8 parallel tools in one turn", 8, 200, 800e-6, effort)


async def _runs(what: str, calls: int, number: int, target: float, effort: Effort) -> list[Row]:
    wanted = [("add", ARGUMENTS)] * calls
    plain = [bare.calling(*wanted), bare.answer("3")] if calls else [bare.answer("3")]
    model = Replies([calling(*wanted), answer("3")] if calls else [answer("3")])
    definition = AgentDefinition("bench", "You answer questions.", tools=[ADD] if calls else ())
    ports = Ports(model=model)
    number = effort.of(number)

    async def by_hand() -> None:
        for _ in range(number):
            assert await bare.run(bare.scripted(plain), {"add": add}, "1 + 2?") == "3"

    async def ours() -> None:
        for _ in range(number):
            outcome = await run_agent(definition, "1 + 2?", ports)
            assert isinstance(outcome, Completed) and outcome.output == "3"

    theirs, own = await alternate(by_hand, ours, units=number, rounds=effort.rounds)
    return [Row(what, own.cpu, theirs.cpu, at_most=target)]


async def long_run(effort: Effort) -> list[Row]:
    """Measure turn 200 of one run beside turn 50, and what a turn keeps in memory."""
    turns = 210
    theirs, own = _Laps(), _Laps()

    async def by_hand() -> None:
        replies = iter([bare.calling(("add", ARGUMENTS))] * turns + [bare.answer("3")])

        async def model(messages: list[bare.Message]) -> bare.Message:
            theirs.tick()
            return next(replies)

        await bare.run(model, {"add": add}, "1 + 2?", max_turns=turns + 1)
        theirs.end()

    async def ours() -> None:
        await _one_long_run(turns, own.tick)
        own.end()

    await alternate(by_hand, ours, units=1, rounds=effort.rounds)
    kept: dict[int, int] = {}
    await _one_long_run(401, _weigh(kept))
    growth = (kept[400] - kept[200]) / (kept[200] - kept[100])
    return [
        Row("tool turn 200 of one run", own.at(200), theirs.at(200), at_most=150e-6),
        Row(
            *("  against turn 50", own.at(200) / own.at(50), theirs.at(200) / theirs.at(50)),
            unit=factor,
            at_most=1.15,
        ),
        Row("  memory: turns 200-400 to 100-200", growth, 2.0, unit=factor, at_most=2.2),
        Row("  memory kept a turn", (kept[400] - kept[200]) / 200, unit=memory),
    ]


async def _one_long_run(turns: int, tick: Tick) -> None:
    replies = [calling(("add", ARGUMENTS))] * turns + [answer("3")]
    script = Replies(replies)

    class Ticking:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            tick()
            return await script.complete(request)

    definition = AgentDefinition("bench", "You answer questions.", tools=[ADD])
    ports = Ports(model=Ticking(), state=MemoryState(finished=1))
    outcome = await run_agent(definition, "1 + 2?", ports, max_turns=turns + 1)
    assert isinstance(outcome, Completed)


class _Laps:
    """What each turn took, in the best of the runs."""

    def __init__(self) -> None:
        self._now: list[float] = []
        self._runs: list[list[float]] = []

    def tick(self) -> None:
        """A turn begins."""
        self._now.append(time.process_time())

    def end(self) -> None:
        """The run is over."""
        self._runs.append([after - before for before, after in zip(self._now, self._now[1:], strict=False)])
        self._now = []

    def at(self, turn: int) -> float:
        """The median of the turns around *turn*, in the best run."""
        return min([statistics.median(laps[turn - 10 : turn + 10]) for laps in self._runs])


def _weigh(kept: dict[int, int]) -> Tick:
    turn = 0

    def weigh() -> None:
        nonlocal turn
        turn += 1
        if turn == 2:
            gc.collect()
            tracemalloc.start()
        elif turn in (100, 200, 400):
            gc.collect()
            kept[turn] = tracemalloc.get_traced_memory()[0]
            if turn == 400:
                tracemalloc.stop()

    return weigh
