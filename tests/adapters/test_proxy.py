"""The client of the proxy, told by a server of bytes what servers say, and what broken ones do."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tests.adapters.chat import as_json, tool
from tests.adapters.proxying import TOKEN, frames, proxy_of, request
from turnwright.deltas import AttemptReset, Delta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.errors import ModelError
from turnwright.messages import AssistantMessage, File, Image, Message, Reasoning, Refusal, Text, ToolCall, Usage
from turnwright.ports import ModelRequest
from turnwright.testing.byte_server import ByteServer, RawReply, SeenRequest
from turnwright_adapters._wire import ServerSentEvent
from turnwright_adapters.proxy import LineDecoder, ProxyModel, _Rebuilt

USED = {"input": 7, "output": 3, "cacheRead": 2, "totalTokens": 12}
USAGE = Usage(input_tokens=7, output_tokens=3, cache_read_tokens=2)

START: Mapping[str, object] = {"type": "start"}
HELLO: Sequence[Mapping[str, object]] = (
    {"type": "text_start", "contentIndex": 0},
    {"type": "text_delta", "contentIndex": 0, "delta": "Hällo "},
    {"type": "text_delta", "contentIndex": 0, "delta": "☃ 🙂"},
    {"type": "text_end", "contentIndex": 0, "contentSignature": "sig"},
)
DONE: Mapping[str, object] = {"type": "done", "reason": "stop", "usage": USED}
WHOLE = AssistantMessage((Text("Hällo ☃ 🙂", "sig"),), usage=USAGE, provider="proxy")

CALLING: Sequence[Mapping[str, object]] = (
    {"type": "toolcall_start", "contentIndex": 0, "id": "t0", "toolName": "add"},
    {"type": "toolcall_delta", "contentIndex": 0, "delta": '{"a": '},
    {"type": "toolcall_delta", "contentIndex": 0, "delta": "1}"},
)


async def heard(body: bytes, on_delta: Callable[[Delta], None] | None = None) -> AssistantMessage:
    """The answer that a body becomes."""
    async with ByteServer([RawReply(body)]) as server, proxy_of(server) as model:
        return await model.complete(request(on_delta=on_delta))


async def failure(reply: RawReply | bytes, **options: object) -> ModelError:
    """The error that a reply becomes."""
    replies = [RawReply(reply) if isinstance(reply, bytes) else reply]
    async with ByteServer(replies) as server, proxy_of(server, **options) as model:
        with pytest.raises(ModelError) as raised:
            await model.complete(request())
    return raised.value


async def sent(asked: ModelRequest) -> SeenRequest:
    """What a request is on the wire."""
    async with ByteServer([RawReply(frames(START, DONE))]) as server, proxy_of(server) as model:
        await model.complete(asked)
        return server.requests[0]


@pytest.mark.promise("P-17", "I-02")
async def test_only_the_options_of_the_table_cross() -> None:
    """Case D1: each by its name on the wire, unset ones and all others not at all."""
    options = {
        "temperature": 0.5,
        "sampling_params": {"top_k": 9},
        "top_p": 0.9,
        "max_tokens": 100,
        "thinking_level": "high",
        "thinking_budgets": {"high": 4096},
        "cache_retention": "long",
        "session_id": "s1",
        "headers": {"x-team": "blue"},
        "metadata": {"user_id": "u1"},
        "transport": "sse",
        "max_retry_delay_ms": 500,
        "service_tier": "flex",
        "max_retries": 3,
        "tools": [],
        "seed": None,
    }

    seen = await sent(request(options=options))

    assert {
        "temperature": 0.5,
        "samplingParams": {"top_k": 9, "top_p": 0.9},
        "maxTokens": 100,
        "reasoning": "high",
        "thinkingBudgets": {"high": 4096},
        "cacheRetention": "long",
        "sessionId": "s1",
        "headers": {"x-team": "blue"},
        "metadata": {"user_id": "u1"},
        "transport": "sse",
        "maxRetryDelayMs": 500,
    } == json.loads(seen.body)["options"]
    assert "x-team" not in seen.headers  # they are for the provider


@pytest.mark.promise("P-17")
async def test_a_request_is_the_model_the_context_and_the_options() -> None:
    """To one path, with the token; what is not there leaves no trace, and who watches stays here."""
    bare = await sent(request(on_delta=lambda _: None))
    full = await sent(request(instruction="Add.", tools=(tool("add"),), tool_choice="add"))

    assert ("POST", "/api/stream", f"Bearer {TOKEN}") == (bare.method, bare.path, bare.headers["authorization"])
    body = json.loads(bare.body)
    assert {"id": "m"} == body["model"]
    assert {"model", "context", "options"} == body.keys()
    assert {"messages"} == body["context"].keys()
    assert {} == body["options"]
    assert ("Add.", "add", "add") == (
        json.loads(full.body)["context"]["systemPrompt"],
        json.loads(full.body)["context"]["toolChoice"],
        json.loads(full.body)["context"]["tools"][0]["name"],
    )


async def test_a_request_that_no_proxy_takes_is_not_sent() -> None:
    """It is refused here, and surely cost nothing."""
    huge = AssistantMessage((Image("image/png", data="A" * 2**24),))
    async with ByteServer([RawReply(frames(START, DONE))]) as server, proxy_of(server) as model:
        with pytest.raises(ModelError) as raised:
            await model.complete(request(messages=(huge,)))

    assert ("invalid_request", False) == (raised.value.kind, raised.value.dispatched)
    assert [] == server.requests


@pytest.mark.promise("P-17")
async def test_the_message_is_rebuilt_from_its_pieces() -> None:
    """With its signatures, its usage, who gave it and why it ended; deltas name our own turn and attempt."""
    deltas: list[Delta] = []
    end = {
        **DONE,
        "reason": "toolUse",
        "stopReason": "tool_calls",
        "model": "m-1",
        "provider": "anthropic",
        "responseId": "r1",
        "rawStopReason": "tool_use",
    }
    body = frames(
        START,
        {"type": "thinking_start", "contentIndex": 0},
        {"type": "text_start", "contentIndex": 1},
        {"type": "thinking_delta", "contentIndex": 0, "delta": "hm"},
        {"type": "text_delta", "contentIndex": 1, "delta": "ok"},
        {"type": "thinking_end", "contentIndex": 0, "contentSignature": "s1", "redacted": True},
        {"type": "text_end", "contentIndex": 1},
        {"type": "toolcall_start", "contentIndex": 3, "id": "t", "toolName": "add"},
        {"type": "toolcall_delta", "contentIndex": 3, "delta": "{}"},
        {"type": "toolcall_end", "contentIndex": 3, "toolCall": {"id": "c1", "name": "add", "signature": "s2"}},
        {"type": "image", "contentIndex": 2, "image": {"mediaType": "image/png", "data": "aGk="}},
        {"type": "file", "contentIndex": 4, "file": {"mediaType": "application/pdf", "id": "f1", "name": "a.pdf"}},
        {"type": "usage", "usage": USED},
        end,
    )

    answer = await heard(body, deltas.append)

    assert (
        AssistantMessage(
            (
                Reasoning("hm", "s1", redacted=True),
                Text("ok"),
                Image("image/png", data="aGk="),
                ToolCall("c1", "add", "{}", "s2"),
                File("application/pdf", id="f1", name="a.pdf"),
            ),
            "tool_calls",
            USAGE,
            "m-1",
            "anthropic",
            "r1",
            "tool_use",
        )
        == answer
    )
    assert {(3, 2)} == {(delta.turn, delta.attempt) for delta in deltas}
    assert UsageDelta(3, 2, USAGE) == deltas[-1]


async def test_blocks_stand_in_the_order_that_the_end_tells() -> None:
    """A part that was hidden while the others streamed is put in its place."""
    hidden = ({"type": "thinking_start", "contentIndex": 1}, {"type": "thinking_end", "contentIndex": 1})

    answer = await heard(frames(START, *HELLO, *hidden, {**DONE, "order": [1, 0]}))

    assert (Reasoning(""), *WHOLE.parts) == answer.parts


async def test_a_refusal_is_no_text() -> None:
    """Whether it is known at its start or at its end."""
    early = ({"type": "text_start", "contentIndex": 0, "refusal": True}, *HELLO[1:3])
    late = (*HELLO[:3], {"type": "text_end", "contentIndex": 0, "refusal": True})

    answers = [await heard(frames(START, *some, {**DONE, "stopReason": "refusal"})) for some in (early, late)]

    assert [((Refusal("Hällo ☃ 🙂"),), "refusal")] * 2 == [(each.parts, each.stop_reason) for each in answers]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({}, ToolCall("t0", "add", '{"a": 1}')),
        ({"toolCall": {"id": "c1", "name": "add", "signature": "s"}}, ToolCall("c1", "add", '{"a": 1}', "s")),
        ({"toolCall": {"id": "c1", "arguments": '{"a": 1}'}}, ToolCall("c1", "add", '{"a": 1}')),
        ({"toolCall": {"id": "c1", "arguments": {"a": 1}}}, ToolCall("c1", "add", '{"a": 1}')),
        ({"toolCall": {"name": "sum", "arguments": {"a": 2}}}, ToolCall("t0", "sum", '{"a":2}')),
        ({"toolCall": {"thoughtSignature": "ts"}}, ToolCall("t0", "add", '{"a": 1}', "ts")),
    ],
)
async def test_the_end_of_a_call_is_laid_over_what_was_told(end: Mapping[str, object], expected: ToolCall) -> None:
    """Cases D2 and D10: its metadata is merged, its arguments are the model's own text, and no scratch is left."""
    body = frames(START, *CALLING, {"type": "toolcall_end", "contentIndex": 0, **end}, {**DONE, "reason": "toolUse"})

    assert (expected,) == (await heard(body)).parts


