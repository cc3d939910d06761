"""The model port of an agent's turns: it says the prompt of the turn, and shows the answer to the guardrails.

Rule: an answer is guarded before the engine sees it, so what was denied or rewritten is in no journal and no session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve as replace

from turnwright.deltas import Delta, TextDelta
from turnwright.errors import ModelError
from turnwright.harness.context import TurnContext
from turnwright.harness.guardrails import Deny, Guardrail, looked
from turnwright.harness.prompt import Prompt
from turnwright.harness.telling import Telling
from turnwright.messages import AssistantMessage, Message, Part, Text
from turnwright.ports import Context, Model, ModelRequest

__all__ = ["DENIED", "Earlier", "Turn", "Voice"]

DENIED = "guardrail_denied"


class Turn:
    """What one `send` is about. *fault* is what a guardrail raised over its answer."""

    __slots__ = ("context", "fault", "prompt", "telling")

    def __init__(self, telling: Telling, context: TurnContext[object], prompt: Prompt) -> None:
        self.telling = telling
        self.context = context
        self.prompt = prompt
        self.fault: Exception | None = None


class Earlier:
    """A context port: what was said in the session comes before what is said in the run."""

    def __init__(self, said: Sequence[Message], then: Context | None) -> None:
        self._said = said
        self._then = then

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """Return everything, or what another context port makes of it."""
        every = [*self._said, *messages]
        return every if self._then is None else await self._then.prepare(every, budget)


class Voice:
    """One agent's model port."""

    def __init__(
        self, model: Model, turns: Callable[[str], Turn], guardrails: Sequence[Guardrail], *, hold_text: bool
    ) -> None:
        self._model = model
        self._turns = turns
        self._guardrails = [each for each in guardrails if each.output is not None]
        self._holds = hold_text and bool(self._guardrails)

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Ask; see `Model.complete`."""
        turn = self._turns(request.run_id)
        prompt = turn.prompt
        if self._holds and request.on_delta is not None:
            request = replace(request, on_delta=_without_text(request.on_delta))
        if prompt.text != request.instruction or prompt.stable is not None:
            request = replace(request, instruction=prompt.text, stable=prompt.stable)
        answer = await self._model.complete(request)
        if not self._guardrails or answer.calls:
            return answer
        try:
            passed = await looked(self._guardrails, answer.text, turn.context)
        except Exception as error:
            turn.fault = error
            raise ModelError("internal", f"a guardrail failed over the answer: {type(error).__name__}") from error
        if isinstance(passed, Deny):
            return replace(answer, parts=(Text(""),), raw_stop_reason=DENIED)
        if passed == answer.text:
            return answer
        parts: tuple[Part, ...] = (Text(passed),)  # what was thought may hold what had to go
        return replace(answer, parts=parts)


def _without_text(emit: Callable[[Delta], None]) -> Callable[[Delta], None]:
    """*emit*, but for text, which is told whole once it has passed."""

    def hold(delta: Delta) -> None:
        if not isinstance(delta, TextDelta):
            emit(delta)

    return hold
