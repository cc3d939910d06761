"""What happens in a turn of an agent and between two: requests, calls, their hooks, whether another turn follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from attrs import evolve as replace

from tests.agent.listening import Heard
from tests.driver.virtual import LoopClock, leftovers, run
from tests.laws.test_balance import unbalanced
from turnwright import Block, Completed, Limits, ModelError, Ports, Rewrite, ToolContext, ToolOutput, tool
from turnwright.agent import Agent, NextTurn, Signal, ToolCallContext, TurnContext
from turnwright.deltas import ReasoningDelta, TextDelta
from turnwright.lifecycle import LifecycleEvent, MessageStart, MessageUpdate, ToolExecutionEnd, ToolExecutionStart
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from turnwright.ports import ModelRequest
from turnwright.testing import ScriptedModel, call, fails, text


@tool(replay="safe")
async def look(at: str = "it") -> str:
    """Look."""
    return f"seen {at}"


def said(agent: Agent) -> list[str]:
    """What people said, in order."""
    return [each.text for each in agent.state.messages if each.role == "user"]


def results(agent: Agent) -> list[ToolMessage]:
    """The results of calls, in order."""
    return [each for each in agent.state.messages if isinstance(each, ToolMessage)]


# --- calls


@pytest.mark.promise("P-05", "P-06")
async def test_nothing_runs_before_every_call_of_the_answer_was_looked_at() -> None:
    """A10: the hook sees each call in the order of the answer, and only then the first tool starts."""
    steps: list[str] = []

    @tool(replay="safe")
    async def work(n: int) -> str:
        """Work."""
        steps.append(f"run {n}")
        return "worked"

    async def before(context: ToolCallContext, _: Signal) -> None:
        await asyncio.sleep(0)
        steps.append(f"look {context.arguments['n']}")

    agent = Agent(
        ScriptedModel([[call("work", n=1), call("work", n=2)], text("done")]), tools=[work], before_tool_call=before
    )

    await agent.prompt("go")

    assert ["look 1", "look 2", "run 1", "run 2"] == steps


@pytest.mark.promise("P-05")
@pytest.mark.parametrize(("sequential", "most"), [(False, 3), (True, 1)])
async def test_a_sequential_tool_overlaps_with_no_other_call(sequential: bool, most: int) -> None:
    """A8 and A9: calls overlap unless one of them is marked; then it waits for the earlier and the later for it."""
    at_work = highest = 0

    async def work() -> str:
        """Work."""
        nonlocal at_work, highest
        at_work += 1
        highest = max(highest, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        return "worked"

    plain = tool(replay="safe", name="plain")(work)
    marked = tool(replay="safe", name="marked", sequential=sequential)(work)
    agent = Agent(ScriptedModel([[call("plain"), call("marked"), call("plain")], text("done")]), tools=[plain, marked])

    await agent.prompt("go")

    assert most == highest
    assert ["plain", "marked", "plain"] == [each.name for each in results(agent)]


@pytest.mark.promise("P-05")
async def test_a_sequential_call_parts_the_others_into_waves() -> None:
    """Section 7, weak point 10: those before it run together, and so do those after it."""
    steps: list[str] = []

    async def work(n: int) -> str:
        """Work."""
        steps.append(f"{n}+")
        await asyncio.sleep(0)
        steps.append(f"{n}-")
        return "worked"

    plain = tool(replay="safe", name="plain", label="A plain one")(work)
    marked = tool(replay="safe", name="marked", sequential=True)(work)
    calls = [call(name, n=n) for n, name in enumerate(["plain", "plain", "marked", "plain", "plain"])]
    agent = Agent(ScriptedModel([calls, text("done")]), tools=[plain, marked])

    await agent.prompt("go")

    assert ["0+", "1+", "0-", "1-", "2+", "2-", "3+", "4+", "3-", "4-"] == steps
    assert ["A plain one", "marked"] == [each.label for each in agent.state.tools]


@pytest.mark.promise("P-06")
async def test_the_hook_before_a_call_sees_the_answer_in_the_transcript() -> None:
    """A11: the message that asks for the call is over for every listener."""
    seen: list[Message] = []
    agent = Agent(
        ScriptedModel([call("look"), text("done")]),
        tools=[look],
        before_tool_call=lambda context, _: seen.extend([agent.state.messages[-1], context.message]),  # type: ignore[func-returns-value]
    )

    await agent.prompt("go")

    assert [agent.state.messages[1]] * 2 == seen


@pytest.mark.promise("P-13")
async def test_calls_of_an_answer_that_failed_are_never_told() -> None:
    """A13: what had come of a call is in the transcript, and no event of a tool follows."""
    half = AssistantMessage((Text("let me"), ToolCall("", "look", '{"at": ')))
    agent = Agent(ScriptedModel([ModelError("overloaded", "cut", partial=half)]), tools=[look])
    heard = Heard(agent)

    await agent.prompt("go")

    assert [] == [word for word in heard.order if word.startswith("te_")]
    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert ("error", "let me", "overloaded: cut") == (last.stop_reason, last.text, agent.state.error_message)


@pytest.mark.promise("P-07")
@pytest.mark.parametrize(
    ("calls", "requests"), [(["finish", "finish"], 1), (["finish", "look"], 2), (["look", "finish"], 2)]
)
async def test_only_a_batch_that_terminates_as_a_whole_needs_no_other_answer(calls: list[str], requests: int) -> None:
    """A14 and A16: a mixed batch goes on; the mark is in no message."""

    @tool
    async def finish() -> ToolOutput:
        """Finish."""
        return ToolOutput("finished", terminate=True)

    model = ScriptedModel([[call(name) for name in calls], text("done")])
    agent = Agent(model, tools=[finish, look])

    await agent.prompt("go")

    assert requests == len(model.requests)
    assert all([not hasattr(each, "terminate") for each in results(agent)])


@pytest.mark.promise("P-06", "P-07")
@pytest.mark.parametrize(("second", "requests"), [(True, 1), (False, 2)])
async def test_hooks_may_terminate_too(second: bool, requests: int) -> None:
    """A15: by a block before the call, by an override after it, and only together."""

    def before(context: ToolCallContext, _: Signal) -> Block | None:
        return Block("no", terminate=True) if context.arguments["at"] == "a" else None

    def after(context: ToolCallContext, output: ToolOutput, _: Signal) -> ToolOutput:
        return ToolOutput(output.content, terminate=second)

    model = ScriptedModel([[call("look", at="a"), call("look", at="b")], text("done")])
    agent = Agent(model, tools=[look], before_tool_call=before, after_tool_call=after)

    await agent.prompt("go")

    assert (requests, ["no", "seen b"]) == (len(model.requests), [each.text for each in results(agent)])


@pytest.mark.promise("P-07")
async def test_what_is_queued_goes_on_after_a_batch_that_terminates() -> None:
    """Section 1.10: a terminating batch only spares the automatic request."""

    @tool
    async def finish() -> ToolOutput:
        """Finish."""
        agent.follow_up("and?")
        return ToolOutput("finished", terminate=True)

    agent = Agent(ScriptedModel([call("finish"), text("more")]), tools=[finish])

    await agent.prompt("go")

    assert (["go", "and?"], "more", ()) == (said(agent), agent.state.messages[-1].text, agent.queued)


@pytest.mark.promise("P-02")
async def test_a_model_may_use_an_id_again() -> None:
    """Q11: a result belongs to the call of its own turn, whatever the provider calls it."""
    again = [ToolCall("call-1", "look", '{"at": "here"}'), ToolCall("call-1", "look", '{"at": "there"}')]
    model = ScriptedModel([AssistantMessage([each], "tool_calls") for each in again] + [text("done")])
    agent = Agent(model, tools=[look])

    await agent.prompt("go")

    assert (["seen here", "seen there"], frozenset()) == (
        [each.text for each in results(agent)],
        agent.state.pending_tool_calls,
    )


@pytest.mark.promise("P-06")
async def test_a_hook_that_fails_after_a_call_makes_that_result_an_error() -> None:
    """A17: the sibling is as it was."""

    def after(context: ToolCallContext, output: ToolOutput, _: Signal) -> None:
        if context.arguments["at"] == "a":
            raise RuntimeError("no view")

    agent = Agent(
        ScriptedModel([[call("look", at="a"), call("look", at="b")], text("done")]),
        tools=[look],
        after_tool_call=after,
    )

    await agent.prompt("go")

    first, other = results(agent)
    assert (True, False, "seen b") == (first.is_error, other.is_error, other.text)
    assert "no view" in first.text


@pytest.mark.promise("P-06")
async def test_a_hook_may_make_good_what_failed_and_empty_what_was_said() -> None:
    """A18, Q15: a failed result is overridden whole, also by nothing."""

    @tool(replay="safe")
    async def fail(n: int) -> str:
        """Fail."""
        raise RuntimeError("broken")

    def after(context: ToolCallContext, output: ToolOutput, _: Signal) -> ToolOutput:
        return ToolOutput("fine after all" if context.arguments["n"] == 1 else "", is_error=False)

    agent = Agent(
        ScriptedModel([[call("fail", n=1), call("fail", n=2)], text("done")]), tools=[fail], after_tool_call=after
    )

    await agent.prompt("go")

    assert [("fine after all", False), ("", False)] == [(each.text, each.is_error) for each in results(agent)]


@pytest.mark.promise("P-06", "P-15")
@pytest.mark.parametrize("where", ["hook", "prepare", "validation", "unknown"])
async def test_a_call_that_cannot_be_made_is_an_error_and_the_run_goes_on(where: str) -> None:
    """A19 and A22: a start, an end that is an error, a result; the function is never entered."""
    entered: list[int] = []

    def prepare(raw: object) -> object:
        if where == "prepare":
            raise RuntimeError("bad prepare")
        return raw

    @tool(replay="safe", prepare=prepare)
    async def work(n: int) -> str:
        """Work."""
        entered.append(n)
        return "worked"

    def before(*_: object) -> None:
        raise RuntimeError("bad hook")

    name, n = ("other" if where == "unknown" else "work"), ("x" if where == "validation" else 1)
    agent = Agent(
        ScriptedModel([call(name, n=n), text("done")]),
        tools=[work],
        before_tool_call=before if where == "hook" else None,
    )
    heard = Heard(agent)

    await agent.prompt("go")

    assert [f"te_start({name})", f"te_end({name}, err)"] == [word for word in heard.order if word[:3] == "te_"]
    assert ([], "done", True) == (entered, agent.state.messages[-1].text, results(agent)[0].is_error)


@pytest.mark.promise("P-06")
async def test_who_empties_the_transcript_while_tools_run_loses_no_result() -> None:
    """The hooks after them see the answer that they belong to; a change counts from the next prompt on."""
    seen: list[AssistantMessage] = []

    @tool(replay="safe")
    async def clear() -> str:
        """Clear."""
        agent.state.messages = []
        return "cleared"

    def after(context: ToolCallContext, output: ToolOutput, signal: Signal) -> None:
        seen.append(context.message)

    agent = Agent(ScriptedModel([[call("clear"), call("clear")], text("done")]), tools=[clear], after_tool_call=after)
    await agent.prompt("go")

    assert [2, 2] == [len(each.calls) for each in seen]
    assert [(False, "cleared")] == [*{(each.is_error, each.text) for each in results(agent)}]


@pytest.mark.promise("P-06")
@pytest.mark.parametrize(("n", "entered"), [(7, [7]), ("x", [])])
async def test_arguments_that_a_hook_replaces_are_validated_again(n: object, entered: list[int]) -> None:
    """A20 as decided in section 7: the hook gives other arguments, and these are held to the schema as well."""
    got: list[int] = []

    @tool(replay="safe")
    async def work(n: int) -> str:
        """Work."""
        got.append(n)
        return "worked"

    agent = Agent(
        ScriptedModel([call("work", n=1), text("done")]), tools=[work], before_tool_call=lambda *_: Rewrite({"n": n})
    )

    await agent.prompt("go")

    assert entered == got


@pytest.mark.promise("P-15")
async def test_prepared_arguments_are_what_is_validated_and_raw_ones_what_is_told() -> None:
    """A21: an outdated shape is made new."""

    @tool(replay="safe", prepare=lambda raw: {"at": raw["place"]} if "place" in raw else raw)  # type: ignore[index,operator]
    async def peek(at: str) -> str:
        """Peek."""
        return at

    agent = Agent(ScriptedModel([call("peek", place="home"), text("done")]), tools=[peek])
    heard = Heard(agent)

    await agent.prompt("go")

    start = next(each for each in heard.events if isinstance(each, ToolExecutionStart))
    assert ("home", '{"place":"home"}') == (results(agent)[0].text, start.arguments)


@pytest.mark.promise("P-15")
async def test_progress_arrives_before_the_end_of_its_call_and_never_after() -> None:
    """A23, A24 and P8: a burst before the return is told; what comes later is dropped, while a sibling runs too."""
    contexts: list[ToolContext] = []
    burst_is_over = asyncio.Event()

    @tool(replay="safe")
    async def burst(context: ToolContext) -> str:
        """Tell a lot."""
        contexts.append(context)
        for n in range(5):
            context.update(str(n))
        return "done"

    @tool(replay="safe")
    async def last() -> str:
        """Come last."""
        await burst_is_over.wait()
        contexts[0].update("too late")
        return "done"

    agent = Agent(ScriptedModel([[call("burst"), call("last")], text("done")]), tools=[burst, last])
    heard = Heard(agent)
    agent.subscribe(lambda event, _: burst_is_over.set() if isinstance(event, ToolExecutionEnd) else None)

    await agent.prompt("go")
    contexts[0].update("much too late")

    of_calls = [word for word in heard.order if word.startswith("te_")]
    assert ["te_start(burst)", "te_start(last)", *["te_update(burst)"] * 5, "te_end(burst)", "te_end(last)"] == of_calls


@pytest.mark.promise("P-15")
@pytest.mark.case("arg-15")
@pytest.mark.parametrize(("value", "shown"), [(None, "null"), (False, "false"), (0, "0"), ("", ""), ([], "[]")])
async def test_a_tool_that_returns_nothing_has_a_result_all_the_same(value: object, shown: str) -> None:
    """A25: what is falsy is a result like any other."""

    @tool(replay="safe")
    async def give() -> object:
        """Give."""
        return value

    agent = Agent(ScriptedModel([call("give"), text("done")]), tools=[give])

    await agent.prompt("go")

    assert [(shown, False)] == [(each.text, each.is_error) for each in results(agent)]


@pytest.mark.promise("P-15")
@pytest.mark.case("con-02", "con-10")
@pytest.mark.parametrize("error", [asyncio.CancelledError("inner"), TimeoutError("inner")])
async def test_a_tool_that_cancels_itself_or_is_late_by_its_own_clock_is_an_error_of_its_own(
    error: BaseException,
) -> None:
    """The run goes on, and nobody takes it for its own end."""

    @tool
    async def work() -> str:
        """Work."""
        raise error

    agent = Agent(ScriptedModel([call("work"), text("done")]), tools=[work])

    await agent.prompt("go")

    assert (True, "done", None) == (
        results(agent)[0].is_error,
        agent.state.messages[-1].text,
        agent.state.error_message,
    )


@pytest.mark.promise("I-01")
async def test_images_and_files_travel_in_prompts_in_the_queue_and_in_results() -> None:
    """B19: each arrives at the model as it was given."""
    picture, paper = Image("image/png", data="aGk="), File("application/pdf", id="f1")

    @tool(replay="safe")
    async def draw() -> ToolOutput:
        """Draw."""
        return ToolOutput([Text("here"), picture, paper])

    model = ScriptedModel([call("draw"), text("nice"), text("again")])
    agent = Agent(model, tools=[draw])
    agent.follow_up(UserMessage((Text("and this"), paper)))

    await agent.prompt("look", [picture, paper])

    shown = [[part.type for part in message.parts] for message in model.requests[-1].messages]
    both = ["text", "image", "file"]
    assert [both, ["tool_call"], both, ["text"], ["text", "file"]] == shown


# --- requests


@pytest.mark.promise("P-03", "P-04", "P-18")
async def test_the_context_is_transformed_then_converted_then_the_key_is_asked_for() -> None:
    """A31 and A32: before every request, in this order; a late edit of the prompt counts; own messages stay."""
    steps: list[str] = []

    def transform(messages: Sequence[Message], _: Signal) -> Sequence[Message]:
        steps.append(f"transform {len(messages)}")
        return messages

    async def convert(messages: Sequence[Message]) -> Sequence[Message]:
        steps.append("convert")
        return [UserMessage(f"note: {m.data}") if isinstance(m, UserMessage) and m.kind else m for m in messages]

    def key(provider: str) -> str:
        steps.append(f"key for {provider or 'nobody'}")
        agent.state.system_prompt = f"prompt {len(steps)}"
        return f"key {len(steps)}"

    model = ScriptedModel([call("look"), text("done")])
    agent = Agent(model, tools=[look], transform_context=transform, convert_to_llm=convert, get_api_key=key)
    await agent.prompt([UserMessage((), kind="note", data="remember"), UserMessage("go")])

    assert [("key 3", "prompt 3"), ("key 6", "prompt 6")] == [(r.api_key, r.instruction) for r in model.requests]
    assert ["transform 2", "convert", "key for nobody", "transform 4", "convert", "key for nobody"] == steps
    assert "note: remember" == model.requests[0].messages[0].text
    assert "note" == getattr(agent.state.messages[0], "kind", "")


@pytest.mark.promise("P-03")
async def test_a_message_of_ones_own_kind_is_not_for_the_model_unless_somebody_says_so() -> None:
    """The default converter passes what people, models and tools said."""
    model = ScriptedModel([text("hi")])
    agent = Agent(model)

    await agent.prompt([UserMessage("", kind="bookmark"), UserMessage("hello")])

    assert (["hello"], 3) == ([each.text for each in model.requests[0].messages], len(agent.state.messages))


@pytest.mark.promise("P-16")
async def test_the_session_and_how_much_to_think_go_with_every_request() -> None:
    """B15: an explicit off too; the options of the owner go before."""
    model = ScriptedModel([text("a"), text("b"), text("c")])
    agent = Agent(model, session_id=None, thinking_budgets={"low": 77}, options={"cache_retention": "long"})

    await agent.prompt("one")
    agent.state.thinking_level = "low"
    await agent.prompt("two")
    agent.options["session_id"] = "other"
    agent.state.thinking_level = "high"
    await agent.prompt("three")

    same = {"cache_retention": "long", "session_id": agent.session_id}
    assert [
        {**same, "thinking_level": "off"},
        {**same, "thinking_level": "low", "thinking_budget": 77},
        {**same, "thinking_level": "high", "session_id": "other"},
    ] == [request.options for request in model.requests]


@pytest.mark.promise("P-13")
@pytest.mark.case("loo-07")
@pytest.mark.parametrize(("second", "last", "requests"), [("here", "here", 3), ("", "", 3)])
async def test_an_empty_answer_is_asked_for_once_more(second: str, last: str, requests: int) -> None:
    """P2: silently; the second time it is an error, and an earlier text is never taken for the answer."""
    replies = iter([AssistantMessage((Text("let me check"), call("look"))), text(""), text(second)])
    model = ScriptedModel([lambda _: next(replies), lambda _: next(replies)])
    agent = Agent(model, tools=[look])
    heard = Heard(agent)

    await agent.prompt("go")

    assert (last, requests) == (agent.state.messages[-1].text, len(model.requests))
    assert (None if second else "malformed: the model gave an empty answer, twice") == agent.state.error_message
    assert 2 == heard.order.count("me(asst)")


@pytest.mark.promise("P-13", "P-16")
@pytest.mark.parametrize("part", [Image("image/png", "aGk="), File("application/pdf", "aGk="), Refusal("no")])
async def test_an_answer_without_words_is_an_answer(part: Part) -> None:
    """A picture is not asked, and paid, for twice."""
    model = ScriptedModel([AssistantMessage((part,))])
    agent = Agent(model)

    await agent.prompt("draw")

    assert (1, None) == (len(model.requests), agent.state.error_message)
    assert (part,) == agent.state.messages[-1].parts


@pytest.mark.promise("P-13", "P-16")
@pytest.mark.parametrize("fails", [False, True])
async def test_what_an_empty_answer_thought_is_unsaid_and_what_it_cost_counts(fails: bool) -> None:
    """Whoever shows the pieces shows one answer; the first is paid for also where the second fails."""
    empty = AssistantMessage((Reasoning("hm"),), usage=Usage(1, 10, 2))
    second = AssistantMessage((Reasoning("so"), Text("here")), usage=Usage(1, 20, 3))
    failure = ModelError("invalid_request", "no", partial=replace(second, stop_reason="error"))
    replies = iter([empty, failure if fails else second])
    agent = Agent(ScriptedModel([lambda _: next(replies)]))
    shown: list[str] = []

    def show(event: LifecycleEvent, signal: Signal) -> None:
        match event:
            case MessageStart(role="assistant"):
                shown.clear()
            case MessageUpdate(delta=ReasoningDelta(text=piece) | TextDelta(text=piece)):
                shown.append(piece)
            case _:
                pass

    agent.subscribe(show)
    await agent.prompt("go")

    (answer,) = [each for each in agent.state.messages if isinstance(each, AssistantMessage)]
    assert (Usage(2, 30, 5), second.parts) == (answer.usage, answer.parts)
    assert fails or ["so", "here"] == shown


@pytest.mark.promise("P-13")
async def test_an_answer_that_calls_for_tools_and_names_none_is_no_end() -> None:
    """Q20: it is asked for once more, and then it is an error."""
    model = ScriptedModel([text("now", stop_reason="tool_calls")])
    agent = Agent(model)

    await agent.prompt("go")

    assert (2, "malformed: the model called for tools and named none, twice") == (
        *(len(model.requests), agent.state.error_message),
    )


class Silent(ScriptedModel):
    """Answers without a single piece before."""

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Answer at once."""
        return text("whole")


