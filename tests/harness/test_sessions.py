"""A session is a JSON value, and `reduce` is its only writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import date
from typing import get_args, get_type_hints

import pytest
from hypothesis import given, strategies as st

from tests.harness.playing import heard, of, play, shown
from turnwright.errors import InvalidValue
from turnwright.harness import (
    AgentEvent,
    DoneEvent,
    ErrorEvent,
    GuardrailEvent,
    MessageEvent,
    ProgressEvent,
    Session,
    StepEvent,
    SurfaceEvent,
    TextEvent,
    ThinkingEvent,
    ToolInputDeltaEvent,
    ToolResultEvent,
    ToolUseEvent,
    TraceEvent,
    TraceRecord,
    TurnContext,
    create_agent,
    define_tool,
    prompt_layer,
    reduce,
    remember,
    script_client,
)
from turnwright.harness.events import Said
from turnwright.harness.session import Draft
from turnwright.messages import AssistantMessage, ToolMessage, UserMessage
from turnwright.testing.strategies import files, images

TEXTS = st.text(max_size=8)
HALVED = st.text(st.sampled_from("a\ud800\udc00"), max_size=3)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
IDS = st.sampled_from(["a", "b"])
CHANGING = st.one_of(
    st.builds(MessageEvent, st.just("user"), TEXTS),
    st.builds(lambda text: TextEvent(text, text), TEXTS),
    st.builds(ToolUseEvent, IDS, IDS, st.dictionaries(TEXTS, JSONS, max_size=2)),
    st.builds(ToolResultEvent, IDS, IDS, TEXTS, st.booleans(), st.lists(images() | files(), max_size=1)),
    st.builds(remember, st.dictionaries(TEXTS, JSONS, max_size=2)),
    st.builds(DoneEvent, TEXTS),
)
RENDERED = [
    ThinkingEvent("hm"),
    ToolInputDeltaEvent("1.0", "look", "{", "{"),
    StepEvent("generate", "zettel"),
    ProgressEvent("sent"),
    SurfaceEvent("s1", "{}"),
    GuardrailEvent("g", "output", "deny"),
    TraceEvent(TraceRecord("prompt", "prompt", 0.0)),
    ErrorEvent("no"),
]


@pytest.mark.promise("A-10")
@given(st.lists(CHANGING, max_size=12))
def test_a_session_survives_json_at_any_moment(events: list[AgentEvent]) -> None:
    """After any events, a session is JSON, and what is read back is the same session, which goes on the same way."""
    session = Session("s")
    for event in events:
        read = Session.from_json(json.dumps(session.to_json()))
        assert session == read == Session.from_json(session.to_json())
        assert reduce(session, event) == reduce(read, event)
        session = reduce(session, event)


@pytest.mark.promise("A-10")
@given(st.lists(CHANGING | st.builds(lambda text: TextEvent(text, text), HALVED), max_size=6))
def test_a_session_is_text_at_any_moment(events: list[AgentEvent]) -> None:
    """Also where a model said half a character: what is written is read, and what was read is written the same."""
    session = Session("s")
    for event in events:
        session = reduce(session, event)
        written = session.to_json()

        assert written == Session.from_json(json.dumps(written)).to_json()


@pytest.mark.promise("A-10")
async def test_a_turn_that_was_cut_between_two_results_leaves_no_call_without_one() -> None:
    """No provider takes such a conversation: whoever says something else would never be heard again."""
    model = script_client([{"tool_use": [{"id": "c1", "name": "a"}, {"id": "c2", "name": "pay"}]}, "As you say."])
    tools = [
        define_tool(name="a", description="A.", execute=lambda _: "done"),
        define_tool(name="pay", description="Pay.", execute=lambda _: "paid", approval="required"),
    ]
    session = await play(create_agent(model=model, tools=tools), "pay", "no, wait")

    unknown = "the turn was cut before this call had a result; what became of it is unknown"
    asked = [ToolMessage("c1", "a", "done"), ToolMessage("c2", "pay", unknown, is_error=True), UserMessage("no, wait")]
    assert asked == [*model.calls[1].messages[2:]]
    assert asked == [*session.messages[2:5]]


@pytest.mark.promise("A-10")
@given(st.lists(CHANGING, min_size=1, max_size=8))
def test_reduce_is_pure(events: list[AgentEvent]) -> None:
    """A session that was reduced is as it was, so each prefix can be reduced again to the same end."""
    sessions = [Session("s")]
    for event in events:
        sessions.append(reduce(sessions[-1], event))
    written = [deepcopy(each.to_json()) for each in sessions]

    assert sessions[1:] == [reduce(each, event) for each, event in zip(sessions, events, strict=False)]
    assert written == [each.to_json() for each in sessions]


@pytest.mark.promise("A-10")
@pytest.mark.parametrize("event", RENDERED, ids=lambda event: event.type)
def test_what_is_for_rendering_changes_nothing(event: AgentEvent) -> None:
    """The very same session comes back."""
    session = Session("s", [UserMessage("hi")], {"a": 1})

    assert session is reduce(session, event)


@pytest.mark.promise("A-11")
def test_the_union_is_closed_and_each_member_names_itself() -> None:
    """The fourteen kinds, by the words that a wire would use."""
    kinds = [get_args(get_type_hints(each)["type"])[0] for each in get_args(AgentEvent)]

    words = "message text thinking tool_input_delta tool_use tool_result step progress surface guardrail trace memory"
    assert [*words.split(), "done", "error"] == kinds


@pytest.mark.promise("A-01", "A-10", "A-11", "A-17")
async def test_a_turn_with_a_tool_becomes_a_session() -> None:
    """What was said, called, given and answered is in the session, in this order, and the next turn's model sees it."""
    model = script_client(
        [{"text": "Let me look.", "tool_use": [{"id": "c1", "name": "look", "input": {"q": "Oslo"}}]}, "Rain.", "Bye."],
        chunk=3,
    )
    agent = create_agent(model=model, tools=[define_tool(name="look", description="Look.", execute=lambda _: "wet")])

    session = await play(agent, "weather in Oslo?", "thanks")

    said = ["weather in Oslo?", "Let me look.", "wet", "Rain.", "thanks", "Bye."]
    assert said == [each.text for each in session.messages]
    assert said[:-1] == [each.text for each in model.calls[2].messages]
    assert '{"q":"Oslo"}' == session.messages[1].calls[0].arguments  # type: ignore[union-attr]
    assert ToolMessage("c1", "look", "wet") == session.messages[2]


