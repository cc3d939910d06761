"""Only a model is required; every other port has a reference adapter that works, and none is trusted further than it
must be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from attrs import evolve as replace

from tests.driver.virtual import leftovers
from turnwright import (
    AgentDefinition,
    Completed,
    Decision,
    EvidenceStream,
    MemoryState,
    Ports,
    Suspended,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.memory import (
    FixedClock,
    MemoryApprovals,
    MemoryBudgets,
    MemoryIdempotency,
    RandomIds,
    SequentialIds,
    SystemClock,
)
from turnwright.messages import AssistantMessage, Message, Text, ToolCall, Usage, UserMessage
from turnwright.ports import ModelRequest
from turnwright.testing import Reply, ScriptedModel, call, text


@tool(key=lambda arguments: str(arguments["n"]), approval="required", policy=["read_only"], cost={"money": 1})
async def work(n: int) -> str:
    """Work."""
    return f"worked {n}"


WORKER = AgentDefinition(name="worker", instruction="Work.", tools=[work])
TALKER = AgentDefinition(name="talker", instruction="Talk.")


class Sandbox:
    """A host that can enforce everything."""

    def can_satisfy(self, policy: Sequence[str]) -> bool:
        """Yes."""
        return True

    def limitations(self, policy: Sequence[str]) -> Sequence[str]:
        """None."""
        return ()


class Whole:
    """A context that shows everything."""

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """Choose all."""
        return messages


class Quiet:
    """A listener and delta sink that does nothing."""

    def emit(self, delta: object) -> None:
        """Nothing."""

    async def on_event(self, event: object) -> None:
        """Nothing."""


@pytest.mark.promise("N-03")
async def test_a_run_uses_every_port_that_it_is_given() -> None:
    """With one adapter of each port a run comes to the end that it comes to with a model alone."""
    script: list[Reply] = [call("work", n=7), text("done")]
    state = MemoryState()
    ports = Ports(
        model=ScriptedModel(script),
        state=state,
        approvals=MemoryApprovals(lambda _: Decision(approved=True)),
        budgets=MemoryBudgets({("t", "money"): 5}),
        idempotency=MemoryIdempotency(),
        telemetry=EvidenceStream(),
        deltas=Quiet(),
        listener=Quiet(),
        context=Whole(),
        policy=Sandbox(),
        clock=FixedClock(),
        ids=SequentialIds(),
        cancellation=asyncio.Event(),
        capabilities=frozenset({"tool.work"}),
        scopes=("t",),
        tenant="t",
    )

    outcome = await run_agent(WORKER, "go", ports, deadline=ports.clock.now() + 60)

    assert isinstance(outcome, Completed)
    assert ("done", "worked 7", "id-1") == (outcome.output, outcome.transcript[2].text, outcome.run_id)
    assert ports.clock.now() == (await state.evidence(outcome.run_id))[-1].at
    assert set() == leftovers()


@pytest.mark.promise("N-03")
@pytest.mark.parametrize("clock", [SystemClock(), FixedClock()])
@pytest.mark.parametrize("ids", [RandomIds(), SequentialIds()])
async def test_each_clock_and_each_source_of_ids_serves(clock: FixedClock, ids: SequentialIds) -> None:
    """Time and identity come from their ports alone."""
    ports = Ports(model=ScriptedModel([text("hi")]), clock=clock, ids=ids)

    outcomes = [await run_agent(TALKER, "hello", ports) for _ in range(5)]

    assert 5 == len({outcome.run_id for outcome in outcomes})
    assert all([isinstance(outcome, Completed) for outcome in outcomes])


@pytest.mark.promise("N-03")
async def test_a_run_with_foreseeable_ports_is_the_same_every_time() -> None:
    """With a clock and ids that are given, two runs have one evidence chain, to the last digest."""
    heads = set()
    for _ in range(2):
        ports = Ports(model=ScriptedModel([text("hi")]), clock=FixedClock(), ids=SequentialIds())
        heads.add((await run_agent(TALKER, "hello", ports, run_id="r1")).evidence_head)

    assert 1 == len(heads)


@pytest.mark.promise("N-03")
async def test_a_context_chooses_what_the_model_sees_and_the_journal_keeps_all() -> None:
    """The request holds what was chosen within the budget that was given, the transcript everything."""
    seen: list[tuple[int, int | None]] = []

    class Last:
        async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
            seen.append((len(messages), budget))
            return [UserMessage("short"), *messages[-2:]] if len(messages) > 2 else messages

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    looker = AgentDefinition(name="looker", instruction="Look.", tools=[look])
    model = ScriptedModel([call("look"), text("done")])
    outcome = await run_agent(looker, "go", Ports(model=model, context=Last(), context_budget=100))

    assert [(1, 100), (3, 100)] == seen
    assert ["short", "", "seen"] == [message.text for message in model.requests[1].messages]
    assert ["go", "", "seen", "done"] == [message.text for message in outcome.transcript]


class Gives:
    """A model port that gives or raises whatever it is told."""

    def __init__(self, answer: object) -> None:
        self._answer = answer
        self.asked = 0

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give it."""
        self.asked += 1
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer  # type: ignore[return-value]


