"""The loop of an agent without its memory: events of one prompt, from a context that is the caller's and stays it.

    agent_loop, agent_loop_continue             a stream of events, which waits for nobody
    run_agent_loop, run_agent_loop_continue     an *emit* that is waited for

Rule: no second loop: each is an `Agent` of its own for one prompt. A stream always ends, and never changes the messages
that it was given.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypedDict, Unpack

from turnwright.agent.agent import Agent, Content, ToolExecution
from turnwright.agent.hooks import (
    AfterToolCall,
    BeforeToolCall,
    ConvertToLlm,
    GetApiKey,
    GetContinuationMessages,
    Listener,
    PrepareNextTurn,
    ShouldStopAfterTurn,
    ShouldStopBeforeTurn,
    Signal,
    TransformContext,
)
from turnwright.definition import Limits
from turnwright.errors import AgentError
from turnwright.lifecycle import LifecycleEvent, MessageUpdate
from turnwright.messages import AssistantMessage, Message
from turnwright.ports import Model
from turnwright.racing import end
from turnwright.tools import Tool
from turnwright.wiring import Ports

__all__ = [
    "AgentEvents",
    "LoopOptions",
    "agent_loop",
    "agent_loop_continue",
    "run_agent_loop",
    "run_agent_loop_continue",
]

BACKLOG: Final = 10_000
"""So many events may wait for a slow reader; beyond that, it misses pieces of answers and nothing else."""


class LoopOptions(TypedDict, total=False):
    """What a loop is given besides its context, as `Agent` takes it; *signal* aborts it."""

    signal: Signal | None
    system_prompt: str
    tools: Sequence[Tool[..., object] | Callable[..., object]]
    thinking_level: str
    thinking_budgets: Mapping[str, int] | None
    ports: Ports | None
    options: Mapping[str, object] | None
    convert_to_llm: ConvertToLlm | None
    transform_context: TransformContext | None
    get_api_key: GetApiKey | None
    before_tool_call: BeforeToolCall | None
    after_tool_call: AfterToolCall | None
    should_stop_after_turn: ShouldStopAfterTurn | None
    should_stop_before_turn: ShouldStopBeforeTurn | None
    prepare_next_turn: PrepareNextTurn | None
    get_continuation_messages: GetContinuationMessages | None
    tool_execution: ToolExecution
    limits: Limits | None
    max_turns: int


class AgentEvents(AsyncIterator[LifecycleEvent]):
    """The events of one loop, as they come.

    ::

        async with agent_loop("Where is my order?", model=model, messages=earlier) as events:
            async for event in events: ...
        new = await events.result()

    It works whether it is read or not, and ends after `agent_end`. *agent* is what works, to be steered and aborted.
    Leaving the block aborts what still goes on and waits for its end; so does `aclose`.
    """

    def __init__(self, agent: Agent, prompts: Content | None, signal: Signal | None) -> None:
        self.agent = agent
        self._waiting: deque[LifecycleEvent] = deque()
        self._news = asyncio.Event()
        agent.subscribe(self._take)
        self._work = asyncio.get_running_loop().create_task(_run(agent, prompts, signal))
        self._work.add_done_callback(self._end)

    def _take(self, event: LifecycleEvent, _: Signal) -> None:
        if len(self._waiting) < BACKLOG or not isinstance(event, MessageUpdate):
            self._waiting.append(event)
            self._news.set()

    def _end(self, work: asyncio.Task[tuple[Message, ...]]) -> None:
        if not work.cancelled():
            work.exception()  # for whoever asks for the result
        self._news.set()

    async def __anext__(self) -> LifecycleEvent:
        while not self._waiting:
            if self._work.done():
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    async def result(self) -> tuple[Message, ...]:
        """The messages that the loop added, prompts included, when it is over. Raises what the state port raised."""
        return await asyncio.shield(self._work)

    async def aclose(self) -> None:
        """Abort what goes on, and return when it is over. Harmless when repeated."""
        try:
            if not self._work.done():
                await asyncio.sleep(0)  # what has not begun cannot be aborted
        finally:
            self.agent.abort()
        await asyncio.wait([self._work])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def agent_loop(
    prompts: Content, *, model: Model, messages: Sequence[Message] = (), **options: Unpack[LoopOptions]
) -> AgentEvents:
    """Say *prompts* after *messages*, and work until there is nothing left to do. Call it inside a running loop."""
    return AgentEvents(_agent(model, messages, options), prompts, options.get("signal"))


def agent_loop_continue(*, model: Model, messages: Sequence[Message], **options: Unpack[LoopOptions]) -> AgentEvents:
    """Go on from *messages*. AgentError at once where there are none, or the last is an answer of the model."""
    _refuse_answered(messages)
    return AgentEvents(_agent(model, messages, options), None, options.get("signal"))


async def run_agent_loop(
    prompts: Content, emit: Listener, *, model: Model, messages: Sequence[Message] = (), **options: Unpack[LoopOptions]
) -> tuple[Message, ...]:
    """`agent_loop` that waits for *emit* at each event, and gives the messages that it added."""
    agent = _agent(model, messages, options)
    agent.subscribe(emit)
    return await _run(agent, prompts, options.get("signal"))


async def run_agent_loop_continue(
    emit: Listener, *, model: Model, messages: Sequence[Message], **options: Unpack[LoopOptions]
) -> tuple[Message, ...]:
    """`agent_loop_continue` that waits for *emit* at each event, and gives the messages that it added."""
    _refuse_answered(messages)
    agent = _agent(model, messages, options)
    agent.subscribe(emit)
    return await _run(agent, None, options.get("signal"))


def _agent(model: Model, messages: Sequence[Message], options: LoopOptions) -> Agent:
    own = {name: value for name, value in options.items() if name != "signal"}
    return Agent(model, messages=messages, **own)  # type: ignore[arg-type]


def _refuse_answered(messages: Sequence[Message]) -> None:
    if not messages or isinstance(messages[-1], AssistantMessage):
        what = "the last message is an answer" if messages else "there are no messages"
        raise AgentError("nothing-to-continue", f"{what}: use agent_loop with a prompt")


async def _run(agent: Agent, prompts: Content | None, signal: Signal | None) -> tuple[Message, ...]:
    """Work to the end, or to *signal*."""
    before = len(agent.state.messages)
    watching = [] if signal is None else [asyncio.ensure_future(_abort_on(signal, agent))]
    try:
        await (agent.continue_() if prompts is None else agent.prompt(prompts))
    finally:
        await end(watching, agent.patience)
    return tuple(agent.state.messages[before:])


async def _abort_on(signal: Signal, agent: Agent) -> None:
    await signal.wait()
    agent.abort()
