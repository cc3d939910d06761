"""What an agent promises its owner: one thing at a time, listeners, queues, failures that are told and not raised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tests.agent.listening import Heard
from tests.laws.test_balance import unbalanced
from turnwright import AgentError, MemoryState, ModelError, tool
from turnwright.agent import Agent, QueueMode, Signal
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import AssistantMessage, File, Image, Message, Text, UserMessage
from turnwright.outcomes import Completed
from turnwright.ports import Append, ModelRequest
from turnwright.testing import ScriptedModel, call, text


@tool(replay="safe")
async def look() -> str:
    """Look."""
    return "seen"


@tool(approval="required")
async def pay() -> str:
    """Pay."""
    return "paid"


def said(agent: Agent) -> list[str]:
    """What people said, in order."""
    return [each.text for each in agent.state.messages if each.role == "user"]


def queued(agent: Agent) -> list[str]:
    """What waits, in order."""
    return [each.text for item in agent.queued for each in item.messages]


def at(kind: str, do: object, times: int = 1) -> object:
    """A listener that does something the first *times* an event of *kind* comes."""
    left = [times]

    def listen(event: LifecycleEvent, signal: Signal) -> None:
        if event.type == kind and left[0]:
            left[0] -= 1
            do()  # type: ignore[operator]

    return listen


# --- saying something


@pytest.mark.promise("P-01")
async def test_a_prompt_is_text_or_a_message_or_several() -> None:
    """Text comes with its images and files, messages are as they are, and the transcript grows by all of it."""
    picture, paper = Image("image/png", data="aGk="), File("application/pdf", data="aGk=", name="a.pdf")
    agent = Agent(ScriptedModel([text("1"), text("2"), text("3")]))

    outcome = await agent.prompt("one", [picture, paper])
    await agent.prompt(UserMessage("two"))
    await agent.prompt([UserMessage("three"), UserMessage("four")])

    assert isinstance(outcome, Completed)
    assert ("1", "stop", (Text("one"), picture, paper)) == (
        outcome.output,
        getattr(outcome.transcript[-1], "stop_reason", ""),
        agent.state.messages[0].parts,
    )
    assert ["one", "1", "two", "2", "three", "four", "3"] == [each.text for each in agent.state.messages]


@pytest.mark.promise("P-01")
@pytest.mark.parametrize("odd", [3, [3], AssistantMessage("me"), None])
async def test_what_is_no_message_is_refused_before_any_work(odd: object) -> None:
    """By name, and with nothing changed."""
    agent = Agent(ScriptedModel([text("hi")]))

    for say in (agent.prompt, agent.steer, agent.follow_up):
        with pytest.raises(TypeError):
            await say(odd)  # type: ignore[arg-type,operator]

    assert ([], ()) == (agent.state.messages, agent.queued)


@pytest.mark.promise("P-01")
def test_a_caller_without_a_loop_prompts_too() -> None:
    """One prompt after another, each on a loop of its own."""
    agent = Agent(ScriptedModel([text("1"), call("look"), text("2")]), tools=[look])

    agent.prompt_sync("one")
    agent.prompt_sync("two")

    assert ["one", "1", "two", "", "seen", "2"] == [each.text for each in agent.state.messages]


@pytest.mark.promise("P-01")
async def test_to_continue_needs_something_to_continue_with() -> None:
    """A33: an empty transcript and an answer at its end are refused at once, and nothing is told."""
    agent = Agent(ScriptedModel([text("never")]))
    heard = Heard(agent)

    for messages in ([], [UserMessage("hi"), AssistantMessage("hello")]):
        agent.state.messages = messages
        with pytest.raises(AgentError) as refused:
            await agent.continue_()
        assert ("nothing-to-continue", [], False) == (refused.value.code, heard.order, agent.state.is_streaming)


@pytest.mark.promise("P-01", "P-03")
@pytest.mark.parametrize("tail", [UserMessage("go"), UserMessage((), kind="note")])
async def test_to_continue_a_transcript_says_nothing_anew(tail: UserMessage) -> None:
    """A33: the model is asked with what is there; a message of one's own kind counts; no user events are told."""
    agent = Agent(ScriptedModel([text("hi")]), messages=[tail])
    heard = Heard(agent)

    await agent.continue_()

    assert [tail, "hi"] == [agent.state.messages[0], agent.state.messages[1].text]
    assert ["agent_start", "turn_start", "ms(asst)", "mu", "me(asst)", "turn_end(0)", "agent_end(1)"] == heard.order


