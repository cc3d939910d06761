"""What the definition's own code, its tools and its ports may do wrong: it becomes a fact, and the run can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NoReturn

import pytest
from attrs import evolve as replace

from turnwright import (
    AgentDefinition,
    CallView,
    Completed,
    Failed,
    ModelError,
    Outcome,
    Ports,
    RunCall,
    Suspended,
    Tool,
    ToolOutput,
    UnusablePorts,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.deltas import Delta
from turnwright.evidence import Evidence
from turnwright.memory import MemoryBudgets, MemoryIdempotency, combine_delta_sinks, combine_telemetry
from turnwright.messages import AssistantMessage, Text, ToolMessage, Usage
from turnwright.ports import Committed, Denied, ModelRequest, Reserved
from turnwright.testing import ScriptedModel, call, text


def using(*tools: Tool[..., object], **more: object) -> AgentDefinition[str, str]:
    """An agent with these tools."""
    return AgentDefinition(name="worker", instruction="Work.", tools=tools, **more)  # type: ignore[arg-type]


async def told(definition: AgentDefinition[str, str], ports: Ports) -> Outcome[str]:
    """How the run ends, as whoever reads its journal anew finds it."""
    await run_agent(definition, "go", ports, run_id="r1")
    return await resume_agent(definition, "r1", ports)


def results(outcome: Outcome[str]) -> list[tuple[str, bool]]:
    """What the model saw of its calls."""
    return [(each.text, each.is_error) for each in outcome.transcript if isinstance(each, ToolMessage)]


@pytest.mark.promise("N-07")
async def test_a_plain_function_that_raises_stop_iteration_has_failed() -> None:
    """A thread cannot hand it over, and the call would never end."""

    @tool
    def first() -> object:
        """Give the first of nothing."""
        return next(iter(()))

    outcome = await told(using(first), Ports(model=ScriptedModel([call("first"), text("done")])))

    assert isinstance(outcome, Completed)
    assert [("raised StopIteration", True)] == results(outcome)


class Unspeakable(Exception):
    """An error that fails once more when it is asked what it says."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("no words")


def speechless(_: object) -> NoReturn:
    """Fail without words."""
    raise Unspeakable


@pytest.mark.promise("N-07")
async def test_an_error_without_words_is_told_by_its_name() -> None:
    """Wherever code of the definition fails, asking for its words ends no run."""

    @tool
    async def fail() -> str:
        """Fail."""
        raise Unspeakable

    worker = using(fail, tool(name="shape", prepare=speechless)(fail.function))
    outcome = await told(worker, Ports(model=ScriptedModel([[call("fail"), call("shape")], text("done")])))
    ended = await told(replace(worker, boundary=speechless), Ports(model=ScriptedModel([call("fail")])))

    assert [("Unspeakable", True), ("the arguments could not be prepared: Unspeakable", True)] == results(outcome)
    assert isinstance(ended, Failed)
    assert "boundary failed: Unspeakable" == ended.error.message


@pytest.mark.promise("N-02")
async def test_what_is_told_of_a_failure_is_bounded() -> None:
    """The error of a boundary may be as long as it likes; the fault is not."""

    def boundary(_: object) -> None:
        raise RuntimeError("x" * 1_000_000)

    outcome = await told(using(boundary=boundary), Ports(model=ScriptedModel([text("done")])))

    assert isinstance(outcome, Failed)
    assert len(outcome.error.message) < 5000


@pytest.mark.promise("N-07")
@pytest.mark.parametrize(("mark", "is_error"), [(None, False), ("quota exceeded", True), (1, True)])
async def test_an_error_mark_that_is_no_boolean_counts_as_one(mark: object, is_error: bool) -> None:
    """The journal holds a boolean, so that it can be read again."""

    @tool
    async def ask() -> ToolOutput:
        """Ask."""
        return ToolOutput("asked", is_error=mark)  # type: ignore[arg-type]

    outcome = await told(using(ask), Ports(model=ScriptedModel([call("ask"), text("done")])))

    assert [("asked", is_error)] == results(outcome)


@pytest.mark.promise("P-06")
async def test_a_result_guard_changes_nothing_in_place() -> None:
    """It is shown a copy: what is recorded is what the tool gave, or what the guard returned."""

    @tool
    async def ask() -> ToolOutput:
        """Ask."""
        return ToolOutput("asked", details={"id": 7})

    def guard(_: CallView, output: ToolOutput) -> None:
        assert isinstance(output.details, dict)
        output.details["id"] = object()

    made: list[object] = []

    def check(_: str, calls: Sequence[RunCall]) -> None:
        made.extend([each.output for each in calls])

    ports = Ports(model=ScriptedModel([call("ask"), text("done")]))
    outcome = await told(using(ask, result_guards=[guard], check_output=[check]), ports)

    assert isinstance(outcome, Completed)
    assert [{"id": 7}] == made


class Answering:
    """A model port that gives, or raises, what it was given."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Answer."""
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer  # type: ignore[return-value]


