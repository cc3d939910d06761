"""Composed agents: turns, tools, tracing, client messages, integrations, and what is left when somebody goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from attrs import frozen
from hypothesis import given, strategies as st

from tests.harness.playing import heard, of, play
from turnwright import MemoryState, Ports, run_agent
from turnwright.errors import DefinitionError, InvalidValue, RunBusy, TurnwrightError
from turnwright.harness import (
    PROGRESS_STAGES,
    TRACE_PHASES,
    Ack,
    AgentEvent,
    ComposedAgent,
    DataModelUpdate,
    DefinedTool,
    DoneEvent,
    ErrorEvent,
    FunctionResult,
    ProgressEvent,
    Resource,
    Session,
    SurfaceAction,
    SurfaceEvent,
    ToolResultEvent,
    ToolUseEvent,
    TraceEvent,
    TraceRecord,
    TurnContext,
    ValidationRejection,
    create_agent,
    define_guardrail,
    define_resource,
    define_tool,
    frame_client_message,
    is_progress_stage,
    is_trace_phase,
    prompt_layer,
    script_client,
    should_run_turn,
)
from turnwright.tools import ToolOutput, tool


def look(execute: Callable[..., object], **options: object) -> DefinedTool:
    """A tool."""
    return define_tool(name="look", description="Look.", execute=execute, **options)  # type: ignore[call-overload,no-any-return]


def calling(execute: Callable[..., object], *inputs: object, **options: object) -> ComposedAgent:
    """An agent whose model calls `look` with each input at once, and then says ok."""
    uses = [{"id": f"c{n}", "name": "look", "input": each} for n, each in enumerate(inputs or ({},))]
    return create_agent(model=script_client([{"tool_use": uses}, "ok"]), tools=[look(execute)], **options)  # type: ignore[arg-type,list-item,typeddict-item]


# --- tools


def broken(_: object) -> str:
    """Fail."""
    raise RuntimeError("it broke")


@pytest.mark.promise("A-03")
@pytest.mark.parametrize(
    ("use", "told"),
    [
        ({"name": "look", "input": {"q": 1}}, "q: "),
        ({"name": "look", "input": '{"q": '}, "not valid JSON"),
        ({"name": "look", "input": [1]}, "expected a JSON object"),
        ({"name": "nowhere", "input": {}}, "there is no tool"),
        ({"name": "look", "input": {"q": "x"}}, "it broke"),
    ],
    ids=["invalid", "no JSON", "no object", "unknown", "raises"],
)
async def test_every_failure_of_a_call_is_a_result(use: dict[str, object], told: str) -> None:
    """Nothing tool-shaped is raised: the model is told, and goes on."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    agent = create_agent(
        model=script_client([{"tool_use": [use]}, "ok"]),  # type: ignore[list-item,typeddict-item]
        tools=[look(broken, input_schema=schema)],
    )

    events = await heard(agent)

    (result,) = of(events, ToolResultEvent)
    assert result.is_error and told in result.output
    assert "ok" == of(events, DoneEvent)[0].text


@pytest.mark.promise("A-03")
@pytest.mark.parametrize(
    ("execute", "output"),
    [
        (lambda: "nothing taken", "nothing taken"),
        (lambda given: given, '{"q":1}'),
        (lambda given, context: context.session.id, "s"),  # noqa: ARG005
        (lambda given, limit=10: limit, "10"),  # noqa: ARG005
        (lambda *given: len(given), "2"),
        (lambda: ToolOutput("own", is_error=True), "own"),
    ],
)
async def test_a_function_gets_as_much_as_it_takes(execute: Callable[..., object], output: str) -> None:
    """Nothing, the input, or the context too; an option of its own is left alone. What is no text is JSON."""
    assert output == of(await heard(calling(execute, {"q": 1})), ToolResultEvent)[0].output


@frozen
class Place:
    """Where to look."""

    city: str
    days: int = 1


