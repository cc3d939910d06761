"""Models by name, `provider:model`. Rule: keys come from the vendors' own environment variables and go nowhere but to
the vendor.

    Ports(model=model_of("anthropic:claude-sonnet-4-5"))
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, Protocol, assert_never

from attrs import frozen

from turnwright.errors import MissingExtra
from turnwright.ports import Model

if TYPE_CHECKING:
    from turnwright_adapters.model_table import ModelCard, ModelTable

__all__ = ["LOCAL", "PROVIDERS", "OpenModel", "Provider", "model_of"]

LOCAL: Final = "local"
"""The model that needs neither key nor network, once its weights are here."""

CARDS: Final = "TURNWRIGHT_MODEL_CARDS"
"""Names a file of models.dev or LiteLLM: what models take in, how they think, and which there are."""

ANYWAY: Final = "!"
"""At the end of a name it asks for a model that looks misspelt."""

_RESPONSES: Final = re.compile(r"gpt-(?:[6-9]|\d\d)")
"""Models of OpenAI that call tools in its newer dialect only, by its deployment checklist."""


@frozen
class Provider:
    """A server and how it speaks. *key* names the environment variable, empty where none is needed.

    *other_key* is asked where *key* is not set. *moved* names the variable that moves it to another server, which may
    need no key; *version* is what the vendor leaves out of that address.
    """

    base_url: str
    key: str = ""
    schemas: bool = True
    """Whether it takes a JSON Schema for its answer; if not, the schema is put into the instruction."""
    dialect: Literal["chat", "anthropic", "gemini", "responses"] = "chat"
    other_key: str = ""
    moved: str = ""
    version: str = ""


PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", moved="OPENAI_BASE_URL"),
    "openai-responses": Provider(
        "https://api.openai.com/v1", "OPENAI_API_KEY", dialect="responses", moved="OPENAI_BASE_URL"
    ),
    "anthropic": Provider(
        "https://api.anthropic.com", "ANTHROPIC_API_KEY", dialect="anthropic", moved="ANTHROPIC_BASE_URL"
    ),
    "cerebras": Provider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", schemas=False),
    "fireworks": Provider("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        dialect="gemini",
        other_key="GOOGLE_API_KEY",
        moved="GOOGLE_GEMINI_BASE_URL",
        version="/v1beta",
    ),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "lmstudio": Provider("http://127.0.0.1:1234/v1"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": Provider("http://127.0.0.1:11434/v1"),
    "openrouter": Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vllm": Provider("http://127.0.0.1:8000/v1"),
    "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY"),
}


class OpenModel(Model, Protocol):
    """A model that is opened before its first request and closed after its last."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, *error: object) -> None: ...


def model_of(name: str, environ: Mapping[str, str] = os.environ) -> OpenModel:
    """Return the model called *name*: `provider:model`, or `local`. Nothing is asked of anybody yet.

    Several names with commas between them are a gateway: each is asked where those before it could not answer. With
    the model table installed a name that is a misspelling of a known one is refused, unless it ends with `!`, or the
    server is one's own. A name that is like no other may be newer than the table, and is the server's to refuse.

    Raises ValueError for a name that cannot be, with those that may have been meant, and for a key that is not set;
    MissingExtra where the adapter's package is not installed.
    """
    if "," in name:
        return _gateway(name, environ)
    vendor, _, model = name.partition(":")
    if vendor == LOCAL:
        if model:
            raise ValueError(f"{name}: there is one local model; TURNWRIGHT_LOCAL_MODEL names weights of your own")
        from turnwright_adapters.local import LocalModel

        return LocalModel()
    provider = PROVIDERS.get(vendor)
    if provider is None:
        raise ValueError(f"{name}: {_unknown(vendor)}")
    if not model:
        raise ValueError(f"{name}: say which model of {vendor}, as in {vendor}:<model>")
    if vendor == "openai" and not environ.get(provider.moved) and _RESPONSES.match(model):
        vendor, provider = "openai-responses", PROVIDERS["openai-responses"]
    base_url, key = provider.base_url, environ.get(provider.key) or environ.get(provider.other_key, "")
    if own := environ.get(provider.moved):
        base_url = own.rstrip("/") + provider.version
    elif provider.key and not key:
        raise ValueError(f"{name}: set {provider.key} in the environment to use {vendor}")
    asked = model.removesuffix(ANYWAY)
    card = None
    if (table := _table(environ) if provider.key or environ.get(CARDS) else None) is not None:
        if asked == model and base_url == provider.base_url:
            _check(table, name, vendor, model)
        card = _card(table, f"{vendor}:{asked}")
    try:
        return _speaking(provider, vendor, asked, base_url=base_url, key=key or None, card=card)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _gateway(names: str, environ: Mapping[str, str]) -> OpenModel:
    from turnwright.gateway import Gateway, Route

    try:
        return Gateway([Route(name.removesuffix(ANYWAY), model_of(name, environ)) for name in names.split(",")])
    except ValueError as error:
        raise ValueError(f"{names}: {error}") from error


def _table(environ: Mapping[str, str]) -> ModelTable | None:
    """Return what is known of models, None if there is no table."""
    from turnwright_adapters.model_table import ModelTable, read_litellm, read_models_dev

    cards: dict[str, ModelCard] = {}
    if path := environ.get(CARDS):
        try:
            cards = read_models_dev(path) or read_litellm(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{CARDS} names no file of models.dev or LiteLLM: {error}") from error
    try:
        return ModelTable(cards)
    except MissingExtra:
        return ModelTable(cards, data=False) if cards else None


def _check(table: ModelTable, name: str, vendor: str, model: str) -> None:
    if meant := table.meant(f"{vendor}:{model}"):
        raise ValueError(
            f"{name}: {vendor} has no model {model!r} that is known; did you mean {' or '.join(meant[:3])}? "
            f"For this very name end it with {ANYWAY!r}"
        )


def _card(table: ModelTable, id: str) -> ModelCard | None:
    try:
        return table.card(id)
    except LookupError:
        return None


def _speaking(
    provider: Provider, vendor: str, model: str, *, base_url: str, key: str | None, card: ModelCard | None
) -> OpenModel:
    modalities, thinking = (None, None) if card is None else (card.modalities, card.thinking)
    match provider.dialect:
        case "chat":
            from turnwright_adapters.chat_completions import ChatCompletionsModel, Compat

            compat = None if provider.schemas else Compat(output="never")
            return ChatCompletionsModel(
                model,
                base_url=base_url,
                api_key=key,
                provider=vendor,
                compat=compat,
                modalities=modalities,
                thinking=thinking,
            )
        case "anthropic":
            from turnwright_adapters.anthropic import AnthropicModel

            return AnthropicModel(
                model, base_url=base_url, api_key=key, provider=vendor, modalities=modalities, thinking=thinking
            )
        case "gemini":
            from turnwright_adapters.gemini import GeminiModel

            return GeminiModel(
                model, base_url=base_url, api_key=key, provider=vendor, modalities=modalities, thinking=thinking
            )
        case "responses":
            from turnwright_adapters.responses import ResponsesModel

            return ResponsesModel(
                model, base_url=base_url, api_key=key, provider=vendor, modalities=modalities, thinking=thinking
            )
        case _:
            assert_never(provider.dialect)


def _unknown(vendor: str) -> str:
    known = [LOCAL, *PROVIDERS]
    near = difflib.get_close_matches(vendor, known, 2)
    if near:
        return f"unknown provider {vendor!r}; did you mean {' or '.join(near)}?"
    return f"unknown provider {vendor!r}; say provider:model with one of {', '.join(known)}"
