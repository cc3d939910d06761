"""What the definition's own code decides between turns, and what a result or a guard may say about going on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from attrs import evolve as replace

from turnwright import (
    AgentDefinition,
    Block,
    CallView,
    Completed,
    Failed,
    Go,
    MemoryState,
    ModelError,
    Ports,
    Stop,
    Suspended,
    Tool,
    ToolOutput,
    TurnView,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.inbox import FollowUp, Steer, Withdraw, Word
from turnwright.messages import AssistantMessage, Message, ToolMessage, UserMessage
from turnwright.ports import ModelRequest
from turnwright.testing import ScriptedModel, call, text


@tool(replay="safe")
async def look(what: str = "") -> str:
    """Look."""
    return f"saw {what}"


def using(*tools: Tool[..., object], **more: object) -> AgentDefinition[str, str]:
    """An agent with these tools."""
    return AgentDefinition(name="worker", instruction="Work.", tools=tools or [look], **more)  # type: ignore[arg-type]


def said(messages: Sequence[Message]) -> list[str]:
    """What people said."""
    return [message.text for message in messages if isinstance(message, UserMessage)]


def results(messages: Sequence[Message]) -> list[tuple[str, bool]]:
    """What the model saw of its calls."""
    return [(message.text, message.is_error) for message in messages if isinstance(message, ToolMessage)]


class Given:
    """An inbox in which words wait from the start."""

    def __init__(self, *words: Word) -> None:
        self._words = [*enumerate(words, start=1)]

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        """The words after *after*."""
        return self._words[after:]


@pytest.mark.promise("P-09")
async def test_a_boundary_is_asked_before_every_turn_but_the_first_and_before_the_end() -> None:
    """It sees the coming turn and whether there will be one; None lets the run take its course."""
    asked: list[tuple[int, bool, int]] = []

    async def boundary(view: TurnView) -> None:
        asked.append((view.turn, view.ending, len(view.calls)))

    model = ScriptedModel([call("look"), call("look"), text("done")])
    outcome = await run_agent(using(boundary=boundary), "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert [(2, False, 1), (3, False, 2), (4, True, 2)] == asked


@pytest.mark.promise("P-09")
async def test_a_boundary_that_stops_leaves_the_run_at_rest_and_resuming_goes_on() -> None:
    """The tools of the turn are done, the model is not asked, and what is queued stays queued."""
    stops = [Stop()]
    model = ScriptedModel([call("look"), text("done"), text("and more")])
    ports = Ports(model=model)
    worker = using(boundary=lambda _: stops.pop() if stops else None)
    first = await run_agent(worker, "go", ports, run_id="r1")
    await ports.state.post("r1", FollowUp(UserMessage("more?")))
    asked_before = len(model.requests)

    second = await resume_agent(worker, "r1", ports)

    assert isinstance(first, Suspended)
    assert ("external", "stopped", 1) == (first.reason, first.detail, asked_before)
    assert isinstance(second, Completed)
    assert ["go", "more?"] == said(second.transcript)


@pytest.mark.promise("P-09")
async def test_a_boundary_may_keep_a_run_from_ending_with_something_to_say() -> None:
    """Its messages are said before the turn; what people queued comes first."""
    more = [Go([UserMessage("are you sure?")])]
    ports = Ports(
        model=ScriptedModel([text("yes"), text("quite"), text("very")]), inbox=Given(FollowUp(UserMessage("really?")))
    )
    worker = using(boundary=lambda view: more.pop() if view.ending and more else None)

    outcome = await run_agent(worker, "go", ports, run_id="r1")

    assert isinstance(outcome, Completed)
    assert (["go", "really?", "are you sure?"], "very") == (said(outcome.transcript), outcome.output)


async def test_what_a_boundary_said_is_a_fact_and_it_is_not_asked_twice() -> None:
    """A run that dies after the decision goes on with it."""
    asked: list[int] = []

    def boundary(view: TurnView) -> Go | None:
        asked.append(view.turn)
        return Go([UserMessage("go on")]) if view.turn == 2 else None

    class Dies(MemoryState):
        async def append(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            if len(asked) == 1:
                asked.append(0)
                await super().append(*args, **kwargs)  # type: ignore[arg-type]
                raise RuntimeError("dead")
            return await super().append(*args, **kwargs)  # type: ignore[arg-type]

    state = Dies()
    model = ScriptedModel([text("one"), text("two")])
    worker = using(boundary=boundary)
    with pytest.raises(RuntimeError, match="dead"):
        await run_agent(worker, "go", Ports(model=model, state=state), run_id="r1")

    outcome = await resume_agent(worker, "r1", Ports(model=model, state=state.reopen()))

    assert isinstance(outcome, Completed)
    assert (["go", "go on"], "two") == (said(outcome.transcript), outcome.output)
    assert [2, 0, 3] == asked


@pytest.mark.parametrize("verdict", [True, "stop", Go([1]), RuntimeError("broken")])  # type: ignore[list-item]
async def test_a_boundary_that_gives_no_verdict_fails_the_run_by_name(verdict: object) -> None:
    """The definition's own code is wrong, and the outcome says where."""

    def boundary(_: TurnView) -> None:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict  # type: ignore[return-value]

    outcome = await run_agent(using(boundary=boundary), "go", Ports(model=ScriptedModel([text("done")])))

    assert isinstance(outcome, Failed)
    assert "boundary" == outcome.error.code


