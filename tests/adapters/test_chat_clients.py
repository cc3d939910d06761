"""Chat Completions: keys, headers, clients and event loops."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Callable

import httpx
import pytest

from tests.adapters.chat import (
    KEY,
    as_json,
    chunk,
    model_of,
    request,
    sse,
    whole,
)
from turnwright.errors import ModelError
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright_adapters.chat_completions import ChatCompletionsModel


@pytest.mark.promise("P-18")
async def test_the_key_is_asked_for_with_each_request() -> None:
    """A function, also an asynchronous one; without one, no header."""
    keys = iter(["one", "two"])

    async def later() -> str:
        return "three\n"

    async with ByteServer([as_json(whole({"content": "ok"}))]) as server:
        async with model_of(server, api_key=lambda: next(keys)) as model:
            await model.complete(request())
            await model.complete(request())
        for key in (later, None):
            async with model_of(server, api_key=key) as model:
                await model.complete(request())

        sent_keys = [seen.headers.get("authorization") for seen in server.requests]

    assert ["Bearer one", "Bearer two", "Bearer three", None] == sent_keys


async def test_headers_are_added_replaced_and_taken_away() -> None:
    """None among them takes one of ours away."""
    headers = {"X-Team": "blue", "Authorization": None, "accept": "application/json, */*"}
    async with ByteServer([as_json(whole({"content": "ok"}))]) as server:
        async with model_of(server, api_key=KEY, headers=headers) as model:
            await model.complete(request())
        seen = server.requests[0].headers

    assert ("blue", None, "application/json, */*") == (seen["x-team"], seen.get("authorization"), seen["accept"])


def broken_key() -> str:
    """Fail as a secret store may, with the secret in hand."""
    raise LookupError("no such secret")


@pytest.mark.parametrize("key", ["", "  ", f"{KEY}\nX: y", f"{KEY}\u2026", broken_key])
async def test_a_key_that_cannot_be_sent_is_refused_unseen(key: str | Callable[[], str]) -> None:
    """The error does not repeat it, as an HTTP library's would."""
    with pytest.raises(ModelError) as failure:
        await ChatCompletionsModel("m", api_key=key).complete(request())

    assert ("auth", False, False) == (failure.value.kind, failure.value.retryable, failure.value.dispatched)
    assert KEY not in str(failure.value)


def test_a_header_or_address_that_cannot_be_used_is_refused_at_once() -> None:
    """Without its value in the words."""
    with pytest.raises(ValueError, match="x-team") as failure:
        ChatCompletionsModel("m", headers={"x-team": f"{KEY}\n"})
    with pytest.raises(ValueError, match="base_url"):
        ChatCompletionsModel("m", base_url="api.openai.com/v1")

    assert KEY not in str(failure.value)


async def test_no_secret_is_printed(caplog: pytest.LogCaptureFixture) -> None:
    """Not by the model, not by its errors though the provider repeats the key, not by the logs of the libraries."""
    caplog.set_level(logging.DEBUG)
    leaks = [
        as_json(json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode(), status=401),
        RawReply(sse({"error": {"message": f"bad {KEY} and team-secret"}})),
    ]
    words: list[str] = []
    headers = {"x-other-key": "team-secret"}
    async with ByteServer(leaks) as server, model_of(server, api_key=KEY, headers=headers) as model:
        for _ in leaks:
            with pytest.raises(ModelError) as failure:
                await model.complete(request(on_delta=lambda _: None))
            words += [str(failure.value), repr(failure.value)]
        words += [repr(model)]

    assert KEY not in repr(vars(model))

    for word in [*words, caplog.text]:
        assert KEY not in word
        assert "team-secret" not in word


def test_one_model_serves_one_loop_after_another() -> None:
    """Nothing is left open when a loop ends, though nobody called aclose."""
    model: list[ChatCompletionsModel] = []

    async def ask() -> tuple[str, int]:
        async with ByteServer([as_json(whole({"content": "ok"}))]) as server:
            model[:] = model or [model_of(server)]
            model[0]._url = f"{server.url}/v1/chat/completions"
            await model[0].complete(request())
            answer = await model[0].complete(request())
            return answer.text, server.connections

    assert [("ok", 1)] * 3 == [asyncio.run(ask()) for _ in range(3)]


async def test_a_dropped_model_closes_its_connections() -> None:
    """Though nobody called aclose."""
    async with ByteServer([as_json(whole({"content": "ok"}))]) as server:
        await model_of(server).complete(request())
        gc.collect()

        await server.until(lambda: server.open_connections == 0)


async def test_a_closed_model_can_be_used_again() -> None:
    """And closing twice does nothing."""
    async with ByteServer([as_json(whole({"content": "ok"}))]) as server:
        model = model_of(server)
        await model.aclose()
        await model.complete(request())
        await model.aclose()
        await model.aclose()
        await server.until(lambda: server.open_connections == 0)
        await model.complete(request())
        await model.aclose()

        assert 2 == server.connections


async def test_a_given_client_is_used_and_stays_open() -> None:
    """It is the caller's to close."""
    async with ByteServer([as_json(whole({"content": "ok"}))]) as server, httpx.AsyncClient() as client:
        async with model_of(server, client=client) as model:
            await model.complete(request())

        assert not client.is_closed
        assert "ok" == (await model.complete(request())).text


async def test_a_client_of_httpx2_will_do() -> None:
    """For answers and for failures, whose classes are its own."""
    httpx2 = pytest.importorskip("httpx2")
    ok, streamed = as_json(whole({"content": "ok"})), RawReply(sse(chunk({"content": "hi"}, "stop")))
    replies = [ok, streamed, RawReply(drop=True), ok, RawReply(b"data: {}\n\n", cut_at=3)]
    async with ByteServer(replies) as server, httpx2.AsyncClient() as client:
        model = model_of(server, client=client)
        answers = [
            await model.complete(request()),
            await model.complete(request(on_delta=lambda _: None)),
            await model.complete(request()),
        ]
        with pytest.raises(ModelError) as cut:
            await model.complete(request())
    async with httpx2.AsyncClient() as client:
        with pytest.raises(ModelError) as refused:
            await model_of(server, client=client).complete(request())

    assert ["ok", "hi", "ok"] == [answer.text for answer in answers]
    assert ("connection", True) == (cut.value.kind, cut.value.dispatched)
    assert ("connection", False) == (refused.value.kind, refused.value.dispatched)


async def test_the_address_keeps_its_query() -> None:
    """Azure's version is there."""
    async with ByteServer([as_json(whole({"content": "ok"}))]) as server:
        async with ChatCompletionsModel("m", base_url=f"{server.url}/deployments/d/?api-version=1") as model:
            await model.complete(request())

        assert "/deployments/d/chat/completions?api-version=1" == server.requests[0].path
