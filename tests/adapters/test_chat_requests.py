"""Chat Completions: what is sent, byte for byte, and that every history is sent in a valid form."""

from __future__ import annotations

import gc
import json
import re

import pytest
from attrs import evolve as replace
from hypothesis import given, strategies as st

from tests.adapters.chat import (
    call_chunk,
    chunk,
    hear,
    request,
    sent,
    sent_bytes,
    sent_messages,
    sse,
    tool,
)
from turnwright.errors import ModelError
from turnwright.messages import (
    AssistantMessage,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolMessage,
    Transcript,
    UserMessage,
)
from turnwright.ports import ModelRequest, OutputSpec
from turnwright.tools import ToolSpec
from turnwright_adapters._wire import wire_name
from turnwright_adapters.chat_completions import OPENAI, ChatCompletionsModel, Compat


def body_of(asked: ModelRequest, **options: object) -> bytes:
    """Give the bytes of the request that *asked* becomes, without sending it."""
    model = ChatCompletionsModel("m", **options)  # type: ignore[arg-type]
    return model._body(asked, model._encoded, stream=False)


async def test_a_plain_request_has_no_more_than_it_asks_for() -> None:
    """An option that is absent leaves no trace, byte for byte."""
    asked = request(instruction="be kind")

    assert (
        b'{"model":"m","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]}'
        == await sent_bytes(asked)
        == await sent_bytes(replace(asked, options={"temperature": None}))
    )


async def test_a_full_request_byte_for_byte() -> None:
    """Tools, choice, output, options and streaming, in one order for ever."""
    asked = request(
        instruction="be kind",
        tools=(tool("view", path={"type": "string"}),),
        tool_choice="required",
        output=OutputSpec("verdict", {"type": "object", "properties": {"z": {}, "a": {}}}),
        options={"temperature": 0, "max_tokens": 9},
        on_delta=lambda _: None,
    )

    assert (
        b'{"model":"m","max_completion_tokens":9,"response_format":{"type":"json_schema","json_schema":{"name":"verdict",'
        b'"schema":{"type":"object","properties":{"z":{},"a":{}}}}},"stream":true,"stream_options":{"include_usage":true},'
        b'"temperature":0,"tool_choice":"required","messages":[{"role":"system","content":"be kind"},'
        b'{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"view",'
        b'"description":"what view does","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}]}'
    ) == await sent_bytes(asked, compat=OPENAI)


@given(st.permutations([("temperature", 0.5), ("top_p", 1), ("metadata", {"b": 1, "a": 2}), ("seed", 4)]))
async def test_equal_requests_give_equal_bytes(options: list[tuple[str, object]]) -> None:
    """Whatever the order in which the options were set."""
    expected = (
        b'{"model":"m","metadata":{"a":2,"b":1},"seed":4,"temperature":0.5,"top_p":1,'
        b'"messages":[{"role":"user","content":"hi"}]}'
    )

    assert expected == body_of(request(options=dict(options)))


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        ("fs.read", {"type": "function", "function": {"name": wire_name("fs.read")}}),
    ],
)
async def test_the_tool_choice_is_sent_with_tools_only(choice: str, wire: object) -> None:
    """The default is not sent, and without tools there is nothing to choose."""
    tools = (tool("fs.read"),)
    options = {"parallel_tool_calls": False}

    assert wire == (await sent(request(tools=tools, tool_choice=choice))).get("tool_choice")
    if choice != "fs.read":
        assert {"model", "messages"} == (await sent(request(tool_choice=choice, options=options))).keys()


async def test_a_choice_of_no_tool_and_a_set_message_list_are_refused_unsent() -> None:
    """A caller's mistake costs nothing."""
    model = ChatCompletionsModel("m", base_url="http://127.0.0.1:1")
    for asked in (request(tool_choice="gone"), request(options={"messages": []}), request(timeout=0.0)):
        with pytest.raises(ModelError) as failure:
            await model.complete(asked)

        assert (False, False) == (failure.value.retryable and failure.value.kind != "timeout", failure.value.dispatched)


