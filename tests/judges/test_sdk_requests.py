"""Every request that an adapter writes is one that the vendor's own SDK could have written."""

from __future__ import annotations

import json

import pytest

from tests.adapters.chat import Object, as_json, request, whole
from tests.adapters.test_anthropic import CLAUDE
from tests.adapters.test_dialects import VENDORS
from tests.adapters.test_gemini import GEMINI
from tests.adapters.test_responses import OPENAI as RESPONSES
from tests.judges.conversations import conversations
from tests.judges.sdks import JUDGES
from turnwright.ports import ModelRequest
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright_adapters.chat_completions import OPENAI

MODELS = {"chat": "gpt-5-mini", "responses": "gpt-5-mini", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro"}
OWN: dict[str, dict[str, object]] = {"chat": {"compat": OPENAI}, "responses": {}, "anthropic": {}, "gemini": {}}
OKS: dict[str, Object] = {
    "chat": json.loads(whole({"content": "ok"})),
    "responses": RESPONSES.ok,
    "anthropic": CLAUDE.ok,
    "gemini": GEMINI.ok,
}
PROVIDERS = {"chat": "openai", "responses": "openai-responses", "anthropic": "anthropic", "gemini": "gemini"}


async def body_of(dialect: str, asked: ModelRequest) -> Object:
    """Give the body of the request that *asked* becomes."""
    vendor = VENDORS[dialect]
    reply = as_json(json.dumps(OKS[dialect]).encode())
    if asked.on_delta is not None:
        reply = RawReply(vendor.streamed[1])
    async with (
        ByteServer([reply]) as server,
        vendor.model(MODELS[dialect], base_url=server.url, **OWN[dialect]) as model,
    ):
        await model.complete(asked)
        return json.loads(server.requests[0].body)


@pytest.mark.promise("P-16", "I-01", "I-02")
@pytest.mark.parametrize("name", conversations(""))
@pytest.mark.parametrize("dialect", JUDGES)
async def test_the_vendors_sdk_takes_every_request(dialect: str, name: str) -> None:
    """All of it: nothing that it does not know, and nothing in another form than its own."""
    body = await body_of(dialect, conversations(PROVIDERS[dialect])[name])

    assert body == JUDGES[dialect](body)


@pytest.mark.promise("I-02")
@pytest.mark.parametrize("retention", ["none", "short", "long"])
@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-5.6"])
@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_the_vendors_sdk_takes_every_word_for_its_cache(dialect: str, model: str, retention: str) -> None:
    """Of older models and of newer ones."""
    options = {"model": model, "cache_retention": retention, "session_id": "s1"}
    body = await body_of(dialect, request(options=options))

    assert body == JUDGES[dialect](body)


@pytest.mark.promise("P-16", "I-02")
@pytest.mark.parametrize("level", ["off", "minimal", "low", "medium", "high", "xhigh", "max"])
@pytest.mark.parametrize(
    ("dialect", "model"),
    [
        ("chat", "gpt-5.5"),
        ("chat", "gpt-4.1"),
        ("responses", "gpt-5.1"),
        ("responses", "o3"),
        ("anthropic", "claude-opus-4-6"),
        ("anthropic", "claude-opus-5-5"),
        ("gemini", "gemini-3.5-flash"),
        ("gemini", "gemini-3-pro-preview"),
    ],
)
async def test_the_vendors_sdk_takes_every_level_of_thought(dialect: str, model: str, level: str) -> None:
    """Of older models and of newer ones."""
    body = await body_of(dialect, request(options={"model": model, "thinking_level": level, "max_tokens": 500}))

    assert body == JUDGES[dialect](body)