async def test_watchers_see_the_arguments_once() -> None:
    """What the end of a call repeats is not told again, what it adds is."""
    deltas: list[Delta] = []
    ends = {"type": "toolcall_end", "contentIndex": 0, "toolCall": {"arguments": '{"a": 1}  '}}

    await heard(frames(START, *CALLING, ends, {**DONE, "reason": "toolUse"}), deltas.append)

    assert '{"a": 1}  ' == "".join([delta.text for delta in deltas if isinstance(delta, ToolCallDelta)])


@pytest.mark.promise("P-17")
async def test_a_last_line_needs_no_newline() -> None:
    """Cases D3 and Q8: the terminal frame counts wherever the body stops after it."""
    body = frames(START, *HELLO, DONE)

    assert [WHOLE] * 2 == [await heard(body.rstrip(b"\n")), await heard(body[:-1])]


@pytest.mark.promise("P-17")
async def test_a_body_that_ends_without_a_terminal_frame_is_an_error() -> None:
    """Cases D4 and Q8: with what came before it, and never a shorter answer, nor silence."""
    clean = await failure(frames(START, {"type": "usage", "usage": USED}, *HELLO))
    in_mid_frame = await failure(frames(START, *HELLO, DONE)[:-20])
    nothing = await failure(as_json(b'{"ok": true}'))
    dropped = await failure(RawReply(frames(START, *HELLO, DONE), cut_at=200))

    failures = [clean, in_mid_frame, nothing, dropped]
    assert [("connection", True)] * 4 == [(each.kind, each.retryable) for each in failures]
    assert AssistantMessage(WHOLE.parts, "error", USAGE, provider="proxy") == clean.partial
    assert in_mid_frame.partial is not None
    assert WHOLE.parts == in_mid_frame.partial.parts
    assert nothing.partial is None


