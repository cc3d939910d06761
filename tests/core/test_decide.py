"""History in, decision out: what comes next follows from what happened, and from nothing else."""

from __future__ import annotations

import pytest
from attrs import evolve as replace
from hypothesis import settings

from tests.core.histories import admitted, answered, approved, asked, calling, done, opened, requested, started, turn
from turnwright.commands import AdmitCalls, AskModel, CheckOutput, Command, ExecuteCall, Reconcile, RequestApproval
from turnwright.decide import AT_REST, Wave, decide, may_resume, receive
from turnwright.definition import AgentDefinition, Limits
from turnwright.facts import (
    ApprovalDecided,
    CallAdmitted,
    CallInDoubt,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    InboxReceived,
    ModelAsked,
    ModelFailed,
    ModelLost,
    OutputRejected,
    RunCancelled,
    RunFailed,
    RunResumed,
    RunSuspended,
    TurnStarted,
)
from turnwright.inbox import Approve, Cancel, FollowUp, LateResult, Resolve, Steer, Word
from turnwright.messages import Refusal, Text, UserMessage
from turnwright.state import evolve, fold
from turnwright.testing.machine import DeciderMachine
from turnwright.testing.strategies import ToolSketch
from turnwright.tools import DidNotHappen

TestTheDecider = DeciderMachine.TestCase
TestTheDecider.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
TestTheDecider.pytestmark = [pytest.mark.promise("T-04", "N-07", "N-08")]  # type: ignore[attr-defined]


NO_LIMITS = Limits()


def agent(*tools: ToolSketch, limits: Limits = NO_LIMITS, repairs: int = 2) -> AgentDefinition[str, str]:
    """An agent with these tools."""
    return AgentDefinition(
        "agent", "Act.", [each.make(lambda _: None) for each in tools], limits=limits, repairs=repairs
    )


def after(*history: Fact, tools: tuple[ToolSketch, ...] = (ToolSketch("pay"), ToolSketch("look"))) -> Wave:
    """What is decided after *history*."""
    wave = decide(agent(*tools), fold(history))
    assert isinstance(wave, Wave)
    return wave


def calls(*names: str, needs: int = 0) -> list[Fact]:
    """A first turn in which these tools were called and admitted."""
    return [
        opened(),
        *turn(1),
        answered(1, *calling(*names)),
        *[admitted(1, index, name, needs=needs) for index, name in enumerate(names)],
    ]


def test_a_fresh_run_begins_its_first_turn() -> None:
    """The intent comes with the command."""
    assert Wave((TurnStarted(1), ModelAsked(1, 1, "auto")), (AskModel(1, 1, "auto"),)) == after(opened())


def test_a_request_whose_answer_was_not_recorded_is_lost_and_asked_again() -> None:
    """It may have been charged, so it is told, and the next is another attempt of the same turn."""
    assert Wave((ModelLost(1, 1),)) == after(opened(), *turn(1))
    assert Wave((ModelAsked(1, 2, "auto"),), (AskModel(1, 2, "auto"),)) == after(opened(), *turn(1), ModelLost(1, 1))


def test_an_answer_without_calls_is_checked_as_output() -> None:
    """Whether it is good enough is not the decider's to say."""
    said = answered(1, Text("x"))

    assert Wave((), (CheckOutput(1, said.message),)) == after(opened(), *turn(1), said)


def test_an_answer_with_calls_is_admitted_in_its_order() -> None:
    """All of its calls at once."""
    first, second = calling("pay", "look")
    wave = after(opened(), *turn(1), answered(1, first, Text("and"), second))

    assert Wave((), (AdmitCalls(1, ((0, first), (1, second))),)) == wave


@pytest.mark.promise("N-09")
def test_a_call_that_needs_approval_is_asked_about_while_the_others_run() -> None:
    """One question does not hold up the rest."""
    wave = after(*calls("pay", "look")[:4], admitted(1, 0, "pay", needs=1), admitted(1, 1, "look"))

    assert (requested(1, 0), started(1, 1)) == wave.facts
    assert [RequestApproval, ExecuteCall] == [type(each) for each in wave.commands]


def test_a_deferred_approval_suspends_only_when_nothing_else_is_open() -> None:
    """While something runs, the run works; then it waits."""
    waiting = [*calls("pay", "look")[:4], admitted(1, 0, "pay", needs=1), admitted(1, 1, "look"), requested(1, 0)]

    assert Wave((RunSuspended("approval"),)) == after(*waiting, started(1, 1), done(1, 1))
    assert Wave((CallInDoubt(1, 1, 1, "started, and no result was recorded"),)) == after(*waiting, started(1, 1))