@pytest.mark.promise("A-11", "A-12", "A-18")
async def test_the_events_of_a_turn_in_order() -> None:
    """Text and arguments grow piece by piece; a call is told whole before it runs; the end is `done`."""
    turn = {"text": "ok", "tool_use": [{"id": "c1", "name": "look", "input": {"q": 1}}]}
    model = script_client([turn, "wet"], chunk=4)
    agent = create_agent(model=model, tools=[define_tool(name="look", description="Look.", execute=lambda _: "r")])

    events = await heard(agent)

    told = [f"{each.type} {each.stage}" if isinstance(each, ProgressEvent) else each.type for each in events]
    pieces = ["tool_input_delta"] * 2
    assert told == [
        *("message", "progress sent", "text", *pieces, "tool_use", "progress tool", "tool_result"),
        *("progress retry", "progress sent", "text", "progress done", "done"),
    ]
    assert ['{"q"', '{"q":1}'] == [each.snapshot for each in of(events, ToolInputDeltaEvent)]
    assert ["1.0"] == [each.place for each in of(events, ToolUseEvent)]


@pytest.mark.promise("A-01")
async def test_a_turn_that_does_not_stop_calling_ends_at_its_rounds() -> None:
    """After so many rounds the turn is over, with a stop reason of its own and no text."""
    turn = {"tool_use": [{"name": "look"}]}
    agent = create_agent(
        model=script_client([turn] * 9),
        tools=[define_tool(name="look", description="Look.", execute=lambda: "r")],
        max_tool_rounds=2,
    )

    events = await heard(agent)

    assert 2 == len(of(events, ToolResultEvent))
    assert ("", "max_tool_rounds") == (events[-1].text, events[-1].stop_reason)  # type: ignore[union-attr]