JUNK = [
    None,
    "hi",
    {"role": "assistant"},
    UserMessage("hi"),
    AssistantMessage,
    AssistantMessage(("hi",)),  # type: ignore[arg-type]
    AssistantMessage((None,)),  # type: ignore[arg-type]
    AssistantMessage((Text(None),)),  # type: ignore[arg-type]
    AssistantMessage((Text(b"hi"),)),  # type: ignore[arg-type]
    AssistantMessage((ToolCall("c", "work", {"n": 1}),)),  # type: ignore[arg-type]
    AssistantMessage((ToolCall("c", None, "{}"),)),  # type: ignore[arg-type]
    AssistantMessage((ToolCall(7, "work", "{}"),)),  # type: ignore[arg-type]
    AssistantMessage("hi", "finished"),  # type: ignore[arg-type]
    AssistantMessage("hi", None),  # type: ignore[arg-type]
    AssistantMessage("hi", ["stop"]),  # type: ignore[arg-type]
    AssistantMessage("hi", usage=None),  # type: ignore[arg-type]
    AssistantMessage("hi", usage=Usage(input_tokens="3")),  # type: ignore[arg-type]
    AssistantMessage("hi", usage=Usage(output_tokens=-5)),
    AssistantMessage("hi", usage=Usage(output_tokens=2**80)),
    AssistantMessage("hi", usage=Usage(output_tokens=float("nan"))),  # type: ignore[arg-type]
    AssistantMessage("hi", model=object()),  # type: ignore[arg-type]
]


@pytest.mark.promise("N-03", "N-05")
@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: f"{junk!r:.50}")
async def test_a_model_port_that_gives_junk_is_asked_again_and_then_suspends(junk: object) -> None:
    """What is no sound answer is never believed or written: it is a malformed one, within the budget for repairs."""
    model, state = Gives(junk), MemoryState()
    ports = Ports(model=model, state=state)

    outcome = await run_agent(replace(TALKER, repairs=1), "hello", ports, run_id="r1")
    again = await resume_agent(replace(TALKER, repairs=1), "r1", Ports(model=ScriptedModel([text("hi")]), state=state))

    assert isinstance(outcome, Suspended)
    assert ("model", "malformed", 2) == (outcome.reason, outcome.detail, model.asked)
    assert isinstance(again, Completed)


@pytest.mark.promise("N-03", "N-05")
@pytest.mark.parametrize(
    "error",
    [ValueError("no"), KeyError("choices"), TimeoutError(), AttributeError("x"), ExceptionGroup("g", [OSError()])],
)
async def test_whatever_a_model_port_raises_suspends_the_run(error: Exception) -> None:
    """An error that is no ModelError has kind `internal` and its own words."""
    model = Gives(error)

    outcome = await run_agent(TALKER, "hello", Ports(model=model))

    assert isinstance(outcome, Suspended)
    assert ("model", "internal", 1) == (outcome.reason, outcome.detail, model.asked)
    assert (str(error) or type(error).__name__) in outcome.message


