"""Play a drawn conversation to its end in a drawn world, and keep what was seen on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve as replace, field, frozen
from hypothesis import strategies as st

from turnwright import (
    AgentStream,
    Decision,
    MemoryState,
    ModelError,
    Outcome,
    Ports,
    Suspended,
    run_agent,
    stream_agent,
)
from turnwright.deltas import Delta
from turnwright.errors import ModelErrorKind
from turnwright.inbox import Approve, Deny, Resolve, Withdraw, Word
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import AssistantMessage, Usage
from turnwright.ports import ModelRequest
from turnwright.testing import ScriptedModel
from turnwright.testing.strategies import Sketch, decisions, model_failures, steering
from turnwright.tools import ToolContext

RUN = "run"
YES = Decision(approved=True, by="ada", level=9)


@frozen
class Weather:
    """What disturbs a conversation: by turn, what somebody says while the model answers, and how its first attempt
    fails; and what is decided, one decision after another, over each call that waits.
    """

    said: Mapping[int, Sequence[Word]] = field(factory=dict)
    failures: Mapping[int, ModelErrorKind] = field(factory=dict)
    decisions: tuple[Decision, ...] = (YES,)


CALM = Weather()


def weathers() -> st.SearchStrategy[Weather]:
    """Any weather; in the end somebody approves."""
    turns = st.integers(1, 4)
    failures = st.dictionaries(turns, model_failures().map(lambda drawn: drawn[0]), max_size=2)
    decided = st.lists(decisions(), max_size=3).map(lambda drawn: (*drawn, YES))
    said = st.lists(steering() | st.builds(Withdraw, st.sampled_from(("m1", "m2"))), min_size=1, max_size=3)
    return st.builds(Weather, st.dictionaries(turns, said, max_size=2), failures, decided)


@define
class Played:
    """How a conversation went."""

    outcome: Outcome[str]
    ports: Ports
    model: ScriptedModel
    seen: list[Delta | LifecycleEvent] = field(factory=list)


class _InWeather:
    """A model that is spoken over, and fails, as the weather says."""

    def __init__(self, model: ScriptedModel, state: MemoryState, weather: Weather) -> None:
        self._model = model
        self._state = state
        self._weather = weather

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        if request.attempt == 1:
            for word in self._weather.said.get(request.turn, ()):
                await self._state.post(RUN, word)
            kind = self._weather.failures.get(request.turn)
            if kind is not None:
                raise ModelError(kind, "no luck", partial=AssistantMessage("no l", usage=Usage(0, 2, 1)))
        return await self._model.complete(request)


def ports(
    sketch: Sketch, *, chunk: int | None = None, state: MemoryState | None = None, weather: Weather = CALM
) -> tuple[Ports, ScriptedModel]:
    """Ports whose model says what *sketch* says."""
    model = ScriptedModel(sketch.replies, chunk=chunk)
    state = state or MemoryState()
    return Ports(model=_InWeather(model, state, weather), state=state), model


async def play(
    sketch: Sketch,
    *,
    weather: Weather = CALM,
    chunk: int | None = None,
    watch: bool = False,
    effect: Callable[[ToolContext], object] = lambda _: None,
    on: Ports | None = None,
    takes_over: str = "",
) -> Played:
    """Run the conversation of *sketch* to its end, through every suspension; what is in doubt did not happen.

    With *on*, go on with the run that these ports hold; it *takes_over* those of the version with that fingerprint.
    """
    given, model = ports(sketch, chunk=chunk, weather=weather)
    given = on or given
    definition = sketch.definition(effect)
    if takes_over:
        definition = replace(definition, version="2", compatible_with=[takes_over])
    played = Played(None, given, model)  # type: ignore[arg-type]
    for _ in range(20):
        if watch:
            played.outcome = await _watched(stream_agent(definition, "go", given, run_id=RUN), played.seen)
        else:
            played.outcome = await run_agent(definition, "go", given, run_id=RUN)
        if (
            not isinstance(played.outcome, Suspended)
            or played.outcome.reason == "max_turns"
            or _is_over(played.outcome)
        ):
            break
        heard = [word for _, word in await given.state.read(RUN)]
        for pending in played.outcome.pending:
            said = len([word for word in heard if getattr(word, "effect_id", None) == pending.effect_id])
            decision = weather.decisions[said % len(weather.decisions)]
            await given.state.post(RUN, _answer(pending.effect_id, pending.kind, decision))
    return played


def _is_over(outcome: Suspended) -> bool:
    """Whether the script has no more to say, which more tries would not change."""
    return outcome.reason == "model" and outcome.detail == "invalid_request" and "the script has" in outcome.message


def _answer(effect_id: str, kind: str, decision: Decision) -> Word:
    if kind == "in-doubt":
        return Resolve(effect_id, happened=False)
    if decision.approved:
        return Approve(effect_id, by=decision.by, level=decision.level)
    return Deny(effect_id, decision.reason, decision.by)


async def _watched(stream: AgentStream[str], seen: list[Delta | LifecycleEvent]) -> Outcome[str]:
    async with stream:
        async for item in stream:
            if hasattr(item, "transcript"):
                return item  # type: ignore[return-value]
            seen.append(item)  # type: ignore[arg-type]
    raise AssertionError("the stream gave no outcome")
