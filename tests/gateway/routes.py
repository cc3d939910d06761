"""Routes for tests: models that say, wait and fail as scripted, on a loop whose time costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import field, frozen

from tests.driver.virtual import LoopClock
from turnwright.deltas import AttemptReset, Delta, TextDelta, UsageDelta
from turnwright.errors import ModelError, ModelErrorKind
from turnwright.gateway import Attempt, Gateway, Route
from turnwright.messages import AssistantMessage, Text, Usage, UserMessage
from turnwright.ports import ModelRequest

Says: TypeAlias = "Step | Sequence[Step]"


@frozen
class Step:
    """What one try comes to: it says *pieces*, *seconds* apart, and then answers with them or fails."""

    pieces: tuple[str, ...] = ("ok",)
    error: Exception | None = None
    seconds: float = 0.0
    usage: Usage | None = None


def fail(
    kind: ModelErrorKind, *pieces: str, seconds: float = 0.0, usage: Usage | None = None, **options: object
) -> Step:
    """A try that says *pieces* and then fails, retryable unless told otherwise."""
    error = ModelError(kind, f"scripted {kind}", **{"retryable": True, **options})  # type: ignore[arg-type]
    return Step(pieces, error, seconds, usage)


OK = Step()


class Played:
    """A model whose nth request comes to the nth step; the last step answers all later ones."""

    def __init__(self, *steps: Step) -> None:
        self._steps = steps
        self.requests: list[ModelRequest] = []
        self.at: list[float] = []
        self.running = self.most = 0

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Play the next step."""
        step = self._steps[min(len(self.requests), len(self._steps) - 1)]
        self.requests.append(request)
        self.at.append(asyncio.get_running_loop().time())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for piece in step.pieces:
                if request.on_delta is not None:
                    request.on_delta(TextDelta(request.turn, request.attempt, piece))
                await asyncio.sleep(step.seconds)
            if step.usage is not None and request.on_delta is not None:
                request.on_delta(UsageDelta(request.turn, request.attempt, step.usage))
            if not step.pieces:
                await asyncio.sleep(step.seconds)
        finally:
            self.running -= 1
        if step.error is not None:
            raise step.error
        return AssistantMessage((Text("".join(step.pieces)),), usage=step.usage or Usage())

    @property
    def tries(self) -> int:
        """How often it was asked."""
        return len(self.requests)

    @property
    def pauses(self) -> list[int]:
        """The whole seconds between its requests: the machine's own time comes on top of the loop's."""
        return [round(after - before) for before, after in zip(self.at, self.at[1:], strict=False)]


@frozen(eq=False)
class Viewer:
    """Somebody who watches, and keeps the rule of resets."""

    deltas: list[Delta] = field(factory=list)

    def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)

    @property
    def shown(self) -> str:
        """The text on the screen."""
        text = ""
        for delta in self.deltas:
            if isinstance(delta, AttemptReset):
                text = ""
            elif isinstance(delta, TextDelta):
                text += delta.text
        return text


def asked(*, timeout: float | None = None, on_delta: Callable[[Delta], None] | None = None) -> ModelRequest:
    """A request of turn 3, attempt 2."""
    return ModelRequest("r1", 3, 2, "", [UserMessage("hi")], timeout=timeout, on_delta=on_delta)


def over(*routes: Route | Played, chance: float = 1.0, **options: object) -> Gateway:
    """A gateway over *routes*, named a, b, c, on the loop's time, whose dice always show *chance*."""
    named = [each if isinstance(each, Route) else Route("abc"[place], each) for place, each in enumerate(routes)]
    return Gateway(named, **{"clock": LoopClock(), "random": lambda: chance, **options})  # type: ignore[arg-type]


def told(gateway: Gateway) -> list[tuple[str, str, str | None]]:
    """Route, outcome and kind of every try that the gateway remembers."""
    return [(each.route, each.outcome, each.kind or each.refused) for each in gateway.recent]


def last(gateway: Gateway) -> Attempt:
    """The newest try."""
    return gateway.recent[-1]
