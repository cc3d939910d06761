"""`Agent`: a conversation that keeps its own transcript. Rule: it has no loop; each prompt is a run of the engine.

    prompt, continue_       open a run, or take the unfinished one up, and drive it to rest
    steer, follow_up        queue a message: the queue is the inbox of the runs
    abort                   the run's cancellation, and the word `cancel` in its inbox
    hooks                   guards, result guards, the boundary and the model port of the run
    subscribe               the run's listener; the agent itself listens first, and so knows its state

With a durable state port and a *session_id*, all of it survives the process: a new `Agent` of the same session finds
transcript, queues and the unfinished run where they were.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

from attrs import evolve as replace

from turnwright.agent.hooks import (
    AfterToolCall,
    BeforeToolCall,
    ConvertToLlm,
    GetApiKey,
    GetContinuationMessages,
    Listener,
    NextTurn,
    PrepareNextTurn,
    ShouldStopAfterTurn,
    ShouldStopBeforeTurn,
    Signal,
    ToolCallContext,
    TransformContext,
    TurnContext,
)
from turnwright.agent.queues import Queue, Queued, QueueKind, QueueMode
from turnwright.agent.session import RESET, Session
from turnwright.agent.state import AgentState
from turnwright.agent.voice import Voice
from turnwright.decide import standing
from turnwright.definition import AgentDefinition, Block, Boundary, CallView, Go, Limits, Rewrite, Stop, TurnView
from turnwright.deltas import Delta
from turnwright.errors import AgentError
from turnwright.facts import Fact, RunCancelled, RunCompleted, RunFailed
from turnwright.inbox import FollowUp, Steer, Withdraw
from turnwright.lifecycle import (
    Lifecycle,
    LifecycleEvent,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
)
from turnwright.memory import MemoryState
from turnwright.messages import AssistantMessage, File, Image, Message, Text, ToolMessage, UserMessage, flaw_of_parts
from turnwright.outcomes import Completed, Failed, Outcome, Pending, Suspended
from turnwright.ports import Decision, Model, State
from turnwright.racing import end, let_go
from turnwright.run import Answer, Opening, open_and_drive, refuse_running_loop, words_about_calls
from turnwright.state import fold
from turnwright.tools import DidNotHappen, Happened, Tool, ToolOutput, awaited
from turnwright.wiring import Ports

__all__ = ["Agent", "Receipt"]

MAX_TURNS: Final = 200
ToolExecution: TypeAlias = Literal["parallel", "sequential"]
Content: TypeAlias = str | UserMessage | Sequence[UserMessage]


class Receipt:
    """Something that was said. It counts from now on; awaiting the receipt waits until it also outlives the process."""

    def __init__(self, id: str, kept: Callable[[], Awaitable[None]]) -> None:
        self.id = id
        self._kept = kept

    def __await__(self) -> Generator[object, object, None]:
        return self._kept().__await__()


class Agent:
    """A stateful agent.

    ::

        agent = Agent(model=model, tools=[search], system_prompt="Be brief.")
        agent.subscribe(lambda event, signal: print(event.type))
        await agent.prompt("Where is my order?")
        agent.state.messages[-1].text

    *model* is a model port. *state* (with *session_id*) is where the conversation outlives the process; *ports* gives
    any other port. *definition* is what its runs are made of where nothing else is said: instruction and tools, guards,
    checks, limits and options. *max_turns* bounds one prompt. Hooks are attributes and may be changed between prompts;
    system prompt, model and thinking level are read before each request, tools at each prompt.

    Raises AgentError, with a code, for what cannot be asked of it now; DefinitionError for tools that cannot work.
    """

    def __init__(
        self,
        model: Model,
        *,
        system_prompt: str = "",
        tools: Sequence[Tool[..., object] | Callable[..., object]] = (),
        messages: Sequence[Message] = (),
        thinking_level: str = "off",
        thinking_budgets: Mapping[str, int] | None = None,
        state: State | None = None,
        session_id: str | None = None,
        ports: Ports | None = None,
        options: Mapping[str, object] | None = None,
        convert_to_llm: ConvertToLlm | None = None,
        transform_context: TransformContext | None = None,
        get_api_key: GetApiKey | None = None,
        before_tool_call: BeforeToolCall | None = None,
        after_tool_call: AfterToolCall | None = None,
        should_stop_after_turn: ShouldStopAfterTurn | None = None,
        should_stop_before_turn: ShouldStopBeforeTurn | None = None,
        prepare_next_turn: PrepareNextTurn | None = None,
        get_continuation_messages: GetContinuationMessages | None = None,
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        tool_execution: ToolExecution = "parallel",
        definition: AgentDefinition[str, str] | None = None,
        limits: Limits | None = None,
        max_turns: int = MAX_TURNS,
    ) -> None:
        _refuse_unsound(model, tool_execution, steering_mode, follow_up_mode)
        base = definition or AgentDefinition("agent", "", repairs=0, strict=False)
        prompt, tools = system_prompt or base.instruction, tools or base.tools
        self.state = AgentState(model, prompt, thinking_level, tools, messages)
        self.thinking_budgets = thinking_budgets
        self.options = dict(options or {})
        self.convert_to_llm = convert_to_llm
        self.transform_context = transform_context
        self.get_api_key = get_api_key
        self.before_tool_call = before_tool_call
        self.after_tool_call = after_tool_call
        self.should_stop_after_turn = should_stop_after_turn
        self.should_stop_before_turn = should_stop_before_turn
        self.prepare_next_turn = prepare_next_turn
        self.get_continuation_messages = get_continuation_messages
        self.tool_execution = tool_execution
        self.limits = limits or base.limits
        self._base = base
        self.max_turns = max_turns
        self._ports = replace(ports, model=model) if ports is not None else Ports(model, MemoryState(finished=1))
        if state is not None:
            self._ports = replace(self._ports, state=state)
        self.session_id = session_id or self._ports.ids.new_id()
        self._keeps = session_id is not None
        """Whether somebody may come back to this session, so that what is queued has to be kept."""
        self._session = Session(self.session_id, self._ports)
        self._queue = Queue()
        self._queue.modes = {"steer": steering_mode, "follow_up": follow_up_mode}
        self._voice = Voice(self)
        self._listeners: dict[Listener, None] = {}
        self._signal = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._deaf: set[Listener] = set()
        """The listeners that did not settle after the abort of this run."""
        self._idle: asyncio.Event | None = None
        """Set when the work that goes on has settled; None while there is none."""
        self._loaded = not self._keeps
        self._given = tuple(messages)
        self._unkept: list[Steer | FollowUp | Withdraw] = []
        self._keeping, self._loading = asyncio.Lock(), asyncio.Lock()
        self._open = ""
        """The run that is at rest and has not ended."""
        self._pending: tuple[Pending, ...] = ()
        self._given_up = self._unsure = self._is_silent = False
        """Whether somebody aborted the run that waits; nobody said how it stands; nobody hears of it while it ends."""
        self._since = 0
        """How many messages there were before the current run."""
        self._stopped_before = 0  # the turn before which a hook said stop: whoever goes on wants it
        self._compiled: tuple[object, AgentDefinition[str, str]] | None = None

    # --- saying something

    async def prompt(self, content: Content, images: Sequence[Image | File] = ()) -> Outcome[str]:
        """Say something, with *images* or files beside it, and work until there is nothing left to do.

        Returns how the last run stands: a failure of the model, of a hook or of a tool is told there, in
        `state.error_message` and in the transcript, and is not raised. Raises AgentError `busy` and `waiting`, and
        what the state port raises.
        """
        messages = _messages(content, images)
        return await self._work(messages)

    def prompt_sync(self, content: Content, images: Sequence[Image | File] = ()) -> Outcome[str]:
        """`prompt` for callers without an event loop. Raises RuntimeError inside a running one."""
        refuse_running_loop("prompt_sync", "agent.prompt")
        return asyncio.run(self.prompt(content, images))

    async def continue_(
        self,
        *,
        decisions: Mapping[str, str | Decision] | None = None,
        resolutions: Mapping[str, Happened | DidNotHappen] | None = None,
    ) -> Outcome[str]:
        """Go on without saying anything: with the unfinished run, else with what is queued, else with the transcript.

        *decisions* and *resolutions* are as in `resume_agent`. Raises AgentError `nothing-to-continue` where the last
        word was the agent's own and nothing is queued.
        """
        return await self._work(None, words_about_calls(decisions, resolutions))

    def steer(self, content: Content) -> Receipt:
        """Queue a message for the next turn boundary; several are delivered together. Legal at any time."""
        return self._enqueue("steer", content)

    def follow_up(self, content: Content) -> Receipt:
        """Queue a message for when the agent would otherwise stop; several are delivered together."""
        return self._enqueue("follow_up", content)

    @property
    def queued(self) -> tuple[Queued, ...]:
        """What waits to be delivered, the oldest first."""
        return self._queue.items

    def cancel_queued(self, *ids: str) -> list[Queued]:
        """Take items back that were not delivered yet; gives those that it took."""
        taken = self._queue.take_back(ids)
        for item in taken:
            self._keep(Withdraw(item.id))
        return taken

    def clear_queue(self, kind: QueueKind | None = None) -> list[Queued]:
        """Take back everything that waits, of one kind or of both."""
        return self.cancel_queued(*[item.id for item in self.queued if kind in (None, item.kind)])

    @property
    def steering_mode(self) -> QueueMode:
        """Whether one steering item is delivered at a time, or all; it counts from the next delivery on."""
        return self._queue.modes["steer"]

    @steering_mode.setter
    def steering_mode(self, mode: QueueMode) -> None:
        self._queue.modes["steer"] = mode

    @property
    def follow_up_mode(self) -> QueueMode:
        """As `steering_mode`, for follow-ups."""
        return self._queue.modes["follow_up"]

    @follow_up_mode.setter
    def follow_up_mode(self, mode: QueueMode) -> None:
        self._queue.modes["follow_up"] = mode

    # --- the run that goes on

    @property
    def signal(self) -> Signal:
        """The signal of the run that goes on, or of the last one."""
        return self._signal

    @property
    def pending(self) -> tuple[Pending, ...]:
        """What the last run waits for."""
        return self._pending

    def abort(self) -> None:
        """End what goes on, as soon as everything in it has ended or the grace is over; harmless when idle.

        What had come of the answer stays in the transcript, every call gets a result, and what is queued stays queued.
        A run that waits for somebody is ended by the next prompt instead of being refused.
        """
        if self._idle is None:
            self._given_up = bool(self._open)
            return
        self._queue.end("aborted")
        self._in_loop(self._signal.set)

    def _in_loop(self, act: Callable[[], object]) -> None:
        """Do *act* where the run works; a tool that is a plain function runs in a thread of its own."""
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        if inside:
            act()
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(act)

    async def wait_for_idle(self) -> None:
        """Return when nothing goes on any more and every listener has heard of it."""
        while self._idle is not None:
            await self._idle.wait()

    def reset(self) -> Receipt:
        """Forget transcript, queues and errors; keep everything else. Raises AgentError `busy`."""
        self._refuse_while_busy("reset")
        self._queue.take_back([item.id for item in self.queued])
        self.state.forget()
        self._open, self._pending = "", ()
        return self._keep(Steer(UserMessage((), kind=RESET), RESET))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have *listener* called with every event and the signal of its run, in order; returns how to stop it.

        The run waits for it. What it raises is reported to the event loop's exception handler and changes nothing.
        """
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    async def load(self) -> None:
        """Read what is new in the session from the state port; `prompt` and `continue_` do it by themselves.

        While the agent works, nothing is: the session is its own.
        """
        if self._idle is None:
            await self._load()

    async def _load(self) -> None:
        async with self._loading:  # whoever reads beside us would read the same, and say it twice
            await self._catch_up()
            if await self._is_behind():
                await self._read()

    async def _is_behind(self) -> bool:
        """Whether the state port may know more of the session than we do; what the open run waits for is known then."""
        was_unsure = self._unsure
        if was_unsure:
            self._look_what_waits(await self._session.facts(self._open) if self._open else ())
        if not self._loaded:
            return True
        if not self._keeps and (self._open or not was_unsure):
            return False  # nobody else knows of it; but where opening a run failed, it may be open
        return await self._session.is_behind(self._open, self._queue.length)

    async def _read(self) -> None:
        if self._open:  # what was read of it is not its end: read all anew
            self._session.runs = 0
            self.state.messages = self._given
            self._open = ""
        lifecycle = Lifecycle(self._reduce)
        facts: list[Fact] = []

        def begin(number: int) -> None:
            nonlocal lifecycle
            self._settle_run()
            lifecycle = Lifecycle(self._reduce)
            facts.clear()
            self._since = len(self.state.messages)
            self._open = self._session.run_id(number)

        def record(fact: Fact, at: float) -> None:
            facts.append(fact)
            lifecycle.record(fact, at)
            if isinstance(fact, RunCompleted | RunFailed | RunCancelled):
                self._open = ""

        await self._session.load(self._queue, forget=self.state.forget, begin=begin, record=record)
        self._loaded = True
        self._settle_run()
        self._look_what_waits(facts if self._open else ())

    def _look_what_waits(self, facts: Sequence[Fact]) -> None:
        """Know from the *facts* of the open run what it waits for, that somebody else left, or a cancelled prompt."""
        self._unsure, self._pending = False, ()
        run = fold(facts) if facts else None
        if run is not None and run.suspended is not None:
            outcome = standing(self._definition(), run, lambda: "")
            self._pending = outcome.pending if isinstance(outcome, Suspended) else ()

    # --- how a prompt becomes a run

    async def _work(self, messages: Sequence[UserMessage] | None, words: Sequence[Answer] = ()) -> Outcome[str]:
        self._refuse_while_busy("continue_" if messages is None else "prompt")
        self._idle = asyncio.Event()
        self._signal = asyncio.Event()
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._deaf.clear()
        self.state.is_streaming = True
        try:
            await self._load()
            self.state.error_message = None
            if messages is None:
                outcome = await self._continue(words)
            else:
                await self._close_open_run()
                outcome = await self._begin(messages)
            while _has_ended_well(outcome) and self._queue.items and not self._signal.is_set():
                await self._close_open_run()
                outcome = await self._begin((), speak=True)  # what a listener queued at the end
            return outcome
        finally:
            self.state.is_streaming = False
            self._settle_run()
            idle, self._idle = self._idle, None
            idle.set()

    async def _continue(self, words: Sequence[Answer]) -> Outcome[str]:
        if self._open:
            return await self._drive(self._open, None, words)
        if words:
            about = ", ".join([each.effect_id for each in words])
            raise AgentError("nothing-to-continue", f"no run waits for {about}: it ended, or was given up")
        tail = next((each for each in reversed(self.state.messages) if not _came_to_nothing(each)), None)
        if self._queue.items:
            return await self._begin((), speak=True)
        if tail is None or isinstance(tail, AssistantMessage):
            what = "there is nothing yet" if tail is None else "the last word was the agent's own"
            raise AgentError("nothing-to-continue", f"{what}, and nothing is queued: use prompt")
        return await self._begin(())

    async def _begin(self, messages: Sequence[UserMessage], *, speak: bool = False) -> Outcome[str]:
        self._since = len(self.state.messages)
        self._stopped_before = 0
        self._queue.begin(speak=speak)
        opening = Opening(self._ports.ids.new_id(), tuple(messages))  # its own, also beside another process's
        return await self._drive(self._session.run_id(self._session.runs + 1), opening)

    async def _drive(self, run_id: str, opening: Opening | None, words: Sequence[Answer] = ()) -> Outcome[str]:
        self._open, self._given_up, self._unsure = "", False, True
        turns = self._queue.turn
        if opening is None:
            self._queue.begin()
        if self._signal.is_set():
            self._queue.end("aborted")
        self._voice.begin(tuple(self.state.messages[: self._since]))
        try:
            outcome = await open_and_drive(
                *(self._definition(), self._run_ports()),
                run_id=run_id,
                opening=opening,
                max_turns=turns + self.max_turns,
                deadline=None,
                words=words,
                watch=self._queue,
            )
        finally:
            if self._queue.opened or opening is None:
                self._open = run_id
                self._session.runs += opening is not None
        self._unsure = False
        self._open = run_id if isinstance(outcome, Suspended) else ""
        self._pending = outcome.pending if isinstance(outcome, Suspended) else ()
        self.state.error_message = self.state.error_message or _complaint(outcome)
        return outcome

    async def _close_open_run(self) -> None:
        """End the run that was left, so that there is one at a time. One that waits for somebody is not ours to end."""
        if not self._open:
            return
        if self._pending and not self._given_up:
            waits = ", ".join([each.effect_id for each in self._pending])
            raise AgentError("waiting", f"the last run waits for {waits}: continue_(decisions=...) or abort() first")
        self._queue.begin()
        self._queue.end("the conversation went on without it")
        self._is_silent = True
        try:
            await open_and_drive(
                *(self._definition(), self._run_ports()), run_id=self._open, opening=None, max_turns=None, deadline=None
            )
        finally:
            self._is_silent = False
        self._open, self._pending = "", ()

    def _run_ports(self) -> Ports:
        ports = self._ports
        return replace(
            ports,
            model=self._voice,
            inbox=self._queue,
            listener=self,
            deltas=ports.deltas or _NOBODY,
            cancellation=self._signal,
        )

    def _definition(self) -> AgentDefinition[str, str]:
        """The definition of the next run; made anew only when something in it changed."""
        hooks = (self.before_tool_call is None, self.after_tool_call is None, self._boundary() is None)
        key = (*self.state.tools, self.tool_execution, self.limits, *hooks)
        if self._compiled is None or self._compiled[0] != key:
            base = self._base
            definition = replace(
                base,
                tools=self.state.tools,
                guards=[*base.guards, *([] if self.before_tool_call is None else [self._before])],
                result_guards=[*base.result_guards, *([] if self.after_tool_call is None else [self._after])],
                boundary=self._boundary(),
                limits=self.limits,
            )
            if self.tool_execution == "sequential":
                tools = [replace(each, sequential=True) for each in definition.tools]
                definition = replace(definition, tools=tools)
            self._compiled = (key, definition)
        return self._compiled[1]

    def _boundary(self) -> Boundary | None:
        """Whoever may have a say between two turns is waited for there: hooks, and listeners, who may abort."""
        hooks = (self.should_stop_after_turn, self.should_stop_before_turn, self.prepare_next_turn)
        others = (self.get_continuation_messages, self._base.boundary)
        waits = self.waits or any([hook is not None for hook in (*hooks, *others)])
        return self._between_turns if waits else None

    def request_options(self, given: Mapping[str, object]) -> Mapping[str, object]:
        """The options of the next request: the session, how much to think, and before these the owner's own."""
        level, budgets = self.state.thinking_level, self.thinking_budgets or {}
        thinking = {"thinking_level": level, **({"thinking_budget": budgets[level]} if level in budgets else {})}
        return {**given, "session_id": self.session_id, **thinking, **self.options}

    # --- hooks

    async def _before(self, view: CallView) -> str | Block | Rewrite | None:
        assert self.before_tool_call is not None
        return await awaited(self.before_tool_call(self._seen_by_hooks(view), self._signal))

    async def _after(self, view: CallView, output: ToolOutput) -> ToolOutput | None:
        assert self.after_tool_call is not None
        return await awaited(self.after_tool_call(self._seen_by_hooks(view), output, self._signal))

    def _seen_by_hooks(self, view: CallView) -> ToolCallContext:
        message = self.state.last_answer
        assert message is not None
        return ToolCallContext(message, view.call, view.tool, view.arguments, self.state.messages)

    async def _between_turns(self, view: TurnView) -> Go | Stop | None:
        """Ask whether to stop, after the turn and before the next, and what the next one needs or the end may say."""
        if view.turn == self._stopped_before:
            return None
        said = await self._asked(view)
        self._stopped_before = view.turn if isinstance(said, Stop) else 0
        return said

    async def _asked(self, view: TurnView) -> Go | Stop | None:
        if self._base.boundary is not None:
            said = await awaited(self._base.boundary(view))
            if said is not None:
                return said
        context = self._turn_context()
        if self.should_stop_after_turn is not None and await awaited(
            self.should_stop_after_turn(context, self._signal)
        ):
            return None if view.ending else Stop()
        steered = any([item.kind == "steer" for item in self.queued])
        if self.should_stop_before_turn is not None and not steered and self.should_stop_before_turn():
            return None if view.ending else Stop()
        more: Sequence[UserMessage] = ()
        if view.ending:
            if self.get_continuation_messages is not None:
                more = await awaited(self.get_continuation_messages(context, self._signal))
            if not more:
                return None
        if self.prepare_next_turn is not None:
            self._prepare(await awaited(self.prepare_next_turn(context, self._signal)), len(view.transcript))
        return Go(more)

    def _prepare(self, change: NextTurn | None, said: int) -> None:
        if change is None:
            return
        state = self.state
        state.model = change.model or state.model
        state.system_prompt = state.system_prompt if change.system_prompt is None else change.system_prompt
        state.thinking_level = change.thinking_level or state.thinking_level
        if change.messages is not None:
            self._voice.replace_context(change.messages, said)

    def _turn_context(self) -> TurnContext:
        messages = self.state.messages
        results: list[ToolMessage] = []
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            results.insert(0, message)
        return TurnContext(self.state.last_answer, tuple(results), messages, tuple(messages[self._since :]))

    # --- events

    @property
    def waits(self) -> bool:
        """Whether hearing of an event may take time: where nobody else listens, it does not."""
        return bool(self._listeners) and not self._is_silent

    async def on_event(self, event: LifecycleEvent) -> None:
        """Take an event of the run: first for the agent's own state, then for its listeners, one after another."""
        self._reduce(event)
        interrupted: asyncio.CancelledError | None = None
        for listener in [] if self._is_silent else [*self._listeners]:
            if listener in self._deaf or listener not in self._listeners:
                continue
            try:
                said = listener(event, self._signal)
                if isinstance(event, MessageUpdate) and not self._is_leaving:
                    await awaited(said)  # there are many, and a piece may be missed
                elif inspect.isawaitable(said):
                    await self._settled(listener, said)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    interrupted = error  # the others hear of it all the same
                else:
                    self._report(event, error)
            except Exception as error:  # noqa: BLE001 - a listener never changes the run
                self._report(event, error)
        if interrupted is not None:
            raise interrupted

    async def _settled(self, listener: Listener, said: Awaitable[object]) -> None:
        """Wait for a listener. One that takes more than its share of the grace on the way out is told no more of it."""
        task = asyncio.ensure_future(said)
        try:
            await asyncio.wait([task], timeout=self.patience if self._is_leaving else None)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=self.patience)
            raise
        finally:
            if not task.done():
                self._deaf.add(listener)
                await end([task], self.patience)
        if listener in self._deaf:
            raise TimeoutError("it did not settle on the way out")
        task.result()

    def _report(self, event: LifecycleEvent, error: BaseException) -> None:
        told = {"message": f"a listener failed on {event.type}; the run goes on", "exception": error}
        asyncio.get_running_loop().call_exception_handler(told)

    @property
    def _is_leaving(self) -> bool:
        """Whether the run was aborted, or its prompt cancelled."""
        return self._signal.is_set() or (self._task is not None and self._task.cancelling() > 0)

    @property
    def patience(self) -> float:
        """How long one thing may take to end after an abort, in seconds: its share of the grace."""
        return self._ports.grace / 4

    def _reduce(self, event: LifecycleEvent) -> None:
        state = self.state
        match event:
            case MessageUpdate():
                pass
            case MessageStart(role="assistant"):
                state.streams(lambda: self._voice.so_far("stop"))
            case MessageStart(message=message):
                state.streams(lambda: message)
            case MessageEnd(message=message):
                state.streams(None)
                if message is not None:
                    state.append(message)
            case ToolExecutionStart(tool_call_id=id):
                state.pending_tool_calls = state.pending_tool_calls | {id}
            case ToolExecutionEnd(tool_call_id=id):
                state.pending_tool_calls = state.pending_tool_calls - {id}
            case TurnEnd(message=AssistantMessage(error=str() as error)):
                state.error_message = error
            case _:
                pass

    def _settle_run(self) -> None:
        self.state.streams(None)
        self.state.pending_tool_calls = frozenset()

    # --- what is kept

    def _refuse_while_busy(self, what: str) -> None:
        if self._idle is not None:
            raise AgentError("busy", f"the agent is working: {what} again when it is idle, or use steer or follow_up")

    def _enqueue(self, kind: QueueKind, content: Content) -> Receipt:
        item = Queued(self._ports.ids.new_id(), kind, _messages(content))
        if not item.messages:
            return Receipt("", self._catch_up)
        self._queue.add(item)
        return self._keep(*item.words())

    def _keep(self, *words: Steer | FollowUp | Withdraw) -> Receipt:
        if self._keeps:
            self._unkept += words
            if self._idle is not None:
                self._in_loop(lambda: let_go(asyncio.ensure_future(self._catch_up())))
        return Receipt(words[0].id or "", self._catch_up)

    async def _catch_up(self) -> None:
        """Write down what was queued and is not written yet."""
        async with self._keeping:
            while self._unkept:
                await self._session.post(self._definition(), self._unkept[0])
                del self._unkept[0]


