"""Law 2, stream: into whatever pieces an answer is cut, transcript, outcome and usage are the same."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings, strategies as st

from tests.laws.playing import Weather, play, weathers
from turnwright import streaming
from turnwright.deltas import ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.messages import AssistantMessage, Reasoning, Text, Usage
from turnwright.streaming import _Feed
from turnwright.testing.strategies import Sketch, chunkings, sketches


@pytest.mark.promise("T-06", "N-15")
@given(sketches(), weathers(), chunkings())
@settings(max_examples=60)
async def test_a_watched_run_is_the_run(sketch: Sketch, weather: Weather, chunk: int | None) -> None:
    """Streaming in any chunking changes nothing of what is recorded."""
    plain = await play(sketch, weather=weather)

    watched = await play(sketch, weather=weather, chunk=chunk, watch=True)

    assert plain.outcome == watched.outcome
    assert plain.outcome.usage == watched.outcome.usage


@pytest.mark.promise("A-18", "N-15")
@given(sketches(), chunkings())
@settings(max_examples=60)
async def test_the_pieces_of_a_call_are_raw_text_that_adds_up(sketch: Sketch, chunk: int | None) -> None:
    """What is shown of a call on its way is never more than the text that the model wrote, piece by piece."""
    watched = await play(sketch, chunk=chunk, watch=True)

    answers = dict(enumerate(sketch.replies, start=1))
    shown: dict[tuple[int, int], str] = {}
    for delta in watched.seen:
        if isinstance(delta, ToolCallDelta):
            shown[delta.turn, delta.index] = shown.get((delta.turn, delta.index), "") + delta.text
    for (turn, index), text in shown.items():
        assert answers[turn].calls[index].arguments == text


@pytest.mark.promise("T-06", "N-15")
@given(st.text(min_size=1), st.text(), chunkings())
async def test_the_pieces_of_a_text_add_up(said: str, thought: str, chunk: int | None) -> None:
    """A viewer who joins the pieces has the answer, and apart from it what the model thought, and what it used."""
    usage = Usage(0, 3, 4)
    sketch = Sketch(replies=(AssistantMessage((Reasoning(thought), Text(said)), usage=usage),))

    watched = await play(sketch, chunk=chunk, watch=True)

    first = [each for each in watched.seen if getattr(each, "turn", 0) == 1]
    assert said == "".join([each.text for each in first if isinstance(each, TextDelta)])
    assert thought == "".join([each.text for each in first if isinstance(each, ReasoningDelta)])
    assert [usage] == [each.usage for each in first if isinstance(each, UsageDelta)]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 4))
def test_a_viewer_who_falls_behind_and_catches_up_misses_nothing(reads: list[int], backlog: int) -> None:
    """Pieces that were joined for a slow viewer stay in their place."""
    said = "".join([chr(0x4E00 + place) for place in range(200)])
    pieces = deque(TextDelta(1, 1, piece) for piece in said)
    feed: _Feed[str] = _Feed()
    seen = []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streaming, "BACKLOG", backlog)
        for read in reads:
            for _ in range(min(read, len(pieces))):
                feed.emit(pieces.popleft())
            seen += [feed.take() for _ in range(min(read % 3, len(feed.items)))]
        while pieces:
            feed.emit(pieces.popleft())
        while feed.items:
            seen.append(feed.take())

    assert said == "".join([each.text for each in seen if isinstance(each, TextDelta)])
