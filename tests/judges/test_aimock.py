"""`aimock`, a second server of all four dialects that others wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.adapters.chat import request
from turnwright import AgentDefinition, Completed, Ports, run_agent, tool
from turnwright.errors import ModelError
from turnwright.messages import UserMessage
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

Made: TypeAlias = AnthropicModel | ChatCompletionsModel | GeminiModel | ResponsesModel

MAKERS: dict[str, Callable[..., Made]] = {
    "chat": lambda url, **more: ChatCompletionsModel("gpt-5-mini", base_url=f"{url}/v1", **more),
    "responses": lambda url, **more: ResponsesModel("gpt-5-mini", base_url=f"{url}/v1", **more),
    "anthropic": lambda url, **more: AnthropicModel("claude-sonnet-4-5", base_url=url, **more),
    "gemini": lambda url, **more: GeminiModel("gemini-2.5-pro", base_url=f"{url}/v1beta", **more),
}
both_ways = pytest.mark.parametrize("stream", [True, False])
every_dialect = pytest.mark.parametrize("dialect", MAKERS)


@tool(replay="safe")
async def weather(place: str) -> str:
    """The weather at a place."""
    return f"rain at {place}"


@pytest.mark.promise("T-06")
@every_dialect
@both_ways
async def test_a_run_with_two_calls_at_once_ends_well(aimock: str, dialect: str, stream: bool) -> None:
    """Also where a call ends with a reason that the vendor never had."""
    agent = AgentDefinition("forecaster", "Be brief.", tools=[weather])

    async with MAKERS[dialect](aimock, api_key="k", stream=stream) as model:
        outcome = await run_agent(agent, "Is it wet?", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert "It rains in Zürich and in Kraków, and there is no end to it. ☂" == outcome.output
    called = outcome.transcript[1]
    assert "assistant" == called.role
    assert ("I will look.", "tool_calls") == (called.text, called.stop_reason)
    assert ["rain at Zürich", "rain at Kraków"] == [each.text for each in outcome.transcript if each.role == "tool"]


@pytest.mark.promise("P-16")
@every_dialect
@both_ways
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Too much?", ("rate_limit", 429, True)),
        ("Busy?", ("overloaded", 503, True)),
        ("Who am I?", ("auth", 401, False)),
    ],
)
async def test_an_error_is_told_for_what_it_is(
    aimock: str, dialect: str, stream: bool, said: str, expected: object
) -> None:
    """By its kind, its status, and whether it is worth another try."""
    async with MAKERS[dialect](aimock, api_key="k", stream=stream) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request(UserMessage(said)))

    assert expected == (caught.value.kind, caught.value.status, caught.value.retryable)


@pytest.mark.promise("P-16")
@every_dialect
async def test_a_stream_that_is_cut_is_no_answer(aimock: str, dialect: str) -> None:
    """It is an error that is worth another try, with what was said until then."""
    async with MAKERS[dialect](aimock, api_key="k", stream=True) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request(UserMessage("Cut?")))

    assert ("connection", True) == (caught.value.kind, caught.value.retryable)
    assert caught.value.partial is not None
    assert "This" in caught.value.partial.text
