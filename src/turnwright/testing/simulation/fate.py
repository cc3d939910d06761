"""What happens next in a simulated world. Rule: everything that could differ between two plays is drawn here.

Misfortunes are numbered as they are drawn, so that any one of them can be left out to see whether it mattered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Final, Literal, TypeAlias, TypeVar, get_args

__all__ = ["BLOWS", "Blow", "Fate"]

T = TypeVar("T")

Blow: TypeAlias = Literal[
    "died before",
    "died after",
    "failed",
    "failed after taking effect",
    "hung",
    "answered late",
    "stalled",
    "lost its store",
    "saw its clock jump",
    "was shut down",
    "was interrupted",
]
"""What may befall a process at any of its calls."""

BLOWS: Final[tuple[Blow, ...]] = get_args(Blow)

RATES: Final = (0.0, 0.02, 0.04, 0.08, 0.15)
"""How often a call goes wrong; each world has one of these."""
TROUBLES: Final = (60.0, 150.0, 300.0)
"""Seconds of virtual time in which things go wrong."""
MOMENTS: Final = (None, None, None, None, 0.0, 0.0, 0.01, 0.3, 2.0)
"""How long a call is on its way; None: the caller is not even made to wait."""
WHILES: Final = (3.0, 12.0, 31.0, 50.0)
"""How long something takes that hangs: one is longer than a poll, one than a renewal, two than a lease."""


class Fate:
    """The draws of one play. *left_out* are the numbers of misfortunes that do not happen."""

    def __init__(self, seed: int, left_out: Collection[int], time: Callable[[], float]) -> None:
        self._random = Random(seed)  # noqa: S311 - it decides a play, and keeps no secret
        self._left_out = frozenset(left_out)
        self._time = time
        self._drawn = 0
        self.misfortunes: list[int] = []
        self._rate = self.one_of(RATES)
        self._trouble = self.one_of(TROUBLES)

    def calm_down(self) -> None:
        """From here on nothing goes wrong."""
        self._trouble = -1.0

    @property
    def is_calm(self) -> bool:
        """Whether the time of trouble is over."""
        return self._time() > self._trouble

    def chance(self, of: float) -> bool:
        """Whether it happens, once in *of*: something that is no misfortune."""
        return self._random.random() < of

    def one_of(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[int(self._random.random() * len(options))]

    def between(self, low: float, high: float) -> float:
        """A number."""
        return low + self._random.random() * (high - low)

    def moment(self) -> float | None:
        """How long a call is on its way."""
        return self.one_of(MOMENTS)

    def misfortune(self, of: float) -> bool:
        """Whether something goes wrong, once in *of*; never once the time of trouble is over."""
        self._drawn += 1
        if self._random.random() >= of or self.is_calm or self._drawn in self._left_out:
            return False
        self.misfortunes.append(self._drawn)
        return True

    def blow(self) -> Blow | None:
        """What befalls a call, if anything does."""
        return self.one_of(BLOWS) if self.misfortune(self._rate) else None

    def a_while(self) -> float:
        """How long something hangs."""
        return self.one_of(WHILES)