@pytest.mark.promise("P-02")
async def test_an_answer_that_comes_whole_is_begun_before_it_ends() -> None:
    """A29: every end of a message has its start."""
    agent = Agent(Silent([]))
    heard = Heard(agent)

    await agent.prompt("go")

    assert ["ms(asst)", "me(asst)"] == heard.order[4:6]


# --- between turns


@pytest.mark.promise("P-09")
async def test_to_stop_after_a_turn_leaves_the_queues_alone() -> None:
    """A26: the tools of the turn are done, nothing is asked any more, the stop reason is what it was."""
    seen: list[TurnContext] = []

    async def stop(context: TurnContext, _: Signal) -> bool:
        seen.append(context)
        return True

    model = ScriptedModel([call("look"), text("never")])
    agent = Agent(model, tools=[look], should_stop_after_turn=stop)
    agent.follow_up("later")

    await agent.prompt("go")

    assert (1, ["later"], ["seen it"]) == (
        len(model.requests),
        [each.messages[0].text for each in agent.queued],
        [each.text for each in seen[0].tool_results],
    )
    answer = agent.state.messages[1]
    assert isinstance(answer, AssistantMessage)
    assert (answer, "tool_calls") == (seen[0].message, answer.stop_reason)


@pytest.mark.promise("P-09")
@pytest.mark.parametrize("stops", [False, True])
async def test_whoever_goes_on_wants_the_next_turn_and_no_more(stops: bool) -> None:
    """After a stop the hooks are not asked about that turn again; after a failure, as after any other turn."""
    asked: list[int] = []

    async def stop(context: TurnContext, _: Signal) -> bool:
        if context.tool_results:
            asked.append(sum([isinstance(each, ToolMessage) for each in context.messages]))
        return stops and len(asked) == 1

    failing = fails(ModelError("overloaded", "busy"), then=call("look"))
    model = ScriptedModel([call("look"), call("look") if stops else failing, text("done")])
    agent = Agent(model, tools=[look], should_stop_after_turn=stop)

    await agent.prompt("go")
    outcome = await agent.continue_()

    assert isinstance(outcome, Completed)
    assert [1, 2] == asked


