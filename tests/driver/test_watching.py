"""What whoever watches may rely on: order, and text that is whole at every piece."""

from __future__ import annotations

import asyncio

import pytest

from turnwright import AgentDefinition, Completed, Ports, run_agent, stream_agent, tool
from turnwright.canonical import decode
from turnwright.deltas import ToolCallDelta
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import ToolCall
from turnwright.testing import ScriptedModel, call, text


@tool(replay="safe")
async def note(a: str = "") -> str:
    """Note something."""
    return a


@pytest.mark.case("arg-07")
async def test_every_prefix_of_an_escaped_character_is_text_that_can_be_sent() -> None:
    """Cut inside an escape or between the halves of a pair, what is shown stays raw text, and the call is whole."""
    raw = r'{"a":"\ud83d\ude00!"}'
    model = ScriptedModel([ToolCall("c1", "note", raw), text("done")], chunk=1)
    agent = AgentDefinition(name="noter", instruction="", tools=[note])

    shown: list[str] = []
    async with stream_agent(agent, "go", Ports(model=model)) as stream:
        async for item in stream:
            if isinstance(item, ToolCallDelta):
                shown.append(item.text)
                "".join(shown).encode()
            if isinstance(item, Completed):
                results = [message.text for message in item.transcript if message.role == "tool"]

    assert raw == "".join(shown)
    assert {"a": "\U0001f600!"} == decode(raw)
    assert ["\U0001f600!"] == results


class Slow:
    """A listener that takes its time over the first events and none over the later ones."""

    def __init__(self) -> None:
        self.written: list[int] = []

    async def on_event(self, event: LifecycleEvent) -> None:
        """Write the event down, late."""
        for _ in range(max(0, 50 - 5 * event.seq)):
            await asyncio.sleep(0)
        self.written.append(event.seq)


@pytest.mark.case("loo-09")
async def test_a_slow_listener_writes_in_the_order_of_the_events() -> None:
    """Each event waits for the one before it, so the store of a listener has the order of emission."""
    slow = Slow()
    model = ScriptedModel([call("note", a="x"), text("done")])

    await run_agent(
        AgentDefinition(name="noter", instruction="", tools=[note]), "go", Ports(model=model, listener=slow)
    )

    assert sorted(slow.written) == slow.written
    assert len(slow.written) > 8