async def test_an_answer_that_was_cut_is_no_part_of_the_session() -> None:
    """A model that fails tells an error; the next turn does not see what it never finished."""
    agent = create_agent(model=script_client([RuntimeError("down"), "fine"]))

    first = await heard(agent)

    assert ["message", "progress", "error"] == [each.type for each in first]
    assert "down" in first[-1].error  # type: ignore[union-attr]
    session = reduce(Session("s", draft=Draft(Said(["half"], 1))), MessageEvent("user", "again"))
    assert [UserMessage("again")] == session.messages and Draft() == session.draft


async def test_the_stop_reason_is_the_providers_own() -> None:
    """It passes through as the provider wrote it, also when the answer is empty or was cut at its length."""
    agent = create_agent(
        model=script_client([{"text": "a", "stop_reason": "end_turn"}, AssistantMessage("", "length")])
    )

    ends = [(await heard(agent))[-1] for _ in range(2)]

    assert ["end_turn", "length"] == [each.stop_reason for each in ends if isinstance(each, DoneEvent)]


# --- memory

KEPT = ("memory", "tool_result")


@pytest.mark.promise("A-09")
def test_memory_is_merged_and_none_forgets() -> None:
    """A patch wins key by key; None takes the key away."""
    session = reduce(Session("s"), remember({"patient": "p7", "tone": "brief"}))

    assert {"patient": "p7", "tone": "brief"} == session.memory
    assert {"patient": "p7"} == reduce(session, remember({"tone": None})).memory


@pytest.mark.promise("A-09")
@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"when": date(2026, 1, 1)}, "when"),
        ({"a": {"b": [1, (2,)]}}, "a.b[1]"),
        ({"f": len}, "f"),
        ({"n": float("nan")}, "n"),
        ({"k": {1: 2}}, "k"),
        ({"s": {"x"}}, "s"),
        ({"half": ["\ud800"]}, "half[0]"),
        ({"keys": {"\udc00": 1}}, "keys"),
        ({"large": 10**40}, "large"),
        ([1], ""),
    ],
)
def test_what_json_would_not_give_back_is_refused_at_the_write(patch: dict[str, object], path: str) -> None:
    """The error names the path to it."""
    with pytest.raises(InvalidValue) as caught:
        remember(patch)

    assert path == caught.value.issues[0].path


@pytest.mark.promise("A-09")
@given(st.dictionaries(TEXTS, JSONS, max_size=3))
def test_memory_shares_nothing_with_who_asked(patch: dict[str, object]) -> None:
    """Changing a patch afterwards changes no session."""
    session = reduce(Session("s"), remember(patch))
    kept = {key: value for key, value in deepcopy(patch).items() if value is not None}
    patch.clear()

    assert kept == session.memory == Session.from_json(session.to_json()).memory


@pytest.mark.promise("A-09")
async def test_a_tool_asks_and_is_told_after_its_result() -> None:
    """What each tool asked for comes right after that tool's result, and nothing that was asked for is dropped."""

    def keep(arguments: Mapping[str, object], context: TurnContext) -> str:
        context.remember({"last": arguments["n"]})
        return "kept"

    calls = [{"id": f"c{n}", "name": "keep", "input": {"n": n}} for n in (1, 2)]
    agent = create_agent(
        model=script_client([{"tool_use": calls}, "ok"]),
        tools=[define_tool(name="keep", description="Keep.", execute=keep)],
        prompt=[prompt_layer("p", lambda context: context.remember({"seen": True}) or "p")],
    )

    events = await heard(agent)

    told = [event.patch if event.type == "memory" else event.id for event in events if event.type in KEPT]
    assert ["c1", {"last": 1}, {"seen": True}, "c2", {"last": 2}] == told
    assert "ok" == shown(events)
