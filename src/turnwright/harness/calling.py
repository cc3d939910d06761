"""Call what a declaration names: plain or async, with as many of the arguments as it takes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from turnwright.errors import DefinitionError
from turnwright.tools import awaited, called

__all__ = ["Fitted", "fitted"]

Fitted: TypeAlias = Callable[..., Awaitable[object]]


def fitted(function: object, *, owner: str, threaded: bool = False) -> Fitted:
    """*function* as an async one that may be given more arguments than it takes.

    A *threaded* plain function runs in a thread, so that it may block. DefinitionError, naming *owner*, for what
    cannot be called.
    """
    if not callable(function):
        raise DefinitionError(f"{owner} is a function, not {function!r:.80}")
    most = _most(function)
    in_thread = threaded and not inspect.iscoroutinefunction(function)

    async def call(*args: object) -> object:
        given = args[:most]
        return await awaited(await asyncio.to_thread(called, function, given, {}) if in_thread else function(*given))

    return call


def _most(function: Callable[..., object]) -> int | None:
    """How many positional arguments *function* takes; None for any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return 1
    if any([each.kind is each.VAR_POSITIONAL for each in parameters]):
        return None
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    # An option of the function's own is not ours to give.
    return sum([each.default is each.empty or each.name in ("ctx", "context") for each in positional])