@pytest.mark.promise("P-17")
async def test_a_request_can_be_aborted_before_and_during_its_body() -> None:
    """Case D5: the connection is closed before the cancellation leaves."""
    head = frames(START, *HELLO)
    for reply in (RawReply(silent=True), RawReply(head, stall_at=len(head))):
        seen = asyncio.Event()
        async with ByteServer([reply]) as server, proxy_of(server) as model:
            asking = asyncio.ensure_future(model.complete(request(on_delta=lambda _, seen=seen: seen.set())))
            await server.until(lambda: len(server.requests) == 1)
            if not reply.silent:
                await seen.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await server.until(lambda: server.open_connections == 0)


@pytest.mark.promise("P-17")
@pytest.mark.parametrize(
    ("status", "body", "words", "kind"),
    [
        (503, b'{"error": "overloaded, come back"}', "Proxy error: overloaded, come back", "overloaded"),
        (400, b'{"error": {"message": "no such thing"}}', "Proxy error: no such thing", "invalid_request"),
        (400, b'{"error": "slow down", "kind": "rate_limit"}', "Proxy error: slow down", "rate_limit"),
        (401, b"<html>who are you?", "Proxy error: 401 Unauthorized", "auth"),
        (502, b'{"detail": 1}', "Proxy error: 502 Bad Gateway", "internal"),
        (599, b"", "Proxy error: 599", "internal"),
        (307, b"", "Proxy error: 307 Temporary Redirect", "invalid_request"),
    ],
)
async def test_a_bad_status_is_told_in_the_proxy_s_words(status: int, body: bytes, words: str, kind: str) -> None:
    """Case D6: the `error` of a JSON body, else the status."""
    error = await failure(as_json(body, status=status, keep_open=False))

    assert (words, kind, status) == (str(error), error.kind, error.status)


