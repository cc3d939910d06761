"""An approval: what is asked, who may answer, what an answer allows, and what it never does."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve as replace

from tests.driver.virtual import LoopClock, run
from turnwright import (
    AgentDefinition,
    Completed,
    Decision,
    DidNotHappen,
    Happened,
    JournalError,
    MemoryState,
    Outcome,
    Pending,
    Ports,
    RunError,
    RunMismatch,
    Suspended,
    Tool,
    ToolContext,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.canonical import digest
from turnwright.inbox import Approve, Deny
from turnwright.memory import MemoryApprovals
from turnwright.messages import ToolMessage
from turnwright.ports import ApprovalRequest, NotDecided
from turnwright.testing import FixedClock, Reply, ScriptedModel, call, text


class Till:
    """Tools around money, and what was paid."""

    def __init__(self, **contract: object) -> None:
        self.paid: list[int] = []
        self.counted = 0
        self.keys: list[str] = []

        @tool(approval="required", **contract)  # type: ignore[call-overload,untyped-decorator]
        async def pay(cents: int, context: ToolContext) -> str:
            """Pay."""
            await asyncio.sleep(0)
            self.paid.append(cents)
            self.keys.append(context.effect_id)
            return f"paid {cents}"

        @tool
        async def count() -> int:
            """Count."""
            self.counted += 1
            return self.counted

        self.tools: list[Tool[..., object]] = [pay, count]

    def agent(self, **options: object) -> AgentDefinition[str, str]:
        """An agent that may use them."""
        return AgentDefinition(name="till", instruction="Pay.", tools=self.tools, **options)  # type: ignore[arg-type]


def waiting(outcome: Outcome[str]) -> tuple[Pending, ...]:
    """What a run that waits for approval waits for."""
    assert isinstance(outcome, Suspended), outcome
    assert "approval" == outcome.reason
    return outcome.pending


def results(outcome: Outcome[str]) -> list[tuple[str, bool]]:
    """What the model saw of its calls."""
    return [(message.text, message.is_error) for message in outcome.transcript if isinstance(message, ToolMessage)]


PAY: list[Reply] = [call("pay", cents=5), text("done")]


@pytest.mark.promise("N-05", "N-09")
@pytest.mark.case("app-01")
async def test_without_a_decision_nothing_runs_and_nobody_is_asked_again() -> None:
    """A resume with empty hands leaves the run as it was: the call pends, the model is not called."""
    till, model, state = Till(), ScriptedModel(PAY), MemoryState()
    world = Ports(model=model, state=state)
    first = await run_agent(till.agent(), "go", world, run_id="r1")
    length = len(await state.load("r1"))

    again = await resume_agent(till.agent(), "r1", world)

    assert waiting(first) == waiting(again)
    assert ([], 1, length) == (till.paid, len(model.requests), len(await state.load("r1")))


@pytest.mark.promise("N-08", "N-09")
async def test_a_request_shows_exactly_what_will_run() -> None:
    """The question and the pending both hold the validated arguments, their digest and the effect's one id."""
    till, approvals = Till(), MemoryApprovals()
    world = Ports(model=ScriptedModel([call("pay", cents="5"), text("done")]), approvals=approvals)

    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))
    ended = await resume_agent(till.agent(), "r1", world, decisions={pending.effect_id: "approve"})

    (asked,) = approvals.asked
    assert ("r1:1.0", "pay", {"cents": 5}, digest({"cents": 5})) == (
        pending.effect_id,
        pending.tool,
        pending.arguments,
        pending.digest,
    )
    assert (pending.effect_id, pending.tool, pending.arguments, pending.digest) == (
        asked.effect_id,
        asked.tool,
        asked.arguments,
        asked.digest,
    )
    assert isinstance(ended, Completed)
    assert ([5], ["r1:1.0"]) == (till.paid, till.keys)


