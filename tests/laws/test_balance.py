"""Law 7, balance: every opened agent, turn, message and tool execution is closed once, on every path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given, settings, strategies as st

from tests.laws.playing import play, ports
from turnwright import stream_agent
from turnwright.lifecycle import Lifecycle, LifecycleEvent
from turnwright.run import open_and_drive, validated
from turnwright.testing.strategies import Sketch, sketches

PAIRS = {
    "agent_start": "agent_end",
    "turn_start": "turn_end",
    "message_start": "message_end",
    "tool_execution_start": "tool_execution_end",
}


def unbalanced(events: Iterable[LifecycleEvent]) -> list[str]:
    """What was opened and not closed, closed and not open, or closed in the wrong order."""
    breaches: list[str] = []
    open_: dict[tuple[str, object], int] = {}
    for event in events:
        key = (event.type, getattr(event, "tool_call_id", None))
        if event.type in PAIRS:
            open_[PAIRS[event.type], key[1]] = open_.get((PAIRS[event.type], key[1]), 0) + 1
        elif event.type in PAIRS.values():
            if not open_.get(key):
                breaches.append(f"{event.type} of nothing")
            open_[key] = open_.get(key, 0) - 1
        if event.type == "turn_end" and any([n for (kind, _), n in open_.items() if kind[:4] in ("mess", "tool")]):
            breaches.append("a turn ended around something open")
    return breaches + [f"{kind} is missing" for (kind, _), times in open_.items() if times > 0]


@pytest.mark.promise("N-15")
@given(sketches(), st.integers(1, 3))
@settings(max_examples=60)
async def test_events_balance_to_the_end(sketch: Sketch, chunk: int) -> None:
    """From start to rest, whatever the model says and the tools do."""
    played = await play(sketch, chunk=chunk, watch=True)

    events = [each for each in played.seen if hasattr(each, "seq")]

    assert [] == unbalanced(events)  # type: ignore[arg-type]
    assert sorted({each.seq for each in events}) == [each.seq for each in events]  # type: ignore[union-attr]


@given(sketches(), st.integers(0, 25))
@settings(max_examples=60)
async def test_events_balance_when_the_run_is_cancelled_anywhere(sketch: Sketch, steps: int) -> None:
    """A cancelled run closes what it opened, and tells so."""
    given_, _ = ports(sketch, chunk=2)
    definition = sketch.definition()
    events: list[LifecycleEvent] = []
    run = asyncio.ensure_future(
        open_and_drive(
            *(definition, given_),
            run_id="run",
            opening=validated(definition, "go"),
            max_turns=8,
            deadline=None,
            watch=Lifecycle(events.append),
        )
    )
    for _ in range(steps):
        await asyncio.sleep(0)

    run.cancel()
    await asyncio.wait([run], timeout=10)

    assert run.done()
    assert [] == unbalanced(events)


async def test_a_stream_that_is_left_leaves_nothing() -> None:
    """Breaking out of the stream ends the run's task before the block is left."""
    given_, _ = ports(Sketch(replies=()), chunk=1)
    before = asyncio.all_tasks()

    async with stream_agent(Sketch().definition(), "go", given_) as stream:
        async for _item in stream:
            break

    assert before == asyncio.all_tasks()
