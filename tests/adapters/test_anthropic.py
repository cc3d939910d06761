"""Anthropic's Messages: what is sent, and what is made of replies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from tests.adapters.chat import Object, request, tool
from tests.adapters.dialects import Dialect, events
from tests.adapters.test_chat_requests import histories
from turnwright.errors import ModelError
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from turnwright.ports import Model, OutputSpec
from turnwright.testing.byte_server import RawReply
from turnwright_adapters.anthropic import AnthropicModel

OK: Object = {"id": "m1", "model": "c", "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"}


def make(url: str, **options: object) -> AnthropicModel:
    """A model behind *url* that marks nothing for the cache."""
    return AnthropicModel("c", base_url=url, **{"cache": "none", **options})  # type: ignore[arg-type]


CLAUDE = Dialect(make, OK)

START: Object = {
    "type": "message_start",
    "message": {"id": "m1", "model": "c-1", "content": [], "usage": {"input_tokens": 100, "output_tokens": 1}},
}


def begin(index: int, **block: object) -> Object:
    """The start of a block."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, **delta: object) -> Object:
    """A piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def close(index: int) -> Object:
    """The end of a block."""
    return {"type": "content_block_stop", "index": index}


def end(reason: str | None, **usage: object) -> tuple[Object, Object]:
    """The last two events."""
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, {"type": "message_stop"}


def said(text: str) -> tuple[Object, ...]:
    """A block of text."""
    return begin(0, type="text", text=""), piece(0, "text_delta", text=text), close(0)


async def test_it_is_a_model() -> None:
    """The adapter keeps the port's shape."""
    assert isinstance(make("http://127.0.0.1:1"), Model)


@pytest.mark.case("ant-01")
async def test_a_total_of_null_takes_none_back() -> None:
    """What message_start counted stays."""
    heard = await CLAUDE.hear(events(START, *said("hi"), *end("end_turn", input_tokens=None, output_tokens=5)))

    assert ("hi", Usage(input_tokens=100, output_tokens=5)) == (heard.message.text, heard.message.usage)


@pytest.mark.case("usg-01")
async def test_totals_replace_each_other() -> None:
    """They are cumulative, and input tokens leave the cached ones out."""
    usage: Object = {
        "input_tokens": 9,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 2,
        "output_tokens": 1,
        "output_tokens_details": {"thinking_tokens": 3},
    }
    head = {"type": "message_start", "message": {"usage": usage}}

    heard = await CLAUDE.hear(events(head, *said("hi"), *end("end_turn", **{**usage, "output_tokens": 16})))

    assert Usage(0, 9, 16, cache_read_tokens=5, cache_write_tokens=2, reasoning_tokens=3) == heard.message.usage


