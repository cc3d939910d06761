"""Remembers what was made of messages. Rule: what was made once is not made again while the message lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

K = TypeVar("K")
V = TypeVar("V")


class _Known(ref[K]):
    """A value as long as it lives, and the place where it is known. One callback for all is cheaper than one each."""

    __slots__ = ("place",)

    place: int


class Remembered(Generic[K, V]):
    """What was made of values, by their identity, for as long as they live: it outlives no run's messages."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[_Known[K], V]] = {}
        forget = self._made.pop
        self._forget: Callable[[ref[K]], object] = lambda known: forget(known.place, None)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._made)

    def of(self, value: K, make: Callable[[K], V]) -> V:
        """Return what was made of *value*; the first time, *make* it."""
        place = id(value)
        found = self._made.get(place)
        if found is not None:
            return found[1]
        made = make(value)
        known = _Known(value, self._forget)
        known.place = place
        self._made[place] = (known, made)
        return made
