"""Law 2, stream: into whatever pieces an answer is cut, transcript, outcome and usage are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.laws.playing import play
from turnwright.deltas import TextDelta, ToolCallDelta
from turnwright.testing.strategies import Sketch, chunkings, sketches


@pytest.mark.promise("T-06", "N-15")
@given(sketches(), chunkings())
@settings(max_examples=60)
async def test_a_watched_run_is_the_run(sketch: Sketch, chunk: int | None) -> None:
    """Streaming in any chunking changes nothing of what is recorded."""
    plain = await play(sketch)

    watched = await play(sketch, chunk=chunk, watch=True)

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


@pytest.mark.promise("T-06")
async def test_the_pieces_of_a_text_add_up() -> None:
    """A viewer who joins the pieces has the answer."""
    sketch = Sketch(replies=(play_text("Grüße ✓ 🌍"),))

    watched = await play(sketch, chunk=1, watch=True)

    assert "Grüße ✓ 🌍" == "".join([each.text for each in watched.seen if isinstance(each, TextDelta)])


def play_text(said: str):  # noqa: ANN201 - a reply of the testing face
    """A reply of text."""
    from turnwright.testing import text

    return text(said)