@pytest.mark.promise("A-03", "A-05")
async def test_a_typed_tool_gets_a_value_and_the_services_of_the_turn() -> None:
    """The schema comes from the type; the turn's services win over the agent's."""

    async def execute(place: Place, context: TurnContext) -> str:
        return f"{place} {context.services['unit']} {context.services['lang']}"

    agent = create_agent(
        model=script_client([{"tool_use": [{"name": "look", "input": {"city": "Oslo"}}]}, "ok"]),
        tools=[look(execute, input_schema=Place)],
        services={"unit": "C", "lang": "no"},
    )

    events = [event async for event in agent.send(Session("s"), "q", services={"unit": "F"})]

    assert "Place(city='Oslo', days=1) F no" == of(events, ToolResultEvent)[0].output


async def test_a_tool_of_the_engine_and_a_plain_function_are_tools_too() -> None:
    """Side by side with defined ones."""

    @tool(replay="safe")
    def read(n: int) -> int:
        """Read."""
        return n + 1

    def double(n: int) -> int:
        """Double."""
        return n * 2

    uses = [{"name": "read", "input": {"n": 1}}, {"name": "double", "input": {"n": 4}}]
    agent = create_agent(model=script_client([{"tool_use": uses}, "ok"]), tools=[read, double])  # type: ignore[list-item,typeddict-item]

    events = await heard(agent)

    assert ["2", "8"] == [each.output for each in of(events, ToolResultEvent)]
    assert ("read", "double") == agent.tools


@pytest.mark.parametrize(
    "options", [{}, {"execute": len, "endpoint": object()}, {"endpoint": object()}], ids=["none", "both", "no endpoint"]
)
def test_a_tool_is_one_thing(options: dict[str, object]) -> None:
    """A function or an endpoint, and what it says it is."""
    with pytest.raises(DefinitionError, match="tool 'look'"):
        define_tool(name="look", description="Look.", **options)  # type: ignore[call-overload]


async def test_results_come_in_the_order_of_the_calls() -> None:
    """Calls run at once; the quick second one waits to be told, and the session is as the engine's transcript."""
    second = asyncio.Event()

    async def execute(given: dict[str, object]) -> object:
        if given["n"] == 2:
            second.set()
        await second.wait()
        return given["n"]

    agent = calling(execute, {"n": 1}, {"n": 2})

    assert ["1", "2"] == [each.output for each in of(await heard(agent), ToolResultEvent)]


# --- progress, surfaces and the trace


@pytest.mark.promise("A-12")
@given(st.text() | st.sampled_from(PROGRESS_STAGES) | st.none() | st.integers())
def test_the_vocabularies_are_closed(value: object) -> None:
    """Whatever is read, only the stages and phases are some."""
    assert (value in ("sent", "started", "reasoning", "content", "validating", "retry", "tool", "done")) is (
        is_progress_stage(value)
    )
    phases = ("prompt", "request", "response", "tool", "workflow", "guardrail", "usage", "mcp")
    assert phases == TRACE_PHASES
    assert (value in phases) is is_trace_phase(value)


@pytest.mark.promise("A-12")
async def test_only_stages_that_were_reached_are_told() -> None:
    """A call that was refused never ran; a stage that code of one's own reached may be told by it."""

    def validate(_: object, context: TurnContext) -> str:
        context.progress("validating")
        context.surface("s1", "{}")
        return "r"

    refused = await heard(create_agent(model=script_client([{"tool_use": [{"name": "none"}]}, "ok"])))
    events = await heard(calling(validate))

    assert ["sent", "retry", "sent", "done"] == [each.stage for each in of(refused, ProgressEvent)]
    stages = ["sent", "tool", "validating", "retry", "sent", "done"]
    assert stages == [each.stage for each in of(events, ProgressEvent)]
    assert [SurfaceEvent("s1", "{}")] == of(events, SurfaceEvent)


@pytest.mark.promise("A-08")
async def test_the_trace_says_what_the_harness_did() -> None:
    """Each record goes to the function and onto the stream; without one there is none."""
    records: list[TraceRecord] = []
    agent = calling(lambda: "r", trace=records.append, guardrails=[define_guardrail(name="g", output=lambda _: None)])

    events = await heard(agent)

    assert records == [each.record for each in of(events, TraceEvent)]
    assert ["prompt", "request", "response", "tool", "request", "response", "usage"] == [e.phase for e in records]
    assert {"s"} == {each.session_id for each in records}
    assert (1, "ScriptClient", 1) == tuple(records[1].data.values())
    assert [] == of(await heard(calling(lambda: "r")), TraceEvent)