def test_an_approved_call_is_executed_under_the_effect_id_that_was_asked_about() -> None:
    """The id goes from the question to the execution."""
    wave = after(*calls("pay", needs=1), requested(1, 0), approved(1, 0))

    assert (CallStarted(1, 0, 1, "r:1.0"),) == wave.facts
    assert ("r:1.0",) == tuple([each.effect_id for each in wave.commands if isinstance(each, ExecuteCall)])


RECOVERY = [
    (ToolSketch("pay"), 1, CallInDoubt(1, 0, 1, "started, and no result was recorded")),
    (ToolSketch("pay", knows=DidNotHappen()), 1, Reconcile(admitted(1, 0, "pay"), "r:1.0")),
    (ToolSketch("pay", "safe"), 1, ExecuteCall(admitted(1, 0, "pay"), 2, "r:1.0")),
    (ToolSketch("pay", "idempotent"), 2, ExecuteCall(admitted(1, 0, "pay"), 3, "r:1.0")),
    (ToolSketch("pay", "safe"), 3, CallInDoubt(1, 0, 3, "no result after 3 attempts")),
    (ToolSketch("pay", "idempotent", knows=DidNotHappen()), 3, Reconcile(admitted(1, 0, "pay"), "r:1.0")),
]


@pytest.mark.promise("N-08")
@pytest.mark.parametrize(("tool", "attempts", "expected"), RECOVERY)
def test_a_call_without_result_recovers_by_its_replay_policy(
    tool: ToolSketch, attempts: int, expected: Fact | Command
) -> None:
    """`never` is in doubt unless somebody can tell; the others run again, a bounded number of times."""
    history = [*calls("pay"), *[started(1, 0, attempt) for attempt in range(1, attempts + 1)]]
    wave = after(*history, tools=(tool,))

    assert expected in (*wave.facts, *wave.commands)
    assert not [each for each in wave.facts if isinstance(each, CallStarted) and each.effect_id != "r:1.0"]


def test_a_sequential_call_waits_for_the_earlier_and_holds_the_later() -> None:
    """Nothing runs beside it."""
    tools = (ToolSketch("a"), ToolSketch("b", sequential=True), ToolSketch("c"))
    history = calls("a", "b", "c")
    order = []
    for _ in range(3):
        intents = after(*history, tools=tools).facts
        order.append([each.index for each in intents if isinstance(each, CallStarted)])
        history += [*intents, *[done(1, each) for each in order[-1]]]

    assert [[0], [1], [2]] == order


@pytest.mark.case("loo-03")
def test_steering_at_the_last_turn_waits_with_the_run() -> None:
    """It is never dropped: with one more turn it is delivered."""
    steer = InboxReceived(1, Steer(UserMessage("stop that")))
    history = [opened(max_turns=1), *turn(1), answered(1, Text("x")), steer]

    assert Wave((RunSuspended("max_turns"),)) == after(*history)
    wave = after(*history, RunSuspended("max_turns"), RunResumed(2, None))
    assert TurnStarted(2, (1,)) == wave.facts[0]


def test_all_steering_is_delivered_at_once_and_follow_ups_one_by_one_at_the_end() -> None:
    """Steering enters before the next request; a follow-up only where the run would otherwise be over."""
    words: list[Fact] = [
        InboxReceived(1, FollowUp(UserMessage("a"))),
        InboxReceived(2, Steer(UserMessage("b"))),
        InboxReceived(3, FollowUp(UserMessage("c"))),
        InboxReceived(4, Steer(UserMessage("d"))),
    ]
    history: list[Fact] = [opened(), *turn(1), answered(1, Text("x")), *words]

    first = after(*history).facts[0]
    assert TurnStarted(2, (2, 4)) == first
    history += [first, asked(2), answered(2, Text("y"))]
    second = after(*history).facts[0]
    assert TurnStarted(3, (1,)) == second
    history += [second, asked(3), answered(3, Text("z"))]
    assert TurnStarted(4, (3,)) == after(*history).facts[0]


@pytest.mark.promise("N-07")
def test_no_call_of_a_truncated_answer_runs() -> None:
    """Its arguments may be incomplete: each is refused, and the model is asked to issue it again."""
    wave = after(opened(), *turn(1), answered(1, *calling("pay", "look"), stop="length"))

    assert [(CallRefused, 0, "truncated"), (CallRefused, 1, "truncated")] == [
        (type(each), each.index, each.stage) for each in wave.facts if isinstance(each, CallRefused)
    ]
    assert () == wave.commands


