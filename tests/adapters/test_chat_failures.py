"""Chat Completions: no failure passes for an answer, and none leaves anything open."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given, strategies as st

from tests.adapters.chat import (
    JSON_TYPE,
    as_json,
    chunk,
    failure_of,
    model_of,
    request,
    sse,
    stream_failure,
    whole,
)
from turnwright.errors import ModelError
from turnwright.testing.byte_server import ByteServer, RawReply, SeenRequest
from turnwright_adapters._wire import provider_error, retry_after
from turnwright_adapters.chat_completions import ChatCompletionsModel, Timeouts


@pytest.mark.case("ret-01")
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "Wed, 99 Foo"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({}, None),
    ],
)
async def test_the_time_to_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    """What can't be understood is no time at all, and never an exception."""
    failure = await failure_of(RawReply(b"{}", status=429, headers={**JSON_TYPE, **headers}))

    assert (seconds, "rate_limit", True) == (failure.retry_after, failure.kind, failure.retryable)


@pytest.mark.case("ret-01")
def test_a_date_in_the_future_is_the_time_until_then() -> None:
    """A far one too: whether to wait so long is not the adapter's to say."""
    soon = retry_after({"retry-after": format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True)})
    far = retry_after({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"})

    assert soon is not None
    assert 50 < soon <= 60
    assert far is not None
    assert far > 1e9


@pytest.mark.case("ret-01")
@given(st.text())
def test_no_retry_after_is_more_than_a_number_or_nothing(text: str) -> None:
    """Whatever the header holds."""
    seconds = retry_after({"retry-after": text, "retry-after-ms": text})

    assert seconds is None or seconds >= 0


OVERFLOWS = [
    "prompt is too long: 210000 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
    "Your input exceeds the context window of this model.",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 32768 tokens.",
    "prompt token count of 70000 exceeds the limit of 64000",
    "the request exceeds the available context size, try increasing it",
    "tokens to keep from the initial prompt is greater than the context length",
    "invalid params, context window exceeds limit",
    "Your request exceeded model token limit: 32768",
    "prompt too long; exceeded max context length by 3 tokens",
    "Range of input length should be [1, 30720]",
    "the prompt has 9000 tokens, but the configured context size is 4096",
    "Input (9000 tokens) is longer than the model's context length (4096 tokens).",
    "too many tokens: 300000",
]


@pytest.mark.case("ret-05")
@pytest.mark.parametrize("words", OVERFLOWS)
def test_a_prompt_that_is_too_long_is_an_overflow(words: str) -> None:
    """In the words of many servers."""
    body = json.dumps({"error": {"message": words, "type": "invalid_request_error"}}).encode()

    failure = provider_error("p", body, status=400)

    assert ("context_overflow", False) == (failure.kind, failure.retryable)


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        pytest.param(
            429,
            {"message": "Rate limit: too many tokens per minute"},
            "rate_limit",
            True,
            marks=pytest.mark.case("ret-05"),
        ),
        pytest.param(413, {"message": "x"}, "context_overflow", False, marks=pytest.mark.case("ret-05")),
        pytest.param(413, None, "context_overflow", False, marks=pytest.mark.case("ret-05")),
        pytest.param(400, None, "context_overflow", False, marks=pytest.mark.case("ret-05")),
        (400, {"message": "x", "code": "context_length_exceeded"}, "context_overflow", False),
        (400, {"message": "x", "type": "exceed_context_size_error", "code": 400}, "context_overflow", False),
        (429, {"message": "x", "code": "insufficient_quota"}, "quota", False),
        (429, {"message": "You exceeded your current quota, please check your plan and billing"}, "quota", False),
        (402, {"message": "x"}, "quota", False),
        (403, {"message": "Insufficient balance"}, "quota", False),
        (400, {"message": "x", "code": "content_filter"}, "content_filter", False),
        (503, {"message": "Loading model", "type": "unavailable_error", "code": 503}, "overloaded", True),
        (529, {"type": "overloaded_error", "message": "Overloaded"}, "overloaded", True),
        (500, {"message": "The server is overloaded"}, "overloaded", True),
        (504, {"message": "x"}, "timeout", True),
        (429, [{"error": {"message": "x", "status": "RESOURCE_EXHAUSTED"}}], "rate_limit", True),
        (
            400,
            {"message": "x", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]},
            "auth",
            False,
        ),
        (400, {"message": "x", "status": "INVALID_ARGUMENT", "details": [{}, 7]}, "invalid_request", False),
        (503, {"message": "Throttling: too many tokens, please wait"}, "overloaded", True),
        (400, "<!doctype html><html>nginx</html>", "invalid_request", False),
        (307, {"message": "moved"}, "invalid_request", False),
        *[
            pytest.param(
                status,
                {"message": "x", "type": "invalid_request_error"},
                kind,
                retryable,
                marks=pytest.mark.case("ret-06"),
            )
            for status, kind, retryable in [
                (400, "invalid_request", False),
                (401, "auth", False),
                (403, "auth", False),
                (404, "invalid_request", False),
                (422, "invalid_request", False),
                (408, "timeout", True),
                (409, "internal", True),
                (429, "rate_limit", True),
                (500, "internal", True),
                (502, "internal", True),
            ]
        ],
    ],
)
async def test_a_status_and_its_body_become_a_closed_kind(
    status: int, error: object, kind: str, retryable: bool
) -> None:
    """Codes first, then words, then the status."""
    body = b"" if error is None else json.dumps({"error": error} if isinstance(error, dict) else error).encode()
    if isinstance(error, str):
        body = error.encode()
    async with ByteServer([as_json(body, status=status)]) as server, model_of(server) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request())

        assert (kind, retryable, status) == (caught.value.kind, caught.value.retryable, caught.value.status)
        assert 1 == len(server.requests)


