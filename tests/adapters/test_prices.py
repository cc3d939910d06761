"""The model table: what is known is told, and what is not is never guessed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from attrs import evolve as replace
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given, strategies as st

from turnwright import AgentDefinition, Completed, Ports, Suspended, run_agent, tool
from turnwright.errors import MissingExtra, ModelError
from turnwright.gateway import Gateway, Route
from turnwright.memory import FixedClock, MemoryBudgets
from turnwright.messages import AssistantMessage, ToolCall, Usage
from turnwright.testing import ScriptedModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.model_table import Bill, ModelCard, ModelTable, Price, bill, read_litellm, read_models_dev
from turnwright_contracts import PricesSuite

MINE = "vllm:mine"
TABLE = ModelTable({MINE: ModelCard(context_window=8192, price=Price(1.0, 2.0, cache_read=0.1))})

counts = st.integers(0, 10**9)


def answer(id: str | None, *usage: int, **more: int) -> AssistantMessage:
    """An answer of a model that used these input and output tokens."""
    provider, _, model = (id or "").partition(":")
    return AssistantMessage("x", usage=Usage(0, *usage, **more), provider=provider or None, model=model or None)


@pytest.mark.parametrize(
    ("used", "micros"),
    [
        (answer(MINE, 10, 5), 20),
        (answer(MINE, 10, 5, cache_read_tokens=25), 23),  # rounded up
        (answer(MINE, 0, 0), 0),
        (answer("anthropic:claude-sonnet-4-5", 700, 100, cache_read_tokens=200, cache_write_tokens=100), 4035),
        (answer("openai:gpt-4.1-mini-2025-04-14", 1000, 100), 560),
        (answer("openai-responses:gpt-4.1-mini", 1000, 100), 560),
        (answer("vllm:other", 1000, 100), None),
        (answer("openai:no-such-model", 1000, 100), None),
        (answer("nobody:gpt-4.1-mini", 1000, 100), None),
        (answer(None, 1000, 100), None),
    ],
)
def test_an_answer_has_its_price_or_none(used: AssistantMessage, micros: int | None) -> None:
    """Yours before the list's; a model that nobody knows isn't free."""
    assert micros == TABLE.price(used)


@given(counts, counts, counts, counts, st.floats(0, 1000), st.floats(0, 1000))
def test_a_price_is_never_too_low(read: int, write: int, input: int, output: int, price: float, other: float) -> None:
    """A whole number, at most one millionth above the exact sum, and more tokens never cost less."""
    usage = Usage(0, input, output, read, write)
    micros = Price(price, other).micros(usage)

    exact = (input + read + write) * price + output * other
    assert micros == pytest.approx(exact, rel=1e-9, abs=1)
    assert micros <= Price(price, other).micros(replace(usage, output_tokens=output + 1))


def test_a_long_request_may_cost_more_a_token() -> None:
    """The tier is that of the whole request."""
    short, long = [TABLE.estimate("gemini:gemini-2.5-pro", input_tokens=n, output_tokens=0) for n in (100_000, 300_000)]

    assert short is not None
    assert long is not None
    assert 3 * short < long


def test_a_price_is_that_of_its_hour() -> None:
    """The clock is a port: prices of the past and of the night are those of then."""
    clock = FixedClock()
    table = ModelTable(clock=clock)
    prices = set()
    for clock.at in (1_735_700_000.0, 1_741_910_400.0, 1_764_600_000.0):
        prices.add(table.estimate("deepseek:deepseek-reasoner", input_tokens=1000, output_tokens=1000))

    assert None not in prices
    assert len(prices) > 1


def test_a_card_of_yours_is_filled_in() -> None:
    """What it says stands, what it leaves out is looked up."""
    table = ModelTable({"openai:gpt-4.1-mini": ModelCard(max_output=32_768, modalities=["text", "image"])})

    card = table.card("openai:gpt-4.1-mini")

    assert (32_768, frozenset({"text", "image"})) == (card.max_output, card.modalities)
    assert card.context_window is not None
    assert 560 == table.estimate("openai:gpt-4.1-mini", input_tokens=1000, output_tokens=100)


def test_an_unknown_name_is_refused_with_those_that_are_near() -> None:
    """A typo costs one look."""
    with pytest.raises(LookupError, match=r"'openai:gpt-4\.1-minni'; did you mean openai:gpt-4\.1-mini"):
        TABLE.card("openai:gpt-4.1-minni")
    with pytest.raises(LookupError, match="vllm:mine"):
        TABLE.card("vllm:mien")
    with pytest.raises(ValueError, match="provider:model"):
        ModelTable({"gpt-4.1-mini": ModelCard()})


def test_a_table_of_your_own_needs_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without the list's package one is told how to install it."""
    own = ModelTable({MINE: ModelCard(price=Price(0, 0))}, data=False)

    assert [0, None] == [own.price(answer(MINE, 5, 5)), own.price(answer("openai:gpt-4.1-mini", 5, 5))]

    from turnwright_adapters import model_table

    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    model_table._snapshot.cache_clear()
    with pytest.raises(MissingExtra, match=r"turnwright\[prices\]"):
        ModelTable()


