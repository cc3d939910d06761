"""Workflows: what is tried in which order, what the next round is told, and that nothing finished runs twice."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.harness.ladder import climb
from tests.harness.playing import of
from turnwright import AgentDefinition, Completed, Ports, run_agent
from turnwright.errors import DefinitionError, InvalidValue, RunError
from turnwright.harness import (
    AgentEvent,
    ComposedAgent,
    MemoryEvent,
    Retry,
    Session,
    Step,
    StepContext,
    StepEvent,
    SurfaceEvent,
    TraceRecord,
    Verdict,
    Workflow,
    WorkflowResult,
    create_agent,
    define_workflow,
    reduce,
    script_client,
    step,
)
from turnwright.harness.workflows import Move, following

NO = Verdict(accepted=False, reason="no")


def agent_of(*workflows: Workflow, **options: object) -> ComposedAgent:
    """An agent that has nothing but workflows."""
    return create_agent(model=script_client([]), workflows=workflows, **options)  # type: ignore[arg-type]


async def climbed(steps: Sequence[Step], input: object = "x", **options: object) -> WorkflowResult[object]:
    """How a workflow of *steps* ends."""
    workflow = define_workflow("w", steps, **options)  # type: ignore[arg-type]
    return await agent_of(workflow).run(Session("s"), "w", input)


def told(result: WorkflowResult[object]) -> list[tuple[str, int, bool, str]]:
    """The attempts in short."""
    return [(each.step, each.round, each.accepted, each.reason) for each in result.attempts]


@pytest.mark.promise("A-04")
async def test_the_first_accepted_step_ends_the_cascade() -> None:
    """Steps run in order; each round that ran is listed with its verdict and result; later steps never run."""
    ran: list[str] = []
    result = await climbed(
        [
            step("zettel", run=lambda _: "z", until=lambda r: Verdict(False, "no-emission", f"{r} is empty")),
            step("free-form", run=lambda _: "f", until=lambda r: r == "f"),
            step("monolithic", run=lambda _: ran.append("m")),
        ]
    )

    assert ("f", "free-form", True, []) == (result.result, result.step, result.accepted, ran)
    assert [("zettel", 1, False, "no-emission"), ("free-form", 1, True, "")] == told(result)
    assert ("z", "z is empty") == (result.attempts[0].result, result.attempts[0].detail)


@pytest.mark.promise("A-04")
@pytest.mark.parametrize(
    ("said", "accepted"),
    [
        *((True, True), (1, True), ([], False), ("", False), (None, False), ({"ok": False}, True)),
        *(({"accepted": False, "reason": "r"}, False), (NO, False), (Verdict(accepted=True), True)),
    ],
    ids=str,
)
async def test_only_a_verdict_is_one_and_all_else_is_read_for_its_truth(said: object, accepted: bool) -> None:
    """As a predicate that knows nothing of verdicts would have it."""
    result = await climbed([step("a", run=lambda _: 1, until=lambda _: said)])

    assert accepted is result.accepted


@pytest.mark.promise("A-04")
async def test_conditions_and_checks_may_be_async_and_see_the_context() -> None:
    """A skipped step leaves no attempt."""

    async def until(result: int, context: StepContext[int]) -> bool:
        return result == context.input + 1

    async def when(context: StepContext[int]) -> bool:
        return context.input > 5

    async def run(context: StepContext[int]) -> int:
        return context.input + 1

    skipped = step("big", run=run, when=when)
    result = await climbed([skipped, step("any", run=run, until=until)], 1)

    assert [("any", 1, True, "")] == told(result)
    assert 2 == result.result


@pytest.mark.promise("A-04")
async def test_a_cascade_in_which_nothing_ran_has_no_result() -> None:
    """Every step may be skipped."""
    result = await climbed([step("a", run=lambda _: 1, when=lambda _: False)])

    assert (None, None, False, ()) == (result.result, result.step, result.accepted, result.attempts)


@pytest.mark.promise("A-04")
async def test_a_step_repairs_what_it_was_told() -> None:
    """Each round sees the verdict on the one before, until it is accepted or its rounds are over."""
    seen: list[Verdict | None] = []

    def run(context: StepContext[str]) -> int:
        seen.append(context.feedback)
        return context.round

    def until(result: int) -> Verdict:
        return Verdict(accepted=True) if result == 3 else Verdict(False, "bad", data=[result])

    result = await climbed([step("repair", run=run, until=until, retry=Retry(3))])

    assert [None, Verdict(False, "bad", data=[1]), Verdict(False, "bad", data=[2])] == seen
    assert [("repair", 1, False, "bad"), ("repair", 2, False, "bad"), ("repair", 3, True, "")] == told(result)


@pytest.mark.promise("A-04")
async def test_each_round_has_a_run_id_of_its_own() -> None:
    """An agent that the round runs under it is another run each round, whatever the step is called."""
    ids: list[str] = []

    async def run(context: StepContext[str]) -> str:
        ids.append(context.run_id)
        ports = Ports(script_client(["said"]))
        outcome = await run_agent(AgentDefinition("inner", "Say."), "x", ports, run_id=context.run_id)
        assert isinstance(outcome, Completed)
        return outcome.output

    result = await climbed([step("two words", run=run, until=lambda _: NO, retry=Retry(2))])

    assert "said" == result.result
    assert [f"{result.run_id}:{turn}.0" for turn in (1, 2)] == ids


@pytest.mark.promise("A-04")
async def test_the_gate_objects_as_a_step_would() -> None:
    """It runs after the step accepted, uses up a round, and the next round can tell its objection from the step's."""
    feedback: list[Verdict | None] = []

    def run(context: StepContext[str]) -> int:
        feedback.append(context.feedback)
        return context.round

    steps = [
        step("never", run=lambda _: 0, until=lambda _: NO, retry=Retry(1)),
        step("gated", run=run, until=lambda _: True, retry=Retry(2)),
        step("floor", run=lambda _: "floor"),
    ]
    gated: list[object] = []
    result = await climbed(steps, exit_gate=lambda r, context: gated.append((r, context.input)))

    assert [(1, "x"), (2, "x")] == gated
    assert [None, Verdict(False, "gate-rejected", gate_rejected=True)] == feedback
    assert [False, True, True, False] == [each.gate_rejected for each in result.attempts]
    assert ("floor", True) == (result.result, result.accepted)


