"""Law 2 over the wire: one conversation gives one transcript and one usage, in every vendor's dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

import httpx
import pytest
from attrs import evolve as replace, frozen
from hypothesis import given, settings, strategies as st

from tests.adapters import test_anthropic as claude, test_gemini as gemini, test_responses as openai
from tests.adapters.chat import Object, call_chunk, chunk, request, sse, whole
from tests.adapters.dialects import events
from tests.adapters.test_chat_completions import Pieces
from turnwright import AgentDefinition, Completed, Ports, run_agent, tool
from turnwright.errors import ModelError
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
    flaw,
)
from turnwright.ports import Model
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

THOUGHT = "Two places, so two calls."
PLACES: list[Object] = [{"place": "Zürich"}, {"place": "Kraków 🌧"}]
FINAL = "Both are wet. ✓"


@frozen
class Vendor:
    """A vendor's adapter, and the two replies of the conversation, each streamed and whole."""

    model: Callable[..., Model]
    streamed: Sequence[bytes]
    whole: Sequence[bytes]


def _chat() -> Vendor:
    usage: Object = {
        "prompt_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    calls = [
        {"id": f"c{place}", "function": {"name": "weather", "arguments": json.dumps(arguments)}}
        for place, arguments in enumerate(PLACES)
    ]
    pieces = [
        call_chunk(index=place, id=f"c{place}", name="weather", arguments=json.dumps(arguments)[:4])
        for place, arguments in enumerate(PLACES)
    ]
    rests = [call_chunk(index=place, arguments=json.dumps(arguments)[4:]) for place, arguments in enumerate(PLACES)]
    first = sse(
        chunk({"reasoning_content": THOUGHT[:7]}),
        chunk({"reasoning_content": THOUGHT[7:]}),
        chunk({"content": "I will look."}),
        *pieces,
        *rests,
        chunk({}, "tool_calls", usage=usage),
    )
    second = sse(chunk({"content": FINAL[:5]}), chunk({"content": FINAL[5:]}, "stop", usage=usage))
    said: Object = {"reasoning_content": THOUGHT, "content": "I will look.", "tool_calls": calls}
    return Vendor(
        ChatCompletionsModel,
        [first, second],
        [whole(said, "tool_calls", usage=usage), whole({"content": FINAL}, usage=usage)],
    )


