"""`create_agent`: an agent declared by its parts. Rule: it has no loop of its own. The parts become one definition and
one set of ports, and each `send` is a run of the engine.

    prompt          the instruction, said by the model port (voice.py)
    tools           tools of the engine; an endpoint is one too
    resources       a tool, or a part of the prompt
    guardrails      guards of the engine, and a look at the answer within the model port
    workflows       runs of the engine whose model is the cascade (workflows.py)
    a session       what was said before, through the context port
    events          a projection of facts and deltas (telling.py)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar, cast, overload

from attrs import evolve as replace

from turnwright.definition import AgentDefinition, Limits, ToolChooser
from turnwright.errors import DefinitionError, RunBusy, TurnwrightError
from turnwright.harness.calling import Fitted
from turnwright.harness.client_messages import ClientMessage, frame_client_message, should_run_turn
from turnwright.harness.context import ServicesT, TurnContext
from turnwright.harness.events import AgentEvent, DoneEvent, ErrorEvent, MessageEvent, ProgressEvent
from turnwright.harness.guardrails import CallGuard, Guardrail, define_guardrail, engine_guard
from turnwright.harness.prompt import PromptLayer, assembled, static_prompt
from turnwright.harness.resources import Resource, enveloped
from turnwright.harness.session import Session, with_every_result
from turnwright.harness.telling import Feed, Telling, Tracer, TraceSink, sink_of
from turnwright.harness.tools import DefinedTool, engine_tool, reader
from turnwright.harness.voice import Earlier, Turn, Voice
from turnwright.harness.workflows import AnyWorkflow, Workflow, WorkflowResult, play
from turnwright.memory import MemoryState, combine_delta_sinks
from turnwright.messages import AssistantMessage
from turnwright.outcomes import Cancelled, Completed, Failed, Outcome, Suspended
from turnwright.ports import Decision, Model, State
from turnwright.run import open_and_drive, validated, words_about_calls
from turnwright.tools import Tool, ToolContext
from turnwright.wiring import Ports

__all__ = ["ComposedAgent", "Integration", "create_agent"]

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

AnyTool: TypeAlias = DefinedTool | Tool[..., object] | Callable[..., object]


class Integration(Protocol):
    """A source of tools that has to be connected first."""

    async def connect(self) -> object:
        """Connect, and report what is offered. Raise for whatever is no connection."""
        ...

    def tools(self) -> Sequence[AnyTool | Resource]:
        """The tools and resources that it offers, once it is connected."""
        ...

    async def close(self) -> None:
        """End the connection. Harmless when repeated; it may be connected again."""
        ...


def create_agent(
    *,
    model: Model | None = None,
    name: str = "agent",
    prompt: Sequence[PromptLayer] = (),
    tools: Sequence[AnyTool] = (),
    workflows: Sequence[AnyWorkflow] = (),
    resources: Sequence[Resource] = (),
    guardrails: Sequence[Guardrail] = (),
    integrations: Sequence[Integration] = (),
    services: ServicesT | None = None,
    trace: bool | TraceSink = False,
    on_tool_call: CallGuard[ServicesT] | None = None,
    max_tool_rounds: int = 8,
    hold_text: bool = False,
    tool_choice: ToolChooser = "auto",
    options: Mapping[str, object] | None = None,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    state: State | None = None,
    ports: Ports | None = None,
) -> ComposedAgent[ServicesT]:
    """Declare an agent.

    *services* is what its code may use, *trace* is off, the console, or a function. *on_tool_call* is one guardrail
    ahead of the others. With *hold_text*, text is told once the guardrails have passed it, not piece by piece.
    *tool_choice* is as in AgentDefinition, *options* go to the model. *state* is where runs and workflows outlive the
    process, *ports* gives any other port.

    Raises DefinitionError, naming the thing, for whatever cannot work.
    """
    if model is None and ports is None:
        raise DefinitionError(f"agent {name!r:.80}: give it a model= (or ports= that have one)")
    if ports is None:
        assert model is not None
        ports = Ports(model, MemoryState(finished=1))
    elif model is not None:
        ports = replace(ports, model=model)
    if state is not None:
        ports = replace(ports, state=state)
    hook = () if on_tool_call is None else (define_guardrail(name="on_tool_call", tool_call=on_tool_call),)
    return ComposedAgent(
        name,
        ports,
        prompt=prompt,
        tools=tools,
        workflows=workflows,
        resources=resources,
        guardrails=(*hook, *guardrails),
        integrations=integrations,
        services=cast("ServicesT", {} if services is None else services),
        trace=sink_of(trace=trace),
        max_tool_rounds=max_tool_rounds,
        hold_text=hold_text,
        tool_choice=tool_choice,
        options=options or {},
        limits=limits,
    )


class ComposedAgent(Generic[ServicesT]):
    """An agent that was declared by its parts; see `create_agent`. It keeps no session: whoever calls it does."""

    def __init__(
        self,
        name: str,
        ports: Ports,
        *,
        prompt: Sequence[PromptLayer],
        tools: Sequence[AnyTool],
        workflows: Sequence[AnyWorkflow],
        resources: Sequence[Resource],
        guardrails: Sequence[Guardrail],
        integrations: Sequence[Integration],
        services: ServicesT,
        trace: TraceSink | None,
        max_tool_rounds: int,
        hold_text: bool,
        tool_choice: ToolChooser,
        options: Mapping[str, object],
        limits: Limits,
    ) -> None:
        self.name = name
        self.services = services
        self._ports = ports
        self._static = static_prompt(prompt)
        self._made = [layer.make for layer in prompt if layer.make is not None]
        self._declared = (*tools, *resources)
        self._makers: list[Fitted] = []
        """What makes the rest of the prompt in each turn: layers, then attached resources."""
        self._guardrails = tuple(guardrails)
        self._integrations = tuple(integrations)
        self._trace = trace
        self._rounds = max_tool_rounds
        self._tool_choice = tool_choice
        self._options = options
        self._limits = limits
        self._turns: dict[str, Turn] = {}
        self._voice = Voice(ports.model, self._turns.__getitem__, guardrails, hold_text=hold_text)
        self._workflows = {each.name: each for each in workflows}
        if len(self._workflows) < len(workflows):
            raise DefinitionError(f"agent {name!r:.80}: two workflows have one name; rename one")
        if type(max_tool_rounds) is not int or max_tool_rounds < 1:
            raise DefinitionError(f"agent {name!r:.80}: max_tool_rounds is a whole number of at least 1")
        self._definition = self._compile(())
        self._report: Sequence[object] | None = None if integrations else ()
        self._connecting: asyncio.Task[Sequence[object]] | None = None

    # --- what it is made of

    @property
    def definition(self) -> AgentDefinition[str, str]:
        """What the engine runs, for whoever wants to look. Its tools find their turn only within a `send`."""
        return self._definition

    @property
    def tools(self) -> Sequence[str]:
        """The names of its tools: those that were declared, and those of its integrations once they are connected."""
        return tuple(self._definition.toolbox)

    def create_session(self, id: str | None = None) -> Session:
        """A session in which nothing was said."""
        return Session(self._ports.ids.new_id() if id is None else id)

    async def connect(self) -> Sequence[object]:
        """Connect the integrations, if they are not connected, and return what each reports.

        Whoever comes while it connects waits for the same. A failure closes what was opened, is raised, and is not
        remembered: the next call tries again.
        """
        if self._report is not None:
            return self._report
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if connecting.cancelled() and task is not None and not task.cancelling():
                raise TurnwrightError(f"agent {self.name!r} was closed while it was connecting") from None
            raise

    async def close(self) -> None:
        """End what the integrations hold open. A later turn connects again."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._integrations:
            self._report = None
            self._definition = self._compile(())
        await _close(self._integrations)

    # --- what it does

    async def send(
        self,
        session: Session,
        text: str,
        *,
        signal: asyncio.Event | None = None,
        services: ServicesT | None = None,
        run_id: str | None = None,
        decisions: Mapping[str, str | Decision] | None = None,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Say *text* in *session*, and tell what happens until the turn is over. `reduce` makes the next session.

        The last event is `done` or `error`. *signal* cancels the turn; so does closing the iterator, which returns
        when nothing of it is left. *services* are the turn's own: of a mapping, they win over the agent's key by key.
        With the *run_id* of a turn that was cut or that waits, and the session as it was before, it goes on with that
        turn; *decisions* are about its calls that wait for approval, as in `resume_agent`.

        Raises what cannot be a turn: an integration that does not connect, a prompt that cannot be made, a guardrail
        that fails over the answer, and what `run_agent` raises.
        """
        await self.connect()
        ports, definition = self._ports, self._definition
        own = asyncio.Event() if signal is None else signal
        run_id = run_id or ports.ids.new_id()
        opening, words = validated(definition, text), words_about_calls(decisions, None)
        feed = Feed()
        tracer = Tracer(self._trace, feed.put, ports.clock, session.id)
        model = str(getattr(ports.model, "model", type(ports.model).__name__))
        telling = Telling(feed, tracer, model=model, tools=len(definition.tools))
        context = self._context(session, services, own, telling)
        prompt = await assembled(self._static, self._makers, context)
        if run_id in self._turns:
            raise RunBusy(run_id, 0.0)
        turn = self._turns[run_id] = Turn(telling, context, prompt)
        feed.put(MessageEvent("user", text))
        if tracer.is_on:
            data = {"layers": prompt.layers, "cached": prompt.cached, "chars": len(prompt.text)}
            tracer.record("prompt", "prompt", data)
        ports = replace(
            ports,
            model=self._voice,
            context=Earlier(with_every_result(session.messages), ports.context) if session.messages else ports.context,
            deltas=telling if ports.deltas is None else combine_delta_sinks(telling, ports.deltas),
            cancellation=ports.cancellation if signal is None else signal,
        )
        running = asyncio.get_running_loop().create_task(
            open_and_drive(
                *(definition, ports),
                run_id=run_id,
                opening=opening,
                max_turns=self._rounds,
                deadline=None,
                words=words,
                watch=telling,
            )
        )
        running.add_done_callback(lambda _: feed.close())
        try:
            while told := await feed.more():
                while told:
                    yield told.popleft()
            outcome = running.result()
            if turn.fault is not None:
                raise turn.fault
            last = _last(outcome)
            telling.drain()
            if tracer.is_on:
                usage = outcome.usage
                data = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
                tracer.record("usage", "usage", data)
            if isinstance(last, DoneEvent):
                feed.put(ProgressEvent("done"))
            feed.put(last)
            while told:
                yield told.popleft()
        finally:
            if running.done():
                del self._turns[run_id]
            else:
                # Also where we are cancelled while we wait: the run needs its turn to its end, and nobody after that.
                running.add_done_callback(lambda _: self._turns.pop(run_id))
                if signal is None:
                    own.set()
                running.cancel()
                await asyncio.wait([running])

    async def send_client_message(
        self,
        session: Session,
        message: ClientMessage,
        *,
        signal: asyncio.Event | None = None,
        services: ServicesT | None = None,
        run_id: str | None = None,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Take what a client said as a turn. What is not for the model tells nothing and asks nobody."""
        if not should_run_turn(message):
            return
        framed = frame_client_message(message)
        turn = self.send(session, framed, signal=signal, services=services, run_id=run_id)
        try:
            async for event in turn:
                yield event
        finally:
            await turn.aclose()

    @overload
    async def run(
        self,
        session: Session,
        workflow: Workflow[InputT, ServicesT, ResultT],
        input: InputT,
        *,
        services: ServicesT | None = None,
        signal: asyncio.Event | None = None,
        run_id: str | None = None,
        on_event: Callable[[AgentEvent], object] | None = None,
    ) -> WorkflowResult[ResultT]: ...
    @overload
    async def run(
        self,
        session: Session,
        workflow: str,
        input: object,
        *,
        services: ServicesT | None = None,
        signal: asyncio.Event | None = None,
        run_id: str | None = None,
        on_event: Callable[[AgentEvent], object] | None = None,
    ) -> WorkflowResult[object]: ...
    async def run(
        self,
        session: Session,
        workflow: object,
        input: object,
        *,
        services: ServicesT | None = None,
        signal: asyncio.Event | None = None,
        run_id: str | None = None,
        on_event: Callable[[AgentEvent], object] | None = None,
    ) -> WorkflowResult[object]:
        """Climb a workflow, given by name or as it was defined, over *input*, which must have a JSON form.

        *on_event* is told each event as it happens; what it raises is only warned of. The result holds them all, for
        `reduce`. With a durable store and a *run_id*, calling again with the same input goes on where it was cut: a
        finished round is not run again.

        Raises what a step or a gate raises, and RunError for a run that waits: a round that was cut and may not run
        again is in doubt.
        """
        found = self._workflows.get(workflow) if isinstance(workflow, str) else workflow
        if not isinstance(found, Workflow):
            known = ", ".join(self._workflows) or "none"
            raise DefinitionError(f"agent {self.name!r} has no workflow {workflow!r:.80}; it has {known}")
        return await play(
            *(found, input, self._ports),
            session=session,
            services=self._services(services),
            signal=signal,
            run_id=run_id,
            on_event=on_event,
            trace=self._trace,
        )

    # --- how it is put together

    def _compile(self, offered: Sequence[AnyTool | Resource]) -> AgentDefinition[str, str]:
        def of_run(run_id: str) -> TurnContext[object]:
            return self._turn(run_id).context

        parts = (*self._declared, *offered)
        attached = [each for each in parts if isinstance(each, Resource) and each.mode == "attach"]
        self._makers = [*self._made, *map(self._envelope, attached)]
        tools = [self._tool(each) for each in parts if not isinstance(each, Resource) or each.mode == "tool"]
        guards = [
            engine_guard(each.name, each.tool_call, of_run) for each in self._guardrails if each.tool_call is not None
        ]
        return AgentDefinition(
            self.name,
            self._static.text,
            tools,
            tool_choice=self._tool_choice,
            guards=guards,
            repairs=0,
            strict=False,
            options=self._options,
            limits=self._limits,
        )

    def _turn(self, run_id: str) -> Turn:
        if run_id not in self._turns:
            raise TurnwrightError(f"run {run_id!r} is no turn of agent {self.name!r}: use send(), not its definition")
        return self._turns[run_id]

    def _tool(self, part: AnyTool | Resource) -> Tool[..., object] | Callable[..., object]:
        if isinstance(part, Resource):
            part = reader(part)
        return engine_tool(part, self._of_call) if isinstance(part, DefinedTool) else part

    def _of_call(self, call: ToolContext) -> TurnContext[object]:
        """The context of one call: what it asks to be remembered is told after its result."""
        turn = self._turn(call.run_id)
        of = turn.context
        return TurnContext(
            *(of.session, of.services, of.signal),
            emit=lambda event: turn.telling.put(event, call.index),
            trace=lambda name, data: turn.telling.tracer.record("tool", name, data),
            call=call,
        )

    def _context(
        self, session: Session, services: ServicesT | None, signal: asyncio.Event, telling: Telling
    ) -> TurnContext[object]:
        return TurnContext(
            *(session, self._services(services), signal),
            emit=telling.put,
            trace=lambda name, data: telling.tracer.record("prompt", name, data),
        )

    def _services(self, given: ServicesT | None) -> object:
        if given is None:
            return self.services
        if isinstance(self.services, Mapping) and isinstance(given, Mapping):
            return {**self.services, **given}
        return given

    def _envelope(self, resource: Resource) -> Fitted:
        async def attached(*context: object) -> str:
            body = await resource.get({}, *context)
            return enveloped(resource, body, self._ports.ids.new_id())

        return attached

    async def _connect(self) -> Sequence[object]:
        opened: list[Integration] = []
        try:
            reports: list[object] = []
            offered: list[AnyTool | Resource] = []
            for each in self._integrations:
                opened.append(each)
                reports.append(await self._connect_one(each))
                offered += each.tools()
            self._definition = self._compile(offered)
        except BaseException:
            await _close(opened)
            raise
        self._report = tuple(reports)
        return self._report

    async def _connect_one(self, source: Integration) -> object:
        tracer = Tracer(self._trace, lambda _: None, self._ports.clock, "")
        about = {"source": type(source).__name__}
        try:
            report = await source.connect()
        except BaseException as error:
            tracer.record("mcp", "connect:failed", {**about, "error": type(error).__name__})
            raise
        tracer.record("mcp", "connect", about)
        return report

    def _connected(self, task: asyncio.Task[Sequence[object]]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # whoever waits is told


async def _close(integrations: Sequence[Integration]) -> None:
    for each in integrations:
        await each.close()


def _last(outcome: Outcome[str]) -> DoneEvent | ErrorEvent:
    """How the turn ended."""
    run_id, usage = outcome.run_id, outcome.usage
    match outcome:
        case Completed(output=text):
            answer = outcome.transcript[-1]
            assert isinstance(answer, AssistantMessage)
            return DoneEvent(text, usage, answer.raw_stop_reason or answer.stop_reason, run_id)
        case Suspended(reason="max_turns"):
            return DoneEvent("", usage, "max_tool_rounds", run_id)
        case Suspended(reason=reason, detail=detail, message=message, pending=pending):
            return ErrorEvent(message or detail or reason, reason, run_id, pending)
        case Failed(error=fault):
            return ErrorEvent(fault.message, fault.code, run_id)
        case Cancelled(reason=why):
            return ErrorEvent(why or "the run was cancelled", "cancelled", run_id)
