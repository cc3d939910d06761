"""Never run, only checked: an editor infers the types of inputs, outputs, tools and outcomes without any help.

A line marked to be ignored must be an error: mypy complains where it is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import assert_never, assert_type

from attrs import frozen

from turnwright import (
    AgentDefinition,
    AgentStream,
    Cancelled,
    Completed,
    Decision,
    DidNotHappen,
    Failed,
    Happened,
    Issue,
    MemoryState,
    Outcome,
    Pending,
    Ports,
    RunCall,
    Suspended,
    Tool,
    ToolContext,
    ToolOutput,
    TurnView,
    combine_delta_sinks,
    combine_telemetry,
    resume_agent,
    run_agent,
    run_agent_sync,
    stream_agent,
    tool,
)
from turnwright.deltas import TextDelta
from turnwright.lifecycle import TurnEnd
from turnwright.memory import MemoryApprovals, MemoryBudgets, MemoryIdempotency
from turnwright.messages import File, Image, Part, Text, Transcript, Usage
from turnwright.outcomes import Outcome as OutcomeToo
from turnwright.ports import Approvals, Budgets, Deltas, Idempotency, Listener, Model, State, Telemetry
from turnwright.testing import FixedClock, ScriptedModel, SequentialIds, call, text


@frozen
class Order:
    id: int


@frozen
class Verdict:
    good: bool


# --- tools keep the signature of their function


@tool
async def look(path: str, *, depth: int = 1) -> list[str]:
    """Look."""
    return [path] * depth


@tool(approval="required", replay="idempotent", timeout=None, cost={"money": 5})
def pay(cents: int, context: ToolContext) -> ToolOutput:
    """Pay."""
    context.update("paying")
    return ToolOutput(context.key)


assert_type(look("/", depth=2), list[str] | Awaitable[list[str]])
paying: Tool[[int, ToolContext], ToolOutput] = pay
counting: Tool[[str], ToolOutput] = pay  # type: ignore[assignment]
look(7)  # type: ignore[arg-type]
look("/", width=2)  # type: ignore[call-arg]
tool(replay="always")  # type: ignore[call-overload]
tool(aproval="required")  # type: ignore[call-overload]


async def reconcile(key: str) -> Happened | DidNotHappen | None:
    """Find out."""
    return Happened(key) if key else None


@tool(reconcile=reconcile, prepare=lambda raw: raw, key=lambda arguments: str(arguments["n"]))
async def ship(n: int) -> str:
    """Ship."""
    return str(n)


@tool(replay="safe")
def scan(page: int) -> ToolOutput:
    """Scan a page."""
    shown: list[Image | File] = [Image("image/png", data="QQ=="), File("application/pdf", id="file_1", name="a.pdf")]
    return ToolOutput([Text(f"page {page}"), *shown])


File("application/pdf", data=b"%PDF")  # type: ignore[arg-type]


def with_the_order(order: Order) -> Sequence[Part]:
    """Show an input with the paper that goes with it."""
    return Text(f"order {order.id}"), File("application/pdf", url=f"https://example.org/{order.id}.pdf")


reader = AgentDefinition("reader", "Read.", [scan], input=Order, render=with_the_order)
assert_type(reader, AgentDefinition[Order, str])


# --- definitions infer their types from what they are given


def enough(verdict: Verdict, calls: Sequence[RunCall]) -> str | Issue | None:
    """Check."""
    return None if verdict.good and calls else "look first"


async def enough_async(verdict: Verdict, calls: Sequence[RunCall]) -> None:
    """Check."""


def choose(view: TurnView) -> str:
    """Choose."""
    return "auto" if view.calls else "required"


def plain_function(n: int) -> int:
    """Count."""
    return n


judge = AgentDefinition(
    name="judge",
    instruction="Judge.",
    tools=[look, pay, ship, plain_function],
    input=Order,
    output=Verdict,
    render=lambda order: f"order {order.id}",
    check_output=[enough, enough_async],
    tool_choice=choose,
)
talker = AgentDefinition(name="talker", instruction="Talk.")
counter = AgentDefinition(name="counter", instruction="Count.", output=int)

assert_type(judge, AgentDefinition[Order, Verdict])
assert_type(counter, AgentDefinition[str, int])
assert_type(talker, AgentDefinition[str, str])

ports = Ports(model=ScriptedModel([call("look", path="/"), [call("pay", cents=5)], text("done")]))


async def outcomes() -> None:
    """Inputs are checked, outputs typed, and an outcome is taken apart completely."""
    outcome = await run_agent(judge, Order(7), ports)
    assert_type(outcome, Completed[Verdict] | Suspended | Failed | Cancelled)
    match outcome:
        case Completed(output=verdict):
            assert_type(verdict, Verdict)
        case Suspended(reason="approval", pending=pending):
            assert_type(pending, tuple[Pending, ...])
        case Suspended():
            assert_type(outcome.detail, str)
        case Failed(error=fault):
            assert_type(fault.issues, tuple[str, ...])
        case Cancelled(in_doubt=effects):
            assert_type(effects, tuple[str, ...])
        case _:
            assert_never(outcome)
    assert_type(outcome.transcript, Transcript)
    assert_type(outcome.usage, Usage)
    assert_type(outcome.evidence_head, str)

    await run_agent(judge, "7", ports)  # type: ignore[misc]
    await run_agent(talker, "hi", ports, max_turns=3, deadline=1.8e9, run_id="r1", require="process")
    await run_agent(talker, "hi", ports, require="always")  # type: ignore[arg-type]

    again = await resume_agent(
        *(counter, "r1", ports),
        decisions={"r1:1.0": "approve", "r1:1.1": Decision(approved=False, reason="no")},
        resolutions={"r1:1.2": Happened(7), "r1:1.3": DidNotHappen()},
    )
    assert_type(again, Outcome[int])
    if isinstance(again, Completed):
        assert_type(again.output, int)
    number: OutcomeToo[int] = again
    wrong: Outcome[str] = number  # type: ignore[assignment]
    del wrong

    assert_type(run_agent_sync(counter, "three", ports), Outcome[int])


async def streams() -> None:
    """The items of a stream tell themselves apart, and the last is the typed outcome."""
    stream = stream_agent(judge, Order(7), ports)
    assert_type(stream, AgentStream[Verdict])
    async with stream:
        async for item in stream:
            match item:
                case TextDelta(text=piece):
                    assert_type(piece, str)
                case TurnEnd(turn=turn):
                    assert_type(turn, int)
                case Completed(output=verdict):
                    assert_type(verdict, Verdict)
                case _:
                    pass


def adapters(telemetry: Telemetry, deltas: Deltas, listener: Listener) -> Ports:
    """Every reference adapter is its port, and a combination of ports is one."""
    model: Model = ScriptedModel([])
    state: State = MemoryState()
    approvals: Approvals = MemoryApprovals({"r1:1.0": Decision(approved=True)})
    budgets: Budgets = MemoryBudgets({("tenant", "money"): 5})
    idempotency: Idempotency = MemoryIdempotency()
    return Ports(
        model=model,
        state=state,
        approvals=approvals,
        budgets=budgets,
        idempotency=idempotency,
        telemetry=combine_telemetry(telemetry, telemetry),
        deltas=combine_delta_sinks(deltas),
        listener=listener,
        clock=FixedClock(),
        ids=SequentialIds(),
        capabilities=frozenset({"tool.look"}),
    )
