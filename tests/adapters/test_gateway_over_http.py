"""A gateway over real servers on the loopback that speak different dialects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.adapters.chat import JSON_TYPE, as_json, call_chunk, chunk, model_of, request, sse, tool, whole
from tests.adapters.dialects import events
from tests.adapters.test_anthropic import START, begin, close, end, make, piece, said
from turnwright import AgentDefinition, Completed, Ports, run_agent, tool as declared
from turnwright.deltas import AttemptReset, Delta, TextDelta
from turnwright.errors import ModelError
from turnwright.gateway import Attempt, Backoff, Gateway, Route
from turnwright.messages import AssistantMessage, Reasoning, Text, ToolCall, ToolMessage, UserMessage
from turnwright.ports import Model
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright_contracts import ModelSuite

AT_ONCE = Backoff(0.0, 0.0)
OVERLOADED = as_json(b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}', status=529)
WELL = as_json(whole({"content": "ok"}))
HELLO = RawReply(sse(chunk({"content": "Hello "}), chunk({"content": "there"}), chunk({}, "stop")))


@declared(replay="safe")
async def look(at: str) -> str:
    """Look at a thing."""
    return f"seen {at}"


LOOKER = AgentDefinition("looker", "Look.", tools=[look])


def over(claude: ByteServer, gpt: ByteServer, **options: object) -> Gateway:
    """A gateway that asks Anthropic's dialect first, and Chat Completions then."""
    routes = [Route("claude", make(claude.url)), Route("gpt", model_of(gpt))]
    return Gateway(routes, **{"backoff": AT_ONCE, **options})  # type: ignore[arg-type]


@pytest.mark.promise("N-21")
async def test_a_stream_that_breaks_in_one_dialect_is_whole_in_another() -> None:
    """What was seen is taken back, the pieces of the other server are the answer, and no connection is left."""
    begun = events(START, *said("Once upon a time"))
    broken = RawReply(begun + events(*end("end_turn")), cut_at=len(begun))
    deltas: list[Delta] = []
    async with ByteServer([broken]) as claude, ByteServer([HELLO]) as gpt:
        async with over(claude, gpt) as gateway:
            answer = await gateway.complete(request(on_delta=deltas.append))
        await gpt.until(lambda: gpt.open_connections == 0)
        await claude.until(lambda: claude.open_connections == 0)

    assert ("Hello there", "openai") == (answer.text, answer.provider)
    assert (3, 200) == (answer.usage.requests, answer.usage.input_tokens)
    assert [("claude", "connection"), ("claude", "connection"), ("gpt", None)] == [
        (each.route, each.kind) for each in gateway.recent
    ]
    last = max(place for place, delta in enumerate(deltas) if isinstance(delta, AttemptReset))
    assert 2 == sum([isinstance(delta, AttemptReset) for delta in deltas])
    assert "Hello there" == "".join([each.text for each in deltas[last:] if isinstance(each, TextDelta)])


@pytest.mark.case("usg-08")
async def test_what_came_before_a_failure_is_kept_with_it() -> None:
    """Text and tokens, also where nobody watches: the gateway counts them, and the last failure brings them along."""
    begun = events(START, *said("Once upon a time"))
    async with ByteServer([RawReply(begun)]) as claude, ByteServer([WELL]) as gpt:
        async with Gateway([Route("claude", make(claude.url, stream=True), attempts=1)]) as alone:
            with pytest.raises(ModelError) as caught:
                await alone.complete(request())
        routes = [Route("claude", make(claude.url, stream=True), attempts=1), Route("gpt", model_of(gpt))]
        async with Gateway(routes) as gateway:
            answer = await gateway.complete(request())

    partial = caught.value.partial
    assert partial is not None
    assert ("Once upon a time", 100, "error") == (partial.text, partial.usage.input_tokens, partial.stop_reason)
    assert (2, 100) == (answer.usage.requests, answer.usage.input_tokens)