@pytest.mark.promise("N-09")
async def test_what_is_shown_cannot_hide_or_turn_around() -> None:
    """Control and direction characters in the arguments are made visible to whoever decides."""
    approvals = MemoryApprovals()

    @tool(approval="required")
    async def transfer(to: str) -> str:
        """Transfer."""
        return to

    agent = AgentDefinition(name="till", instruction="Pay.", tools=[transfer])
    hidden = "ann\u202e\u200b\x1b[2K\u2066\ue000"
    world = Ports(model=ScriptedModel([call("transfer", to=hidden), text("done")]), approvals=approvals)
    await run_agent(agent, "go", world)

    shown = approvals.asked[0].rendering

    assert shown.isascii()
    assert [True] * 4 == [mark in shown for mark in (r"\u202e", r"\u200b", r"\u001b", r"\ue000")]


@pytest.mark.promise("N-09")
@pytest.mark.parametrize("other", ["", "ben"])
async def test_a_yes_counts_for_whom_the_run_acts_and_for_nobody_else(other: str) -> None:
    """Who decides and the tool are told for whom; on another's behalf nobody goes on, whatever was approved."""
    served: list[str] = []

    @tool(approval="required")
    async def transfer(context: ToolContext, cents: int) -> str:
        """Transfer."""
        served.append(context.principal)
        return f"{cents}"

    approvals = MemoryApprovals()
    agent = AgentDefinition(name="till", instruction="Pay.", tools=[transfer])
    world = Ports(ScriptedModel([call("transfer", cents=5), text("done")]), approvals=approvals, principal="ada")
    (pending,) = waiting(await run_agent(agent, "go", world, run_id="r1"))
    yes = {pending.effect_id: "approve"}

    with pytest.raises(RunMismatch, match="principal"):
        await resume_agent(agent, "r1", replace(world, principal=other), decisions=yes)
    refused = [*served]
    ended = await resume_agent(agent, "r1", world, decisions=yes)

    assert isinstance(ended, Completed)
    assert ([], ["ada"], "ada") == (refused, served, approvals.asked[0].principal)


@pytest.mark.promise("N-09")
@pytest.mark.case("app-05")
@pytest.mark.parametrize("decision", ["approve", Decision(approved=True, by="ann")])
async def test_a_yes_runs_the_call_once(decision: str | Decision) -> None:
    """The tool runs, the audit says that it was approved, and the same yes again runs nothing."""
    till, state = Till(), MemoryState()
    world = Ports(model=ScriptedModel(PAY), state=state)
    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))

    outcomes = [
        await resume_agent(till.agent(), "r1", world, decisions={pending.effect_id: decision}) for _ in range(3)
    ]

    decided = [each.code for each in await state.evidence("r1") if each.kind == "approval_decided"]
    assert {Completed} == {type(outcome) for outcome in outcomes}
    assert ([5], ["approved"], [("paid 5", False)]) == (till.paid, decided, results(outcomes[0]))


@pytest.mark.promise("N-07", "N-09")
@pytest.mark.parametrize(
    ("decision", "told"),
    [("deny", "denied"), (Decision(approved=False, reason="too much", by="ann"), "denied: too much")],
)
async def test_a_no_is_recorded_and_told_to_the_model(decision: str | Decision, told: str) -> None:
    """A denial runs nothing, is a result with its reason, and the run goes on."""
    till, state = Till(), MemoryState()
    world = Ports(model=ScriptedModel(PAY), state=state)
    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))

    outcome = await resume_agent(till.agent(), "r1", world, decisions={pending.effect_id: decision})

    decided = [each.code for each in await state.evidence("r1") if each.kind == "approval_decided"]
    assert isinstance(outcome, Completed)
    assert ([], ["denied"], [(told, True)]) == (till.paid, decided, results(outcome))


@pytest.mark.promise("N-09")
async def test_a_yes_serves_once_and_a_new_call_needs_another() -> None:
    """The model that asks for the same again asks for another approval."""
    till = Till()
    world = Ports(model=ScriptedModel([call("pay", cents=5), call("pay", cents=5), text("done")]))
    (first,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))

    (second,) = waiting(await resume_agent(till.agent(), "r1", world, decisions={first.effect_id: "approve"}))
    (still,) = waiting(await resume_agent(till.agent(), "r1", world, decisions={first.effect_id: "approve"}))

    assert ("r1:1.0", "r1:2.0", second, [5]) == (first.effect_id, second.effect_id, still, till.paid)


