"""Which model answers, by name and by what the environment holds."""

from __future__ import annotations

import pytest

from turnwright.cli.models import PROVIDERS, default_model, model_of
from turnwright_adapters.chat_completions import ChatCompletionsModel

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

    assert isinstance(model, ChatCompletionsModel)
    assert (vendor, "family/model:free") == (model.provider, model.model)


def test_a_server_of_ones_own_needs_no_key() -> None:
    """OPENAI_BASE_URL moves openai to any server of its dialect."""
    model = model_of("openai:mine", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})

    assert isinstance(model, ChatCompletionsModel)