def test_a_table_of_litellm_can_be_read(tmp_path: Path) -> None:
    """Names become ours; a price that depends on the length of the request is left to the list."""
    entry = {"mode": "chat", "max_input_tokens": 1000, "max_output_tokens": 100, "supports_vision": True}
    costs = {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05, "cache_read_input_token_cost": 3e-07}
    file = tmp_path / "models.json"
    table = {
        "claude": {
            **entry,
            **costs,
            "litellm_provider": "anthropic",
            "cache_creation_input_token_cost_above_1hr": 6e-06,
        },
        "gemini/pro": {**entry, **costs, "litellm_provider": "gemini", "input_cost_per_token_above_200k_tokens": 1e-05},
        "xai/free": {"mode": "chat", "litellm_provider": "xai"},
        "embed": {**entry, "mode": "embedding", "litellm_provider": "openai"},
        "elsewhere": {**entry, "litellm_provider": "somebody"},
    }
    file.write_text(json.dumps(table))

    known = ModelCard(1000, 100, ["text", "image"])
    assert {
        "anthropic:claude": replace(known, price=Price(3.0, 15.0, 0.3)),
        "gemini:pro": known,
        "xai:free": ModelCard(modalities=["text"]),
    } == read_litellm(file)


def test_a_table_of_models_dev_can_be_read(tmp_path: Path) -> None:
    """Names, modalities and levels of thought become ours; what it does not say is not known."""
    cost = {"input": 2, "output": 12.5, "cache_read": 0.2}
    effort = {"type": "effort", "values": ["high", "none", "low", None, "ultra"]}
    thinker = {
        "id": "thinker",
        "reasoning": True,
        "reasoning_options": [{"type": "toggle"}, effort],
        "modalities": {"input": ["text", "image", "pdf", "smell"], "output": ["text"]},
        "limit": {"context": 400_000, "output": 128_000},
        "cost": cost,
    }
    flash = {"id": "flash", "reasoning": False, "cost": cost | {"context_over_200k": {"input": 4, "output": 20}}}
    claude = {"id": "claude", "reasoning": True, "reasoning_options": [effort]}
    file = tmp_path / "api.json"
    providers = {"openai": [thinker], "google": [flash], "anthropic": [claude], "somebody": [thinker]}
    file.write_text(
        json.dumps({name: {"id": name, "models": {m["id"]: m for m in models}} for name, models in providers.items()})
    )

    cards = read_models_dev(file)

    levels = {"off": "none", "low": "low", "high": "high"}
    assert {
        "openai:thinker": ModelCard(400_000, 128_000, ["text", "image", "file"], levels, Price(2.0, 12.5, 0.2)),
        "gemini:flash": ModelCard(thinking={}),
        "anthropic:claude": ModelCard(),
    } == cards
    assert ["off", "low", "high"] == list(cards["openai:thinker"].thinking or ())
    table = ModelTable(cards, data=False)
    assert cards["openai:thinker"] == table.card("openai-responses:thinker")