@pytest.mark.promise("A-08")
async def test_a_sink_that_fails_warns_and_the_turn_goes_on() -> None:
    """The stream has the records all the same."""

    def sink(_: TraceRecord) -> None:
        raise OSError("full")

    with pytest.warns(RuntimeWarning, match="the trace sink failed: OSError: full"):
        events = await heard(create_agent(model=script_client(["hi"]), trace=sink))

    assert "hi" == of(events, DoneEvent)[0].text
    assert of(events, TraceEvent)


@pytest.mark.promise("A-08")
async def test_the_console_is_a_sink(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, on standard error."""
    await heard(create_agent(model=script_client(["hi"]), trace=True))

    assert "prompt: prompt {'layers': 0" in capsys.readouterr().err


# --- client messages


@pytest.mark.promise("A-13")
async def test_client_messages_are_framed_as_turns() -> None:
    """Word for word, with JSON where there is data."""
    model = script_client(["a", "b", "c"])
    agent = create_agent(model=model)
    framed = [
        (
            SurfaceAction("sf_1", "submit", {"formId": "f1"}),
            'The user triggered the submit action on surface sf_1 with context {"formId":"f1"}.',
        ),
        (FunctionResult("sum", [1, 2]), "The function sum returned: [1,2]."),
        (
            ValidationRejection("E1", "no title"),
            "The previous surface was rejected (E1): no title. Emit a corrected surface.",
        ),
    ]

    for message, words in framed:
        assert should_run_turn(message)
        assert words == frame_client_message(message)
        events = [event async for event in agent.send_client_message(Session("s"), message)]
        assert words == events[0].text == model.calls[-1].messages[-1].text  # type: ignore[union-attr]


@pytest.mark.promise("A-13")
@pytest.mark.parametrize("message", [DataModelUpdate("s", {"a": 1}), Ack("m1")], ids=lambda each: each.kind)
async def test_what_is_applied_silently_never_reaches_the_model(message: DataModelUpdate | Ack) -> None:
    """It tells nothing and asks nobody; framing it is a mistake that is told."""
    model = script_client([])

    assert [] == [e async for e in create_agent(model=model).send_client_message(Session("s"), message)]
    assert [] == model.calls
    assert not should_run_turn(message)
    with pytest.raises(ValueError, match="should_run_turn"):
        frame_client_message(message)


# --- going away


async def test_closing_the_turn_leaves_nothing_of_it() -> None:
    """The tool is cancelled and told so before the iterator is closed, from another task too."""
    began, signals = asyncio.Event(), []
    ended: list[str] = []

    async def wait(_: object, context: TurnContext) -> None:
        signals.append(context.signal)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    turn = calling(wait).send(Session("s"), "q")
    before = asyncio.all_tasks()
    async for event in turn:
        if isinstance(event, ToolUseEvent):
            break
    await began.wait()
    await asyncio.create_task(turn.aclose())

    assert (["cancelled"], True) == (ended, signals[0].is_set())
    assert before == asyncio.all_tasks()


async def test_a_signal_ends_the_turn_with_an_error() -> None:
    """The caller's signal is the one that tools see."""
    signal = asyncio.Event()

    async def wait(_: object, context: TurnContext) -> None:
        context.signal.set()
        await asyncio.Event().wait()

    events = [event async for event in calling(wait).send(Session("s"), "q", signal=signal)]

    (error,) = of(events, ErrorEvent)
    assert "cancelled" == error.code
    assert events[-1] is error


async def test_a_turn_that_was_cut_goes_on_under_its_run_id() -> None:
    """The model is not asked again for what it answered; the prompt may have changed since."""
    store, model, ran = MemoryState(), script_client([{"tool_use": [{"name": "look"}]}, RuntimeError("down"), "ok"]), []
    clock = iter(["one", "two"])
    agent = create_agent(
        model=model,
        state=store,
        prompt=[prompt_layer("clock", lambda: next(clock))],
        tools=[look(lambda: ran.append(1) or "r")],
    )

    first = [event async for event in agent.send(Session("s"), "q", run_id="t1")]
    second = [event async for event in agent.send(Session("s"), "q", run_id="t1")]

    assert ("error", "done") == (first[-1].type, second[-1].type)
    assert ([1], 3) == (ran, len(model.calls))
    assert ["one", "one", "two"] == [each.instruction for each in model.calls]


@pytest.mark.promise("A-01")
async def test_the_choice_of_tools_steers_each_round() -> None:
    """A function of the round says what the model must do; it is in the request."""
    model = script_client([{"tool_use": [{"name": "look"}]}, "ok"])
    agent = create_agent(
        model=model, tools=[look(lambda: "r")], tool_choice=lambda turn: "none" if turn.calls else "look"
    )

    await heard(agent)

    assert ["look", "none"] == [each.tool_choice for each in model.calls]


# --- integrations


class Source:
    """An integration that remembers what was done with it."""

    def __init__(self, *names: str, fails: int = 0) -> None:
        self.did: list[str] = []
        self._names = names
        self._fails = fails

    async def connect(self) -> object:
        """Connect, or fail the first times."""
        self.did.append("connect")
        await asyncio.sleep(0)
        if self._fails:
            self._fails -= 1
            raise ConnectionError("unreachable")
        return {"tools": list(self._names)}

    def tools(self) -> Sequence[DefinedTool]:
        """Offer the tools."""
        return [define_tool(name=each, description="Far.", execute=lambda: "far") for each in self._names]

    async def close(self) -> None:
        """Close."""
        self.did.append("close")


@pytest.mark.promise("A-01")
async def test_integrations_connect_once_with_the_first_turn() -> None:
    """Lazily, together for all who wait; their tools join the declared ones; closing lets them connect again."""
    source = Source("far")
    model = script_client([{"tool_use": [{"name": "far"}]}, "ok", "again"])
    agent = create_agent(model=model, tools=[look(lambda: "near")], integrations=[source])

    assert ("look",) == agent.tools
    reports = await asyncio.gather(agent.connect(), agent.connect())
    assert "far" == of(await heard(agent), ToolResultEvent)[0].output
    assert (["connect"], ("look", "far")) == (source.did, agent.tools)
    await agent.close()
    await play(agent, "x")

    assert [({"tools": ["far"]},)] * 2 == reports
    assert ["connect", "close", "connect"] == source.did


@pytest.mark.promise("A-01")
async def test_a_connection_that_fails_is_loud_closes_the_rest_and_is_tried_again() -> None:
    """It comes out of the turn, and is no verdict."""
    good, bad = Source("far"), Source(fails=1)
    agent = create_agent(model=script_client(["ok"]), integrations=[good, bad])

    with pytest.raises(ConnectionError):
        await heard(agent)

    assert ["connect", "close"] == good.did
    assert "ok" == of(await heard(agent), DoneEvent)[0].text


@pytest.mark.promise("A-01")
async def test_two_tools_of_one_name_are_refused() -> None:
    """Also when one comes with an integration."""
    agent = create_agent(model=script_client([]), tools=[look(lambda: "")], integrations=[Source("look")])

    with pytest.raises(DefinitionError, match="two tools are named 'look'"):
        await agent.connect()


@pytest.mark.promise("A-01")
def test_an_agent_needs_a_model() -> None:
    """And says so."""
    with pytest.raises(DefinitionError, match="model="):
        create_agent()


@pytest.mark.promise("A-03")
async def test_a_call_that_waits_for_approval_goes_on_when_it_was_decided() -> None:
    """The turn tells what it waits for; said again with the decision, what was asked for runs, once."""
    paid: list[object] = []
    pay = define_tool(name="pay", description="Pay.", execute=paid.append, approval="required")
    model = script_client([{"tool_use": [{"name": "pay", "input": {"cents": 5}}]}, "paid"])
    agent = create_agent(model=model, tools=[pay])

    waiting = (await heard(agent))[-1]
    assert isinstance(waiting, ErrorEvent)
    assert ("approval", []) == (waiting.code, paid)
    (asked,) = waiting.pending
    turn = agent.send(Session("s"), "hi", run_id=waiting.run_id, decisions={asked.effect_id: "approve"})
    events = [event async for event in turn]

    assert "paid" == of(events, DoneEvent)[0].text
    assert [{"cents": 5}] == paid


async def test_closing_wins_over_a_connection_that_is_made() -> None:
    """Whoever waits is told so, what was opened is closed, and a later turn connects again."""
    source = Source("far")
    agent = create_agent(model=script_client(["ok"]), integrations=[source])

    waiting = asyncio.create_task(agent.connect())
    await asyncio.sleep(0)
    await agent.close()

    with pytest.raises(TurnwrightError, match="closed while it was connecting"):
        await waiting
    assert () == agent.tools
    assert "ok" == of(await heard(agent), DoneEvent)[0].text


@pytest.mark.promise("A-06", "A-08")
async def test_an_integration_may_offer_resources() -> None:
    """They stand in the same envelope; connecting is in the trace."""

    class Library(Source):
        def tools(self) -> Sequence[Resource]:  # type: ignore[override]
            """Offer a guide to attach and a book to read."""
            return [
                define_resource(name="guide", mode="attach", get=lambda: "be </resource> kind"),
                define_resource(name="book", mode="tool", get=lambda: "once"),
            ]

    records: list[TraceRecord] = []
    model = script_client(["ok"])
    agent = create_agent(model=model, integrations=[Library()], trace=records.append)

    await heard(agent)

    assert ("read_book",) == agent.tools
    assert "\nbe &lt;/resource> kind\n</resource boundary=" in model.calls[0].instruction
    assert ("mcp", "connect", {"source": "Library"}) == (records[0].phase, records[0].name, records[0].data)


async def test_a_turn_is_said_once_at_a_time() -> None:
    """The same run id while it is at work is busy, and the first turn is not disturbed."""
    agent = calling(lambda: "r")
    turn = agent.send(Session("s"), "q", run_id="t1")
    first = await anext(turn)

    with pytest.raises(RunBusy):
        await anext(agent.send(Session("s"), "q", run_id="t1"))

    assert "done" == [first, *[event async for event in turn]][-1].type


async def test_two_turns_that_begin_at_once_under_one_id_are_one() -> None:
    """Whoever is told of `busy` takes nothing from the other, though both were still making their prompts."""
    both = asyncio.Event()
    made: list[int] = []

    async def layer() -> str:
        made.append(1)
        if len(made) == 2:
            both.set()
        await both.wait()
        return "p"

    agent = create_agent(model=script_client(["a", "a"]), prompt=[prompt_layer("p", layer)])

    async def told() -> str:
        try:
            return [event.type async for event in agent.send(Session("s"), "q", run_id="t1")][-1]
        except RunBusy:
            return "busy"

    assert ["busy", "done"] == sorted(await asyncio.gather(told(), told()))
    assert "done" == await told()


async def test_a_decision_that_is_none_is_refused_and_may_be_said_again() -> None:
    """What is refused before the turn begins leaves nothing of it."""
    agent = calling(lambda: "r")

    for text, decisions in (("q", {"t1:1.0": "yes"}), (5, None)):
        with pytest.raises((ValueError, InvalidValue)):
            await anext(agent.send(Session("s"), text, run_id="t1", decisions=decisions))  # type: ignore[arg-type]

    assert "done" == [event async for event in agent.send(Session("s"), "q", run_id="t1")][-1].type


async def test_a_turn_whose_reader_is_cancelled_twice_may_be_said_again() -> None:
    """Also where nobody waited for its end: its id is free when it is over."""
    stands, goes = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        stands.set()
        try:
            await asyncio.Event().wait()
        finally:
            await goes.wait()
        return "never"

    agent = calling(slow)

    async def read(run_id: str) -> list[AgentEvent]:
        return [event async for event in agent.send(Session("s"), "q", run_id=run_id)]

    reading = asyncio.create_task(read("t1"))
    await stands.wait()
    for _ in range(2):
        reading.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait([reading])
    goes.set()
    while True:
        with suppress(RunBusy):
            events = await read("t1")
            break
        await asyncio.sleep(0)

    assert events[-1].type in ("done", "error")


async def test_a_definition_outside_a_turn_says_what_to_use() -> None:
    """Its tools have no session, no services and nobody to tell."""
    agent = calling(lambda: "r")

    outcome = await run_agent(agent.definition, "q", Ports(script_client([{"tool_use": [{"name": "look"}]}, "ok"])))

    assert "is no turn of agent 'agent': use send(), not its definition" in outcome.transcript[2].text