@pytest.mark.promise("N-09")
@pytest.mark.parametrize(
    "unknown", ["", "c1", "r1", "r1:1.1", "r1:2.0", "r1:0.0", "r2:1.0", "r1:1", "r1:1.0 ", "r1:01.0", "r1:1.-1", 7]
)
@pytest.mark.case("app-05")
async def test_a_decision_on_what_is_no_call_of_the_run_is_an_error(unknown: object) -> None:
    """The caller is told at once, together with what does wait; nothing runs and nothing is written."""
    till, state = Till(), MemoryState()
    world = Ports(model=ScriptedModel(PAY), state=state)
    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))
    length = len(await state.load("r1"))

    with pytest.raises(RunError, match=r"run 'r1' has no call .*r1:1\.0"):
        await resume_agent(
            till.agent(),
            "r1",
            world,
            decisions={pending.effect_id: "approve", unknown: "approve"},  # type: ignore[dict-item]
        )
    with pytest.raises(RunError):
        await resume_agent(till.agent(), "r1", world, resolutions={unknown: DidNotHappen()})  # type: ignore[dict-item]
    assert ([], length, ()) == (till.paid, len(await state.load("r1")), await state.read("r1"))
    ended = await resume_agent(till.agent(), "r1", world, decisions={pending.effect_id: "approve"})
    assert isinstance(ended, Completed)


@pytest.mark.promise("N-09")
@pytest.mark.parametrize(
    "decision",
    ["Approve", "yes", "", True, None, 1, Decision(approved="false"), Decision(approved=1)],  # type: ignore[arg-type]
)
async def test_what_is_no_clear_decision_is_an_error(decision: object) -> None:
    """Only `approve`, `deny` and a Decision that says yes or no decide."""
    till = Till()
    world = Ports(model=ScriptedModel(PAY))
    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))

    with pytest.raises(ValueError, match=r"r1:1\.0"):
        await resume_agent(till.agent(), "r1", world, decisions={pending.effect_id: decision})  # type: ignore[dict-item]
    assert (pending,) == waiting(await resume_agent(till.agent(), "r1", world))
    assert [] == till.paid


@pytest.mark.parametrize("said", [True, False, "happened", None, "paid", Happened])
async def test_what_is_no_clear_resolution_is_an_error(said: object) -> None:
    """Nothing but the two words says what became of an effect."""
    till = Till()
    world = Ports(model=ScriptedModel(PAY))
    await run_agent(till.agent(), "go", world, run_id="r1")

    with pytest.raises(ValueError, match=r"r1:1\.0"):
        await resume_agent(till.agent(), "r1", world, resolutions={"r1:1.0": said})  # type: ignore[dict-item]


@pytest.mark.promise("N-09")
@pytest.mark.case("app-07")
async def test_a_batch_with_two_approvals_takes_them_one_by_one() -> None:
    """What needs none runs once; each approved call runs once; the model waits for all and gets results in order."""
    till = Till()
    model = ScriptedModel([[call("count"), call("pay", cents=1), call("pay", cents=2)], text("done")])
    world = Ports(model=model)
    first, second = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))

    (left,) = waiting(await resume_agent(till.agent(), "r1", world, decisions={first.effect_id: "approve"}))
    after_one = ([*till.paid], till.counted, len(model.requests))
    ended = await resume_agent(till.agent(), "r1", world, decisions={second.effect_id: "approve"})

    assert (second, ([1], 1, 1)) == (left, after_one)
    assert isinstance(ended, Completed)
    assert ([1, 2], 1, 2) == (till.paid, till.counted, len(model.requests))
    assert [("1", False), ("paid 1", False), ("paid 2", False)] == results(ended)


