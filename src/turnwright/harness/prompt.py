"""The prompt of a turn, made of layers: the static ones first, then those that are made anew for each turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from attrs import field

from turnwright.errors import DefinitionError
from turnwright.harness.calling import Fitted, fitted
from turnwright.harness.context import TurnContext
from turnwright.values import frozen

__all__ = ["Prompt", "PromptLayer", "assembled", "prompt_layer", "static_prompt"]

BETWEEN = "\n\n"

LayerText: TypeAlias = str | Callable[[], str | Awaitable[str]] | Callable[[TurnContext], str | Awaitable[str]]


@frozen(eq=False)
class PromptLayer:
    """One part of the prompt; see `prompt_layer`."""

    name: str
    text: str
    make: Fitted | None = field(default=None, repr=False)
    cache: bool = False


@frozen
class Prompt:
    """The prompt of one turn. *stable* is the length of its beginning that the provider may keep, None for nothing."""

    text: str
    stable: int | None
    layers: int
    cached: int


def prompt_layer(name: str, text: LayerText, *, cache: bool = False) -> PromptLayer:
    """Declare a part of the prompt: a text, or a function that gives one anew for each turn.

    With *cache*, everything up to here may be kept by the provider from request to request. What is made anew cannot
    be: DefinitionError.
    """
    if isinstance(text, str):
        return PromptLayer(name, text, None, cache)
    if cache:
        raise DefinitionError(f"prompt layer {name!r} is made anew for each turn, so it cannot be cached; drop cache=")
    return PromptLayer(name, "", fitted(text, owner=f"the text of prompt layer {name!r}"))


def static_prompt(layers: Sequence[PromptLayer]) -> Prompt:
    """The part of the prompt that is the same in every turn."""
    static = [layer for layer in layers if layer.make is None and layer.text]
    texts = [layer.text for layer in static]
    cached = [index for index, layer in enumerate(static) if layer.cache]
    stable = len(BETWEEN.join(texts[: cached[-1] + 1])) if cached else None
    return Prompt(BETWEEN.join(texts), stable, len(texts), len(cached))


async def assembled(static: Prompt, makers: Sequence[Fitted], context: object) -> Prompt:
    """The prompt of a turn: what *makers* give, in their order, after what is *static*. Raises what they raise."""
    if not makers:
        return static
    texts = [static.text] if static.text else []
    for make in makers:
        text = await make(context)
        if not isinstance(text, str):
            raise DefinitionError(f"a prompt layer gives text, not {type(text).__name__}")
        if text:
            texts.append(text)
    made = len(texts) - bool(static.text)
    return Prompt(BETWEEN.join(texts), static.stable, static.layers + made, static.cached)
