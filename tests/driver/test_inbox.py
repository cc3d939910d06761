"""Words to a run while it works or waits: steering, follow-ups, decisions, cancellation. None gets lost."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve as replace

from tests.driver.hanging import Hang, agent as hanging_agent, ports as hanging_ports
from turnwright import (
    AgentDefinition,
    Cancelled,
    Completed,
    DidNotHappen,
    Happened,
    JournalError,
    MemoryState,
    Outcome,
    PortError,
    Ports,
    Suspended,
    journal,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.inbox import Cancel, FollowUp, Steer, Word
from turnwright.messages import UserMessage
from turnwright.ports import ModelRequest
from turnwright.testing import Reply, ScriptedModel, call, text

TALKER = AgentDefinition(name="talker", instruction="Talk.")


def users(outcome: Outcome[str]) -> list[str]:
    """What people said, in the order of the transcript."""
    return [message.text for message in outcome.transcript if message.role == "user"]


def steer(words: str) -> Steer:
    """A message for the next model call."""
    return Steer(UserMessage(words))


def follow(words: str) -> FollowUp:
    """A message for when the run would end."""
    return FollowUp(UserMessage(words))


def saying(state: MemoryState, *words: Word, then: Reply, run_id: str = "r1") -> Reply:
    """A reply during which somebody says *words*."""

    def reply(_: ModelRequest) -> Reply:
        for word in words:
            state._runs[run_id].inbox.append(journal.encode_word(word))
        return then

    return reply


@pytest.mark.case("loo-03")
async def test_steering_at_the_last_turn_waits_for_one_more() -> None:
    """With one turn allowed, a message that came while it answered is not dropped: it is delivered when a turn is."""
    state = MemoryState()
    model = ScriptedModel([saying(state, steer("and now?"), then=text("first")), text("second")])
    world = Ports(model=model, state=state)

    stopped = await run_agent(TALKER, "go", world, run_id="r1", max_turns=1)
    ended = await resume_agent(TALKER, "r1", world, max_turns=2)

    assert isinstance(stopped, Suspended)
    assert ("max_turns", ["go"]) == (stopped.reason, users(stopped))
    assert isinstance(ended, Completed)
    assert ("second", ["go", "and now?"]) == (ended.output, users(ended))


async def test_steering_during_a_batch_comes_after_all_its_results() -> None:
    """The whole batch finishes first, and every message is delivered before the next request, in order."""
    state = MemoryState()

    @tool
    async def work(n: int) -> str:
        """Work, while somebody speaks."""
        await state.post("r1", steer(f"during {n}"))
        return f"worked {n}"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    model = ScriptedModel([[call("work", n=1), call("work", n=2)], text("done")])

    outcome = await run_agent(worker, "go", Ports(model=model, state=state), run_id="r1")

    assert ["user", "assistant", "tool", "tool", "user", "user", "assistant"] == [m.role for m in outcome.transcript]
    assert ["go", "during 1", "during 2"] == users(outcome)


async def test_a_follow_up_comes_when_the_run_would_end_and_steering_before_it() -> None:
    """Follow-ups are delivered one by one, each when nothing else is left; steering goes first."""
    state = MemoryState()
    model = ScriptedModel(
        [
            saying(state, follow("later 1"), follow("later 2"), steer("now"), then=text("one")),
            text("two"),
            text("three"),
            text("four"),
        ]
    )

    outcome = await run_agent(TALKER, "go", Ports(model=model, state=state), run_id="r1")

    assert isinstance(outcome, Completed)
    assert ("four", ["go", "now", "later 1", "later 2"]) == (outcome.output, users(outcome))


async def test_a_follow_up_waits_while_tools_are_called() -> None:
    """An answer with calls is no end."""
    state = MemoryState()

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    model = ScriptedModel([saying(state, follow("later"), then=call("work")), text("done"), text("really done")])

    outcome = await run_agent(worker, "go", Ports(model=model, state=state), run_id="r1")

    assert ["user", "assistant", "tool", "assistant", "user", "assistant"] == [m.role for m in outcome.transcript]


@pytest.mark.case("loo-04")
async def test_steering_that_was_heard_and_not_delivered_survives_an_interruption() -> None:
    """A run that is cut off between hearing and delivering delivers once, in order, when it goes on."""
    hang, state = Hang(), MemoryState()
    first, second = hanging_agent("", hang), hanging_agent("tool", hang)
    world = replace(hanging_ports("", hang), state=state)
    task = asyncio.create_task(run_agent(second, "go", world, run_id="r1"))
    await hang.reached.wait()
    await state.post("r1", steer("stop that"))
    await state.post("r1", steer("next"))
    task.cancel()
    await asyncio.wait([task])

    outcome = await resume_agent(first, "r1", world)

    assert isinstance(outcome, Completed)
    assert ["go", "stop that", "next"] == users(outcome)


async def test_steering_to_a_run_that_waits_is_kept_until_it_goes_on() -> None:
    """A message to a run that waits for approval neither wakes it nor gets lost."""

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    world = Ports(model=ScriptedModel([call("pay"), text("done")]))
    first = await run_agent(payer, "go", world, run_id="r1")
    assert isinstance(first, Suspended)
    await world.state.post("r1", steer("hurry"))

    still = await resume_agent(payer, "r1", world)
    ended = await resume_agent(payer, "r1", world, decisions={"r1:1.0": "approve"})

    assert isinstance(still, Suspended)
    assert ("approval", ["go"]) == (still.reason, users(still))
    assert isinstance(ended, Completed)
    assert ["go", "hurry"] == users(ended)


async def test_a_word_to_a_run_that_ended_changes_nothing() -> None:
    """What comes too late is ignored, and the outcome stays what it was."""
    world = Ports(model=ScriptedModel([text("done")]))
    ended = await run_agent(TALKER, "go", world, run_id="r1")
    for word in (steer("more"), follow("more"), Cancel()):
        await world.state.post("r1", word)

    again = await resume_agent(TALKER, "r1", world, max_turns=9)

    assert isinstance(again, Completed)
    assert (ended.evidence_head, ended.transcript) == (again.evidence_head, again.transcript)


async def test_cancel_goes_before_everything_else() -> None:
    """A run that was told to end and to go on ends, and starts nothing more."""
    model = ScriptedModel([call("pay"), text("done")])

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    world = Ports(model=model)
    await run_agent(payer, "go", world, run_id="r1")
    await world.state.post("r1", steer("hurry"))
    await world.state.post("r1", Cancel("no more"))

    ended = await resume_agent(payer, "r1", world, decisions={"r1:1.0": "approve"})

    assert isinstance(ended, Cancelled)
    assert ("no more", (), 1) == (ended.reason, ended.in_doubt, len(model.requests))
    assert not any([entry.kind == "CallStarted" for entry in await world.state.load("r1")])


async def test_cancel_during_a_request_drops_its_answer() -> None:
    """The word that comes while the model speaks ends the run before its calls are run."""
    state = MemoryState()
    ran: list[int] = []

    @tool
    async def work() -> str:
        """Work."""
        ran.append(1)
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    model = ScriptedModel([saying(state, Cancel("enough"), then=call("work")), text("done")])

    outcome = await run_agent(worker, "go", Ports(model=model, state=state), run_id="r1")

    assert isinstance(outcome, Cancelled)
    assert (1, []) == (len(model.requests), ran)


async def test_an_inbox_port_takes_the_place_of_the_stores() -> None:
    """Words may come from elsewhere, by their own positions."""
    words: list[tuple[int, Word]] = [(3, steer("from elsewhere")), (9, follow("later"))]

    class Elsewhere:
        async def poll(self, run_id: str, after: int) -> list[tuple[int, Word]]:
            return [(position, word) for position, word in words if position > after]

    model = ScriptedModel([text("one"), text("two")])
    world = Ports(model=model, inbox=Elsewhere())

    outcome = await run_agent(TALKER, "go", world, run_id="r1")

    assert isinstance(outcome, Completed)
    assert ["go", "from elsewhere", "later"] == users(outcome)
    assert () == await world.state.read("r1")


@pytest.mark.promise("N-05", "T-01")
@pytest.mark.parametrize(
    ("said", "shown", "is_error"),
    [
        (Happened("receipt 7"), "receipt 7", False),
        (Happened({"receipt": 7}), '{"receipt":7}', False),
        (Happened(), "null", False),
        (DidNotHappen(), "this call did not take effect; it may be issued again", True),
    ],
)
async def test_a_person_resolves_what_is_in_doubt(said: Happened | DidNotHappen, shown: str, is_error: bool) -> None:
    """The model is told what somebody found out; the effect itself is never repeated."""
    entered = asyncio.Event()
    times = 0

    @tool
    async def pay(cents: int) -> object:
        """Pay."""
        nonlocal times
        times += 1
        entered.set()
        return await asyncio.Event().wait()

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    world = Ports(model=ScriptedModel([call("pay", cents=5), text("done")]))
    task = asyncio.create_task(run_agent(payer, "go", world, run_id="r1"))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    doubted = await resume_agent(payer, "r1", world)
    ended = await resume_agent(payer, "r1", world, resolutions={"r1:1.0": said})
    again = await resume_agent(payer, "r1", world, resolutions={"r1:1.0": said})

    assert isinstance(doubted, Suspended)
    assert ("in-doubt", 1) == (doubted.reason, len(doubted.pending))
    assert isinstance(ended, Completed)
    assert isinstance(again, Completed)
    result = ended.transcript[2]
    assert (shown, is_error, 1) == (result.text, result.is_error, times)  # type: ignore[union-attr]


async def test_a_resolution_that_the_tool_would_not_return_is_refused() -> None:
    """Whoever says that it happened must say with what, in the tool's own terms."""
    entered = asyncio.Event()

    @tool(output=int)
    async def pay() -> object:
        """Pay."""
        entered.set()
        return await asyncio.Event().wait()

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    world = Ports(model=ScriptedModel([call("pay"), text("done")]))
    task = asyncio.create_task(run_agent(payer, "go", world, run_id="r1"))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    still = await resume_agent(payer, "r1", world, resolutions={"r1:1.0": Happened("much")})
    ended = await resume_agent(payer, "r1", world, resolutions={"r1:1.0": Happened(7)})

    assert isinstance(still, Suspended)
    assert "in-doubt" == still.reason
    assert isinstance(ended, Completed)
    assert "7" == ended.transcript[2].text


