"""Google's Gemini: what is sent, and what is made of replies."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from hypothesis import given

from tests.adapters.chat import Object, request, tool
from tests.adapters.dialects import Dialect, events
from tests.adapters.test_chat_requests import histories
from turnwright.deltas import Delta, UsageDelta
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from turnwright.ports import Model, OutputSpec
from turnwright.testing.byte_server import RawReply
from turnwright.tools import ToolSpec
from turnwright_adapters.gemini import GeminiModel


def reply(*parts: Object, finish: str | None = "STOP", **more: object) -> Object:
    """A whole reply, or one event of a stream."""
    candidate: Object = {"content": {"role": "model", "parts": [*parts]}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "r1", "modelVersion": "g-1", **more}


def make(url: str, **options: object) -> GeminiModel:
    """A model behind *url*."""
    return GeminiModel("g", base_url=f"{url}/v1beta", **options)  # type: ignore[arg-type]


GEMINI = Dialect(make, reply({"text": "ok"}))


async def test_it_is_a_model() -> None:
    """The adapter keeps the port's shape."""
    assert isinstance(make("http://127.0.0.1:1"), Model)


@pytest.mark.case("gem-01")
@pytest.mark.parametrize("content", [{}, {"parts": [{"functionCall": {"name": "f", "args": {}}}]}])
@pytest.mark.parametrize(
    "finish", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"]
)
async def test_a_spoilt_call_is_a_failure_that_may_be_tried_again(content: Object, finish: str) -> None:
    """Whatever call came with it, and its usage was told."""
    deltas: list[Delta] = []
    body = {
        "candidates": [{"content": content, "finishReason": finish, "index": 0}],
        "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7},
    }

    failure = await GEMINI.failure(RawReply(events(body)), request(on_delta=deltas.append))

    assert ("malformed", True) == (failure.kind, failure.retryable)
    assert [UsageDelta(3, 1, Usage(input_tokens=7))] == [each for each in deltas if each.type == "usage"]


async def test_a_signature_that_is_missing_is_no_reason_to_try_again() -> None:
    """The same request would fail again."""
    failure = await GEMINI.failure(RawReply(events(reply(finish="MISSING_THOUGHT_SIGNATURE"))))

    assert ("invalid_request", False) == (failure.kind, failure.retryable)


@pytest.mark.case("gem-02")
@pytest.mark.parametrize("content", [{}, {"parts": []}, {"parts": [{"text": ""}]}])
async def test_an_answer_of_nothing_has_no_parts(content: Object) -> None:
    """The loop sees that it is empty."""
    heard = await GEMINI.hear(events({"candidates": [{"content": content, "finishReason": "STOP"}]}))

    assert ((), "stop") == (heard.message.parts, heard.message.stop_reason)


@pytest.mark.case("gem-03")
async def test_a_signature_goes_back_on_its_part_alone() -> None:
    """Calls of one answer are one content, and their results are one."""
    parts: list[Object] = [
        {"functionCall": {"name": "f", "args": {"n": 1}}, "thoughtSignature": "S"},
        {"functionCall": {"name": "f", "args": {"n": 2}}},
    ]

    answer = (await GEMINI.hear(events(reply(*parts)))).message
    first, second = answer.calls
    contents = await GEMINI.history(
        "contents", UserMessage("go"), answer, ToolMessage(second.id, "f", "r2"), ToolMessage(first.id, "f", "r1")
    )

    assert "tool_calls" == answer.stop_reason
    assert {"role": "model", "parts": parts} == contents[1]
    results = [{"functionResponse": {"name": "f", "response": {"output": text}}} for text in ("r1", "r2")]
    assert [{"role": "user", "parts": results}] == contents[2:]


async def test_an_id_that_the_provider_gave_goes_back() -> None:
    """On the call and on its result, which may be an error."""
    answer = (await GEMINI.hear(events(reply({"functionCall": {"id": "i1", "name": "f", "args": {}}})))).message

    contents = await GEMINI.history("contents", answer, ToolMessage("i1", "f", "no", is_error=True))

    assert [
        {"role": "model", "parts": [{"functionCall": {"id": "i1", "name": "f", "args": {}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "i1", "name": "f", "response": {"error": "no"}}}],
        },
    ] == contents[1:]


