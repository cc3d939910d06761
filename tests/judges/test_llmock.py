"""`llmock`, a server of all four dialects that breaks on demand and judges how its client took it.

Rule: its verdict is without a finding, whatever it does to us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from llmock.pytest_plugin import LLMock

from tests.adapters.chat import request
from turnwright import AgentDefinition, Completed, Ports, run_agent, tool
from turnwright.deltas import Delta, TextDelta
from turnwright.errors import ModelError
from turnwright.gateway import Backoff, Gateway, Route
from turnwright.ports import Model
from turnwright_adapters._wire import Timeouts
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

Made: TypeAlias = AnthropicModel | ChatCompletionsModel | GeminiModel | ResponsesModel

SAID = "It rains in Zürich, and there is no end to it. Take an umbrella. ☂"
SHORT = Timeouts(between_chunks=0.5)

MAKERS: dict[str, Callable[..., Made]] = {
    "chat": lambda server, **more: ChatCompletionsModel("gpt-5-mini", base_url=server.base_url(), **more),
    "responses": lambda server, **more: ResponsesModel("gpt-5-mini", base_url=server.base_url(), **more),
    "anthropic": lambda server, **more: AnthropicModel(
        "claude-sonnet-4-5", base_url=server.base_url("anthropic"), **more
    ),
    "gemini": lambda server, **more: GeminiModel(
        "gemini-2.5-pro", base_url=server.base_url("gemini") + "/v1beta", **more
    ),
}
every_dialect = pytest.mark.parametrize("dialect", MAKERS)


def tried(dialect: str, server: LLMock, **more: object) -> Gateway:
    """A gateway that tries one model up to four times, and waits longer each time."""
    model = MAKERS[dialect](server, api_key="k", timeouts=SHORT, **more)
    return Gateway([Route(dialect, model, attempts=4)], backoff=Backoff(0.08, 1.0), random=lambda: 1.0)


@tool(replay="safe")
async def weather(place: str) -> str:
    """The weather at a place."""
    return f"rain at {place}"


AGENT = AgentDefinition("forecaster", "Be brief.", tools=[weather])


async def forecast(model: Model) -> Completed[str]:
    """Run the agent to its end."""
    outcome = await run_agent(AGENT, "Is it wet?", Ports(model=model))
    assert isinstance(outcome, Completed)
    return outcome


@pytest.mark.promise("T-06")
@every_dialect
@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_with_a_tool_ends_well(llmock: LLMock, dialect: str, stream: bool) -> None:
    """The tool gets what the model wrote, the model gets what the tool gave, and nothing is found wrong."""
    llmock.call_tool("weather", {"place": "Zürich"}).reply(SAID)

    async with MAKERS[dialect](llmock, api_key="k", stream=stream) as model:
        outcome = await forecast(model)

    assert SAID == outcome.output
    assert ["rain at Zürich"] == [each.text for each in outcome.transcript if each.role == "tool"]
    assert outcome.usage.input_tokens > 0 < outcome.usage.output_tokens
    llmock.assert_resilient(strict=True)


FAULTS: dict[str, Callable[[LLMock], object]] = {
    "a rate limit": lambda server: server.rate_limit(retry_after=0.4),
    "an outage": lambda server: server.fail(503, times=3, retry_after=0.1),
    "a timeout of theirs": lambda server: server.fail(408, retry_after=0.1),
    "overload": lambda server: server.fail(529, retry_after=0.1),
    "dropped connections": lambda server: server.disconnect(after_chunks=2, times=3),
    "a stream that ends early": lambda server: server.truncate(after_chunks=3),
    "a stream that ends at once": lambda server: server.truncate(after_chunks=0),
    "a spoilt chunk": lambda server: server.corrupt(after_chunks=2),
    "a stalled stream": lambda server: server.stall(after_chunks=2, seconds=3.0),
}


@pytest.mark.promise("N-21")
@every_dialect
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_tried_again_as_the_server_asks(llmock: LLMock, dialect: str, fault: str) -> None:
    """Not too soon, not too often, and no part of an answer passes for all of it."""
    FAULTS[fault](llmock)
    llmock.reply(SAID, times=None)
    deltas: list[Delta] = []

    async with tried(dialect, llmock) as model:
        answer = await model.complete(request(on_delta=deltas.append))

    assert (SAID, "stop") == (answer.text, answer.stop_reason)
    assert 1 < len(llmock.requests)
    assert "".join([each.text for each in deltas if isinstance(each, TextDelta)]).endswith(SAID)
    # Whether the server sees that we stopped reading a spoilt stream, or has by then written all of it, is a matter of
    # buffers. That no text went missing, which is what its warning asks, is asserted above.
    llmock.assert_resilient(strict=fault != "a spoilt chunk")


@pytest.mark.promise("N-21")
@every_dialect
@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request"), (401, "auth"), (403, "auth"), (404, "invalid_request")]
)
async def test_what_no_retry_can_mend_is_asked_once(llmock: LLMock, dialect: str, status: int, kind: str) -> None:
    """And is told for what it is."""
    llmock.fail(status)

    async with tried(dialect, llmock) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request())

    assert (kind, status, 1) == (caught.value.kind, caught.value.status, len(llmock.requests))
    llmock.assert_resilient(strict=True)


@pytest.mark.promise("N-21")
@every_dialect
async def test_a_prompt_that_is_too_long_is_known_as_one(llmock: LLMock, dialect: str) -> None:
    """So that whoever asked can make it shorter."""
    llmock.context_overflow()

    async with tried(dialect, llmock) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request())

    assert "context_overflow" == caught.value.kind
    llmock.assert_resilient(strict=True)


@pytest.mark.promise("N-07")
@every_dialect
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_broken_call_is_a_result_that_the_model_sees(
    llmock: LLMock, dialect: str, kind: str, stream: bool
) -> None:
    """The run goes on to its answer."""
    llmock.break_tool_call(kind).call_tool("weather", {"place": "Zürich"}).reply(SAID)

    async with MAKERS[dialect](llmock, api_key="k", stream=stream) as model:
        outcome = await forecast(model)

    assert SAID == outcome.output
    assert any(each.is_error for each in outcome.transcript if each.role == "tool")
    llmock.assert_resilient(strict=True)


@every_dialect
async def test_a_quota_is_waited_for(llmock: LLMock, dialect: str) -> None:
    """Two may ask at once; the third waits as long as the server says."""
    llmock.limits(rpm=120).reply(SAID, times=None)

    async with tried(dialect, llmock) as model:
        answers = [await model.complete(request()) for _ in range(3)]

    assert [SAID] * 3 == [answer.text for answer in answers]
    llmock.assert_resilient(strict=True)