@pytest.mark.promise("P-09")
@pytest.mark.parametrize("steered", [False, True])
async def test_to_stop_before_a_turn_lets_what_somebody_said_go_first(steered: bool) -> None:
    """A27: after a batch no request follows, unless steering was there already."""

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        if steered:
            agent.steer("wait")
        return "worked"

    model = ScriptedModel([call("work"), text("done")])
    agent = Agent(model, tools=[work], should_stop_before_turn=lambda: True)

    await agent.prompt("go")

    assert (2 if steered else 1, ()) == (len(model.requests), agent.queued)
    assert (["go", "wait"] if steered else ["go"]) == said(agent)


@pytest.mark.promise("P-09")
async def test_the_next_turn_is_prepared_only_where_there_is_one() -> None:
    """A28 and Q18: model, prompt, thinking and context change from the next request on."""
    second = ScriptedModel([text("never"), text("done")])
    asked: list[int] = []

    def prepare(context: TurnContext, _: Signal) -> NextTurn:
        asked.append(len(context.new_messages))
        summary = [UserMessage("in short"), AssistantMessage("yes")]
        return NextTurn(second, "Be quick.", summary, "high")

    first = ScriptedModel([call("look")])
    agent = Agent(first, tools=[look], prepare_next_turn=prepare)

    await agent.prompt("go")

    (request,) = second.requests
    assert ([3], "Be quick.", "high") == (asked, request.instruction, request.options["thinking_level"])
    assert ["in short", "yes"] == [each.text for each in request.messages]
    assert ["user", "assistant", "tool", "assistant"] == [each.role for each in agent.state.messages]


