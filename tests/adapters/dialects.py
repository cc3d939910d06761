"""What the tests of the vendors' own dialects share: a model behind a server of bytes, and what comes of a reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pytest
from attrs import evolve as replace, frozen

from tests.adapters.chat import Heard, Object, as_json, request
from turnwright.deltas import Delta
from turnwright.errors import ModelError
from turnwright.messages import AssistantMessage, Message
from turnwright.ports import ModelRequest
from turnwright.testing.byte_server import ByteServer, RawReply, SeenRequest
from turnwright_adapters.anthropic import AnthropicModel
from turnwright_adapters.gemini import GeminiModel
from turnwright_adapters.responses import ResponsesModel

Made: TypeAlias = AnthropicModel | GeminiModel | ResponsesModel


def events(*payloads: Mapping[str, object]) -> bytes:
    """A stream of *payloads*, each with its type as the event's name."""
    return "".join([_event(payload) for payload in payloads]).encode()


def _event(payload: Mapping[str, object]) -> str:
    name = f"event: {payload['type']}\n" if "type" in payload else ""
    return f"{name}data: {json.dumps(payload)}\n\n"


@frozen
class Dialect:
    """A model adapter, and a reply that says "ok" in its dialect."""

    make: Callable[..., Made]
    ok: Object

    async def hear(self, body: bytes, asked: ModelRequest | None = None, **options: object) -> Heard:
        """Hear a stream as it is, bytewise, in sevens and with CRLF, make sure that it is the same, and give it."""
        crlf = RawReply(body.replace(b"\n", b"\r\n"))
        replies = [RawReply(body), RawReply(body, split=1), RawReply(body, split=7), crlf]
        heard: list[Heard] = []
        async with ByteServer(replies) as server, self.make(server.url, **options) as model:
            for _ in replies:
                deltas: list[Delta] = []
                message = await model.complete(replace(asked or request(), on_delta=deltas.append))
                heard.append(Heard(message, deltas))
        first, *others = heard
        assert [first] * len(others) == others
        return first

    async def read(self, payload: object, asked: ModelRequest | None = None, **options: object) -> AssistantMessage:
        """Give the answer that a reply becomes that is not streamed."""
        reply = as_json(json.dumps(payload).encode())
        async with ByteServer([reply]) as server, self.make(server.url, **options) as model:
            return await model.complete(asked or request())

    async def failure(self, reply: RawReply, asked: ModelRequest | None = None, **options: object) -> ModelError:
        """Give the error that *reply* becomes."""
        async with ByteServer([reply]) as server, self.make(server.url, **options) as model:
            with pytest.raises(ModelError) as caught:
                await model.complete(asked or request(on_delta=lambda _: None))
        return caught.value

    async def seen(self, asked: ModelRequest, **options: object) -> SeenRequest:
        """Give the request on the wire that *asked* becomes."""
        reply = as_json(json.dumps(self.ok).encode())
        async with ByteServer([reply]) as server, self.make(server.url, **options) as model:
            await model.complete(asked)
            return server.requests[0]

    async def sent(self, asked: ModelRequest, **options: object) -> Object:
        """Give the body of the request that *asked* becomes."""
        return json.loads((await self.seen(asked, **options)).body)

    async def history(self, member: str, *messages: Message, **options: object) -> Sequence[Object]:
        """Give what a history becomes in *member* of the request."""
        found = (await self.sent(request(*messages), **options))[member]
        assert isinstance(found, list)
        return found
