"""A tool call on its way: what the model wrote, what the tool gets, what the model sees of it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial, wraps

import pytest
from attrs import evolve as replace, frozen

from tests.driver.virtual import leftovers
from turnwright import (
    AgentDefinition,
    CallView,
    Completed,
    Failed,
    Issue,
    Limits,
    MemoryState,
    Outcome,
    Ports,
    Rewrite,
    RunCall,
    Suspended,
    Tool,
    ToolContext,
    ToolOutput,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.canonical import decode
from turnwright.messages import AssistantMessage, Image, Text, ToolCall, ToolMessage
from turnwright.testing import Reply, ScriptedModel, call, text


def using(*tools: Tool[..., object] | Callable[..., object], **options: object) -> AgentDefinition[str, str]:
    """An agent with *tools*."""
    return AgentDefinition(name="user", instruction="Use.", tools=tools, **options)  # type: ignore[arg-type]


def raw(name: str, arguments: str) -> ToolCall:
    """A call whose argument text is exactly *arguments*."""
    return ToolCall("", name, arguments)


async def seen(agent: AgentDefinition[str, str], *calls: ToolCall, world: Ports | None = None) -> list[ToolMessage]:
    """What the model sees of *calls*, made in one answer; the run must end all the same."""
    model = ScriptedModel([list(calls), text("done")])
    outcome = await run_agent(agent, "go", Ports(model=model) if world is None else replace(world, model=model))
    assert isinstance(outcome, Completed), outcome
    return [message for message in outcome.transcript if isinstance(message, ToolMessage)]


# --- what the model wrote


@pytest.mark.promise("N-07")
@pytest.mark.case("arg-01")
@pytest.mark.parametrize("arguments", ["[]", '"value"', "123", "null", "true", "1.5"])
async def test_arguments_that_are_no_object_are_an_error_that_the_model_reads(arguments: str) -> None:
    """Valid JSON that is no object is refused in words; the tool is not entered, and the run goes on."""
    entered: list[str] = []

    @tool
    async def echo(value: str) -> str:
        """Echo."""
        entered.append(value)
        return value

    (result,) = await seen(using(echo), raw("echo", arguments))

    assert (True, [], True) == (result.is_error, entered, "expected a JSON object" in result.text)


@pytest.mark.promise("N-07")
@pytest.mark.case("arg-02")
@pytest.mark.parametrize("empty", ["", " ", "null"])
async def test_empty_arguments_are_none_only_for_a_tool_that_takes_none(empty: str) -> None:
    """A tool without parameters runs; one with a default for everything does not run on it unasked."""
    entered: list[str] = []

    @tool
    async def wipe(path: str = "/") -> str:
        """Wipe."""
        entered.append(path)
        return "wiped"

    @tool
    async def now() -> str:
        """Tell the time."""
        entered.append("now")
        return "noon"

    results = await seen(using(wipe, now), raw("wipe", empty), raw("now", empty))

    assert ([True, False], ["now"]) == ([result.is_error for result in results], entered)


@pytest.mark.case("arg-02")
async def test_a_default_is_used_when_the_model_says_so() -> None:
    """An empty object is an answer: the defaults are filled in and recorded."""

    @tool
    async def wipe(path: str = "/tmp") -> str:
        """Wipe."""
        return path

    agent, world = using(wipe), Ports(model=ScriptedModel([call("wipe"), text("done")]))
    calls: list[object] = []
    watched = replace(agent, check_output=[lambda _, made: calls.extend([each.arguments for each in made])])

    await run_agent(watched, "go", world)

    assert [{"path": "/tmp"}] == calls


@pytest.mark.promise("N-07")
@pytest.mark.case("arg-06")
@pytest.mark.parametrize(
    "broken",
    [
        '{"q": "x", "ids":[4]</parameter>\n<parameter name="limit": 8}',
        '{"q": "x"',
        '{"q": "x",}',
        "{'q': 'x'}",
        '{"q": "x", "q": "y"}',
        '{"q": "x"} trailing',
        "q=x",
        '{"q": "\x00"}',
        "{" * 5000,
        '{"q":' + "[" * 100 + "]" * 100 + "}",
        '{"q": "x", "n": ' + "9" * 100 + "}",
    ],
)
async def test_malformed_arguments_are_an_error_and_the_model_corrects_itself(broken: str) -> None:
    """Nothing is raised, the tool is not entered, the next answer may do better, and the history stays sendable."""
    entered: list[str] = []

    @tool
    async def search(q: str) -> str:
        """Search."""
        entered.append(q)
        return "found"

    model = ScriptedModel([raw("search", broken), call("search", q="good"), text("done")])
    outcome = await run_agent(using(search), "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert ["good"] == entered
    assert [True, False] == [message.is_error for message in outcome.transcript if isinstance(message, ToolMessage)]
    first = outcome.transcript[1]
    assert isinstance(first, AssistantMessage)
    assert broken == first.calls[0].arguments


@pytest.mark.case("arg-03")
async def test_values_that_were_written_as_json_text_are_unpacked_where_a_list_is_wanted() -> None:
    """A list or an object in a string is taken for what it is, a string stays a string, and no JSON is an error."""
    got: list[object] = []

    @tool
    async def f(tags: list[str], opt: dict[str, int] | None, note: str) -> str:
        """Take."""
        got.append((tags, opt, note))
        return "ok"

    good = raw("f", r'{"tags":"[\"a\",\"b\"]","opt":"{\"k\":1}","note":"[1,2]"}')
    bad = raw("f", '{"tags":"a, b","opt":null,"note":""}')
    results = await seen(using(f), good, bad)

    assert [(["a", "b"], {"k": 1}, "[1,2]")] == got
    assert [False, True] == [result.is_error for result in results]


@pytest.mark.case("arg-04")
async def test_text_that_looks_like_a_number_stays_text() -> None:
    """Where a string is declared, digits and the word null are a string."""
    got: list[object] = []

    @tool
    async def f(a: str, b: int, c: str | None) -> str:
        """Take."""
        got.append((a, b, c))
        return "ok"

    await seen(using(f), raw("f", '{"a":"123","b":123,"c":"null"}'))

    assert [("123", 123, "null")] == got


@pytest.mark.case("arg-09")
async def test_half_a_surrogate_pair_reaches_no_request_and_no_store() -> None:
    """In a result it is replaced; in arguments it is an error; the store reloads, and the next turn works."""
    state = MemoryState()

    @tool
    async def broken() -> str:
        """Return half a character."""
        return "ok \ud83d end"

    @tool
    async def take(s: str) -> str:
        """Take."""
        return s

    agent = using(broken, take)
    model = ScriptedModel([[call("broken"), raw("take", r'{"s":"\udc00"}')], text("done \ud83d")])
    world = Ports(model=model, state=state)

    await run_agent(agent, "hello", world, run_id="r1", max_turns=1)
    outcome = await resume_agent(agent, "r1", replace(world, state=state.reopen()), max_turns=2)

    assert isinstance(outcome, Completed)
    assert ("ok \ufffd end", "done \ufffd") == (
        outcome.transcript[2].text,
        outcome.output,
    )
    assert [False, True] == [message.is_error for message in outcome.transcript if isinstance(message, ToolMessage)]
    for request in model.requests:
        assert [message.text for message in request.messages] == [
            message.text.encode().decode() for message in request.messages
        ]


@pytest.mark.case("arg-10")
async def test_numbers_that_are_none_pass_no_border() -> None:
    """NaN and infinities in a result become null; in arguments they are an error."""

    @tool
    async def measure() -> dict[str, float]:
        """Measure."""
        return {"m": float("nan"), "x": float("inf"), "y": 1.5}

    @tool
    async def take(v: float) -> str:
        """Take."""
        return str(v)

    results = await seen(using(measure, take), call("measure"), raw("take", '{"v": NaN}'), raw("take", '{"v": 1e999}'))

    assert ('{"m":null,"x":null,"y":1.5}', [False, True, True]) == (
        results[0].text,
        [result.is_error for result in results],
    )


@pytest.mark.case("arg-13")
async def test_an_argument_cannot_reach_what_a_partial_has_fixed() -> None:
    """What was bound when the tool was made is out of the model's reach, by name or otherwise."""
    called: list[tuple[str, str]] = []

    async def request(tool_name: str, *, repo: str) -> str:
        called.append((tool_name, repo))
        return "done"

    listing = tool(name="list_issues")(partial(request, tool_name="list_issues"))

    results = await seen(
        using(listing), call("list_issues", tool_name="delete_repo", repo="r"), call("list_issues", repo="r")
    )

    assert {"list_issues"} == {name for name, _ in called}
    assert "delete_repo" not in str(called)
    assert not results[1].is_error