async def test_an_inbox_port_that_repeats_itself_is_heard_once() -> None:
    """A word has a position, and what was folded up to there is not folded again."""

    class Again:
        async def poll(self, run_id: str, after: int) -> list[tuple[int, Word]]:
            return [(1, steer("once")), (1, steer("once")), (2, follow("twice"))]

    outcome = await run_agent(TALKER, "go", Ports(model=ScriptedModel([text("one"), text("two")] * 4), inbox=Again()))

    assert isinstance(outcome, Completed)
    assert ["go", "once", "twice"] == users(outcome)


@pytest.mark.parametrize(
    "words",
    [
        [(1, None)],
        [(1, "cancel")],
        [("1", Cancel())],
        [(0, Cancel())],
        [(True, Cancel())],
        [(1, Steer("go"))],  # type: ignore[arg-type]
        [(1, Steer(UserMessage((7,))))],  # type: ignore[arg-type]
        [(1, Cancel(reason=7))],  # type: ignore[arg-type]
    ],
)
async def test_an_inbox_port_that_gives_no_words_is_an_error_of_the_port(words: object) -> None:
    """What the journal could not hold is not folded; the run can go on with another port."""

    class Odd:
        async def poll(self, run_id: str, after: int) -> list[tuple[int, Word]]:
            return words  # type: ignore[return-value]

    world = Ports(model=ScriptedModel([text("one")]), inbox=Odd())

    with pytest.raises(PortError, match="inbox port"):
        await run_agent(TALKER, "go", world, run_id="r1")
    assert isinstance(await run_agent(TALKER, "go", replace(world, inbox=None), run_id="r1"), Completed)


@pytest.mark.parametrize("word", [Steer("go"), Steer(UserMessage((7,))), Cancel(reason=7), None, "cancel"])  # type: ignore[arg-type]
async def test_what_is_no_word_does_not_enter_an_inbox(word: object) -> None:
    """A stranger cannot post what would keep the run from ever being read again."""
    world = Ports(model=ScriptedModel([call("none"), text("done")]))
    await run_agent(TALKER, "go", world, run_id="r1", max_turns=1)

    with pytest.raises((JournalError, TypeError)):
        await world.state.post("r1", word)  # type: ignore[arg-type]
    assert isinstance(await resume_agent(TALKER, "r1", world, max_turns=2), Completed)