async def test_what_a_proxy_repeats_of_the_token_is_not_shown() -> None:
    """In a refusal, and inside a stream."""
    refused = await failure(as_json(json.dumps({"error": f"bad {TOKEN}"}).encode(), status=401))
    ended = await failure(frames(START, {"type": "error", "reason": "error", "errorMessage": f"bad {TOKEN}"}))

    assert "Proxy error: bad [secret]" == str(refused)
    assert TOKEN not in str(ended)


PIECES = [START, *HELLO, {"type": "usage", "usage": USED}, DONE]


@pytest.mark.promise("P-17", "T-06")
@given(st.lists(st.integers(0, 2**10), max_size=30), st.sampled_from(("\n\n", "\n", "\r\n\r\n", "\n: hi\nid: 4\n\n")))
def test_how_the_bytes_were_cut_changes_nothing(cuts: list[int], between: str) -> None:
    """Case D7: inside a character, inside a line, inside a newline; other lines mean nothing."""
    body = frames(*PIECES).replace(b"\n\n", between.encode())
    places = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    deltas: list[Delta] = []
    answer = _Rebuilt(request(on_delta=deltas.append), "proxy")
    lines = LineDecoder()

    for start, end in pairwise(places):
        for line in lines.feed(body[start:end]):
            answer.hear(ServerSentEvent("", line))
    for line in lines.close():
        answer.hear(ServerSentEvent("", line), last=True)

    assert WHOLE == answer.message()
    assert ["Hällo ", "☃ 🙂"] == [delta.text for delta in deltas if isinstance(delta, TextDelta)]


@pytest.mark.parametrize("split", [1, 2, 3, 7])
async def test_a_body_in_crumbs_is_the_same_answer(split: int) -> None:
    """Case D7, over a real connection."""
    async with ByteServer([RawReply(frames(*PIECES), split=split)]) as server, proxy_of(server) as model:
        assert WHOLE == await model.complete(request())


WRONG: Mapping[str, Mapping[str, object]] = {
    "text for a call": {"type": "text_delta", "contentIndex": 1, "delta": "x"},
    "thought for a text": {"type": "thinking_delta", "contentIndex": 0, "delta": "x"},
    "arguments for a text": {"type": "toolcall_delta", "contentIndex": 0, "delta": "x"},
    "the end of a thought for a text": {"type": "thinking_end", "contentIndex": 0},
    "a block that was never begun": {"type": "text_delta", "contentIndex": 9, "delta": "x"},
    "no index": {"type": "text_delta", "delta": "x"},
    "a truth for an index": {"type": "text_delta", "contentIndex": False, "delta": "x"},
    "a block that is begun twice": {"type": "text_start", "contentIndex": 0},
    "an order of other blocks": {**DONE, "order": [0, 5]},
    "an order with a block twice": {**DONE, "order": [0, 0]},
    "an order that leaves one out": {**DONE, "order": [1]},
    "an unknown reason": {**DONE, "reason": "tired"},
    "a newer version": {**DONE, "v": 2},
    "a frame too far": {**DONE, "seq": 40},
}


@pytest.mark.promise("P-17")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_frame_that_cannot_be_is_an_error_with_what_came_before(wrong: Mapping[str, object]) -> None:
    """Case D8: a delta of the wrong kind, and every other frame that contradicts those before it."""
    call = {**CALLING[0], "contentIndex": 1}

    error = await failure(frames(START, *HELLO, call, wrong, DONE))

    assert "malformed" == error.kind
    assert error.partial is not None
    assert ("error", (*WHOLE.parts, ToolCall("t0", "add", ""))) == (error.partial.stop_reason, error.partial.parts)


async def test_the_end_of_a_call_says_nothing_of_another_block() -> None:
    """As it always was."""
    stray = {"type": "toolcall_end", "contentIndex": 0, "toolCall": {"id": "c1"}}

    assert WHOLE == await heard(frames(START, *HELLO, stray, DONE))


async def test_a_frame_of_an_unknown_type_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """Case D9: with a warning; so is a frame that is no object."""
    caplog.set_level(logging.WARNING)
    body = frames(START, {"type": "confetti", "contentIndex": 0, "delta": "x"}, *HELLO, DONE)

    assert WHOLE == await heard(b"data: 4\n\nnoise\n\ndata:\n\n" + body)
    assert "confetti" in caplog.text


async def test_a_line_that_is_no_json_is_an_error() -> None:
    """With what came before it."""
    error = await failure(frames(START, *HELLO) + b'data: {"type": \n\n' + frames(DONE, numbered=False))

    assert "malformed" == error.kind
    assert error.partial is not None
    assert WHOLE.parts == error.partial.parts