@pytest.mark.promise("P-09", "P-08")
async def test_continuations_are_asked_for_when_nobody_has_anything_to_say() -> None:
    """A6: the follow-up goes first, and the hook is asked only when both queues are empty."""
    more = iter([[UserMessage("and then?")], []])
    queued: list[int] = []

    async def go_on(_: TurnContext, __: Signal) -> list[UserMessage]:
        queued.append(len(agent.queued))
        return next(more)

    agent = Agent(ScriptedModel([text("1"), text("2"), text("3")]), get_continuation_messages=go_on)
    agent.follow_up("also")

    await agent.prompt("go")

    assert (["go", "also", "and then?"], [0, 0]) == (said(agent), queued)


@pytest.mark.promise("P-09", "P-13")
@pytest.mark.parametrize("hook", ["should_stop_after_turn", "prepare_next_turn", "get_continuation_messages"])
async def test_a_hook_between_turns_that_fails_is_told_and_not_raised(hook: str) -> None:
    """Section 1.12: the run ends in balance, with its messages, and says why."""

    def broken(*_: object) -> bool:
        raise RuntimeError("no idea")

    agent = Agent(ScriptedModel([call("look"), text("done")]), tools=[look])
    setattr(agent, hook, broken)
    heard = Heard(agent)

    await agent.prompt("go")

    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert ("error", "boundary: boundary failed: no idea") == (last.stop_reason, last.error)
    assert last.error == agent.state.error_message
    assert ["turn_end(0)", f"agent_end({len(agent.state.messages)})"] == heard.order[-2:]
    assert [] == unbalanced(heard.events)


