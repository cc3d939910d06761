"""Run an asynchronous test under any test runner. Rule: no test waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Final, ParamSpec

__all__ = ["BOUND", "scenario"]

P = ParamSpec("P")

BOUND: Final = 60.0
"""Seconds that one test may take."""


def scenario(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Make a plain test of an asynchronous one: each runs in a loop of its own, within its bound."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), BOUND))

    return run
