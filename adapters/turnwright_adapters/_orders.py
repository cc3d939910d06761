"""What the threads of a database are asked to do, and how those who wait are told.

Rule: whoever asks is in an event loop and never blocks it; whoever does it is in a thread and never touches a loop but
to wake it, once for all its answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from attrs import define, field

__all__ = ["Order", "tell"]


def _future() -> asyncio.Future[object]:
    return asyncio.get_running_loop().create_future()


@define(eq=False)
class Order:
    """Who waits for something to be done, and what came of it. Cancelling *future* forgets the answer, not the work."""

    future: asyncio.Future[object] = field(factory=_future, kw_only=True)
    value: object = field(default=None, kw_only=True)
    error: Exception | None = field(default=None, kw_only=True)

    def answer(self) -> None:
        """Tell who waits, in the thread of its loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


def tell(orders: Iterable[Order]) -> None:
    """Tell everybody who waits, with one wake-up for each loop."""
    waiting: dict[asyncio.AbstractEventLoop, list[Order]] = {}
    for order in orders:
        waiting.setdefault(order.future.get_loop(), []).append(order)
    for loop, theirs in waiting.items():
        try:
            loop.call_soon_threadsafe(_answer, theirs)
        except RuntimeError:
            pass  # the loop was closed: nobody waits any more


def _answer(orders: Iterable[Order]) -> None:
    for order in orders:
        order.answer()
