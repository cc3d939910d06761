"""A worker's process: it may die at any call, and whatever it calls then is not there any more.

Rule: every call of an engine comes through here, and what befalls it is drawn from the seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Final, TypeVar

from turnwright.testing.simulation.fate import Blow, Fate
from turnwright.testing.simulation.runs import Chronicle, Run

__all__ = ["ENTERED", "LIFE", "Dead", "Life"]

T = TypeVar("T")

EPOCH: Final = 1_800_000_000.0


class Dead(Exception):
    """This process is no more."""


class Life:
    """A process that works on *run*, and its clocks. *others* are the workers that an outage may hit with it."""

    def __init__(
        self,
        worker: str,
        number: int,
        run: Run,
        fate: Fate,
        chronicle: Chronicle,
        *,
        others: Sequence[str],
        time: Callable[[], float],
    ) -> None:
        self.name = f"{worker}.{number}"
        self.run = run
        self.signal = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.epoch = 0
        """The epoch in which it believes to own the run."""
        self._worker = worker
        self._fate = fate
        self._chronicle = chronicle
        self._others = others
        self._time = time
        self._skew = 0.0
        self._thaws_at = 0.0
        self._dead = False

    def now(self) -> float:
        """Seconds since 1970, as this machine has it: its clock may jump."""
        return EPOCH + self._time() + self._skew

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._time()

    async def call(self, name: str, work: Callable[[], Awaitable[T]], error: Exception) -> T:
        """Do *work*, or what becomes of it."""
        ENTERED.set((len(self.run.facts), self.run.epoch))
        await self._wait(self._fate.moment())
        blow = self._fate.blow()
        if blow is not None:
            self._befall(name, blow)
        match blow:
            case "died before":
                raise Dead
            case "failed":
                raise error
            case "hung":
                await self._wait(self._fate.a_while())
            case "stalled" | "was shut down" | "was interrupted":
                await self._wait(0.0)
            case _:
                pass
        if name.startswith("state.") and self._time() < self.run.store.away.get(self._worker, 0.0):
            self._chronicle.tell(self.name, f"{name} does not get through")
            raise error
        reply = await work()
        self._chronicle.tell(self.name, name)
        match blow:
            case "died after":
                self._dead = True
                raise Dead
            case "failed after taking effect":
                raise error
            case "answered late":
                await self._wait(self._fate.a_while())
            case _:
                pass
        await self._wait(self._fate.moment())
        return reply

    def _befall(self, name: str, blow: Blow) -> None:
        fate, now = self._fate, self._time()
        self._chronicle.tell(self.name, f"{blow} at {name}" if blow.startswith("died") else f"{name}: {blow}")
        self._chronicle.meet(f"{blow}: {name}")
        match blow:
            case "died before":
                self._dead = True
            case "stalled":
                self._thaws_at = now + fate.a_while()
            case "lost its store":
                hit = [self._worker, *[each for each in self._others if fate.chance(0.5)]]
                self.run.store.away |= dict.fromkeys(hit, now + fate.between(1.0, 40.0))
            case "saw its clock jump":
                self._skew += fate.between(-300.0, 300.0)
            case "was shut down" if self.task is not None:
                self.task.cancel()
            case "was interrupted":
                self.signal.set()
            case _:
                pass

    async def _wait(self, seconds: float | None) -> None:
        """Let others go first, for so long and for as long as the process stands still."""
        if seconds is not None:
            await asyncio.sleep(seconds)
        while (frozen := self._thaws_at - self._time()) > 0:  # noqa: ASYNC110 - it may be struck again meanwhile
            await asyncio.sleep(frozen)
        if self._dead:
            raise Dead


LIFE: Final[ContextVar[Life]] = ContextVar("LIFE")
ENTERED: Final[ContextVar[tuple[int, int]]] = ContextVar("ENTERED")
"""When the call that is on its way was made: the length of the journal, and the epoch of the run's newest owner."""