@pytest.mark.parametrize(
    ("compat", "tools", "schema_sent"),
    [
        (Compat(), (tool("view"),), True),
        (Compat(output="without_tools"), (), True),
        (Compat(output="without_tools"), (tool("view"),), False),
        (Compat(output="never"), (), False),
    ],
)
async def test_the_output_is_asked_for_by_schema_or_in_words(
    compat: Compat, tools: tuple[ToolSpec, ...], schema_sent: bool
) -> None:
    """A server that can't take a schema is told of it in the instruction."""
    body = await sent(request(output=OutputSpec("v", {"type": "object"}), tools=tools), compat=compat)

    assert schema_sent == ("response_format" in body)
    assert schema_sent == ('{"type":"object"}' not in json.dumps(body["messages"]).replace("\\", ""))


async def test_the_dialect_of_a_server_is_told_by_compat() -> None:
    """The role of the instruction, the limit's name, and what is left out."""
    compat = Compat(system_role="developer", max_tokens="max_new", stream_usage=False, strict_output=True)
    asked = request(instruction="x", options={"max_tokens": 5}, output=OutputSpec("v", {}), on_delta=lambda _: None)

    body = await sent(asked, compat=compat)

    assert {"role": "developer", "content": "x"} == body["messages"][0]  # type: ignore[index]
    assert (5, True, False) == (body["max_new"], body["stream"], "stream_options" in body)
    assert body["response_format"]["json_schema"]["strict"]  # type: ignore[index]


async def test_a_schema_is_sent_without_its_meta_schema_and_unchanged() -> None:
    """What is sent is a copy."""
    parameters = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}

    body = await sent(request(tools=(ToolSpec("f", "", parameters),)))

    assert {"type": "object", "properties": {}} == body["tools"][0]["function"]["parameters"]  # type: ignore[index]
    assert ["$schema", "type"] == [*parameters]


@pytest.mark.case("oac-20")
async def test_assistant_content_is_a_string_or_null() -> None:
    """Never a list, never an empty string."""
    call = ToolCall("c1", "f", "{}")

    messages = await sent_messages(
        UserMessage("go"),
        AssistantMessage((Text("a"), Text("b"))),
        AssistantMessage((call,)),
        ToolMessage("c1", "f", "ok"),
        AssistantMessage((Text("  \n"), call)),
        ToolMessage("c1", "f", (Text("o"), Text("k"))),
    )

    assert ["go", "ab", None, "ok", None, "ok"] == [message["content"] for message in messages]
    assert [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}] == messages[2]["tool_calls"]


@pytest.mark.case("oac-22")
async def test_reasoning_goes_back_to_servers_that_want_it() -> None:
    """Beside the calls, empty where there was none; and nowhere else."""
    stream = sse(
        chunk({"reasoning_content": "think"}),
        call_chunk(index=0, id="c1", name="f", arguments="{}"),
        chunk({}, "tool_calls"),
    )
    answer = (await hear(stream)).message
    history = (UserMessage("go"), answer, ToolMessage("c1", "f", "ok"), AssistantMessage("plain"))

    thinking = await sent_messages(*history, compat=Compat(reasoning="reasoning_content"))
    plain = await sent_messages(*history)

    assert ["think", ""] == [message["reasoning_content"] for message in thinking if message["role"] == "assistant"]
    assert [] == [message for message in plain if "reasoning_content" in message]


@pytest.mark.case("oac-23")
@pytest.mark.parametrize(
    ("called", "meant"),
    [
        ("view", "view"),
        ("functions.view", "view"),
        ("default_api:view", "view"),
        ("view<|channel|>analysis", "view"),
        ("functions.view:0", "view"),
        ("functions.fs.read", "fs.read"),
        ("fs.read", "fs.read"),
        (wire_name("fs.read"), "fs.read"),
        ("other", "other"),
        ("functions.a.view", "functions.a.view"),
        ("viewer", "viewer"),
    ],
)
async def test_a_decorated_name_is_understood_if_it_is_clear(called: str, meant: str) -> None:
    """Two tools that it could mean leave it as it is, as does none."""
    tools = (tool("view"), tool("fs.read"), tool("a.view"))
    stream = sse(call_chunk(index=0, id="c1", name=called, arguments="{}"), chunk({}, "stop"))

    heard = await hear(stream, request(tools=tools))

    assert meant == heard.message.calls[0].name
    assert {(0, meant): "{}"} == heard.told


