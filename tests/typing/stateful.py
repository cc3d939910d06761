"""Never run, only checked: an editor infers what an agent's hooks and listeners are given, and refuses what is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from turnwright import Block, Rewrite, ToolOutput, tool
from turnwright.agent import (
    Agent,
    AgentEvents,
    NextTurn,
    Queued,
    Receipt,
    Signal,
    ToolCallContext,
    TurnContext,
    agent_loop,
    run_agent_loop,
)
from turnwright.deltas import TextDelta
from turnwright.lifecycle import AgentEnd, LifecycleEvent, MessageUpdate, ToolExecutionEnd, TurnEnd
from turnwright.messages import AssistantMessage, File, Image, Message, ToolCall, ToolMessage, UserMessage
from turnwright.outcomes import Outcome
from turnwright.testing import ScriptedModel, text


@tool
async def look(at: str) -> str:
    """Look."""
    return at


# --- hooks, plain or async


async def before(context: ToolCallContext, signal: Signal) -> Block | Rewrite | None:
    """Look at a call."""
    assert_type(context.call, ToolCall)
    assert_type(context.message, AssistantMessage)
    return Block("no") if signal.is_set() else None


def after(context: ToolCallContext, output: ToolOutput, signal: Signal) -> ToolOutput | None:
    """Look at a result."""
    return ToolOutput(output.content, terminate=True) if context.call.name == "look" else None


def stop(context: TurnContext, signal: Signal) -> bool:
    """Say whether to stop."""
    assert_type(context.message, AssistantMessage | None)
    assert_type(context.tool_results, tuple[ToolMessage, ...])
    return False


async def prepare(context: TurnContext, signal: Signal) -> NextTurn | None:
    """Prepare the next turn."""
    return NextTurn(thinking_level="high", messages=context.messages)


def transform(messages: Sequence[Message], signal: Signal) -> Sequence[Message]:
    """Choose what is sent."""
    return messages[-10:]


def wrong_stop(context: str, signal: Signal) -> bool:
    """Take what no hook is given."""
    return False


def listen(event: LifecycleEvent, signal: Signal) -> None:
    """Take an event."""
    match event:
        case MessageUpdate(delta=TextDelta(text=piece)):
            assert_type(piece, str)
        case ToolExecutionEnd(result=result):
            assert_type(result, ToolMessage | None)
        case TurnEnd(message=message, results=results):
            assert_type(message, AssistantMessage | None)
            assert_type(results, tuple[ToolMessage, ...])
        case AgentEnd(messages=messages):
            assert_type(messages, tuple[Message, ...])
        case _:
            assert_type(event.seq, int)


def wrong_listener(event: str) -> None:
    """Take what no listener is given."""


async def use() -> None:
    """Use an agent."""
    agent = Agent(
        ScriptedModel([text("hi")]),
        tools=[look],
        before_tool_call=before,
        after_tool_call=after,
        should_stop_after_turn=stop,
        should_stop_before_turn=lambda: False,
        prepare_next_turn=prepare,
        transform_context=transform,
        get_api_key=lambda provider: provider.upper(),
        get_continuation_messages=lambda context, _: [UserMessage("go on")] if context.new_messages else [],
    )
    Agent(ScriptedModel([]), should_stop_after_turn=wrong_stop)  # type: ignore[arg-type]
    Agent(ScriptedModel([]), steering_mode="some")  # type: ignore[arg-type]

    unsubscribe = agent.subscribe(listen)
    agent.subscribe(wrong_listener)  # type: ignore[arg-type]
    unsubscribe()

    assert_type(await agent.prompt("hello"), Outcome[str])
    assert_type(agent.steer("hurry"), Receipt)
    await agent.follow_up([UserMessage("a"), UserMessage("b")])
    assert_type(agent.queued, tuple[Queued, ...])
    assert_type(agent.state.messages, list[Message])
    assert_type(agent.state.streaming_message, Message | None)
    await agent.prompt("read", [File("application/pdf", data="QQ=="), Image("image/png", url="x")])
    await agent.prompt("read", ["a.pdf"])  # type: ignore[list-item]
    await agent.prompt(3)  # type: ignore[arg-type]

    stream = agent_loop("go", model=ScriptedModel([]), tools=[look])
    assert_type(stream, AgentEvents)
    async for event in stream:
        assert_type(event, LifecycleEvent)
    assert_type(await stream.result(), tuple[Message, ...])
    await run_agent_loop("go", listen, model=ScriptedModel([]))
    agent_loop("go", model=ScriptedModel([]), tool="look")  # type: ignore[call-arg]