@pytest.mark.promise("P-07")
@pytest.mark.parametrize(
    ("ends", "asked"), [((True, True), 1), ((True, False), 2), ((False, False), 2)], ids=["all", "one", "none"]
)
async def test_only_if_every_result_says_so_the_model_is_not_asked_again(ends: tuple[bool, bool], asked: int) -> None:
    """The run then rests with all results in place, and resuming asks the model about them."""

    @tool
    async def work(index: int) -> ToolOutput:
        """Work."""
        return ToolOutput("worked", terminate=ends[index])

    model = ScriptedModel([[call("work", index=0), call("work", index=1)], text("done")])
    ports = Ports(model=model)
    outcome = await run_agent(using(work), "go", ports, run_id="r1")
    requests = len(model.requests)
    ended = await resume_agent(using(work), "r1", ports)

    assert asked == requests
    assert [("worked", False)] * 2 == results(outcome.transcript)
    if all(ends):
        assert isinstance(outcome, Suspended)
        assert ("external", "terminated") == (outcome.reason, outcome.detail)
    assert isinstance(ended, Completed)


@pytest.mark.promise("P-07", "P-08")
async def test_what_is_queued_continues_a_run_whose_results_all_terminate() -> None:
    """A follow-up is due where the run would otherwise rest."""

    @tool
    async def work() -> ToolOutput:
        """Work."""
        return ToolOutput("worked", terminate=True)

    ports = Ports(model=ScriptedModel([call("work"), text("done")]), inbox=Given(FollowUp(UserMessage("and?"))))

    outcome = await run_agent(using(work), "go", ports, run_id="r1")

    assert isinstance(outcome, Completed)
    assert ["go", "and?"] == said(outcome.transcript)


@pytest.mark.promise("P-06", "P-07")
async def test_a_guard_sees_the_call_and_may_block_and_terminate() -> None:
    """It gets the raw call and the validated arguments; a blocked call is an error result, and may end the matter."""
    seen: list[tuple[str, str, object, int]] = []

    def guard(view: CallView) -> Block:
        seen.append((view.call.id, view.call.arguments, dict(view.arguments), view.index))
        return Block("not today", terminate=True)

    model = ScriptedModel([call("look", what="x"), text("done")])
    outcome = await run_agent(using(guards=[guard]), "go", Ports(model=model))

    assert [(model.requests[0].run_id and "call-1-0", '{"what":"x"}', {"what": "x"}, 0)] == seen
    assert isinstance(outcome, Suspended)
    assert [("not today", True)] == results(outcome.transcript)


@pytest.mark.promise("P-06")
async def test_a_result_guard_has_the_last_word_on_a_result() -> None:
    """It may change what is shown, whether it is an error and whether the model is asked; None keeps it all."""
    seen: list[tuple[object, bool]] = []

    def watch(view: CallView, output: ToolOutput) -> None:
        seen.append((output.details, output.is_error))

    async def tidy(view: CallView, output: ToolOutput) -> ToolOutput | None:
        return replace(output, content="tidied", is_error=False) if output.is_error else None

    @tool
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("no")

    worker = using(look, fail, result_guards=[watch, tidy])
    outcome = await run_agent(worker, "go", Ports(model=ScriptedModel([[call("look"), call("fail")], text("done")])))

    assert [("saw ", False), (None, True)] == [(None if error else told, error) for told, error in seen]
    assert [("saw ", False), ("tidied", False)] == results(outcome.transcript)


