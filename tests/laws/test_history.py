"""Law 6, history: every request holds each call's one result, in order and in place, and no empty message of ours."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from tests.laws.playing import Weather, play, weathers
from turnwright.messages import AssistantMessage, Message, ToolMessage, UserMessage
from turnwright.testing.strategies import Sketch, sketches


def unpaired(messages: Sequence[Message]) -> list[str]:
    """Every breach of the rule that results follow their calls, each once, in order."""
    breaches, open_calls = [], []
    for message in messages:
        if isinstance(message, ToolMessage):
            expected = open_calls.pop(0) if open_calls else None
            if expected is None or (expected.id, expected.name) != (message.call_id, message.name):
                breaches.append(f"{message.name} is no result of {expected}")
            continue
        if open_calls:
            breaches.append(f"{len(open_calls)} calls without a result before {message.role}")
        open_calls = list(message.calls) if isinstance(message, AssistantMessage) else []
        if isinstance(message, UserMessage) and not message.parts:
            breaches.append("an empty user message")
    return breaches + [f"{call.name} has no result at the end" for call in open_calls]


@pytest.mark.promise("N-07")
@given(sketches(), weathers())
@settings(max_examples=80)
async def test_every_request_is_a_valid_history(sketch: Sketch, weather: Weather) -> None:
    """Denied, refused, failed, repaired and doubted calls, steering and lost requests all leave a history that a
    provider accepts.
    """
    played = await play(sketch, weather=weather)

    assert [] == [breach for request in played.model.requests for breach in unpaired(request.messages)]