@pytest.mark.case("loo-03")
@pytest.mark.promise("P-08")
async def test_the_bound_of_a_prompt_drops_nothing_that_was_said() -> None:
    """Two turns are two requests, their results are there, and what was steered meanwhile waits."""

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        if len(results(agent)) == 1:
            agent.steer("hurry")
        return "worked"

    model = ScriptedModel([call("work"), call("work"), call("work")])
    agent = Agent(model, tools=[work], max_turns=2)
    heard = Heard(agent)

    await agent.prompt("go")

    assert (2, 2, ["hurry"]) == (len(model.requests), len(results(agent)), [q.messages[0].text for q in agent.queued])
    assert ("max_turns", "agent_end(5)") == (agent.state.error_message, heard.order[-1])


# --- bounds


@pytest.mark.promise("P-05", "P-15")
@pytest.mark.parametrize(("bound", "most"), [(1, 1), (2, 2), (None, 5)])
async def test_no_more_calls_run_at_once_than_the_limit_says(bound: int | None, most: int) -> None:
    """Section 7, weak point 10: all of them run, and their results are in the order of the calls."""
    at_work = highest = 0

    @tool(replay="safe")
    async def work(n: int) -> int:
        """Work."""
        nonlocal at_work, highest
        at_work += 1
        highest = max(highest, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        return n

    agent = Agent(
        ScriptedModel([[call("work", n=n) for n in range(5)], text("done")]),
        tools=[work],
        limits=Limits(calls_at_once=bound),
    )
    heard = Heard(agent)

    await agent.prompt("go")

    assert (most, [*"01234"]) == (highest, [each.text for each in results(agent)])
    assert ["turn_end(5)", "turn_end(0)"] == [word for word in heard.order if word.startswith("turn_end")]


@pytest.mark.promise("P-15")
@pytest.mark.case("con-04", "con-01")
def test_a_call_that_takes_too_long_is_an_error_and_its_siblings_are_as_they_were() -> None:
    """Its cleanup has the grace and no more; a sibling that raises or works is not touched."""

    @tool(replay="safe", timeout=0.05)
    async def slow() -> str:
        """Be slow, and slow to clean up."""
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(30)
        return "never"

    @tool(replay="safe")
    async def raises() -> str:
        """Raise."""
        raise RuntimeError("boom")

    @tool(replay="safe")
    async def steady() -> str:
        """Be steady."""
        await asyncio.sleep(0.5)
        return "steady"

    async def scene() -> None:
        model = ScriptedModel([[call("slow"), call("raises"), call("steady")], text("done")])
        agent = Agent(model, tools=[slow, raises, steady], ports=Ports(model, clock=LoopClock(), grace=1.0))
        began = asyncio.get_running_loop().time()

        await agent.prompt("go")

        assert asyncio.get_running_loop().time() - began < 1.2
        assert [("slow timed out after 0.05 s", True), ("boom", True), ("steady", False)] == [
            (each.text, each.is_error) for each in results(agent)
        ]
        await asyncio.sleep(60)
        assert set() == leftovers()

    run(scene())
