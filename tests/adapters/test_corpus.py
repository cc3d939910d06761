"""Law 2 over the wire, at large: each conversation of the corpus is one, whoever streams it and however it is cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from attrs import evolve as replace

from tests.adapters.corpus import conversation, vendors
from tests.adapters.test_dialects import plainly, play
from turnwright.messages import (
    AssistantMessage,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

SIZES = (2**20, 1, 7, 64)
"""Bytes of a piece; the fifth chunking has pieces of any size."""


def chunkings(number: int, longest: int) -> list[Sequence[int]]:
    """Five ways to cut a stream."""
    dice = Random(number)
    cuts: list[Sequence[int]] = [range(size, longest, size) for size in SIZES]
    return [*cuts, [dice.randrange(longest) for _ in range(20)]]


async def agrees(number: int) -> None:
    """One transcript, one output and one usage, and they are those that the conversation was made of."""
    turns = conversation(number)
    transcripts, outputs, usages = [], [], []
    for vendor in vendors(number).values():
        for cuts in chunkings(number, max(map(len, vendor.streamed))):
            transcript, usage, output = await play(vendor, cuts=cuts)
            transcripts.append([plainly(message) for message in transcript])
            outputs.append(output)
            usages.append(replace(usage, reasoning_tokens=0))

    expected: list[Message] = [UserMessage("Is it wet?")]
    for turn in turns:
        thought: list[Part] = [Reasoning(turn.thought)] if turn.thought else []
        said: list[Part] = [Text(turn.text)] if turn.text else []
        calls = [ToolCall("", "weather", json.dumps(arguments)) for arguments in turn.calls]
        read, cached, written = turn.tokens
        usage = Usage(input_tokens=read, output_tokens=written, cache_read_tokens=cached)
        stop = "tool_calls" if calls else "stop"
        expected.append(AssistantMessage([*thought, *said, *calls], stop, usage))
        expected += [ToolMessage("", "weather", f"rain at {arguments['place']}") for arguments in turn.calls]
    assert [expected] * 20 == transcripts
    assert [turns[-1].text] * 20 == outputs
    assert [usages[0]] * 20 == usages
    assert sum(turn.tokens[2] for turn in turns) == usages[0].output_tokens


@pytest.mark.promise("T-06")
@pytest.mark.parametrize("number", range(8))
async def test_a_conversation_of_the_corpus_is_one_in_every_dialect(number: int) -> None:
    """Four adapters, five chunkings each."""
    await agrees(number)


@pytest.mark.proof
@pytest.mark.promise("T-06")
@pytest.mark.parametrize("number", range(8, 72))
async def test_every_conversation_of_the_corpus_is_one_in_every_dialect(number: int) -> None:
    """The whole corpus."""
    await agrees(number)