@pytest.mark.case("nam-02")
async def test_names_that_no_provider_takes_go_out_and_come_back() -> None:
    """Each has a wire name of its own, the same in tools, choice and history."""
    names = ["fs.read", "fs/read", "fs read", "x" * 80, "plain", ""]
    wires = [wire_name(name) for name in names]
    stream = sse(call_chunk(index=0, id="c1", name=wires[1], arguments="{}"), chunk({}, "stop"))

    heard = await hear(stream, request(tools=tuple(map(tool, names))))
    history = await sent_messages(UserMessage("go"), heard.message, ToolMessage("c1", "fs/read", "ok"))

    assert len(names) == len(set(wires))
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", wire) for wire in wires)
    assert "plain" == wires[4]
    assert "fs/read" == heard.message.calls[0].name
    assert wires[1] == history[1]["tool_calls"][0]["function"]["name"]  # type: ignore[index]


async def test_two_tools_with_one_wire_name_are_refused() -> None:
    """A name can be made to look like another's wire name."""
    with pytest.raises(ModelError, match=r"fs\.read") as failure:
        await ChatCompletionsModel("m").complete(request(tools=(tool("fs.read"), tool(wire_name("fs.read")))))

    assert ("invalid_request", False) == (failure.value.kind, failure.value.dispatched)


@pytest.mark.case("arg-06")
@pytest.mark.parametrize(
    ("raw", "sent_text"),
    [
        ('{"q": "x" }', '{"q": "x" }'),
        ("", "{}"),
        ("null", "{}"),
        ('{"q": [4]</parameter>', '{"_invalid_json":"{\\"q\\": [4]</parameter>"}'),
        ("[1]", '{"_invalid_json":"[1]"}'),
        ('{"n": NaN}', '{"_invalid_json":"{\\"n\\": NaN}"}'),
        ('{"s":"\\ud800"}', '{"s":"\ufffd"}'),
        ('{"s":{"t":"\\udc00"}}', '{"s":{"t":"\ufffd"}}'),
    ],
)
async def test_arguments_go_back_as_written_if_they_can(raw: str, sent_text: str) -> None:
    """Text that is no object is wrapped in one, so that the next request is valid whatever the model wrote."""
    messages = await sent_messages(AssistantMessage((ToolCall("c1", "f", raw),)), ToolMessage("c1", "f", "no"))

    assert sent_text == messages[0]["tool_calls"][0]["function"]["arguments"]  # type: ignore[index]


@pytest.mark.case("arg-06")
@given(st.text())
async def test_arguments_that_go_back_are_always_an_object(raw: str) -> None:
    """Whatever the model wrote."""
    asked = request(AssistantMessage((ToolCall("c1", "f", raw),)))

    body = json.loads(body_of(asked))

    assert isinstance(json.loads(body["messages"][0]["tool_calls"][0]["function"]["arguments"]), dict)


@pytest.mark.case("arg-09")
async def test_lone_surrogates_are_replaced() -> None:
    """In whatever a request holds."""
    lone = "ok \ud83d end"
    asked = request(
        UserMessage(lone),
        AssistantMessage((Text(lone), ToolCall(lone, lone, f'{{"s":"{lone}"}}'))),
        ToolMessage(lone, lone, lone),
        instruction=lone,
        tools=(ToolSpec(lone, lone, {"type": "object", "description": lone}),),
        options={"user": lone, lone: 1},
    )

    body = json.loads((await sent_bytes(asked)).decode())

    assert ["ok \ufffd end"] * 4 == [message["content"] for message in body["messages"]]
    assert '{"s":"ok \ufffd end"}' == body["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert body["messages"][2]["tool_calls"][0]["id"] == body["messages"][3]["tool_call_id"]


@pytest.mark.promise("I-01")
async def test_images_travel_in_prompts_and_after_results() -> None:
    """Those of tools follow in one message when all results of the batch are there."""
    picture, link = Image("image/png", data="QUJD"), Image("image/png", url="https://example.org/a.png")
    calls = (ToolCall("c1", "shot", "{}"), ToolCall("c2", "shot", "{}"))
    history = (
        UserMessage((Text("look"), picture, Text(" "))),
        AssistantMessage(calls),
        ToolMessage("c1", "shot", (Text("first"), picture)),
        ToolMessage("c2", "shot", (link,)),
        UserMessage("so?"),
    )
    wire_picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    wire_link = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}

    seeing = await sent_messages(*history)
    blind = await sent_messages(*history, modalities=["text"])

    assert [
        [{"type": "text", "text": "look"}, wire_picture],
        None,
        "first",
        "(see attached image)",
        [wire_picture, wire_link],
        "so?",
    ] == [message["content"] for message in seeing]
    unseen = "(an image that this model cannot see)"
    assert [f"look{unseen} ", None, f"first{unseen}", unseen, "so?"] == [message["content"] for message in blind]


