"""OpenAI's Responses: what is sent, and what is made of replies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from tests.adapters.chat import Object, request, tool
from tests.adapters.dialects import Dialect, events
from tests.adapters.test_chat_requests import histories
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
    Usage,
    UserMessage,
)
from turnwright.ports import Model, OutputSpec
from turnwright.testing.byte_server import RawReply
from turnwright_adapters.responses import ResponsesModel


def response(*output: Object, status: str = "completed", **more: object) -> Object:
    """A whole reply."""
    return {"id": "r1", "model": "m-1", "status": status, "output": [*output], **more}


def message(*content: Object) -> Object:
    """An item of the output that says something."""
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [*content]}


def text(words: str | None) -> Object:
    """Content."""
    return {"type": "output_text", "text": words, "annotations": []}


def call(call_id: str, arguments: str, **more: object) -> Object:
    """A call of f."""
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "f",
        "arguments": arguments,
        **more,
    }


def thought(*summary: str, secret: str | None = None) -> Object:
    """Reasoning."""
    told: list[Object] = [{"type": "summary_text", "text": words} for words in summary]
    return {"type": "reasoning", "id": "rs_1", "summary": told, "encrypted_content": secret}


def event(kind: str, index: int | None = None, **more: object) -> Object:
    """One event of a stream."""
    return {"type": f"response.{kind}", **({} if index is None else {"output_index": index}), **more}


def end(*output: Object, **more: object) -> Object:
    """The last event."""
    return event("completed", response=response(*output, **more))


def make(url: str, **options: object) -> ResponsesModel:
    """A model behind *url*."""
    return ResponsesModel("m", base_url=f"{url}/v1", **options)  # type: ignore[arg-type]


OPENAI = Dialect(make, response(message(text("ok"))))


async def test_it_is_a_model() -> None:
    """The adapter keeps the port's shape."""
    assert isinstance(make("http://127.0.0.1:1"), Model)


@pytest.mark.case("oar-01")
async def test_an_empty_object_replaces_no_arguments() -> None:
    """They came in one event, and a later one says that there are none."""
    heard = await OPENAI.hear(
        events(
            event("output_item.added", 0, item=call("c1", "")),
            event("function_call_arguments.done", 0, item_id="fc_c1", arguments='{"command":"ls"}'),
            event("output_item.done", 0, item=call("c1", "{}")),
            end(),
        )
    )

    assert (ToolCall("c1", "f", '{"command":"ls"}'),) == heard.message.parts
    assert {(0, "f"): '{"command":"ls"}'} == heard.told
    assert "tool_calls" == heard.message.stop_reason


async def test_what_was_told_last_adds_what_was_missing() -> None:
    """Of arguments and of text, and whole arguments replace those that never became an object."""
    heard = await OPENAI.hear(
        events(
            event("output_item.added", 0, item=call("c1", "")),
            event("function_call_arguments.delta", 0, item_id="fc_c1", delta='{"a"'),
            event("output_item.done", 0, item=call("c1", '{"a": 1}')),
            event("output_item.added", 1, item=call("c2", '{"b')),
            event("output_item.done", 1, item=call("c2", '{"c": 1}')),
            event("output_text.delta", 2, item_id="msg_1", content_index=0, delta="he"),
            event("output_item.added", 3, item=call("c3", '{"d')),
            event("output_item.done", 3, item=call("c3", "{}")),
            end(call("c1", '{"a": 1}'), call("c2", "{}"), message(text("hello")), call("c3", "{}")),
        )
    )

    assert (
        ToolCall("c1", "f", '{"a": 1}'),
        ToolCall("c2", "f", '{"c": 1}'),
        Text("hello"),
        ToolCall("c3", "f", '{"d'),
    ) == heard.message.parts
    assert "hello" == heard.told["text"]


@pytest.mark.case("oar-02")
async def test_text_may_be_null() -> None:
    """Then it is none."""
    answer = await OPENAI.read(response(message(text(None), text("Hello"))))

    assert (Text("Hello"),) == answer.parts


@pytest.mark.case("oar-03")
async def test_a_failed_answer_is_an_error() -> None:
    """With its code and its words, streamed or not."""
    failed = response(status="failed", error={"code": "server_error", "message": "boom"})
    created = event("created", response={"id": "r1", "status": "in_progress"})
    stream = events(created, event("failed", response=failed))
    whole = RawReply(json.dumps(failed).encode(), headers={"content-type": "application/json"})

    for reply in (RawReply(stream), whole):
        failure = await OPENAI.failure(reply)

        assert ("internal", True) == (failure.kind, failure.retryable)
        assert "boom" in str(failure)