@pytest.mark.promise("P-06")
async def test_a_result_guard_that_fails_makes_its_result_an_error_and_no_other() -> None:
    """The effect has happened, and the model is told what became of its result."""

    def guard(view: CallView, output: ToolOutput) -> None:
        if view.index == 0:
            raise RuntimeError("unseemly")

    worker = using(result_guards=[guard])
    model = ScriptedModel([[call("look"), call("look")], text("done")])
    outcome = await run_agent(worker, "go", Ports(model=model))

    assert [("look ran, but its result was refused: unseemly", True), ("saw ", False)] == results(outcome.transcript)


@pytest.mark.promise("P-08")
async def test_a_queued_message_can_be_taken_back_until_it_is_delivered() -> None:
    """`Withdraw` names it; one that was delivered stays."""
    words = (
        Steer(UserMessage("first"), "m1"),
        FollowUp(UserMessage("second"), "m2"),
        FollowUp(UserMessage("third"), "m3"),
        Withdraw("m2"),
        Withdraw("m9"),
    )
    ports = Ports(model=ScriptedModel([text("one"), text("two"), text("three")]), inbox=Given(*words))

    outcome = await run_agent(using(), "go", ports, run_id="r1")

    assert ["go", "first", "third"] == said(outcome.transcript)


@pytest.mark.promise("P-08")
async def test_follow_ups_of_one_batch_come_together_and_others_one_by_one() -> None:
    """Where the run would end, the oldest comes, with those of its batch that follow it."""
    batches = (("a", "x"), ("b", "x"), ("c", None), ("d", None))
    words = [FollowUp(UserMessage(said), batch=batch) for said, batch in batches]
    ports = Ports(model=ScriptedModel([text(str(number)) for number in range(4)]), inbox=Given(*words))

    outcome = await run_agent(using(), "go", ports, run_id="r1")

    shown = [message.text for message in outcome.transcript]
    assert ["go", "0", "a", "b", "1", "c", "2", "d", "3"] == shown


@pytest.mark.promise("P-08", "N-05")
async def test_what_a_boundary_said_waits_for_more_turns() -> None:
    """It is asked once about the end. What it said there is delivered when the run may go on."""
    queue = [UserMessage("and?")]
    ports = Ports(model=ScriptedModel([text("one"), text("two")]))
    worker = using(boundary=lambda _: Go([queue.pop()]) if queue else None)
    waiting = await run_agent(worker, "go", ports, run_id="r1", max_turns=1)

    outcome = await resume_agent(worker, "r1", ports, max_turns=2)

    assert isinstance(waiting, Suspended)
    assert "max_turns" == waiting.reason
    assert ["go", "and?"] == said(outcome.transcript)


@pytest.mark.promise("P-09", "N-05")
async def test_a_run_that_was_stopped_goes_on_under_a_boundary_that_always_stops_there() -> None:
    """Resuming is the answer to a stop: it holds once before a turn."""
    ports = Ports(model=ScriptedModel([call("look"), call("look"), text("done")]))
    worker = using(boundary=lambda view: None if view.ending else Stop())
    rests = [await run_agent(worker, "go", ports, run_id="r1")]

    rests += [await resume_agent(worker, "r1", ports), await resume_agent(worker, "r1", ports)]

    assert ["external", "external", None] == [getattr(each, "reason", None) for each in rests]
    assert isinstance(rests[-1], Completed)


@pytest.mark.promise("P-07", "N-05")
async def test_a_run_whose_results_terminate_rests_also_after_an_interruption() -> None:
    """Who was cut off before it came to rest comes to rest afterwards, and does not ask the model."""
    signal = asyncio.Event()

    @tool
    async def work() -> ToolOutput:
        """Work, and hear that the process ends."""
        signal.set()
        return ToolOutput("worked", terminate=True)

    class Slow(MemoryState):
        async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
            if signal.is_set():
                await asyncio.Event().wait()
            return await super().read(run_id, after)

    model = ScriptedModel([call("work"), text("done")])
    ports = Ports(model=model, state=Slow(), cancellation=signal, grace=0.0)
    cut = await run_agent(using(work), "go", ports, run_id="r1")
    signal.clear()

    rests = await resume_agent(using(work), "r1", ports)
    ended = await resume_agent(using(work), "r1", ports)

    assert isinstance(cut, Suspended)
    assert isinstance(rests, Suspended)
    assert ("cancelled", "terminated") == (cut.reason, rests.detail)
    assert isinstance(ended, Completed)


