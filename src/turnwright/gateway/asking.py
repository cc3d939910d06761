"""One request over several routes. Rule: what is tried next follows from the kind of the last failure.

    the route is closed to us      the next route, if the circuit is open, or its limits would keep us waiting too long
    retryable                      again here: when the server says, else after a backoff with full jitter
    tries used up, or too far off  the next route, if the kind is in `fallback`
    anything else                  the end: the last failure leaves as it came

A delta that was seen before a failure is taken back by an `AttemptReset` before the next try says anything.

Retry libraries (stamina, tenacity) repeat one callable on their own clock; here the wait, the deadline, the circuit and
the choice of the next route depend on each other, so they are decided in one place.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Literal, Self

from attrs import evolve as replace

from turnwright.deltas import AttemptReset, Delta, UsageDelta
from turnwright.errors import ModelError, ModelErrorKind
from turnwright.gateway.routes import Lane, Refusal, Route
from turnwright.memory import SystemClock
from turnwright.messages import NO_USAGE, AssistantMessage, Usage, flaw
from turnwright.ports import Clock, ModelRequest
from turnwright.values import frozen

__all__ = ["FALLBACK", "Attempt", "Backoff", "Gateway"]

FALLBACK: Final[frozenset[ModelErrorKind]] = frozenset(
    {"rate_limit", "overloaded", "timeout", "connection", "auth", "quota", "malformed", "cancelled", "internal"}
)
"""After which kinds another route may do better. Not after those that lie in the request: the same would be refused."""

_OF_THE_REQUEST: Final = frozenset({"invalid_request", "context_overflow", "content_filter"})
"""Failures that say nothing against the route."""

RECENT: Final = 256
"""How many attempts a gateway remembers."""

FOREVER: Final = float("inf")

NOTHING: Final = AssistantMessage((), "error")


@frozen
class Backoff:
    """How long to wait before trying the same route again.

    A random time up to *first* seconds, doubled with every try, and never above *longest*. Where the server says how
    long, that is waited instead, unless it is above *patience*: then the route is not tried again.
    """

    first: float = 0.5
    longest: float = 8.0
    patience: float = 60.0

    def delay(self, tries: int, chance: float) -> float:
        """Seconds to wait after *tries* failures; *chance* is a random number from 0 to 1."""
        return chance * min(self.longest, self.first * 2.0 ** min(tries - 1, 64))


@frozen
class Attempt:
    """What became of one try, without content. *number* counts the tries of one request from 1.

    *refused* says why the route was not asked at all. *visible* tells whether somebody saw a piece of it, *usage* what
    the provider told. *wait* is how long the gateway waits before it tries the same route again.
    """

    run_id: str
    turn: int
    attempt: int
    number: int
    route: str
    outcome: Literal["answered", "failed", "refused", "cancelled"]
    kind: ModelErrorKind | None = None
    status: int | None = None
    refused: Refusal | None = None
    seconds: float = 0.0
    visible: bool = False
    usage: Usage = NO_USAGE
    wait: float | None = None


class Gateway:
    """A model port over *routes*, asked in their order.

    ::

        Gateway([Route("claude", AnthropicModel(...)), Route("gpt", ResponsesModel(...), timeout=60.0)])

    One request is tried at most *attempts* times in all, by its option `max_retries` less often, and never beyond its
    own timeout; no further try starts once failed ones have used *tokens*. *check* says what is wrong with an answer,
    empty if nothing: one that it objects to counts as `malformed`. The usage of an answer includes what is known of
    the failed tries, and counts them all as requests. When nothing helps, the last failure is raised.

    *on_attempt* is told of every try; it is plain and quick, and what it raises changes nothing. The newest are in
    *recent*. *random* gives numbers from 0 to 1. An entered gateway has entered its models, and closes them on leaving.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        attempts: int = 6,
        tokens: int | None = None,
        backoff: Backoff | None = None,
        fallback: frozenset[ModelErrorKind] = FALLBACK,
        check: Callable[[AssistantMessage], str] = flaw,
        on_attempt: Callable[[Attempt], None] | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = random.random,
    ) -> None:
        names = [route.name for route in routes]
        if not routes or len({*names}) < len(names):
            raise ValueError(f"a gateway needs routes, each with a name of its own, not {names}")
        if attempts < 1:
            raise ValueError(f"a gateway tries at least once, not {attempts} times")
        self._clock = SystemClock() if clock is None else clock
        self._lanes = [Lane(route, self._clock) for route in routes]
        self._attempts = attempts
        self._tokens = tokens
        self._backoff = Backoff() if backoff is None else backoff
        self._fallback = fallback
        self._check = check
        self._on_attempt = on_attempt
        self._random = random
        self._stack = AsyncExitStack()
        self.recent: deque[Attempt] = deque(maxlen=RECENT)

    def __repr__(self) -> str:
        return f"<Gateway {[lane.route.name for lane in self._lanes]}>"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for lane in self._lanes:
                if isinstance(lane.route.model, AbstractAsyncContextManager):
                    await stack.enter_async_context(lane.route.model)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give the first route's answer that is to be had, or raise the last route's ModelError."""
        asking = _Asking(request, self._clock)
        for lane in self._lanes:
            answer = await self._on(lane, asking)
            if answer is not None:
                return answer
            if not self._may_go_on(asking) or (
                asking.failure is not None and asking.failure.kind not in self._fallback
            ):
                break
        raise asking.last_word(min([lane.reopens_in() for lane in self._lanes]))

    def _may_go_on(self, asking: _Asking) -> bool:
        spent = self._tokens is not None and asking.used.total_tokens >= self._tokens
        return asking.number < min(self._attempts, asking.most) and not spent and asking.left() > 0

    async def _on(self, lane: Lane, asking: _Asking) -> AssistantMessage | None:
        """Try one route as often as it may be; None if it gave no answer."""
        for tries in range(1, lane.route.attempts + 1):
            if not self._may_go_on(asking):
                return None
            refused = await lane.enter(asking.left())
            if refused is not None:
                self._tell(asking.attempt(lane, "refused", refused=refused))
                return None
            try:
                answer = await self._try(lane, asking)
            finally:
                lane.leave()
            if isinstance(answer, AssistantMessage):
                return answer
            wait = None if tries == lane.route.attempts else self._wait(answer, tries, asking)
            self._tell(asking.attempt(lane, "failed", kind=answer.kind, status=answer.status, wait=wait))
            if wait is None:
                return None
            await asyncio.sleep(wait)
        return None

    def _wait(self, error: ModelError, tries: int, asking: _Asking) -> float | None:
        """How long to wait before the same route is tried again, None if it shall not be."""
        if not error.retryable or not self._may_go_on(asking):
            return None
        wait = error.retry_after
        if wait is None or not wait >= 0:
            wait = self._backoff.delay(tries, self._random())
        elif wait > self._backoff.patience:
            return None
        return wait if wait < asking.left() else None

    async def _try(self, lane: Lane, asking: _Asking) -> AssistantMessage | ModelError:
        request, route = asking.request, lane.route
        left = asking.left()
        limit = left if route.timeout is None else min(route.timeout, left)
        timeout = limit if limit < FOREVER else None
        options = {**request.options, **route.options} if route.options else request.options
        key = request.api_key if len(self._lanes) == 1 else None  # nobody could say which of the providers it is for
        piece = asking.begin()
        try:
            async with asyncio.timeout(timeout) as patience:
                answer = await route.model.complete(
                    replace(request, options=options, timeout=timeout, on_delta=piece, api_key=key)
                )
            if patience.expired():  # it would not be cancelled
                raise TimeoutError
            if wrong := self._check(answer):
                raise ModelError(
                    "malformed",
                    f"{route.name}: the answer is not sound: {wrong}",
                    retryable=True,
                    partial=None if flaw(answer) else answer,  # it was paid for
                )
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                lane.abandoned()
                asking.end()
                self._tell(asking.attempt(lane, "cancelled"))
                raise
            error = ModelError("cancelled", f"{route.name}: the request cancelled itself", retryable=True)
        except ModelError as failure:
            error = failure
        except TimeoutError:
            error = ModelError("timeout", f"{route.name}: no answer within {limit:g} s", retryable=True)
        except Exception as failure:  # noqa: BLE001 - a route that breaks its promise is a route that failed
            error = ModelError("internal", f"{route.name}: {type(failure).__name__}")
            error.__cause__ = failure
        else:
            lane.answered()
            asking.end()
            self._tell(asking.attempt(lane, "answered", usage=answer.usage))
            return asking.with_all_usage(answer)
        asking.end(error)
        if error.kind in _OF_THE_REQUEST:
            lane.answered()
        elif error.kind == "timeout" and asking.left() <= 0:  # the caller's limit, which says nothing about the route
            lane.abandoned()
        else:
            wait = error.retry_after
            lane.failed(wait=None if wait is None else min(wait, self._backoff.patience))
        return error

    def _tell(self, attempt: Attempt) -> None:
        self.recent.append(attempt)
        if self._on_attempt is not None:
            try:
                self._on_attempt(attempt)
            except Exception:  # noqa: BLE001, S110 - whoever watches changes nothing
                pass


class _Asking:
    """One request on its way over the routes."""

    def __init__(self, request: ModelRequest, clock: Clock) -> None:
        self.request = request
        self.number = 0
        retries = request.options.get("max_retries")
        self.most = FOREVER if type(retries) is not int else max(0, retries) + 1
        self.used = NO_USAGE
        self.failure: ModelError | None = None
        self._clock = clock
        self._deadline = FOREVER if request.timeout is None else clock.monotonic() + request.timeout
        self._dispatched = False
        self._requests = 0
        self._began = 0.0
        self._visible = False
        self._piece: _Pieces | None = None

    def left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline if self._deadline == FOREVER else self._deadline - self._clock.monotonic()

    def begin(self) -> _Pieces | None:
        """Begin a try. What was seen of the one before is taken back first."""
        self.number += 1
        self._began = self._clock.monotonic()
        emit = self.request.on_delta
        if emit is None:
            return None
        if self._visible:
            emit(AttemptReset(self.request.turn, self.request.attempt))
        self._visible = False
        self._piece = _Pieces(emit)
        return self._piece

    def end(self, error: ModelError | None = None) -> None:
        """End it: what its model still says is heard by nobody."""
        if self._piece is not None:
            self._piece.over = True
            self._visible = self._piece.visible
        if error is not None:
            told = self._told() if error.partial is None else error.partial.usage
            self.failure = error
            self.used += told
            self._requests += max(1, told.requests)
            self._dispatched |= error.dispatched

    def attempt(
        self,
        lane: Lane,
        outcome: Literal["answered", "failed", "refused", "cancelled"],
        *,
        kind: ModelErrorKind | None = None,
        status: int | None = None,
        refused: Refusal | None = None,
        usage: Usage | None = None,
        wait: float | None = None,
    ) -> Attempt:
        """What is known of the newest try, or of a route that was not tried."""
        request = self.request
        return Attempt(
            *(request.run_id, request.turn, request.attempt, self.number, lane.route.name, outcome, kind, status),
            refused,
            0.0 if refused else self._clock.monotonic() - self._began,
            self._visible and refused is None,
            NO_USAGE if refused else self._told() if usage is None else usage,
            wait,
        )

    def _told(self) -> Usage:
        return NO_USAGE if self._piece is None else self._piece.usage

    def with_all_usage(self, answer: AssistantMessage) -> AssistantMessage:
        """The answer, with what the failed tries before it used."""
        if self._requests == 0:
            return answer
        requests = self._requests + max(1, answer.usage.requests)
        return replace(answer, usage=replace(answer.usage + self.used, requests=requests))

    def last_word(self, opens_in: float) -> ModelError:
        """The failure that the request ends with. *opens_in* is when a route that was closed to it may be asked."""
        failure = self.failure
        if failure is None and self.left() <= 0:
            return ModelError("timeout", "no time is left for this request", dispatched=False)
        if failure is None:
            words = f"no route may be asked now; the first opens in {opens_in:.1f} s"
            return ModelError("overloaded", words, retryable=True, retry_after=opens_in, dispatched=False)
        if self.number == 1:
            return failure
        seen = NOTHING if failure.partial is None else failure.partial
        told = ModelError(
            failure.kind,
            str(failure),
            retryable=failure.retryable,
            retry_after=failure.retry_after,
            status=failure.status,
            dispatched=self._dispatched,  # an earlier try may have been charged
            partial=replace(seen, usage=replace(self.used, requests=self._requests)),
        )
        told.__cause__ = failure
        return told


class _Pieces:
    """What one try says, on its way to whoever watches."""

    def __init__(self, emit: Callable[[Delta], None]) -> None:
        self._emit = emit
        self.visible = False
        self.over = False
        self.usage = NO_USAGE

    def __call__(self, delta: Delta) -> None:
        if self.over:
            return
        if type(delta) is UsageDelta:
            self.usage = delta.usage
        else:
            self.visible = type(delta) is not AttemptReset  # of a gateway that is itself a route
        self._emit(delta)