@pytest.mark.promise("A-05", "A-04")
async def test_services_are_apart_from_the_input_and_the_runs_win() -> None:
    """The agent's, then the run's, key by key."""
    spy = step("spy", run=lambda context: {"input": context.input, **context.services})
    agent = agent_of(define_workflow("w", [spy]), services={"store": "s", "model": "m"})

    own = await agent.run(Session("s"), "w", "x")
    given_ = await agent.run(Session("s"), "w", "x", services={"model": "n"})

    assert {"input": "x", "store": "s", "model": "m"} == own.result
    assert {"input": "x", "store": "s", "model": "n"} == given_.result


@pytest.mark.promise("A-04", "A-08", "A-09")
async def test_a_workflow_tells_what_it_does() -> None:
    """Steps and verdicts as events and records; what is asked to be remembered is in the result's events."""
    told_live: list[AgentEvent] = []
    records: list[TraceRecord] = []

    def run(context: StepContext[str]) -> str:
        context.remember({"n": context.round})
        context.surface("s1", "line")
        return "r"

    twice = step("a", run=run, until=lambda _: NO, retry=Retry(2))
    workflow = define_workflow("w", [twice, step("b", run=lambda _: 1)])
    agent = agent_of(workflow, trace=records.append)

    result = await agent.run(Session("s"), "w", "x", on_event=told_live.append)

    assert tuple(told_live) == result.events
    verdicts = [each.data for each in of(result.events, StepEvent) if each.data]
    assert {"round": 2, "accepted": False, "reason": "no"} == verdicts[1]
    assert ["a", "a", "a", "a", "b", "b"] == [each.step for each in of(result.events, StepEvent)]
    assert [SurfaceEvent("s1", "line")] * 2 == of(result.events, SurfaceEvent)
    assert {("workflow", "step:start"), ("workflow", "step:verdict")} == {(each.phase, each.name) for each in records}
    session = Session("s")
    for event in result.events:
        session = reduce(session, event)
    assert {"n": 2} == session.memory


@pytest.mark.promise("A-04")
@pytest.mark.promise("A-04")
async def test_who_watches_a_workflow_changes_nothing() -> None:
    """What it raises is warned of; no round counts as failed for it, and none runs again."""
    ran: list[int] = []

    def watch(event: AgentEvent) -> None:
        raise OSError(event.type)

    agent = agent_of(define_workflow("w", [step("pay", run=lambda context: ran.append(context.round) or "paid")]))
    with pytest.warns(RuntimeWarning, match="on_event failed: OSError: step"):
        result = await agent.run(Session("s"), "w", "x", on_event=watch)

    assert ("paid", [1]) == (result.result, ran)
    assert 2 == len(of(result.events, StepEvent))


@pytest.mark.case("wfl-06")
async def test_what_a_step_raises_is_raised() -> None:
    """The caller gets the very error, whatever its class looks like, and no later step runs."""

    class OperationalError(Exception):
        retryable = True

    error = OperationalError("database is locked")

    def run(_: StepContext[str]) -> str:
        raise error

    ran: list[int] = []
    with pytest.raises(OperationalError) as caught:
        await climbed([step("a", run=run), step("b", run=lambda _: ran.append(1))])

    assert (error, []) == (caught.value, ran)


