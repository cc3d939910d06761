"""Law 1, crash: cut anywhere, resume, and the run ends as the calm one did, or waits in doubt; nothing is paid twice.

Each scenario shape is cut at every call that leaves the engine, by every kind of fault, in memory; on real stores see
tests/adapters/test_processes.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Literal

import pytest
from attrs import frozen
from hypothesis import given, settings, strategies as st

import turnwright.decide
from tests.laws.playing import RUN, Weather, play, ports, weathers
from tests.laws.test_history import unpaired
from turnwright import AgentDefinition, Decision, Happened, ModelError, Ports, RunCall, replay_agent, run_agent, tool
from turnwright.commands import ExecuteCall
from turnwright.definition import AnyDefinition
from turnwright.facts import CallStarted
from turnwright.inbox import Steer, Word
from turnwright.lifecycle import LifecycleEvent
from turnwright.memory import MemoryApprovals, MemoryBudgets, MemoryIdempotency
from turnwright.messages import Message, UserMessage
from turnwright.ports import Approvals, Budgets, Context, Idempotency, Inbox, Listener, Model, State
from turnwright.state import CallState, RunState
from turnwright.testing import CrashReport, Fault, Reply, ScriptedModel, call, explore_crashes, fails, text
from turnwright.testing.crashes import FaultKind
from turnwright.testing.strategies import Sketch, sketches


@tool(approval="required")
async def pay(cents: int) -> str:
    """Pay out."""
    return f"paid {cents}"


@tool
async def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@tool(replay="safe")
async def look(order: int) -> int:
    """Look an order up."""
    return order * 2


@tool(replay="idempotent")
async def book(seat: str) -> str:
    """Book a seat under the call's key."""
    return seat


async def ask_carrier(key: str) -> Happened:
    """Say what became of a parcel; this carrier always knows."""
    return Happened(7 if key else None)


@tool(reconcile=ask_carrier)
async def ship(parcel: int) -> int:
    """Ship a parcel; the carrier can be asked."""
    return parcel


@tool(replay="safe", sequential=True)
async def stamp(page: int) -> int:
    """Stamp a page, one at a time."""
    return page


def politely(output: str, calls: Sequence[RunCall]) -> str | None:
    """Object to an answer without thanks."""
    return None if "thank" in output else "say thank you"


@tool(key=lambda arguments: str(arguments["item"]), replay="safe")
async def order(item: str) -> str:
    """Order something, once under its name."""
    return f"ordered {item}"


@tool(key=lambda _: "slip")
async def slip() -> str:
    """Fail after all."""
    raise RuntimeError("slipped")


AGENT = AgentDefinition(name="clerk", instruction="Do it.", tools=[pay, send, look, book, ship, stamp])
POLITE = AgentDefinition(name="polite", instruction="Do it.", check_output=[politely])
COUNTER = AgentDefinition(name="counter", instruction="Count.", output=int)
ORDERER = AgentDefinition(name="orderer", instruction="Order.", tools=[order, slip])
BUSY = ModelError("overloaded", "come back later", retryable=True)


class Letterbox:
    """An inbox port with one word in it."""

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        """What came after *after*."""
        return [(1, Steer(UserMessage("hurry"), "h"))][after:]


class Window:
    """A context port that shows everything."""

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """Show all."""
        return messages


class Ear:
    """A listener that has nothing to say."""

    async def on_event(self, event: LifecycleEvent) -> None:
        """Listen."""


@frozen
class Shape:
    """A scenario: an agent, what its model says, what people say, and the ports beside model and store."""

    definition: AnyDefinition
    replies: Sequence[Reply]
    decisions: Literal["approve", "deny"] = "approve"
    ports: Mapping[str, Callable[[], object]] = {}

    def in_memory(self, _: Path) -> Ports:
        """Ports of a fresh engine over the store in memory."""
        made = {name: make() for name, make in self.ports.items()}
        return Ports(ScriptedModel(self.replies), scopes=("team",), **made)  # type: ignore[arg-type]


def team(**limits: int) -> Callable[[], MemoryBudgets]:
    """What the team may use, by axis."""
    return lambda: MemoryBudgets({("team", axis): limit for axis, limit in limits.items()})


