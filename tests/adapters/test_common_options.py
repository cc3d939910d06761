"""Options that mean the same for every provider are said in each one's words; absent, they leave no trace."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.adapters.chat import Object, request, sent
from tests.adapters.test_anthropic import CLAUDE
from tests.adapters.test_gemini import GEMINI
from tests.adapters.test_responses import OPENAI as RESPONSES
from turnwright.errors import ModelError
from turnwright_adapters._wire.common import BUDGETS, LEVELS, Common, take_common
from turnwright_adapters.chat_completions import OPENAI

SENT = {
    "claude": CLAUDE.sent,
    "gemini": GEMINI.sent,
    "responses": RESPONSES.sent,
    "chat": lambda asked: sent(asked, compat=OPENAI),
    "other chat": sent,
}


async def added(name: str, **options: object) -> Object:
    """Give what these options change in the request of a dialect."""
    before, after = await SENT[name](request()), await SENT[name](request(options=options))
    return {key: value for key, value in after.items() if before.get(key) != value}


@pytest.mark.promise("I-02")
@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ("claude", {"thinking": {"type": "enabled", "budget_tokens": 8192}, "max_tokens": 16384}),
        ("gemini", {"generationConfig": {"thinkingConfig": {"thinkingBudget": 8192, "includeThoughts": True}}}),
        (
            "responses",
            {"reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"]},
        ),
        ("chat", {"reasoning_effort": "medium"}),
        ("other chat", {"reasoning_effort": "medium"}),
    ],
)
@pytest.mark.parametrize("options", [{"thinking_level": "medium"}, {"thinking_budget": 8192}])
async def test_thinking_has_a_level_or_a_budget(dialect: str, expected: Object, options: Object) -> None:
    """Either becomes what the provider has."""
    assert expected == await added(dialect, **options)


@pytest.mark.promise("I-02")
@pytest.mark.parametrize("dialect", SENT)
async def test_no_thinking_is_asked_for_by_off(dialect: str) -> None:
    """Where a provider has a word for it that each of its models takes; elsewhere nothing is said."""
    words: Object = {
        "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        "claude": {"thinking": {"type": "disabled"}},
    }

    assert words.get(dialect, {}) == await added(dialect, thinking_level="off")
    assert words.get(dialect, {}) == await added(dialect, thinking_budget=0)


async def test_claude_keeps_its_room_for_the_answer() -> None:
    """What the caller allows is for the answer; the least that may be thought is what the provider takes."""
    asked = await added("claude", thinking_budget=10, max_tokens=500, temperature=0.5)

    assert {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1524} == asked


@pytest.mark.promise("I-02")
@pytest.mark.parametrize("dialect", SENT)
async def test_a_session_finds_its_cache(dialect: str) -> None:
    """By a key where the provider has one, for as long as is asked; by marks with Anthropic."""
    keyed = {"prompt_cache_key": "s1"} if dialect in ("responses", "chat") else {}
    kept = {"prompt_cache_retention": "24h"} if keyed else {}

    assert keyed == await added(dialect, session_id="s1")
    assert {} == await added(dialect, session_id="s1", cache_retention="none")
    if dialect == "claude":
        assert (
            "1h" == (await added(dialect, cache_retention="long"))["messages"][0]["content"][0]["cache_control"]["ttl"]
        )
    else:
        assert {**keyed, **kept} == await added(dialect, session_id="s1", cache_retention="long")


@pytest.mark.promise("I-02")
@pytest.mark.parametrize(
    ("model", "is_new"),
    [
        ("gpt-4o", False),
        ("gpt-4.1-mini", False),
        ("gpt-5-2025-08-07", False),
        ("gpt-5.5-pro", False),
        ("o3", False),
        ("gpt-5.6", True),
        ("gpt-5.6-sol", True),
        ("openai/gpt-5.10", True),
        ("ft:gpt-6:team", True),
    ],
)
@pytest.mark.parametrize(("dialect", "longest"), [("chat", "30m"), ("responses", "12h")])
async def test_openais_cache_is_spoken_to_in_the_words_of_the_model(
    dialect: str, longest: str, model: str, is_new: bool
) -> None:
    """The newest have a word for how long at least, and one for not at all; those before, for how long at most."""
    told = {
        retention: {name: value for name, value in said.items() if name.startswith("prompt_cache")}
        for retention in ("none", "short", "long")
        for said in [await SENT[dialect](request(options={"model": model, "cache_retention": retention}))]
    }

    old: Object = {"none": {}, "short": {}, "long": {"prompt_cache_retention": "24h"}}
    none, long = {"mode": "explicit"}, {"ttl": longest}
    new: Object = {"none": {"prompt_cache_options": none}, "short": {}, "long": {"prompt_cache_options": long}}
    assert (new if is_new else old) == told


@pytest.mark.parametrize("own", [{"prompt_cache_retention": "24h"}, {"prompt_cache_options": {"ttl": "30m"}}])
@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-5.6"])
async def test_openai_is_never_told_both_of_its_words_for_a_cache(model: str, own: Object) -> None:
    """It refuses them together; the caller's own goes first."""
    said = await SENT["responses"](request(options={"model": model, "cache_retention": "long", **own}))

    assert own == {name: value for name, value in said.items() if name.startswith("prompt_cache")}


