"""Play a drawn conversation to its end, saying yes to whatever is asked, and keep what was seen on the way."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field

from turnwright import (
    AgentStream,
    Decision,
    MemoryState,
    Outcome,
    Ports,
    Suspended,
    resume_agent,
    run_agent,
    stream_agent,
)
from turnwright.deltas import Delta
from turnwright.inbox import Resolve
from turnwright.lifecycle import LifecycleEvent
from turnwright.testing import ScriptedModel
from turnwright.testing.strategies import Sketch
from turnwright.tools import ToolContext

RUN = "run"
YES = Decision(approved=True, by="ada", level=9)


@define
class Played:
    """How a conversation went."""

    outcome: Outcome[str]
    ports: Ports
    model: ScriptedModel
    seen: list[Delta | LifecycleEvent] = field(factory=list)


def ports(sketch: Sketch, *, chunk: int | None = None, state: MemoryState | None = None) -> tuple[Ports, ScriptedModel]:
    """Ports whose model says what *sketch* says."""
    model = ScriptedModel(sketch.replies, chunk=chunk)
    return Ports(model=model, state=state or MemoryState()), model


async def play(
    sketch: Sketch,
    *,
    chunk: int | None = None,
    watch: bool = False,
    effect: Callable[[ToolContext], object] = lambda _: None,
) -> Played:
    """Run the conversation of *sketch*; approve every call, and resolve what is in doubt as not having happened."""
    given, model = ports(sketch, chunk=chunk)
    definition = sketch.definition(effect)
    seen: list[Delta | LifecycleEvent] = []
    if watch:
        outcome = await _watched(stream_agent(definition, "go", given, run_id=RUN), seen)
    else:
        outcome = await run_agent(definition, "go", given, run_id=RUN)
    for _ in range(12):
        if not isinstance(outcome, Suspended) or outcome.reason not in ("approval", "in-doubt"):
            break
        for each in outcome.pending:
            if each.kind == "in-doubt":
                await given.state.post(RUN, Resolve(each.effect_id, happened=False))
        asked = [each.effect_id for each in outcome.pending if each.kind == "approval"]
        outcome = await resume_agent(definition, RUN, given, decisions=dict.fromkeys(asked, YES))
    return Played(outcome, given, model, seen)


async def _watched(stream: AgentStream[str], seen: list[Delta | LifecycleEvent]) -> Outcome[str]:
    async with stream:
        async for item in stream:
            if hasattr(item, "transcript"):
                return item  # type: ignore[return-value]
            seen.append(item)  # type: ignore[arg-type]
    raise AssertionError("the stream gave no outcome")