def _complaint(outcome: Outcome[str]) -> str | None:
    """What went wrong where no answer of the model says so."""
    match outcome:
        case Failed(error=fault):
            return f"{fault.code}: {fault.message}"
        case Suspended(reason="approval" | "in-doubt" | "budget" | "max_turns" | "definition" as reason, detail=detail):
            return f"{reason}: {detail}".rstrip(": ")
        case _:
            return None


class _Nobody:
    """A delta sink for whom nothing is said: it makes the run stream, for the events of its messages."""

    def emit(self, delta: Delta) -> None:
        """Take a delta."""


_NOBODY: Final = _Nobody()


def _has_ended_well(outcome: Outcome[str]) -> bool:
    match outcome:
        case Completed() | Suspended(reason="external", detail="terminated"):
            return True
        case _:
            return False


def _came_to_nothing(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted")


def _messages(content: Content, images: Sequence[Image | File] = ()) -> tuple[UserMessage, ...]:
    if isinstance(content, str):
        return (UserMessage((Text(content), *images)),)
    if images:
        message = "images and files go with text; put them into the parts of a message of your own"
        raise TypeError(message)
    messages = (content,) if isinstance(content, UserMessage) else tuple(content)
    for each in messages:
        _refuse_odd(each)
    return messages


def _refuse_unsound(model: object, tool_execution: str, *modes: str) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"model is a model port, such as ChatCompletionsModel(...), not {model!r:.80}")
    if tool_execution not in get_args(ToolExecution):
        raise ValueError(f"tool_execution is one of {', '.join(get_args(ToolExecution))}, not {tool_execution!r:.80}")
    for mode in modes:
        if mode not in get_args(QueueMode):
            raise ValueError(f"the mode of a queue is one of {', '.join(get_args(QueueMode))}, not {mode!r:.80}")


def _refuse_odd(message: object) -> None:
    if not isinstance(message, UserMessage):
        raise TypeError(f"a prompt is text, a UserMessage or several of them, not {message!r:.80}")
    if wrong := flaw_of_parts(message.parts):
        raise TypeError(f"a message holds text, images and files: {wrong}")
