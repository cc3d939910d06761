"""Chat Completions: what is made of replies, streamed or not, whole or in any pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise

import httpx
import pytest
from hypothesis import given, strategies as st

from tests.adapters.chat import (
    DONE,
    Heard,
    Object,
    as_json,
    call_chunk,
    chunk,
    failure_of,
    hear,
    model_of,
    request,
    sse,
    stream_failure,
    whole,
)
from turnwright.deltas import Delta, TextDelta, UsageDelta
from turnwright.errors import ModelError
from turnwright.messages import (
    AssistantMessage,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Usage,
)
from turnwright.ports import Model
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright_adapters.chat_completions import ChatCompletionsModel


async def test_it_is_a_model() -> None:
    """The adapter keeps the port's shape."""
    assert isinstance(ChatCompletionsModel("m"), Model)


@pytest.mark.promise("T-06")
async def test_a_reply_gives_the_same_message_streamed_or_not() -> None:
    """Reasoning, text, calls, usage and names are the same by both ways."""
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]
    streamed = sse(
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning_content": "thi"}),
        chunk({"reasoning_content": "nk"}),
        chunk({"content": "Let me "}),
        chunk({"content": "look"}),
        call_chunk(index=0, id="a", name="f", arguments=""),
        call_chunk(index=0, arguments='{"x"'),
        call_chunk(index=0, arguments=": 1}"),
        call_chunk(index=1, id="b", name="g", arguments=""),
        chunk({}, "tool_calls"),
        {"id": "r1", "choices": [], "usage": usage},
    )
    body = whole(
        {"content": "Let me look", "reasoning_content": "think", "tool_calls": calls}, "tool_calls", usage=usage
    )

    heard = await hear(streamed)
    async with ByteServer([as_json(body)]) as server, model_of(server) as model:
        message = await model.complete(request())

    parts = [Reasoning("think"), Text("Let me look"), ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", "")]
    assert message == heard.message
    assert (
        AssistantMessage(
            parts,
            "tool_calls",
            Usage(input_tokens=9, output_tokens=5),
            model="m-1",
            provider="openai",
            response_id="r1",
            raw_stop_reason="tool_calls",
        )
        == message
    )
    assert {"reasoning": "think", "text": "Let me look", (0, "f"): '{"x": 1}', (1, "g"): ""} == heard.told


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
moves = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["content", "reasoning_content"]), texts),
        st.tuples(st.integers(0, 2), texts),
    ),
    max_size=10,
)


