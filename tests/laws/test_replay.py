"""Law 8, replay: a journal replays without effects, or names the first divergence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve as replace
from hypothesis import given, settings

from tests.laws.playing import RUN, play
from turnwright import AgentDefinition, Ports, Rewrite, RunCall, UnknownRun, replay_agent, run_agent, tool
from turnwright.ports import ModelRequest
from turnwright.testing import ScriptedModel, call, text
from turnwright.testing.strategies import Sketch, sketches


class Forbidden:
    """A model that nobody may ask."""

    async def complete(self, request: ModelRequest) -> None:  # type: ignore[override]
        """Fail the test."""
        raise AssertionError("a replay asked the model")


@pytest.mark.promise("N-20")
@given(sketches())
@settings(max_examples=60)
async def test_every_journal_replays_without_effects(sketch: Sketch) -> None:
    """Under its own definition nothing diverges, nothing is asked, nothing happens."""
    played = await play(sketch)
    effects: list[object] = []

    replayed = await replay_agent(
        sketch.definition(effects.append),
        RUN,
        replace(played.ports, model=Forbidden()),  # type: ignore[arg-type]
    )

    assert None is replayed.divergence
    assert len(await played.ports.state.load(RUN)) == replayed.agreed
    assert [] == effects


@tool(replay="safe")
async def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


async def recorded() -> Ports:
    """Ports that hold the journal of one run with one tool."""
    ports = Ports(model=ScriptedModel([call("add", a=1), text("3")]))
    await run_agent(AgentDefinition(name="adder", instruction="Add.", tools=[add]), "1+2", ports, run_id=RUN)
    return ports


def never_good(output: str, calls: Sequence[RunCall]) -> str:
    """Object to everything."""
    return "no"


@pytest.mark.promise("N-20")
@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"tools": []}, "fact"),
        ({"guards": [lambda *_: Rewrite({"a": 5, "b": 5})]}, "arguments"),
        ({"check_output": [never_good]}, "output"),
    ],
)
async def test_the_first_divergence_is_named(changed: dict[str, object], what: str) -> None:
    """A definition that would have decided otherwise is told where, and by what kind of difference."""
    ports = await recorded()
    definition = AgentDefinition(name="adder", instruction="Add.", tools=[add])

    replayed = await replay_agent(replace(definition, **changed), RUN, ports)  # type: ignore[arg-type]

    assert replayed.divergence is not None
    assert what == replayed.divergence.what


@pytest.mark.promise("N-20")
async def test_a_run_without_journal_is_unknown() -> None:
    """There is nothing to replay, and that is said by name."""
    with pytest.raises(UnknownRun):
        await replay_agent(AgentDefinition(name="a", instruction=""), "nobody", Ports(model=ScriptedModel([])))
