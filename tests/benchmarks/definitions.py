"""An agent before it runs: what building it costs, what using it again costs, what a finished run leaves behind."""

from __future__ import annotations

import gc
import inspect
import json
import tracemalloc
from collections.abc import Callable
from types import FunctionType
from typing import get_type_hints

from tests.benchmarks.measuring import Effort, Row, alternate, memory
from tests.benchmarks.turns import ADD, ARGUMENTS, Replies, answer, calling
from turnwright import AgentDefinition, MemoryState, Ports, run_agent, tool

__all__ = ["definitions"]


JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


async def _order(customer: str, item: str, amount: int = 1) -> str:
    """Order something for a customer."""
    return f"{amount} {item} for {customer}"


def _ten_tools() -> list[Callable[..., object]]:
    """Ten functions that nobody has looked at before."""
    tools: list[Callable[..., object]] = []
    for number in range(10):
        fresh = FunctionType(_order.__code__, globals(), f"order_{number}", _order.__defaults__)
        fresh.__annotations__, fresh.__doc__ = dict(_order.__annotations__), _order.__doc__
        tools.append(fresh)
    return tools


def _described(function: Callable[..., object]) -> dict[str, object]:
    """A tool's JSON Schema, as one would write it for the types at hand."""
    hints = get_type_hints(function)
    properties: dict[str, object] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        properties[name] = {"type": JSON_TYPES[hints[name]]}
        if parameter.default is parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"name": function.__name__, "description": inspect.getdoc(function), "parameters": parameters}


def _defined(functions: list[Callable[..., object]]) -> AgentDefinition:
    return AgentDefinition("bench", "You take orders.", tools=[tool(each) for each in functions])


async def definitions(effort: Effort) -> list[Row]:
    """Measure a definition with ten tools, and what finished runs retain."""
    number, again = effort.of(20), effort.of(2000)
    prepared = [_ten_tools() for _ in range(2 * number * effort.rounds)]
    ready = _defined(_ten_tools())

    async def by_hand() -> None:
        for _ in range(number):
            json.dumps([_described(each) for each in prepared.pop()])

    async def ours() -> None:
        for _ in range(number):
            _ = _defined(prepared.pop()).fingerprint

    async def nothing() -> None:
        pass

    async def reused() -> None:
        for _ in range(again):
            ready.input_schema.accept(ready.input_schema.dump("1 + 2?"))
            _ = ready.fingerprint, ready.specs, ready.output_spec

    theirs, own = await alternate(by_hand, ours, units=number, rounds=effort.rounds)
    _, reuse = await alternate(nothing, reused, units=again, rounds=effort.rounds)
    return [
        Row("definition with 10 tools, built", own.cpu, theirs.cpu, at_most=1.5e-3),
        Row("  used again, by a further run", reuse.cpu, at_most=5e-6),
        Row("  retained per finished run", await _retained(effort.of(1000)), unit=memory, at_most=16),
    ]


async def _retained(runs: int) -> float:
    """The bytes that are left of each of *runs* once the store has forgotten it, without help of the collector."""
    definition = AgentDefinition("bench", "You answer questions.", tools=[ADD])
    model = Replies([calling(("add", ARGUMENTS)), answer("3")])
    ports = Ports(model=model, state=MemoryState(finished=10))

    async def some(number: int) -> None:
        for _ in range(number):
            await run_agent(definition, "1 + 2?", ports)

    await some(50)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        await some(runs)  # fills the free lists of the interpreter, which a collection would empty again
        before, _ = tracemalloc.get_traced_memory()
        await some(runs)
        return max(0.0, (tracemalloc.get_traced_memory()[0] - before) / runs)
    finally:
        gc.enable()
        tracemalloc.stop()