class Pieces(httpx.AsyncByteStream):
    """A body that comes in given pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    async def __aiter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        """Give the pieces."""
        for piece in self.pieces:
            yield piece


@pytest.mark.promise("T-06")
@given(moves, st.sampled_from(["\n", "\r", "\r\n"]), st.lists(st.integers(0, 5_000), max_size=5))
async def test_any_chunking_of_any_reply_gives_the_same_answer(
    moves: list[tuple[str | int, str]], end: str, places: list[int]
) -> None:
    """The text of each part is what its pieces make, the parts stand in the order in which they began."""
    chunks: list[Object] = []
    expected: dict[object, str] = {}
    for what, text in moves:
        new = what not in expected
        expected[what] = expected.get(what, "") + text
        if isinstance(what, str):
            chunks.append(chunk({what: text}))
        else:
            chunks.append(
                call_chunk(index=what, arguments=text, **({"id": f"c{what}", "name": f"f{what}"} if new else {}))
            )
    body = sse(*chunks, chunk({}, "stop")).replace(b"\n", end.encode())
    edges = [0, *sorted(place % len(body) for place in places), len(body)]
    pieces = [body[start:stop] for start, stop in pairwise(edges)]

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(pieces))

    deltas: list[Delta] = []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        message = await ChatCompletionsModel("m", client=client).complete(request(on_delta=deltas.append))

    parts = [
        Text(text)
        if what == "content"
        else Reasoning(text)
        if what == "reasoning_content"
        else ToolCall(f"c{what}", f"f{what}", text)
        for what, text in expected.items()
    ]
    assert tuple(parts) == message.parts
    assert sorted(expected.values()) == sorted(Heard(message, deltas).told.values())


@pytest.mark.case("sse-01")
async def test_what_unicode_calls_a_line_end_ends_no_line() -> None:
    """U+2028 and U+0085, raw in the stream, are text."""
    text = "a\u2028b\u0085c\u000bd"
    body = "data: " + json.dumps(chunk({"content": text}), ensure_ascii=False) + "\n\n" + DONE

    heard = await hear(body.encode())

    assert text == heard.message.text == heard.told["text"]


@pytest.mark.case("sse-02")
async def test_a_character_cut_by_the_network_is_whole() -> None:
    """In text and in arguments, at whatever byte the cut is."""
    globe = "\N{EARTH GLOBE EUROPE-AFRICA}"
    chunks = [chunk({"content": globe}), call_chunk(index=0, id="a", name="f", arguments=f'{{"x": "{globe}"}}')]
    body = "".join(f"data: {json.dumps(item, ensure_ascii=False)}\n\n" for item in chunks) + DONE

    heard = await hear(body.encode())

    assert (Text(globe), ToolCall("a", "f", f'{{"x": "{globe}"}}')) == heard.message.parts


async def test_a_character_cut_by_the_provider_is_whole() -> None:
    """A server that cuts text between the halves of a surrogate pair sends each half as an escape."""
    body = (
        rb'data: {"choices":[{"index":0,"delta":{"content":"a\ud83c"},"finish_reason":null}]}' + b"\n\n"
        rb'data: {"choices":[{"index":0,"delta":{"content":"\udf0db\ud83c"},"finish_reason":null}]}' + b"\n\n"
        rb'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}' + b"\n\n"
    )

    heard = await hear(body)

    assert "a\N{EARTH GLOBE EUROPE-AFRICA}b\ufffd" == heard.message.text
    assert ["a", "\N{EARTH GLOBE EUROPE-AFRICA}b"] == [delta.text for delta in heard.deltas if type(delta) is TextDelta]


async def test_bytes_that_are_no_character_are_replaced() -> None:
    """A server that cuts text between the bytes of a character has lost it; the rest is still good."""
    heard = await hear(sse(chunk({"content": "a?b"}, "stop")).replace(b"?", b"\xf0\x9f"))

    assert "a\ufffdb" == heard.message.text


@pytest.mark.case("sse-04")
async def test_the_space_after_the_colon_is_not_needed() -> None:
    """And CRLF is as good as LF, which `hear` tries for every stream."""
    heard = await hear(sse(chunk({"content": "hi"}, "stop")).replace(b"data: ", b"data:"))

    assert "hi" == heard.message.text


@pytest.mark.case("sse-05")
async def test_keep_alive_comments_and_empty_events_are_nothing() -> None:
    """Whatever keeps the connection warm is no chunk."""
    noise = b": keepalive\n\nid: 7\n: ping\n\nevent: ping\ndata:\n\ndata: null\n\n"

    heard = await hear(noise + sse(chunk({"content": "hi"}), end="") + noise + sse(chunk({}, "stop")))

    assert "hi" == heard.message.text


@pytest.mark.case("sse-06")
async def test_the_last_event_needs_no_empty_line_but_must_be_whole() -> None:
    """A finish reason without the blank line counts; half of an event is a failure."""
    body = sse(chunk({"content": "hi"}), chunk({}, "stop"), end="")

    heard = await hear(body.removesuffix(b"\n\n"))
    failure = await stream_failure(sse(chunk({"content": "hi"}), end='data: {"choices":'))

    assert "hi" == heard.message.text
    assert ("connection", True) == (failure.kind, failure.retryable)


@pytest.mark.case("sse-08")
@pytest.mark.parametrize("split", [None, 1])
async def test_done_ends_the_turn_though_the_connection_stays_open(split: int | None) -> None:
    """The connection is let go as soon as the answer is all there, in one packet or in many."""
    body = sse(chunk({"content": "ok"}, "stop"))
    async with ByteServer([RawReply(body, keep_open=True, split=split)]) as server, model_of(server) as model:
        async with asyncio.timeout(1.5):
            message = await model.complete(request(on_delta=lambda _: None))

        await server.until(lambda: server.open_connections == 0)

    assert "ok" == message.text


async def test_what_comes_after_done_is_nothing() -> None:
    """In the same packet or in a later one."""
    body = sse(chunk({"content": "ok"}, "stop"))

    heard = await hear(body + sse(chunk({"content": "more"}), {"error": {"message": "x"}}))

    assert "ok" == heard.message.text


async def test_a_finished_stream_keeps_its_connection() -> None:
    """The bytes that end the response are read, so that the next request needs no new connection."""
    async with ByteServer([RawReply(sse(chunk({"content": "ok"}, "stop")))]) as server, model_of(server) as model:
        for _ in range(3):
            await model.complete(request(on_delta=lambda _: None))

        assert (3, 1) == (len(server.requests), server.connections)


@pytest.mark.case("oac-01")
async def test_a_chunk_without_choices_is_nothing() -> None:
    """Azure's first chunk has only filter results."""
    first = {"choices": [], "id": "", "model": "", "prompt_filter_results": [{"prompt_index": 0}]}

    heard = await hear(sse(first, chunk({"role": "assistant", "content": "hi"}), chunk({}, "stop")))

    assert ("hi", "stop") == (heard.message.text, heard.message.stop_reason)