@pytest.mark.case("gem-06")
@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}, "PROHIBITED_CONTENT"),
        ({"promptFeedback": {"blockReason": "OTHER"}}, "OTHER"),
        ({"candidates": [{"finishReason": "MODEL_ARMOR"}]}, "MODEL_ARMOR"),
        ({"candidates": [{"finishReason": "SAFETY"}]}, "SAFETY"),
    ],
)
async def test_what_is_blocked_says_so(body: Object, word: str) -> None:
    """The prompt or the answer; it is an outcome with its reason, streamed or not."""
    body = {**body, "usageMetadata": {"promptTokenCount": 4}}

    message = (await GEMINI.hear(events(body))).message

    assert message == await GEMINI.read(body)
    assert ("content_filter", word, 4) == (message.stop_reason, message.raw_stop_reason, message.usage.input_tokens)


@pytest.mark.case("gem-07")
async def test_thoughts_and_text_are_told_apart() -> None:
    """As deltas and in the answer; an event's text goes on where the last one's ended."""
    stream = events(
        reply({"text": "thi", "thought": True}, finish=None),
        reply({"text": "nk ", "thought": True}, {"text": "ans"}, finish=None),
        reply({"text": "wer"}),
    )

    heard = await GEMINI.hear(stream)

    assert (Reasoning("think "), Text("answer")) == heard.message.parts
    assert {"reasoning": "think ", "text": "answer"} == heard.told


async def test_a_signature_ends_its_part() -> None:
    """It may come late, on no text, or alone; none is moved and none is lost on the way back."""
    stream = events(
        reply({"text": "a"}, finish=None),
        reply({"text": "b"}, finish=None),
        reply({"text": "", "thoughtSignature": "S1"}, {"text": "c"}, finish=None),
        reply({"functionCall": {"name": "f", "args": {}}}, {"text": "", "thoughtSignature": "S2"}),
    )

    answer = (await GEMINI.hear(stream)).message
    contents = await GEMINI.history("contents", answer)

    assert (Text("ab", "S1"), Text("c"), ToolCall("call_3_0", "f", "{}"), Text("", "S2")) == answer.parts
    assert [
        {"text": "ab", "thoughtSignature": "S1"},
        {"text": "c"},
        {"functionCall": {"name": "f", "args": {}}},
        {"text": "", "thoughtSignature": "S2"},
    ] == contents[1]["parts"]


@pytest.mark.case("his-05", "his-10")
async def test_thoughts_unsigned_foreign_or_alone_are_not_sent() -> None:
    """A foreign signature is none."""
    contents = await GEMINI.history(
        "contents",
        UserMessage("a"),
        AssistantMessage((Reasoning("x", "S"),), provider="gemini"),
        AssistantMessage((Reasoning("x"), Text("one")), provider="gemini"),
        AssistantMessage((Reasoning("x", "S"), Text("two", "S")), provider="openai"),
        AssistantMessage((Reasoning("y", "S"), Text("three")), provider="gemini"),
        UserMessage("b"),
    )

    assert [
        {"role": "user", "parts": [{"text": "a"}]},
        {
            "role": "model",
            "parts": [
                {"text": "one"},
                {"text": "two"},
                {"text": "y", "thought": True, "thoughtSignature": "S"},
                {"text": "three"},
            ],
        },
        {"role": "user", "parts": [{"text": "b"}]},
    ] == contents


@pytest.mark.case("his-01", "his-02", "his-03", "his-07", "arg-06")
@given(histories())
async def test_every_history_is_sent_in_a_valid_form(history: list[Message]) -> None:
    """A user begins, as many results as calls stand right after them, and no text is blank."""
    contents = [json.loads(content) for content in GeminiModel("g")._contents(history)]

    assert "user" == contents[0]["role"]
    calls: list[Object] = []
    for content in contents:
        results = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        assert [(call.get("id"), call["name"]) for call in calls] == [
            (result.get("id"), result["name"]) for result in results
        ]
        assert not results or len(content["parts"]) == len(results)
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        assert all(isinstance(call["args"], dict) for call in calls)
        assert content["parts"]
        assert all(part["text"].strip() for part in content["parts"] if "text" in part)
    assert [] == calls