@pytest.mark.promise("P-16", "I-01")
async def test_files_travel_in_prompts_and_after_results() -> None:
    """As data with a name, or by the server's own id; text as text, and what lies elsewhere in words."""
    pdf, mine = File("application/pdf", data="QUJD", name="a.pdf"), File("application/pdf", id="file-1", name="a.pdf")
    note, link = File("text/plain", data="aGk=", name="n.txt"), File("application/pdf", url="https://example.org/a")
    calls = AssistantMessage((ToolCall("c1", "scan", "{}"), ToolCall("c2", "scan", "{}")))
    history = (
        UserMessage((Text("read"), pdf, note, link)),
        calls,
        ToolMessage("c1", "scan", (Text("first"), mine)),
        ToolMessage("c2", "scan", (File("application/pdf", data="QUJD"), Image("image/png", data="QQ=="))),
    )

    messages = await sent_messages(*history)

    assert [
        {"type": "text", "text": "read"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
        {"type": "text", "text": "\nThe file n.txt:\nhi\n"},
        {"type": "text", "text": "(the file https://example.org/a, which this model cannot read)"},
    ] == messages[0]["content"]
    assert ["first", "(see attached file and image)"] == [message["content"] for message in messages[2:4]]
    assert [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
    ] == messages[4]["content"]


async def test_openai_itself_takes_pdf_and_other_servers_what_they_like() -> None:
    """Where it would be refused, words stand for it."""
    book = UserMessage((File("application/epub+zip", data="QUJD", name="b.epub"),))

    anybody, openai = await sent_messages(book), await sent_messages(book, compat=OPENAI)

    assert "data:application/epub+zip;base64,QUJD" == anybody[0]["content"][0]["file"]["file_data"]  # type: ignore[index]
    assert "(the file b.epub, which this model cannot read)" == openai[0]["content"]


async def test_an_empty_result_says_so() -> None:
    """No provider likes empty content."""
    history = (UserMessage(" "), AssistantMessage((ToolCall("c1", "f", "{}"),)), ToolMessage("c1", "f", "\n"))

    messages = await sent_messages(*history)

    assert ["(empty message)", None, "(no tool output)"] == [message["content"] for message in messages]


@pytest.mark.case("his-01")
async def test_a_call_without_a_result_gets_a_neutral_one() -> None:
    """Right after its call, before what came next."""
    calls = (ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}"))

    messages = await sent_messages(
        UserMessage("go"), AssistantMessage(calls), ToolMessage("c1", "f", "one"), UserMessage("hello")
    )

    assert ["user", "assistant", "tool", "tool", "user"] == [message["role"] for message in messages]
    assert ["c1", "c2"] == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert "may or may not have run" in str(messages[3]["content"])


@pytest.mark.case("his-02")
async def test_a_result_without_its_call_is_left_out() -> None:
    """Providers refuse it."""
    messages = await sent_messages(ToolMessage("c1", "f", "sun"), AssistantMessage("sunny"), UserMessage("and?"))

    assert ["sunny", "and?"] == [message["content"] for message in messages]


@pytest.mark.case("his-03")
async def test_results_stand_in_the_order_of_their_calls_one_each() -> None:
    """The first of two results for one call wins."""
    calls = tuple(ToolCall(id, "f", "{}") for id in ("t1", "t2", "t3"))
    results = [ToolMessage(id, "f", text) for id, text in (("t3", "3"), ("t1", "1"), ("t2", "2"), ("t1", "again"))]

    messages = await sent_messages(AssistantMessage(calls), *results)

    assert ["1", "2", "3"] == [message["content"] for message in messages[1:]]


@pytest.mark.case("his-03")
async def test_a_long_history_is_no_deep_one() -> None:
    """1500 turns with tools are sent like any others."""
    history: list[Message] = []
    for turn in range(1500):
        history += [AssistantMessage((ToolCall(f"c{turn}", "f", "{}"),)), ToolMessage(f"c{turn}", "f", "ok")]

    assert 3000 == len(await sent_messages(*history))


async def test_one_id_for_two_calls_of_a_message_is_told_apart() -> None:
    """By the place of the call, in the call and in its result."""
    calls = (ToolCall("x", "f", "{}"), ToolCall("x", "g", "{}"))

    messages = await sent_messages(AssistantMessage(calls), ToolMessage("x", "f", "1"), ToolMessage("x", "g", "2"))

    assert ["x", "x_1"] == [call["id"] for call in messages[0]["tool_calls"]]  # type: ignore[attr-defined]
    assert [("x", "1"), ("x_1", "2")] == [(message["tool_call_id"], message["content"]) for message in messages[1:]]


async def test_an_id_of_another_provider_is_made_to_fit() -> None:
    """Call and result stay together."""
    long = "call_1|fc_" + "0" * 60

    messages = await sent_messages(AssistantMessage((ToolCall(long, "f", "{}"),)), ToolMessage(long, "f", "ok"))

    assert messages[0]["tool_calls"][0]["id"] == messages[1]["tool_call_id"]  # type: ignore[index]
    assert len(str(messages[1]["tool_call_id"])) <= 40


@pytest.mark.case("his-05", "his-07", "his-10")
async def test_an_assistant_message_with_nothing_to_send_is_left_out() -> None:
    """Reasoning alone, blank text and no parts are no message; a refusal is text."""
    messages = await sent_messages(
        UserMessage("a"),
        AssistantMessage((Reasoning("x"),)),
        AssistantMessage(""),
        AssistantMessage((Refusal("I will not"),)),
        UserMessage("b"),
    )

    assert ["a", "I will not", "b"] == [message["content"] for message in messages]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Any sequence of messages, most of them in no order that a provider takes."""
    ids = st.sampled_from(["a", "b", "", "c" * 50])
    part = st.one_of(
        st.sampled_from(["", " ", "x"]).map(Text),
        st.just(Image("image/png", data="QQ==")),
        st.just(File("application/pdf", data="QQ==")),
        st.just(Reasoning("r")),
        st.just(Refusal("no")),
    )
    call = st.builds(ToolCall, ids, st.just("f"), st.sampled_from(["{}", "", "{", "3"]))
    message = st.one_of(
        st.builds(UserMessage, st.lists(part, max_size=2)),
        st.builds(AssistantMessage, st.lists(part | call, max_size=4)),
        st.builds(ToolMessage, ids, st.just("f"), st.lists(part, max_size=2)),
    )
    return draw(st.lists(message, max_size=8))


@pytest.mark.case("his-01", "his-02", "his-03", "his-07")
@given(histories(), st.booleans())
async def test_every_history_is_sent_in_a_valid_form(history: list[Message], images: bool) -> None:
    """Calls and results paired and in order with distinct ids, nothing empty."""
    modalities = None if images else ["text"]
    messages = json.loads(body_of(request(*history), modalities=modalities))["messages"] if history else []

    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert open_calls.pop(0) == message["tool_call_id"]
        else:
            assert [] == open_calls
        if message["role"] == "assistant":
            calls = message.get("tool_calls", [])
            open_calls = [call["id"] for call in calls]
            assert len(open_calls) == len(set(open_calls))
            assert message["content"] is None if not (message["content"] or "").strip() else True
            assert message["content"] or calls
        else:
            content = message["content"]
            assert content.strip() if isinstance(content, str) else content
    assert [] == open_calls


async def test_a_message_is_encoded_once_and_forgotten_with_its_run() -> None:
    """The body of a later turn holds the very bytes of the earlier ones, and nothing outlives the messages."""
    model = ChatCompletionsModel("m")
    transcript = Transcript([UserMessage("hi")])
    for turn in range(20):
        transcript = transcript.append(AssistantMessage((ToolCall(f"c{turn}", "f", "{}"),)))
        transcript = transcript.append(ToolMessage(f"c{turn}", "f", "ok"))
    first = model._body(request(*transcript), model._encoded, stream=False)
    encoded = len(model._native)

    again = model._body(request(*transcript.append(UserMessage("more"))), model._encoded, stream=False)

    assert 41 == encoded
    assert again.startswith(first.removesuffix(b"]}"))
    del transcript
    gc.collect()
    assert 0 == len(model._native)