@pytest.mark.case("arg-15")
async def test_nothing_that_is_false_gets_lost() -> None:
    """0, false and empty text arrive as given, and every such result is shown."""
    got: list[object] = []

    @tool
    async def f(n: int = 7, b: bool = True, s: str = "x") -> str:
        """Take."""
        got.append((n, b, s))
        return ""

    values: list[object] = [False, 0, "", [], {}, None, 0.0]

    @tool
    async def give(which: int) -> object:
        """Give."""
        return values[which]

    results = await seen(
        using(f, give), call("f", n=0, b=False, s=""), *[call("give", which=n) for n in range(len(values))]
    )

    assert [(0, False, "")] == got
    assert ["", "false", "0", "", "[]", "{}", "null", "0.0"] == [result.text for result in results]
    assert not any([result.is_error for result in results])


@pytest.mark.promise("N-07")
async def test_an_answer_cut_at_its_limit_runs_none_of_its_calls() -> None:
    """Arguments that may be incomplete are not executed; each call is told to be issued again, and the run goes on."""
    entered: list[int] = []

    @tool
    async def add(a: int) -> int:
        """Add."""
        entered.append(a)
        return a

    cut = AssistantMessage((call("add", a=1), call("add", a=2)), "length")
    outcome = await run_agent(using(add), "go", Ports(model=ScriptedModel([cut, call("add", a=3), text("done")])))

    assert isinstance(outcome, Completed)
    results = [message for message in outcome.transcript if isinstance(message, ToolMessage)]
    assert ([3], [True, True, False]) == (entered, [result.is_error for result in results])
    assert "Issue the call again" in results[0].text