SHAPES = {
    "text": Shape(AGENT, [text("hello")]),
    "typed output": Shape(COUNTER, [text("three"), text("3")]),
    "repair": Shape(POLITE, [text("no"), text("thank you")]),
    "safe tool": Shape(AGENT, [call("look", order=1), text("2")]),
    "never tool": Shape(AGENT, [call("send", to="anna"), text("done")]),
    "idempotent tool": Shape(AGENT, [call("book", seat="1a"), text("done")]),
    "reconciled tool": Shape(AGENT, [call("ship", parcel=7), text("done")]),
    "approved payment": Shape(AGENT, [call("pay", cents=500), text("done")]),
    "denied payment": Shape(AGENT, [call("pay", cents=500), text("as you wish")], "deny"),
    "payment that a port approves": Shape(
        AGENT,
        [call("pay", cents=500), text("done")],
        ports={"approvals": lambda: MemoryApprovals(lambda _: Decision(True))},
    ),
    "keyed tool": Shape(
        ORDERER,
        [call("order", item="a"), call("order", item="a"), text("done")],
        ports={"idempotency": MemoryIdempotency},
    ),
    "keyed tool that fails": Shape(ORDERER, [call("slip"), text("done")], ports={"idempotency": MemoryIdempotency}),
    "refused call": Shape(AGENT, [call("fly", to="mars"), text("I cannot")]),
    "busy model": Shape(AGENT, [fails(BUSY, then=text("hello"))]),
    "within its budget": Shape(
        AGENT,
        [[call("look", order=1), call("send", to="b")], text("done")],
        ports={"budgets": team(requests=99, tool_calls=99)},
    ),
    "beyond its budget": Shape(
        AGENT, [[call("look", order=1), call("send", to="b")], text("done")], ports={"budgets": team(tool_calls=1)}
    ),
    "watched": Shape(
        AGENT, [call("send", to="anna"), text("done")], ports={"listener": Ear, "context": Window, "inbox": Letterbox}
    ),
    "parallel": Shape(AGENT, [[call("look", order=1), call("send", to="b"), call("pay", cents=1)], text("done")]),
    "waves": Shape(AGENT, [[call("look", order=1), call("stamp", page=1), call("look", order=2)], text("done")]),
    "two turns": Shape(AGENT, [call("send", to="a"), call("look", order=3), text("done")]),
}


@cache
def explored(shape: str) -> CrashReport:
    """Every single fault of a shape, in memory."""
    scenario = SHAPES[shape]
    return explore_crashes(scenario.definition, "go", scenario.in_memory, decisions=scenario.decisions)


@pytest.mark.promise("T-01", "T-02", "N-05", "N-08", "N-11", "I-07")
@pytest.mark.parametrize("shape", SHAPES)
def test_no_single_fault_breaks_a_law_in_memory(shape: str) -> None:
    """Every call of every shape survives every fault, and no acknowledged fact or money is lost."""
    report = explored(shape)

    assert [] == [str(each) for each in report.violations]
    assert report.cuts == 6 * len(report.calls)


@pytest.mark.promise("T-02")
def test_every_call_of_every_port_is_cut() -> None:
    """Also one that is added tomorrow. What an engine calls only in trouble, or never, is told."""
    ports = {"state": State, "model": Model, "approvals": Approvals, "budgets": Budgets, "idempotency": Idempotency}
    ports |= {"inbox": Inbox, "listener": Listener, "context": Context}
    calls = {
        f"{port}.{name}"
        for port, protocol in ports.items()
        for name in vars(protocol)
        if iscoroutinefunction(getattr(protocol, name))
    }
    tools = {f"tool {name}" for name in (*AGENT.toolbox, *ORDERER.toolbox)}
    in_trouble = {"state.renew", "budgets.held", "budgets.release"}
    never = {"state.evidence", "state.erase", "state.runs"}

    reached = {name for shape in SHAPES for name in explored(shape).calls}

    assert tools | calls - in_trouble - never == reached


DEATHS: Sequence[FaultKind] = ("before", "lost", "unused", "late")


@pytest.mark.promise("T-01", "N-05", "N-08")
@given(sketches(), st.data())
@settings(max_examples=40)
def test_no_death_breaks_a_law_of_a_drawn_agent(sketch: Sketch, data: st.DataObject) -> None:
    """Whatever the tools and the conversation: each effect that is never repeated happens at most once, also by the
    count of the world itself, every request that any engine sends is a valid history, and the outcome is the calm one.
    """
    effects: list[str] = []
    definition = sketch.definition(lambda context: effects.append(context.effect_id))
    model = ScriptedModel(sketch.replies)
    calm = explore_crashes(definition, "go", lambda _: Ports(model=model), plans=[])
    assert [] == [str(each) for each in calm.violations]
    calmly = Counter(effects)
    places = range(1, len(calm.calls) + 1)
    tools = [place for place in places if calm.calls[place - 1].startswith("tool")]
    died = [st.sampled_from(tools or places) | st.sampled_from(places), st.sampled_from(DEATHS)]
    deaths = st.tuples(st.builds(Fault, st.just(1), *died), st.builds(Fault, st.just(2), *died))

    for plan in data.draw(st.lists(deaths, min_size=1, max_size=4)):
        effects.clear()
        report = explore_crashes(definition, "go", lambda _: Ports(model=model), plans=[plan])

        assert [] == [str(each) for each in report.violations]
        if all([each.replay == "never" for each in sketch.tools]):
            assert [] == [effect for effect, times in (Counter(effects) - calmly).items() if times > 1]
    assert [] == [breach for request in model.requests for breach in unpaired(request.messages)]