@pytest.mark.case("ant-02")
async def test_a_thought_goes_back_as_it_was_signed() -> None:
    """Byte for byte, before the call that it led to; one that cannot be read too."""
    thought = ' hm\n"\u00e9\u2028'
    stream = events(
        START,
        begin(0, type="thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking=thought[:2]),
        piece(0, "thinking_delta", thinking=thought[2:]),
        piece(0, "signature_delta", signature="SIG="),
        close(0),
        begin(1, type="redacted_thinking", data="ENC="),
        close(1),
        begin(2, type="tool_use", id="tu1", name="f", input={}),
        close(2),
        *end("tool_use", output_tokens=9),
    )

    answer = (await CLAUDE.hear(stream)).message
    messages = await CLAUDE.history("messages", UserMessage("hi"), answer, ToolMessage("tu1", "f", "r"))

    assert (
        Reasoning(thought, "SIG="),
        Reasoning("", "ENC=", redacted=True),
        ToolCall("tu1", "f", "{}"),
    ) == answer.parts
    assert [
        {"type": "thinking", "thinking": thought, "signature": "SIG="},
        {"type": "redacted_thinking", "data": "ENC="},
        {"type": "tool_use", "id": "tu1", "name": "f", "input": {}},
    ] == messages[1]["content"]


@pytest.mark.case("ant-04")
async def test_an_error_in_mid_stream_is_an_error() -> None:
    """Though the status was 200."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

    failure = await CLAUDE.failure(RawReply(events(START, *said("par"), error)))

    assert ("overloaded", True) == (failure.kind, failure.retryable)


@pytest.mark.case("ant-05")
@pytest.mark.parametrize("last", [(), (end("tool_use")[0],)])
async def test_an_answer_without_message_stop_is_none(last: tuple[Object, ...]) -> None:
    """However much of it came, its stop reason too."""
    start = begin(0, type="tool_use", id="tu1", name="delete", input={})
    cut = events(START, start, piece(0, "input_json_delta", partial_json='{"path":"/a'), *last)

    failure = await CLAUDE.failure(RawReply(cut))

    assert ("connection", True) == (failure.kind, failure.retryable)


@pytest.mark.case("ant-07")
async def test_what_is_unknown_is_nothing() -> None:
    """Events, deltas, blocks and a head without a message."""
    heard = await CLAUDE.hear(
        events(
            {"type": "message_start", "message": None, "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}},
            {"type": "ping"},
            {"type": "brand_new_event", "foo": 1},
            START,
            begin(0, type="text", text=""),
            piece(0, "future_delta", x=1),
            piece(0, "text_delta", text="hi"),
            begin(1, type="server_tool_use", id="s", name="web", input={}),
            piece(1, "input_json_delta", partial_json="{}"),
            *end("end_turn", output_tokens=1),
        )
    )

    assert ((Text("hi"),), 100) == (heard.message.parts, heard.message.usage.input_tokens)


@pytest.mark.case("ant-09")
async def test_a_call_without_arguments_has_an_empty_object() -> None:
    """In the answer, in what watchers see and in the next request."""
    start = begin(0, type="tool_use", id="tu1", name="now", input={})

    heard = await CLAUDE.hear(
        events(START, start, piece(0, "input_json_delta", partial_json=""), close(0), *end("tool_use"))
    )

    assert (ToolCall("tu1", "now", "{}"),) == heard.message.parts
    assert {(0, "now"): "{}"} == heard.told
    assert "tool_calls" == heard.message.stop_reason


@pytest.mark.case("ant-10")
async def test_one_answer_is_one_message_and_its_results_are_one() -> None:
    """Four blocks in order, then both results, then what was said since."""
    answer = AssistantMessage(
        (Reasoning("t", "S"), Text("doing"), ToolCall("tu1", "f", "{}"), ToolCall("tu2", "f", "{}")),
        provider="anthropic",
    )

    messages = await CLAUDE.history(
        "messages",
        UserMessage("go"),
        answer,
        ToolMessage("tu2", "f", "r2", is_error=True),
        ToolMessage("tu1", "f", "r1"),
        UserMessage("and?"),
    )

    kinds = [[block["type"] for block in message["content"]] for message in messages]  # type: ignore[attr-defined]
    assert [["text"], ["thinking", "text", "tool_use", "tool_use"], ["tool_result", "tool_result", "text"]] == kinds
    assert [
        {"type": "tool_result", "tool_use_id": "tu1", "content": "r1"},
        {"type": "tool_result", "tool_use_id": "tu2", "content": "r2", "is_error": True},
        {"type": "text", "text": "and?"},
    ] == messages[2]["content"]


@pytest.mark.case("his-05", "his-10")
async def test_thoughts_unsigned_foreign_or_alone_are_not_sent() -> None:
    """And no message ends with one."""
    messages = await CLAUDE.history(
        "messages",
        UserMessage("a"),
        AssistantMessage((Reasoning("x", "S"),), provider="anthropic"),
        AssistantMessage((Reasoning("x"), Text("one")), provider="anthropic"),
        AssistantMessage((Reasoning("x", "S"), Refusal("two")), provider="openai"),
        AssistantMessage((Text("three"), Reasoning("x", "S")), provider="anthropic"),
        UserMessage("b"),
    )

    assert [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": text} for text in ("one", "two", "three")]},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
    ] == messages


@pytest.mark.case("his-06")
async def test_only_the_last_answer_loses_its_trailing_space() -> None:
    """The stored history keeps it."""
    last = AssistantMessage("Plan:\n ")

    messages = await CLAUDE.history("messages", UserMessage("a"), AssistantMessage("in "), UserMessage("b"), last)

    assert ["a", "in ", "b", "Plan:"] == [message["content"][0]["text"] for message in messages]  # type: ignore[index]
    assert "Plan:\n " == last.text


@pytest.mark.case("his-01", "his-02", "his-03", "his-07", "arg-06")
@given(histories())
async def test_every_history_is_sent_in_a_valid_form(history: list[Message]) -> None:
    """User and assistant by turns, results first and right after their calls, ids distinct, no blank text."""
    model = AnthropicModel("c", cache="none")
    turns = [json.loads(turn) for turn in model._turns(history)]

    ids: list[str] = []
    open_calls: list[str] = []
    for place, turn in enumerate(turns):
        assert ("user", "assistant")[place % 2] == turn["role"]
        assert turn["content"]
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        assert open_calls == results
        assert ["tool_result"] * len(results) == [block["type"] for block in turn["content"]][: len(results)]
        open_calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        ids += open_calls
        assert all(isinstance(block["input"], dict) for block in turn["content"] if block["type"] == "tool_use")
        assert all(block["text"].strip() for block in turn["content"] if block["type"] == "text")
    assert [] == open_calls
    assert len(ids) == len(set(ids))


async def test_a_full_request() -> None:
    """Every member in its place, and the cache marks where the next request begins to differ."""
    asked = request(
        instruction="be kind",
        tools=(tool("a"), tool("fs.read")),
        tool_choice="fs.read",
        options={"stop": "END", "parallel_tool_calls": False, "top_k": 4},
    )
    mark = {"type": "ephemeral", "ttl": "1h"}

    seen = await CLAUDE.seen(asked, cache="long", api_key="k-1")

    assert ("POST", "/v1/messages") == (seen.method, seen.path)
    assert ("k-1", "2023-06-01") == (seen.headers["x-api-key"], seen.headers["anthropic-version"])
    body = json.loads(seen.body)
    read = body["tools"][1]["name"]
    assert {
        "model": "c",
        "max_tokens": 8192,
        "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", "name": read, "disable_parallel_tool_use": True},
        "top_k": 4,
        "system": [{"type": "text", "text": "be kind", "cache_control": mark}],
        "tools": [
            {"name": "a", "description": "what a does", "input_schema": {"type": "object", "properties": {}}},
            {
                "name": read,
                "description": "what fs.read does",
                "input_schema": {"type": "object", "properties": {}},
                "cache_control": mark,
            },
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": mark}]}],
    } == body


@pytest.mark.parametrize(
    ("choice", "wire"), [("auto", None), ("none", {"type": "none"}), ("required", {"type": "any"})]
)
async def test_the_tool_choice_is_sent_with_tools_only(choice: str, wire: object) -> None:
    """The default is not sent."""
    assert wire == (await CLAUDE.sent(request(tools=(tool("f"),), tool_choice=choice))).get("tool_choice")
    assert "tool_choice" not in await CLAUDE.sent(request(tool_choice=choice))


async def test_thinking_has_room_beside_the_answer() -> None:
    """The limit must be above the budget."""
    thinking = {"type": "enabled", "budget_tokens": 1000}

    assert 9192 == (await CLAUDE.sent(request(options={"thinking": thinking})))["max_tokens"]
    assert 7 == (await CLAUDE.sent(request(options={"max_tokens": 7})))["max_tokens"]


@pytest.mark.promise("I-01")
async def test_images_travel_by_value_and_by_address() -> None:
    """In prompts and in results."""
    data, url = Image("image/png", data="QQ=="), Image("image/png", url="https://x/y.png")
    sources: list[Object] = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}},
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
    ]

    messages = await CLAUDE.history(
        "messages",
        UserMessage((data, url)),
        AssistantMessage((ToolCall("t", "f", "{}"),)),
        ToolMessage("t", "f", (Text(" "), data, url)),
    )

    assert sources == messages[0]["content"]
    assert sources == messages[2]["content"][0]["content"]  # type: ignore[index]


@pytest.mark.promise("P-16", "I-01")
async def test_files_travel_as_documents() -> None:
    """In prompts and in results: PDF by value, by address and by id, text as text, and others in words."""
    files = (
        File("application/pdf", data="QQ==", name="a.pdf"),
        File("application/pdf", url="https://x/y.pdf"),
        File("application/pdf", id="file_1"),
        File("text/markdown", data="IyBo", name="n.md"),
        File("application/zip", id="file_2"),
        File("text/html", url="https://x/y"),
    )
    documents: list[Object] = [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "# h"},
            "title": "n.md",
        },
        {"type": "text", "text": "(a file that this model cannot read)"},
        {"type": "text", "text": "(the file https://x/y, which this model cannot read)"},
    ]

    messages = await CLAUDE.history(
        "messages",
        UserMessage(files),
        AssistantMessage((ToolCall("t", "f", "{}"),)),
        ToolMessage("t", "f", files),
    )

    assert documents == messages[0]["content"]
    assert documents == messages[2]["content"][0]["content"]  # type: ignore[index]


async def test_what_a_failed_call_shows_follows_all_results_of_its_batch() -> None:
    """For an error is told in text alone, and nothing stands before a result."""
    picture, calls = Image("image/png", data="QQ=="), [ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")]

    messages = await CLAUDE.history(
        "messages",
        UserMessage("go"),
        AssistantMessage(calls),
        ToolMessage("a", "f", [picture], is_error=True),
        ToolMessage("b", "f", "fine"),
        UserMessage("and?"),
    )

    first, second, shown, last = messages[2]["content"]  # type: ignore[misc]
    assert ("(see attached image)", True, "fine") == (first["content"], first["is_error"], second["content"])  # type: ignore[index]
    assert ("image", "and?") == (shown["type"], last["text"])  # type: ignore[index]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("a_new_one", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
    ],
)
async def test_stop_reasons_are_told_in_our_terms(word: str, reason: str) -> None:
    """The provider's own word is kept."""
    message = await CLAUDE.read({**OK, "stop_reason": word})

    assert (reason, word) == (message.stop_reason, message.raw_stop_reason)


async def test_a_refusal_says_why_if_the_provider_does() -> None:
    """Streamed or not."""
    details = {"type": "refusal", "category": None, "explanation": "Not this."}
    last: Object = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}

    heard = await CLAUDE.hear(events(START, *said("So"), last, {"type": "message_stop"}))
    whole = await CLAUDE.read(
        {"content": [{"type": "text", "text": "So"}], "stop_reason": "refusal", "stop_details": details}
    )

    assert ((Text("So"), Refusal("Not this.")), "refusal") == (heard.message.parts, heard.message.stop_reason)
    assert heard.message.parts == whole.parts