@pytest.mark.promise("N-03")
@pytest.mark.parametrize("make", [object, lambda: ScriptedModel, lambda: "gpt", lambda: None])
async def test_what_is_no_model_port_suspends_and_says_so(make: Callable[[], object]) -> None:
    """Something without `complete`, or a class in place of its instance, runs nothing and raises nothing odd."""
    outcome = await run_agent(TALKER, "hello", Ports(model=make()))  # type: ignore[arg-type]

    assert isinstance(outcome, Suspended)
    assert ("model", "internal", True) == (outcome.reason, outcome.detail, "complete" in outcome.message)


@pytest.mark.promise("N-03")
async def test_a_model_port_may_not_change_what_the_run_remembers() -> None:
    """A port that scribbles on what it was given scribbles on nothing that is kept."""

    class Scribbling(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            for verb, given in (
                ("append", [UserMessage("mine")]),
                ("__setitem__", [0, UserMessage("mine")]),
                ("clear", []),
            ):
                with suppress(AttributeError, TypeError):
                    getattr(request.messages, verb)(*given)
            return text("hi")

    outcome = await run_agent(TALKER, "hello", Ports(model=Scribbling([])))

    assert ["hello", "hi"] == [message.text for message in outcome.transcript]


@pytest.mark.promise("N-03")
async def test_a_context_that_fails_is_a_failing_model_call() -> None:
    """Nothing is sent that nobody chose."""

    class Broken:
        async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
            message = "no tokens left to count"
            raise RuntimeError(message)

    model = ScriptedModel([text("hi")])
    outcome = await run_agent(TALKER, "hello", Ports(model=model, context=Broken()))

    assert isinstance(outcome, Suspended)
    assert ("model", []) == (outcome.reason, model.requests)


@pytest.mark.promise("N-06")
@pytest.mark.parametrize(
    ("granted", "runs"),
    [(None, True), (frozenset({"tool.look"}), True), (frozenset({"tool.other"}), False), (frozenset(), False)],
)
async def test_a_capability_that_was_not_granted_runs_nothing(granted: frozenset[str] | None, runs: bool) -> None:
    """Without a list everything is granted; with one, what is on it."""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    looker = AgentDefinition(name="looker", instruction="Look.", tools=[look])
    ports = Ports(model=ScriptedModel([call("look"), text("done")]), capabilities=granted)

    outcome = await run_agent(looker, "go", ports)

    assert isinstance(outcome, Completed)
    assert runs == (outcome.transcript[2].text == "seen")


@pytest.mark.promise("N-03")
async def test_one_set_of_ports_serves_two_loops() -> None:
    """Reference adapters belong to no loop: what was begun under one goes on under another."""
    ports = Ports(model=ScriptedModel([text("hi")]))

    def once(run_id: str) -> str:
        outcome = asyncio.run(run_agent(TALKER, "hello", ports, run_id=run_id))
        assert isinstance(outcome, Completed)
        return outcome.output

    assert ["hi", "hi"] == [await asyncio.to_thread(once, run_id) for run_id in ("r1", "r2")]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scopes": "tenant"}, "scopes is a collection"),
        ({"capabilities": "tool.look"}, "capabilities is a collection"),
        ({"grace": -1.0}, "grace"),
        ({"grace": float("nan")}, "grace"),
        ({"grace": "5"}, "grace"),
    ],
)
def test_ports_that_would_be_misread_are_refused_when_they_are_wired(fields: dict[str, object], said: str) -> None:
    """One text is no set of names: a part of it would have been taken for a grant."""
    with pytest.raises((TypeError, ValueError), match=said):
        Ports(model=ScriptedModel([]), **fields)  # type: ignore[arg-type]