async def test_a_line_that_never_ends_is_cut_off() -> None:
    """A frame has its limit, and it is all that is kept of one."""
    small = LineDecoder(largest=10)
    with pytest.raises(ModelError, match="more than 10 bytes"):
        list(small.feed(b"data: 12345"))
    with pytest.raises(ModelError, match="more than 10 bytes"):
        list(LineDecoder(largest=10).feed(b"data: 12345\n"))

    assert [b"1234"] == list(LineDecoder(largest=10).feed(b"data: 1234\n"))


async def test_servers_that_number_nothing_are_understood() -> None:
    """Older ones."""
    assert WHOLE == await heard(frames(START, *HELLO, DONE, numbered=False))


@pytest.mark.promise("P-17")
@pytest.mark.parametrize(
    ("frame", "kind", "retryable", "stop_reason"),
    [
        ({"reason": "error", "errorMessage": "rate limit hit"}, "rate_limit", True, "error"),
        ({"reason": "error", "errorMessage": "x", "kind": "quota", "retryable": False}, "quota", False, "error"),
        ({"reason": "error"}, "internal", True, "error"),
        ({"reason": "aborted", "errorMessage": "gone"}, "cancelled", False, "aborted"),
    ],
)
async def test_an_error_tells_what_was_used(
    frame: Mapping[str, object], kind: str, retryable: bool, stop_reason: str
) -> None:
    """Case D11: on an error and on an abort, with the partial message."""
    ends = {"type": "error", "usage": USED, "retryAfter": 2, "status": 429, "dispatched": True, **frame}

    error = await failure(frames(START, *HELLO, ends))

    assert (kind, retryable, 2.0, 429, True) == (
        error.kind,
        error.retryable,
        error.retry_after,
        error.status,
        error.dispatched,
    )
    assert AssistantMessage(WHOLE.parts, stop_reason, USAGE, provider="proxy") == error.partial


@pytest.mark.promise("P-17")
@pytest.mark.parametrize("more", [HELLO[1], DONE, {"type": "error", "reason": "error", "errorMessage": "late"}])
async def test_nothing_is_read_after_the_terminal_frame(more: Mapping[str, object]) -> None:
    """Case Q9: what follows is not looked at, nor waited for, and the body is closed."""
    body = frames(START, *HELLO, DONE)
    replies = [RawReply(body + frames(more, numbered=False)), RawReply(body + b"data: x", stall_at=len(body))]
    async with ByteServer(replies) as server, proxy_of(server) as model:
        for _ in replies:
            assert WHOLE == await model.complete(request())
            await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("last", [{"type": "error", "reason": "error"}, {"type": "text_delta", "contentIndex": 7}])
async def test_a_failure_closes_the_body(last: Mapping[str, object]) -> None:
    """Whether it was told or found, nothing more is waited for."""
    body = frames(START, *HELLO, last)
    async with ByteServer([RawReply(body + b"data: x", stall_at=len(body))]) as server, proxy_of(server) as model:
        with pytest.raises(ModelError):
            await model.complete(request())
        await server.until(lambda: server.open_connections == 0)


async def test_an_answer_may_be_told_anew() -> None:
    """What was told before a reset is gone, for the answer and for watchers."""
    deltas: list[Delta] = []

    answer = await heard(frames(START, *CALLING, {"type": "reset"}, *HELLO, DONE), deltas.append)

    assert WHOLE == answer
    shown = deltas[deltas.index(AttemptReset(3, 2)) :]
    assert "Hällo ☃ 🙂" == "".join([delta.text for delta in shown if isinstance(delta, TextDelta)])
    assert not any([isinstance(delta, ToolCallDelta) for delta in shown])


def test_an_address_that_cannot_be_used_is_refused_at_once() -> None:
    """Before anything is asked."""
    with pytest.raises(ValueError, match="base_url"):
        ProxyModel("m", base_url="models.example.org", api_key=TOKEN)


async def test_a_key_of_the_request_is_the_token() -> None:
    """As with every model adapter, the key of a request goes before our own."""
    assert "Bearer other" == (await sent(request(api_key="other"))).headers["authorization"]


def test_messages_of_a_history_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn writes only what is new."""
    written: list[Message] = []
    model = proxy_of("http://127.0.0.1:1")
    monkeypatch.setattr(
        "turnwright_adapters.proxy.journal.encode", lambda each: (each, written.append(each) or b'{"role":"user"}')
    )
    asked = request()

    model._body(asked)
    model._body(asked)

    assert list(asked.messages) == written