@pytest.mark.promise("P-01", "P-13")
async def test_a_run_that_failed_is_taken_up_where_it_was() -> None:
    """The prompt is not said again, and the error is gone when the next run starts: B16."""
    model = ScriptedModel([lambda request: ModelError("overloaded", "later") if request.attempt < 2 else text("hi")])
    agent = Agent(model)
    await agent.prompt("go")
    assert "overloaded: later" == agent.state.error_message

    await agent.continue_()

    assert (["go"], "hi", None) == (said(agent), agent.state.messages[-1].text, agent.state.error_message)


@pytest.mark.promise("P-01")
def test_an_agent_that_cannot_work_is_refused_when_it_is_made() -> None:
    """B18: by name, with what would do."""
    with pytest.raises(TypeError, match="model is a model port"):
        Agent("gpt")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="parallel, sequential"):
        Agent(ScriptedModel([]), tool_execution="wild")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one-at-a-time, all"):
        Agent(ScriptedModel([]), follow_up_mode="some")  # type: ignore[arg-type]


# --- one thing at a time


@pytest.mark.promise("P-11")
@pytest.mark.case("loo-10")
async def test_an_agent_that_works_takes_no_other_order() -> None:
    """B1 and B2: prompt, continue and reset are refused with a code, and the transcript is as it was."""
    refused: list[str] = []

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        before = [*agent.state.messages]
        for order in (agent.prompt("no"), agent.continue_()):
            with pytest.raises(AgentError) as error:
                await order
            refused.append(error.value.code)
        with pytest.raises(AgentError) as error:
            agent.reset()
        refused.append(error.value.code)
        assert before == agent.state.messages
        return "worked"

    agent = Agent(ScriptedModel([call("work"), text("done")]), tools=[work])

    await agent.prompt("go")

    assert (["busy"] * 3, "done") == (refused, agent.state.messages[-1].text)


@pytest.mark.promise("P-11", "P-12")
async def test_the_agent_works_until_the_last_listener_has_heard() -> None:
    """B3: a prompt from inside a listener is refused; prompt and wait_for_idle return after it."""
    steps: list[str] = []

    async def listen(event: LifecycleEvent, _: Signal) -> None:
        if event.type == "agent_end":
            await asyncio.sleep(0)
            with pytest.raises(AgentError):
                await agent.prompt("no")
            steps.append(f"heard, {agent.state.is_streaming}")

    agent = Agent(ScriptedModel([text("hi")]))
    agent.subscribe(listen)
    work = asyncio.ensure_future(agent.prompt("go"))
    await asyncio.sleep(0)

    await agent.wait_for_idle()
    steps.append(f"idle, {agent.state.is_streaming}")
    await work
    await agent.wait_for_idle()

    assert ["heard, True", "idle, False"] == steps


@pytest.mark.promise("P-11")
async def test_reset_forgets_what_was_said_and_keeps_the_rest() -> None:
    """Transcript, error and queues are gone; prompt, tools, hooks and listeners stay."""
    agent = Agent(ScriptedModel([ModelError("auth", "no")]), tools=[look], system_prompt="Be brief.")
    heard = Heard(agent)
    await agent.prompt("go")
    agent.steer("more")

    agent.reset()

    state = agent.state
    assert ([], None, (), "Be brief.", 1) == (
        *(state.messages, state.error_message, agent.queued),
        *(state.system_prompt, len(state.tools)),
    )
    state.model = ScriptedModel([text("anew")])
    await agent.prompt("hello")
    assert (["hello", "anew"], "agent_end(2)") == ([each.text for each in state.messages], heard.order[-1])