async def test_results_may_be_anything_where_nothing_is_kept() -> None:
    """In one process a result is the object itself; the input must have a JSON form in any case."""
    thing = object()
    result = await climbed([step("a", run=lambda _: thing)])

    assert thing is result.result
    with pytest.raises(InvalidValue):
        await climbed([step("a", run=lambda _: 1)], object())


@pytest.mark.parametrize("steps", [[], [step("a", run=len), step("a", run=len)]], ids=["none", "one name twice"])
def test_a_workflow_that_cannot_work_is_refused(steps: list[Step]) -> None:
    """Where it is declared, by name."""
    with pytest.raises(DefinitionError, match="workflow 'w'"):
        define_workflow("w", steps)


async def test_an_unknown_workflow_is_named() -> None:
    """With those that there are."""
    with pytest.raises(DefinitionError, match="no workflow 'v'; it has w"):
        await agent_of(define_workflow("w", [step("a", run=len)])).run(Session("s"), "v", "x")


# --- what comes next, from the records alone


@pytest.mark.promise("A-04")
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_each_step_runs_in_order_and_at_most_its_rounds(rounds: list[int], data: st.DataObject) -> None:
    """Whatever the verdicts are: rounds count from 1 without a gap, and the cascade ends."""
    records: list[dict[str, object]] = []
    while (move := following(rounds, records)) is not None:  # type: ignore[arg-type]
        before = records[-1] if records else None
        assert 1 <= move.round <= rounds[move.index]
        if before is not None and before["index"] == move.index:
            assert before["round"] + 1 == move.round  # type: ignore[operator]
            assert before["verdict"] == move.feedback
        else:
            assert (1, None) == (move.round, move.feedback)
            assert move.index == (0 if before is None else int(str(before["index"])) + 1)
        kind = data.draw(st.sampled_from(["accepted", "rejected", "skipped", "error"]))
        verdict = {"accepted": kind == "accepted", "verdict": {"n": len(records)}}
        told_ = verdict if kind in ("accepted", "rejected") else {kind: True}
        records.append({"index": move.index, "round": move.round, **told_})
    assert records
    assert following(rounds, []) == Move(0, 1, None)


# --- over the death of a process


def killed(store: Path, log: Path, cut: str, replay: str) -> None:
    """Let a process climb until it kills itself within *cut*, and let the lease that it held run out."""
    command = [sys.executable, "-m", "tests.harness.ladder", str(store), str(log), cut, replay]
    done = subprocess.run(command, capture_output=True, timeout=50, check=False)
    assert -9 == done.returncode, done.stderr.decode()
    with closing(sqlite3.connect(store, isolation_level=None)) as meddle:
        meddle.execute("UPDATE runs SET expires = 0")


@pytest.mark.promise("A-04")
@pytest.mark.case("wfl-01")
async def test_a_finished_round_is_not_run_again(tmp_path: Path) -> None:
    """Killed within a later round, it is taken up: nothing finished runs again, and what it was told is known."""
    store, log = tmp_path / "runs.db", tmp_path / "log"
    killed(store, log, "draft 2", "safe")

    result = await climb(store, log, replay="safe")

    assert ["send", "draft 1", "draft 2", "draft 2", "finish"] == log.read_text().split("\n")[:-1]
    assert ["goes-on", "bad", "still bad", ""] == [each.reason for each in result.attempts]
    assert [{"sent": "ann"}, "no", "after ['x']", "done"] == [each.result for each in result.attempts]
    assert [{"sent": True}] == [each.patch for each in of(result.events, MemoryEvent)]
    again = await climb(store, log, replay="safe")
    assert (result.attempts, 5) == (again.attempts, log.read_text().count("\n"))


@pytest.mark.promise("A-04")
async def test_a_round_that_was_cut_and_may_not_run_again_is_in_doubt(tmp_path: Path) -> None:
    """The error names the step and the remedy; nothing runs."""
    store, log = tmp_path / "runs.db", tmp_path / "log"
    killed(store, log, "draft 1", "never")

    with pytest.raises(RunError, match=r"within step 'draft'.*replay='safe'"):
        await climb(store, log)

    assert "send\ndraft 1\n" == log.read_text()


async def test_a_typed_result_comes_back_as_its_type(tmp_path: Path) -> None:
    """From the store as from the step."""
    from turnwright_adapters.sqlite import SqliteState

    workflow = define_workflow("w", [step("a", run=lambda _: date(2026, 5, 1))], result=date)
    results = []
    for _ in range(2):
        async with SqliteState(tmp_path / "runs.db") as state:
            results.append(await agent_of(workflow, state=state).run(Session("s"), workflow, "x", run_id="w"))

    assert [date(2026, 5, 1)] * 2 == [each.result for each in results]