@given(st.text(min_size=1))
def test_a_cache_key_is_short(session: str) -> None:
    """Whatever a session is called; and the same session always has the same key."""
    key = Common(session).cache_key

    assert key is not None
    assert 1 <= len(key) <= 64
    assert key == Common(session).cache_key


@pytest.mark.promise("I-02")
@pytest.mark.parametrize("dialect", SENT)
async def test_the_transport_may_be_chosen(dialect: str) -> None:
    """And a cap on retries is for whoever retries: it is not sent."""
    assert {} == await added(dialect, transport="json", max_retries=3)
    assert {} == await added(dialect, transport="auto")
    if dialect != "gemini":  # which streams at another address
        assert (await added(dialect, transport="sse"))["stream"] is True


@pytest.mark.parametrize(
    ("dialect", "own"),
    [
        ("claude", {"thinking": {"type": "disabled"}}),
        ("gemini", {"thinkingConfig": {"thinkingBudget": 7}}),
        ("responses", {"reasoning": {"effort": "low"}}),
        ("chat", {"reasoning_effort": "low"}),
        ("chat", {"prompt_cache_key": "mine"}),
    ],
)
async def test_the_providers_own_word_goes_first(dialect: str, own: Object) -> None:
    """Who speaks the dialect knows best."""
    both = await added(dialect, **own, thinking_level="high", session_id="s1")
    alone = await added(dialect, **own)

    assert {**both, **alone} == both


@pytest.mark.parametrize(
    "options",
    [
        {"thinking_level": "huge"},
        {"thinking_budget": -1},
        {"cache_retention": True},
        {"session_id": 7},
        {"transport": []},
    ],
)
def test_nonsense_is_refused_unsent(options: dict[str, object]) -> None:
    """With the words that there are."""
    with pytest.raises(ModelError, match="option") as caught:
        take_common(options)

    assert ("invalid_request", False) == (caught.value.kind, caught.value.dispatched)


@given(st.sampled_from(LEVELS))
def test_a_level_never_thinks_less_than_a_lower_one(level: str) -> None:
    """Those above `high` think as much."""
    lower = LEVELS[max(0, LEVELS.index(level) - 1)]

    assert (Common(thinking_level=lower).budget or 0) <= (Common(thinking_level=level).budget or 0) <= BUDGETS["high"]


@pytest.mark.promise("I-02")
@pytest.mark.parametrize("dialect", SENT)
async def test_what_is_not_for_the_body_does_not_get_there(dialect: str) -> None:
    """Headers are sent as headers, and retry caps are for whoever retries."""
    assert {} == await added(dialect, headers={"x-team": "blue"}, max_retries=2, max_retry_delay_ms=500)


@pytest.mark.promise("I-02")
async def test_a_request_brings_headers_of_its_own() -> None:
    """They go before the adapter's, and a None among them takes one away."""
    options = {"headers": {"X-Team": "blue", "accept": None, "anthropic-version": "2030-01-01"}}

    seen = (await CLAUDE.seen(request(options=options))).headers

    assert ("blue", "2030-01-01") == (seen["x-team"], seen["anthropic-version"])
    assert seen.get("accept") in {None, "*/*"}  # what the client says of itself


@pytest.mark.parametrize("headers", [{"x-team": "blue\nx: y"}, {"x-team": 1}, ["x-team"], {"x team": "blue"}])
async def test_a_header_that_no_request_can_carry_is_refused(headers: object) -> None:
    """Before it is sent, and without its value in the words."""
    with pytest.raises(ModelError) as refused:
        await sent(request(options={"headers": headers}))

    assert ("invalid_request", False) == (refused.value.kind, refused.value.dispatched)
    assert "blue" not in str(refused.value)
