"""Laws of the events of a turn, for any script: what begins ends, and how it was cut into pieces does not matter."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from tests.harness.playing import of, shown
from turnwright.harness import (
    AgentEvent,
    ComposedAgent,
    Deny,
    DoneEvent,
    GuardedCall,
    ProgressEvent,
    Session,
    ToolInputDeltaEvent,
    ToolResultEvent,
    ToolUseEvent,
    TurnContext,
    create_agent,
    define_guardrail,
    define_tool,
    reduce,
    script_client,
)
from turnwright.harness.script import ScriptTurn

WORDS = st.text(st.sampled_from("ab \n\u00e9\U0001f600"), max_size=9)
USES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["keep", "fail", "denied", "unknown"]),
        "input": st.dictionaries(st.sampled_from("nq"), st.integers() | WORDS, max_size=2) | st.just("{"),
    }
)
ROUNDS = st.lists(
    st.fixed_dictionaries({"text": WORDS, "tool_use": st.lists(USES, min_size=1, max_size=3)}), max_size=3
)


def keep(arguments: object, context: TurnContext) -> object:
    """Ask to remember."""
    context.remember({"last": str(arguments)})
    return arguments


async def fail(_: object) -> object:
    """Fail."""
    raise RuntimeError("no")


def deny(call: GuardedCall) -> Deny | None:
    """Deny one tool."""
    return Deny("never") if call.name == "denied" else None


def agent_of(rounds: Sequence[ScriptTurn], end: str, chunk: int | None) -> ComposedAgent:
    """An agent of all kinds of tools, and its script."""
    return create_agent(
        model=script_client([*rounds, end], chunk=chunk),
        tools=[
            define_tool(name="keep", description="Keep.", execute=keep),
            define_tool(name="fail", description="Fail.", execute=fail),
            define_tool(name="denied", description="Never.", execute=keep),
        ],
        guardrails=[define_guardrail(name="no", tool_call=deny)],
    )


async def turn(agent: ComposedAgent) -> tuple[list[AgentEvent], Session]:
    """All events, and the session that they make."""
    session = Session("s")
    events = []
    async for event in agent.send(session, "q"):
        events.append(event)
        session = reduce(session, event)
    return events, session


@pytest.mark.promise("A-11", "A-12", "A-18", "A-09")
@settings(max_examples=40)
@given(ROUNDS, WORDS, st.integers(1, 5))
async def test_what_begins_ends_and_pieces_do_not_matter(rounds: list[ScriptTurn], end: str, chunk: int) -> None:
    """One result a call, after it; one request a `sent`; one end, at the end; whole or in pieces, the same session."""
    events, session = await turn(agent_of(rounds, end, chunk))
    _, whole = await turn(agent_of(rounds, end, None))

    uses, results = of(events, ToolUseEvent), of(events, ToolResultEvent)
    assert [each.id for each in uses] == [each.id for each in results]
    assert all(events.index(use) < events.index(result) for use, result in zip(uses, results, strict=True))
    assert len(rounds) + 1 == [each.stage for each in of(events, ProgressEvent)].count("sent")
    assert [events[-1]] == of(events, DoneEvent)
    assert session == whole == Session.from_json(session.to_json())
    assert not session.draft.calls and session.draft == Session("s").draft
    assert end == of(events, DoneEvent)[0].text
    assert shown(events).endswith(end)
    for use in uses:
        told = [each for each in of(events, ToolInputDeltaEvent) if each.id == use.place]
        assert "".join([each.partial for each in told]) == told[-1].snapshot
