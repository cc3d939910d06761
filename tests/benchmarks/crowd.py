"""Many runs at once, each waiting for its model most of the time."""

from __future__ import annotations

import asyncio

from tests.benchmarks import bare
from tests.benchmarks.measuring import Effort, Row, alternate, memory, traced_peak
from tests.benchmarks.turns import ADD, ARGUMENTS, Replies, add, answer, calling
from turnwright import AgentDefinition, Completed, MemoryState, Ports, run_agent
from turnwright.messages import AssistantMessage
from turnwright.ports import ModelRequest

__all__ = ["crowd"]

CALL_SECONDS = 0.05


class _Slow(Replies):
    async def complete(self, request: ModelRequest) -> AssistantMessage:
        await asyncio.sleep(CALL_SECONDS)
        return await super().complete(request)


async def crowd(effort: Effort) -> list[Row]:
    """Measure 5,000 concurrent runs of two model calls and a tool call between them."""
    number = effort.of(5000)
    plain = [bare.calling(("add", ARGUMENTS)), bare.answer("3")]
    model = _Slow([calling(("add", ARGUMENTS)), answer("3")])
    definition = AgentDefinition("bench", "You answer questions.", tools=[ADD])

    async def one_by_hand() -> str:
        scripted = bare.scripted(plain)

        async def slow(messages: list[bare.Message]) -> bare.Message:
            await asyncio.sleep(CALL_SECONDS)
            return await scripted(messages)

        return await bare.run(slow, {"add": add}, "1 + 2?")

    async def by_hand() -> None:
        assert {"3"} == set(await asyncio.gather(*[one_by_hand() for _ in range(number)]))

    async def one(ports: Ports) -> str:
        outcome = await run_agent(definition, "1 + 2?", ports)
        assert isinstance(outcome, Completed)
        return outcome.output

    async def ours() -> None:
        ports = Ports(model=model, state=MemoryState(finished=0))
        assert {"3"} == set(await asyncio.gather(*[one(ports) for _ in range(number)]))

    theirs, own = await alternate(by_hand, ours, units=1, rounds=min(effort.rounds, 3))
    bare_size, own_size = await traced_peak(by_hand) / number, await traced_peak(ours) / number
    return [
        Row(f"{number:,} concurrent runs, wall", own.wall, theirs.wall, times_bare=4),
        Row("  CPU", own.cpu, theirs.cpu),
        Row("  memory a run, at the peak", own_size, bare_size, unit=memory, at_most=15e3),
    ]
