"""Model adapters keep the contract of the model port, behind a server on loopback that speaks their protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.adapters.chat import as_json, call_chunk, chunk, model_of, sse, whole
from turnwright.messages import AssistantMessage
from turnwright.testing.byte_server import ByteServer, RawReply, SeenRequest
from turnwright_adapters.chat_completions import ChatCompletionsModel
from turnwright_contracts import ModelSuite


def _pieces(text: str) -> list[str]:
    return [text[start : start + 3] for start in range(0, len(text), 3)]


def _streamed(answer: AssistantMessage) -> bytes:
    chunks = [chunk({"content": piece}) for piece in _pieces(answer.text)]
    for index, each in enumerate(answer.calls):
        chunks.append(call_chunk(index=index, id=each.id, name=each.name, arguments=""))
        chunks += [call_chunk(index=index, arguments=piece) for piece in _pieces(each.arguments)]
    return sse(*chunks, chunk({}, answer.stop_reason))


def _whole(answer: AssistantMessage) -> bytes:
    calls = [
        {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
        for each in answer.calls
    ]
    message = {"content": answer.text or None, **({"tool_calls": calls} if calls else {})}
    return whole(message, answer.stop_reason)


@pytest.mark.promise("T-05")
class TestChatCompletions(ModelSuite):
    """Chat Completions, streamed where somebody watches."""

    def make(
        self, place: Path, answers: Sequence[AssistantMessage | None]
    ) -> AbstractAsyncContextManager[ChatCompletionsModel]:
        return self._behind(answers[0])

    @asynccontextmanager
    async def _behind(self, answer: AssistantMessage | None) -> AsyncIterator[ChatCompletionsModel]:
        def reply(seen: SeenRequest) -> RawReply:
            if answer is None:
                return as_json(b'{"error": {"message": "no room"}}', status=503)
            return RawReply(_streamed(answer)) if json.loads(seen.body).get("stream") else as_json(_whole(answer))

        async with ByteServer(reply) as server:
            yield model_of(server)