async def test_a_full_request() -> None:
    """Every member in its place, options by everybody's names or by Google's."""
    asked = request(
        instruction="be kind",
        tools=(tool("now"), tool("view", path={"type": "string"})),
        tool_choice="view",
        options={
            "max_tokens": 9,
            "stop": "END",
            "temperature": 0,
            "thinkingConfig": {"thinkingBudget": 1},
            "safetySettings": [],
        },
    )

    seen = await GEMINI.seen(asked, api_key="k-1")

    assert ("POST", "/v1beta/models/g:generateContent", "k-1") == (
        seen.method,
        seen.path,
        seen.headers["x-goog-api-key"],
    )
    assert {
        "safetySettings": [],
        "generationConfig": {
            "maxOutputTokens": 9,
            "stopSequences": ["END"],
            "temperature": 0,
            "thinkingConfig": {"thinkingBudget": 1},
        },
        "systemInstruction": {"parts": [{"text": "be kind"}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "now", "description": "what now does"},
                    {
                        "name": "view",
                        "description": "what view does",
                        "parametersJsonSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
                    },
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["view"]}},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    } == json.loads(seen.body)


async def test_a_watched_request_is_streamed_and_vertex_takes_a_token() -> None:
    """The token is asked for with each request."""
    token = iter(["t-1"])
    seen = await GEMINI.seen(request(on_delta=lambda _: None), api_key=lambda: next(token), bearer=True)

    assert "/v1beta/models/g:streamGenerateContent?alt=sse" == seen.path
    assert ("Bearer t-1", None) == (seen.headers["authorization"], seen.headers.get("x-goog-api-key"))


@pytest.mark.parametrize(("choice", "mode"), [("auto", None), ("none", "NONE"), ("required", "ANY")])
async def test_the_tool_choice_is_sent_with_tools_only(choice: str, mode: str | None) -> None:
    """The default is not sent."""
    config = None if mode is None else {"functionCallingConfig": {"mode": mode}}

    assert config == (await GEMINI.sent(request(tools=(tool("f"),), tool_choice=choice))).get("toolConfig")
    assert "toolConfig" not in await GEMINI.sent(request(tool_choice=choice))


async def test_a_schema_is_sent_without_what_the_dialect_refuses_and_stays_as_it_is() -> None:
    """At every depth; members that are called like keywords are members."""
    schema: Object = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "default": {"const": "x", "default": "x"},
            "pattern": {"type": "string", "pattern": "^a"},
            "many": {"type": "array", "items": {"$ref": "#/definitions/One", "examples": [1]}},
            "any": {"anyOf": [{"type": "null"}, True]},
        },
        "definitions": {"One": {"type": "integer", "exclusiveMinimum": 0}},
    }
    before = deepcopy(schema)
    expected = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "default": {"enum": ["x"]},
            "pattern": {"type": "string"},
            "many": {"type": "array", "items": {"$ref": "#/$defs/One"}},
            "any": {"anyOf": [{"type": "null"}, {}]},
        },
        "$defs": {"One": {"type": "integer"}},
    }

    body = await GEMINI.sent(request(tools=(ToolSpec("f", "d", schema),), output=None))
    output = await GEMINI.sent(request(output=OutputSpec("o", schema)))

    assert expected == body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]  # type: ignore[index]
    assert {"responseMimeType": "application/json", "responseJsonSchema": expected} == output["generationConfig"]
    assert before == schema


async def test_beside_tools_the_output_is_asked_for_in_words() -> None:
    """Unless the model is said to take both."""
    asked = request(tools=(tool("f"),), output=OutputSpec("o", {"type": "object"}))

    words, schema = await GEMINI.sent(asked), await GEMINI.sent(asked, output="always")

    assert '{"type":"object"}' in words["systemInstruction"]["parts"][0]["text"]  # type: ignore[index]
    assert "generationConfig" not in words
    assert {"type": "object"} == schema["generationConfig"]["responseJsonSchema"]  # type: ignore[index]