@pytest.mark.promise("N-09")
@pytest.mark.case("app-14")
async def test_what_a_caller_does_to_an_outcome_changes_no_run() -> None:
    """A pending request is a picture: scribbling on it changes neither what runs nor another picture."""
    till = Till()
    world = Ports(model=ScriptedModel(PAY))
    (one,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))
    (other,) = waiting(await resume_agent(till.agent(), "r1", world))
    one.arguments["cents"] = 1000  # type: ignore[index]

    ended = await resume_agent(till.agent(), "r1", world, decisions={one.effect_id: "approve"})

    assert isinstance(ended, Completed)
    assert ({"cents": 5}, [5]) == (other.arguments, till.paid)


@pytest.mark.promise("N-09")
@pytest.mark.case("app-02")
@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("CallAdmitted", b'"cents":5', b'"cents":1000'),
        ("CallAdmitted", b'"name":"pay"', b'"name":"wipe"'),
        ("ApprovalRequested", b'"digest":"', b'"digest":"0'),
    ],
)
async def test_a_stored_call_that_was_changed_is_refused(kind: str, old: bytes, new: bytes) -> None:
    """Whoever edits the journal between the question and the answer gets nothing run."""
    till, state = Till(), MemoryState()

    @tool
    async def wipe(cents: int) -> str:
        """Wipe."""
        till.paid.append(-1)
        return "wiped"

    agent = AgentDefinition(name="till", instruction="Pay.", tools=[*till.tools, wipe])
    world = Ports(model=ScriptedModel(PAY), state=state)
    (pending,) = waiting(await run_agent(agent, "go", world, run_id="r1"))
    entries = state._runs["r1"].entries
    (place,) = [place for place, entry in enumerate(entries) if entry.kind == kind]
    changed = replace(entries[place], body=entries[place].body.replace(old, new))
    assert changed.body != entries[place].body
    entries[place] = changed

    with pytest.raises(JournalError, match=f"journal entry {place + 1}: "):
        await resume_agent(agent, "r1", world, decisions={pending.effect_id: "approve"})
    assert [] == till.paid


@pytest.mark.promise("N-09")
async def test_a_yes_to_other_arguments_is_no_yes() -> None:
    """A word that names the digest it means does not approve a call with another one."""
    till, state = Till(), MemoryState()
    world = Ports(model=ScriptedModel(PAY), state=state)
    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))

    await state.post("r1", Approve(pending.effect_id, digest=digest({"cents": 4})))
    assert (pending,) == waiting(await resume_agent(till.agent(), "r1", world))
    await state.post("r1", Approve(pending.effect_id, digest=pending.digest))
    ended = await resume_agent(till.agent(), "r1", world)

    assert isinstance(ended, Completed)
    assert [5] == till.paid


@pytest.mark.promise("N-09")
async def test_the_first_of_two_words_about_a_call_counts() -> None:
    """Who decides later is recorded as having changed nothing."""
    till, state = Till(), MemoryState()
    world = Ports(model=ScriptedModel(PAY), state=state)
    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))
    await state.post("r1", Deny(pending.effect_id, "no"))
    await state.post("r1", Approve(pending.effect_id))

    ended = await resume_agent(till.agent(), "r1", world)

    words = [each.code for each in await state.evidence("r1") if each.kind == "inbox_received"]
    assert isinstance(ended, Completed)
    assert ([], ["deny", "approve_refused"]) == (till.paid, words)


@pytest.mark.promise("N-09")
@pytest.mark.parametrize(("late", "runs"), [(59.0, True), (60.0, False), (86_400.0, False)])
async def test_a_request_expires(late: float, runs: bool) -> None:
    """A yes after the request's time is a no, which the model is told; before it is a yes."""
    till, clock = Till(), FixedClock()
    world = Ports(model=ScriptedModel(PAY), clock=clock)
    agent = till.agent(approval_seconds=60.0)
    (pending,) = waiting(await run_agent(agent, "go", world, run_id="r1"))
    clock.advance(late)

    ended = await resume_agent(agent, "r1", world, decisions={pending.effect_id: "approve"})

    assert clock.at - late + 60.0 == pending.expires_at
    assert isinstance(ended, Completed)
    assert [5] * runs == till.paid
    assert [("paid 5", False) if runs else ("denied: the request for approval expired", True)] == results(ended)