@pytest.mark.promise("N-21")
async def test_a_conversation_goes_on_with_another_provider_and_comes_back() -> None:
    """The other gets the call and its result under one id and no foreign signature; the first gets its own again."""
    thinking = events(
        START,
        begin(0, type="thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking="I look."),
        piece(0, "signature_delta", signature="c2VhbA=="),
        close(0),
        begin(1, type="tool_use", id="toolu_01ABC", name="look", input={}),
        piece(1, "input_json_delta", partial_json='{"at": "a"}'),
        close(1),
        *end("tool_use", output_tokens=9),
    )
    foreign = "call|with a bad: id" + "x" * 60
    other = sse(call_chunk(index=0, id=foreign, name="look", arguments='{"at": "b"}'), chunk({}, "tool_calls"))
    claude_says = [RawReply(thinking), OVERLOADED, OVERLOADED, RawReply(events(START, *said("done"), *end("end_turn")))]
    async with (
        ByteServer(claude_says) as claude,
        ByteServer([RawReply(other)]) as gpt,
        over(claude, gpt) as gateway,
    ):
        outcome = await run_agent(LOOKER, "go", Ports(model=gateway, deltas=Nobody()))

    assert isinstance(outcome, Completed) and outcome.output == "done"
    asked = json.loads(gpt.requests[0].body)["messages"]
    assert "c2VhbA==" not in json.dumps(asked)
    assert [["toolu_01ABC"], "toolu_01ABC"] == [
        [call["id"] for call in asked[2]["tool_calls"]],
        asked[3]["tool_call_id"],
    ]
    back = json.loads(claude.requests[-1].body)["messages"]
    mine, theirs = back[1]["content"], back[3]["content"]
    assert {"type": "thinking", "thinking": "I look.", "signature": "c2VhbA=="} == mine[0]
    (use,) = [block for block in theirs if block["type"] == "tool_use"]
    assert use["id"] == back[4]["content"][0]["tool_use_id"]
    assert len(use["id"]) <= 64
    assert use["id"].replace("_", "").replace("-", "").isalnum()


class Nobody:
    """A sink that makes the models stream, and looks at nothing."""

    def emit(self, delta: Delta) -> None:
        """Take it."""


@pytest.mark.parametrize(
    ("status", "body", "kind", "asks_other"),
    [
        (429, {"error": {"message": "Rate limit: too many tokens per minute"}}, "rate_limit", True),
        (429, {"error": {"code": "insufficient_quota", "message": "no"}}, "quota", True),
        (401, {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}, "auth", True),
        (503, {"error": {"message": "no room"}}, "overloaded", True),
        (500, {}, "internal", True),
        (400, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, "context_overflow", False),
        (400, {"error": {"type": "invalid_request_error", "message": "messages: bad"}}, "invalid_request", False),
    ],
)
async def test_the_kind_of_an_error_decides_who_is_asked_next(
    status: int, body: object, kind: str, asks_other: bool
) -> None:
    """As the adapters read it off the wire: another account or server helps against some, and against some nothing."""
    reply = as_json(json.dumps(body).encode(), status=status)
    told: list[Attempt] = []
    async with (
        ByteServer([reply]) as claude,
        ByteServer([WELL]) as gpt,
        over(claude, gpt, on_attempt=told.append) as gateway,
    ):
        if asks_other:
            assert "ok" == (await gateway.complete(request())).text
        else:
            with pytest.raises(ModelError):
                await gateway.complete(request())

    assert (kind, status) == (told[0].kind, told[0].status)
    assert asks_other == bool(gpt.requests)


async def test_what_a_server_asks_for_is_waited_in_true_time() -> None:
    """A short wait of the server's own choosing, and then its answer."""
    wait = as_json(b"{}", status=429, headers={**JSON_TYPE, "retry-after-ms": "30"})
    async with ByteServer([wait, WELL]) as server, model_of(server) as model:
        gateway = Gateway([Route("gpt", model)])
        began = asyncio.get_running_loop().time()

        assert "ok" == (await gateway.complete(request())).text
        assert 0.03 <= asyncio.get_running_loop().time() - began
    assert 0.03 == gateway.recent[0].wait


async def test_a_silent_server_is_left_when_its_time_is_up() -> None:
    """Its connection is closed before the next is asked."""
    async with ByteServer([RawReply(silent=True)]) as claude, ByteServer([WELL]) as gpt:
        routes = [Route("claude", make(claude.url), timeout=0.05, attempts=1), Route("gpt", model_of(gpt))]
        async with Gateway(routes) as gateway:
            assert "ok" == (await gateway.complete(request())).text
            await claude.until(lambda: claude.open_connections == 0)

    assert ["timeout", None] == [each.kind for each in gateway.recent]


async def test_a_cancelled_request_closes_its_connection() -> None:
    """Before the cancellation leaves, and no other server hears of it."""
    async with ByteServer([RawReply(silent=True)]) as claude, ByteServer([HELLO]) as gpt, over(claude, gpt) as gateway:
        task = asyncio.ensure_future(gateway.complete(request()))
        await claude.until(lambda: len(claude.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await claude.until(lambda: claude.open_connections == 0)

    assert [] == gpt.requests


async def test_no_model_is_sent_what_only_another_understands() -> None:
    """A history of one dialect, sent to both: each request is valid for its server."""
    history = (
        UserMessage("go"),
        AssistantMessage(
            (Reasoning("hm", "c2ln"), Text("x", "dHh0"), ToolCall("c:1", "look", '{"at": "a"}', "c2ln")),
            "tool_calls",
            provider="gemini",
            model="g",
        ),
        ToolMessage("c:1", "look", (Text("seen"),)),
    )
    async with ByteServer([OVERLOADED]) as claude, ByteServer([WELL]) as gpt, over(claude, gpt) as gateway:
        await gateway.complete(request(*history, tools=(tool("look", at={"type": "string"}),)))

    for body in (claude.requests[0].body, gpt.requests[0].body):
        assert b"c2ln" not in body
        assert b"dHh0" not in body


async def test_a_key_of_the_request_goes_to_one_provider_or_to_none() -> None:
    """It replaces the adapter's own; a gateway over several can't know whose it is, and sends it to nobody."""
    asked = request(api_key="sk-mine")
    async with ByteServer([OVERLOADED]) as claude, ByteServer([WELL]) as gpt, over(claude, gpt) as both:
        await both.complete(asked)
        async with Gateway([Route("gpt", model_of(gpt, api_key="sk-own"))]) as one:
            await one.complete(asked)

    sent = [seen.headers.get("authorization") for seen in gpt.requests]
    assert [None, "Bearer sk-mine"] == sent
    assert not any("sk-mine" in str(seen.headers) for seen in claude.requests)


@pytest.mark.promise("T-05", "N-21")
class TestGateway(ModelSuite):
    """A gateway keeps the promises of a model port, also where its first route is down."""

    def make(self, place: Path, answers: Sequence[AssistantMessage | None]) -> AbstractAsyncContextManager[Model]:
        return self._behind(answers[0])

    @asynccontextmanager
    async def _behind(self, answer: AssistantMessage | None) -> AsyncIterator[Model]:
        def reply(seen: object) -> RawReply:
            if answer is None:
                return as_json(b'{"error": {"message": "no room"}}', status=503)
            calls = [
                {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                for each in answer.calls
            ]
            message = {"content": answer.text or None, **({"tool_calls": calls} if calls else {})}
            return as_json(whole(message, answer.stop_reason))

        async with ByteServer([OVERLOADED]) as claude, ByteServer(reply) as gpt, over(claude, gpt) as gateway:
            yield gateway