# --- listeners


@pytest.mark.promise("P-12")
@pytest.mark.case("loo-08", "loo-09")
async def test_listeners_hear_every_event_in_order_whatever_another_one_does() -> None:
    """B4: one is slow, one fails, one cancels itself; the third hears all, with the signal, until it unsubscribes."""
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(str(told["exception"])))
    order: list[tuple[str, int]] = []

    async def slow(event: LifecycleEvent, _: Signal) -> None:
        for _turn in range(event.seq % 3):
            await asyncio.sleep(0)
        order.append(("slow", event.seq))

    def fails(event: LifecycleEvent, _: Signal) -> None:
        raise RuntimeError("no ears")

    async def cancels(event: LifecycleEvent, _: Signal) -> None:
        raise asyncio.CancelledError("gone")

    def last(event: LifecycleEvent, signal: Signal) -> None:
        assert signal is agent.signal
        order.append(("last", event.seq))

    agent = Agent(ScriptedModel([text("hi"), text("ho")]))
    agent.subscribe(slow)
    agent.subscribe(fails)
    agent.subscribe(cancels)
    stop = agent.subscribe(last)
    agent.subscribe(last)

    await agent.prompt("go")
    stop()
    count = len(order)
    await agent.prompt("again")

    assert [(who, seq) for seq in range(1, count // 2 + 1) for who in ("slow", "last")] == order[:count]
    assert ({"slow"}, "ho") == ({who for who, _ in order[count:]}, agent.state.messages[-1].text)
    assert {"no ears", "gone"} == {*reported}


@pytest.mark.promise("P-12")
async def test_who_stopped_listening_hears_no_more_of_the_same_event() -> None:
    """Also where somebody before it stopped it."""
    heard: list[str] = []
    agent = Agent(ScriptedModel([text("hi")]))
    agent.subscribe(lambda *_: stop())
    stop = agent.subscribe(lambda event, _: heard.append(event.type))

    await agent.prompt("go")

    assert [] == heard


@pytest.mark.promise("P-12")
async def test_who_stops_listening_while_a_run_that_was_left_is_closed_hears_nothing_of_the_next() -> None:
    """That run is closed in silence; whoever comes or goes meanwhile has come or gone."""
    coming, going = asyncio.Event(), asyncio.Event()

    class Stands(MemoryState):
        async def append(self, *args: object, **options: object) -> Append:
            coming.set()
            await going.wait()
            return await super().append(*args, **options)  # type: ignore[arg-type]

    going.set()
    state = Stands()
    agent = Agent(ScriptedModel([call("pay"), text("hi")]), tools=[pay], state=state)
    await agent.prompt("go")
    agent.abort()
    went, came = Heard(agent), Heard(agent)
    came.stop()
    going.clear()
    coming.clear()
    prompting = asyncio.ensure_future(agent.prompt("go on"))
    await coming.wait()
    went.stop()
    agent.subscribe(came)
    going.set()
    await prompting

    assert [] == went.events
    assert "agent_start" == came.order[0]


@pytest.mark.promise("P-11")
async def test_a_decision_about_no_open_run_is_refused() -> None:
    """Whoever decided is told that nothing waited for it, and nothing else goes on in its place."""
    model = ScriptedModel([text("hi"), text("never")])
    agent = Agent(model)
    await agent.prompt("go")
    agent.follow_up("more")

    with pytest.raises(AgentError, match="no run waits") as caught:
        await agent.continue_(decisions={"r:1.0": "approve"})

    assert ("nothing-to-continue", 1, 1) == (caught.value.code, len(model.requests), len(agent.queued))


@pytest.mark.promise("P-12")
async def test_to_change_the_state_tells_nobody() -> None:
    """B4 and B17: lists are copied as they are given, and a change of the caller's list changes nothing."""
    agent = Agent(ScriptedModel([]))
    heard = Heard(agent)
    messages: list[Message] = [UserMessage("a")]
    tools = [look]

    agent.state.messages, agent.state.tools = messages, tools  # type: ignore[assignment]
    messages.append(UserMessage("b"))
    tools.clear()

    assert (1, 1, []) == (len(agent.state.messages), len(agent.state.tools), heard.order)


@pytest.mark.promise("P-12", "P-13")
async def test_a_listener_that_fails_drops_nothing_of_a_prompt_and_masks_no_failure() -> None:
    """B7, B8, Q6 and Q19 as decided in section 7: it is isolated, the prompt is whole, the first failure stands."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))

    def fails(*_: object) -> None:
        raise RuntimeError("no ears")

    agent = Agent(ScriptedModel([ModelError("auth", "no key")]))
    agent.subscribe(fails)

    await agent.prompt([UserMessage("one"), UserMessage("two")])

    assert (["one", "two"], "auth: no key") == (said(agent), agent.state.error_message)
    assert reported


@pytest.mark.promise("P-10")
async def test_the_calls_that_run_are_known_by_a_new_set_each_time() -> None:
    """B16: empty before, during and after as it is then; what is being said can be seen."""
    sets: list[frozenset[str]] = []
    said_so_far: list[str] = []

    def listen(event: LifecycleEvent, _: Signal) -> None:
        if event.type.startswith("tool_"):
            sets.append(agent.state.pending_tool_calls)
        if event.type == "message_update" and agent.state.streaming_message is not None:
            said_so_far.append(agent.state.streaming_message.text)

    agent = Agent(
        ScriptedModel([[call("look"), call("look")], text("hello")], chunk=2), tools=[look], tool_execution="sequential"
    )
    agent.subscribe(listen)

    await agent.prompt("go")

    assert [1, 0, 1, 0] == [len(each) for each in sets]
    assert sets[0] is not sets[2]
    assert (frozenset(), None, "hello") == (
        *(agent.state.pending_tool_calls, agent.state.streaming_message),
        said_so_far[-1],
    )


# --- the queues


@pytest.mark.promise("P-08")
@pytest.mark.parametrize(
    ("mode", "turns"),
    [("one-at-a-time", [["go"], ["s1"], ["s2"], ["f1"], ["f2"]]), ("all", [["go"], ["s1", "s2"], ["f1", "f2"]])],
)
async def test_the_mode_says_how_much_a_boundary_delivers(mode: QueueMode, turns: list[list[str]]) -> None:
    """A2 and A5: steering first, in order; follow-ups when the run would stop; one run in all."""
    agent = Agent(ScriptedModel([text(str(n)) for n in range(9)]), steering_mode=mode, follow_up_mode=mode)
    heard = Heard(agent)
    agent.subscribe(at("turn_end", lambda: [agent.follow_up("f1"), agent.steer("s1")]))  # type: ignore[arg-type]
    agent.subscribe(at("turn_end", lambda: [agent.steer("s2"), agent.follow_up("f2")]))  # type: ignore[arg-type]

    await agent.prompt("go")

    heard_turns: list[list[str]] = []
    for event in heard.events:
        if event.type == "turn_start":
            heard_turns.append([])
        elif event.type == "message_end" and event.role == "user" and event.message is not None:
            heard_turns[-1].append(event.message.text)
    assert turns == heard_turns


@pytest.mark.promise("P-08")
async def test_what_was_queued_before_the_first_request_is_in_the_first_turn() -> None:
    """A3: after the prompt, with no turn of its own."""
    model = ScriptedModel([text("hi")])
    agent = Agent(model)
    agent.steer("and quickly")

    await agent.prompt("go")

    assert [["go", "and quickly"]] == [[each.text for each in request.messages] for request in model.requests]


@pytest.mark.promise("P-08", "P-09")
async def test_what_is_steered_while_a_turn_is_prepared_is_in_that_turn() -> None:
    """A4: ahead of an older follow-up, and never two at a time."""
    model = ScriptedModel([text("1"), text("2"), text("3")])

    async def prepare(*_: object) -> None:
        if len(model.requests) == 1:
            agent.steer("quick")

    agent = Agent(model, prepare_next_turn=prepare)
    agent.follow_up("later")

    await agent.prompt("go")

    assert ["go", "quick", "later"] == said(agent)
    assert "quick" == model.requests[1].messages[-1].text


@pytest.mark.promise("P-08")
async def test_a_batch_goes_together_or_not_at_all() -> None:
    """B14: one at a time means one batch; it is taken back whole; an empty one is ignored."""
    model = ScriptedModel([text("1"), text("2")])
    agent = Agent(model)
    agent.steer([])
    agent.follow_up([UserMessage("a"), UserMessage("b")])
    agent.follow_up([UserMessage("c"), UserMessage("d")])

    taken = agent.cancel_queued(*[item.id for item in agent.queued if item.messages[-1].text == "d"], "unknown")
    await agent.prompt("go")

    assert [["c", "d"]] == [[each.text for each in item.messages] for item in taken]
    assert (["go", "a", "b"], 2) == (said(agent), len(model.requests))


@pytest.mark.promise("P-08")
async def test_what_a_run_already_has_can_be_taken_back() -> None:
    """Q13: by its id, also between two messages of the same words, and until it is delivered."""

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        await asyncio.sleep(0)
        assert [] == agent.cancel_queued(first.id)
        taken.extend(agent.cancel_queued(second.id))
        return "worked"

    taken: list[object] = []
    agent = Agent(ScriptedModel([call("work"), text("1"), text("2")]), tools=[work])
    first = agent.steer("same")
    second = agent.follow_up("same")
    third = agent.follow_up("same")

    await agent.prompt("go")

    assert (["go", "same", "same"], 1, ()) == (said(agent), len(taken), agent.queued)
    assert len({first.id, second.id, third.id}) == 3


@pytest.mark.promise("P-08")
async def test_clearing_forgets_one_queue_or_both() -> None:
    """Peek, clear, and nothing is delivered that was cleared."""
    agent = Agent(ScriptedModel([text("1"), text("2")]))
    agent.steer("s")
    agent.follow_up("f")
    agent.follow_up("g")

    assert ["s", "f", "g"] == queued(agent)
    assert 1 == len(agent.clear_queue("steer"))
    assert ["f", "g"] == queued(agent)
    agent.clear_queue()
    await agent.prompt("go")
    assert ["go"] == said(agent)


@pytest.mark.promise("P-01", "P-08")
async def test_to_continue_after_an_answer_delivers_what_is_queued() -> None:
    """B5: steering one at a time, then the follow-ups; also before anything was ever said."""
    model = ScriptedModel([text(str(n)) for n in range(4)])
    agent = Agent(model)
    agent.follow_up("f1")
    agent.steer("s1")
    agent.steer("s2")

    await agent.continue_()

    assert ["s1", "0", "s2", "1", "f1", "2"] == [each.text for each in agent.state.messages]


@pytest.mark.promise("P-08")
async def test_what_is_queued_at_the_very_end_is_not_stranded() -> None:
    """B20 and P6: a listener of the end queues a message, and the agent goes on."""
    agent = Agent(ScriptedModel([text("1"), text("2")]))
    agent.subscribe(at("agent_end", lambda: agent.follow_up("one more thing")))  # type: ignore[arg-type]

    await agent.prompt("go")

    assert (["go", "one more thing"], "2") == (said(agent), agent.state.messages[-1].text)


@pytest.mark.promise("P-08", "P-13")
async def test_a_failure_loses_and_repeats_nothing_that_is_queued() -> None:
    """P5 and section 1.5: the queue is not polled after an error; what the run had already is delivered once."""

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        agent.steer("s")
        agent.follow_up("f")
        return "worked"

    fails = ModelError("overloaded", "later")
    model = ScriptedModel(
        [call("work"), lambda request: fails if request.attempt == 1 else text("2"), text("3"), text("4")]
    )
    agent = Agent(model, tools=[work])

    await agent.prompt("go")
    before = queued(agent)
    await agent.continue_()

    assert (["f"], ["go", "s", "f"], ()) == (before, said(agent), agent.queued)


@pytest.mark.promise("P-08")
async def test_what_is_taken_back_while_a_run_rests_is_not_delivered_when_it_goes_on() -> None:
    """The run knew of it; its journal hears of the change of mind."""
    fails = ModelError("overloaded", "later")
    model = ScriptedModel([lambda request: fails if request.attempt == 1 else text("1"), text("2")])
    agent = Agent(model)
    agent.follow_up("f")
    kept = agent.follow_up("g")
    await agent.prompt("go")

    agent.cancel_queued(agent.queued[0].id)
    await agent.continue_()

    assert (["go", "g"], ()) == (said(agent), agent.queued)
    assert kept.id


@pytest.mark.promise("P-08", "P-15")
async def test_a_tool_in_a_thread_may_steer_and_abort() -> None:
    """Both are words for the agent's own loop, wherever they come from."""

    @tool(replay="safe")
    def work() -> str:
        """Work in a thread."""
        assert threading.current_thread() is not threading.main_thread()
        agent.steer("from a thread")
        agent.abort()
        return "worked"

    agent = Agent(ScriptedModel([call("work"), text("never")]), tools=[work])
    heard = Heard(agent)

    await agent.prompt("go")

    assert (["from a thread"], []) == (queued(agent), unbalanced(heard.events))


@pytest.mark.promise("P-05", "P-15")
@pytest.mark.case("con-12")
async def test_two_agents_at_once_keep_their_own_contexts() -> None:
    """Plain tools run in threads, each with the context variables of its own prompt."""
    from contextvars import ContextVar

    who: ContextVar[str] = ContextVar("who", default="nobody")

    @tool(replay="safe")
    def ask() -> str:
        """Ask who it is."""
        return who.get()

    async def work(name: str) -> str:
        who.set(name)
        agent = Agent(ScriptedModel([call("ask"), text("done")]), tools=[ask])
        await agent.prompt("go")
        return agent.state.messages[2].text

    assert ["u1", "u2"] == await asyncio.gather(asyncio.create_task(work("u1")), asyncio.create_task(work("u2")))


# --- failures


@pytest.mark.promise("P-13", "P-16")
@pytest.mark.parametrize("error", [RuntimeError("boom"), ModelError("quota", "empty", retryable=False)])
async def test_a_model_that_raises_is_a_message_of_the_transcript(error: Exception) -> None:
    """B6: a full lifecycle, the error in the state, and the prompt returns."""

    class Broken(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            raise error

    agent = Agent(Broken([]))
    heard = Heard(agent)

    await agent.prompt("go")

    last = agent.state.messages[-1]
    assert isinstance(last, AssistantMessage)
    assert ("error", agent.state.error_message) == (last.stop_reason, last.error)
    assert str(error) in str(last.error)
    assert ([], "agent_end(2)") == (unbalanced(heard.events), heard.order[-1])


@pytest.mark.promise("P-04", "P-13")
@pytest.mark.parametrize("hook", ["transform_context", "convert_to_llm", "get_api_key"])
async def test_a_hook_before_the_request_that_fails_is_told_the_same_way(hook: str) -> None:
    """Nothing is asked, and what was said stays: B6 and Q4."""

    def broken(*_: object) -> Sequence[Message]:
        raise RuntimeError("boom")

    model = ScriptedModel([text("never")])
    agent = Agent(model)
    setattr(agent, hook, broken)
    heard = Heard(agent)

    await agent.prompt("go")

    assert ([], "internal: boom", "agent_end(2)") == (model.requests, agent.state.error_message, heard.order[-1])
