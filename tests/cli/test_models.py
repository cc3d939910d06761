"""Which model answers, by name and by what the environment holds."""

from __future__ import annotations

import pytest

from turnwright.cli.exits import CommandError
from turnwright.cli.models import PROVIDERS, default_model, model_of
from turnwright.gateway import Gateway
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

ADAPTERS = {
    "chat": ChatCompletionsModel,
    "anthropic": AnthropicModel,
    "gemini": GeminiModel,
    "responses": ResponsesModel,
}
EVERY_KEY = {provider.key: "k" for provider in PROVIDERS.values() if provider.key}


@pytest.mark.parametrize(
    ("environ", "name"),
    [({}, "local"), ({"OPENAI_API_KEY": ""}, "local"), ({"OPENAI_API_KEY": "k"}, "openai:gpt-4.1-mini")],
)
def test_the_local_model_answers_when_no_key_is_set(environ: dict[str, str], name: str) -> None:
    """Nobody needs a key to begin, and an empty one is none."""
    assert name == default_model(environ)


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_every_provider_gives_a_model_of_its_name(vendor: str) -> None:
    """A model id may hold colons and slashes: all after the first colon is the vendor's."""
    model = model_of(f"{vendor}:family/model:free", EVERY_KEY)

    assert isinstance(model, ADAPTERS[PROVIDERS[vendor].dialect])
    assert (vendor, "family/model:free") == (model.provider, model.model)


@pytest.mark.parametrize(
    ("vendor", "variable", "address"),
    [
        ("openai", "OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
        ("openai-responses", "OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
        ("anthropic", "ANTHROPIC_BASE_URL", "http://127.0.0.1:1"),
        ("gemini", "GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1/v1beta"),
    ],
)
def test_a_server_of_ones_own_needs_no_key(vendor: str, variable: str, address: str) -> None:
    """The vendor's own variable, written as the vendor's own tools want it, moves it to any server of its dialect."""
    model = model_of(f"{vendor}:mine", {variable: address.removesuffix("/v1beta")})

    assert isinstance(model, ADAPTERS[PROVIDERS[vendor].dialect])
    assert address == str(model._base).removesuffix("/")


def test_gemini_has_two_names_for_its_key() -> None:
    """The first is asked first."""
    assert isinstance(model_of("gemini:mine", {"GOOGLE_API_KEY": "k"}), GeminiModel)
    with pytest.raises(CommandError, match="GEMINI_API_KEY"):
        model_of("gemini:mine", {})


def test_several_names_are_a_gateway() -> None:
    """Each is asked where those before it could not answer; one that cannot be had is refused before any is asked."""
    both = model_of("anthropic:a,openai:b", EVERY_KEY)

    assert isinstance(both, Gateway)
    assert "<Gateway ['anthropic:a', 'openai:b']>" == repr(both)
    for names in ("openai:a,openai:a", "openai:a,", "openai:a,opnai:b"):
        with pytest.raises(CommandError, match="-m "):
            model_of(names, EVERY_KEY)