def test_a_model_that_declines_ends_the_run_in_its_own_words() -> None:
    """It is a failure with a closed code, and no call that came with it runs."""
    wave = after(opened(), *turn(1), answered(1, Refusal("I will not."), *calling("pay"), stop="refusal"))

    assert [("refusal", "I will not.")] == [
        (f.fault.code, f.fault.message) for f in wave.facts if isinstance(f, RunFailed)
    ]


def test_rejected_output_is_repaired_until_the_budget_is_spent() -> None:
    """Then the failure names the last issues."""
    history: list[Fact] = [opened()]
    for number in (1, 2, 3):
        history += [*turn(number), answered(number, Text("x")), OutputRejected(number, (f"issue {number}",))]

    assert TurnStarted(3) == after(*history[:-4]).facts[0]
    [failed] = after(*history).facts
    assert isinstance(failed, RunFailed)
    assert ("output", ("issue 3",)) == (failed.fault.code, failed.fault.issues)


def test_a_failing_model_suspends_and_is_not_asked_again_by_itself() -> None:
    """Trying again is a gateway's business, or a person's; only junk is asked for again, within the repair budget."""
    failed = [opened(), *turn(1), ModelFailed(1, 1, "overloaded", "no luck", True, 0.0)]
    junk = [opened(), *turn(1), ModelFailed(1, 1, "malformed", "junk", True, 0.0)]

    assert Wave((RunSuspended("model", "overloaded", "no luck"),)) == after(*failed)
    assert ModelAsked(1, 2, "auto") == after(*failed, RunSuspended("model"), RunResumed(8, None)).facts[0]
    assert ModelAsked(1, 2, "auto") == after(*junk).facts[0]


def test_after_cancel_nothing_is_started_and_what_was_started_is_in_doubt() -> None:
    """The run ends at once, and names the effects whose result nobody knows."""
    wave = after(*calls("pay", "look"), started(1, 0), InboxReceived(1, Cancel("enough")))

    assert Wave((CallInDoubt(1, 0, 1, "cancelled"), RunCancelled(("r:1.0",), "enough"))) == wave


def test_the_limits_of_the_definition_suspend_before_the_request_that_would_break_them() -> None:
    """The reason is the budget, the detail the axis."""
    history = [*calls("pay"), started(1, 0), done(1, 0)]

    wave = decide(agent(ToolSketch("pay"), limits=Limits(requests=1)), fold(history))
    assert Wave((RunSuspended("budget", "requests"),)) == wave
    wave = decide(agent(ToolSketch("pay"), limits=Limits(tool_calls=0)), fold(history[:-2]))
    assert Wave((RunSuspended("budget", "tool_calls"),)) == wave


def test_nothing_is_decided_about_a_run_at_rest() -> None:
    """Somebody has to speak first."""
    history = [*calls("pay", needs=1), requested(1, 0), RunSuspended("approval")]

    assert AT_REST == decide(agent(ToolSketch("pay")), fold(history))


# --- going on


def goes_on(*history: Fact, max_turns: int = 8, definition: AgentDefinition[str, str] | None = None) -> bool:
    """Whether a resume of that history has anything to do."""
    definition = definition or agent(ToolSketch("pay"), ToolSketch("look"))
    return may_resume(definition, fold(history), max_turns=max_turns, now=0.0, deadline=None)


@pytest.mark.promise("N-05")
def test_a_run_that_waits_still_waits_while_nothing_came() -> None:
    """A resume without news changes nothing; with news it goes on."""
    waiting = [*calls("pay", needs=1), requested(1, 0), RunSuspended("approval")]
    doubted = [*calls("pay"), started(1, 0), CallInDoubt(1, 0, 1, "died"), RunSuspended("in-doubt")]
    steer = InboxReceived(1, Steer(UserMessage("hurry")))

    assert [False, False, True, True] == [
        goes_on(*waiting),
        goes_on(*waiting, steer),
        goes_on(*waiting, approved(1, 0)),
        goes_on(*waiting, approved(1, 0, yes=False)),
    ]
    assert [False, True] == [goes_on(*doubted), goes_on(*doubted, CallResolved(1, 0, True, "paid", (), "ada"))]