VERDICT = OutputSpec("verdict", {"type": "object", "properties": {"good": {"type": "boolean"}}})


async def test_an_output_is_asked_for_in_words() -> None:
    """The schema is in the instruction."""
    body = await CLAUDE.sent(request(instruction="x", output=VERDICT))

    assert json.dumps(VERDICT.schema, separators=(",", ":")) in body["system"][0]["text"]  # type: ignore[index]
    assert "tools" not in body


@pytest.mark.parametrize(
    ("changes", "choice"),
    [
        ({}, {"type": "tool", "name": "verdict"}),
        ({"tools": (tool("f"),)}, {"type": "any"}),
        ({"tools": (tool("f"),), "tool_choice": "none"}, {"type": "tool", "name": "verdict"}),
        ({"tools": (tool("f"),), "options": {"thinking": {"type": "enabled", "budget_tokens": 1}}}, None),
        ({"tools": (tool("f"),), "tool_choice": "required"}, {"type": "any"}),
    ],
)
async def test_an_output_may_be_asked_for_by_a_tool(changes: Object, choice: object) -> None:
    """It must be called, unless the model thinks; where another tool must be, it is not there."""
    body = await CLAUDE.sent(request(output=VERDICT, **changes), output_mode="tool")

    names = [each["name"] for each in body["tools"]]  # type: ignore[attr-defined]
    assert choice == body.get("tool_choice")
    assert (changes.get("tool_choice") != "required") == ("verdict" in names)


