"""A model that replays recordings says what is wrong when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve as replace

from turnwright.errors import ModelError
from turnwright.messages import UserMessage
from turnwright.ports import ModelRequest
from turnwright.testing import RecordedModel, ScriptedModel, text

ASKED = ModelRequest("r1", 1, 1, "Be brief.", (UserMessage("Is it wet?"),))


async def missed(path: Path, request: ModelRequest) -> str:
    """What a recording that lacks *request* says of it."""
    with pytest.raises(ModelError) as caught:
        await RecordedModel(path).complete(request)
    return str(caught.value)


async def test_a_miss_shows_how_the_nearest_recording_differs(tmp_path: Path) -> None:
    """Of several, the one that differs in the fewest places; the first of them in full."""
    path = tmp_path / "answers.jsonl"
    model = RecordedModel(path, model=ScriptedModel([text("yes")]))
    await model.complete(replace(ASKED, instruction="x", options={"temperature": 1}))
    await model.complete(ASKED)

    words = await missed(path, replace(ASKED, messages=(UserMessage("Is it dry?"),)))

    assert words.endswith(
        '; the nearest, line 2, differs at messages[0].parts[0].text: recorded "Is it wet?", asked "Is it dry?"'
        "; record it with a model first"
    )


async def test_a_difference_may_be_that_something_is_not_there(tmp_path: Path) -> None:
    """On either side, and long values are shortened."""
    path = tmp_path / "answers.jsonl"
    await RecordedModel(path, model=ScriptedModel([text("yes")])).complete(replace(ASKED, options={"seed": 7}))

    words = await missed(path, replace(ASKED, options={"stop": "s" * 200}))

    assert "options.seed: recorded 7, asked nothing and in 1 more places" in words


async def test_an_empty_recording_has_no_nearest(tmp_path: Path) -> None:
    """The words say what to do, and no more."""
    words = await missed(tmp_path / "answers.jsonl", ASKED)

    assert "nearest" not in words
    assert "record it with a model first" in words
