"""Law 8, replay: a journal replays without effects, or names the first divergence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from attrs import evolve as replace
from hypothesis import given, settings

from tests.driver.virtual import LoopClock, run
from tests.laws.playing import RUN, Weather, play, weathers
from turnwright import (
    AgentDefinition,
    Completed,
    Failed,
    Go,
    Limits,
    PortError,
    Ports,
    Rewrite,
    RunCall,
    Suspended,
    TurnView,
    UnknownRun,
    replay_agent,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.evidence import Entry
from turnwright.inbox import FollowUp, Steer
from turnwright.memory import FixedClock, MemoryBudgets, MemoryState
from turnwright.messages import AssistantMessage, UserMessage
from turnwright.ports import Append, Denied, ModelRequest, Reserved
from turnwright.testing import ScriptedModel, call, text
from turnwright.testing.strategies import Sketch, sketches


class Forbidden:
    """A model that nobody may ask."""

    async def complete(self, request: ModelRequest) -> None:  # type: ignore[override]
        """Fail the test."""
        raise AssertionError("a replay asked the model")


@pytest.mark.promise("N-20")
@given(sketches(), weathers())
@settings(max_examples=60)
async def test_every_journal_replays_without_effects(sketch: Sketch, weather: Weather) -> None:
    """Under its own definition nothing diverges, nothing is asked, nothing happens."""
    played = await play(sketch, weather=weather)
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


async def add_texts(a: list[str]) -> int:
    """Add, and take other arguments."""
    return len(a)


async def add_more(a: int, b: int = 3) -> int:
    """Add, with another default."""
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
        ({"tools": []}, "tool"),
        ({"tools": [replace(add, name="plus")]}, "tool"),
        ({"tools": [tool(name="add")(add_texts)]}, "arguments"),
        ({"tools": [tool(name="add")(add_more)]}, "arguments"),
        ({"tools": [replace(add, approval="required")]}, "fact"),
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
async def test_a_changed_journal_diverges_in_its_evidence() -> None:
    """Whoever changes a result in the store is found out before anything is concluded from it."""
    ports = await recorded()
    await ports.state.evidence(RUN)
    entries = await ports.state.load(RUN)
    place = [entry.kind for entry in entries].index("CallFinished")
    entries[place].body = entries[place].body.replace(b"3", b"4")

    replayed = await replay_agent(AgentDefinition(name="adder", instruction="Add.", tools=[add]), RUN, ports)

    assert replayed.divergence is not None
    assert (place + 1, "evidence") == (replayed.divergence.position, replayed.divergence.what)


class Refusing(MemoryBudgets):
    """A budget that denies the first reservation of some call."""

    def __init__(self, effect_id: str) -> None:
        super().__init__({})
        self._denied = effect_id

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Deny once."""
        if self._denied and self._denied in id:
            self._denied = ""
            return Denied("run", "tool_calls")
        return await super().reserve(id, scopes, ask)


@pytest.mark.promise("N-20")
@pytest.mark.parametrize("denied", [f"{RUN}:1.0", f"{RUN}:1.1"])
async def test_a_call_that_a_budget_took_out_of_its_wave_is_no_divergence(denied: str) -> None:
    """What a budget denies happens later, or not at all; the journal still replays."""
    model = ScriptedModel([[call("add", a=1), call("add", a=2)], text("3")])
    ports = Ports(model=model, budgets=Refusing(denied))
    definition = AgentDefinition(name="adder", instruction="Add.", tools=[add])
    await run_agent(definition, "1+2", ports, run_id=RUN)

    outcome = await resume_agent(definition, RUN, ports)

    assert isinstance(outcome, Completed)
    assert None is (await replay_agent(definition, RUN, ports)).divergence


@pytest.mark.promise("N-20")
def test_a_call_that_had_to_wait_for_its_budget_is_of_a_later_wave() -> None:
    """What that wave concludes from the time, such as when an approval expires, is concluded from the time of then."""

    class Slow(Refusing):
        waits = True

        async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
            await asyncio.sleep(1)
            return await super().reserve(id, scopes, ask)

    @tool
    async def slow() -> str:
        """Take its time."""
        await asyncio.sleep(3)
        return "slow"

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([[call("slow"), call("slow"), call("pay")], text("done")])
    ports = Ports(model=model, budgets=Slow(f"{RUN}:1.1"), clock=LoopClock())
    limits = Limits(calls_at_once=2)
    payer = AgentDefinition("payer", "Pay.", tools=[slow, pay], approval_seconds=40.0, limits=limits)

    assert isinstance(run(run_agent(payer, "go", ports, run_id=RUN)), Suspended)
    assert None is run(replay_agent(payer, RUN, ports)).divergence


