"""Run an asynchronous test under any test runner. Rule: no test waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from typing import Final, ParamSpec, TypeVar

__all__ = ["BOUND", "answers_at_once", "cut", "scenario"]

P = ParamSpec("P")
T = TypeVar("T")

BOUND: Final = 60.0
"""Seconds that one test may take."""


def scenario(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Make a plain test of an asynchronous one: each runs in a loop of its own, within its bound."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), BOUND))

    return run


def answers_at_once(call: Coroutine[object, object, object]) -> bool:
    """Whether *call* gives its answer without waiting for anything."""
    try:
        call.send(None)
    except StopIteration:
        return True
    call.close()
    return False


async def cut(call: Coroutine[object, object, T], steps: int) -> T | None:
    """Let *call* go on for so many steps of the loop, then cancel it. Its answer if it was faster, None if not."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        return await task
    return None