@pytest.mark.promise("P-08", "N-05")
async def test_a_run_without_turns_left_ends_when_what_it_waited_to_say_is_taken_back() -> None:
    """A follow-up needs another turn; without it the answer is the output."""
    ports = Ports(model=ScriptedModel([text("one")]))
    await ports.state.acquire("r1", holder="nobody", seconds=-1.0)
    await ports.state.post("r1", FollowUp(UserMessage("and?"), "m1"))
    waiting = await run_agent(using(), "go", ports, run_id="r1", max_turns=1)
    still = await resume_agent(using(), "r1", ports)
    await ports.state.post("r1", Withdraw("m1"))

    outcome = await resume_agent(using(), "r1", ports)

    assert isinstance(waiting, Suspended)
    assert isinstance(still, Suspended)
    assert isinstance(outcome, Completed)
    assert "one" == outcome.output


async def test_the_messages_of_a_boundary_may_come_from_an_iterator() -> None:
    """They are kept where they are said, and not looked at twice."""
    worker = using(boundary=lambda view: Go(UserMessage(each) for each in "ab") if view.turn == 2 else None)

    outcome = await run_agent(worker, "go", Ports(model=ScriptedModel([text("one"), text("two")])))

    assert ["go", "a", "b"] == said(outcome.transcript)


@pytest.mark.parametrize("message", [UserMessage("x", kind=None), UserMessage("x", data=object())])  # type: ignore[arg-type]
async def test_a_boundary_says_nothing_that_a_journal_cannot_hold(message: UserMessage) -> None:
    """It fails where it speaks, and the journal can be read."""
    ports = Ports(model=ScriptedModel([text("one")]))
    worker = using(boundary=lambda _: Go([message]))
    await run_agent(worker, "go", ports, run_id="r1")

    outcome = await resume_agent(worker, "r1", ports)

    assert isinstance(outcome, Failed)
    assert "boundary" == outcome.error.code


async def test_the_data_of_a_message_is_what_is_recorded() -> None:
    """A number that JSON does not have is none from the start, not only for whoever reads the journal."""
    ports = Ports(model=ScriptedModel([text("one"), text("two")]))
    note = UserMessage("x", data={"rate": float("nan")})
    worker = using(boundary=lambda view: Go([note]) if view.turn == 2 else None)
    held = await run_agent(worker, "go", ports, run_id="r1")

    read = await resume_agent(worker, "r1", ports)

    assert [*read.transcript] == [*held.transcript]
    assert UserMessage("x", data={"rate": None}) in held.transcript


@pytest.mark.promise("N-02", "N-05")
async def test_a_later_version_that_chooses_tools_by_function_is_not_asked_in_the_middle_of_a_turn_to_stop() -> None:
    """A boundary lies between turns; one in which the model failed goes on."""
    asked: list[int] = []

    def boundary(view: TurnView) -> Stop:
        asked.append(view.turn)
        return Stop()

    class Fails(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            if (request.turn, request.attempt) == (2, 1):
                raise ModelError("overloaded", "later")
            return await super().complete(request)

    ports = Ports(model=Fails([call("look"), text("done")]))
    first = using(version="1")
    await run_agent(first, "go", ports, run_id="r1")
    later = using(version="2", compatible_with=[first.fingerprint], boundary=boundary, tool_choice=lambda _: "auto")

    outcome = await resume_agent(later, "r1", ports)

    assert isinstance(outcome, Completed)
    assert [3] == asked


@pytest.mark.promise("P-09")
async def test_a_boundary_that_stops_a_run_that_ends_lets_it_end() -> None:
    """There is nothing left to rest before."""
    outcome = await run_agent(using(boundary=lambda _: Stop()), "go", Ports(model=ScriptedModel([text("done")])))

    assert isinstance(outcome, Completed)
