"""Never run, only checked: an editor knows what the code of a composed agent is given and gives."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TypedDict, assert_never, assert_type

from attrs import frozen

from turnwright.harness import (
    AgentEvent,
    Attempt,
    ComposedAgent,
    Deny,
    GuardedCall,
    Retry,
    RewriteInput,
    RewriteText,
    Session,
    StepContext,
    TurnContext,
    Verdict,
    Workflow,
    WorkflowResult,
    create_agent,
    define_guardrail,
    define_resource,
    define_tool,
    define_workflow,
    prompt_layer,
    reduce,
    script_client,
    step,
)


class Services(TypedDict):
    """What the agent may use."""

    store: list[str]


@frozen
class Intent:
    """What a workflow is about."""

    words: str


@frozen
class Place:
    """Where to look."""

    city: str


# --- steps know their input, their services and each other's results


async def compose(context: StepContext[Intent, Services]) -> int:
    """Compose."""
    assert_type(context.input, Intent)
    assert_type(context.services, Services)
    assert_type(context.feedback, Verdict | None)
    return len(context.input.words) + context.round


def again(context: StepContext[Intent, Services]) -> int:
    """Compose plainly."""
    return len(context.services["store"])


def enough(result: int) -> Verdict:
    """Judge."""
    return Verdict(result > 3)


async def enough_async(result: int, context: StepContext[Intent, Services]) -> bool:
    """Judge with the context."""
    return result > len(context.input.words)


def about_text(result: str) -> bool:
    """Judge text."""
    return bool(result)


ladder = define_workflow(
    "generate",
    [
        step("compose", run=compose, until=enough, retry=Retry(2)),
        step("again", run=again, until=enough_async, when=lambda context: context.round == 1),
        step("last", run=again),
    ],
    exit_gate=enough_async,
)
assert_type(ladder, Workflow[Intent, Services, int])
step("wrong", run=again, until=about_text)  # type: ignore[misc]


# --- tools, resources, guardrails and layers


async def look(place: Place, context: TurnContext[Services]) -> str:
    """Look."""
    assert_type(context.services, Services)
    context.remember({"city": place.city})
    return place.city


def plain(arguments: Mapping[str, object]) -> object:
    """Look plainly."""
    return arguments["city"]


def guard(call: GuardedCall, context: TurnContext[Services]) -> Deny | RewriteInput | None:
    """Guard."""
    return Deny(context.services["store"][0]) if call.input else None


define_tool(name="look", description="Look.", input_schema=Intent, execute=look)  # type: ignore[arg-type]

agent = create_agent(
    model=script_client(["hi", {"text": "a", "tool_use": [{"name": "look", "input": {}}]}]),
    prompt=[prompt_layer("who", "You.", cache=True), prompt_layer("clock", lambda: "now")],
    tools=[
        define_tool(name="look", description="Look.", input_schema=Place, execute=look),
        define_tool(name="plain", description="Look.", execute=plain),
    ],
    workflows=[ladder],
    resources=[define_resource(name="doc", mode="attach", get=lambda: "text")],
    guardrails=[
        define_guardrail(name="guard", tool_call=guard),
        define_guardrail(name="out", output=lambda text: RewriteText(text) if text else None),
    ],
    services=Services(store=[]),
)
assert_type(agent, ComposedAgent[Services])


def render(event: AgentEvent) -> str:
    """An event is taken apart completely."""
    match event.type:
        case "message" | "text" | "thinking":
            return event.text
        case "tool_input_delta":
            return event.snapshot
        case "tool_use" | "tool_result":
            return event.name
        case "step" | "progress" | "surface" | "guardrail" | "trace" | "memory":
            return ""
        case "done":
            return event.stop_reason
        case "error":
            return event.error
        case _:
            assert_never(event)


async def use(session: Session, text: Awaitable[str]) -> None:
    """The results of a workflow have the type of its steps."""
    async for event in agent.send(session, await text, services=Services(store=["x"])):
        session = reduce(session, event)
    result = await agent.run(session, ladder, Intent("hi"))
    assert_type(result, WorkflowResult[int])
    assert_type(result.result, int | None)
    assert_type(result.attempts, tuple[Attempt[int], ...])
    assert_type(await agent.run(session, "generate", {"words": "hi"}), WorkflowResult[object])
    await agent.run(session, ladder, "hi")  # type: ignore[misc]
    session.memory = {}  # type: ignore[misc]
