"""One long answer in many small pieces, to a viewer who keeps up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.benchmarks.measuring import Effort, Row, alternate, factor, memory, traced_peak
from tests.benchmarks.turns import answer
from turnwright import AgentDefinition, Completed, Ports, stream_agent
from turnwright.deltas import TextDelta
from turnwright.messages import AssistantMessage
from turnwright.ports import ModelRequest

__all__ = ["deltas"]

PIECE = "token "
BREATH = 64
"""So many pieces come at once, as from one read of a socket."""


class _Talker:
    """A model that says so many pieces."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self._whole = answer(PIECE * pieces)

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        emit, turn, attempt = request.on_delta, request.turn, request.attempt
        assert emit is not None
        for number in range(self._pieces):
            emit(TextDelta(turn, attempt, PIECE))
            if number % BREATH == 0:
                await asyncio.sleep(0)
        return self._whole


async def _say(pieces: int) -> AsyncIterator[str]:
    for number in range(pieces):
        yield PIECE
        if number % BREATH == 0:
            await asyncio.sleep(0)


async def _events(pieces: int) -> AsyncIterator[dict[str, object]]:
    """The hand-written stream: an event for each piece, then the whole."""
    said: list[str] = []
    async for piece in _say(pieces):
        said.append(piece)
        yield {"type": "text", "text": piece}
    yield {"type": "done", "text": "".join(said)}


async def deltas(effort: Effort) -> list[Row]:
    """Measure 80,000 text deltas through `stream_agent`, and whether a quarter of them costs a quarter."""
    many = effort.of(80_000)
    few = many // 4
    definition = AgentDefinition("bench", "You talk.")

    async def by_hand(pieces: int) -> None:
        seen = 0
        async for event in _events(pieces):
            seen += event["type"] == "text"
        assert pieces == seen

    async def ours(pieces: int) -> None:
        seen, outcome = 0, None
        async with stream_agent(definition, "Talk.", Ports(model=_Talker(pieces))) as stream:
            async for item in stream:
                if type(item) is TextDelta:
                    seen += 1
                else:
                    outcome = item
        assert pieces == seen and isinstance(outcome, Completed)

    theirs, own = await alternate(lambda: by_hand(many), lambda: ours(many), units=many, rounds=effort.rounds)
    their_few, own_few = await alternate(lambda: by_hand(few), lambda: ours(few), units=few, rounds=effort.rounds)
    size_few, size_many = await traced_peak(lambda: ours(few)), await traced_peak(lambda: ours(many))
    return [
        Row(f"{many:,} text deltas, each", own.cpu, theirs.cpu, times_bare=4),
        Row("  all to a quarter of them", 4 * own.cpu / own_few.cpu, 4 * theirs.cpu / their_few.cpu, factor, 4.4),
        Row("  peak memory each (6 bytes of text)", (size_many - size_few) / (many - few), unit=memory, at_most=30),
    ]