@pytest.mark.case("oac-04")
async def test_usage_inside_the_choice_counts_once() -> None:
    """Some servers put it there."""
    last = chunk({}, "stop")
    last["choices"][0]["usage"] = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}  # type: ignore[index]

    heard = await hear(sse(chunk({"content": "hi"}), last))

    assert Usage(input_tokens=10, output_tokens=2) == heard.message.usage


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [
                {"id": "a", "name": "f", "arguments": '{"x":1}'},
                {"id": "b", "name": "g", "arguments": '{"y":2}'},
            ],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="no index",
            marks=pytest.mark.case("oac-05"),
        ),
        pytest.param(
            [
                {"id": "a", "name": "f", "arguments": '{"x"'},
                {"arguments": ":1}"},
                {"id": "b", "name": "g", "arguments": '{"y"'},
                {"id": "a", "arguments": " "},
                {"id": "b", "arguments": ":2}"},
            ],
            [("a", "f", '{"x":1} '), ("b", "g", '{"y":2}')],
            id="no index, in pieces",
            marks=pytest.mark.case("oac-05"),
        ),
        pytest.param(
            [{"name": "f", "arguments": ""}, {"name": "f2", "arguments": "{}"}, {"name": "f2", "arguments": "{}"}],
            [("call_3_0", "f", ""), ("call_3_1", "f2", "{}"), ("call_3_2", "f2", "{}")],
            id="neither index nor id",
            marks=pytest.mark.case("oac-05"),
        ),
        pytest.param(
            [
                {"index": 0, "id": "call_a", "name": "read", "arguments": '{"p":"a"}'},
                {"index": 0, "id": "call_b", "name": "read", "arguments": '{"p":"b"}'},
            ],
            [("call_a", "read", '{"p":"a"}'), ("call_b", "read", '{"p":"b"}')],
            id="index 0 for all",
            marks=pytest.mark.case("oac-06"),
        ),
        pytest.param(
            [
                {"index": 0, "id": "call_a", "name": "read", "arguments": ""},
                {"index": 0, "id": "call_b", "name": "read", "arguments": ""},
                {"index": 0, "id": "call_a", "arguments": '{"p":"a"}'},
                {"index": 0, "id": "call_b", "arguments": '{"p":"b"'},
                {"index": 0, "arguments": "}"},
            ],
            [("call_a", "read", '{"p":"a"}'), ("call_b", "read", '{"p":"b"}')],
            id="index 0 for all, interleaved",
            marks=pytest.mark.case("oac-06"),
        ),
        pytest.param(
            [
                {"index": 0, "id": "c1", "name": "get_x", "arguments": '{"a'},
                {"index": 0, "id": "c1", "name": "get_x", "arguments": '":1}'},
            ],
            [("c1", "get_x", '{"a":1}')],
            id="name and id repeated",
            marks=pytest.mark.case("oac-08"),
        ),
        pytest.param(
            [
                {"index": 0, "id": "c1", "name": "get_", "arguments": ""},
                {"index": 0, "name": "x", "arguments": ""},
                {"index": 0, "arguments": '{"a":1}'},
            ],
            [("c1", "get_x", '{"a":1}')],
            id="name in pieces",
            marks=pytest.mark.case("oac-08"),
        ),
        pytest.param(
            [
                {"index": 0, "id": "c1", "name": "lookup", "arguments": ""},
                {"index": 0, "id": "", "name": "", "arguments": '{"q":1}'},
            ],
            [("c1", "lookup", '{"q":1}')],
            id="name and id emptied",
            marks=pytest.mark.case("oac-09"),
        ),
        pytest.param(
            [
                {"index": 0, "id": "x1", "name": "f", "arguments": '{"a'},
                {"index": 0, "id": "x2", "arguments": '":'},
                {"index": 0, "id": "x3", "name": "f", "arguments": "1}"},
            ],
            [("x1", "f", '{"a":1}')],
            id="another id in each piece",
        ),
        pytest.param(
            [
                {"index": 0, "id": "c", "name": "f", "arguments": "{}"},
                {"index": 1, "id": "c", "name": "g", "arguments": "{}"},
            ],
            [("c", "f", "{}"), ("c_1", "g", "{}")],
            id="one id for two calls",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "name": "f", "arguments": '{"x"'},
                {"index": 1, "id": "b", "name": "g", "arguments": '{"y"'},
                {"index": 2, "id": "a", "arguments": ":1}"},
                {"id": "b", "arguments": ":2}"},
            ],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="only the id to go by",
        ),
        pytest.param(
            [
                {"index": 0, "id": "c", "arguments": '{"a":'},
                {"index": 0, "name": "f"},
                {"index": 0, "arguments": "1}"},
            ],
            [("c", "", '{"a":1}')],
            id="arguments before the name",
        ),
    ],
)
async def test_pieces_of_calls_come_together(pieces: list[Object], calls: list[tuple[str, str, str]]) -> None:
    """However a server labels the pieces, each call gets its own, and watchers see the same."""
    heard = await hear(sse(*[call_chunk(**piece) for piece in pieces], chunk({}, "tool_calls")))

    assert [ToolCall(*call) for call in calls] == [*heard.message.calls]
    assert "tool_calls" == heard.message.stop_reason
    assert {(place, name): text for place, (_, name, text) in enumerate(calls)} == heard.told


