"""The output of a run: found in the answer, held against its type and the definition's checks, repaired or failed."""

from __future__ import annotations

import asyncio

import pytest
from attrs import frozen
from hypothesis import given, strategies as st

from tests.driver.virtual import run
from turnwright import (
    AgentDefinition,
    Completed,
    Failed,
    Issue,
    MemoryState,
    ModelError,
    Outcome,
    Ports,
    RunCall,
    Suspended,
    resume_agent,
    run_agent,
    stream_agent,
    tool,
)
from turnwright.canonical import encode, plain
from turnwright.messages import AssistantMessage
from turnwright.testing import Reply, ScriptedModel, call, text


@frozen
class Verdict:
    result: str
    score: int = 0


def judge(**options: object) -> AgentDefinition[str, Verdict]:
    """An agent that answers with a Verdict."""
    return AgentDefinition(name="judge", instruction="Judge.", output=Verdict, **options)  # type: ignore[arg-type]


def numbers(**options: object) -> AgentDefinition[str, int]:
    """An agent that answers with a whole number."""
    return AgentDefinition(name="counter", instruction="Count.", output=int, **options)  # type: ignore[arg-type]


async def output(agent: AgentDefinition[str, object], *replies: Reply) -> object:
    """The output of a run in which the model gives *replies*."""
    outcome = await run_agent(agent, "go", Ports(model=ScriptedModel(replies)))
    assert isinstance(outcome, Completed), outcome
    return outcome.output


@pytest.mark.promise("N-02")
@pytest.mark.case("out-01", "out-02")
@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ('{"result":"pass"}', Verdict("pass")),
        ('```json\n{"result":"pass"}\n```\nThis matches {"type":"object"}', Verdict("pass")),
        (r'Result: {"result":"a } b","score":3} done', Verdict("a } b", 3)),
        (r'Result: {"result":"\"{"} done', Verdict('"{')),
        ('  \n{"result":"pass","score":"7"}\n', Verdict("pass", 7)),
        ('{"result":"pass","score":1.0}', Verdict("pass", 1)),
    ],
)
async def test_an_output_is_found_where_the_model_put_it(answer: str, found: Verdict) -> None:
    """Fences, prose and braces in strings do not hide the value, and it comes as its type."""
    assert found == await output(judge(), text(answer))  # type: ignore[arg-type]


@pytest.mark.promise("N-02")
@pytest.mark.case("out-04")
@pytest.mark.parametrize(("answer", "found"), [('{"response":20}', 20), ("20", 20), ('{"response":1.0}', 1)])
async def test_a_value_that_is_no_object_comes_wrapped_or_bare(answer: str, found: int) -> None:
    """Providers want an object at the root; a model that gives the bare value is understood too."""
    assert found == await output(numbers(), text(answer))  # type: ignore[arg-type]


