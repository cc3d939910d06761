"""Whatever a tool, a model or a port does, its command ends in facts that the journal can hold."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest
from attrs import evolve as replace

from turnwright import AgentDefinition, Completed, ModelError, Outcome, Ports, Suspended, resume_agent, run_agent, tool
from turnwright.errors import PortError
from turnwright.lifecycle import ToolExecutionUpdate
from turnwright.memory import MemoryIdempotency
from turnwright.messages import AssistantMessage, File, Image, Reasoning, Text, ToolCall, ToolMessage, Usage, flaw
from turnwright.ports import Begun, Denied, Reserved
from turnwright.streaming import stream_agent
from turnwright.testing import ScriptedModel, call, fails, text
from turnwright.tools import Tool, ToolContext, ToolOutput


def agent(*tools: Tool[..., object]) -> AgentDefinition:
    """An agent with these tools and nothing else to it."""
    return AgentDefinition("agent", "Do it.", tools)


def results(outcome: Outcome[str]) -> list[ToolMessage]:
    """What the model saw of the calls."""
    return [each for each in outcome.transcript if isinstance(each, ToolMessage)]


@pytest.mark.promise("N-07")
@pytest.mark.parametrize(
    ("output", "seen", "is_error"),
    [
        (ToolOutput("fine", details=object()), "object has no JSON form", True),
        (ToolOutput((), is_error=True), "", True),
        (ToolOutput(()), "", False),
        (ToolOutput(None), "'NoneType' object is not iterable", True),  # type: ignore[arg-type]
        (ToolOutput(["plain"]), "the content of a ToolOutput is text or parts: str is no part", True),  # type: ignore[list-item]
        (ToolOutput([Text(3)]), "Text.text is int", True),  # type: ignore[arg-type]
    ],
)
async def test_an_output_that_no_journal_can_hold_is_an_error_that_the_model_sees(
    output: ToolOutput, seen: str, is_error: bool
) -> None:
    """What a tool gives by mistake ends its call, not its run."""

    @tool
    async def act() -> ToolOutput:
        return output

    outcome = await run_agent(agent(act), "go", Ports(model=ScriptedModel([call("act"), text("done")])))

    assert isinstance(outcome, Completed)
    assert [(True, is_error)] == [(seen in each.text, each.is_error) for each in results(outcome)]


async def test_a_long_text_behind_a_picture_is_cut() -> None:
    """The limit holds for the text of an output, wherever it stands among its parts."""

    @tool
    async def act() -> ToolOutput:
        return ToolOutput([Image("image/png", data="aa"), Text("x" * 300_000)])

    outcome = await run_agent(agent(act), "go", Ports(model=ScriptedModel([call("act"), text("done")])))

    image, cut = results(outcome)[0].parts
    assert Image("image/png", data="aa") == image
    assert isinstance(cut, Text)
    assert cut.text.endswith("[cut: 300,000 characters, 262,144 shown]")


JUNK: Sequence[object] = [
    None,
    "an answer",
    AssistantMessage("fine", "because"),  # type: ignore[arg-type]
    AssistantMessage(("plain",)),  # type: ignore[arg-type]
    AssistantMessage((Text(None),)),  # type: ignore[arg-type]
    AssistantMessage((ToolCall("c", "act", {}),)),  # type: ignore[arg-type]
    AssistantMessage((ToolCall(None, "act", "{}"),)),  # type: ignore[arg-type]
    AssistantMessage("fine", usage=None),  # type: ignore[arg-type]
    AssistantMessage("fine", usage=Usage(input_tokens=None)),  # type: ignore[arg-type]
    AssistantMessage("fine", model=4),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("junk", JUNK)
async def test_an_answer_of_the_wrong_shape_is_malformed_and_asked_for_again(junk: object) -> None:
    """Junk from a model port is repairable: it never reaches the journal, and the same turn is asked again."""
    repaired = fails(ModelError("malformed", "unused"), times=0, then=text("done"))
    model = _Junky(ScriptedModel([repaired]), junk)

    outcome = await run_agent(agent(), "go", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert 2 == outcome.usage.requests


class _Junky:
    """Gives *junk* first, and then what *model* says."""

    def __init__(self, model: ScriptedModel, junk: object) -> None:
        self._model = model
        self._junk = [junk]

    async def complete(self, request: object) -> AssistantMessage:
        if self._junk:
            return self._junk.pop()  # type: ignore[return-value]
        return await self._model.complete(request)  # type: ignore[arg-type]


def test_a_sound_answer_has_no_flaw() -> None:
    """Every part and every optional field may be there."""
    shown = (Image("image/png", url="x"), File("a/b", id="f1", name="c"))
    parts = (Reasoning("hm", "sig", redacted=True), Text("a"), *shown, ToolCall("", "f", "{"))

    assert "" == flaw(AssistantMessage(parts, "tool_calls", Usage(1, 2), "m", "p", "r", "raw"))


async def test_an_unknown_kind_of_model_failure_is_internal() -> None:
    """The kinds are closed: what an adapter makes up can be written, read again, and leaks nowhere."""
    ports = Ports(model=ScriptedModel([ModelError("odd", "no luck")]))  # type: ignore[arg-type]

    outcome = await run_agent(agent(), "go", ports, run_id="r")

    assert isinstance(outcome, Suspended)
    assert ("internal", "odd: no luck") == (outcome.detail, outcome.message)
    assert isinstance(await resume_agent(agent(), "r", ports), Suspended)


class _FailingIdempotency(MemoryIdempotency):
    def __init__(self, broken: str) -> None:
        super().__init__()
        self._broken = broken

    async def begin(self, namespace: str, key: str, digest: str) -> Begun:
        self._fail("begin")
        return await super().begin(namespace, key, digest)

    async def commit(self, namespace: str, key: str, result: object) -> None:
        self._fail("commit")
        await super().commit(namespace, key, result)

    def _fail(self, name: str) -> None:
        if name == self._broken:
            raise PortError(name)


@pytest.mark.promise("N-13")
@pytest.mark.parametrize(("broken", "ran"), [("begin", 0), ("key", 0), ("commit", 1)])
async def test_a_failing_ledger_of_keys_never_loses_a_result_and_never_runs_unreserved(broken: str, ran: int) -> None:
    """Before the dispatch it fails closed; after it the result is recorded, and the key stays taken."""
    runs = 0

    def key(arguments: Mapping[str, object]) -> str:
        if broken == "key":
            raise LookupError("no key")
        return "k"

    @tool(key=key)
    async def pay() -> str:
        nonlocal runs
        runs += 1
        return "paid"

    ports = Ports(
        model=ScriptedModel([call("pay"), call("pay"), text("done")]), idempotency=_FailingIdempotency(broken)
    )
    outcome = await run_agent(agent(pay), "go", ports)

    assert isinstance(outcome, Completed)
    assert ran == runs
    assert "not executed" in results(outcome)[1].text


class _DeafBudgets:
    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        return Reserved()

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        raise PortError("the ledger is away")

    async def release(self, id: str) -> None:
        raise PortError("the ledger is away")

    async def held(self, prefix: str) -> Sequence[str]:
        raise PortError("the ledger is away")


async def test_a_result_that_was_paid_for_is_recorded_whatever_its_bill() -> None:
    """A budget port that fails to settle costs neither the answer nor the effect; the run waits for it."""
    runs = 0

    @tool
    async def pay() -> str:
        nonlocal runs
        runs += 1
        return "paid"

    ports = Ports(model=ScriptedModel([call("pay"), text("done")]), budgets=_DeafBudgets())
    waiting = await run_agent(agent(pay), "go", ports, run_id="r1")

    ended = await run_agent(agent(pay), "go", replace(ports, budgets=None), run_id="r1")

    assert isinstance(waiting, Suspended)
    assert "budget" == waiting.reason
    assert isinstance(ended, Completed)
    assert 2 == ended.usage.requests
    assert 1 == runs


async def test_the_progress_of_a_plain_function_is_told_in_the_thread_of_the_loop() -> None:
    """A tool that runs in a thread may tell its progress, and whoever watches sees it before the result."""
    threads: list[str] = []

    @tool
    def act(context: ToolContext) -> str:
        threads.append(threading.current_thread().name)
        context.update("half")
        return "whole"

    stream = stream_agent(agent(act), "go", Ports(model=ScriptedModel([call("act"), text("done")])))
    put = stream._feed.lifecycle.progress

    def progress(index: int, said: str) -> None:
        threads.append(threading.current_thread().name)
        put(index, said)

    stream._feed.lifecycle.progress = progress  # type: ignore[method-assign, assignment]
    async with stream:
        items = [item async for item in stream]

    assert ["half"] == [item.text for item in items if isinstance(item, ToolExecutionUpdate)]
    assert threading.current_thread().name == threads[1] != threads[0]