@pytest.mark.promise("I-01")
async def test_images_travel_in_prompts_and_after_results() -> None:
    """By value and by address; all results of a batch come first."""
    data, url = Image("image/png", data="QQ=="), Image("image/png", url="gs://x/y.png")
    pictures: list[Object] = [
        {"inlineData": {"mimeType": "image/png", "data": "QQ=="}},
        {"fileData": {"mimeType": "image/png", "fileUri": "gs://x/y.png"}},
    ]

    contents = await GEMINI.history(
        "contents",
        UserMessage((data, url)),
        AssistantMessage((ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))),
        ToolMessage("a", "f", (data, url)),
        ToolMessage("b", "f", ""),
    )

    assert pictures == contents[0]["parts"] == contents[3]["parts"]
    assert ["(see attached image)", "(no tool output)"] == [
        part["functionResponse"]["response"]["output"]
        for part in contents[2]["parts"]  # type: ignore[attr-defined]
    ]


@pytest.mark.promise("P-16", "I-01")
async def test_files_travel_in_prompts_and_after_results() -> None:
    """By value, by address, and by the name under which the provider has them."""
    files = (
        File("application/pdf", data="QQ==", name="a.pdf"),
        File("text/csv", url="gs://x/y.csv"),
        File("application/pdf", id="files/7"),
        File("application/pdf", id="https://g.example/v1beta/files/8"),
    )

    seen = await GEMINI.seen(
        request(
            UserMessage(files),
            AssistantMessage((ToolCall("a", "f", "{}"),)),
            ToolMessage("a", "f", (files[0], Text("here"))),
        )
    )
    contents = json.loads(seen.body)["contents"]

    assert {"inlineData": {"mimeType": "application/pdf", "data": "QQ=="}} == contents[0]["parts"][0]
    assert [contents[0]["parts"][0]] == contents[3]["parts"]
    assert ["text/csv", "application/pdf", "application/pdf"] == [
        part["fileData"]["mimeType"] for part in contents[0]["parts"][1:]
    ]
    places = [part["fileData"]["fileUri"] for part in contents[0]["parts"][1:]]
    assert ["gs://x/y.csv", True, "https://g.example/v1beta/files/8"] == [
        places[0],
        places[1].startswith("http://127.0.0.1") and places[1].endswith("/files/7"),
        places[2],
    ]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "tool_calls"),
        ("FUNCTION_CALL", "tool_calls"),
        ("A_NEW_ONE", "tool_calls"),
        ("MAX_TOKENS", "length"),
        ("RECITATION", "content_filter"),
    ],
)
async def test_finish_reasons_are_told_in_our_terms(word: str, reason: str) -> None:
    """One that nobody knows yet is accepted, and the provider's own word is kept."""
    message = await GEMINI.read(reply({"functionCall": {"name": "f", "args": {}}}, finish=word))

    assert (reason, word) == (message.stop_reason, message.raw_stop_reason)


async def test_usage_is_told_in_our_terms() -> None:
    """Cached tokens are no input tokens, and thoughts are output; the last total counts."""
    first = {"promptTokenCount": 9, "candidatesTokenCount": 1}
    last = {
        "promptTokenCount": 9,
        "toolUsePromptTokenCount": 1,
        "cachedContentTokenCount": 4,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 3,
    }

    heard = await GEMINI.hear(events(reply({"text": "a"}, finish=None, usageMetadata=first), reply(usageMetadata=last)))

    assert Usage(0, 6, 8, cache_read_tokens=4, reasoning_tokens=3) == heard.message.usage


async def test_a_stream_without_a_finish_reason_is_a_failure() -> None:
    """However much of it came."""
    failure = await GEMINI.failure(RawReply(events(reply({"text": "a"}, finish=None))))

    assert ("connection", True) == (failure.kind, failure.retryable)


@pytest.mark.parametrize(
    ("status", "word", "expected"),
    [
        (429, "RESOURCE_EXHAUSTED", "rate_limit"),
        (503, "UNAVAILABLE", "overloaded"),
        (403, "PERMISSION_DENIED", "auth"),
        (400, "INVALID_ARGUMENT", "invalid_request"),
        (200, "INTERNAL", "internal"),
    ],
)
async def test_errors_become_closed_kinds(status: int, word: str, expected: str) -> None:
    """With the time to wait that is in the body."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}]
    body = json.dumps(
        {"error": {"code": status if status != 200 else 500, "message": "x", "status": word, "details": details}}
    )

    failure = await GEMINI.failure(RawReply(body.encode(), status=status, headers={"content-type": "application/json"}))

    assert (expected, 2.5) == (failure.kind, failure.retry_after)