@pytest.mark.promise("N-05", "N-08")
@given(sketches(), weathers(), st.lists(st.integers(0, 40), min_size=1, max_size=4))
@settings(max_examples=60)
async def test_a_run_that_is_interrupted_anywhere_ends_as_the_calm_one(
    sketch: Sketch, weather: Weather, interruptions: list[int]
) -> None:
    """Interrupted again and again, in the middle of whatever it does, and taken up each time: the answer is the calm
    run's unless a call is in doubt, no `never` effect happens twice, and the journal replays.
    """
    effects: list[str] = []
    given_, model = ports(sketch, weather=weather)
    definition = sketch.definition(lambda context: effects.append(context.effect_id))
    for steps in interruptions:
        run = asyncio.ensure_future(run_agent(definition, "go", given_, run_id=RUN))
        for _ in range(steps):
            await asyncio.sleep(0)
        run.cancel()
        await asyncio.wait([run])

    calm = await play(sketch, weather=weather)
    ended = await play(sketch, weather=weather, on=given_, effect=lambda context: effects.append(context.effect_id))

    journal_ = [each.kind for each in await given_.state.load(RUN)]
    if "CallInDoubt" not in journal_ and "ModelLost" not in journal_:
        assert (type(calm.outcome), [*calm.outcome.transcript]) == (type(ended.outcome), [*ended.outcome.transcript])
    if all([each.replay == "never" for each in sketch.tools]):
        assert len({*effects}) == len(effects)
    assert None is (await replay_agent(definition, RUN, given_)).divergence
    assert [] == [breach for request in model.requests for breach in unpaired(request.messages)]


@pytest.mark.promise("T-02")
@pytest.mark.parametrize(
    ("shape", "kinds"),
    [("never tool", ["lost", "hidden"]), ("reconciled tool", ["lost"]), ("within its budget", ["lost"])],
)
def test_pairs_of_faults_strike_the_recovery_too(shape: str, kinds: Sequence[FaultKind]) -> None:
    """A second fault hits the engine that recovers from the first, and what only such a one calls."""
    report = explore_crashes(AGENT, "go", SHAPES[shape].in_memory, faults="pairs", kinds=kinds)

    assert [] == [str(each) for each in report.violations]


@pytest.mark.proof
@pytest.mark.promise("T-01", "T-02")
@pytest.mark.parametrize(
    "shape", ["safe tool", "never tool", "idempotent tool", "approved payment", "two turns", "within its budget"]
)
def test_no_pair_of_faults_breaks_a_law(shape: str) -> None:
    """Each fault that can strike after each first one, on the five core shapes."""
    scenario = SHAPES[shape]

    report = explore_crashes(scenario.definition, "go", scenario.in_memory, faults="pairs")

    assert [] == [str(each) for each in report.violations]
    assert report.cuts > len(report.calls) ** 2


@pytest.mark.promise("T-01")
def test_an_engine_that_repeats_a_never_effect_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit is no ornament: break the recovery, and it names the plan that pays twice."""

    def repeat(state: RunState, call: CallState, _: object, facts: list[object], commands: list[object]) -> None:
        assert call.started is not None
        assert call.admitted is not None
        effect_id, attempt = state.effect_id(call.turn, call.index), call.started.attempt + 1
        facts.append(CallStarted(call.turn, call.index, attempt, effect_id))
        commands.append(ExecuteCall(call.admitted, attempt, effect_id))

    monkeypatch.setattr(turnwright.decide, "_recover", repeat)

    report = explore_crashes(AGENT, "refund 5", SHAPES["approved payment"].in_memory)

    assert any("happened 2 times" in each.what for each in report.violations)


@pytest.mark.promise("T-02")
def test_a_plan_replays_alone() -> None:
    """A violation's plan is all that it takes to see it again."""
    ports_ = SHAPES["approved payment"].in_memory
    whole = explore_crashes(AGENT, "refund 5", ports_, kinds=["lost"])

    report = explore_crashes(AGENT, "refund 5", ports_, plans=[[Fault(1, whole.calls.index("tool pay") + 1, "lost")]])

    assert (report.cuts, report.in_doubt) == (1, 1)


@pytest.mark.promise("T-02")
def test_laws_of_ones_own_are_held_against_every_cut() -> None:
    """A law that a `safe` tool does not promise is broken where it runs again, and the plan tells where."""

    def once(effects: Mapping[str, int], state: RunState) -> str:
        assert state.opened is not None
        return "looked twice" if any([times > 1 for times in effects.values()]) else ""

    report = explore_crashes(AGENT, "go", SHAPES["safe tool"].in_memory, kinds=["lost"], laws=[once])

    tool_call = report.calls.index("tool look") + 1
    assert [f"looked twice [lost at call {tool_call} of engine 1]"] == [str(each) for each in report.violations][:1]


@pytest.mark.promise("T-02", "N-11")
def test_accounts_and_keys_in_memory_outlive_an_engine() -> None:
    """As those in a database would: else nothing that an engine left there could be seen."""

    class Forgetful(MemoryBudgets):
        async def settle(self, id: str, actual: Mapping[str, int]) -> None:
            """Lose it."""

    scenario = Shape(AGENT, [text("hello")], ports={"budgets": lambda: Forgetful({})})

    report = explore_crashes(AGENT, "go", scenario.in_memory, kinds=["failed"])

    assert {"a run at rest holds run:1#1"} <= {each.what for each in report.violations}
