"""The model adapters by themselves: what each adds to httpx and json for the same bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final

import httpx

from tests.benchmarks.measuring import Effort, Row, alternate
from tests.benchmarks.server import serving
from turnwright.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, Transcript, UserMessage
from turnwright.ports import ModelRequest
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

__all__ = ["building", "one_request", "pouring"]

MODELS: Final = {
    "chat": ChatCompletionsModel,
    "anthropic": AnthropicModel,
    "responses": ResponsesModel,
    "gemini": GeminiModel,
}

TEXT: Final[dict[str, Callable[[dict[str, object]], object]]] = {
    "chat": lambda event: event["choices"][0]["delta"].get("content"),  # type: ignore[index]
    "anthropic": lambda event: event["delta"].get("text") if event["type"] == "content_block_delta" else None,  # type: ignore[attr-defined]
    "responses": lambda event: event["delta"] if event["type"] == "response.output_text.delta" else None,
    "gemini": lambda event: event["candidates"][0]["content"]["parts"][0]["text"],  # type: ignore[index]
}
"""The text in an event, as somebody would find it who asked for no more."""


async def pouring(effort: Effort) -> list[Row]:
    """Measure a streamed answer of 5,000 events in each dialect, told to a watcher, and how 80,000 compare."""
    rows: list[Row] = []
    with serving() as server:
        for dialect in MODELS:
            for number, rounds in ((effort.of(5_000), min(effort.rounds, 5)), (effort.of(80_000), 1)):
                rows.append(await _poured(server, dialect, number, rounds))
    return rows


async def _poured(server: str, dialect: str, number: int, rounds: int) -> Row:
    url = f"{server}/{dialect}/{number}"
    async with httpx.AsyncClient() as client, MODELS[dialect]("m", base_url=url) as model:

        async def by_hand() -> None:
            said = 0
            async with client.stream("POST", f"{url}/x", json={"stream": True}, timeout=60) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        said += bool(TEXT[dialect](json.loads(line[6:])))
            assert number <= said

        async def ours() -> None:
            heard: list[object] = []
            request = ModelRequest("r", 1, 1, "", (UserMessage("Talk."),), on_delta=heard.append)
            await model.complete(request)
            assert number <= len(heard)

        theirs, own = await alternate(by_hand, ours, units=number, rounds=rounds)
    return Row(f"{number:,} SSE chunks, {dialect}, CPU each", own.cpu, theirs.cpu, times_bare=1.5)


async def building(effort: Effort) -> list[Row]:
    """Measure the body of a request with 200 turns behind it, none of which was sent before, and all of them."""
    rows: list[Row] = []
    for dialect, build in _builders().items():
        first: list[float] = []
        later: list[float] = []
        for _ in range(effort.rounds * 5):
            request = ModelRequest("r", 201, 1, "Be brief.", Transcript(_turns(200)))
            first.append(_taken(build, request))
            later.append(_taken(build, request))
        rows.append(Row(f"request of 200 turns, {dialect}, CPU to build", min(later), at_most=2e-3))
        rows.append(Row("  the first of them", min(first), at_most=5e-3))
    return rows


def _taken(build: Callable[[ModelRequest], bytes], request: ModelRequest) -> float:
    begun = time.process_time()
    build(request)
    return time.process_time() - begun


def _turns(number: int) -> list[Message]:
    said: list[Message] = [UserMessage("Is it wet?")]
    for turn in range(number):
        call = ToolCall(f"c{turn}", "weather", '{"place": "Berlin, Germany"}')
        said += [AssistantMessage((Text("I will look."), call), "tool_calls"), ToolMessage(call.id, call.name, "Rain.")]
    return said


def _builders() -> dict[str, Callable[[ModelRequest], bytes]]:
    chat, claude = ChatCompletionsModel("m"), AnthropicModel("m")
    openai, gemini = ResponsesModel("m"), GeminiModel("m")
    return {
        "chat": lambda request: chat._body(request, chat._encoded, stream=True),
        "anthropic": lambda request: claude._body(request, None, stream=True),
        "responses": lambda request: openai._body(request, stream=True),
        "gemini": lambda request: gemini._body(request, {}),
    }


async def one_request(effort: Effort) -> list[Row]:
    """Measure a small request over loopback that is not streamed."""
    number = effort.of(200)
    request = ModelRequest("r", 1, 1, "", (UserMessage("1 + 2?"),))
    body = {"model": "m", "messages": [{"role": "user", "content": "1 + 2?"}]}
    with serving() as server:
        url = f"{server}/tools/0"
        async with httpx.AsyncClient() as client, ChatCompletionsModel("m", base_url=url, stream=False) as model:

            async def by_hand() -> None:
                for _ in range(number):
                    response = await client.post(f"{url}/chat/completions", json=body, timeout=60)
                    assert response.json()["choices"][0]["message"]["content"] == "3"

            async def ours() -> None:
                for _ in range(number):
                    assert (await model.complete(request)).text == "3"

            theirs, own = await alternate(by_hand, ours, units=number, rounds=effort.rounds)
    return [
        Row("request over loopback, wall", own.wall, theirs.wall, times_bare=1.2),
        Row("  CPU", own.cpu, theirs.cpu, times_bare=1.2),
    ]