async def test_calls_of_a_whole_reply_are_taken_one_by_one() -> None:
    """Also if they have one id, or none, and arguments that are no text."""
    calls = [
        {"id": "x", "function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "x", "function": {"name": "g", "arguments": None}},
        {"function": {"name": "g", "arguments": ""}},
        {"id": "y", "type": "custom", "custom": {"name": "other"}},
    ]
    async with (
        ByteServer([as_json(whole({"content": None, "tool_calls": calls}))]) as server,
        model_of(server) as model,
    ):
        message = await model.complete(request())

    assert [ToolCall("x", "f", '{"a":1}'), ToolCall("x_1", "g", ""), ToolCall("call_3_2", "g", "")] == [*message.calls]


@pytest.mark.case("oac-11")
@pytest.mark.parametrize("finish", ["end", "eos", "function_call", "tool_calls", "anything"])
async def test_an_unknown_finish_reason_is_a_stop(finish: str) -> None:
    """The answer is complete; the provider's own word is kept."""
    heard = await hear(sse(chunk({"content": "done"}), chunk({}, finish)))

    assert ("done", "stop", finish) == (
        heard.message.text,
        heard.message.stop_reason,
        heard.message.raw_stop_reason,
    )


@pytest.mark.case("oac-12")
async def test_calls_make_a_stop_a_tool_call() -> None:
    """So the loop runs them and asks again."""
    heard = await hear(sse(call_chunk(index=0, id="c1", name="f", arguments="{}"), chunk({}, "stop")))

    assert "tool_calls" == heard.message.stop_reason
    assert (ToolCall("c1", "f", "{}"),) == heard.message.calls


@pytest.mark.case("oac-14")
@pytest.mark.parametrize(
    "last",
    [
        {"choices": [], "error": {"code": 502, "message": "Provider disconnected"}},
        chunk({}, "error", error={"code": 502, "message": "Provider disconnected"}),
        {"error": {"code": "502", "message": "Provider disconnected"}},
        {"object": "error", "message": "Provider disconnected", "code": 502},
        {"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "Provider disconnected"}}]},
    ],
)
@pytest.mark.parametrize("end", [DONE, ""])
async def test_an_error_inside_a_stream_is_an_error(last: Object, end: str) -> None:
    """With its code and message, and never a finished answer."""
    failure = await stream_failure(sse(chunk({"content": "par"}), last, end=end))

    assert ("internal", True, 502) == (failure.kind, failure.retryable, failure.status)
    assert "Provider disconnected" in str(failure)


@pytest.mark.case("oac-14")
async def test_an_error_may_be_a_word_a_finish_reason_or_an_events_name() -> None:
    """Whatever a server uses to tell that it failed."""
    told = await stream_failure(sse({"error": "Rate limit reached"}))
    ended = await stream_failure(sse(chunk({"content": "x"}), chunk({}, "error")))
    named = await stream_failure(b'event: error\ndata: {"message": "overloaded"}\n\n')
    early = await failure_of(as_json(b'{"error": {"code": "context_length_exceeded", "message": "x"}}'))

    assert ("rate_limit", True) == (told.kind, told.retryable)
    assert ("internal", True) == (ended.kind, ended.retryable)
    assert ("overloaded", True) == (named.kind, named.retryable)
    assert ("context_overflow", False) == (early.kind, early.retryable)


@pytest.mark.case("oac-15")
async def test_a_stream_that_only_stops_is_a_failure() -> None:
    """Text or a call, without finish reason and without [DONE] nothing of it is an answer."""
    text = await stream_failure(sse(chunk({"content": "Hel"}), end=""))
    call = await stream_failure(sse(call_chunk(index=0, id="c1", name="rm", arguments='{"path":"/tm'), end=""))
    nothing = await stream_failure(b"")

    for failure in (text, call, nothing):
        assert ("connection", True, True) == (failure.kind, failure.retryable, failure.dispatched)


@pytest.mark.case("oac-15")
async def test_done_without_a_finish_reason_is_an_answer() -> None:
    """The provider said that it is finished, and why is inferred; if there is no answer at all, it failed."""
    heard = await hear(sse(chunk({"content": "Hel"})))
    empty = await stream_failure(sse())

    assert ("Hel", "stop", None) == (heard.message.text, heard.message.stop_reason, heard.message.raw_stop_reason)
    assert ("malformed", True) == (empty.kind, empty.retryable)


@pytest.mark.parametrize("reset", [False, True])
@given(st.data())
async def test_a_stream_cut_anywhere_before_its_end_is_a_failure(reset: bool, data: st.DataObject) -> None:
    """By a closed or a reset connection, at any byte before the finish reason is all there."""
    body = sse(chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"))
    place = data.draw(st.integers(0, body.index(DONE.encode()) - len("]}\n\n")))

    failure = await failure_of(RawReply(body, cut_at=place, reset=reset))

    assert ("connection", True, True) == (failure.kind, failure.retryable, failure.dispatched)


async def test_what_breaks_after_the_finish_reason_breaks_nothing() -> None:
    """The answer was said to be complete."""
    body = sse(chunk({"content": "hi"}), chunk({}, "stop"), end=": later")
    replies = [RawReply(body, cut_at=len(body) - 2), RawReply(body, cut_at=len(body) - 2, reset=True)]
    async with ByteServer(replies) as server, model_of(server) as model:
        answers = [await model.complete(request(on_delta=lambda _: None)) for _ in replies]

    assert ["hi", "hi"] == [answer.text for answer in answers]


async def test_the_usage_may_be_the_last_event_and_may_be_cut() -> None:
    """Told without its empty line it counts; told by half it does not, and the answer stands."""
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
    body = sse(chunk({"content": "hi"}), chunk({}, "stop"), usage, end="").removesuffix(b"\n\n")

    whole_usage = await hear(body)
    half_usage = await hear(body[:-9])

    assert Usage(input_tokens=5, output_tokens=3) == whole_usage.message.usage
    assert ("hi", Usage()) == (half_usage.message.text, half_usage.message.usage)


async def test_a_server_that_never_says_done_is_not_waited_for() -> None:
    """Once the finish reason is there, the stream has a little time to tell its usage and to end."""
    body = sse(chunk({"content": "hi"}), chunk({}, "stop"), end="")
    async with ByteServer([RawReply(body, keep_open=True)]) as server, model_of(server) as model:
        async with asyncio.timeout(20):
            message = await model.complete(request(on_delta=lambda _: None))

    assert "hi" == message.text


@pytest.mark.case("oac-17")
@pytest.mark.parametrize("content", [None, ""])
async def test_an_empty_answer_that_was_truncated_says_so(content: str | None) -> None:
    """All tokens went into reasoning: the stop reason tells, and the usage is kept."""
    usage = {"prompt_tokens": 5, "completion_tokens": 100, "total_tokens": 105}
    reply = as_json(whole({"content": content}, "length", usage=usage))
    async with ByteServer([reply]) as server, model_of(server) as model:
        message = await model.complete(request())

    assert ("length", (), Usage(input_tokens=5, output_tokens=100)) == (
        message.stop_reason,
        message.parts,
        message.usage,
    )


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "length"), ("max_tokens", "length"), ("content_filter", "content_filter")]
)
async def test_a_truncated_call_is_told_as_truncated(finish: str, reason: str) -> None:
    """Calls do not hide that the answer was cut or held back."""
    heard = await hear(sse(call_chunk(index=0, id="c", name="f", arguments='{"a'), chunk({}, finish)))

    assert reason == heard.message.stop_reason


