"""Law 1, crash: cut anywhere, resume, and the run ends as the calm one did, or waits in doubt; nothing is paid twice.

Each scenario shape is cut at every call that leaves the engine, by every kind of fault, in memory and on a file.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import turnwright.decide
from tests.laws.playing import RUN, Weather, play, ports, weathers
from tests.laws.test_history import unpaired
from turnwright import AgentDefinition, Happened, Ports, RunCall, replay_agent, run_agent, tool
from turnwright.commands import ExecuteCall
from turnwright.facts import CallStarted
from turnwright.state import CallState, RunState
from turnwright.testing import Fault, Reply, ScriptedModel, call, explore_crashes, text
from turnwright.testing.crashes import FaultKind
from turnwright.testing.strategies import Sketch, sketches
from turnwright_adapters.sqlite import SqliteState


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


AGENT = AgentDefinition(name="clerk", instruction="Do it.", tools=[pay, send, look, book, ship, stamp])
POLITE = AgentDefinition(name="polite", instruction="Do it.", check_output=[politely])

SHAPES: dict[str, tuple[AgentDefinition[str, str], list[Reply], str]] = {
    "text": (AGENT, [text("hello")], "approve"),
    "repair": (POLITE, [text("no"), text("thank you")], "approve"),
    "safe tool": (AGENT, [call("look", order=1), text("2")], "approve"),
    "never tool": (AGENT, [call("send", to="anna"), text("done")], "approve"),
    "idempotent tool": (AGENT, [call("book", seat="1a"), text("done")], "approve"),
    "reconciled tool": (AGENT, [call("ship", parcel=7), text("done")], "approve"),
    "approved payment": (AGENT, [call("pay", cents=500), text("done")], "approve"),
    "denied payment": (AGENT, [call("pay", cents=500), text("as you wish")], "deny"),
    "refused call": (AGENT, [call("fly", to="mars"), text("I cannot")], "approve"),
    "parallel": (AGENT, [[call("look", order=1), call("send", to="b"), call("pay", cents=1)], text("done")], "approve"),
    "waves": (AGENT, [[call("look", order=1), call("stamp", page=1), call("look", order=2)], text("done")], "approve"),
    "two turns": (AGENT, [call("send", to="a"), call("look", order=3), text("done")], "approve"),
}


def in_memory(replies: list[Reply]) -> Callable[[Path], Ports]:
    """Ports of a fresh engine over the store in memory."""
    return lambda _: Ports(model=ScriptedModel(replies))


def on_file(replies: list[Reply]) -> Callable[[Path], Ports]:
    """Ports of a fresh engine over one SQLite file."""
    return lambda folder: Ports(model=ScriptedModel(replies), state=SqliteState(folder / "runs.db"))


@pytest.mark.promise("T-01", "T-02", "N-05", "N-08", "I-07")
@pytest.mark.parametrize("shape", SHAPES)
def test_no_single_fault_breaks_a_law_in_memory(shape: str) -> None:
    """Every call of every shape survives every fault, and no acknowledged fact or money is lost."""
    definition, replies, decisions = SHAPES[shape]

    report = explore_crashes(definition, "go", in_memory(replies), decisions=decisions)

    assert [] == [str(each) for each in report.violations]
    assert report.cuts == 6 * len(report.calls)


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


@pytest.mark.promise("T-01", "T-02", "N-05")
def test_no_single_fault_breaks_an_approved_payment_on_a_file() -> None:
    """The same holds on a durable store; and some cuts fall where nobody can know, and say so."""
    definition, replies, decisions = SHAPES["approved payment"]

    report = explore_crashes(definition, "refund 5", on_file(replies), decisions=decisions)

    assert [] == [str(each) for each in report.violations]
    assert report.cuts > 50
    assert report.in_doubt > 0


@pytest.mark.promise("T-02")
def test_pairs_of_faults_strike_the_recovery_too() -> None:
    """A second fault hits the engine that recovers from the first."""
    definition, replies, decisions = SHAPES["never tool"]

    report = explore_crashes(
        definition, "go", in_memory(replies), decisions=decisions, faults="pairs", kinds=["lost", "hidden"]
    )

    assert [] == [str(each) for each in report.violations]


@pytest.mark.proof
@pytest.mark.promise("T-01", "T-02")
@pytest.mark.parametrize("shape", ["safe tool", "never tool", "idempotent tool", "approved payment", "two turns"])
def test_no_pair_of_faults_breaks_a_law(shape: str) -> None:
    """Each fault that can strike after each first one, on the five core shapes."""
    definition, replies, decisions = SHAPES[shape]

    report = explore_crashes(definition, "go", in_memory(replies), decisions=decisions, faults="pairs")

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
    definition, replies, decisions = SHAPES["approved payment"]

    report = explore_crashes(definition, "refund 5", in_memory(replies), decisions=decisions)

    assert any("happened 2 times" in each.what for each in report.violations)


@pytest.mark.promise("T-02")
def test_a_plan_replays_alone() -> None:
    """A violation's plan is all that it takes to see it again."""
    definition, replies, decisions = SHAPES["approved payment"]
    whole = explore_crashes(definition, "refund 5", in_memory(replies), decisions=decisions, kinds=["lost"])

    report = explore_crashes(
        *(definition, "refund 5", in_memory(replies)),
        decisions=decisions,
        plans=[[Fault(1, whole.calls.index("tool pay") + 1, "lost")]],
    )

    assert (report.cuts, report.in_doubt) == (1, 1)