@pytest.mark.promise("N-02")
@pytest.mark.case("out-04")
@pytest.mark.parametrize(
    "answer", ['{"response":true}', '{"response":1.5}', '{"response":null}', "many", "", "{", "[]"]
)
async def test_what_is_no_output_goes_back_with_its_issues(answer: str) -> None:
    """The model is told what is wrong and may answer again."""
    model = ScriptedModel([text(answer), text("3")])

    outcome = await run_agent(numbers(), "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert (3, 2) == (outcome.output, len(model.requests))
    assert model.requests[1].messages[-1].text.startswith("That answer cannot be accepted:\n- ")


@pytest.mark.promise("N-02")
@pytest.mark.parametrize("repairs", [0, 1, 2, 5])
async def test_repairs_are_bounded_and_end_in_a_failure_with_issues(repairs: int) -> None:
    """After the last repair the run fails, typed, with what was wrong at the end."""
    model = ScriptedModel([text('{"result":3}')] * 20)

    outcome = await run_agent(judge(repairs=repairs), "go", Ports(model=model), max_turns=20)

    assert isinstance(outcome, Failed)
    assert ("output", repairs + 1) == (outcome.error.code, len(model.requests))
    assert outcome.error.issues[0].startswith("result: ")


@pytest.mark.promise("N-02")
async def test_the_turns_of_a_run_bound_its_repairs_too() -> None:
    """A run that has no turn left waits for one; with it, the repair goes on where it was."""
    world = Ports(model=ScriptedModel([text("?"), text("?"), text("7")]))

    stopped = await run_agent(numbers(), "go", world, run_id="r1", max_turns=2)
    ended = await resume_agent(numbers(), "r1", world, max_turns=3)

    assert isinstance(stopped, Suspended)
    assert "max_turns" == stopped.reason
    assert isinstance(ended, Completed)
    assert 7 == ended.output


@pytest.mark.promise("N-02")
@pytest.mark.case("loo-07")
async def test_an_empty_last_answer_makes_no_earlier_text_the_output() -> None:
    """What stood beside a call is no output; an empty answer is asked for again, within bounds."""

    @tool
    async def f() -> str:
        """Look."""
        return "seen"

    agent = AgentDefinition(name="looker", instruction="Look.", tools=[f])
    beside = AssistantMessage((*text("let me check").parts, call("f")), "tool_calls")

    once = await run_agent(agent, "go", Ports(model=ScriptedModel([beside, text(""), text("found")])))
    never = await run_agent(agent, "go", Ports(model=ScriptedModel([beside, *[text(" \n")] * 9])))

    assert isinstance(once, Completed)
    assert "found" == once.output
    assert isinstance(never, Failed)
    assert ("output", ("the answer was empty",)) == (never.error.code, never.error.issues)


@pytest.mark.promise("N-02")
async def test_an_answer_cut_at_its_limit_is_no_output() -> None:
    """Half an answer is not taken for a whole one."""
    outcome = await output(
        AgentDefinition(name="talker", instruction="Talk."),
        text("half an ans", stop_reason="length"),
        text("whole"),
    )

    assert "whole" == outcome


@pytest.mark.promise("N-02")
@pytest.mark.case("out-05")
async def test_a_check_is_called_once_with_the_complete_value() -> None:
    """However the answer is streamed and however often its outcome is read, the check ran once, on the whole."""
    seen: list[Verdict] = []
    agent = judge(check_output=[lambda value, _: seen.append(value)])
    world = Ports(model=ScriptedModel([text('{"result":"pass","score":20}')], chunk=1))

    async for _ in stream_agent(agent, "go", world, run_id="r1"):
        pass
    for _ in range(2):
        again = await resume_agent(agent, "r1", world)
        assert isinstance(again, Completed)
        assert Verdict("pass", 20) == again.output

    assert [Verdict("pass", 20)] == seen


@pytest.mark.promise("N-02")
@pytest.mark.parametrize(
    "objection",
    ["too low", Issue("score", "too low"), ["too low"], ["too low", Issue("result", "which?")], ("too low",)],
)
async def test_a_check_objects_in_one_word_or_many(objection: object) -> None:
    """Whatever form it takes, the model reads it."""

    def check(value: Verdict, _: object) -> object:
        return objection if value.score < 5 else None

    model = ScriptedModel([text('{"result":"a","score":1}'), text('{"result":"a","score":9}')])
    outcome = await run_agent(judge(check_output=[check]), "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert "too low" in model.requests[1].messages[-1].text


@pytest.mark.promise("N-02")
async def test_a_check_may_raise_a_value_error_to_object() -> None:
    """A validator written for other uses serves; what else it raises fails the run as the definition's own fault."""

    async def strict(value: Verdict, _: object) -> None:
        await asyncio.sleep(0)
        if value.score < 5:
            message = "too low"
            raise ValueError(message)

    def broken(value: Verdict, _: object) -> None:
        message = "no such thing"
        raise KeyError(message)

    low, high = text('{"result":"a","score":1}'), text('{"result":"a","score":9}')

    assert Verdict("a", 9) == await output(judge(check_output=[strict]), low, high)  # type: ignore[arg-type]
    outcome = await run_agent(judge(check_output=[broken]), "go", Ports(model=ScriptedModel([high])))
    assert isinstance(outcome, Failed)
    assert ("check_output", True) == (outcome.error.code, "no such thing" in outcome.error.message)


@pytest.mark.promise("N-02")
async def test_every_check_has_its_say() -> None:
    """All objections go back together, so that one repair may answer them all."""
    agent = judge(check_output=[lambda *_: "one", lambda *_: None, lambda *_: ["two", "three"]], repairs=0)

    outcome = await run_agent(agent, "go", Ports(model=ScriptedModel([text('{"result":"a"}')])))

    assert isinstance(outcome, Failed)
    assert ("one", "two", "three") == outcome.error.issues


@pytest.mark.promise("N-02")
@pytest.mark.parametrize("odd", [True, False, 0, 7, [7], {"a": 1}, b"no"])
async def test_a_check_that_gives_no_verdict_is_the_definitions_fault(odd: object) -> None:
    """What is neither silence nor an objection in words fails the run by name, and accepts nothing."""
    agent = judge(check_output=[lambda *_: odd])

    outcome = await run_agent(agent, "go", Ports(model=ScriptedModel([text('{"result":"a"}')] * 9)))

    assert isinstance(outcome, Failed)
    assert "check_output" == outcome.error.code


@pytest.mark.promise("N-02")
async def test_an_empty_list_of_objections_is_none() -> None:
    """A check that collects its objections and finds none has none."""
    assert Verdict("a") == await output(judge(check_output=[lambda *_: []]), text('{"result":"a"}'))  # type: ignore[arg-type]


@pytest.mark.promise("N-02")
async def test_a_class_that_refuses_to_be_made_is_an_issue() -> None:
    """What only the class itself can check is told to the model with its words."""

    @frozen
    class Even:
        n: int

        def __attrs_post_init__(self) -> None:
            if self.n % 2:
                message = "n must be even"
                raise ValueError(message)

    agent = AgentDefinition(name="even", instruction="Be even.", output=Even)
    model = ScriptedModel([text('{"n":3}'), text('{"n":4}')])
    outcome = await run_agent(agent, "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert Even(4) == outcome.output
    assert "n must be even" in model.requests[1].messages[-1].text


@pytest.mark.promise("N-02", "N-05")
async def test_an_output_is_the_same_in_another_process() -> None:
    """What was completed here is read there, typed."""
    state = MemoryState()
    first = await run_agent(
        judge(), "go", Ports(model=ScriptedModel([text('{"result":"a"}')]), state=state), run_id="r1"
    )

    again: Outcome[Verdict] = await resume_agent(judge(), "r1", Ports(model=ScriptedModel([]), state=state.reopen()))

    assert isinstance(first, Completed)
    assert isinstance(again, Completed)
    assert (Verdict("a"), first.output, first.evidence_head) == (again.output, again.output, again.evidence_head)


@pytest.mark.promise("N-02")
async def test_a_malformed_answer_is_asked_for_again_within_the_repairs() -> None:
    """A model port that says that the answer was junk costs a repair, not the run; too often, and it suspends."""
    junk = ModelError("malformed", "no JSON")
    agent = numbers(repairs=1)

    class Sometimes(ScriptedModel):
        bad = 1

        async def complete(self, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
            if request.attempt <= self.bad:
                raise junk
            return await super().complete(request)

    model = Sometimes([text("3")])
    once = await run_agent(agent, "go", Ports(model=model))
    model.bad = 9
    often = await run_agent(agent, "go", Ports(model=model))

    assert isinstance(once, Completed)
    assert isinstance(often, Suspended)
    assert ("model", "malformed", 2) == (often.reason, often.detail, often.usage.requests)


@given(st.recursive(st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(), st.lists, max_leaves=8))
def test_any_json_value_is_an_output_of_a_schema_that_allows_it(value: object) -> None:
    """What a model writes as its output comes out as the same value, falsy or not, in any form that JSON has."""
    agent = AgentDefinition(
        name="any", instruction="Give.", output={"type": ["null", "boolean", "integer", "string", "array"]}
    )
    answer = encode(plain({"response": value})).decode()

    outcome = run(run_agent(agent, "go", Ports(model=ScriptedModel([text(answer)]))))

    assert isinstance(outcome, Completed)
    assert value == outcome.output


@pytest.mark.promise("N-02")
async def test_a_check_sees_what_its_tools_gave() -> None:
    """Arguments, outputs and errors of every call stand before the check as JSON."""
    views: list[RunCall] = []

    @tool
    async def half(n: int) -> dict[str, float]:
        """Halve."""
        if n < 0:
            message = "negative"
            raise ValueError(message)
        return {"half": n / 2}

    agent = AgentDefinition(
        name="halver",
        instruction="Halve.",
        tools=[half],
        check_output=[lambda _, calls: views.extend(calls)],
    )
    await output(agent, [call("half", n=3), call("half", n=-1), call("third")], text("done"))

    assert [("half", {"n": 3}, {"half": 1.5}, False), ("half", {"n": -1}, "negative", True)] == [
        (each.name, each.arguments, each.output, each.is_error) for each in views[:2]
    ]
    assert ("third", "{}", True) == (views[2].name, views[2].arguments, views[2].is_error)
