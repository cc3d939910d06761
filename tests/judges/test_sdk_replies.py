"""What a vendor's own SDK makes of a reply is to us the same answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import anthropic
import openai
import pytest
from google import genai
from google.genai import types as google

from tests.adapters.chat import as_json, request, tool
from tests.adapters.dialects import events
from tests.adapters.test_dialects import VENDORS
from turnwright.messages import AssistantMessage
from turnwright.testing.byte_server import ByteServer, RawReply

WEATHER = tool("weather", place={"type": "string"})
SAID = "Is it wet?"


async def _chat(url: str) -> RawReply:
    async with openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client:
        options = {"include_usage": True}
        asked = [{"role": "user", "content": SAID}]
        async with client.chat.completions.stream(model="m", messages=asked, stream_options=options) as stream:
            whole = await stream.get_final_completion()
    return as_json(whole.model_dump_json(exclude_none=True).encode())


async def _responses(url: str) -> RawReply:
    async with (
        openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0) as client,
        client.responses.stream(model="m", input=SAID) as stream,
    ):
        whole = await stream.get_final_response()
    return as_json(whole.model_dump_json(exclude_none=True).encode())


async def _anthropic(url: str) -> RawReply:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        asked = [{"role": "user", "content": SAID}]
        async with client.messages.stream(model="m", max_tokens=9, messages=asked) as stream:
            whole = await stream.get_final_message()
    return as_json(whole.model_dump_json(exclude_none=True).encode())


async def _gemini(url: str) -> RawReply:
    options = google.HttpOptions(base_url=url, retry_options=google.HttpRetryOptions(attempts=1))
    async with genai.Client(api_key="k", http_options=options).aio as client:
        stream = await client.models.generate_content_stream(model="m", contents=SAID)
        pieces = [json.loads(piece.model_dump_json(by_alias=True, exclude_none=True)) async for piece in stream]
    return RawReply(events(*pieces))


READ: dict[str, Callable[[str], Awaitable[RawReply]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


async def ours(dialect: str, reply: RawReply) -> AssistantMessage:
    """Give the answer that *reply* becomes."""
    streamed = "event-stream" in reply.headers.get("content-type", "")
    async with (
        ByteServer([reply]) as server,
        VENDORS[dialect].model("m", base_url=server.url, stream=streamed) as model,
    ):
        return await model.complete(request(tools=(WEATHER,)))


@pytest.mark.promise("T-06", "P-16")
@pytest.mark.parametrize("dialect", READ)
@pytest.mark.parametrize("turn", [0, 1])
async def test_the_vendors_sdk_reads_the_same_answer(dialect: str, turn: int) -> None:
    """It reads the stream, writes what it has read, and that is the answer that we read from the stream."""
    # Its own types want a signature to be base64.
    reply = RawReply(VENDORS[dialect].streamed[turn].replace(b"SIG=", b"U0lH"))
    async with ByteServer([reply]) as server:
        theirs = await READ[dialect](server.url)

    assert await ours(dialect, reply) == await ours(dialect, theirs)
