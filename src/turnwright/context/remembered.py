"""Remembers what was made of messages. Rule: what was made once is not made again while the message lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """What was made of values, by their identity, for as long as they live: it outlives no run's messages."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ref[K], V]] = {}

    def __len__(self) -> int:
        return len(self._made)

    def of(self, value: K, make: Callable[[K], V]) -> V:
        """Return what was made of *value*; the first time, *make* it."""
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        made, place, forget = make(value), id(value), self._made.pop
        self._made[place] = (ref(value, lambda _: forget(place, None)), made)
        return made