@pytest.mark.promise("N-20")
async def test_a_doubt_and_what_else_its_wave_said_are_of_one_moment() -> None:
    """Whoever took the run over concluded both from the same past, though time went on as it wrote them down."""

    class Ticking(FixedClock):
        def now(self) -> float:
            self.at += 1.0
            return self.at

    class Dying(MemoryState):
        alive = True

        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            if not self.alive:
                raise PortError("nobody is there")
            return await super().append(run_id, epoch, expected, append_id, facts)

    state = Dying()

    @tool
    async def die() -> str:
        """Leave nothing behind."""
        state.alive = False
        return "dead"

    @tool(approval="required", sequential=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    ports = Ports(ScriptedModel([[call("die"), call("pay")], text("done")]), state, clock=Ticking())
    payer = AgentDefinition("payer", "Pay.", tools=[die, pay], approval_seconds=40.0)
    with pytest.raises(PortError):
        await run_agent(payer, "go", ports, run_id=RUN)
    state.alive = True
    again = replace(ports, state=state.reopen())

    assert isinstance(await resume_agent(payer, RUN, again), Suspended)
    assert None is (await replay_agent(payer, RUN, again)).divergence


@pytest.mark.promise("N-20")
def test_words_that_came_while_the_output_was_checked_are_no_divergence() -> None:
    """The check had begun before, so its verdict stands."""
    ports = Ports(model=ScriptedModel([text("3")]), clock=LoopClock())

    async def slow(output: str, calls: Sequence[RunCall]) -> None:
        if await ports.state.read(RUN):
            return  # a replay does not wait
        await ports.state.post(RUN, Steer(UserMessage("hurry")))
        await asyncio.sleep(5)

    definition = AgentDefinition(name="slow", instruction="Add.", check_output=[slow])

    assert isinstance(run(run_agent(definition, "1+2", ports, run_id=RUN)), Completed)
    assert None is run(replay_agent(definition, RUN, ports)).divergence


@pytest.mark.promise("N-20")
async def test_a_run_without_journal_is_unknown() -> None:
    """There is nothing to replay, and that is said by name."""
    with pytest.raises(UnknownRun):
        await replay_agent(AgentDefinition(name="a", instruction=""), "nobody", Ports(model=ScriptedModel([])))


@pytest.mark.promise("N-20", "P-08")
@pytest.mark.parametrize("said", [["hurry"], ["hurry", "now"]])
def test_words_that_came_while_a_boundary_was_asked_are_no_divergence(said: list[str]) -> None:
    """It had looked at the run before they came, and its word stands."""
    ports = Ports(model=ScriptedModel([text("3"), text("4"), text("5")]), clock=LoopClock())

    async def slow(view: TurnView) -> Go | None:
        while said:
            await ports.state.post(RUN, FollowUp(UserMessage(said.pop())))
            await asyncio.sleep(5)
        return Go([UserMessage("end?")]) if view.ending and view.turn == 2 else None

    definition = AgentDefinition(name="slow", instruction="Add.", boundary=slow)

    assert isinstance(run(run_agent(definition, "1+2", ports, run_id=RUN)), Completed)
    assert None is run(replay_agent(definition, RUN, ports)).divergence


@pytest.mark.promise("N-20", "P-08")
async def test_a_boundary_that_fails_while_a_word_waits_is_no_divergence() -> None:
    """The answer is there and is not looked at: the run fails where the next turn would begin."""
    ports = Ports(model=ScriptedModel([text("3")]))

    class Talking(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            await ports.state.post(RUN, Steer(UserMessage("hurry")))
            return await super().complete(request)

    def boundary(_: TurnView) -> None:
        raise RuntimeError("broken")

    definition = AgentDefinition(name="broken", instruction="Add.", boundary=boundary)
    outcome = await run_agent(definition, "1+2", replace(ports, model=Talking([text("3")])), run_id=RUN)

    assert isinstance(outcome, Failed)
    assert None is (await replay_agent(definition, RUN, ports)).divergence