@pytest.mark.promise("N-02")
@pytest.mark.parametrize(
    "answer",
    [
        AssistantMessage((AssistantMessage("hello"),)),  # type: ignore[arg-type]
        AssistantMessage((Usage(),)),  # type: ignore[arg-type]
        AssistantMessage("hello", usage=Text("none")),  # type: ignore[arg-type]
        ModelError("internal", "no", partial="hel"),  # type: ignore[arg-type]
        ModelError(["internal"], "no"),  # type: ignore[arg-type]
    ],
    ids=["a message as a part", "usage as a part", "a part as usage", "text as an answer", "a list as a kind"],
)
async def test_an_odd_answer_is_a_failure_of_the_model(answer: object) -> None:
    """It is written down as such, and the run can be taken up again."""
    outcome = await told(using(repairs=0), Ports(model=Answering(answer)))

    assert isinstance(outcome, Suspended)
    assert "model" == outcome.reason


class Cancelling:
    """Whoever watches, by way of a future that was cancelled."""

    def record(self, evidence: Evidence) -> None:
        """Look at the future."""
        raise asyncio.CancelledError

    def emit(self, delta: Delta) -> None:
        """Look at the future."""
        raise asyncio.CancelledError


@pytest.mark.promise("N-14", "N-15")
@pytest.mark.parametrize("others", [0, 1])
async def test_whoever_watches_cannot_cancel_the_run(others: int) -> None:
    """Nobody is cancelled in the middle of a plain call: it is an error like any other."""
    deltas = combine_delta_sinks(Cancelling(), *[Cancelling()] * others) if others else Cancelling()
    telemetry = combine_telemetry(Cancelling(), *[Cancelling()] * others) if others else Cancelling()
    ports = Ports(model=ScriptedModel([text("done")], chunk=1), deltas=deltas, telemetry=telemetry)

    assert isinstance(await told(using(), ports), Completed)


class Gone(BaseException):
    """No error that a tool may be forgiven."""


@pytest.mark.promise("T-01", "N-07")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit, Gone])
@pytest.mark.parametrize("threaded", [False, True])
def test_what_ends_the_process_goes_through_and_leaves_the_call_in_doubt(
    raised: type[BaseException], threaded: bool
) -> None:
    """Whoever raises it in a tool means more than the tool. The run is given back at once and pays nothing twice."""
    paid: list[int] = []

    def plain() -> str:
        paid.append(1)
        raise raised

    async def pay() -> str:
        return plain()

    worker = using(tool(name="pay", description="Pay.")(plain if threaded else pay))
    ports = Ports(model=ScriptedModel([call("pay"), text("done")]))
    with pytest.raises(raised):
        asyncio.run(run_agent(worker, "go", ports, run_id="r1"))

    outcome = asyncio.run(resume_agent(worker, "r1", ports))

    assert isinstance(outcome, Suspended)
    assert ("in-doubt", [1]) == (outcome.reason, paid)


class OddPort(MemoryBudgets):
    """A budget, an idempotency and a policy port in one, none of which speaks in the words of its port."""

    def __init__(self, said: object) -> None:
        super().__init__({})
        self._said = said

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Deny a tool call oddly."""
        return Denied(None, self._said) if "tool_calls" in ask else Reserved()  # type: ignore[arg-type]

    async def begin(self, namespace: str, key: str, digest: str) -> Committed:
        """Give an odd result."""
        return Committed(self._said)

    def can_satisfy(self, policy: Sequence[str]) -> bool:
        """Say no."""
        return False

    def limitations(self, policy: Sequence[str]) -> Sequence[str]:
        """Name none by its name."""
        return [self._said]  # type: ignore[list-item]


@pytest.mark.promise("N-03", "N-07")
@pytest.mark.parametrize("port", ["budgets", "idempotency"])
async def test_what_no_port_may_say_leaves_a_journal_that_can_be_read(port: str) -> None:
    """It counts as a port that does not answer: nothing is done, and why is told in words."""
    done: list[int] = []

    @tool(key=lambda _: "k")
    async def pay() -> None:
        """Pay."""
        done.append(1)

    odd = OddPort(object())
    ports = Ports(model=ScriptedModel([call("pay"), text("done")]), idempotency=MemoryIdempotency())
    outcome = await told(using(pay), replace(ports, **{port: odd}))  # type: ignore[arg-type]

    assert [] == done
    if port == "budgets":
        assert isinstance(outcome, Suspended)
        assert ("budget", "unavailable") == (outcome.reason, outcome.detail)
    else:
        assert [True] == [is_error for _, is_error in results(outcome)]


@pytest.mark.promise("T-07")
async def test_what_a_policy_cannot_enforce_is_named_in_whatever_it_is_named() -> None:
    """A policy that gives its limitations as something else than text refuses all the same."""

    @tool(policy=["network"])
    async def fetch() -> None:
        """Fetch."""

    with pytest.raises(UnusablePorts, match=r"fetch.*7"):
        await run_agent(using(fetch), "go", Ports(model=ScriptedModel([]), policy=OddPort(7)))
