"""Law 6 over the wire: whatever a transcript holds, each provider is sent a history that is valid by its own rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from tests.adapters.chat import request
from tests.adapters.test_chat_completions import Pieces
from tests.adapters.test_dialects import VENDORS
from tests.adapters.validity import PROVIDERS, breaches, shown
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)

NAMES = {"chat": "openai-chat", "anthropic": "anthropic", "responses": "openai-responses", "gemini": "gemini"}


async def sent(vendor: str, messages: Sequence[Message], instruction: str = "", **options: object) -> bytes:
    """Give the body of the request in which *vendor* is sent *messages*."""
    bodies: list[bytes] = []

    def answer(asked: httpx.Request) -> httpx.Response:
        bodies.append(asked.content)
        reply = Pieces([VENDORS[vendor].whole[1]])
        return httpx.Response(200, headers={"content-type": "application/json"}, stream=reply)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        model = VENDORS[vendor].model("m", client=client, stream=False, provider=NAMES[vendor], **options)
        await model.complete(request(*messages, instruction=instruction))
    return bodies[0]


FILES = (
    File("application/pdf", data="JVBERg==", name="a.pdf"),
    File("application/pdf", data="JVBERg=="),
    File("application/pdf", url="https://x.example/a.pdf", name="\ud83d.pdf"),
    File("application/pdf", id="file_011"),
    File("text/plain", data="YSBub3Rl", name="note.txt"),
    File("text/csv", data="IA=="),
    File("text/plain", data="/w=="),
    File("text/html", url="https://x.example/a"),
    File("text/plain", id="files/7"),
    File("application/json", data="e30="),
    File("application/zip", data="UEs=", name="all.zip"),
)
"""Files of every kind, some of which no model reads."""

PLACES = tuple(
    [where for file in FILES for where in (file.data, file.url, file.id) if where]
    + ["QQ==", "https://x.example/a.png", "a note", "{}"]
)
"""Where they are, what those of text say, and where the images are."""


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Transcripts as they may be found: most are in no order, and hold what no provider takes."""
    ids = st.sampled_from(["a", "b", "", "call_1_0", "ü", "c" * 70, "toolu_1|fc_2", "\ud83d"])
    texts = st.sampled_from(["", " ", "\n", "x", "y \n", "\ud83d", "\ud83d\ude00", "☂"])
    signatures = st.none() | st.just("SIGNED")
    said = st.one_of(
        st.builds(Text, texts, signatures),
        st.builds(Reasoning, texts, signatures, st.booleans()),
        st.builds(Refusal, texts),
        st.sampled_from([Image("image/png", data="QQ=="), Image("image/png", url="https://x.example/a.png")]),
        st.sampled_from(FILES),
    )
    call = st.builds(
        ToolCall,
        ids,
        st.sampled_from(["f", "get weather", "n" * 80]),
        st.sampled_from(["{}", '{"a":1}', "", "{", "3", "null", '{"a":"\\ud83d"}', '"\ud83d"', '{"a":NaN}']),
        signatures,
    )
    message = st.one_of(
        st.builds(UserMessage, st.lists(said, max_size=3)),
        st.just(UserMessage("PRIVATE", kind="note")),
        st.builds(
            AssistantMessage,
            st.lists(said | call, max_size=4),
            st.sampled_from(["stop", "tool_calls", "length", "refusal"]),
            provider=st.sampled_from([None, *NAMES.values()]),
        ),
        st.builds(
            lambda parts, why: AssistantMessage([Text("PARTIAL"), *parts], why),
            st.lists(said | call, max_size=2),
            st.sampled_from(["error", "aborted"]),
        ),
        st.builds(ToolMessage, ids, st.sampled_from(["f", "get weather"]), st.lists(said, max_size=3), st.booleans()),
    )
    return draw(st.lists(message, min_size=1, max_size=8))


@pytest.mark.case("his-01", "his-02", "his-03", "his-05", "his-06", "his-07", "his-10")
@pytest.mark.parametrize("vendor", PROVIDERS)
@given(histories())
@settings(max_examples=80)
async def test_every_history_is_sent_in_a_form_that_its_provider_takes(vendor: str, history: list[Message]) -> None:
    """By the provider's documented rules, and without what is nobody's to see."""
    body = await sent(vendor, history)

    assert [] == breaches(vendor, body)
    assert [] == [where for _, where in shown(vendor, body) if not where.endswith(PLACES)]
    assert b"PARTIAL" not in body
    assert b"PRIVATE" not in body


