"""A run from its input to its outcome: the turns, the typed end, and going on in another process."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest
from attrs import evolve as replace, frozen

from turnwright import (
    AgentDefinition,
    Cancelled,
    Completed,
    Failed,
    InvalidValue,
    Limits,
    MemoryState,
    ModelError,
    Outcome,
    PortError,
    Ports,
    RunBusy,
    RunMismatch,
    Suspended,
    TurnView,
    UnknownRun,
    replay_agent,
    resume_agent,
    run_agent,
    run_agent_sync,
    tool,
)
from turnwright.evidence import Entry
from turnwright.inbox import Cancel
from turnwright.messages import AssistantMessage, ToolMessage, UserMessage
from turnwright.ports import Append, Lease, ModelRequest
from turnwright.testing import ScriptedModel, call, fails, text


@tool(replay="safe")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(replay="safe")
async def subtract(a: int, b: int) -> int:
    """Subtract one number from another."""
    return a - b


ADDER = AgentDefinition(name="adder", instruction="Add.", tools=[add])
TALKER = AgentDefinition(name="talker", instruction="Talk.")


@pytest.mark.promise("N-01", "N-05", "N-08", "N-09")
def test_the_first_example_runs_as_written() -> None:
    """A tool runs, a payment waits for its approval and is made once, and an ended run gives its outcome again."""
    paid: list[int] = []

    @tool(approval="required")  # replay="never" is the default
    async def pay(cents: int) -> str:
        """Pay out."""
        paid.append(cents)
        return "paid"

    adder = AgentDefinition(name="adder", instruction="Add.", tools=[add], output=str)
    out = asyncio.run(run_agent(adder, "1+2?", Ports(model=ScriptedModel([call("add", a=1, b=2), text("3")]))))
    assert isinstance(out, Completed)
    assert ("3", 2) == (out.output, out.usage.requests)

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay], output=str)
    ports = Ports(model=ScriptedModel([call("pay", cents=500), text("done")]))
    first = asyncio.run(run_agent(payer, "refund 5", ports, run_id="r1"))
    assert isinstance(first, Suspended)
    assert ("approval", []) == (first.reason, paid)
    second = asyncio.run(resume_agent(payer, "r1", ports, decisions={first.pending[0].effect_id: "approve"}))
    assert isinstance(second, Completed)
    assert [500] == paid
    third = asyncio.run(resume_agent(payer, "r1", ports))
    assert isinstance(third, Completed)
    assert (second.output, [500]) == (third.output, paid)


@pytest.mark.promise("N-01")
async def test_a_run_takes_eight_turns_unless_told_otherwise() -> None:
    """A model that never stops calling is asked eight times, and the ninth turn waits for somebody to allow it."""
    model = ScriptedModel([call("add", a=1, b=1)] * 20)

    outcome = await run_agent(ADDER, "go", Ports(model=model))

    assert isinstance(outcome, Suspended)
    assert ("max_turns", 8, 8) == (outcome.reason, len(model.requests), outcome.usage.tool_calls)


@pytest.mark.promise("N-01", "N-05")
@pytest.mark.case("loo-03")
async def test_the_last_turn_allowed_is_a_whole_one() -> None:
    """With two turns, exactly two model calls are made and the tools of both run; a raised limit goes on from there."""
    model = ScriptedModel([call("add", a=1, b=1), call("add", a=2, b=2), text("done")])
    ports = Ports(model=model)

    stopped = await run_agent(ADDER, "go", ports, run_id="r1", max_turns=2)

    assert isinstance(stopped, Suspended)
    assert ("max_turns", 2) == (stopped.reason, len(model.requests))
    roles = ["user", "assistant", "tool", "assistant", "tool"]
    assert roles == [message.role for message in stopped.transcript]

    still = await resume_agent(ADDER, "r1", ports)
    assert isinstance(still, Suspended)
    assert ("max_turns", 2) == (still.reason, len(model.requests))

    ended = await resume_agent(ADDER, "r1", ports, max_turns=3)
    assert isinstance(ended, Completed)
    assert ("done", 3) == (ended.output, len(model.requests))


@pytest.mark.promise("N-01")
@pytest.mark.parametrize("turns", [0, -1, True, 1.5, "3", 10**30])
async def test_a_run_needs_a_whole_number_of_turns(turns: object) -> None:
    """What is no number of turns is refused before anything is asked."""
    model = ScriptedModel([text("hi")])

    with pytest.raises((ValueError, TypeError), match="max_turns"):
        await run_agent(TALKER, "hi", Ports(model=model), max_turns=turns)  # type: ignore[arg-type]
    assert [] == model.requests


@pytest.mark.parametrize("turns", [0, -1, True, 1.5, "3"])
async def test_a_resume_needs_a_whole_number_of_turns(turns: object) -> None:
    """A limit that is no number is refused, and the run is left as it was."""
    ports = Ports(model=ScriptedModel([text("hi")]))
    await run_agent(TALKER, "hi", ports, run_id="r1")

    with pytest.raises((ValueError, TypeError), match="max_turns"):
        await resume_agent(TALKER, "r1", ports, max_turns=turns)  # type: ignore[arg-type]


@pytest.mark.parametrize("deadline", [float("nan"), float("inf"), -1.0, True, "soon"])
async def test_a_deadline_is_a_moment(deadline: object) -> None:
    """What is no moment in seconds since 1970 is refused at once, on a start and on a resume."""
    ports = Ports(model=ScriptedModel([text("hi")]))
    await run_agent(TALKER, "hi", ports, run_id="r1")

    with pytest.raises((ValueError, TypeError), match="deadline"):
        await run_agent(TALKER, "hi", ports, deadline=deadline)  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError), match="deadline"):
        await resume_agent(TALKER, "r1", ports, deadline=deadline)  # type: ignore[arg-type]


@pytest.mark.parametrize("run_id", ["", " ", "a b", "a\nb", "a\x00", "x" * 129, "a\u202eb", "\ud800", 7])
async def test_a_run_id_is_one_printable_word(run_id: object) -> None:
    """An id that could break a line, hide or grow without bound is refused, on a start and on a resume."""
    ports = Ports(model=ScriptedModel([text("hi")]))

    with pytest.raises((ValueError, TypeError), match="run id"):
        await run_agent(TALKER, "hi", ports, run_id=run_id)  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError), match="run id"):
        await resume_agent(TALKER, run_id, ports)  # type: ignore[arg-type]


@pytest.mark.parametrize("run_id", ["x", "x" * 128, "tenant/42:a.b-c_d", "Grüße", "走"])
async def test_a_run_id_may_use_any_script(run_id: str) -> None:
    """Up to 128 printable characters of any script make an id."""
    outcome = await run_agent(TALKER, "hi", Ports(model=ScriptedModel([text("hi")])), run_id=run_id)

    assert run_id == outcome.run_id


async def test_a_run_without_id_is_given_one() -> None:
    """Two runs without id are two runs."""
    ports = Ports(model=ScriptedModel([text("hi")]))

    one, other = await run_agent(TALKER, "hi", ports), await run_agent(TALKER, "hi", ports)

    assert one.run_id != other.run_id


@pytest.mark.promise("N-01")
def test_the_core_imports_no_vendor_and_no_adapter() -> None:
    """A fresh interpreter that imported turnwright has loaded no client of a model, no HTTP and no database."""
    code = "import sys, json, turnwright; print(json.dumps(sorted(sys.modules)))"

    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))

    vendors = {"openai", "anthropic", "google", "mistralai", "xllamacpp", "httpx", "structlog", "jsonpatch", "sqlite3"}
    assert set() == loaded & (vendors | {"turnwright_adapters", "turnwright_contracts", "cattrs", "mcp"})


@pytest.mark.promise("N-02")
async def test_input_is_validated_before_anything_else() -> None:
    """A bad input asks no model and leaves no run behind; its issues name the place."""

    @frozen
    class Order:
        id: int

    agent = AgentDefinition(name="orders", instruction="Look.", input=Order)
    model, state = ScriptedModel([text("hi")]), MemoryState()

    with pytest.raises(InvalidValue) as refused:
        await run_agent(agent, Order(id="x"), Ports(model=model, state=state), run_id="r1")  # type: ignore[arg-type]
    assert (["id"], []) == ([issue.path for issue in refused.value.issues], model.requests)
    with pytest.raises(UnknownRun):
        await resume_agent(agent, "r1", Ports(model=model, state=state))


@pytest.mark.promise("N-02")
async def test_a_typed_input_reaches_the_model_as_json_or_as_rendered() -> None:
    """Without `render` an input that is no text is shown as JSON; with it, as it says."""

    @frozen
    class Order:
        id: int

    model = ScriptedModel([text("hi")])
    plain = AgentDefinition(name="orders", instruction="Look.", input=Order)
    rendered = AgentDefinition(name="orders", instruction="Look.", input=Order, render=lambda order: f"#{order.id}")

    await run_agent(plain, Order(7), Ports(model=model))
    await run_agent(rendered, Order(7), Ports(model=model))

    assert ['{"id":7}', "#7"] == [request.messages[0].text for request in model.requests]


@pytest.mark.promise("N-02")
@pytest.mark.parametrize("choice", ["auto", "required", "none", "add"])
async def test_a_tool_choice_steers_every_turn(choice: str) -> None:
    """What the definition chooses, each request says."""
    model = ScriptedModel([call("add", a=1, b=1), text("2")])

    await run_agent(replace(ADDER, tool_choice=choice), "go", Ports(model=model))

    assert [choice, choice] == [request.tool_choice for request in model.requests]


@pytest.mark.promise("N-02")
async def test_a_function_chooses_anew_on_each_turn() -> None:
    """It sees the turn, the transcript and the calls so far."""
    seen: list[tuple[int, int, list[str]]] = []

    def choose(view: TurnView) -> str:
        seen.append((view.turn, len(view.transcript), [each.name for each in view.calls]))
        return "required" if view.turn == 1 else "none"

    model = ScriptedModel([call("add", a=1, b=1), text("2")])
    outcome = await run_agent(replace(ADDER, tool_choice=choose), "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert ["required", "none"] == [request.tool_choice for request in model.requests]
    assert [(1, 1, []), (2, 3, ["add"])] == seen


@pytest.mark.promise("N-02")
@pytest.mark.parametrize("bad", ["subtract", "", 3, None, ["auto"]])
async def test_a_function_that_chooses_what_is_not_there_fails_the_run(bad: object) -> None:
    """The run ends with a typed failure that names the choice, and the model is not asked."""
    model = ScriptedModel([text("hi")])

    outcome = await run_agent(replace(ADDER, tool_choice=lambda _: bad), "go", Ports(model=model))  # type: ignore[arg-type,return-value]

    assert isinstance(outcome, Failed)
    assert ("tool_choice", []) == (outcome.error.code, model.requests)


@pytest.mark.promise("N-02")
async def test_a_function_that_raises_while_choosing_fails_the_run() -> None:
    """Its error is told; nothing escapes."""

    def choose(_: TurnView) -> str:
        message = "no idea"
        raise LookupError(message)

    outcome = await run_agent(replace(ADDER, tool_choice=choose), "go", Ports(model=ScriptedModel([text("hi")])))

    assert isinstance(outcome, Failed)
    assert ("tool_choice", True) == (outcome.error.code, "no idea" in outcome.error.message)


@pytest.mark.promise("N-05")
async def test_a_failing_model_suspends_and_a_resume_asks_again() -> None:
    """A definite failure of the model is an outcome with its kind; the next resume makes the next attempt."""
    error = ModelError("overloaded", "try later", retryable=True)
    ports = Ports(model=ScriptedModel([fails(error, then=text("hi"))]))

    stopped = await run_agent(TALKER, "hello", ports, run_id="r1")

    assert isinstance(stopped, Suspended)
    assert ("model", "overloaded", "try later") == (stopped.reason, stopped.detail, stopped.message)
    ended = await resume_agent(TALKER, "r1", ports)
    assert isinstance(ended, Completed)
    assert ("hi", 2) == (ended.output, ended.usage.requests)


@pytest.mark.promise("N-05")
@pytest.mark.case("app-11")
async def test_what_ran_before_a_failure_is_not_run_again() -> None:
    """An approved call runs, the next model call fails; a resume goes straight to the model with the stored result."""
    entered: list[int] = []

    @tool(approval="required")
    async def pay(cents: int) -> str:
        """Pay."""
        entered.append(cents)
        return "paid"

    agent = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    failing = fails(ModelError("internal", "500"), then=text("done"))
    model = ScriptedModel([call("pay", cents=5), failing])
    ports = Ports(model=model)
    first = await run_agent(agent, "go", ports, run_id="r1")
    assert isinstance(first, Suspended)

    broken = await resume_agent(agent, "r1", ports, decisions={first.pending[0].effect_id: "approve"})
    ended = await resume_agent(agent, "r1", ports)

    assert isinstance(broken, Suspended)
    assert isinstance(ended, Completed)
    assert ("model", "done", [5]) == (broken.reason, ended.output, entered)
    assert [1, 2, 2] == [request.turn for request in model.requests]


@pytest.mark.promise("N-05")
async def test_another_definition_waits_for_the_right_one() -> None:
    """A run opened under other contracts suspends as `definition`, asks nobody, and goes on under its own."""
    model = ScriptedModel([call("add", a=1, b=1), text("2")])
    ports = Ports(model=model)
    await run_agent(ADDER, "go", ports, run_id="r1", max_turns=1)
    other = replace(ADDER, instruction="Subtract.")

    waiting = await resume_agent(other, "r1", ports, max_turns=2)
    again = await resume_agent(other, "r1", ports, max_turns=2)
    ended = await resume_agent(ADDER, "r1", ports, max_turns=2)

    assert isinstance(waiting, Suspended)
    assert isinstance(again, Suspended)
    assert ("definition", "definition") == (waiting.reason, again.reason)
    assert isinstance(ended, Completed)
    assert ("2", 2) == (ended.output, len(model.requests))


@pytest.mark.promise("N-05")
async def test_a_run_goes_on_in_another_process() -> None:
    """A fresh engine over the reopened store, with a model that knows nothing, continues from the last answer."""
    state = MemoryState()
    first = await run_agent(
        ADDER, "go", Ports(model=ScriptedModel([call("add", a=1, b=1)]), state=state), run_id="r1", max_turns=1
    )
    model = ScriptedModel([fails(AssertionError("asked twice"), times=9, then=text("")), text("2")])

    ended = await resume_agent(ADDER, "r1", Ports(model=model, state=state.reopen()), max_turns=2)

    assert isinstance(first, Suspended)
    assert isinstance(ended, Completed)
    assert ("2", [2]) == (ended.output, [request.turn for request in model.requests])


async def test_starting_again_continues_or_gives_the_outcome() -> None:
    """The same id and input never start twice: an ended run gives what it gave, without asking anybody."""
    model = ScriptedModel([text("hi")])
    ports = Ports(model=model)

    first = await run_agent(TALKER, "hello", ports, run_id="r1")
    second = await run_agent(TALKER, "hello", ports, run_id="r1")

    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert (first.output, first.evidence_head, 1) == (second.output, second.evidence_head, len(model.requests))


async def test_another_input_under_a_known_id_is_refused() -> None:
    """The id is taken: the caller is told, and the run stays as it is."""
    ports = Ports(model=ScriptedModel([text("hi")]))
    await run_agent(TALKER, "hello", ports, run_id="r1")

    with pytest.raises(RunMismatch, match="r1"):
        await run_agent(TALKER, "good bye", ports, run_id="r1")


@pytest.mark.case("app-12")
async def test_an_unknown_run_is_told_at_once() -> None:
    """Resuming what was never opened is an error, also with decisions in hand, and opens nothing."""
    ports = Ports(model=ScriptedModel([text("hi")]))

    for _ in range(2):
        with pytest.raises(UnknownRun, match="no-such-id"):
            await resume_agent(TALKER, "no-such-id", ports, decisions={"no-such-id:1.0": "approve"})


@pytest.mark.promise("N-10")
@pytest.mark.case("app-10", "loo-10")
async def test_of_two_resumes_one_wins_and_the_other_is_told_busy() -> None:
    """The approved effect happens once; whoever was busy finds the stored outcome afterwards."""
    paid: list[int] = []

    @tool(approval="required")
    async def pay(cents: int) -> str:
        """Pay."""
        await asyncio.sleep(0)
        paid.append(cents)
        return "paid"

    agent = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    ports = Ports(model=ScriptedModel([call("pay", cents=5), text("done")]))
    first = await run_agent(agent, "go", ports, run_id="r1")
    assert isinstance(first, Suspended)
    yes = {first.pending[0].effect_id: "approve"}

    got = await asyncio.gather(
        *[resume_agent(agent, "r1", ports, decisions=yes) for _ in range(8)], return_exceptions=True
    )

    won = [each for each in got if isinstance(each, Completed)]
    busy = [each for each in got if isinstance(each, RunBusy)]
    assert (1, 7, [5]) == (len(won), len(busy), paid)
    assert all([0 < each.retry_after <= 30 for each in busy])
    third = await resume_agent(agent, "r1", ports, decisions=yes)
    assert isinstance(third, Completed)
    assert ("done", [5]) == (third.output, paid)


@pytest.mark.promise("N-10")
async def test_two_starts_of_one_run_ask_the_model_once() -> None:
    """Of two that start the same id together, one runs it; the other is told `busy` and changes nothing."""
    model = ScriptedModel([text("hi")])
    ports = Ports(model=model)

    got = await asyncio.gather(
        *[run_agent(TALKER, "hello", ports, run_id="r1") for _ in range(2)], return_exceptions=True
    )

    assert {Completed, RunBusy} == {type(each) for each in got}
    assert 1 == len(model.requests)


async def test_the_word_cancel_ends_a_waiting_run() -> None:
    """A run that waits and is told `cancel` ends as cancelled, and stays so."""
    ports = Ports(model=ScriptedModel([call("add", a=1, b=1), text("2")]))
    await run_agent(ADDER, "go", ports, run_id="r1", max_turns=1)
    await ports.state.post("r1", Cancel("enough"))

    ended = await resume_agent(ADDER, "r1", ports)
    again = await resume_agent(ADDER, "r1", ports, max_turns=9)

    assert isinstance(ended, Cancelled)
    assert isinstance(again, Cancelled)
    assert ("enough", (), "enough") == (ended.reason, ended.in_doubt, again.reason)


@pytest.mark.promise("N-01")
@pytest.mark.parametrize("stop", ["refusal", "content_filter"])
async def test_a_model_that_declines_ends_the_run_as_failed(stop: str) -> None:
    """A refusal is a typed failure with its code, and is not asked again."""
    answer = AssistantMessage("I will not.", stop)  # type: ignore[arg-type]
    model = ScriptedModel([answer])

    outcome = await run_agent(TALKER, "do it", Ports(model=model))

    assert isinstance(outcome, Failed)
    assert (stop, "I will not.", 1) == (outcome.error.code, outcome.error.message, len(model.requests))


def test_a_caller_without_a_loop_runs_an_agent() -> None:
    """`run_agent_sync` gives the outcome."""
    outcome = run_agent_sync(TALKER, "hello", Ports(model=ScriptedModel([text("hi")])), run_id="r1")

    assert isinstance(outcome, Completed)
    assert ("hi", "r1") == (outcome.output, outcome.run_id)


async def test_a_caller_inside_a_loop_is_told_to_await() -> None:
    """`run_agent_sync` refuses inside a running loop, and says what to write."""
    with pytest.raises(RuntimeError, match="await run_agent"):
        run_agent_sync(TALKER, "hello", Ports(model=ScriptedModel([text("hi")])))


async def test_every_outcome_carries_the_run_its_usage_and_what_was_said() -> None:
    """Transcript and usage are whole, whatever the outcome."""
    outcome: Outcome[str] = await run_agent(
        ADDER, "1+2?", Ports(model=ScriptedModel([call("add", a=1, b=2), text("3")])), run_id="r1"
    )

    assert [UserMessage, AssistantMessage, ToolMessage, AssistantMessage] == [*map(type, outcome.transcript)]
    assert ("r1", 2, 1, 64) == (
        outcome.run_id,
        outcome.usage.requests,
        outcome.usage.tool_calls,
        len(outcome.evidence_head),
    )


async def test_an_agent_sees_only_its_own_run() -> None:
    """Many runs of one definition over one store keep their transcripts apart."""

    def echo(request: ModelRequest) -> AssistantMessage:
        return text(request.messages[0].text)

    ports = Ports(model=ScriptedModel([echo]))

    got = await asyncio.gather(*[run_agent(TALKER, f"question {n}", ports) for n in range(50)])

    assert [f"question {n}" for n in range(50)] == [each.output for each in got if isinstance(each, Completed)]


@pytest.mark.parametrize("made", [7, ["hi"], [None], {"text": "hi"}])
async def test_a_rendering_that_is_no_message_is_refused_before_any_work(made: object) -> None:
    """What the definition makes of an input is text or parts; else nothing is opened."""
    model, state = ScriptedModel([text("hi")]), MemoryState()
    odd = replace(TALKER, render=lambda _: made)  # type: ignore[arg-type,return-value]

    with pytest.raises(TypeError):
        await run_agent(odd, "hello", Ports(model=model, state=state), run_id="r1")
    assert ([], []) == (model.requests, [*await state.load("r1")])


@pytest.mark.parametrize("made", ["", "a b", 7, None])
async def test_an_ids_port_that_gives_no_id_is_an_error_of_the_port(made: object) -> None:
    """A run without a name of its own is not begun."""

    class Ids:
        def new_id(self) -> str:
            return made  # type: ignore[return-value]

    with pytest.raises(PortError, match="ids port"):
        await run_agent(TALKER, "hello", Ports(model=ScriptedModel([text("hi")]), ids=Ids()))


async def test_a_run_that_ended_with_another_output_is_not_read_as_this_one() -> None:
    """An outcome of another version is given where it fits the type that is asked for, else refused."""
    world = Ports(model=ScriptedModel([text("hi")]))
    await run_agent(TALKER, "hello", world, run_id="r1")

    later = await resume_agent(replace(TALKER, instruction="Talk more."), "r1", world)

    assert isinstance(later, Completed)
    assert "hi" == later.output
    with pytest.raises(RunMismatch, match="another output"):
        await resume_agent(AgentDefinition(name="counter", instruction="Count.", output=int), "r1", world)


@pytest.mark.promise("N-05")
async def test_a_later_version_that_says_so_goes_on_with_runs_of_an_earlier_one() -> None:
    """The move is a fact, made once; from then on the run belongs to the later version."""
    ports = Ports(model=ScriptedModel([call("add", a=1, b=1), text("2"), text("3")]))
    await run_agent(ADDER, "go", ports, run_id="r1", max_turns=1)
    later = replace(ADDER, instruction="Add well.", compatible_with=[ADDER.fingerprint])

    ended = await resume_agent(later, "r1", ports, max_turns=2)

    assert isinstance(ended, Completed)
    kinds = [item.kind for item in await ports.state.evidence("r1")]
    assert (1, "2") == (kinds.count("run_migrated"), ended.output)


@pytest.mark.promise("N-05")
@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ({"tools": [add, subtract]}, True),
        ({"tools": [subtract, add], "limits": Limits(requests=9)}, True),
        ({"tools": [replace(add, description="Add two numbers.")]}, True),
        ({"tools": [subtract]}, False),
        ({"tools": [replace(add, version="2"), subtract]}, False),
        ({"tools": [add, subtract], "instruction": "Add well."}, False),
    ],
)
async def test_a_version_that_only_has_more_tools_goes_on_with_runs_of_an_earlier_one(
    change: dict[str, object], *, goes_on: bool
) -> None:
    """What the run depends on is all there. Anything else it would have to say."""
    ports = Ports(model=ScriptedModel([call("add", a=1, b=1), text("2")]))
    await run_agent(ADDER, "go", ports, run_id="r1", max_turns=1)
    later = replace(ADDER, **change)  # type: ignore[arg-type]

    outcome = await resume_agent(later, "r1", ports, max_turns=2)

    if goes_on:
        assert isinstance(outcome, Completed)
        assert None is (await replay_agent(later, "r1", ports)).divergence
    else:
        assert isinstance(outcome, Suspended)
        assert "definition" == outcome.reason


@pytest.mark.promise("N-09")
async def test_an_approval_is_void_under_another_contract() -> None:
    """A call that waited while its tool changed is not run: the model is told, and may issue it again."""
    entered: list[int] = []

    def payer(version: str) -> AgentDefinition[str, str]:
        @tool(approval="required", version=version)
        async def pay(cents: int) -> str:
            """Pay."""
            entered.append(cents)
            return "paid"

        return AgentDefinition(name="payer", instruction="Pay.", tools=[pay])

    ports = Ports(model=ScriptedModel([call("pay", cents=5), text("done")]))
    first = await run_agent(payer("1"), "go", ports, run_id="r1")
    assert isinstance(first, Suspended)
    later = replace(payer("2"), compatible_with=[payer("1").fingerprint])

    ended = await resume_agent(later, "r1", ports, decisions={first.pending[0].effect_id: "approve"})

    assert isinstance(ended, Completed)
    (result,) = [each for each in ended.transcript if isinstance(each, ToolMessage)]
    assert ([], True) == (entered, result.is_error)
    assert "contract changed" in result.text


@pytest.mark.promise("N-05", "I-07")
async def test_a_started_call_under_another_contract_is_in_doubt() -> None:
    """Even a `safe` one: what would run again is not what was started."""

    def looker(version: str) -> AgentDefinition[str, str]:
        @tool(replay="safe", version=version)
        async def look() -> str:
            """Look."""
            return "seen"

        return AgentDefinition(name="looker", instruction="Look.", tools=[look])

    class Full(MemoryState):
        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            if facts[0].kind == "CallFinished":
                raise PortError("full")
            return await super().append(run_id, epoch, expected, append_id, facts)

    state = Full()
    model = ScriptedModel([call("look"), text("done")])
    with pytest.raises(PortError, match="full"):
        await run_agent(looker("1"), "go", Ports(model=model, state=state), run_id="r1")
    later = replace(looker("2"), compatible_with=[looker("1").fingerprint])

    waiting = await resume_agent(later, "r1", Ports(model=model, state=state.reopen()))

    assert isinstance(waiting, Suspended)
    assert ("in-doubt", "started under another contract of the tool") == (waiting.reason, waiting.pending[0].why)


@pytest.mark.promise("N-10")
async def test_a_run_that_kills_its_owners_is_put_aside() -> None:
    """After five deaths in a row with no result it rests, and only somebody who resumes it once more tries again."""
    state, asked = MemoryState(), 0

    class Deadly(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            nonlocal asked
            asked += 1
            return await super().complete(request)

    for _ in range(5):
        lease = await state.acquire("r1", holder="dies", seconds=0.0)
        assert isinstance(lease, Lease)
    ports = Ports(model=Deadly([text("done")]), state=state)

    waiting = await run_agent(ADDER, "go", ports, run_id="r1")
    asked_before = asked
    ended = await resume_agent(ADDER, "r1", ports)

    assert isinstance(waiting, Suspended)
    assert ("external", "poisoned", 0) == (waiting.reason, waiting.detail, asked_before)
    assert isinstance(ended, Completed)


@pytest.mark.promise("N-05", "N-10")
async def test_a_run_that_was_put_aside_and_came_to_rest_since_goes_on_like_any_other() -> None:
    """Whoever brought it to where somebody has to approve did not die of it: the approval is enough."""
    state = MemoryState()
    for _ in range(5):
        assert isinstance(await state.acquire("r1", holder="dies", seconds=0.0), Lease)
    ports = Ports(model=ScriptedModel([call("add", a=1, b=2), text("3")]), state=state)
    asking = replace(ADDER, tools=[replace(add, approval="required")])
    await run_agent(asking, "go", ports, run_id="r1")
    waiting = await resume_agent(asking, "r1", ports)
    assert isinstance(waiting, Suspended)

    ended = await resume_agent(asking, "r1", ports, decisions={waiting.pending[0].effect_id: "approve"})

    assert "approval" == waiting.reason
    assert isinstance(ended, Completed)


@pytest.mark.promise("T-08")
async def test_a_finished_run_leaves_nothing_for_the_collector() -> None:
    """What a run was made of goes when it goes: nothing of it holds itself in a circle."""
    ports = Ports(model=ScriptedModel([call("add", a=1, b=2), text("3")]), state=MemoryState(finished=1))
    await run_agent(ADDER, "go", ports)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            await run_agent(ADDER, "go", ports)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [type(each).__name__ for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    assert [] == [name for name in left if name in ("Driver", "Race", "RunState", "Entry", "Performer")]