@pytest.mark.case("oac-19")
async def test_parts_stand_in_the_order_in_which_they_began() -> None:
    """A refusal before the text stays before it."""
    heard = await hear(sse(chunk({"refusal": "blocked"}), chunk({"content": "partial"}), chunk({}, "stop")))

    assert (Refusal("blocked"), Text("partial")) == heard.message.parts
    assert "refusal" == heard.message.stop_reason


@pytest.mark.parametrize("names", [["reasoning_content"], ["reasoning"], ["reasoning_content", "reasoning"]])
async def test_reasoning_has_two_names_and_is_taken_once(names: list[str]) -> None:
    """Some servers send it under both."""
    heard = await hear(sse(chunk(dict.fromkeys(names, "a")), chunk({"content": "x"}, "stop")))

    assert (Reasoning("a"), Text("x")) == heard.message.parts


async def test_content_may_come_as_parts() -> None:
    """Some servers write text and thoughts as a list."""
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}]

    heard = await hear(sse(chunk({"content": content}, "stop")))

    assert (Reasoning("hm"), Text("hi")) == heard.message.parts


async def test_other_alternatives_are_not_mixed_in() -> None:
    """Of several choices the first is the answer."""
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}

    heard = await hear(sse(chunk({"content": "yes"}), other, chunk({}, "stop")))

    assert "yes" == heard.message.text


