"""A set of ports that cannot give what a definition needs is refused at the start, by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve as replace

from turnwright import (
    AgentDefinition,
    Completed,
    MemoryState,
    Ports,
    Suspended,
    UnknownRun,
    UnusablePorts,
    resume_agent,
    run_agent,
    stream_agent,
    tool,
)
from turnwright.definition import Durability
from turnwright.memory import MemoryIdempotency
from turnwright.testing import ScriptedModel, call, text

TALKER = AgentDefinition(name="talker", instruction="Talk.")


class ProcessState(MemoryState):
    """A store that says that it survives the death of a process."""

    durability: Durability = "process"


class Sandbox:
    """A policy port that can enforce what it is told it can."""

    def __init__(self, *enforced: str, broken: bool = False) -> None:
        self._enforced = enforced
        self._broken = broken

    def can_satisfy(self, policy: Sequence[str]) -> bool:
        """Whether all of it can be enforced."""
        if self._broken:
            message = "no idea"
            raise OSError(message)
        return set(policy) <= set(self._enforced)

    def limitations(self, policy: Sequence[str]) -> Sequence[str]:
        """What cannot."""
        return [need for need in policy if need not in self._enforced]


@tool(policy=["no_network", "read_only"])
async def look(path: str) -> str:
    """Look."""
    return path


@tool(key=lambda arguments: str(arguments["order"]))
async def ship(order: int) -> str:
    """Ship."""
    return f"shipped {order}"


@pytest.mark.promise("T-07")
async def test_a_store_too_weak_for_the_definition_is_refused_by_name() -> None:
    """A definition that must survive the death of its process does not start on memory, and no run is left."""
    model = ScriptedModel([text("hi")])
    state = MemoryState()
    durable = replace(TALKER, durability="process")

    with pytest.raises(UnusablePorts, match="'talker' requires durability 'process', and MemoryState") as refused:
        await run_agent(durable, "hi", Ports(model=model, state=state), run_id="r1")
    assert (1, []) == (len(refused.value.missing), model.requests)
    with pytest.raises(UnknownRun):
        await resume_agent(TALKER, "r1", Ports(model=model, state=state))


@pytest.mark.promise("T-07")
@pytest.mark.parametrize(
    ("declared", "required", "fits"),
    [
        ("none", "none", True),
        ("none", "process", True),
        ("process", "none", True),
        ("process", "process", True),
        ("power", "none", False),
        ("none", "power", False),
        ("process", "power", False),
    ],
)
async def test_the_stronger_of_definition_and_caller_counts(
    declared: Durability, required: Durability, fits: bool
) -> None:
    """A store that survives a process serves whoever asks for no more."""
    agent = replace(TALKER, durability=declared)
    ports = Ports(model=ScriptedModel([text("hi")]), state=ProcessState())

    if fits:
        assert isinstance(await run_agent(agent, "hi", ports, require=required), Completed)
    else:
        with pytest.raises(UnusablePorts, match="'power'"):
            await run_agent(agent, "hi", ports, require=required)


@pytest.mark.promise("T-07")
async def test_a_resume_and_a_stream_are_held_to_it_too() -> None:
    """There is no other door."""
    ports = Ports(model=ScriptedModel([text("hi")]))
    await run_agent(TALKER, "hi", ports, run_id="r1")

    with pytest.raises(UnusablePorts):
        await resume_agent(TALKER, "r1", ports, require="process")
    with pytest.raises(UnusablePorts):
        async for _ in stream_agent(replace(TALKER, durability="power"), "hi", ports):
            pass


@pytest.mark.promise("T-07")
async def test_a_class_that_does_not_exist_is_an_error() -> None:
    """A misspelt requirement is no requirement met."""
    with pytest.raises(ValueError, match="require is one of none, process, power"):
        await run_agent(TALKER, "hi", Ports(model=ScriptedModel([text("hi")])), require="proces")  # type: ignore[arg-type]


@pytest.mark.promise("T-07", "N-06")
@pytest.mark.parametrize(
    ("sandbox", "lacking"),
    [
        (None, "no_network, read_only"),
        (Sandbox("read_only"), "no_network"),
        (Sandbox("no_network", "read_only", broken=True), "no_network, read_only"),
    ],
)
async def test_a_policy_that_cannot_be_enforced_is_refused_by_name(sandbox: Sandbox | None, lacking: str) -> None:
    """No policy port, one that lacks something, one that cannot say: each is told what the tool needs."""
    agent = AgentDefinition(name="reader", instruction="Read.", tools=[look])

    with pytest.raises(UnusablePorts, match=f"tool 'look' needs {lacking} enforced"):
        await run_agent(agent, "hi", Ports(model=ScriptedModel([text("hi")]), policy=sandbox))


@pytest.mark.promise("T-07", "N-03")
async def test_a_policy_that_can_be_enforced_lets_the_tool_run() -> None:
    """What the port can enforce is no obstacle."""
    agent = AgentDefinition(name="reader", instruction="Read.", tools=[look])
    ports = Ports(
        model=ScriptedModel([call("look", path="/a"), text("seen")]), policy=Sandbox("no_network", "read_only")
    )

    outcome = await run_agent(agent, "hi", ports)

    assert isinstance(outcome, Completed)
    assert "/a" == outcome.transcript[2].text


@pytest.mark.promise("N-06")
async def test_a_policy_that_is_lost_later_refuses_the_call() -> None:
    """A host that can no longer enforce what it could at the start runs nothing; the model is told."""
    sandbox = Sandbox("no_network", "read_only")
    agent = AgentDefinition(name="reader", instruction="Read.", tools=[look])

    def lose(_: object) -> object:
        sandbox._enforced = ("read_only",)
        return call("look", path="/a")

    outcome = await run_agent(agent, "hi", Ports(model=ScriptedModel([lose, text("so be it")]), policy=sandbox))  # type: ignore[list-item]

    assert isinstance(outcome, Completed)
    assert "look cannot run here: no_network cannot be enforced" == outcome.transcript[2].text


@pytest.mark.promise("T-07", "N-13")
async def test_a_key_that_outlives_the_run_needs_a_port_to_keep_it() -> None:
    """A tool that relies on its key does not run where keys are forgotten."""
    agent = AgentDefinition(name="shipper", instruction="Ship.", tools=[ship])
    ports = Ports(model=ScriptedModel([call("ship", order=7), text("done")]))

    with pytest.raises(UnusablePorts, match="tool 'ship' derives a key"):
        await run_agent(agent, "hi", ports)
    assert isinstance(await run_agent(agent, "hi", replace(ports, idempotency=MemoryIdempotency())), Completed)


@pytest.mark.promise("T-07")
async def test_everything_that_is_missing_is_named_at_once() -> None:
    """Whoever wires ports reads one list, not one error after another."""
    agent = AgentDefinition(name="all", instruction="Do.", tools=[look, ship], durability="power")

    with pytest.raises(UnusablePorts) as refused:
        await run_agent(agent, "hi", Ports(model=ScriptedModel([text("hi")])))
    assert ["agent 'all'", "tool 'look'", "tool 'ship'"] == [
        " ".join(each.split()[:2]) for each in refused.value.missing
    ]


async def test_a_definition_that_needs_nothing_starts_on_a_model_alone() -> None:
    """`Ports(model=...)` is enough."""
    outcome = await run_agent(TALKER, "hi", Ports(model=ScriptedModel([text("hi")])))

    assert not isinstance(outcome, Suspended)
