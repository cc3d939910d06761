"""What the tests of chat adapters share: requests, replies as bytes, and what comes of them."""

from __future__ import annotations

import json
from typing import TypeAlias

import pytest
from attrs import evolve as replace, frozen

from turnwright.deltas import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from turnwright.errors import ModelError
from turnwright.messages import (
    AssistantMessage,
    Message,
    UserMessage,
)
from turnwright.ports import ModelRequest
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright.tools import ToolSpec
from turnwright_adapters.chat_completions import ChatCompletionsModel

JSON_TYPE = {"content-type": "application/json"}
KEY = "sk-canary-4f1d"

Object: TypeAlias = dict[str, object]


def request(*messages: Message, **changes: object) -> ModelRequest:
    """A request of turn 3 with *messages*, or one greeting."""
    return replace(ModelRequest("run", 3, 1, "", messages or (UserMessage("hi"),)), **changes)


def tool(name: str, **properties: object) -> ToolSpec:
    """A tool of that name."""
    return ToolSpec(name, f"what {name} does", {"type": "object", "properties": properties})


def model_of(server: ByteServer, **options: object) -> ChatCompletionsModel:
    """A model behind *server*."""
    return ChatCompletionsModel("m", base_url=f"{server.url}/v1", **options)  # type: ignore[arg-type]


def chunk(delta: Object | None, finish: str | None = None, **more: object) -> Object:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [choice], **more}


def call_chunk(**piece: object) -> Object:
    """A chunk with one piece of a tool call; *name* and *arguments* are its function's."""
    function = {key: piece.pop(key) for key in ("name", "arguments") if key in piece}
    return chunk({"tool_calls": [{**piece, "type": "function", "function": function}]})


DONE = "data: [DONE]\n\n"


def sse(*chunks: object, end: str = DONE) -> bytes:
    """A stream of *chunks*."""
    return ("".join(f"data: {json.dumps(item)}\n\n" for item in chunks) + end).encode()


def whole(message: Object, finish: str | None = "stop", **more: object) -> bytes:
    """A reply that is not streamed."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "r1", "model": "m-1", "choices": [choice], **more}).encode()


def as_json(body: bytes, **options: object) -> RawReply:
    """A reply of JSON."""
    return replace(RawReply(body, headers=JSON_TYPE, framing="length"), **options)


@frozen
class Heard:
    """An answer and what watchers were told of it."""

    message: AssistantMessage
    deltas: list[Delta]

    @property
    def told(self) -> dict[object, str]:
        """The text of the deltas: of the answer, of the reasoning, and of each call by its place and name."""
        told: dict[object, str] = {}
        for delta in self.deltas:
            match delta:
                case TextDelta() | ReasoningDelta():
                    told[delta.type] = told.get(delta.type, "") + delta.text
                case ToolCallDelta():
                    told[delta.index, delta.name] = told.get((delta.index, delta.name), "") + delta.text
                case _:
                    pass
        return told


async def hear(body: bytes, asked: ModelRequest | None = None, **options: object) -> Heard:
    """Hear a stream as it is, one byte at a time and with CRLF, make sure that it is the same, and give it."""
    replies = [RawReply(body), RawReply(body, split=1), RawReply(body.replace(b"\n", b"\r\n"))]
    heard: list[Heard] = []
    async with ByteServer(replies) as server, model_of(server, **options) as model:
        for _ in replies:
            deltas: list[Delta] = []
            message = await model.complete(replace(asked or request(), on_delta=deltas.append))
            heard.append(Heard(message, deltas))
    first, *others = heard
    assert [first] * len(others) == others
    return first


async def failure_of(*replies: RawReply, asked: ModelRequest | None = None, **options: object) -> ModelError:
    """Give the error that the one reply becomes; it must be the same for each of *replies*."""
    failures: list[ModelError] = []
    async with ByteServer(replies) as server, model_of(server, **options) as model:
        for _ in replies:
            with pytest.raises(ModelError) as caught:
                await model.complete(asked or request(on_delta=lambda _: None))
            failures.append(caught.value)
    assert 1 == len({(failure.kind, str(failure), failure.retryable) for failure in failures})
    return failures[0]


async def stream_failure(body: bytes, **options: object) -> ModelError:
    """Give the error that a stream becomes, as it is, bytewise and with CRLF."""
    replies = [RawReply(body), RawReply(body, split=1), RawReply(body.replace(b"\n", b"\r\n"))]
    return await failure_of(*replies, **options)


async def sent(asked: ModelRequest, **options: object) -> Object:
    """Give the body of the request that *asked* becomes."""
    return json.loads(await sent_bytes(asked, **options))


async def sent_bytes(asked: ModelRequest, **options: object) -> bytes:
    """Give the bytes of the request that *asked* becomes."""
    async with ByteServer([as_json(whole({"content": "ok"}))]) as server, model_of(server, **options) as model:
        await model.complete(asked)
        return server.requests[0].body


async def sent_messages(*messages: Message, tools: tuple[ToolSpec, ...] = (), **options: object) -> list[Object]:
    """Give the messages that a history becomes."""
    body = await sent(request(*messages, tools=tools), **options)
    assert isinstance(body["messages"], list)
    return body["messages"]
