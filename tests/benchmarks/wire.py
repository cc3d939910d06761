"""Over loopback HTTP, through the chat adapter. The server is a process of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx

from tests.benchmarks import bare
from tests.benchmarks.measuring import Effort, Row, alternate
from tests.benchmarks.server import serving
from tests.benchmarks.turns import ADD, add
from turnwright import AgentDefinition, Completed, Ports, run_agent, stream_agent
from turnwright.deltas import TextDelta
from turnwright_adapters.chat_completions import ChatCompletionsModel

__all__ = ["chunks", "http_turns"]

ADD_BY_HAND = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


async def http_turns(effort: Effort) -> list[Row]:
    """Measure 200 tool turns of one run, not streamed."""
    turns = effort.of(200)
    definition = AgentDefinition("bench", "You answer questions.", tools=[ADD])
    with serving() as server:
        url = f"{server}/tools/{turns}"
        async with httpx.AsyncClient() as client, ChatCompletionsModel("m", base_url=url, stream=False) as model:

            async def ask(messages: list[bare.Message]) -> bare.Message:
                body = {"model": "m", "messages": messages, "tools": [ADD_BY_HAND]}
                response = await client.post(f"{url}/chat/completions", json=body, timeout=60)
                response.raise_for_status()
                message: bare.Message = response.json()["choices"][0]["message"]
                return message

            async def by_hand() -> None:
                assert await bare.run(ask, {"add": add}, "1 + 2?", max_turns=turns + 1) == "3"

            async def ours() -> None:
                outcome = await run_agent(definition, "1 + 2?", Ports(model=model), max_turns=turns + 1)
                assert isinstance(outcome, Completed) and outcome.output == "3"

            theirs, own = await alternate(by_hand, ours, units=turns, rounds=min(effort.rounds, 5))
    return [
        Row(f"{turns} tool turns over HTTP, CPU a turn", own.cpu, theirs.cpu, times_bare=1.5),
        Row("  wall a turn", own.wall, theirs.wall),
    ]


async def chunks(effort: Effort) -> list[Row]:
    """Measure a streamed answer of 5,000 events, each in a packet of its own, to a viewer of the run."""
    number = effort.of(5000)
    definition = AgentDefinition("bench", "You answer questions.")
    with serving() as server:
        url = f"{server}/chunks/{number}"
        async with httpx.AsyncClient() as client, ChatCompletionsModel("m", base_url=url) as model:

            async def events() -> AsyncIterator[dict[str, object]]:
                said: list[str] = []
                messages = [{"role": "user", "content": "Talk."}]
                body = {"model": "m", "stream": True, "messages": messages}
                async with client.stream("POST", f"{url}/chat/completions", json=body, timeout=60) as response:
                    response.raise_for_status()
                    async for line in response.aiter_lines():
                        if not line.startswith("data: ") or line == "data: [DONE]":
                            continue
                        delta = json.loads(line[6:])["choices"][0]["delta"]
                        if content := delta.get("content"):
                            said.append(content)
                            yield {"type": "text", "text": content}
                yield {"type": "done", "text": "".join(said)}

            async def by_hand() -> None:
                seen = 0
                async for event in events():
                    seen += event["type"] == "text"
                assert number - 1 == seen

            async def ours() -> None:
                seen = 0
                async with stream_agent(definition, "Talk.", Ports(model=model)) as stream:
                    async for item in stream:
                        seen += type(item) is TextDelta
                assert number - 1 == seen

            theirs, own = await alternate(by_hand, ours, units=number, rounds=min(effort.rounds, 3))
    return [
        Row(f"{number:,} SSE chunks over HTTP, CPU each", own.cpu, theirs.cpu, times_bare=1.5),
        Row("  wall each", own.wall, theirs.wall),
    ]
