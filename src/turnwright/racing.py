"""What a run's port calls race: its deadline and its cancellation. Rule: nobody waits longer than these allow, also for
a port that ignores its own cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Final, Literal, TypeAlias, TypeVar

from turnwright.errors import PortError
from turnwright.ports import Cancellation, Clock

__all__ = ["FOREVER", "Interrupted", "Interruption", "Race", "end", "let_go", "may_wait"]

T = TypeVar("T")

FOREVER: Final = float("inf")

Interruption: TypeAlias = Literal["cancelled", "deadline"]


class Interrupted(Exception):
    """The deadline passed, or the cancellation port spoke."""

    def __init__(self, why: Interruption) -> None:
        self.why: Interruption = why


class Race:
    """The deadline and the cancellation of one run. *rouse* is called when the cancellation port speaks."""

    def __init__(
        self, clock: Clock, cancellation: Cancellation | None, *, grace: float, deadline: float | None = None
    ) -> None:
        self._clock = clock
        self._cancellation = cancellation
        self._cancelled = False
        self._watcher: asyncio.Task[None] | None = None
        self._leaving = False
        self._waiters: list[asyncio.Future[None]] = []
        self.grace = grace
        self.deadline = deadline
        self.rouse: Callable[[], None] = _nobody

    def start(self) -> None:
        """Listen to the cancellation port, if there is one."""
        if self._cancellation is not None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch(self._cancellation))
            self._watcher.add_done_callback(_forget)

    async def _watch(self, cancellation: Cancellation) -> None:
        await cancellation.wait()
        self._cancelled = True
        self.rouse()
        self._wake()

    async def _news(self, loop: asyncio.AbstractEventLoop) -> None:
        """Return when a call ended, the cancellation port spoke or the deadline passed; cheaper than `asyncio.wait`."""
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        left = self.left()
        alarm = loop.call_later(left, self._wake) if left < FOREVER else None
        try:
            await waiter
        finally:
            if alarm is not None:
                alarm.cancel()

    def _wake(self, _: object = None) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        """Listen no more, and rouse nobody: who was roused is free to go."""
        self.rouse = _nobody
        if self._watcher is not None:
            await end([self._watcher], self.grace)

    def left(self) -> float:
        """Seconds until the deadline."""
        return FOREVER if self.deadline is None else self.deadline - self._clock.now()

    def interruption(self) -> Interruption | None:
        """Why the run has to stop, if it has to."""
        if self._cancellation is not None and (self._cancelled or self._cancellation.is_set()):
            return "cancelled"
        return "deadline" if self.left() <= 0 else None

    def heed(self) -> None:
        """Go no further once the deadline has passed or somebody has cancelled."""
        if why := self.interruption():
            raise Interrupted(why)

    def run(
        self, call: Coroutine[object, object, T], *asked: object, patience: float = 0.0
    ) -> Coroutine[object, object, T]:
        """Wait for a port. An interruption leaves it *patience* seconds and then raises Interrupted.

        A call of which is known that it asks only ports that never wait has nothing to race.
        """
        if (self.deadline is None and self._watcher is None) or (asked and not any([may_wait(port) for port in asked])):
            return call
        return self._run(call, patience)

    async def _run(self, call: Coroutine[object, object, T], patience: float) -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(call)
        task.add_done_callback(_forget)
        try:
            await asyncio.sleep(0)  # what answers at once needs neither a waiter nor an alarm
            if not task.done():
                task.add_done_callback(self._wake)
            while not task.done() and not self.interruption():
                await self._news(loop)
            if patience and not task.done():
                await asyncio.wait([task], timeout=patience)
        finally:
            if not task.done():
                await end([task], self.grace)
        if task.done() and not task.cancelled():
            return task.result()
        raise Interrupted(self.interruption() or "cancelled")

    async def hurry(self, call: Coroutine[object, object, None]) -> None:
        """Wait for a port on the way out, no longer than the grace. PortError if it does not answer."""
        self._leaving = True
        task = asyncio.get_running_loop().create_task(call)
        task.add_done_callback(_forget)
        try:
            await asyncio.wait([task], timeout=self.grace)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=self.grace)  # the way out is no shorter for it
            raise
        finally:
            if not task.done():
                await end([task], self.grace)
        if not task.done() or task.cancelled():
            raise PortError(f"a port did not answer in {self.grace:g} s on the way out")
        task.result()

    async def last(self, call: Coroutine[object, object, None], asked: object) -> None:
        """Wait for the last port of all: in a hurry if the run was interrupted or can be."""
        task = asyncio.current_task()
        interrupted = self._leaving or (task is not None and task.cancelling())
        if may_wait(asked) and (interrupted or self._watcher is not None or self.deadline is not None):
            await self.hurry(call)
        else:
            await call


def may_wait(port: object) -> bool:
    """Whether a call of *port* may take time; see `turnwright.ports`. A class speaks for itself alone."""
    return "waits" not in vars(type(port)) or bool(port.waits)  # type: ignore[attr-defined]


def _nobody() -> None:
    """Nobody is there to be roused."""


_abandoned: set[asyncio.Task[object]] = set()
"""Tasks that ignore their cancellation: kept from the garbage collector, so that they can end in their own time."""


def let_go(task: asyncio.Task[T]) -> None:
    """Leave *task* to itself."""
    _abandoned.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[T]) -> None:
    """Nobody may be left to hear how *task* ended, and that is no news for the log."""
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()


async def end(tasks: Collection[asyncio.Task[T]], grace: float) -> None:
    """Cancel *tasks* and wait for them, no longer than the grace. One that does not end is let go."""
    for task in tasks:
        task.cancel()
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=grace)
        for task in left:
            let_go(task)
