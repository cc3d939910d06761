"""What is said is a value, and a transcript grows without copying what was said before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import assume, given, strategies as st

from turnwright import journal
from turnwright.facts import ModelAnswered
from turnwright.messages import (
    NO_USAGE,
    AssistantMessage,
    File,
    Image,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
    flaw,
    flaw_of_parts,
)
from turnwright.testing.strategies import fact_of, files, images, transcripts

counts = st.builds(Usage, *[st.integers(0, 2**40)] * 7)


@given(transcripts())
def test_a_transcript_is_a_sequence_like_any_other(messages: list[Message]) -> None:
    """Length, iteration, places from both ends, slices, equality: as the list it stands for."""
    transcript = Transcript()
    for message in messages:
        transcript = transcript.append(message)

    assert messages == [*transcript]
    assert transcript == messages
    assert Transcript(messages) == transcript
    assert hash(Transcript(messages)) == hash(transcript)
    assert (messages[0], messages[-1], tuple(messages[1:])) == (transcript[0], transcript[-1], transcript[1:])
    assert tuple(messages[::-2]) == transcript[::-2]
    assert len([each for each in messages if isinstance(each, AssistantMessage)]) == transcript.answers


@given(transcripts(), st.data())
def test_growing_twice_from_one_place_keeps_both_true(messages: list[Message], data: st.DataObject) -> None:
    """Who holds a transcript never sees it change, whoever appends to it, to its past, or twice."""
    held: list[tuple[Transcript, list[Message]]] = [(Transcript(), [])]
    for message in messages:
        transcript, expected = data.draw(st.sampled_from(held))
        held.append((transcript.append(message), [*expected, message]))

    assert [expected for _, expected in held] == [[*transcript] for transcript, _ in held]


def test_growing_at_the_end_copies_nothing() -> None:
    """The storage is shared, so the next turn costs what the first one cost."""
    first = Transcript([UserMessage("a")])
    second = first.append(UserMessage("b"))
    third = second.append(UserMessage("c"))

    assert first._messages is third._messages
    assert [["a"], ["a", "b"], ["a", "b", "c"]] == [[each.text for each in one] for one in (first, second, third)]


@pytest.mark.parametrize("place", [2, -3, 100])
def test_a_place_beyond_the_end_is_an_index_error(place: int) -> None:
    """Also where the shared storage goes on."""
    short = Transcript([UserMessage("a"), UserMessage("b")])
    short.append(UserMessage("c"))

    with pytest.raises(IndexError, match="transcript index out of range"):
        short[place]


@pytest.mark.case("usg-05")
@given(st.lists(counts, max_size=4))
def test_usage_adds_up_and_changes_neither_side(used: list[Usage]) -> None:
    """Every axis is a sum, and nothing added is nothing."""
    total = NO_USAGE
    for each in used:
        total += each

    assert [sum([each.input_tokens for each in used]), sum([each.tool_calls for each in used])] == [
        total.input_tokens,
        total.tool_calls,
    ]
    assert sum([each.total_tokens for each in used]) == total.total_tokens
    assert total == total + NO_USAGE
    assert Usage() == NO_USAGE


def test_text_may_stand_for_its_parts() -> None:
    """A message made of a string holds one text part; its text is that of its text parts, joined."""
    parts: Sequence[Text | ToolCall] = (Text("a"), ToolCall("c", "f", "{}"), Text("b"))

    assert UserMessage((Text("hi"),)) == UserMessage("hi")
    assert ToolMessage("c", "f", (Text("hi"),)) == ToolMessage("c", "f", "hi")
    assert ("ab", (parts[1],)) == (AssistantMessage(parts).text, AssistantMessage(parts).calls)


@given(fact_of(ModelAnswered))
def test_an_answer_of_the_declared_shape_has_no_flaw(answered: ModelAnswered) -> None:
    """Whatever its fields hold, as long as they hold what they say."""
    assume(answered.message.stop_reason not in ("error", "aborted"))  # these are not for a model to say

    assert "" == flaw(answered.message)


@given(images() | files())
def test_an_image_or_a_file_is_a_value_that_json_holds(shown: Image | File) -> None:
    """It is equal to what is read of it, without a flaw, and shows nobody what it holds."""
    told = msgspec.to_builtins([shown])

    assert (shown,) == journal.parts_of(told)
    assert "" == flaw_of_parts([shown])
    assert "data=" not in repr(shown)


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        (Image("image/png"), "Image has exactly one of data, url"),
        (Image("image/png", "QQ==", "https://x/a.png"), "Image has exactly one of data, url"),
        (File("application/pdf"), "File has exactly one of data, url, id"),
        (File("application/pdf", url="https://x/a.pdf", id="file_1"), "File has exactly one of data, url, id"),
        (File("application/pdf", data=b"%PDF"), "File.data is bytes"),  # type: ignore[arg-type]
        (File(None, id="file_1"), "File.media_type is NoneType"),  # type: ignore[arg-type]
    ],
)
def test_an_image_or_a_file_is_in_one_place(shown: Image | File, wrong: str) -> None:
    """What is nowhere, or in two places, is no part that could be sent."""
    assert wrong == flaw_of_parts([shown])
