"""How much a model shall think is said in the words that this model takes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.adapters.chat import Object, request, sent
from tests.adapters.test_anthropic import CLAUDE
from tests.adapters.test_gemini import GEMINI
from tests.adapters.test_responses import OPENAI as RESPONSES
from turnwright_adapters._wire import Common, claude_thinking, gemini_thinking, openai_effort
from turnwright_adapters._wire.common import LEVELS

OPENAI_WORDS = ["none", "minimal", "low", "medium", "high", "xhigh"]
CLAUDES = ["claude-sonnet-4-5", "claude-opus-4-20250514", "claude-opus-4-6", "claude-opus-4-7", "claude-sonnet-5-5"]
GEMINIS = ["gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-3-pro-preview", "gemini-3.5-flash"]
GPTS = ["gpt-5", "gpt-5.1", "gpt-5.2-codex", "gpt-5.5", "o4-mini", "gpt-5-pro", "gpt-4.1", "gpt-5-chat-latest", "m"]


@pytest.mark.promise("P-16", "I-02")
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4.1-mini", [None, None, None, None, None, None, None]),
        ("gpt-5-chat-latest", [None, None, None, None, None, None, None]),
        ("gpt-5-mini", ["minimal", "minimal", "low", "medium", "high", "high", "high"]),
        ("gpt-5.1", ["none", "low", "low", "medium", "high", "high", "high"]),
        ("openai/gpt-5.5", ["none", "low", "low", "medium", "high", "xhigh", "xhigh"]),
        ("gpt-5.1-codex-max", ["low", "low", "low", "medium", "high", "xhigh", "xhigh"]),
        ("gpt-5-pro", ["high", "high", "high", "high", "high", "high", "high"]),
        ("o3", ["low", "low", "low", "medium", "high", "high", "high"]),
        ("llama-3", [None, "minimal", "low", "medium", "high", "high", "high"]),
    ],
)
def test_openais_models_are_told_of_an_effort_that_they_take(model: str, expected: list[str | None]) -> None:
    """For each level from none to the most."""
    assert expected == [openai_effort(model, Common(thinking_level=level)) for level in LEVELS]


@pytest.mark.promise("P-16", "I-02")
@pytest.mark.parametrize(
    ("model", "level", "expected"),
    [
        ("claude-sonnet-4-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-3-7-sonnet-latest", "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        ("claude-sonnet-4-5", "max", {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
        ("claude-opus-4-6", "off", {"thinking": {"type": "disabled"}}),
        ("claude-opus-4-6", "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-opus-4-7", "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}}),
        ("claude-sonnet-5", "minimal", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ("claude-fable-5", "off", {"output_config": {"effort": "low"}}),
    ],
)
def test_claudes_models_are_told_of_a_budget_or_an_effort(model: str, level: str, expected: Object) -> None:
    """The newer ones find their own budget, and the newest refuse one, and refuse the word for none."""
    assert expected == claude_thinking(model, Common(thinking_level=level))


@pytest.mark.promise("P-16", "I-02")
@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ("gemini-2.5-pro", {"thinking_level": "off"}, {"thinkingBudget": 128}),
        ("gemini-2.5-pro", {"thinking_budget": 90_000}, {"thinkingBudget": 32_768, "includeThoughts": True}),
        ("gemini-2.5-flash", {"thinking_level": "off"}, {"thinkingBudget": 0}),
        ("gemini-2.5-flash", {"thinking_budget": 90_000}, {"thinkingBudget": 24_576, "includeThoughts": True}),
        ("gemini-2.5-flash-lite", {"thinking_budget": 100}, {"thinkingBudget": 512, "includeThoughts": True}),
        ("gemini-3-pro-preview", {"thinking_level": "medium"}, {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-3.5-flash", {"thinking_level": "off"}, {"thinkingLevel": "MINIMAL"}),
        ("gemini-3.5-flash", {"thinking_budget": 8_192}, {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3.5-flash", {"thinking_level": "max"}, {"thinkingLevel": "HIGH", "includeThoughts": True}),
    ],
)
def test_geminis_models_are_told_of_a_budget_in_bounds_or_a_level(
    model: str, options: Object, expected: Object
) -> None:
    """The third generation has levels in place of budgets."""
    thinking = gemini_thinking(model, Common(**options))  # type: ignore[arg-type]

    assert expected == thinking


@given(st.sampled_from(GPTS), st.sampled_from(LEVELS), st.sampled_from(LEVELS))
def test_more_is_never_told_as_less(model: str, one: str, other: str) -> None:
    """Whatever the model takes."""
    ranks = [
        -1 if (effort := openai_effort(model, Common(thinking_level=level))) is None else OPENAI_WORDS.index(effort)
        for level in sorted([one, other], key=LEVELS.index)
    ]

    assert sorted(ranks) == ranks


@pytest.mark.parametrize("model", [*CLAUDES, *GEMINIS, *GPTS])
def test_nothing_asked_is_nothing_said(model: str) -> None:
    """The model thinks as it likes."""
    assert ({}, {}, None) == (
        claude_thinking(model, Common()),
        gemini_thinking(model, Common()),
        openai_effort(model, Common()),
    )


@pytest.mark.promise("I-02")
async def test_the_model_of_the_request_decides() -> None:
    """On the wire, for each dialect."""
    claude = await CLAUDE.sent(
        request(options={"model": "claude-opus-4-7", "thinking_level": "high", "temperature": 0, "top_p": 1})
    )
    gemini = await GEMINI.sent(request(options={"model": "gemini-3.5-flash", "thinking_level": "high"}))
    responses = await RESPONSES.sent(request(options={"model": "gpt-5.1", "thinking_level": "off"}))
    chat = await sent(request(options={"model": "gpt-5.1", "thinking_level": "minimal"}))

    assert {"type": "adaptive"} == claude["thinking"]
    assert {"effort": "high"} == claude["output_config"]
    assert not claude.keys() & {"temperature", "top_p"}
    assert {"thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}} == gemini["generationConfig"]
    assert {"effort": "none"} == responses["reasoning"]
    assert "low" == chat["reasoning_effort"]
