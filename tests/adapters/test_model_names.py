"""Which model answers, by name and by what the environment holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnwright.cli.models import default_model
from turnwright.gateway import Gateway
from turnwright.models import PROVIDERS, model_of
from turnwright_adapters._wire import HttpModel
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


def named(name: str, environ: Mapping[str, str] = EVERY_KEY) -> HttpModel:
    """The one model of this name."""
    model = model_of(name, environ)
    assert isinstance(model, HttpModel)
    return model


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
    with pytest.raises(ValueError, match="GEMINI_API_KEY"):
        model_of("gemini:mine", {})


def test_several_names_are_a_gateway() -> None:
    """Each is asked where those before it could not answer; one that cannot be had is refused before any is asked."""
    both = model_of("anthropic:a,openai:b", EVERY_KEY)

    assert isinstance(both, Gateway)
    assert "<Gateway ['anthropic:a', 'openai:b']>" == repr(both)
    for names in ("openai:a,openai:a", "openai:a,", "openai:a,opnai:b"):
        with pytest.raises(ValueError, match=r"needs routes|unknown provider"):
            model_of(names, EVERY_KEY)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openai:gpt-5-mni", "openai:gpt-5-mini"),
        ("openai-responses:gpt-5-mni", "openai-responses:gpt-5-mini"),
        ("anthropic:claude-sonet-4-5", "anthropic:claude-sonnet-4-5"),
        ("gemini:gemini-2.5-falsh,openai:gpt-5", "gemini:gemini-2.5-flash"),
    ],
)
def test_a_misspelt_model_is_refused_with_the_name_that_was_meant(name: str, meant: str) -> None:
    """Before anything is asked, and with the way to ask for it all the same."""
    with pytest.raises(ValueError, match=rf"did you mean {meant}\?.*'!'"):
        model_of(name, EVERY_KEY)


@pytest.mark.parametrize("name", ["openai:gpt-5-mni!", "openai:gpt-99-mini", "openai:gpt-5-vega", "ollama:gpt-5-mni"])
def test_a_model_that_may_exist_is_not_refused(name: str) -> None:
    """The table is older than the newest models: who insists, names another version, or has a server goes on."""
    assert name.partition(":")[2].removesuffix("!") == named(name).model


def test_a_server_of_ones_own_has_models_of_its_own() -> None:
    """No list knows them."""
    model = named("openai:gpt-5-mni", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})

    assert "gpt-5-mni" == model.model


def test_a_gateway_may_have_a_model_that_looks_misspelt() -> None:
    """Its route is called by its name."""
    both = model_of("openai:gpt-5-mni!,anthropic:b", EVERY_KEY)

    assert "<Gateway ['openai:gpt-5-mni', 'anthropic:b']>" == repr(both)


def test_nothing_is_refused_without_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    from turnwright_adapters import model_table

    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)
    model_table._snapshot.cache_clear()

    assert "gpt-5-mni" == named("openai:gpt-5-mni").model
    model_table._snapshot.cache_clear()


def test_what_a_file_of_cards_says_reaches_the_model(tmp_path: Path) -> None:
    """In the form of models.dev or of LiteLLM; the models in it are known, also without a list."""
    file = tmp_path / "models.json"
    sees = {"modalities": {"input": ["text", "image"]}, "reasoning": False}
    environ = {**EVERY_KEY, "TURNWRIGHT_MODEL_CARDS": str(file)}

    file.write_text(json.dumps({"openai": {"models": {"gpt-5-mni": sees}}}))
    assert {"text", "image"} == named("openai:gpt-5-mni", environ).modalities
    file.write_text(json.dumps({"gpt-5-mni": {"litellm_provider": "openai", "mode": "chat", "supports_vision": True}}))
    assert {"text", "image"} == named("openai:gpt-5-mni", environ).modalities
    for broken in ("{", "[]", None):
        file.unlink() if broken is None else file.write_text(broken)
        with pytest.raises(ValueError, match="TURNWRIGHT_MODEL_CARDS"):
            model_of("openai:gpt-5", environ)


@pytest.mark.parametrize(("name", "dialect"), [("gpt-5.5", "openai"), ("gpt-6.1-sol", "openai-responses")])
def test_the_newest_of_openai_are_spoken_to_in_its_newer_dialect(name: str, dialect: str) -> None:
    """They call tools in no other; a server of one's own keeps to what was named."""
    own = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}

    assert [dialect, "openai"] == [named(f"openai:{name}", environ).provider for environ in (EVERY_KEY, own)]
