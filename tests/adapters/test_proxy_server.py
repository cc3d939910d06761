"""The server of the proxy, asked over a real connection by our client and by whoever else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import jsonschema_rs
import pytest
from attrs import evolve as replace
from hypothesis import given, settings, strategies as st

from tests.adapters.chat import tool
from tests.adapters.proxying import SCHEMAS, TOKEN, WIRE, proxy_of, request, serving, written
from turnwright import AgentDefinition, Completed, Ports, run_agent, tool as tool_of
from turnwright.deltas import AttemptReset, Delta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.errors import ModelError
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    StopReason,
    Text,
    ToolCall,
    Usage,
)
from turnwright.ports import Model, ModelRequest, OutputSpec
from turnwright.testing import ScriptedModel, call, text
from turnwright.testing.byte_server import ByteServer, RawReply
from turnwright.testing.strategies import chunkings, transcripts
from turnwright_adapters import proxy_server
from turnwright_adapters._proxied import FAILURES
from turnwright_adapters._wire import ServerSentEvent, Timeouts
from turnwright_adapters.proxy import LineDecoder, _Rebuilt
from turnwright_adapters.proxy_server import _Frames, _Limits, _Proxy, proxy_app
from turnwright_contracts.model import ModelSuite

HEADERS: Final = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
ASK: Final = {"model": {"id": "m"}, "context": {"messages": []}, "options": {}}

FRAME: Final = jsonschema_rs.validator_for(json.loads((SCHEMAS / "proxy_frame.json").read_text(encoding="utf-8")))

LIMITS: Final = _Limits(15.0, 600.0, 60.0, 2**20, 64)


class Waiting:
    """A model that says one word and then waits to be cancelled, or to be let go on."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        assert request.on_delta is not None
        request.on_delta(TextDelta(request.turn, request.attempt, "one "))
        self.asked.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return text("one two")


@pytest.mark.promise("P-17", "T-05")
class TestProxy(ModelSuite):
    """A model behind the proxy keeps the promises of a model port."""

    def make(self, place: Path, answers: Sequence[AssistantMessage | None]) -> AbstractAsyncContextManager[Model]:
        return self._behind(answers[0])

    @asynccontextmanager
    async def _behind(self, answer: AssistantMessage | None) -> AsyncIterator[Model]:
        second = ModelError("overloaded", "no room", retryable=True) if answer is None else answer
        async with serving(ScriptedModel([text("first"), second], chunk=2)) as url, proxy_of(url) as model:
            yield model


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
marks = st.none() | st.text("sg", min_size=1, max_size=3)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, words, marks),
    st.builds(Reasoning, words, marks, st.booleans()),
    st.builds(Refusal, words),
    st.builds(ToolCall, st.sampled_from(("c1", "c2")), st.sampled_from(("add", "pay")), words, marks),
    st.sampled_from([Image("image/png", data="aGk="), File("text/plain", url="x", name="y"), File("a/b", id="z")]),
)
usages = st.builds(Usage, *[st.integers(0, 2**53)] * 7)
reasons: st.SearchStrategy[StopReason] = st.sampled_from(("stop", "length", "tool_calls", "refusal", "content_filter"))
names = st.none() | st.text("mp-", min_size=1, max_size=4)
answers = st.builds(
    AssistantMessage,
    st.lists(parts, max_size=6).map(tuple),
    reasons,
    usages,
    names,
    names.map(lambda name: name or "proxy"),
    names,
    names,
)


@pytest.mark.promise("P-17", "T-06")
@given(answers, chunkings())
@settings(max_examples=40)
async def test_an_answer_crosses_whole(answer: AssistantMessage, chunk: int | None) -> None:
    """Law 2: whatever it is made of and however it was streamed, it comes out as it went in, and watchers see it."""
    seen: list[Delta] = []
    async with serving(ScriptedModel([answer], chunk=chunk)) as url, proxy_of(url) as model:
        got = await model.complete(request(on_delta=seen.append))

    assert answer == got
    anew = max([place for place, delta in enumerate(seen) if isinstance(delta, AttemptReset)], default=0)
    thought = "".join([delta.text for delta in seen[anew:] if isinstance(delta, ReasoningDelta)])
    argued = "".join([delta.text for delta in seen[anew:] if isinstance(delta, ToolCallDelta)])
    assert "".join([part.text for part in answer.parts if isinstance(part, Reasoning)]) == thought
    assert sorted("".join([each.arguments for each in answer.calls])) == sorted(argued)
    assert answer.usage == [delta for delta in seen if isinstance(delta, UsageDelta)][-1].usage


