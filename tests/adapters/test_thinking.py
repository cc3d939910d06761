"""How much a model shall think is said in the words that this model takes."""

from __future__ import annotations

import pytest
from attrs import evolve as replace
from hypothesis import given, strategies as st

from tests.adapters.chat import Object, request, sent
from tests.adapters.test_anthropic import CLAUDE
from tests.adapters.test_gemini import GEMINI
from tests.adapters.test_responses import OPENAI as RESPONSES
from turnwright.ports import OutputSpec
from turnwright_adapters._wire import Common, claude_thinking, gemini_thinking, openai_effort, table
from turnwright_adapters._wire.common import LEVELS
from turnwright_adapters.gemini import GeminiModel

OPENAI_WORDS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
CLAUDES = ["claude-sonnet-4-5", "claude-opus-4-20250514", "claude-opus-4-6", "claude-opus-4-7", "claude-sonnet-5-5"]
GEMINIS = ["gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-3-pro-preview", "gemini-3.5-flash"]
GPTS = [
    "gpt-5",
    "gpt-5.1",
    "gpt-5.2-codex",
    "gpt-5.5",
    "gpt-6.1-sol",
    "o4-mini",
    "gpt-5-pro",
    "gpt-4.1",
    "gpt-5-chat",
    "m",
]


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
        ("gpt-5.1-codex-mini", ["low", "low", "low", "medium", "high", "high", "high"]),
        ("gpt-5.2-pro", ["medium", "medium", "medium", "medium", "high", "xhigh", "xhigh"]),
        ("gpt-5.6-terra", ["none", "low", "low", "medium", "high", "xhigh", "max"]),
        ("gpt-6-luna", ["none", "low", "low", "medium", "high", "xhigh", "max"]),
        ("gpt-6-astra", ["low", "low", "low", "medium", "high", "xhigh", "max"]),
        ("gpt-6.1-sol", ["low", "low", "low", "medium", "high", "xhigh", "max"]),
        ("ft:gpt-4o:team", [None, None, None, None, None, None, None]),
        ("o1-mini", [None, None, None, None, None, None, None]),
        ("gpt-5-pro", ["high", "high", "high", "high", "high", "high", "high"]),
        ("o3", ["low", "low", "low", "medium", "high", "high", "high"]),
        ("llama-3", [None, "low", "low", "medium", "high", "high", "high"]),
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
        ("claude-opus-4-8", "off", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5-20260724", "off", {"thinking": {"type": "disabled"}}),
        ("claude-haiku-5-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5-5", "off", {"output_config": {"effort": "low"}}),
        ("claude-fable-5", "off", {"output_config": {"effort": "low"}}),
        ("claude-mythos-preview", "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-3-5-haiku-latest", "high", {}),
        ("kimi-k3", "high", {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
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
        ("gemini-3.1-flash-lite", {"thinking_level": "off"}, {"thinkingLevel": "MINIMAL"}),
        ("gemini-3.1-pro-preview", {"thinking_level": "medium"}, {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
        ("gemini-3.8-flash", {"thinking_level": "minimal"}, {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-4-argon", {"thinking_level": "off"}, {"thinkingLevel": "LOW"}),
        ("gemini-flash-latest", {"thinking_level": "xhigh"}, {"thinkingLevel": "HIGH", "includeThoughts": True}),
        ("gemini-2.0-flash", {"thinking_level": "high"}, {}),
        ("gemini-2.5-flash-image", {"thinking_level": "off"}, {}),
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


@pytest.mark.promise("P-16")
@pytest.mark.parametrize(
    ("model", "budget", "allowed", "expected"),
    [
        ("claude-opus-4-1-20250805", 31_000, None, (23_808, 32_000)),
        ("claude-opus-4-20250514", 31_000, 4_000, (28_000, 32_000)),
        ("claude-sonnet-4-5", 90_000, 10_000, (54_000, 64_000)),
        ("claude-sonnet-4-5", 90_000, 64_000, (1_024, 64_000)),
        ("claude-haiku-4-5", 2_000, 500, (2_000, 2_500)),
        ("claude-opus-5-5", 90_000, 127_000, (None, 128_000)),
        ("claude-opus-5-5", 90_000, 200_000, (None, 200_000)),
        ("kimi-k3", 90_000, 10_000, (90_000, 100_000)),
    ],
)
async def test_a_budget_leaves_room_for_the_answer_in_what_the_model_says_at_most(
    model: str, budget: int, allowed: int | None, expected: tuple[int | None, int]
) -> None:
    """What the caller allows for the answer is kept, and nothing is clamped where the most is not known."""
    options: Object = {"model": model, "thinking_budget": budget, "max_tokens": allowed}
    body = await CLAUDE.sent(request(options=options))

    assert expected == (table(body["thinking"]).get("budget_tokens"), body["max_tokens"])


@pytest.mark.promise("P-16")
@pytest.mark.parametrize(("model", "forced"), [("claude-opus-5", True), ("claude-opus-5-5", False)])
async def test_a_model_that_always_thinks_is_not_made_to_call(model: str, forced: bool) -> None:
    """It refuses to be, so it is asked in words for the tool that its answer goes through."""
    output = OutputSpec("answer", {"type": "object", "properties": {"n": {"type": "integer"}}})
    body = await CLAUDE.sent(replace(request(options={"model": model}), output=output), output_mode="tool")

    assert forced == ("tool_choice" in body)


WORDS = {"low": "a-little", "high": "a-lot", "off": "not"}
BUDGET = {"off": 0, "medium": 3_000}


def efforts(word: str) -> Object:
    """What Claude is told of an effort."""
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": word}}


@pytest.mark.promise("P-16")
@pytest.mark.parametrize(
    ("level", "thinking", "claude", "gemini", "effort"),
    [
        ("off", WORDS, {"thinking": {"type": "not"}}, {"thinkingLevel": "NOT"}, "not"),
        ("minimal", WORDS, efforts("a-little"), {"thinkingLevel": "A-LITTLE", "includeThoughts": True}, "a-little"),
        ("medium", WORDS, efforts("a-little"), {"thinkingLevel": "A-LITTLE", "includeThoughts": True}, "a-little"),
        ("max", WORDS, efforts("a-lot"), {"thinkingLevel": "A-LOT", "includeThoughts": True}, "a-lot"),
        ("off", BUDGET, {"thinking": {"type": "disabled"}}, {"thinkingBudget": 0}, "0"),
        (
            "low",
            BUDGET,
            {"thinking": {"type": "enabled", "budget_tokens": 3_000}},
            {"thinkingBudget": 3_000, "includeThoughts": True},
            "3000",
        ),
        ("xhigh", {}, {}, None, None),
    ],
)
async def test_a_card_has_the_last_word_in_each_dialect(
    level: str, thinking: dict[str, str | int], claude: Object, gemini: Object | None, effort: str | None
) -> None:
    """Its levels are those that there are, its words those that are said."""
    asked = request(options={"thinking_level": level})
    said = [await dialect.sent(asked, thinking=thinking) for dialect in (CLAUDE, GEMINI, RESPONSES)]

    assert claude == {name: said[0][name] for name in ("thinking", "output_config") if name in said[0]}
    assert ({} if gemini is None else {"thinkingConfig": gemini}) == said[1].get("generationConfig", {})
    assert said[2].get("reasoning") in (
        {"effort": effort, "summary": "auto"},
        None if effort is None else {"effort": effort},
    )
    assert effort == (await sent(asked, thinking=thinking)).get("reasoning_effort")


async def test_a_card_says_nothing_of_another_model() -> None:
    """Which a request may name."""
    options = {"thinking_level": "low", "model": "gpt-5-pro"}

    assert "high" == (await sent(request(options=options), thinking=WORDS))["reasoning_effort"]


@pytest.mark.parametrize("thinking", [{"huge": "huge"}, {"low": None}, {"low": True}])
def test_a_card_of_nonsense_is_refused_at_once(thinking: dict[str, str | int]) -> None:
    """With the levels that there are."""
    with pytest.raises(ValueError, match="level"):
        GeminiModel("m", api_key="k", thinking=thinking)


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