@pytest.mark.promise("N-09")
@pytest.mark.parametrize(("level", "runs"), [(None, False), (1, False), (2, True), (3, True)])
async def test_a_level_must_be_reached(level: int | None, runs: bool) -> None:
    """A call that needs somebody of level two runs on no word of less, by the caller or by the port."""
    calls: list[str] = []

    @tool(approval=2)
    async def pay() -> str:
        """Pay."""
        calls.append("paid")
        return "paid"

    agent = AgentDefinition(name="till", instruction="Pay.", tools=[pay])
    yes = Decision(approved=True, level=level)
    world = Ports(model=ScriptedModel([call("pay"), text("done")]))
    (pending,) = waiting(await run_agent(agent, "go", world, run_id="r1"))
    assert 2 == pending.level

    await resume_agent(agent, "r1", world, decisions={pending.effect_id: yes})
    await run_agent(agent, "go", replace(world, approvals=MemoryApprovals(lambda _: yes)), run_id="r2")

    assert ["paid"] * 2 * runs == calls


@pytest.mark.promise("N-06", "N-09")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        "approve",
        NotDecided(),
        OSError("away"),
        asyncio.CancelledError(),
        Decision(approved="false"),  # type: ignore[arg-type]
        Decision(approved=1),  # type: ignore[arg-type]
    ],
)
async def test_a_port_that_gives_no_clear_yes_leaves_the_call_waiting(answer: object) -> None:
    """Raising, cancelling itself, not deciding and saying something odd are all no yes."""
    till = Till()

    def decide(_: ApprovalRequest) -> object:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    world = Ports(model=ScriptedModel(PAY), approvals=MemoryApprovals(decide))  # type: ignore[arg-type]

    assert 1 == len(waiting(await run_agent(till.agent(), "go", world)))
    assert [] == till.paid


@pytest.mark.promise("N-06", "N-09")
@pytest.mark.parametrize("level", ["2", True, 2.5, [2]])
async def test_a_level_that_is_no_number_reaches_nothing(level: object) -> None:
    """An odd level does not end the run, and approves nothing."""
    calls: list[str] = []

    @tool(approval=2)
    async def pay() -> str:
        """Pay."""
        calls.append("paid")
        return "paid"

    agent = AgentDefinition(name="till", instruction="Pay.", tools=[pay])
    odd = Decision(approved=True, level=level)  # type: ignore[arg-type]
    world = Ports(model=ScriptedModel([call("pay"), text("done")]), approvals=MemoryApprovals(lambda _: odd))

    outcome = await run_agent(agent, "go", world)

    assert 1 == len(waiting(outcome))
    assert [] == calls


async def test_a_port_that_decides_at_once_needs_no_pause() -> None:
    """With somebody at hand a run does not suspend at all."""
    till = Till()
    decisions = {"r1:1.0": Decision(approved=True, by="ann"), "r1:1.1": Decision(approved=False, reason="no")}
    world = Ports(
        model=ScriptedModel([[call("pay", cents=1), call("pay", cents=2)], text("done")]),
        approvals=MemoryApprovals(decisions),
    )

    outcome = await run_agent(till.agent(), "go", world, run_id="r1")

    assert isinstance(outcome, Completed)
    assert ([1], [("paid 1", False), ("denied: no", True)]) == (till.paid, results(outcome))


@pytest.mark.promise("N-05", "N-09")
async def test_an_approval_outlives_the_process_that_asked() -> None:
    """A word that was put in the inbox while nobody had the run is found by its next owner."""
    till, state = Till(), MemoryState()
    (pending,) = waiting(await run_agent(till.agent(), "go", Ports(model=ScriptedModel(PAY), state=state), run_id="r1"))
    await state.post("r1", Approve(pending.effect_id, by="ann"))

    ended = await resume_agent(till.agent(), "r1", Ports(model=ScriptedModel(PAY), state=state.reopen()))

    assert isinstance(ended, Completed)
    assert [5] == till.paid