def rebuilt(told: _Frames, body: list[bytes], deltas: list[Delta]) -> AssistantMessage:
    """What a client makes of *body* and of the rest of *told*; every frame is as the schema says."""
    answer, lines = _Rebuilt(request(on_delta=deltas.append), "proxy"), LineDecoder()
    for piece in (*body, *told.rest()):
        for line in lines.feed(piece):
            assert [] == [error.message for error in FRAME.iter_errors(json.loads(line))]
            answer.hear(ServerSentEvent("", line))
    return answer.message()


@pytest.mark.promise("P-17")
@given(answers, st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 2000), st.integers(1, 3))
async def test_a_client_that_reads_late_misses_nothing(
    answer: AssistantMessage, reads: list[int], backlog: int, piece: int
) -> None:
    """What was dropped while it did not read is told at the end; each frame is as the schema says."""
    told, body, pieces = _Frames(), list[bytes](), list[Delta]()
    await ScriptedModel([answer], chunk=1).complete(request(on_delta=pieces.append))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proxy_server, "BACKLOG", backlog)
        patched.setattr(proxy_server, "PIECE", piece)
        for place, delta in enumerate(pieces):
            told.take(delta)
            if reads[place % len(reads)] == 0:
                body.append(told.waiting())
        told.settle(await settled(answer))

        assert answer == rebuilt(told, body, [])


async def settled(end: AssistantMessage | ModelError) -> asyncio.Task[AssistantMessage | ModelError]:
    """A request that has ended."""

    async def ended() -> AssistantMessage | ModelError:
        return end

    task = asyncio.ensure_future(ended())
    await task
    return task


@pytest.mark.promise("P-17")
async def test_frames_for_nobody_do_not_pile_up() -> None:
    """Of a client that does not read, no more than the backlog is kept."""
    told = _Frames()
    for _ in range(300):
        told.take(TextDelta(1, 1, "x" * 2**16))
        told.take(ToolCallDelta(1, 1, 0, "add", "x" * 2**16))
        told.take(UsageDelta(1, 1, Usage(1)))

    assert len(told.waiting()) < proxy_server.BACKLOG + 2**18
    assert sum([len(piece) for block in told._blocks for piece in block.pieces]) < proxy_server.BACKLOG + 2**18


@pytest.mark.promise("P-17")
async def test_a_client_that_does_not_read_is_left() -> None:
    """Its model is cancelled once it has read nothing for long enough."""
    cancelled = asyncio.Event()

    class Endless:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            assert request.on_delta is not None
            try:
                while True:
                    request.on_delta(TextDelta(1, 1, "x" * 2**16))
                    await asyncio.sleep(0)
            finally:
                cancelled.set()

    async with serving(Endless(), read_within=0.2) as url:
        body = asked()
        reader, writer = await posting(url, body, length=len(body))
        await reader.readline()
        await cancelled.wait()
        writer.transport.abort()


@pytest.mark.promise("P-17")
async def test_a_client_that_leaves_takes_its_model_with_it() -> None:
    """Case D5: a cancelled request cancels the upstream model."""
    upstream = Waiting()
    async with serving(upstream) as url, proxy_of(url) as model:
        asking = asyncio.ensure_future(model.complete(request()))
        await upstream.asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await upstream.cancelled.wait()


@pytest.mark.promise("P-17")
async def test_a_silent_stream_is_kept_alive() -> None:
    """By comments, which a patient client hears without an end."""
    upstream = Waiting()
    patience = Timeouts(between_chunks=2.0)
    async with (
        serving(upstream, heartbeat=0.01) as url,
        proxy_of(url, timeouts=patience) as model,
        httpx.AsyncClient() as client,
        client.stream("POST", f"{url}/api/stream", json=ASK, headers=HEADERS) as reply,
    ):
        asking = asyncio.ensure_future(model.complete(request()))
        beats = 0
        async for line in reply.aiter_lines():
            beats += line == ": heartbeat"
            if beats == 3:
                upstream.go_on.set()

        assert "one two" == (await asking).text
        assert beats >= 3