@pytest.mark.case("oar-03")
@pytest.mark.parametrize(
    ("why", "reason"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("steered", "length")],
)
async def test_an_incomplete_answer_says_so(why: str, reason: str) -> None:
    """With what there is of it."""
    body = response(message(text("par")), status="incomplete", incomplete_details={"reason": why})

    answer = await OPENAI.read(body)
    heard = await OPENAI.hear(
        events(event("output_text.delta", 0, content_index=0, delta="par"), event("incomplete", response=body))
    )

    assert answer == heard.message
    assert ("par", reason, why) == (answer.text, answer.stop_reason, answer.raw_stop_reason)


@pytest.mark.parametrize("status", ["in_progress", "queued", "cancelled", ""])
async def test_an_answer_of_another_status_is_none(status: str) -> None:
    """Nothing was finished."""
    body = json.dumps(response(message(text("par")), status=status)).encode()

    failure = await OPENAI.failure(RawReply(body, headers={"content-type": "application/json"}))

    assert failure.retryable


@pytest.mark.case("oar-03")
async def test_a_stream_without_its_end_is_a_failure() -> None:
    """However much of it came."""
    stream = events(event("output_item.done", 0, item=message(text("whole"))))

    failure = await OPENAI.failure(RawReply(stream + b"data: [DONE]\n\n"))

    assert ("connection", True) == (failure.kind, failure.retryable)


async def test_an_error_event_is_an_error() -> None:
    """In both of its forms."""
    for more in ({"code": "rate_limit_exceeded", "message": "x"}, {"error": {"code": "rate_limit_exceeded"}}):
        failure = await OPENAI.failure(RawReply(events({"type": "error", **more})))

        assert "rate_limit" == failure.kind


OURS = "openai-responses"
SEALED = {"type": "reasoning", "summary": [], "encrypted_content": "E"}


@pytest.mark.case("oar-04", "his-05", "his-10")
async def test_reasoning_is_never_sent_alone() -> None:
    """It needs what it led to; and one that is not sealed, or sealed by others, stays here."""
    items = await OPENAI.history(
        "input",
        UserMessage("hi"),
        AssistantMessage((Reasoning("", "E"),), provider=OURS),
        AssistantMessage((Text("one"), Reasoning("", "E"), Text(" ")), provider=OURS),
        AssistantMessage((Reasoning("x", "E"), Text("two")), provider="anthropic"),
        AssistantMessage((Reasoning("x"), Refusal("three")), provider=OURS),
        AssistantMessage((Reasoning("", "E"), ToolCall("c1", "f", "{}")), provider=OURS),
        UserMessage("again"),
    )

    assert [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "assistant", "content": "three"},
        SEALED,
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    ] == items[:6]
    assert [("function_call_output", "c1"), (None, None)] == [
        (item.get("type"), item.get("call_id")) for item in items[6:]
    ]


@pytest.mark.case("oar-06")
async def test_an_empty_reasoning_is_nothing() -> None:
    """Neither in the answer nor in the next request."""
    answer = await OPENAI.read(response(thought(), call("c1", "{}")))

    items = await OPENAI.history("input", UserMessage("hi"), answer, ToolMessage("c1", "f", "r"))

    assert (ToolCall("c1", "f", "{}"),) == answer.parts
    assert [None, "function_call", "function_call_output"] == [item.get("type") for item in items]


@pytest.mark.case("oar-08")
async def test_what_only_an_output_has_goes_not_back() -> None:
    """Ids, states and whoever made it; only a thought keeps its id, if the provider gave one."""
    raw = {**message({**text("x"), "logprobs": []}), "id": "__fake__", "created_by": {"agent": "a"}}
    answer = await OPENAI.read(response(thought("why", secret="E"), raw, call("c1", '{"a": 1}', status="completed")))

    items = await OPENAI.history("input", UserMessage("hi"), answer, ToolMessage("c1", "f", "r"))

    assert [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "why"}],
            "encrypted_content": "E",
        },
        {"role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
    ] == items[1:]


