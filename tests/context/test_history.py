"""What a model is sent of a history, whoever the provider is."""

from __future__ import annotations

import pytest
from attrs import evolve as replace
from hypothesis import given, strategies as st

from tests.adapters.test_histories import histories
from turnwright.agent import Agent
from turnwright.context.history import NO_FILE, NO_IMAGE, _is_sound, _mended, fitted, paired, repaired
from turnwright.lifecycle import MessageEnd
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from turnwright.testing import ScriptedModel, text
from turnwright.testing.strategies import transcripts


@given(histories(), st.sets(st.sampled_from(["image", "file"])))
def test_what_was_repaired_needs_no_repair(history: list[Message], taken: set[str]) -> None:
    """A second repair changes nothing."""

    def takes(shown: Image | File) -> bool:
        return shown.type in taken

    once = list(repaired(history, apart=True, provider="anthropic", takes=takes))

    assert once == list(repaired(once, apart=True, provider="anthropic", takes=takes))


@given(transcripts())
def test_a_sound_message_is_given_as_it_is(history: list[Message]) -> None:
    """The same object, so that what was made of it can be remembered."""
    for message in history:
        fit = fitted(message)

        assert fit is message or fit != message


@given(histories(), st.booleans())
def test_what_is_sound_at_a_glance_is_sound_when_looked_at(history: list[Message], ours: bool) -> None:
    """The glance saves work and changes nothing."""
    for message in history:
        if _is_sound(message, ours=ours):
            assert message is _mended(message, None, ours=ours)


def test_the_results_of_an_aborted_attempt_answer_no_earlier_call() -> None:
    """Even where the provider gave both calls one id."""
    aborted = AssistantMessage([ToolCall("c", "f", "{}")], "aborted")
    history = [AssistantMessage([ToolCall("c", "f", "{}")]), aborted, ToolMessage("c", "f", "aborted")]

    first, result = paired(history)

    assert isinstance(result, ToolMessage)
    assert (history[0], "(no result was recorded; the call may or may not have run)") == (first, result.text)


@pytest.mark.case("his-03")
@given(st.lists(st.sampled_from("abc"), max_size=6), st.data())
def test_the_first_result_of_a_call_is_its_result_in_whatever_order_they_came(
    order: list[str], data: st.DataObject
) -> None:
    """One each, in the order of the calls, with what was said between them after them all."""
    calls = AssistantMessage([ToolCall(id, "f", "{}") for id in "abc"])
    results: list[Message] = [ToolMessage(id, "f", f"{id} {place}") for place, id in enumerate(order)]
    said = data.draw(st.integers(0, len(results)))

    sent = [*paired([calls, *results[:said], UserMessage("hm"), *results[said:], UserMessage("so?")])]

    first = {id: f"{id} {order.index(id)}" for id in order}
    lost = "(no result was recorded; the call may or may not have run)"
    assert [calls.text, *[first.get(id, lost) for id in "abc"], "hm", "so?"] == [each.text for each in sent]


def test_one_id_in_two_turns_is_told_apart() -> None:
    """By its place in the history, in the call and in its result, and the same in every later request."""
    turn: list[Message] = [AssistantMessage([ToolCall("c", "f", "{}")]), ToolMessage("c", "f", "ok")]

    history = list(paired([*turn, *turn], apart=True))

    assert ["c", "c_0"] == [call.id for each in history if isinstance(each, AssistantMessage) for call in each.calls]
    assert ["c", "c_0"] == [each.call_id for each in history if isinstance(each, ToolMessage)]


def test_a_message_with_another_id_is_the_same_object_in_every_request() -> None:
    """So it is encoded once, also where a provider gives every call one id."""
    turn: list[Message] = [AssistantMessage([ToolCall("c", "f", "{}")]), ToolMessage("c", "f", "ok")]
    again: list[Message] = [AssistantMessage([ToolCall("c", "f", "{}")]), ToolMessage("c", "f", "ok")]
    history = [*turn, *again]

    first, second = list(paired(history, apart=True)), list(paired([*history, UserMessage("go on")], apart=True))

    assert first == second[:4]
    assert [id(each) for each in first] == [id(each) for each in second[:4]]


def test_blank_text_between_words_stays_between_them() -> None:
    """No block of its own, and yet no two words run together."""
    message = UserMessage([Text("a"), Text("\n"), Text("b")])

    assert UserMessage([Text("a\n"), Text("b")]) == fitted(message)


def test_a_run_of_images_has_one_placeholder() -> None:
    """For a model that cannot see them."""
    image, other = Image("image/png", data="QQ=="), Image("image/png", url="https://x.example/a.png")
    message = UserMessage([Text("see"), image, other])

    assert UserMessage([Text("see"), Text(NO_IMAGE)]) == fitted(message, takes=lambda _: False)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (File("application/pdf", data="JVBERg==", name="a.pdf"), "(the file a.pdf, which this model cannot read)"),
        (File("text/plain", url="https://x/a"), "(the file https://x/a, which this model cannot read)"),
        (File("application/pdf", id="file_1"), NO_FILE),
        (File("a/b", id="f", name="a\n\tb"), "(the file a b, which this model cannot read)"),
        (File("a/b", url="x" * 999), f"(the file {'x' * 200}, which this model cannot read)"),
        (File("text/plain", data="w7w=", name="\ud83d"), "\nThe file \ufffd:\nü\n"),
        (File("text/plain; charset=utf-8", data="YQ=="), "\nThe file:\na\n"),
        (File("application/ld+json", data="e30="), "\nThe file:\n{}\n"),
        (File("text/plain", data="/w=="), NO_FILE),
        (File("text/plain", data="no base64"), NO_FILE),
        (File("application/jsonlines", data="e30="), NO_FILE),
    ],
)
def test_the_words_for_a_file_are_its_text_or_that_it_is_there(file: File, words: str) -> None:
    """Text needs nobody who reads files."""
    assert UserMessage([Text(words)]) == fitted(UserMessage([file]), takes=lambda _: False)


@pytest.mark.case("his-10")
def test_an_answer_of_thoughts_alone_is_not_sent() -> None:
    """Providers refuse it."""
    assert fitted(AssistantMessage([Reasoning("x", "S")])) is None


@pytest.mark.case("his-14")
async def test_a_history_that_a_hook_rewrites_is_not_taken_for_new() -> None:
    """What is new is the answer alone, in the transcript and in what was told."""
    copied = ScriptedModel([text("x")])
    agent = Agent(copied, messages=[UserMessage("p")])
    agent.transform_context = lambda messages, _: [replace(message) for message in messages]
    told: list[object] = []
    agent.subscribe(lambda event, _: told.append(event.message) if isinstance(event, MessageEnd) else None)

    await agent.continue_()

    assert [UserMessage("p"), AssistantMessage("x")] == list(agent.state.messages)
    assert [AssistantMessage("x")] == told