@pytest.mark.promise("P-17")
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
    ],
)
async def test_nobody_is_served_without_a_known_token(authorization: str | None) -> None:
    """Whatever the body says: the model is not asked."""
    upstream = ScriptedModel([text("ok")])
    headers = {"content-type": "application/json"} | ({} if authorization is None else {"authorization": authorization})
    async with serving(upstream) as url, httpx.AsyncClient() as client:
        reply = await client.post(f"{url}/api/stream", json=ASK, headers=headers)

    assert (401, "Bearer") == (reply.status_code, reply.headers["www-authenticate"])
    assert {"error": "a known bearer token is needed", "dispatched": False} == reply.json()
    assert [] == upstream.requests


async def test_each_of_several_tokens_is_known() -> None:
    """And what is no token is refused when the app is made."""
    async with serving(ScriptedModel([text("ok")]), tokens=["a", TOKEN, "b"]) as url:
        for token in ("a", TOKEN, "b"):
            async with proxy_of(url, api_key=token) as model:
                assert "ok" == (await model.complete(request())).text
    for none in ([], [""], "token"):
        with pytest.raises(ValueError, match="tokens"):
            proxy_app({}, tokens=none)


def asked(**changes: object) -> bytes:
    """A body that asks, with *changes*."""
    return json.dumps({**ASK, **changes}).encode()


DEEP: Final = b'{"a":' * 100 + b"1" + b"}" * 100


@pytest.mark.promise("P-17")
@pytest.mark.parametrize(
    ("status", "words", "body", "headers"),
    [
        (415, "application/json", asked(), {"content-type": "text/plain"}),
        (415, "compressed", asked(), {"content-encoding": "gzip"}),
        (413, "at most 3000 bytes", b"[" + b" " * 3000, {}),
        (400, "not JSON", b"{", {}),
        (400, "UTF-8", b'{"a": "\xff"}', {}),
        (400, "duplicate", b'{"model": 1, "model": 2}', {}),
        (400, "deeper", DEEP, {}),
        (400, "its root", b"[]", {}),
        (400, "its root", b'{"model": {"id": "m"}}', {}),
        (400, "its root", asked(more=1), {}),
        (400, "model", asked(model={}), {}),
        (400, "options", asked(options={"temperature": "hot"}), {}),
        (400, "options", asked(options={"service_tier": "flex"}), {}),
        (400, "options", asked(options={"samplingParams": {"model": "dearer"}}), {}),
        (400, "context", asked(context={"messages": [{"role": "system", "parts": []}]}), {}),
        (400, "context", asked(context={"messages": [{"role": "user", "parts": ["hi"]}]}), {}),
        (400, "not for a client", asked(options={"headers": {"X-Api-Key": "mine"}}), {}),
        (400, "not for a client", asked(options={"headers": {"Host": "mine"}}), {}),
        (400, "not for a client", asked(options={"headers": {"OpenAI-Organization": "theirs"}}), {}),
        (400, "not for a client", asked(options={"headers": {"x-goog-user-project": None}}), {}),
        (400, "not for a client", asked(options={"headers": {"X-Forwarded-For": "10.0.0.1"}}), {}),
        (404, "no model 'other'", asked(model={"id": "other"}), {}),
    ],
)
async def test_what_is_refused_does_not_reach_the_model(
    status: int, words: str, body: bytes, headers: dict[str, str]
) -> None:
    """With a status and with words, that our client tells on as those of an effect that never was."""
    upstream = ScriptedModel([text("ok")])
    async with serving(upstream, largest_request=3000) as url, httpx.AsyncClient() as client:
        reply = await client.post(f"{url}/api/stream", content=body, headers={**HEADERS, **headers})
    error = reply.json()["error"]
    async with ByteServer([RawReply(reply.content, status=status)]) as server, proxy_of(server) as model:
        with pytest.raises(ModelError) as raised:
            await model.complete(request())

    assert status == reply.status_code
    assert words in error
    assert (f"Proxy error: {error}", False, status) == (
        str(raised.value),
        raised.value.dispatched,
        raised.value.status,
    )
    assert [] == upstream.requests


async def test_a_body_without_a_length_is_counted() -> None:
    """What was told of its length is believed only if it is too much."""

    async def trickle() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    async with serving(ScriptedModel([]), largest_request=3000) as url, httpx.AsyncClient() as client:
        reply = await client.post(f"{url}/api/stream", content=trickle(), headers=HEADERS)

    assert 413 == reply.status_code


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """Nor one whose client has left."""
    async with serving(ScriptedModel([]), read_within=0.1) as url:
        reader, writer = await posting(url, b"{", length=10)
        status = await reader.readline()
        writer.transport.abort()
        _, writer = await posting(url, b"{", length=10)
        writer.transport.abort()

    assert b"HTTP/1.1 408 Request Timeout\r\n" == status


