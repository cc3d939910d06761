"""Law 2 over the wire, at large: each conversation of the corpus is one, whoever streams it and however it is cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from attrs import evolve as replace

from tests.adapters import validity
from tests.adapters.corpus import conversation, forecaster, shown, vendors
from tests.adapters.test_dialects import plainly, play
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
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
    """One transcript, one output and one usage, and they are those that the conversation was made of; and each vendor
    is sent the same images and documents in each request, in a form that it takes.
    """
    turns = conversation(number)
    given = [
        shown(number, ""),
        *[[each for place in turn.calls for each in shown(number, str(place["place"]))] for turn in turns],
    ]
    transcripts, outputs, usages = [], [], []
    for name, vendor in vendors(number).items():
        for cuts in chunkings(number, max(map(len, vendor.streamed))):
            sent: list[bytes] = []
            transcript, usage, output = await play(vendor, cuts=cuts, agent=forecaster(number), sent=sent)
            for place, body in enumerate(sent, start=1):
                assert [] == validity.breaches(name, body)
                assert [_told(name, each) for some in given[:place] for each in some] == validity.shown(name, body)
            transcripts.append([plainly(message) for message in transcript])
            outputs.append(output)
            usages.append(replace(usage, reasoning_tokens=0))

    expected: list[Message] = [UserMessage([Text("Is it wet?"), *shown(number, "")])]
    for turn in turns:
        thought: list[Part] = [Reasoning(turn.thought)] if turn.thought else []
        said: list[Part] = [Text(turn.text)] if turn.text else []
        calls = [ToolCall("", "weather", json.dumps(arguments)) for arguments in turn.calls]
        read, cached, written = turn.tokens
        usage = Usage(input_tokens=read, output_tokens=written, cache_read_tokens=cached)
        stop = "tool_calls" if calls else "stop"
        expected.append(AssistantMessage([*thought, *said, *calls], stop, usage))
        expected += [
            ToolMessage("", "weather", [Text(f"rain at {place}"), *shown(number, place)])
            for place in [str(arguments["place"]) for arguments in turn.calls]
        ]
    assert [expected] * 20 == transcripts
    assert [turns[-1].text] * 20 == outputs
    assert [usages[0]] * 20 == usages
    assert sum(turn.tokens[2] for turn in turns) == usages[0].output_tokens


def _told(name: str, part: Image | File) -> tuple[str, str]:
    where = part.data or part.url or getattr(part, "id", None) or ""
    at_home = name == "gemini" and isinstance(part, File) and part.id is not None
    return part.type, f"https://generativelanguage.googleapis.com/v1beta/files/{where}" if at_home else where


@pytest.mark.promise("T-06", "I-01")
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
