"""A loop whose time jumps to the next alarm when nothing else is left to do, so that an hour costs no time.

    outcome = run(run_agent(support, "go", Ports(model=model, clock=LoopClock())))

Rule: time passes only while everybody waits for it. A thread that works for the loop is waited for in true time first.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Final, TypeVar

__all__ = ["LoopClock", "VirtualLoop", "run"]

T = TypeVar("T")

BOUND: Final = 20.0
"""Seconds of true time that one wait for a thread or a lost wake-up may take before the loop gives up."""

HORIZON: Final = 1e6
"""Seconds of virtual time after which what runs counts as never ending."""


class _Selector(selectors.BaseSelector):
    """Lets time pass instead of waiting for it."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0
        self.threads = 0
        """How many calls are at work in threads."""

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
        if timeout is None or self.threads:
            ready = self._real.select(BOUND if timeout is None else min(timeout, BOUND))
            assert ready or timeout is not None, "the loop would wait for ever"
            if ready:
                return ready
        assert timeout is not None
        self.now += timeout
        assert self.now < HORIZON, "the run goes on and on"
        return []

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[object, selectors.SelectorKey]:  # type: ignore[override]
        return self._real.get_map()  # type: ignore[return-value]


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a time of its own, which starts at 0. *late*, if given, says by how much each alarm rings too late.

    What is ready runs in the order in which it became ready, as asyncio promises. For alarms that are due at the same
    moment it promises no order: with *late*, a test decides it.
    """

    def __init__(self, late: Callable[[], float] | None = None) -> None:
        self._selector_of_time = _Selector()
        self._late = late
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._selector_of_time.now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set an alarm; see `loop.call_at`."""
        late = 0.0 if self._late is None else self._late()
        return super().call_at(when + late, callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Do it in a thread; see `loop.run_in_executor`."""
        working: asyncio.Future[T] = super().run_in_executor(executor, func, *args)  # type: ignore[arg-type]
        self._selector_of_time.threads += 1
        working.add_done_callback(self._thread_is_done)
        return working

    def _thread_is_done(self, _: object) -> None:
        self._selector_of_time.threads -= 1


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
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