async def test_a_server_may_ignore_the_wish_to_stream_or_not() -> None:
    """The content type says how the reply is to be read."""
    replies = [as_json(whole({"content": "whole"})), RawReply(sse(chunk({"content": "streamed"}, "stop")))]
    deltas: list[Delta] = []
    async with ByteServer(replies) as server, model_of(server) as model:
        not_streamed = await model.complete(request(on_delta=deltas.append))
        streamed = await model.complete(request())

    assert ["whole", "streamed"] == [not_streamed.text, streamed.text]
    assert [TextDelta(3, 1, "whole")] == deltas


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "index",
                    "tool_calls",
                    "function",
                    "id",
                    "name",
                    "arguments",
                    "usage",
                    "error",
                    "model",
                    "finish_reason",
                    "prompt_tokens",
                    "prompt_tokens_details",
                    "reasoning",
                    "refusal",
                    "code",
                    "type",
                    "details",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(junk, max_size=4), st.booleans())
async def test_no_junk_is_more_than_a_model_error(payloads: list[object], streamed: bool) -> None:
    """Whatever JSON a server sends, it is an answer or a ModelError."""
    body = sse(*payloads) if streamed else json.dumps(payloads[0] if payloads else None).encode()
    kind = "text/event-stream" if streamed else "application/json"

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": kind}, stream=Pieces([body]))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        try:
            message = await ChatCompletionsModel("m", client=client).complete(request(on_delta=lambda _: None))
        except ModelError:
            return

    assert isinstance(message, AssistantMessage)


