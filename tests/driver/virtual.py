"""A loop whose time jumps to the next alarm when nothing else is left to do, so that an hour costs no time."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Coroutine, Mapping
from typing import TypeVar

__all__ = ["LoopClock", "leftovers", "run"]

T = TypeVar("T")

BOUND = 20.0
"""Seconds of true time that one wait for a thread or a lost wake-up may take before the test fails."""

HORIZON = 1e6
"""Seconds of virtual time after which a run counts as hanging."""


class _Selector(selectors.BaseSelector):
    """Skips time instead of waiting for it."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.skipped = 0.0

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)  # type: ignore[arg-type]

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)  # type: ignore[arg-type]

    def modify(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)  # type: ignore[arg-type]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or _threads_at_work():
            ready = self._real.select(BOUND if timeout is None else min(timeout, BOUND))
            assert ready or timeout is not None, "the loop would wait for ever"
            return ready
        self.skipped += timeout
        assert self.skipped < HORIZON, "the run goes on and on"
        return []

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[object, selectors.SelectorKey]:  # type: ignore[override]
        return self._real.get_map()  # type: ignore[return-value]


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skips = _Selector()
        super().__init__(self._skips)

    def time(self) -> float:
        return super().time() + self._skips.skipped


def _threads_at_work() -> bool:
    """Whether a tool's thread may still do something, in which case time is not skipped."""
    return any([thread.name.startswith("asyncio_") for thread in threading.enumerate()])


class LoopClock:
    """The clock port that agrees with the running loop: the loop's time, from 1,800,000,000 seconds after 1970 on."""

    def __init__(self) -> None:
        self._start: float | None = None

    def now(self) -> float:
        """Seconds since 1970."""
        moment = self.monotonic()
        if self._start is None:
            self._start = moment
        return 1_800_000_000.0 + moment - self._start

    def monotonic(self) -> float:
        """The loop's own time."""
        return asyncio.get_running_loop().time()


def run(work: Coroutine[object, object, T]) -> T:
    """Run *work* on a loop of its own, without waiting for time to pass."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


def leftovers() -> set[asyncio.Task[object]]:
    """The tasks, besides this one and the test runner's, that are still at work."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return {task for task in others if "TestRunner" not in getattr(task.get_coro(), "__qualname__", "")}