def _anthropic() -> Vendor:
    usage: Object = {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 20}
    head: Object = {"id": "m1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    start = {"type": "message_start", "message": {**head, "usage": {**usage, "output_tokens": 1}}}
    blocks: list[Object] = [
        {"type": "thinking", "thinking": THOUGHT, "signature": "SIG="},
        {"type": "text", "text": "I will look."},
        *[
            {"type": "tool_use", "id": f"c{place}", "name": "weather", "input": arguments}
            for place, arguments in enumerate(PLACES)
        ],
    ]
    streamed: list[Object] = [
        start,
        claude.begin(0, type="thinking", thinking="", signature=""),
        claude.piece(0, "thinking_delta", thinking=THOUGHT[:7]),
        claude.piece(0, "thinking_delta", thinking=THOUGHT[7:]),
        claude.piece(0, "signature_delta", signature="SIG="),
        claude.close(0),
        claude.begin(1, type="text", text=""),
        claude.piece(1, "text_delta", text="I will look."),
        claude.close(1),
    ]
    for place, arguments in enumerate(PLACES, start=2):
        written = json.dumps(arguments)
        streamed += [
            claude.begin(place, type="tool_use", id=f"c{place - 2}", name="weather", input={}),
            claude.piece(place, "input_json_delta", partial_json=written[:4]),
            claude.piece(place, "input_json_delta", partial_json=written[4:]),
            claude.close(place),
        ]
    last = claude.end("tool_use", **usage), claude.end("end_turn", **usage)
    replies = [
        {**head, "content": blocks, "stop_reason": "tool_use", "usage": usage},
        {**head, "content": [{"type": "text", "text": FINAL}], "stop_reason": "end_turn", "usage": usage},
    ]
    return Vendor(
        AnthropicModel,
        [events(*streamed, *last[0]), events(start, *claude.said(FINAL), *last[1])],
        [json.dumps(reply).encode() for reply in replies],
    )


def _responses() -> Vendor:
    usage: Object = {
        "input_tokens": 14,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
    }
    calls = [openai.call(f"c{place}", json.dumps(each), name="weather") for place, each in enumerate(PLACES)]
    items = [openai.thought(THOUGHT, secret="E"), openai.message(openai.text("I will look.")), *calls]
    final = openai.message(openai.text(FINAL))

    def begun(index: int) -> list[Object]:
        return [
            openai.event("output_item.added", index, item=openai.message()),
            openai.event("content_part.added", index, item_id="msg_1", content_index=0, part=openai.text("")),
        ]

    created = openai.event("created", response={"id": "r1", "model": "m-1", "status": "in_progress", "output": []})
    streamed: list[Object] = [
        created,
        openai.event("output_item.added", 0, item=openai.thought()),
        openai.event("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=0, delta=THOUGHT[:7]),
        openai.event("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=0, delta=THOUGHT[7:]),
        openai.event("output_item.done", 0, item=items[0]),
        *begun(1),
        openai.event("output_text.delta", 1, item_id="msg_1", content_index=0, delta="I will look."),
    ]
    for place, call in enumerate(calls, start=2):
        written = str(call["arguments"])
        streamed += [
            openai.event("output_item.added", place, item={**call, "arguments": ""}),
            openai.event("function_call_arguments.delta", place, item_id=call["id"], delta=written[:4]),
            openai.event("function_call_arguments.delta", place, item_id=call["id"], delta=written[4:]),
            openai.event("function_call_arguments.done", place, item_id=call["id"], arguments=written),
            openai.event("output_item.done", place, item=call),
        ]
    said = openai.event("output_text.delta", 0, item_id="msg_1", content_index=0, delta=FINAL[:5])
    return Vendor(
        ResponsesModel,
        [
            events(*streamed, openai.end(*items, usage=usage)),
            events(created, *begun(0), said, openai.end(final, usage=usage)),
        ],
        [json.dumps(openai.response(*output, usage=usage)).encode() for output in (items, [final])],
    )


def _gemini() -> Vendor:
    usage: Object = {
        "promptTokenCount": 14,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 15,
        "thoughtsTokenCount": 5,
    }
    calls: list[Object] = [{"functionCall": {"name": "weather", "args": arguments}} for arguments in PLACES]
    calls[0]["thoughtSignature"] = "SIG="
    thought: Object = {"text": THOUGHT, "thought": True}
    streamed = [
        gemini.reply({"text": THOUGHT[:7], "thought": True}, finish=None, usageMetadata={"promptTokenCount": 14}),
        gemini.reply({"text": THOUGHT[7:], "thought": True}, {"text": "I will "}, finish=None),
        gemini.reply({"text": "look."}, calls[0], finish=None),
        gemini.reply(calls[1], usageMetadata=usage),
    ]
    last = [
        gemini.reply({"text": FINAL[:5]}, finish=None),
        gemini.reply({"text": FINAL[5:]}, usageMetadata=usage),
    ]
    replies = [
        gemini.reply(thought, {"text": "I will look."}, *calls, usageMetadata=usage),
        gemini.reply({"text": FINAL}, usageMetadata=usage),
    ]
    return Vendor(GeminiModel, [events(*streamed), events(*last)], [json.dumps(reply).encode() for reply in replies])


VENDORS = {"chat": _chat(), "anthropic": _anthropic(), "responses": _responses(), "gemini": _gemini()}


@tool
async def weather(place: str) -> str:
    """The weather at a place."""
    return f"rain at {place}"


FORECASTER = AgentDefinition(name="forecaster", instruction="Be brief.", tools=[weather])


async def play(
    vendor: Vendor,
    *,
    cuts: Sequence[int] | None,
    agent: AgentDefinition[str, str] = FORECASTER,
    sent: list[bytes] | None = None,
) -> tuple[list[Message], Usage, object]:
    """Run the conversation, streamed and cut at *cuts*, or not streamed; give its transcript, usage and output.

    The bodies of the requests are added to *sent*.
    """
    replies = iter(vendor.whole if cuts is None else vendor.streamed)

    def answer(asked: httpx.Request) -> httpx.Response:
        if sent is not None:
            sent.append(asked.content)
        body = next(replies)
        kind = "application/json" if cuts is None else "text/event-stream"
        edges = [0, *sorted([cut % len(body) for cut in cuts or ()]), len(body)]
        pieces = [body[start:stop] for start, stop in pairwise(edges)]
        return httpx.Response(200, headers={"content-type": kind}, stream=Pieces(pieces))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        model = vendor.model("m", client=client, stream=cuts is not None)
        outcome = await run_agent(agent, "Is it wet?", Ports(model=model))
    assert isinstance(outcome, Completed)
    return list(outcome.transcript), outcome.usage, outcome.output


def plainly(message: Message) -> Message:
    """The message without what is a vendor's own: ids, signatures, names and words."""
    match message:
        case AssistantMessage():
            parts: list[Part] = []
            for part in message.parts:
                match part:
                    case ToolCall():
                        parts.append(ToolCall("", part.name, json.dumps(json.loads(part.arguments))))
                    case Reasoning() | Text():
                        parts.append(replace(part, signature=None))
                    case _:
                        parts.append(part)
            return AssistantMessage(parts, message.stop_reason, replace(message.usage, reasoning_tokens=0))
        case ToolMessage():
            return replace(message, call_id="")
        case _:
            return message


USAGE = Usage(input_tokens=10, output_tokens=20, cache_read_tokens=4)
TRANSCRIPT: list[Message] = [
    UserMessage("Is it wet?"),
    AssistantMessage(
        [
            Reasoning(THOUGHT),
            Text("I will look."),
            *[ToolCall("", "weather", json.dumps(arguments)) for arguments in PLACES],
        ],
        "tool_calls",
        USAGE,
    ),
    *[ToolMessage("", "weather", f"rain at {arguments['place']}") for arguments in PLACES],
    AssistantMessage(FINAL, "stop", USAGE),
]


@pytest.mark.promise("T-06")
@pytest.mark.parametrize("name", VENDORS)
async def test_one_conversation_gives_one_transcript_in_every_dialect(name: str) -> None:
    """Thoughts, text, two calls at once, their results and the answer; what is used is counted alike."""
    transcript, usage, output = await play(VENDORS[name], cuts=None)

    assert TRANSCRIPT == [plainly(message) for message in transcript]
    assert (2, 20, 40, 8, 0, 2) == (
        usage.requests,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.tool_calls,
    )
    assert FINAL == output


@pytest.mark.promise("T-06")
@pytest.mark.parametrize("name", VENDORS)
@given(st.lists(st.integers(0, 5_000), max_size=8))
@settings(max_examples=10)
async def test_streaming_changes_nothing_however_it_is_cut(name: str, cuts: list[int]) -> None:
    """Not a signature, not an id, not a token."""
    assert await play(VENDORS[name], cuts=None) == await play(VENDORS[name], cuts=cuts)


@pytest.mark.promise("T-06")
@pytest.mark.parametrize("name", VENDORS)
async def test_a_stream_in_single_bytes_is_the_stream(name: str) -> None:
    """Characters of several bytes too."""
    vendor = VENDORS[name]

    assert await play(vendor, cuts=None) == await play(vendor, cuts=range(max(map(len, vendor.streamed))))


@pytest.mark.parametrize("name", VENDORS)
@given(st.data())
@settings(max_examples=40)
async def test_no_damage_to_a_reply_is_more_than_a_model_error(name: str, data: st.DataObject) -> None:
    """Whatever stands where something else should, it is an answer or a ModelError."""
    vendor = VENDORS[name]
    streamed = data.draw(st.booleans())
    body = vendor.streamed[0] if streamed else vendor.whole[0]
    values = [*re.finditer(rb'(?<=: )("[^"]*"|\d+|\{\}|null)', body)]
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=3, unique=True))
    for value in [values[place] for place in sorted(places, reverse=True)]:
        wrong = data.draw(st.sampled_from([b"null", b"7", b'"x"', b"[]", b"{}", b"[{}]", b"true", b'["type"]']))
        body = body[: value.start()] + wrong + body[value.end() :]
    kind = "text/event-stream" if streamed else "application/json"

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": kind}, stream=Pieces([body]))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        try:
            message = await vendor.model("m", client=client).complete(request(on_delta=lambda _: None))
        except ModelError:
            return

    assert "" == flaw(message)