@pytest.mark.case("usg-03")
async def test_running_totals_are_not_added_up() -> None:
    """Each usage replaces the one before; watchers see each."""
    chunks = [
        chunk({"content": text}, usage={"prompt_tokens": 5, "completion_tokens": count})
        for count, text in enumerate("abc", 1)
    ]
    last = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}

    heard = await hear(sse(*chunks, chunk({}, "stop"), last))

    assert Usage(input_tokens=5, output_tokens=3) == heard.message.usage
    assert [1, 2, 3, 3] == [delta.usage.output_tokens for delta in heard.deltas if type(delta) is UsageDelta]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 15},
            },
            Usage(0, 30, 20, 60, 10, 15),
        ),
        ({"prompt_tokens": 100, "completion_tokens": 1, "cached_tokens": 40}, Usage(0, 60, 1, 40)),
        ({"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 40}, Usage(0, 60, 1, 40)),
        ({"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}, Usage(0, 5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(0, 0, 0, 9)),
        ({"prompt_tokens": -1, "completion_tokens": "7"}, Usage()),
    ],
)
async def test_usage_is_told_in_our_terms(usage: Object, expected: Usage) -> None:
    """Cached tokens are no input, reasoning is part of the output, nothing is negative."""
    heard = await hear(sse(chunk({"content": "x"}, "stop"), {"choices": [], "usage": usage}))

    assert expected == heard.message.usage


@pytest.mark.case("usg-08")
async def test_usage_told_before_a_failure_reaches_the_watcher() -> None:
    """And a field that is null later does not take back what was told."""
    deltas: list[Delta] = []
    body = sse(
        chunk({"content": "x"}, usage={"prompt_tokens": 10}),
        chunk({"content": "y"}, usage={"prompt_tokens": None, "completion_tokens": 2}),
        end="",
    )
    async with ByteServer([RawReply(body)]) as server, model_of(server) as model:
        with pytest.raises(ModelError):
            await model.complete(request(on_delta=deltas.append))

    assert [Usage(input_tokens=10), Usage(input_tokens=10, output_tokens=2)] == [
        delta.usage for delta in deltas if type(delta) is UsageDelta
    ]