@pytest.mark.parametrize("read", [read_models_dev, read_litellm])
def test_a_file_of_cards_is_what_an_adapter_takes(read: Callable[[Path], dict[str, ModelCard]], tmp_path: Path) -> None:
    """Modalities and thinking go in as they are; junk in a file is what is not known."""
    file = tmp_path / "models.json"
    model = {"modalities": {"input": ["text", "video", "audio", "pdf"]}, "reasoning": False, "cost": [], "limit": 7}
    signs = dict.fromkeys(
        ["supports_vision", "supports_audio_input", "supports_pdf_input", "supports_video_input"], True
    )
    entry = {"models": {"m": model, "n": None, "o": {}}, "litellm_provider": "gemini", "mode": "chat", **signs}
    file.write_text(json.dumps({"google": entry, "openai": {"models": []}}))

    for card in read(file).values():
        GeminiModel("m", modalities=card.modalities, thinking=card.thinking)
        assert None is card.price


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openai:gpt-5-mni", ["openai:gpt-5-mini"]),
        ("openai:gpt-5mini", ["openai:gpt-5-mini"]),
        ("openai:gtp-5", ["openai:gpt-5"]),
        ("openai-responses:gpt-5-mni", ["openai-responses:gpt-5-mini"]),
        ("anthropic:claude-sonet-4-5", ["anthropic:claude-sonnet-4-5"]),
        ("gemini:gemini-2.5-falsh", ["gemini:gemini-2.5-flash"]),
        ("vllm:mien", ["vllm:mine"]),
        ("vllm:mine", []),
        ("openai:gpt-5-mini", []),
        ("openai:gpt-4.1-mini-2025-04-14", []),
        ("openai:gpt-5.97-mini", []),
        ("openai:gpt-97", []),
        ("openai:gpt-5-vega", []),
        ("anthropic:claude-sonnet-97-20991231", []),
        ("openai:ft:gpt-4o-mini:team::abc", []),
        ("ollama:gpt-5-mni", []),
    ],
)
def test_a_misspelling_is_told_from_a_model_that_is_newer_than_the_table(name: str, meant: list[str]) -> None:
    """Another version or another word is no misspelling, nor is anything of a server that has no list."""
    table = ModelTable({"vllm:mine": ModelCard()})

    assert meant == table.meant(name)


LISTS = {"gemini": "google", "xai": "x-ai"}


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "groq", "mistral", "xai", "deepseek"])
def test_no_model_of_the_list_is_a_misspelling_of_another(provider: str) -> None:
    """So a list without its newest models would have called none of them one."""
    listed = get_snapshot().find_provider(None, LISTS.get(provider, provider), None).models
    cards = {f"{provider}:{model.id}": ModelCard() for model in listed}

    for name in cards:
        older = ModelTable({each: card for each, card in cards.items() if each != name}, data=False)
        assert [] == older.meant(name)


def test_a_bill_says_how_many_have_no_price() -> None:
    """The sum of what is known is no total where something is not."""
    answers = [answer(MINE, 10, 5), answer("vllm:other", 10, 5), answer(MINE, 1, 0)]

    assert Bill(21, 1) == bill(answers, TABLE)
    assert Bill() == bill([], TABLE)


class Spends(ScriptedModel):
    """A scripted model of vllm that tells what it used."""

    def __init__(self, *used: tuple[int, int], calls: Sequence[str] = ()) -> None:
        parts = [[ToolCall(f"c{index}", name, "{}")] for index, name in enumerate(calls)]
        answers = [AssistantMessage(each, "tool_calls") for each in parts]
        answers += [AssistantMessage("done")] * (len(used) - len(answers))
        mine = {"provider": "vllm", "model": "mine"}
        super().__init__([replace(a, usage=Usage(0, *u), **mine) for a, u in zip(answers, used, strict=True)])