async def test_a_quota_that_comes_back_by_itself_is_a_rate() -> None:
    """Some providers speak of a quota when they mean this minute's."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}]
    body = json.dumps({"error": {"message": "You exceeded your current quota", "details": details}}).encode()

    failure = provider_error("p", body, status=429)

    assert ("rate_limit", 12.5) == (failure.kind, failure.retry_after)


@pytest.mark.parametrize(("status", "told"), [(400, "true"), (500, "false")])
async def test_a_server_that_knows_whether_to_retry_is_believed(status: int, told: str) -> None:
    """`x-should-retry` wins over the status, both ways."""
    failure = await failure_of(RawReply(b"{}", status=status, headers={"x-should-retry": told}))

    assert (told == "true") == failure.retryable


async def test_the_message_of_an_error_is_bounded() -> None:
    """A provider that sends its whole log is cut short."""
    failure = await failure_of(as_json(json.dumps({"error": {"message": "x" * 9_000}}).encode(), status=500))

    assert 4_000 == len(str(failure))


async def test_a_refused_connection_was_never_sent() -> None:
    """So nothing can have been charged."""
    async with ByteServer([RawReply()]) as server:
        url = server.url
    async with ChatCompletionsModel("m", base_url=url) as model:
        with pytest.raises(ModelError) as failure:
            await model.complete(request())

    assert ("connection", True, False) == (failure.value.kind, failure.value.retryable, failure.value.dispatched)


async def test_what_a_client_never_sent_was_not_dispatched() -> None:
    """Neither when a handshake stalls, which closes the connection, nor when a client only says that it has none."""

    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route")

    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"https://127.0.0.1:{mute.getsockname()[1]}"
        async with ChatCompletionsModel("m", base_url=address) as model:
            with pytest.raises(ModelError) as stalled:
                await model.complete(request(timeout=0.5))
        mute.settimeout(5)
        connection, _ = mute.accept()
        with connection:
            connection.settimeout(5)
            while connection.recv(4096):  # until the client has closed it
                pass
    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        with pytest.raises(ModelError) as unreachable:
            await ChatCompletionsModel("m", client=client).complete(request())

    assert ("timeout", False) == (stalled.value.kind, stalled.value.dispatched)
    assert ("connection", False) == (unreachable.value.kind, unreachable.value.dispatched)


async def test_a_reply_that_is_no_json_is_malformed() -> None:
    """A page of a proxy, say."""
    failure = await failure_of(as_json(b"<html>"), asked=request())

    assert ("malformed", True) == (failure.kind, failure.retryable)


async def test_an_event_that_is_no_json_is_malformed() -> None:
    """In the middle of a stream."""
    failure = await stream_failure(b"data: {oops\n\n" + sse(chunk({}, "stop")))

    assert ("malformed", True) == (failure.kind, failure.retryable)


@pytest.mark.parametrize(
    ("reply", "timeouts", "words"),
    [
        (RawReply(b"x", stall_at=0), Timeouts(first_byte=0.05), "no first byte"),
        (RawReply(b": x\n", stall_at=2), Timeouts(between_chunks=0.05), "silent"),
        (RawReply(b": x\n", stall_at=2), Timeouts(total=0.05), "not finished"),
        (RawReply([b": x\n"] * 20_000, split=1), Timeouts(first_byte=1, between_chunks=1, total=0.2), "not finished"),
        (RawReply(b"x", stall_at=1, status=500), Timeouts(total=0.05), "not finished"),
    ],
)
async def test_a_late_answer_is_a_timeout(reply: RawReply, timeouts: Timeouts, words: str) -> None:
    """For its first byte, for the next, for all of it; and the connection is closed."""
    warm = as_json(whole({"content": "ok"}))
    async with ByteServer([warm, reply]) as server, model_of(server) as model:
        await model.complete(request())
        model._http._timeouts = timeouts
        with pytest.raises(ModelError, match=words) as failure:
            await model.complete(request(on_delta=lambda _: None))

        await server.until(lambda: server.open_connections == 0)

    assert ("timeout", True, True) == (failure.value.kind, failure.value.retryable, failure.value.dispatched)


async def test_the_time_left_to_a_request_bounds_it() -> None:
    """The engine's deadline is the request's."""
    failure = await failure_of(RawReply(b"x", stall_at=1), asked=request(timeout=0.05))

    assert "timeout" == failure.kind


async def test_slow_but_steady_is_not_late() -> None:
    """Each byte starts the wait anew, however long the whole takes."""
    began = asyncio.get_running_loop().time()

    async def steadily() -> AsyncIterator[bytes]:
        while asyncio.get_running_loop().time() < began + 1.2:
            yield b": x\n"
            await asyncio.sleep(0)
        yield sse(chunk({"content": "ok"}, "stop"))

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=steadily())

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        model = ChatCompletionsModel("m", client=client, timeouts=Timeouts(first_byte=30, between_chunks=0.8))
        message = await model.complete(request(on_delta=lambda _: None))

    assert "ok" == message.text


@pytest.mark.promise("T-10")
@pytest.mark.parametrize("place", ["before the head", "before the body", "inside the body"])
async def test_a_cancelled_request_is_closed_before_the_cancellation_leaves(place: str) -> None:
    """The client holds no connection afterwards, and no task is left."""
    body = sse(chunk({"content": "Hello"}), end="")
    reply = {
        "before the head": RawReply(silent=True),
        "before the body": RawReply(body, stall_at=0),
        "inside the body": RawReply(body, stall_at=len(body)),
    }[place]
    before = asyncio.all_tasks()
    async with ByteServer([reply]) as server, httpx.AsyncClient() as client:
        model = model_of(server, client=client)
        first = asyncio.Event()
        task = asyncio.create_task(model.complete(request(on_delta=lambda _: first.set())))
        await (first.wait() if place == "inside the body" else server.until(lambda: bool(server.requests)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert [] == client._transport._pool.connections  # type: ignore[attr-defined]
        await server.until(lambda: server.open_connections == 0)

    assert before == asyncio.all_tasks()


async def test_every_failure_closes_its_response() -> None:
    """An error status, an error in the stream and junk leave no connection in use."""
    replies = [
        RawReply(b'{"error": {"message": "x"}}', status=500, keep_open=True),
        RawReply(sse({"error": {"message": "x"}}), keep_open=True),
        RawReply(b"data: {oops\n\n", keep_open=True),
    ]
    async with ByteServer(replies) as server, httpx.AsyncClient() as client:
        for _ in replies:
            with pytest.raises(ModelError):
                await model_of(server, client=client).complete(request(on_delta=lambda _: None, timeout=0.3))

        assert [] == client._transport._pool.connections  # type: ignore[attr-defined]


async def test_a_kept_connection_that_died_is_replaced_once() -> None:
    """A server may close an idle connection at the very moment of our next request."""
    ok = as_json(whole({"content": "ok"}))
    async with ByteServer([ok, RawReply(drop=True), ok]) as server, model_of(server) as model:
        answers = [await model.complete(request()) for _ in range(2)]

        assert [1, 1, 2] == [seen.connection for seen in server.requests]

    assert ["ok", "ok"] == [answer.text for answer in answers]


async def test_of_several_dead_connections_one_is_tried() -> None:
    """The second try is on a connection of its own, whatever else is kept."""
    ok = as_json(whole({"content": "ok"}))
    used: set[int] = set()

    def answer(seen: SeenRequest) -> RawReply:
        dead = seen.connection in used
        used.add(seen.connection)
        return RawReply(drop=True) if dead else ok

    async with ByteServer(answer) as server, model_of(server) as model:
        await asyncio.gather(model.complete(request()), model.complete(request()))
        await model.complete(request())

        assert 3 == server.connections
        assert 4 == len(server.requests)


async def test_a_fresh_connection_that_dies_is_a_failure() -> None:
    """The request may have been carried out, so it is not sent again here."""
    ok = as_json(whole({"content": "ok"}))
    async with ByteServer([RawReply(drop=True), ok, RawReply(drop=True)]) as server, model_of(server) as model:
        with pytest.raises(ModelError) as first:
            await model.complete(request())
        await model.complete(request())
        with pytest.raises(ModelError) as third:
            await model.complete(request())

        assert [1, 2, 2, 3] == [seen.connection for seen in server.requests]

    for failure in (first.value, third.value):
        assert ("connection", True, True) == (failure.kind, failure.retryable, failure.dispatched)
