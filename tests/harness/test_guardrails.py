"""Guardrails: what they let pass, change and stop, and that nothing of what they stopped is left anywhere."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.playing import heard, of, play, shown
from turnwright import MemoryState
from turnwright.errors import DefinitionError
from turnwright.harness import (
    AgentEvent,
    ComposedAgent,
    Deny,
    DoneEvent,
    GuardedCall,
    Guardrail,
    GuardrailEvent,
    MemoryEvent,
    RewriteInput,
    RewriteText,
    Session,
    TextEvent,
    ToolResultEvent,
    TurnContext,
    create_agent,
    define_guardrail,
    define_tool,
    script_client,
)

CALL = {"text": "SECRET plan", "tool_use": [{"id": "c1", "name": "pay", "input": {"cents": 5}}]}


class Till:
    """A tool that remembers what it paid."""

    def __init__(self) -> None:
        self.paid: list[object] = []
        self.tool = define_tool(
            name="pay",
            description="Pay.",
            input_schema={"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]},
            execute=self.pay,
        )

    async def pay(self, arguments: dict[str, object]) -> str:
        """Pay."""
        self.paid.append(arguments["cents"])
        return f"paid {arguments['cents']}"


def agent_of(till: Till, *guardrails: Guardrail, **options: object) -> ComposedAgent:
    """An agent that pays once and says so."""
    model = script_client([CALL, "all paid"], chunk=3)
    return create_agent(model=model, tools=[till.tool], guardrails=guardrails, **options)  # type: ignore[arg-type]


@pytest.mark.promise("A-07", "A-03")
async def test_a_chain_rewrites_and_each_sees_what_the_one_before_made() -> None:
    """The last rewrite is what runs, and each is told as an event."""
    till = Till()

    def double(call: GuardedCall) -> RewriteInput:
        return RewriteInput({"cents": int(str(call.input["cents"])) * 2})

    twice = [define_guardrail(name=f"double{n}", tool_call=double) for n in (1, 2)]
    events = await heard(agent_of(till, *twice))

    assert [20] == till.paid
    told = [
        (each.name, each.target, each.action, each.tool_name, each.tool_use_id) for each in of(events, GuardrailEvent)
    ]
    assert [(f"double{n}", "tool_call", "rewrite", "pay", "c1") for n in (1, 2)] == told


@pytest.mark.promise("A-07")
@pytest.mark.case("gua-01")
async def test_the_first_denial_ends_the_chain_and_nothing_runs() -> None:
    """The model is told which guardrail said no and why, and goes on; a slow guardrail is waited for."""
    till, seen = Till(), []

    async def slow(call: GuardedCall, context: TurnContext) -> Deny:
        await asyncio.sleep(0)
        context.remember({"denied": call.name})
        return Deny("too much")

    guards = [define_guardrail(name="till", tool_call=slow), define_guardrail(name="never", tool_call=seen.append)]
    events = await heard(agent_of(till, *guards))

    (result,) = of(events, ToolResultEvent)
    assert result.is_error
    assert "denied by guardrail 'till': too much" == result.output
    assert ([], []) == (till.paid, seen)
    assert [{"denied": "pay"}] == [each.patch for each in of(events, MemoryEvent)]
    assert "all paid" == of(events, DoneEvent)[0].text


@pytest.mark.promise("A-07")
@pytest.mark.parametrize("verdict", [RewriteInput({"cents": "many"}), "yes", True], ids=str)
async def test_a_verdict_that_is_none_lets_nothing_pass(verdict: object) -> None:
    """Invalid arguments and other words refuse the call; nothing runs."""
    till = Till()

    events = await heard(agent_of(till, define_guardrail(name="odd", tool_call=lambda _: verdict)))  # type: ignore[arg-type]

    assert [] == till.paid
    assert of(events, ToolResultEvent)[0].is_error


@pytest.mark.promise("A-07")
async def test_the_hook_is_one_guardrail_ahead_of_the_others() -> None:
    """It sees the call first, and its denial is the last word."""
    order: list[str] = []
    late = define_guardrail(name="late", tool_call=lambda _: order.append("late"))

    def hook(_: GuardedCall) -> None:
        order.append("hook")

    await heard(agent_of(Till(), late, on_tool_call=hook))
    events = await heard(agent_of(Till(), late, on_tool_call=lambda _: Deny("no")))

    assert ["hook", "late"] == order
    assert ["on_tool_call"] == [each.name for each in of(events, GuardrailEvent)]


# --- answers


def saying(text: str, *guardrails: Guardrail, **options: object) -> ComposedAgent:
    """An agent that says *text*, in small pieces."""
    return create_agent(model=script_client([text], chunk=2), guardrails=guardrails, **options)  # type: ignore[arg-type]


def redacted(text: str) -> RewriteText | None:
    """Take the secret out."""
    return RewriteText(text.replace("SECRET", "[redacted]")) if "SECRET" in text else None


REDACT = define_guardrail(name="redact", output=redacted)
REFUSE = define_guardrail(name="refuse", output=lambda text: Deny("a secret") if "SECRET" in text else None)


@pytest.mark.promise("A-07")
async def test_a_rewritten_answer_replaces_what_was_shown() -> None:
    """An empty piece with a snapshot follows; `done`, the transcript and the viewer all have the new text."""
    agent = saying("my SECRET is out", REDACT)

    events = await heard(agent)

    assert TextEvent("", "my [redacted] is out") == of(events, TextEvent)[-1]
    assert "my [redacted] is out" == shown(events) == of(events, DoneEvent)[0].text
    assert ["redact output rewrite"] == [f"{e.name} {e.target} {e.action}" for e in of(events, GuardrailEvent)]


@pytest.mark.promise("A-07")
async def test_a_denied_answer_leaves_no_text() -> None:
    """The turn ends as `guardrail_denied`, the reason is in the event, and the session has the question alone."""
    events = await heard(saying("my SECRET is out", REFUSE, REDACT))

    assert TextEvent("", "") == of(events, TextEvent)[-1]
    assert ("", "guardrail_denied") == (events[-1].text, events[-1].stop_reason)  # type: ignore[union-attr]
    assert ["a secret"] == [each.reason for each in of(events, GuardrailEvent)]
    assert ["q"] == [each.text for each in (await play(saying("SECRET", REFUSE), "q")).messages]


@pytest.mark.promise("A-07")
@pytest.mark.case("gua-04", "gua-05")
@pytest.mark.parametrize("guardrail", [REDACT, REFUSE], ids=["rewrite", "deny"])
async def test_a_held_secret_is_nowhere(guardrail: Guardrail) -> None:
    """With the text held back, it is in no event, no session, no journal and no trace."""
    store, traced = MemoryState(), []
    agent = saying("my SECRET", guardrail, hold_text=True, state=store, trace=traced.append)

    events = await heard(agent)

    session = Session("s")
    done = events[-1]
    assert isinstance(done, DoneEvent)
    journal = [bytes(each.body) for each in await store.load(done.run_id)]
    assert "SECRET" not in repr((events, session, traced, journal))


@pytest.mark.promise("A-07")
async def test_held_text_that_passes_is_told_whole() -> None:
    """One piece, after the guardrails; without the option it comes piece by piece."""
    held = await heard(saying("all is well", REDACT, hold_text=True))
    streamed = await heard(saying("all is well", REDACT))

    assert ["all is well"] == [each.text for each in of(held, TextEvent)]
    assert 6 == len(of(streamed, TextEvent))


@pytest.mark.promise("A-07")
@pytest.mark.case("gua-02")
async def test_a_guardrail_that_fails_over_an_answer_raises() -> None:
    """What it raised comes out of the turn, and no answer does."""

    def broken(_: str) -> None:
        raise ValueError("broken")

    events: list[AgentEvent] = []
    with pytest.raises(ValueError, match="broken"):
        events += [
            event async for event in saying("hi", define_guardrail(name="b", output=broken)).send(Session("s"), "q")
        ]

    assert [] == of(events, DoneEvent)


@pytest.mark.promise("A-07")
@pytest.mark.case("gua-07")
async def test_an_answer_guardrail_sees_the_answer_of_each_turn() -> None:
    """The second turn's text too, whole; text beside calls is not its business."""
    seen: list[str] = []
    model = script_client([CALL, "first", "second"], chunk=1)
    agent = create_agent(
        model=model, tools=[Till().tool], guardrails=[define_guardrail(name="see", output=seen.append)]
    )

    await play(agent, "a", "b")

    assert ["first", "second"] == seen


def test_a_guardrail_looks_at_something() -> None:
    """One with neither is refused where it is declared."""
    with pytest.raises(DefinitionError, match="looks at nothing"):
        define_guardrail(name="idle")