async def posting(url: str, body: bytes, *, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which *body* was sent as one of *length* bytes."""
    address = httpx.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=2**10)
    head = [f"{name}: {value}\r\n" for name, value in {**HEADERS, "content-length": length}.items()]
    writer.write(f"POST /api/stream HTTP/1.1\r\nhost: x\r\n{''.join(head)}\r\n".encode() + body)
    return reader, writer


async def test_there_is_room_for_so_many_streams() -> None:
    """The next one is told to come back, and does once another has ended."""
    upstream = Waiting()
    async with serving(upstream, most_streams=1) as url, proxy_of(url) as model:
        first = asyncio.ensure_future(model.complete(request()))
        await upstream.asked.wait()
        with pytest.raises(ModelError) as full:
            await model.complete(request())
        upstream.go_on.set()

        assert ("overloaded", True, 1.0) == (full.value.kind, full.value.retryable, full.value.retry_after)
        assert ["one two"] * 2 == [(await first).text, (await model.complete(request())).text]


async def test_only_posts_to_the_path_are_served() -> None:
    """Others are told so."""
    async with serving(ScriptedModel([])) as url, httpx.AsyncClient() as client:
        replies = [await client.get(f"{url}/api/stream"), await client.post(url)]

    assert [405, 404] == [reply.status_code for reply in replies]


@pytest.mark.promise("P-17")
@pytest.mark.parametrize("kind", FAILURES)
async def test_a_failure_crosses_whole(kind: str) -> None:
    """Case D11: its kind and all that it says, with what came before it and what that used."""
    failure = ModelError(
        kind,  # type: ignore[arg-type]
        "no luck",
        retryable=kind == "timeout",
        retry_after=1.5,
        status=529,
        dispatched=kind != "auth",
        partial=AssistantMessage((Text("so f"), Reasoning("hm", "s")), "error", Usage(1, 2, 3)),
    )
    async with serving(ScriptedModel([failure])) as url, proxy_of(url) as model:
        with pytest.raises(ModelError) as raised:
            await model.complete(request())

    got = raised.value
    assert (kind, kind == "timeout", 1.5, 529, kind != "auth") == (
        got.kind,
        got.retryable,
        got.retry_after,
        got.status,
        got.dispatched,
    )
    assert "no luck" in str(got)
    assert got.partial is not None
    assert failure.partial is not None
    assert (failure.partial.parts, failure.partial.usage) == (got.partial.parts, got.partial.usage)


async def test_what_a_model_throws_is_an_error_frame() -> None:
    """Its words may hold anything, so they stay at the server."""

    class Broken:
        def __init__(self, fault: BaseException | object) -> None:
            self.fault = fault

        async def complete(self, request: ModelRequest) -> AssistantMessage:
            if isinstance(self.fault, BaseException):
                raise self.fault
            return self.fault  # type: ignore[return-value]

    got: list[ModelError] = []
    for fault in (KeyError("secret"), asyncio.CancelledError(), "a text", AssistantMessage("x", "error")):
        async with serving(Broken(fault)) as url, proxy_of(url) as model:
            with pytest.raises(ModelError) as raised:
                await model.complete(request())
            got.append(raised.value)

    assert ["internal", "cancelled", "malformed", "malformed"] == [each.kind for each in got]
    assert "secret" not in str(got[0])


async def test_a_model_has_its_time() -> None:
    """Then it is cancelled, and the client told; it keeps what was said and used."""
    upstream = Waiting()
    async with serving(upstream, answer_within=0.1) as url, proxy_of(url) as model:
        with pytest.raises(ModelError) as late:
            await model.complete(request())
        await upstream.cancelled.wait()

    assert ("timeout", True) == (late.value.kind, late.value.retryable)
    assert late.value.partial is not None
    assert "one " == late.value.partial.text


async def test_a_part_that_no_frame_can_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no shorter answer."""
    monkeypatch.setattr(proxy_server, "LARGEST_FRAME", 1000)
    answer = AssistantMessage((Text("see"), Image("image/png", data="A" * 1000)))
    async with serving(ScriptedModel([answer])) as url, proxy_of(url) as model:
        with pytest.raises(ModelError, match="no frame of 1000 bytes") as raised:
            await model.complete(request())

    assert "malformed" == raised.value.kind


@pytest.mark.promise("P-17")
@given(
    transcripts(),
    st.sampled_from(("", "Add.")),
    st.sampled_from(((), (tool("add"), tool("pay", to={"type": "string"})))),
    st.none() | st.just(OutputSpec("Sum", {"type": "object"})),
)
async def test_a_request_crosses_whole(
    messages: list[Message], instruction: str, tools: tuple[object, ...], output: OutputSpec | None
) -> None:
    """The upstream model is asked with the same context; its schema holds for what our client sends."""
    choice = "add" if tools else "auto"
    sent = request(messages=messages, instruction=instruction, tools=tools, output=output, tool_choice=choice)
    body = proxy_of("http://127.0.0.1:1")._body(sent)

    _, got = _Proxy({"m": ScriptedModel([])}, ["t"], LIMITS)._read(body)

    assert replace(sent, run_id="", turn=got.turn, attempt=1, timeout=600.0) == replace(got, options={})


@pytest.mark.promise("P-17", "I-02")
async def test_options_cross_by_their_names() -> None:
    """Sampling goes before the named ones, a budget with its level."""
    upstream = ScriptedModel([text("ok")])
    options = {
        "temperature": 0.5,
        "sampling_params": {"top_k": 9},
        "max_tokens": 100,
        "thinking_level": "high",
        "thinking_budgets": {"high": 4096, "low": 1},
        "cache_retention": "long",
        "session_id": "s1",
        "headers": {"x-team": "blue", "accept": None},
        "metadata": {"user_id": "u1"},
        "transport": "sse",
        "max_retry_delay_ms": 500,
        "service_tier": "flex",
    }
    async with serving(upstream) as url, proxy_of(url) as model:
        await model.complete(request(options=options))
        await model.complete(request(options={"thinking_budget": 7}))

    first, second = [dict(each.options) for each in upstream.requests]
    gone = ("sampling_params", "thinking_budgets", "service_tier")
    kept = {name: value for name, value in options.items() if name not in gone}
    assert {**kept, "top_k": 9, "thinking_budget": 4096} == first
    assert {"thinking_level": "medium", "thinking_budget": 7} == second


@pytest.mark.parametrize("name", WIRE)
def test_the_schemas_are_written_down(name: str) -> None:
    """As files, for who writes another side; `python -m tests.adapters.proxying` writes them anew."""
    assert written(WIRE[name]) == (SCHEMAS / name).read_text(encoding="utf-8")


async def test_what_the_model_says_anew_is_said_anew() -> None:
    """A gateway's lost try is dropped at the client too."""

    class Again:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            assert request.on_delta is not None
            for delta in (TextDelta(1, 1, "lost"), AttemptReset(1, 1), TextDelta(1, 1, "found")):
                request.on_delta(delta)
            return text("found")

    seen: list[Delta] = []
    async with serving(Again()) as url, proxy_of(url) as model:
        assert "found" == (await model.complete(request(on_delta=seen.append))).text

    assert [TextDelta(3, 2, "lost"), AttemptReset(3, 2), TextDelta(3, 2, "found")] == seen[:3]


async def test_what_was_hidden_while_the_rest_streamed_is_put_in_its_place() -> None:
    """Without telling anything twice."""
    answer = AssistantMessage((Reasoning("", "sealed", redacted=True), Reasoning("hm"), Text("ok")), provider="proxy")
    seen: list[Delta] = []
    async with serving(ScriptedModel([answer], chunk=1)) as url, proxy_of(url) as model:
        assert answer == await model.complete(request(on_delta=seen.append))

    assert ["h", "m", "o", "k"] == [each.text for each in seen if isinstance(each, ReasoningDelta | TextDelta)]


@pytest.mark.promise("P-17")
async def test_an_agent_runs_behind_a_proxy() -> None:
    """As it would on the model itself."""

    @tool_of
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    definition = AgentDefinition("adder", "Add.", tools=[add])
    script = [call("add", a=1, b=2), text("3")]
    async with serving(ScriptedModel(script)) as url, proxy_of(url) as model:
        outcome = await run_agent(definition, "1 + 2?", Ports(model=model))

    assert isinstance(outcome, Completed)
    assert "3" == outcome.output