@pytest.mark.parametrize("vendor", PROVIDERS)
@given(histories(), st.sampled_from(["mistral", "xai"]))
@settings(max_examples=30)
async def test_a_signature_goes_to_nobody_but_who_made_it(vendor: str, history: list[Message], other: str) -> None:
    """Not on a text, not on a thought, not on a call."""
    theirs = [
        AssistantMessage(each.parts, each.stop_reason, provider=other) if isinstance(each, AssistantMessage) else each
        for each in history
    ]

    assert b"SIGNED" not in await sent(vendor, theirs)


@pytest.mark.promise("P-16", "I-01")
@pytest.mark.parametrize("vendor", PROVIDERS)
@given(histories(), st.sets(st.sampled_from(["text", "image", "file"])))
@settings(max_examples=30)
async def test_a_model_is_sent_nothing_that_it_does_not_take(
    vendor: str, history: list[Message], modalities: set[str]
) -> None:
    """Words stand for it, and what it takes comes as it would have come."""
    everything, body = await sent(vendor, history), await sent(vendor, history, modalities=modalities)

    assert [] == breaches(vendor, body)
    assert [each for each in shown(vendor, everything) if each[0] in modalities] == shown(vendor, body)


@pytest.mark.promise("P-16", "I-01")
@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_of_a_model_that_nothing_is_known_of_nothing_is_kept(vendor: str) -> None:
    """An image and a document reach it, in a prompt and in a result."""
    both = [Text("see"), Image("image/png", data="QQ=="), FILES[0]]
    calls = AssistantMessage([ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")])
    history = [UserMessage(both), calls, ToolMessage("c1", "f", both), ToolMessage("c2", "f", both, is_error=True)]

    body = await sent(vendor, history)

    assert [] == breaches(vendor, body)
    assert [("image", "QQ=="), ("file", "JVBERg==")] * 3 == shown(vendor, body)


@pytest.mark.parametrize("vendor", PROVIDERS)
async def test_for_a_model_without_eyes_a_text_file_is_text(vendor: str) -> None:
    """And of every other thing it is said that it is there."""
    history = [UserMessage([Text("see"), FILES[4], FILES[0], Image("image/png", data="QQ==")])]

    body = await sent(vendor, history, modalities=["text"])

    words = [
        "The file note.txt:",
        "a note",
        "(the file a.pdf, which this model cannot read)",
        "that this model cannot see",
    ]
    assert [] == [each for each in words if each not in body.decode()]


@pytest.mark.parametrize("vendor", PROVIDERS)
def test_a_modality_by_another_word_is_refused(vendor: str) -> None:
    """It would hide from the model what it takes."""
    with pytest.raises(ValueError, match="'images'"):
        VENDORS[vendor].model("m", modalities=["text", "images"])


@pytest.mark.case("his-11")
@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
async def test_an_instruction_in_mid_conversation_stays_in_its_place(vendor: str) -> None:
    """What is said on the engine's behalf later on is no part of the instruction, which stays as it is."""
    history = [UserMessage("a"), AssistantMessage("b"), UserMessage("switch to French"), UserMessage("c")]

    body = json.loads(await sent(vendor, history, "S0"))

    top = body.get("system") or body["systemInstruction"]["parts"]
    turns = [part["text"] for turn in body.get("messages") or body["contents"] for part in _parts(turn)]
    assert (["S0"], ["a", "b", "switch to French", "c"]) == ([part["text"] for part in top], turns)


def _parts(turn: dict[str, list[dict[str, str]]]) -> list[dict[str, str]]:
    return turn.get("content") or turn["parts"]


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize("damage", [lambda items: items.pop(), lambda items: items.pop(1), list.reverse])
async def test_the_judge_sees_a_result_lost_a_call_lost_and_an_order_turned(
    vendor: str, damage: Callable[[list[object]], object]
) -> None:
    """A judge that finds nothing would prove nothing."""
    history = [UserMessage("go"), AssistantMessage([ToolCall("c1", "f", "{}")]), ToolMessage("c1", "f", "ok")]
    body = json.loads(await sent(vendor, history))
    damage(body[{"responses": "input", "gemini": "contents"}.get(vendor, "messages")])

    assert [] != breaches(vendor, json.dumps(body).encode())