async def test_a_predicate_asks_only_where_it_says_so() -> None:
    """A small payment goes through, a large one waits."""
    paid: list[int] = []

    @tool(approval=lambda arguments: arguments["cents"] > 100)  # type: ignore[operator]
    async def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return "paid"

    agent = AgentDefinition(name="till", instruction="Pay.", tools=[pay])
    model = ScriptedModel([[call("pay", cents=100), call("pay", cents=101)], text("done")])

    (pending,) = waiting(await run_agent(agent, "go", Ports(model=model)))

    assert ({"cents": 101}, [100]) == (pending.arguments, paid)


async def test_a_decision_reaches_a_run_with_an_inbox_of_its_own() -> None:
    """Where words come from elsewhere, what the caller decides counts all the same."""
    till = Till()

    class Silent:
        async def poll(self, run_id: str, after: int) -> list[tuple[int, object]]:
            return []

    world = Ports(model=ScriptedModel(PAY), inbox=Silent())  # type: ignore[arg-type]
    (pending,) = waiting(await run_agent(till.agent(), "go", world, run_id="r1"))

    ended = await resume_agent(till.agent(), "r1", world, decisions={pending.effect_id: "approve"})

    assert isinstance(ended, Completed)
    assert [5] == till.paid


@pytest.mark.promise("N-09")
@pytest.mark.parametrize(("word", "paid"), [(Approve("r1:1.0"), [5]), (Deny("r1:1.0"), [])])
def test_of_two_answers_to_one_question_the_first_counts(word: Approve | Deny, paid: list[int]) -> None:
    """A word in the inbox decides while the approvals port still thinks; what the port says then changes nothing."""
    till, state = Till(), MemoryState()

    class Slow:
        async def request(self, request: ApprovalRequest) -> Decision:
            await state.post("r1", word)
            await asyncio.sleep(10)
            return Decision(approved=isinstance(word, Deny), by="late")

    world = Ports(model=ScriptedModel(PAY), state=state, approvals=Slow(), clock=LoopClock())

    outcome = run(run_agent(till.agent(), "go", world, run_id="r1"))

    assert isinstance(outcome, Completed)
    assert paid == till.paid


@pytest.mark.promise("N-09")
def test_a_decision_of_the_port_that_comes_after_its_time_approves_nothing() -> None:
    """The request had expired when the port answered: the call still waits, and the next word finds it expired."""
    till = Till()

    class Slow:
        async def request(self, request: ApprovalRequest) -> Decision:
            await asyncio.sleep(10)
            return Decision(approved=True)

    world = Ports(model=ScriptedModel(PAY), approvals=Slow(), clock=LoopClock())

    waiting(run(run_agent(till.agent(approval_seconds=5.0), "go", world, run_id="r1")))

    assert [] == till.paid


@pytest.mark.promise("N-09")
@pytest.mark.parametrize(("takes", "runs"), [(59.0, True), (60.0, False), (3600.0, False)])
async def test_an_approval_that_expires_before_it_is_used_is_no_approval(takes: float, runs: bool) -> None:
    """A call that was approved in time and could not run in time does not run; the model is told."""
    clock = FixedClock()
    paid: list[int] = []

    @tool(sequential=True)
    async def slow() -> str:
        """Hold what comes after."""
        for _ in range(5):
            await asyncio.sleep(0)
        clock.advance(takes)
        return "slow"

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    agent = AgentDefinition(name="till", instruction="Pay.", tools=[slow, pay], approval_seconds=60.0)
    yes = MemoryApprovals(lambda _: Decision(approved=True))
    world = Ports(model=ScriptedModel([[call("slow"), call("pay")], text("done")]), approvals=yes, clock=clock)

    outcome = await run_agent(agent, "go", world)

    assert isinstance(outcome, Completed)
    assert [1] * runs == paid
    expected = ("paid", False) if runs else ("not executed: the approval expired before the call could run", True)
    assert [("slow", False), expected] == results(outcome)