@pytest.mark.promise("N-07")
@pytest.mark.case("oac-12")
async def test_calls_run_whatever_the_reason_for_stopping() -> None:
    """An answer that says `stop` and holds a call is a call."""

    @tool
    async def f() -> str:
        """Run."""
        return "ran"

    model = ScriptedModel([AssistantMessage((ToolCall("c1", "f", "{}"),), "stop"), text("done")])
    outcome = await run_agent(using(f), "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert ("ran", 2) == (outcome.transcript[2].text, len(model.requests))


@pytest.mark.case("oac-15")
async def test_a_stream_that_broke_runs_no_call() -> None:
    """A model port that gave up in the middle of a call has given no call."""
    from turnwright import ModelError

    entered: list[str] = []

    @tool
    async def rm(path: str) -> str:
        """Remove."""
        entered.append(path)
        return "gone"

    outcome = await run_agent(
        using(rm), "go", Ports(model=ScriptedModel([ModelError("connection", "the stream ended early")]))
    )

    assert isinstance(outcome, Suspended)
    assert ("model", "connection", []) == (outcome.reason, outcome.detail, entered)


@pytest.mark.promise("N-07")
@pytest.mark.case("oac-23")
@pytest.mark.parametrize(
    "name", ["functions.view", "default_api:view", "view<|channel|>analysis", "View", " view", "view\n", "", "x" * 9999]
)
async def test_a_decorated_name_is_answered_with_the_tools_there_are(name: str) -> None:
    """A name that is no tool's is an error result that names the tools; nothing else runs, and the run goes on."""

    @tool
    async def view() -> str:
        """View."""
        return "seen"

    (result,) = await seen(using(view), raw(name, "{}"))

    assert (True, True) == (result.is_error, "available tools: view" in result.text)
    assert len(result.text) < 300


# --- failures


@pytest.mark.promise("N-07")
@pytest.mark.parametrize(
    "error", [ValueError("bad"), RuntimeError(""), KeyError("k"), ExceptionGroup("many", [OSError()])]
)
async def test_whatever_a_tool_raises_is_a_result(error: Exception) -> None:
    """The model sees what it says, or at least what it is."""

    @tool
    async def fail() -> str:
        """Fail."""
        raise error

    @tool
    def fail_in_thread() -> str:
        """Fail."""
        raise error

    results = await seen(using(fail, fail_in_thread), call("fail"), call("fail_in_thread"))

    assert [(True, str(error) or type(error).__name__)] * 2 == [(result.is_error, result.text) for result in results]


@pytest.mark.promise("N-07")
async def test_a_result_without_json_says_that_the_tool_ran() -> None:
    """A tool whose value cannot be written down has had its effect: the model must not think that it may try again."""

    @tool
    async def pay() -> object:
        """Pay."""
        return object()

    (result,) = await seen(using(pay), call("pay"))

    assert (True, True) == (result.is_error, result.text.startswith("pay ran, but"))


@pytest.mark.promise("N-06", "N-07")
async def test_a_result_is_held_against_its_declared_type() -> None:
    """What a tool declares to return and does not is an error that says that it ran."""

    @tool(output=int)
    async def count() -> object:
        """Count."""
        return "many"

    (result,) = await seen(using(count), call("count"))

    assert (True, True) == (result.is_error, result.text.startswith("count ran, but its output is not valid"))


@pytest.mark.promise("N-07")
@pytest.mark.case("nam-01")
async def test_an_unknown_tool_costs_no_repair_of_the_output() -> None:
    """Calls of tools that do not exist leave the budget for repairs alone, and what stood beside them runs."""
    ran: list[int] = []

    @tool
    async def valid(x: int) -> str:
        """Run."""
        ran.append(x)
        return "ok"

    turn = [call("nonexistent"), call("valid", x=1)]
    outcome = await run_agent(using(valid, repairs=1), "go", Ports(model=ScriptedModel([turn, turn, text("done")])))

    assert isinstance(outcome, Completed)
    assert ("done", [1, 1]) == (outcome.output, ran)


@pytest.mark.promise("N-07")
@pytest.mark.case("loo-01")
async def test_a_tool_that_keeps_failing_is_held_back_however_it_is_spread() -> None:
    """With two retries it is entered three times, on whatever turns; then it is refused, and the run goes on."""
    entered: list[int] = []

    @tool(max_failures=2)
    async def flaky() -> str:
        """Fail."""
        entered.append(1)
        message = "try again"
        raise ValueError(message)

    @tool
    async def other() -> str:
        """Work."""
        return "fine"

    script = [call("flaky"), call("other")] * 4 + [text("done")]
    outcome = await run_agent(using(flaky, other), "go", Ports(model=ScriptedModel(script)), max_turns=20)

    assert isinstance(outcome, Completed)
    told = [m.text for m in outcome.transcript if isinstance(m, ToolMessage) and m.name == "flaky"]
    assert (3, ["try again"] * 3, True) == (len(entered), told[:3], "exceeded max retries of 2" in told[3])


@pytest.mark.case("loo-01")
async def test_a_success_forgives_earlier_failures() -> None:
    """The count is of failures in a row; refusals and bad arguments are none."""
    entered: list[bool] = []

    @tool(max_failures=1)
    async def flaky(fail: bool) -> str:
        """Fail or not."""
        entered.append(fail)
        if fail:
            message = "failed"
            raise ValueError(message)
        return "fine"

    pattern = [True, False, True, False, True, True, True]
    script: list[Reply] = [*[call("flaky", fail=fail) for fail in pattern], raw("flaky", "{}"), text("done")]
    outcome = await run_agent(using(flaky), "go", Ports(model=ScriptedModel(script)), max_turns=20)

    assert isinstance(outcome, Completed)
    assert pattern[:6] == entered


@pytest.mark.case("loo-01")
async def test_the_count_of_failures_survives_a_resume() -> None:
    """Another process knows how often the tool has failed."""
    entered: list[int] = []

    @tool(max_failures=1)
    async def flaky() -> str:
        """Fail."""
        entered.append(1)
        message = "failed"
        raise ValueError(message)

    agent, state = using(flaky), MemoryState()
    world = Ports(model=ScriptedModel([call("flaky")] * 4 + [text("done")]), state=state)
    await run_agent(agent, "go", world, run_id="r1", max_turns=2)

    outcome = await resume_agent(agent, "r1", replace(world, state=state.reopen()), max_turns=9)

    assert isinstance(outcome, Completed)
    assert 2 == len(entered)


# --- admission


@pytest.mark.promise("N-06", "N-07")
async def test_every_stage_refuses_in_its_place_and_in_words() -> None:
    """One call for each stage of admission: each is refused there, recorded with the stage, and nothing runs."""
    entered: list[str] = []

    def make(name: str, **contract: object) -> Tool[..., object]:
        async def work(n: int) -> str:
            entered.append(name)
            return "ran"

        work.__doc__ = "Work."
        return tool(name=name, **contract)(work)  # type: ignore[call-overload,no-any-return]

    def unprepared(_: object) -> object:
        message = "cannot prepare"
        raise ValueError(message)

    def guard(view: CallView) -> str | None:
        return "not today" if view.tool.name == "guarded" else None

    agent = using(
        make("plain"),
        make("prepared", prepare=unprepared),
        make("powerful", capability="root"),
        make("guarded"),
        guards=[guard],
        limits=Limits(calls_per_turn=6, argument_bytes=1000),
    )
    calls = [
        call("missing", n=1),
        raw("plain", "{"),
        call("prepared", n=1),
        call("plain", n="many"),
        call("powerful", n=1),
        call("guarded", n=1),
        call("plain", n=1),
    ]
    long = raw("plain", '{"n": 1' + " " * 1000 + "}")
    granted = frozenset({"tool.plain", "tool.prepared", "tool.guarded"})
    state = MemoryState()
    world = Ports(model=ScriptedModel([calls, long, text("done")]), capabilities=granted, state=state)

    outcome = await run_agent(agent, "go", world, run_id="r1")

    assert isinstance(outcome, Completed)
    stages = [each.code for each in await state.evidence("r1") if each.kind == "call_refused"]
    assert (["lookup", "prepare", "prepare", "validate", "capability", "guard", "limit", "limit"], []) == (
        stages,
        entered,
    )
    assert all([m.is_error for m in outcome.transcript if isinstance(m, ToolMessage)])


@pytest.mark.promise("N-06")
async def test_a_call_passes_the_stages_in_their_order() -> None:
    """Whatever is asked is asked in one order: prepare, guard, approval, budget, key, then the tool."""
    from turnwright.memory import MemoryApprovals, MemoryBudgets, MemoryIdempotency
    from turnwright.ports import Decision, Denied, Reserved

    order: list[str] = []

    def prepare(given: object) -> object:
        order.append("prepare")
        return given

    def decides(_: object) -> Decision:
        order.append("approval")
        return Decision(approved=True)

    class Budgets(MemoryBudgets):
        async def reserve(self, id: str, scopes: object, ask: object) -> Reserved | Denied:
            order.append("budget" if "tool_calls" in ask else "model")  # type: ignore[operator]
            return await super().reserve(id, scopes, ask)  # type: ignore[arg-type]

        async def settle(self, id: str, actual: object) -> None:
            order.append("settle")
            await super().settle(id, actual)  # type: ignore[arg-type]

    class Keys(MemoryIdempotency):
        async def begin(self, namespace: str, key: str, digest: str) -> object:  # type: ignore[override]
            order.append("key")
            return await super().begin(namespace, key, digest)

    @tool(prepare=prepare, approval="required", key=lambda _: "k")
    async def work(n: int) -> str:
        """Work."""
        order.append("execute")
        return "ran"

    def guard(*_: object) -> None:
        order.append("guard")

    world = Ports(
        model=ScriptedModel([call("work", n=1), text("done")]),
        approvals=MemoryApprovals(decides),
        budgets=Budgets({}),
        idempotency=Keys(),  # type: ignore[arg-type]
    )
    outcome = await run_agent(using(work, guards=[guard]), "go", world)

    assert isinstance(outcome, Completed)
    assert [
        *("model", "settle", "prepare", "guard", "approval", "budget", "key", "execute", "settle"),
        *("model", "settle"),
    ] == order


@pytest.mark.promise("N-06")
async def test_a_guard_may_rewrite_and_what_it_writes_is_validated() -> None:
    """The tool gets what the guard wrote, if that is valid; else nothing runs."""
    got: list[int] = []

    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        got.append(cents)
        return "paid"

    def cap(view: CallView) -> Rewrite | None:
        cents = view.arguments["cents"]
        assert isinstance(cents, int)
        if cents > 1000:
            return Rewrite({"cents": "lots"})
        return Rewrite({"cents": 100}) if cents > 100 else None

    results = await seen(using(pay, guards=[cap]), *[call("pay", cents=cents) for cents in (50, 500, 5000)])

    assert ([50, 100], [False, False, True]) == (got, [result.is_error for result in results])


@pytest.mark.promise("N-06")
@pytest.mark.parametrize("verdict", [True, False, 0, 1, ["no"], RuntimeError("broken")])
async def test_a_guard_that_gives_no_clear_yes_is_a_no(verdict: object) -> None:
    """A guard that raises, or gives what is no verdict, refuses."""

    @tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def guard(*_: object) -> object:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    (result,) = await seen(using(pay, guards=[guard]), call("pay"))

    assert (True, True) == (result.is_error, "pay was refused" in result.text)


@pytest.mark.promise("N-06")
async def test_what_a_guard_does_to_the_arguments_it_sees_changes_nothing() -> None:
    """A change goes through `Rewrite`; a guard that scribbles on its copy scribbles on its copy."""
    got: list[list[int]] = []

    @tool
    async def total(values: list[int]) -> int:
        """Add."""
        got.append(values)
        return sum(values)

    def scribble(view: CallView) -> None:
        view.arguments["values"].append(99)  # type: ignore[attr-defined]
        view.arguments["other"] = []  # type: ignore[index]

    await seen(using(total, guards=[scribble]), call("total", values=[1, 2]))

    assert [[1, 2]] == got


@pytest.mark.promise("N-09")
async def test_nobody_who_looks_at_the_arguments_can_change_what_runs() -> None:
    """The predicate, the approver, the key function and the tool itself each get their own copy."""
    from turnwright.memory import MemoryApprovals, MemoryIdempotency
    from turnwright.ports import ApprovalRequest, Decision

    got: list[list[int]] = []

    def scribble(arguments: object) -> None:
        arguments["values"].append(99)  # type: ignore[index]

    def must(arguments: object) -> bool:
        scribble(arguments)
        return True

    def approve(request: ApprovalRequest) -> Decision:
        scribble(request.arguments)
        return Decision(approved=True)

    def key(arguments: object) -> str:
        scribble(arguments)
        return "k"

    @tool(approval=must, key=key)
    async def total(values: list[int]) -> int:
        """Add."""
        got.append([*values])
        values.append(77)
        return sum(values[:2])

    made: list[object] = []
    state = MemoryState()
    agent = using(total, check_output=[lambda _, calls: made.extend([each.arguments for each in calls])])
    world = Ports(
        model=ScriptedModel([call("total", values=[1, 2]), text("done")]),
        approvals=MemoryApprovals(approve),
        idempotency=MemoryIdempotency(),
        state=state,
    )
    await run_agent(agent, "go", world, run_id="r1")

    admitted = next(entry for entry in await state.load("r1") if entry.kind == "CallAdmitted")
    assert [[1, 2]] == got
    assert [{"values": [1, 2]}] == made
    assert {"values": [1, 2]} == decode(admitted.body)["arguments"]  # type: ignore[call-overload,index]


# --- how a tool is run


@pytest.mark.case("con-12")
async def test_a_plain_function_sees_the_context_of_its_own_run() -> None:
    """It runs in a thread, with the context variables of whoever started the run."""
    user = contextvars.ContextVar("user", default="nobody")
    names: list[str] = []

    @tool
    def who() -> str:
        """Tell."""
        names.append(threading.current_thread().name)
        return user.get()

    @tool
    async def who_async() -> str:
        """Tell."""
        return user.get()

    async def as_user(name: str) -> list[str]:
        user.set(name)
        return [result.text for result in await seen(using(who, who_async), call("who"), call("who_async"))]

    got = await asyncio.gather(as_user("u1"), as_user("u2"))

    assert [["u1", "u1"], ["u2", "u2"]] == [*got]
    assert threading.main_thread().name not in names


async def test_a_wrapped_coroutine_function_is_awaited() -> None:
    """A decorator that hides that a function is asynchronous hides nothing from the engine."""

    def logged(function: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        @wraps(function)
        def inner(*args: object, **kwargs: object) -> Awaitable[str]:
            return function(*args, **kwargs)

        return inner

    @tool
    @logged
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0)
        return "worked"

    (result,) = await seen(using(work), call("work"))

    assert (False, "worked") == (result.is_error, result.text)


async def test_a_method_and_a_callable_object_are_tools() -> None:
    """Whatever can be called and says what it takes may be a tool, asynchronous or not."""

    class Counter:
        """Count up."""

        def __init__(self) -> None:
            self.n = 0

        def up(self, by: int) -> int:
            """Count up by *by*."""
            self.n += by
            return self.n

        async def __call__(self, by: int) -> int:
            self.n += by
            return self.n

    counter = Counter()
    results = await seen(using(tool(counter.up), tool(name="count")(counter)), call("up", by=2), call("count", by=0))

    assert ["2"] == [results[0].text]
    assert not results[1].is_error


async def test_a_tool_knows_its_call() -> None:
    """The context names run, call, turn and attempt, is hidden from the model, and its key is the effect's own."""
    contexts: list[ToolContext] = []

    @tool
    async def work(n: int, context: ToolContext) -> str:
        """Work."""
        contexts.append(context)
        return "ok"

    agent = using(work)
    world = Ports(model=ScriptedModel([[call("work", n=1), call("work", n=2)], text("done")]), tenant="t1")
    await run_agent(agent, "go", world, run_id="r1")

    assert {"n"} == agent.specs[0].parameters["properties"].keys()  # type: ignore[attr-defined]
    assert [("r1", "r1:1.0", 1, 0, 1), ("r1", "r1:1.1", 1, 1, 1)] == [
        (each.run_id, each.effect_id, each.turn, each.index, each.attempt) for each in contexts
    ]
    assert contexts[0].key != contexts[1].key


async def test_calls_of_one_answer_run_together_and_are_told_in_their_order() -> None:
    """The second may end before the first; the model sees them as it asked."""
    second = asyncio.Event()

    @tool
    async def first() -> str:
        """Wait for the second."""
        await second.wait()
        return "one"

    @tool
    async def last() -> str:
        """Let the first go on."""
        second.set()
        return "two"

    results = await seen(using(first, last), call("first"), call("last"))

    assert ["one", "two"] == [result.text for result in results]


async def test_calls_start_in_the_order_in_which_they_were_asked() -> None:
    """The order of starts is the model's, run after run."""
    started: list[int] = []

    @tool
    async def work(n: int) -> str:
        """Work."""
        started.append(n)
        await asyncio.sleep(0)
        return "ok"

    for _ in range(5):
        started.clear()
        await seen(using(work), *[call("work", n=n) for n in range(20)])
        assert [*range(20)] == started


async def test_a_sequential_tool_waits_for_earlier_calls_and_holds_later_ones() -> None:
    """Waves: what stands before it runs together, then it alone, then what stands after it."""
    at_work: list[str] = []
    overlaps: dict[str, set[str]] = {}

    async def body(name: str) -> str:
        overlaps[name] = set()
        at_work.append(name)
        for _ in range(5):
            await asyncio.sleep(0)
            overlaps[name] |= {*at_work}
        at_work.remove(name)
        return name

    @tool
    async def free(n: int) -> str:
        """Run with others."""
        return await body(f"free{n}")

    @tool(sequential=True)
    async def alone() -> str:
        """Run alone."""
        return await body("alone")

    calls = [call("free", n=1), call("free", n=2), call("alone"), call("free", n=3), call("free", n=4)]
    results = await seen(using(free, alone), *calls)

    assert ["free1", "free2", "alone", "free3", "free4"] == [result.text for result in results]
    assert ({"free1", "free2"}, {"alone"}, {"free3", "free4"}) == (
        overlaps["free1"],
        overlaps["alone"],
        overlaps["free3"],
    )


async def test_a_result_of_parts_is_shown_as_it_is() -> None:
    """Text and pictures of a ToolOutput go to the model, its details stay with people."""

    @tool
    async def draw() -> ToolOutput:
        """Draw."""
        return ToolOutput([Text("see"), Image("image/png", data="AAAA")], details={"secret": 1})

    (result,) = await seen(using(draw), call("draw"))

    assert (Text("see"), Image("image/png", data="AAAA")) == result.parts


async def test_a_long_result_is_cut_and_says_so() -> None:
    """The model is shown as much as the limit allows, with a mark."""

    @tool
    async def read() -> str:
        """Read."""
        return "é" * 1000

    (result,) = await seen(using(read, limits=Limits(output_bytes=100)), call("read"))

    assert len(result.text) < 200
    assert "cut" in result.text


async def test_rich_values_become_json_that_the_model_reads() -> None:
    """Classes, enumerations and the like are shown by their fields."""

    class Colour(Enum):
        RED = "red"

    @frozen
    class Point:
        x: int
        colour: Colour

    @tool
    async def give() -> Point:
        """Give."""
        return Point(1, Colour.RED)

    (result,) = await seen(using(give), call("give"))

    assert '{"x":1,"colour":"red"}' == result.text


async def test_sixty_four_calls_of_one_answer_run_and_the_next_is_refused() -> None:
    """The limit of calls in one turn holds, and refuses what is beyond it in words."""

    @tool
    async def work() -> str:
        """Work."""
        return "ok"

    results = await seen(using(work), *[call("work")] * 65)

    assert [False] * 64 + [True] == [result.is_error for result in results]
    assert set() == leftovers()


async def test_a_broken_predicate_asks_a_person() -> None:
    """A question that cannot be answered is not taken for a no."""

    def must(arguments: object) -> bool:
        message = "no idea"
        raise ValueError(message)

    @tool(approval=must)
    async def pay() -> str:
        """Pay."""
        return "paid"

    outcome: Outcome[str] = await run_agent(using(pay), "go", Ports(model=ScriptedModel([call("pay"), text("done")])))

    assert isinstance(outcome, Suspended)
    assert "approval" == outcome.reason


@pytest.mark.promise("N-02")
async def test_a_check_sees_the_calls_of_the_run() -> None:
    """An answer without evidence is sent back with the check's words, within the budget for repairs."""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    def grounded(_: str, calls: list[RunCall]) -> Issue | None:
        return None if any([each.name == "look" for each in calls]) else Issue("answer", "look first")

    agent = using(look, check_output=[grounded])
    model = ScriptedModel([text("I guess"), call("look"), text("I know")])
    outcome = await run_agent(agent, "go", Ports(model=model))
    lazy = await run_agent(agent, "go", Ports(model=ScriptedModel([text("I guess")] * 9)))

    assert isinstance(outcome, Completed)
    assert "I know" == outcome.output
    assert "look first" in model.requests[1].messages[-1].text
    assert isinstance(lazy, Failed)
    assert (("answer: look first",), 3) == (lazy.error.issues, lazy.usage.requests)


@pytest.mark.promise("N-06")
@pytest.mark.parametrize(
    ("word", "fits"), [("a" * 991, True), ("a" * 992, False), ("é" * 495, True), ("é" * 496, False)]
)
async def test_the_size_of_arguments_is_counted_in_bytes(word: str, fits: bool) -> None:
    """A limit holds for every script alike."""

    @tool
    async def echo(s: str) -> str:
        """Echo."""
        return "heard"

    (result,) = await seen(using(echo, limits=Limits(argument_bytes=999)), raw("echo", f'{{"s":"{word}"}}'))

    assert fits != result.is_error


@pytest.mark.promise("N-06", "N-07")
@pytest.mark.parametrize(
    "written", [None, [1], "n", 7, {"n": object()}, {"n": [object()]}, {7: 1}, {"n": float("nan")}, {"n": "\ud800"}, {}]
)
async def test_a_rewriting_that_is_no_set_of_arguments_refuses_the_call(written: object) -> None:
    """A guard that writes nonsense stops the call, not the run."""
    entered: list[object] = []

    @tool
    async def take(n: list[int]) -> str:
        """Take."""
        entered.append(n)
        return "taken"

    guard = lambda *_: Rewrite(written)  # type: ignore[arg-type]  # noqa: E731
    (result,) = await seen(using(take, guards=[guard]), call("take", n=[1]))

    assert (True, []) == (result.is_error, entered)


async def test_a_rewriting_may_hold_values_of_python() -> None:
    """Tuples and the like become what JSON has for them, and that is what runs and is recorded."""
    got: list[object] = []
    calls: list[object] = []

    @tool
    async def take(n: list[int]) -> str:
        """Take."""
        got.append(n)
        return "taken"

    agent = using(
        take,
        guards=[lambda *_: Rewrite({"n": (1, 2)})],
        check_output=[lambda _, made: calls.extend([each.arguments for each in made])],
    )
    await seen(agent, call("take", n=[7]))

    assert ([[1, 2]], [{"n": [1, 2]}]) == (got, calls)
