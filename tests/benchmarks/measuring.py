"""How the benchmarks measure. Rule: the best of several rounds, in which the two sides take turns.

The best round is the one that the rest of the machine disturbed least. The CPU time is that of this process, so a
loaded machine changes it little; servers run in a process of their own.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from attrs import frozen

__all__ = [
    "Effort",
    "Row",
    "Timing",
    "Work",
    "alternate",
    "count",
    "factor",
    "memory",
    "seconds",
    "traced_peak",
]

Work: TypeAlias = Callable[[], Awaitable[object]]


@frozen
class Effort:
    """How much to measure."""

    rounds: int
    share: float = 1.0

    def of(self, whole: int) -> int:
        """So much of *whole*, at least 1."""
        return max(1, round(whole * self.share))


@frozen
class Timing:
    """What one unit of work took, in seconds."""

    cpu: float
    wall: float


def seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:,.3g} {unit}" if value < 1000 * size else f"{value / size:,.0f} {unit}"
    return f"{value * 1e6:.3g} us"


def memory(value: float) -> str:
    """A size in the unit that suits it."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """A number of things."""
    return f"{value:,.0f}"


def factor(value: float) -> str:
    """A ratio."""
    return f"{value:.2f}"


@frozen
class Row:
    """One line of the table. The target is absolute (*at_most*), or so many *times_bare*, or there is none."""

    what: str
    ours: float
    bare: float | None = None
    unit: Callable[[float], str] = seconds
    at_most: float | None = None
    times_bare: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours to bare."""
        return self.ours / self.bare if self.bare else None

    @property
    def target(self) -> str:
        """The target in words, empty if there is none."""
        if self.at_most is not None:
            return self.unit(self.at_most)
        return "" if self.times_bare is None else f"{self.times_bare:g}x bare"

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None if there is none."""
        if self.at_most is not None:
            return self.ours <= self.at_most
        if self.times_bare is not None and self.bare is not None:
            return self.ours <= self.times_bare * self.bare
        return None


async def alternate(bare: Work, ours: Work, *, units: int, rounds: int) -> tuple[Timing, Timing]:
    """Let the two take turns; each did *units* of work a round. Return the best of either."""
    taken: tuple[list[Timing], list[Timing]] = ([], [])
    for _ in range(rounds):
        for work, timings in zip((bare, ours), taken, strict=True):
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            await work()
            timings.append(Timing((time.process_time() - cpu) / units, (time.perf_counter() - wall) / units))
    return _best(taken[0]), _best(taken[1])


def _best(timings: list[Timing]) -> Timing:
    return Timing(min([each.cpu for each in timings]), min([each.wall for each in timings]))


async def traced_peak(work: Work) -> int:
    """The most bytes that Python held for *work* at one time. Run it once before: what is made once is not counted."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
