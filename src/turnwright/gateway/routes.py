"""One way to a model, and when it may be taken. Rule: what a lane remembers is bounded by its limits, whatever comes.

closed       requests pass; a failure adds one, an answer takes all away
open         after `failures` in a row nothing passes for `rest` seconds
half open    then one request is let through: its answer closes the circuit, its failure opens it again
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from attrs import field

from turnwright.ports import Clock, Model
from turnwright.values import frozen

__all__ = ["Lane", "Refusal", "Route"]

MINUTE: Final = 60.0

WAITING: Final = 1024
"""How many requests may wait for a place on one route."""

Refusal: TypeAlias = Literal["open", "busy"]


@frozen(eq=False)
class Route:
    """A model and its limits.

    One request is tried at most *attempts* times here, each for at most *timeout* seconds. *concurrent* requests at a
    time and *per_minute* in any minute may start; one that would wait longer than *patience* seconds for its turn goes
    to the next route. After *failures* in a row the route is left alone for *rest* seconds. *options* go over those of
    the request, for what this model calls otherwise; None takes one away.
    """

    name: str
    model: Model
    attempts: int = field(default=2, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    concurrent: int | None = field(default=None, kw_only=True)
    per_minute: int | None = field(default=None, kw_only=True)
    patience: float = field(default=10.0, kw_only=True)
    failures: int = field(default=5, kw_only=True)
    rest: float = field(default=30.0, kw_only=True)
    options: Mapping[str, object] = field(factory=dict, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not self.name or not isinstance(self.model, Model):
            raise ValueError(f"route {self.name!r}: it needs a name and a model port")
        for what in ("attempts", "concurrent", "per_minute", "failures"):
            value = getattr(self, what)
            if value is not None and not 1 <= value <= 10_000:
                raise ValueError(f"route {self.name!r}: {what} is a number from 1 to 10,000, not {value!r}")
        for what in ("timeout", "patience", "rest"):
            value = getattr(self, what)
            if value is not None and not 0 <= value <= 86_400:
                raise ValueError(f"route {self.name!r}: {what} is a number of seconds up to a day, not {value!r}")


class Lane:
    """What is known of a route now: who is on it, when it was taken, whether it is sound."""

    def __init__(self, route: Route, clock: Clock) -> None:
        self.route = route
        self._clock = clock
        self._taken = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._starts: deque[float] = deque(maxlen=route.per_minute or 0)
        self._asked_to_wait = float("-inf")
        self._failures = 0
        self._opened: float | None = None
        self._probing = False

    async def enter(self, within: float) -> Refusal | None:
        """Take a place, waiting for it no longer than *within* seconds and the route's patience; None if it is ours."""
        if self._is_open():
            return "open"
        patience = min(within, self.route.patience)
        until = self._clock.monotonic() + patience
        if not await self._place(patience):
            return "busy"
        try:
            now = self._clock.monotonic()
            start = self._next_start(now)
            if start > until:
                self.leave()
                return "busy"
            if self.route.per_minute is not None:
                self._starts.append(start)
            if start > now:
                await asyncio.sleep(start - now)
        except asyncio.CancelledError:
            self.leave()
            raise
        if self._is_open():  # it was closed when we came
            self.leave()
            return "open"
        self._probing = self._opened is not None
        return None

    def leave(self) -> None:
        """Give the place to whoever waits longest. Every `enter` that took one needs it, whatever became of it."""
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self._taken -= 1

    def answered(self) -> None:
        """The route gave an answer, or refused for a reason that lies in the request: it is sound."""
        self._failures = 0
        self._opened = None
        self._probing = False

    def failed(self, *, wait: float | None) -> None:
        """The route failed, and asked everybody to *wait* that many seconds."""
        now = self._clock.monotonic()
        self._failures += 1
        if self._opened is not None or self._failures >= self.route.failures:
            self._opened = now
        if wait is not None:
            self._asked_to_wait = max(self._asked_to_wait, now + wait)
        self._probing = False

    def abandoned(self) -> None:
        """Nothing was learnt: whoever asked went away."""
        self._probing = False

    def reopens_in(self) -> float:
        """Seconds until the route may be asked again."""
        now = self._clock.monotonic()
        opens = now if self._opened is None else self._opened + self.route.rest
        return max(0.0, max(opens, self._next_start(now)) - now)

    def _is_open(self) -> bool:
        if self._opened is None:
            return False
        return self._probing or self._clock.monotonic() < self._opened + self.route.rest

    def _next_start(self, now: float) -> float:
        full = self.route.per_minute is not None and len(self._starts) == self.route.per_minute
        return max(now, self._asked_to_wait, self._starts[0] + MINUTE if full else now)

    async def _place(self, patience: float) -> bool:
        if self.route.concurrent is None or self._taken < self.route.concurrent:
            self._taken += 1
            return True
        if len(self._queue) >= WAITING:
            return False
        mine = asyncio.get_running_loop().create_future()
        self._queue.append(mine)
        try:
            async with asyncio.timeout(patience):
                await mine
        except BaseException as error:
            if mine.done() and not mine.cancelled():
                self.leave()  # the place was given to us in the moment in which we gave up
            elif mine in self._queue:
                self._queue.remove(mine)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True