async def test_a_made_up_id_of_a_thought_goes_not_back() -> None:
    """Its seal does."""
    answer = await OPENAI.read(response({**thought(secret="E"), "id": "__fake__"}, message(text("x"))))

    assert SEALED == (await OPENAI.history("input", UserMessage("hi"), answer))[1]


async def test_items_stand_where_they_belong_whenever_they_are_told() -> None:
    """Some end out of order, and a seal may come with the end of all."""
    heard = await OPENAI.hear(
        events(
            event("output_item.added", 0, item=thought()),
            event("output_item.added", 2, item=call("c1", "{}")),
            event("output_item.done", 1, item=message(text("hi"))),
            end(thought(secret="E"), message(text("hi")), call("c1", "{}")),
        )
    )

    assert (Reasoning("", "rs_1 E"), Text("hi"), ToolCall("c1", "f", "{}")) == heard.message.parts


async def test_summaries_are_paragraphs_of_one_thought() -> None:
    """As deltas and in the answer, streamed or not."""
    whole = response(thought("one", "two", secret="E"), message(text("hi")))

    heard = await OPENAI.hear(
        events(
            event("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=0, delta="o"),
            event("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=0, delta="ne"),
            event("reasoning_summary_text.delta", 0, item_id="rs_1", summary_index=1, delta="two"),
            event("completed", response=whole),
        )
    )

    assert heard.message == await OPENAI.read(whole)
    assert (Reasoning("one\n\ntwo", "rs_1 E"), Text("hi")) == heard.message.parts
    assert "one\n\ntwo" == heard.told["reasoning"]


async def test_the_thoughts_of_open_models_are_heard() -> None:
    """They are plain and never sealed."""
    item = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}]}

    heard = await OPENAI.hear(
        events(event("reasoning_text.delta", 0, item_id="rs_1", content_index=0, delta="h"), end(item))
    )

    assert (Reasoning("hm"),) == heard.message.parts


async def test_a_refusal_is_told_as_one() -> None:
    """Streamed or not, and it goes back as what was said."""
    whole = response(message({"type": "refusal", "refusal": "I will not"}))

    heard = await OPENAI.hear(
        events(
            event("refusal.delta", 0, content_index=0, delta="I will"),
            event("refusal.delta", 0, content_index=0, delta=" not"),
            event("completed", response=whole),
        )
    )

    assert heard.message == await OPENAI.read(whole)
    assert ((Refusal("I will not"),), "refusal") == (heard.message.parts, heard.message.stop_reason)


async def test_items_need_no_place_to_be_known_by() -> None:
    """Their ids will do, and unknown items and events are nothing."""
    heard = await OPENAI.hear(
        events(
            event("brand_new", 0),
            event("output_item.added", item=call("a", "")),
            event("output_item.added", item=call("b", "")),
            event("function_call_arguments.delta", item_id="fc_a", delta='{"x":1}'),
            event("function_call_arguments.delta", item_id="fc_b", delta='{"x":2}'),
            event("output_item.done", item={"type": "web_search_call", "id": "ws"}),
            end(),
        )
    )

    assert (ToolCall("a", "f", '{"x":1}'), ToolCall("b", "f", '{"x":2}')) == heard.message.parts


@pytest.mark.case("his-01", "his-02", "his-03", "his-07", "arg-06")
@given(histories())
async def test_every_history_is_sent_in_a_valid_form(history: list[Message]) -> None:
    """Outputs right after their calls and in their order, ids distinct, arguments objects, nothing empty."""
    items = [json.loads(item) for item in ResponsesModel("m")._items(history)]

    ids: list[str] = []
    waiting: list[str] = []
    for item in items:
        match item.get("type"):
            case "function_call":
                assert isinstance(json.loads(item["arguments"]), dict)
                waiting.append(item["call_id"])
                ids.append(item["call_id"])
            case "function_call_output":
                assert waiting.pop(0) == item["call_id"]
                assert item["output"]
            case _:
                assert item["role"] == "assistant" or [] == waiting
                assert item["content"]
                assert not isinstance(item["content"], str) or item["content"].strip()
    assert items
    assert [] == waiting
    assert len(ids) == len(set(ids))