def test_a_doubt_that_was_resolved_at_the_last_turn_does_not_hold_the_run_for_ever() -> None:
    """It goes on, to wait for more turns instead."""
    doubted = [
        opened(max_turns=1),
        *calls("pay")[1:],
        started(1, 0),
        CallInDoubt(1, 0, 1, "died"),
        RunSuspended("in-doubt"),
    ]
    resolved = CallResolved(1, 0, True, "paid", (Text("paid"),), "ada")

    assert goes_on(*doubted, resolved, max_turns=2)
    assert Wave((RunSuspended("max_turns"),)) == after(*doubted, resolved, RunResumed(1, None))


def test_another_reason_to_wait_is_told() -> None:
    """When the question is answered and a doubt remains, the run waits for that instead."""
    both = [
        *calls("pay", "look")[:4],
        admitted(1, 0, "pay", needs=1),
        admitted(1, 1, "look"),
        requested(1, 0),
        started(1, 1),
        CallInDoubt(1, 1, 1, "died"),
        RunSuspended("approval"),
        approved(1, 0, yes=False),
    ]

    assert goes_on(*both)
    assert Wave((RunSuspended("in-doubt"),)) == after(*both, RunResumed(8, None))


def test_a_spent_budget_holds_the_run_until_it_is_raised() -> None:
    """With the same limits it still waits."""
    history = [*calls("pay"), started(1, 0), done(1, 0), RunSuspended("budget", "requests")]

    assert not goes_on(*history, definition=agent(ToolSketch("pay"), limits=Limits(requests=1)))
    assert goes_on(*history, definition=agent(ToolSketch("pay"), limits=Limits(requests=2)))


# --- words


def folded(*history: Fact, word: Word, now: float = 0.0) -> tuple[Fact, ...]:
    """The facts that follow from *word* after *history*; folding them does no harm."""
    state = fold(history)
    facts = receive(agent(ToolSketch("pay")), state, 1, word, now=now)
    for fact in facts:
        evolve(state, fact)
    return facts


def waiting(needs: int = 1, expires_at: float | None = None) -> list[Fact]:
    """A call that waits for approval."""
    question = replace(requested(1, 0), expires_at=expires_at)
    return [*calls("pay", needs=needs), question]


@pytest.mark.promise("N-09")
@pytest.mark.case("app-02", "app-05")
@pytest.mark.parametrize(
    ("word", "why"),
    [
        (Approve("r:1.0", digest="0" * 64), "the digest is not that of the call's arguments"),
        (Approve("r:1.1"), "no call 'r:1.1' waits for approval"),
        (Approve("r:1.0", level=1), "approval of level 2 is needed"),
        (Approve("r:1.0"), "approval of level 2 is needed"),
    ],
)
def test_an_approval_that_does_not_fit_approves_nothing(word: Word, why: str) -> None:
    """Other arguments, another call, not enough authority: recorded with the reason, and the call still waits."""
    assert (InboxReceived(1, word, why),) == folded(*waiting(needs=2), word=word)


@pytest.mark.promise("N-09")
def test_an_approval_serves_once() -> None:
    """Who says yes twice approves one call."""
    history = [*waiting(), approved(1, 0)]

    [received] = folded(*history, word=Approve("r:1.0"))
    assert isinstance(received, InboxReceived)
    assert received.refused


@pytest.mark.promise("N-09")
def test_an_approval_that_comes_too_late_is_a_denial() -> None:
    """The call does not run, and the model is told why."""
    [_, decided] = folded(*waiting(expires_at=10.0), word=Approve("r:1.0"), now=10.0)

    assert isinstance(decided, ApprovalDecided)
    assert (False, "the request for approval expired") == (decided.approved, decided.reason)


def test_a_resolution_must_be_what_the_tool_returns_and_about_a_call_in_doubt() -> None:
    """What is not in doubt cannot be resolved, and a late result is only evidence."""
    doubted = [*calls("pay"), started(1, 0), CallInDoubt(1, 0, 1, "died")]

    [_, resolved] = folded(*doubted, word=Resolve("r:1.0", happened=True, output="paid", by="ada"))
    assert CallResolved(1, 0, True, "paid", (Text("paid"),), "ada") == resolved
    assert 1 == len(folded(*doubted[:-1], word=Resolve("r:1.0", happened=True)))
    assert 1 == len(folded(*doubted, word=LateResult("r:1.0", "paid")))


def test_the_digest_that_was_asked_about_is_that_of_the_admitted_call() -> None:
    """What is approved is what runs."""
    call = CallAdmitted(1, 0, "pay", {"cents": 5}, "of these arguments", 1)
    wave = after(*calls("pay")[:4], call)

    [command] = wave.commands
    assert isinstance(command, RequestApproval)
    assert ("of these arguments", call) == (command.request.digest, command.call)