@pytest.mark.case("usg-07")
async def test_what_a_run_used_is_counted_once_and_where_it_was_used() -> None:
    """A second run starts at nothing, a run inside a tool has its own account, and the total is their sum."""
    inner = AgentDefinition("inner", "Help.")
    spent: list[Usage] = []

    @tool(replay="safe")
    async def delegate() -> str:
        """Let another agent do it."""
        outcome = await run_agent(inner, "go", Ports(model=Spends((7, 1))))
        spent.append(outcome.usage)
        return "ok"

    outer = AgentDefinition("outer", "Work.", tools=[delegate])
    first = await run_agent(outer, "go", Ports(model=Spends((10, 5), (20, 5), calls=["delegate"])))
    second = await run_agent(outer, "go", Ports(model=Spends((30, 5))))

    assert isinstance(first, Completed) and isinstance(second, Completed)
    runs = [first.usage, *spent, second.usage]
    assert [(30, 10), (7, 1), (30, 5)] == [(each.input_tokens, each.output_tokens) for each in runs]
    assert [2, 1, 1] == [each.requests for each in runs]
    assert [Bill(50), Bill(40)] == [bill(each.transcript, TABLE) for each in (first, second)]


@pytest.mark.promise("N-11")
async def test_an_answer_is_charged_at_its_price() -> None:
    """Reserved by estimate, settled by the actual; the next run waits until there is money again."""
    budgets = MemoryBudgets({("team", "money"): 500})
    thrifty = AgentDefinition("thrifty", "Work.", cost={"money": 400})
    ports = Ports(model=Spends((100, 50)), budgets=budgets, scopes=("team",), prices=TABLE)

    first = await run_agent(thrifty, "go", ports)
    second = await run_agent(thrifty, "go", ports)

    assert isinstance(first, Completed)
    assert (200, 0) == budgets.standing("team", "money")[1:]
    assert isinstance(second, Suspended)
    assert ("budget", "money") == (second.reason, second.detail)


@pytest.mark.parametrize("prices", [TABLE, None])
async def test_what_has_no_price_costs_what_was_reserved_for_it(prices: ModelTable | None) -> None:
    """It is never taken for free."""
    budgets = MemoryBudgets({("team", "money"): 500})
    thrifty = AgentDefinition("thrifty", "Work.", cost={"money": 400})
    model = ScriptedModel([answer("vllm:other", 100, 50)])

    await run_agent(thrifty, "go", Ports(model=model, budgets=budgets, scopes=("team",), prices=prices))

    assert (400, 0) == budgets.standing("team", "money")[1:]


@pytest.mark.case("usg-08")
async def test_every_request_of_a_gateway_counts() -> None:
    """In the run's usage and on the axis of requests."""
    budgets = MemoryBudgets({("team", "requests"): 10})
    gateway = Gateway([Route("down", ScriptedModel([ModelError("quota", "none")])), Route("up", Spends((3, 1)))])
    definition = AgentDefinition("worker", "Work.")

    outcome = await run_agent(definition, "go", Ports(model=gateway, budgets=budgets, scopes=("team",)))

    assert 2 == outcome.usage.requests
    assert (2, 0) == budgets.standing("team", "requests")[1:]


@pytest.mark.promise("T-05")
class TestListedPrices(PricesSuite):
    """Of the list."""

    provider, model = "openai", "gpt-4.1-mini"

    def make(self) -> ModelTable:
        return ModelTable()


@pytest.mark.promise("T-05")
class TestPricesOfYourOwn(PricesSuite):
    """Of a card."""

    provider, model = "vllm", "mine"

    def make(self) -> ModelTable:
        return ModelTable({MINE: ModelCard(price=Price(1.5, 2.0))}, data=False)