async def test_a_full_request() -> None:
    """Every member in its place, and nothing is stored."""
    asked = request(
        instruction="be kind",
        tools=(tool("fs.read"),),
        tool_choice="fs.read",
        output=OutputSpec("verdict", {"type": "object", "properties": {"z": {}, "a": {}}}),
        options={"max_tokens": 9, "reasoning": {"effort": "low"}, "text": {"verbosity": "low"}},
        on_delta=lambda _: None,
    )

    seen = await OPENAI.seen(asked, api_key="k-1")

    assert ("POST", "/v1/responses", "Bearer k-1") == (seen.method, seen.path, seen.headers["authorization"])
    body = json.loads(seen.body)
    name = body["tools"][0]["name"]
    assert {
        "model": "m",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 9,
        "reasoning": {"effort": "low"},
        "stream": True,
        "text": {
            "verbosity": "low",
            "format": {
                "type": "json_schema",
                "name": "verdict",
                "schema": {"type": "object", "properties": {"z": {}, "a": {}}},
                "strict": False,
            },
        },
        "tool_choice": {"type": "function", "name": name},
        "instructions": "be kind",
        "tools": [
            {
                "type": "function",
                "name": name,
                "description": "what fs.read does",
                "parameters": {"type": "object", "properties": {}},
                "strict": False,
            }
        ],
        "input": [{"role": "user", "content": "hi"}],
    } == body
    assert b'"z":{},"a":{}' in seen.body


@pytest.mark.parametrize(
    ("model", "reasoning", "asked"),
    [
        ("gpt-4.1", None, False),
        ("gpt-5-mini", None, True),
        ("gpt-5-chat-latest", None, False),
        ("o3", None, True),
        ("m", True, True),
        ("o3", False, False),
    ],
)
async def test_sealed_reasoning_is_asked_of_models_that_reason(model: str, reasoning: bool | None, asked: bool) -> None:
    """The others refuse the question."""
    body = await OPENAI.sent(request(options={"model": model}), reasoning=reasoning)

    assert asked == ("include" in body)


@pytest.mark.parametrize(("choice", "wire"), [("auto", None), ("none", "none"), ("required", "required")])
async def test_the_tool_choice_is_sent_with_tools_only(choice: str, wire: object) -> None:
    """The default is not sent."""
    assert wire == (await OPENAI.sent(request(tools=(tool("f"),), tool_choice=choice))).get("tool_choice")
    assert "tool_choice" not in await OPENAI.sent(request(tool_choice=choice))


@pytest.mark.promise("I-01")
async def test_images_travel_in_prompts_and_in_results() -> None:
    """By value and by address."""
    data, url = Image("image/png", data="QQ=="), Image("image/png", url="https://x/y.png")
    pictures = [
        {"type": "input_image", "image_url": "data:image/png;base64,QQ==", "detail": "auto"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
    ]

    items = await OPENAI.history(
        "input",
        UserMessage((Text("see"), data, url)),
        AssistantMessage((ToolCall("c", "f", "{}"),)),
        ToolMessage("c", "f", (data, url)),
    )

    assert [{"type": "input_text", "text": "see"}, *pictures] == items[0]["content"]
    assert pictures == items[2]["output"]


@pytest.mark.promise("P-16", "I-01")
async def test_files_travel_in_prompts_and_in_results() -> None:
    """By value with a name, and by address or id without one."""
    files = (
        File("application/pdf", data="QQ==", name="a.pdf"),
        File("text/plain", data="aGk="),
        File("application/pdf", url="https://x/y.pdf", name="y.pdf"),
        File("application/pdf", id="file-1", name="z.pdf"),
    )
    inputs = [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="},
        {"type": "input_file", "filename": "document.txt", "file_data": "data:text/plain;base64,aGk="},
        {"type": "input_file", "file_url": "https://x/y.pdf"},
        {"type": "input_file", "file_id": "file-1"},
    ]

    items = await OPENAI.history(
        "input",
        UserMessage((Text("read"), *files)),
        AssistantMessage((ToolCall("c", "f", "{}"),)),
        ToolMessage("c", "f", files),
    )

    assert [{"type": "input_text", "text": "read"}, *inputs] == items[0]["content"]
    assert inputs == items[2]["output"]


async def test_usage_is_told_in_our_terms() -> None:
    """Cached tokens are no input tokens, and reasoning is part of the output."""
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
    }

    answer = await OPENAI.read(response(message(text("hi")), usage=usage))

    assert Usage(0, 5, 5, cache_read_tokens=4, reasoning_tokens=3) == answer.usage