async def test_what_the_output_tool_is_given_is_the_answer() -> None:
    """Streamed or not, and what was said before it is not; beside calls it is text like other text."""
    asked = request(output=VERDICT)
    blocks: list[Object] = [
        {"type": "text", "text": "Here:"},
        {"type": "tool_use", "id": "o", "name": "verdict", "input": {"good": True}},
    ]
    stream = events(
        START,
        *said("Here:"),
        begin(1, type="tool_use", id="o", name="verdict", input={}),
        piece(1, "input_json_delta", partial_json='{"good"'),
        piece(1, "input_json_delta", partial_json=": true}"),
        *end("tool_use"),
    )
    call: Object = {"type": "tool_use", "id": "t", "name": "f", "input": {}}

    heard = await CLAUDE.hear(stream, asked, output_mode="tool")
    whole = await CLAUDE.read({**OK, "content": blocks}, asked, output_mode="tool")
    beside = await CLAUDE.read({**OK, "content": [*blocks, call]}, asked, output_mode="tool")

    assert ((Text('{"good":true}'),), "stop") == (heard.message.parts, heard.message.stop_reason)
    assert heard.message.parts == whole.parts
    assert ["text", "text", "tool_call"] == [part.type for part in beside.parts]


async def test_an_output_and_a_tool_of_one_name_are_refused_unsent() -> None:
    """Their calls could not be told apart."""
    with pytest.raises(ModelError) as failure:
        await make("http://127.0.0.1:1", output_mode="tool").complete(request(output=VERDICT, tools=(tool("verdict"),)))

    assert ("invalid_request", False) == (failure.value.kind, failure.value.dispatched)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (529, "overloaded_error", "overloaded"),
        (429, "rate_limit_error", "rate_limit"),
        (401, "authentication_error", "auth"),
        (413, "request_too_large", "context_overflow"),
        (500, "api_error", "internal"),
        (200, "api_error", "internal"),
    ],
)
async def test_errors_become_closed_kinds(status: int, kind: str, expected: str) -> None:
    """Also one that comes with a good status."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": "x"}}).encode()

    failure = await CLAUDE.failure(RawReply(body, status=status, headers={"content-type": "application/json"}))

    assert expected == failure.kind


async def test_a_piece_may_come_without_the_start_of_its_block() -> None:
    """As some gateways send it."""
    stream = events(
        START, piece(0, "thinking_delta", thinking="t"), piece(1, "text_delta", text="hi"), *end("end_turn")
    )

    parts: tuple[Part, ...] = (Reasoning("t"), Text("hi"))
    assert parts == (await CLAUDE.hear(stream)).message.parts


@pytest.mark.promise("A-02")
async def test_what_is_stable_of_an_instruction_is_a_marked_block_of_its_own() -> None:
    """The mark is at the end of what the provider may keep, and the rest follows unmarked."""
    asked = request(instruction="be kind\n\nit is noon", stable=len("be kind"))

    sent = await CLAUDE.sent(asked, cache="short")

    kept = {"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}
    assert [kept, {"type": "text", "text": "it is noon"}] == sent["system"]
