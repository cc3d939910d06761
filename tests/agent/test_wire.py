"""What an agent says of its session, its thinking and its key is on the wire of every provider."""

from __future__ import annotations

import json

import pytest

from tests.adapters.dialects import as_json
from tests.adapters.test_anthropic import CLAUDE
from tests.adapters.test_gemini import GEMINI
from tests.adapters.test_responses import OPENAI as RESPONSES
from turnwright.agent import Agent
from turnwright.testing.byte_server import ByteServer
from turnwright_adapters.chat_completions import ChatCompletionsModel

CHAT_OK = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}


async def asked(dialect: str, level: str, budgets: dict[str, int]) -> tuple[dict[str, str], dict[str, object]]:
    """The headers and the body of the request that a prompt becomes."""
    make, ok = {
        "claude": (CLAUDE.make, CLAUDE.ok),
        "gemini": (GEMINI.make, GEMINI.ok),
        "responses": (RESPONSES.make, RESPONSES.ok),
        "chat": (lambda url, **_: ChatCompletionsModel("m", base_url=url, stream=False), CHAT_OK),
    }[dialect]
    async with ByteServer([as_json(json.dumps(ok).encode())]) as server, make(server.url, stream=False) as model:
        agent = Agent(
            model,
            thinking_level=level,
            thinking_budgets=budgets,
            get_api_key=lambda provider: f"key-of-{provider}",
            options={"cache_retention": "short", "max_retry_delay_ms": 100, "transport": "json"},
        )
        await agent.prompt("go")
        assert agent.state.error_message is None
        seen = server.requests[0]
        return {name.lower(): value for name, value in seen.headers.items()}, json.loads(seen.body)


@pytest.mark.promise("I-02", "P-16", "P-18")
@pytest.mark.parametrize("dialect", ["claude", "gemini", "responses", "chat"])
async def test_the_key_that_a_hook_gives_is_the_one_that_is_sent(dialect: str) -> None:
    """A32 on the wire, with thinking that is off and bounds for whoever retries: nobody sends what is no provider's."""
    headers, body = await asked(dialect, "off", {})

    assert any(["key-of-" in value for value in headers.values()])
    assert not {"max_retry_delay_ms", "session_id", "thinking_level", "thinking_budgets"} & body.keys()


@pytest.mark.promise("I-02", "P-16")
@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("claude", {"thinking": {"type": "enabled", "budget_tokens": 3000}}),
        ("gemini", {"thinkingConfig": {"thinkingBudget": 3000, "includeThoughts": True}}),
        ("responses", {"reasoning": {"effort": "medium", "summary": "auto"}}),
        ("chat", {"reasoning_effort": "medium"}),
    ],
)
async def test_the_budget_of_a_level_is_the_agents_own(dialect: str, expected: dict[str, object]) -> None:
    """B15: in each provider's words."""
    _, body = await asked(dialect, "high", {"high": 3000})

    told = body | body.get("generationConfig", {})  # type: ignore[operator]
    assert expected == {name: told.get(name) for name in expected}
