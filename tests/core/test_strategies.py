"""What is drawn is what it says, and nobody who does not draw pays for it."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest
from hypothesis import Phase, find, given, settings

from tests.laws.test_history import unpaired
from turnwright.facts import Fact
from turnwright.inbox import Word
from turnwright.messages import Message
from turnwright.testing.strategies import (
    Sketch,
    agents,
    every_fact,
    sketches,
    transcripts,
    words,
)

DRAWN_ONCE = settings(max_examples=5000, phases=[Phase.generate], database=None)


@pytest.mark.promise("T-04")
@given(transcripts())
def test_a_drawn_transcript_is_a_valid_history(messages: list[Message]) -> None:
    """Each call is followed by its result."""
    assert [] == unpaired(messages)


@pytest.mark.promise("T-04")
@given(agents())
def test_the_agents_of_one_sketch_are_alike(sketch: Sketch) -> None:
    """They are made anew each time, and a run of one is taken up by another."""
    assert sketch.definition() is not sketch.definition()
    assert sketch.definition().fingerprint == sketch.definition(print).fingerprint


@pytest.mark.promise("T-04")
@given(sketches())
def test_a_conversation_ends_in_an_answer(sketch: Sketch) -> None:
    """However it goes before, the last that the model says is text."""
    assert sketch.replies[-1].text
    assert () == sketch.replies[-1].calls


@pytest.mark.promise("T-04")
@pytest.mark.parametrize("kind", [*get_args(Fact), *get_args(Word)])
def test_every_kind_of_fact_and_word_is_drawn(kind: type) -> None:
    """A strategy that leaves one out tests nothing about it."""
    drawn = every_fact() if kind in get_args(Fact) else words()

    assert isinstance(find(drawn, lambda each: isinstance(each, kind), settings=DRAWN_ONCE), kind)


def test_importing_the_testing_face_does_not_import_hypothesis() -> None:
    """Whoever runs scripted models needs no extra."""
    script = "import sys, turnwright.testing; sys.exit('hypothesis' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode
