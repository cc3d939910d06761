"""What every context port must do: see `turnwright.ports.Context`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import pytest

from turnwright.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage, Transcript, UserMessage
from turnwright.ports import Context
from turnwright_contracts.running import scenario

__all__ = ["TRANSCRIPTS", "ContextSuite", "unpaired"]


def _turn(number: int, calls: int) -> list[Message]:
    asked = [ToolCall(f"c{index}", "look", f'{{"page":{number}}}') for index in range(calls)]  # ids repeat by turn
    found = [ToolMessage(f"c{index}", "look", (Text(f"page {number} " * 40),)) for index in range(calls)]
    return [AssistantMessage((Text(f"turn {number}"), *asked), "tool_calls"), *found]


TRANSCRIPTS: Final[tuple[tuple[Message, ...], ...]] = (
    (UserMessage("hello"),),
    (UserMessage("hello"), *_turn(1, 1)),
    (UserMessage("hello"), *_turn(1, 3), *_turn(2, 1), UserMessage("go on"), *_turn(3, 2)),
    (UserMessage("hello"), *[message for number in range(40) for message in _turn(number, 2)]),
    (UserMessage("hello"), AssistantMessage((Text("hi"),)), UserMessage("and?"), UserMessage("well?")),
)
"""What may have been said: nothing yet, one call, parallel calls whose ids repeat, many turns, plain talk."""


class ContextSuite:
    """Subclass it and say how the context port is made."""

    def make(self, place: Path) -> AbstractAsyncContextManager[Context]:
        """Give a context port."""
        raise NotImplementedError

    @pytest.mark.parametrize("budget", [None, 1_000_000, 500, 50])
    @pytest.mark.parametrize("messages", TRANSCRIPTS, ids=lambda messages: f"{len(messages)} messages")
    @scenario
    async def test_a_request_can_be_made_of_what_is_left(
        self, tmp_path: Path, messages: Sequence[Message], budget: int | None
    ) -> None:
        """Every call has its results right behind it, every result its call; and something is left to answer."""
        async with self.make(tmp_path) as context:
            chosen = await context.prepare(Transcript(messages), budget)

            assert [] == unpaired(chosen)
            assert chosen

    @pytest.mark.parametrize("messages", TRANSCRIPTS, ids=lambda messages: f"{len(messages)} messages")
    @scenario
    async def test_the_same_messages_give_the_same_choice(self, tmp_path: Path, messages: Sequence[Message]) -> None:
        """A run that goes on in another process shows its model the same; the transcript itself is not changed."""
        transcript = Transcript(messages)
        async with self.make(tmp_path) as context, self.make(tmp_path) as other:
            assert list(await context.prepare(transcript, 500)) == list(await other.prepare(transcript, 500))
            assert list(messages) == list(transcript)


def unpaired(messages: Sequence[Message]) -> list[str]:
    """The ids of calls without results and of results without calls, in a request that no provider would take."""
    wrong: list[str] = []
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id in open_calls:
                open_calls.remove(message.call_id)
            else:
                wrong.append(message.call_id)
            continue
        wrong += open_calls
        open_calls = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
    return wrong + open_calls
