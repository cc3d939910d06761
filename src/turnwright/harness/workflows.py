"""An ordered cascade of steps, climbed until one is accepted. Rule: it has no loop of its own. A workflow is a run of
the engine whose model is the cascade: it reads what came of the rounds so far, and calls the next one as a tool.

So every finished round is a fact. A run that is taken up in another process finds the rounds that finished and runs
none of them again; one that was cut in the middle follows its step's replay policy. `following` says what comes next,
from the records alone: the code of the steps runs inside the calls only.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, cast

from attrs import field

from turnwright.canonical import JSON, decode, encode, plain
from turnwright.definition import AgentDefinition, Limits
from turnwright.errors import DefinitionError, InvalidValue, RunError
from turnwright.harness.calling import Fitted, fitted
from turnwright.harness.context import ServicesT, TurnContext
from turnwright.harness.events import AgentEvent, MemoryEvent, StepEvent
from turnwright.harness.session import Session
from turnwright.harness.telling import Tracer, TraceSink
from turnwright.messages import AssistantMessage, Message, Text, ToolCall, ToolMessage
from turnwright.outcomes import Completed
from turnwright.ports import ModelRequest
from turnwright.run import open_and_drive, validated
from turnwright.schema import Schema, schema_of
from turnwright.tools import Replay, Tool, ToolContext, ToolOutput, tool
from turnwright.values import frozen
from turnwright.wiring import Ports

__all__ = [
    "AnyWorkflow",
    "Attempt",
    "Retry",
    "Step",
    "StepContext",
    "Verdict",
    "Workflow",
    "WorkflowResult",
    "define_workflow",
    "following",
    "play",
    "step",
]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    InputT = TypeVar("InputT", default=object)
    ResultT = TypeVar("ResultT", default=object)
    ResultT_co = TypeVar("ResultT_co", covariant=True, default=object)
else:
    from typing import TypeVar

    InputT = TypeVar("InputT")
    ResultT = TypeVar("ResultT")
    ResultT_co = TypeVar("ResultT_co", covariant=True)

GATE: Final = "gate-rejected"
ROOM: Final = 2**40
"""How many bytes the record of a round may have."""


@frozen
class Verdict:
    """What a step's `until` or a workflow's gate says of a result.

    *reason* is a word, *detail* for people, *data* for the next round. *gate_rejected* tells the gate's objection from
    the step's own.
    """

    accepted: bool
    reason: str = ""
    detail: str = ""
    data: object = None
    gate_rejected: bool = False


@frozen
class Retry:
    """A step may run so many rounds, each told what was wrong with the one before."""

    max_rounds: int


@frozen
class Attempt(Generic[ResultT_co]):
    """One round that ran, with its verdict."""

    step: str
    round: int
    accepted: bool
    result: ResultT_co
    reason: str = ""
    detail: str = ""
    data: object = None
    gate_rejected: bool = False


@frozen
class WorkflowResult(Generic[ResultT_co]):
    """How a workflow ended: the *result* of the last round that ran, None if none did, and every round before it.

    *accepted* is False only if the last step rejected too. *events* holds what happened, for `reduce`: also what was to
    be remembered by rounds that ran in an earlier process.
    """

    result: ResultT_co | None
    step: str | None
    accepted: bool
    attempts: tuple[Attempt[ResultT_co], ...]
    run_id: str
    events: tuple[AgentEvent, ...] = field(default=(), repr=False)


class StepContext(TurnContext[ServicesT], Generic[InputT, ServicesT]):
    """What the code of a step may know: *input* is what the run is about, *services* what it may use.

    *round* counts from 1, *feedback* is the verdict on the round before it. *run_id* is this round's own, the same in
    every process: an agent that the round runs under it is taken up where it was cut.
    """

    __slots__ = ("feedback", "input", "round", "run_id")

    input: InputT
    round: int
    feedback: Verdict | None
    run_id: str


Judged: TypeAlias = Verdict | object

Run: TypeAlias = Callable[[StepContext[InputT, ServicesT]], ResultT | Awaitable[ResultT]]
Until: TypeAlias = (
    Callable[[ResultT], Judged | Awaitable[Judged]]
    | Callable[[ResultT, StepContext[InputT, ServicesT]], Judged | Awaitable[Judged]]
)
When: TypeAlias = Callable[[StepContext[InputT, ServicesT]], object]


@frozen(eq=False)
class Step(Generic[InputT, ServicesT, ResultT]):
    """One step of a cascade; see `step`."""

    name: str
    run: Fitted = field(repr=False)
    until: Fitted | None = field(repr=False)
    when: Fitted | None = field(repr=False)
    rounds: int
    replay: Replay


def step(
    name: str,
    *,
    run: Run[InputT, ServicesT, ResultT],
    until: Until[ResultT, InputT, ServicesT] | None = None,
    when: When[InputT, ServicesT] | None = None,
    retry: Retry | None = None,
    replay: Replay = "never",
) -> Step[InputT, ServicesT, ResultT]:
    """Declare a step.

    *until* accepts its result, with a `Verdict` or with whatever is true; without it the step is terminal, and always
    accepted. *when* may skip it. With *retry* it runs again, told what was wrong, before the cascade goes on. *replay*
    says what may be done with a round that was cut by a crash: `never` (it is in doubt), or `safe` (it runs again).
    """
    owner = f"step {name!r:.80}"
    if not name:
        raise DefinitionError(f"a step has a name, not {name!r:.80}")
    rounds = 1 if retry is None else retry.max_rounds
    if type(rounds) is not int or rounds < 1:
        raise DefinitionError(f"{owner}: max_rounds is a whole number of at least 1, not {rounds!r:.80}")
    return Step(
        name,
        fitted(run, owner=f"{owner}: run", threaded=True),
        None if until is None else fitted(until, owner=f"{owner}: until"),
        None if when is None else fitted(when, owner=f"{owner}: when"),
        rounds,
        replay,
    )


@frozen(eq=False)
class Workflow(Generic[InputT, ServicesT, ResultT]):
    """A cascade of steps; see `define_workflow`."""

    name: str
    steps: Sequence[Step[InputT, ServicesT, ResultT]]
    gate: Fitted | None = field(repr=False)
    result: Schema[ResultT] | None = field(repr=False)


def define_workflow(
    name: str,
    steps: Sequence[Step[InputT, ServicesT, ResultT]],
    *,
    exit_gate: Until[ResultT, InputT, ServicesT] | None = None,
    result: type[ResultT] | None = None,
) -> Workflow[InputT, ServicesT, ResultT]:
    """Declare a cascade: each step is tried in turn until one is accepted.

    *exit_gate* is a check that every accepted result must pass too, but that of a terminal step, which is the answer of
    last resort. *result* is the type of the results: those of an earlier process come back as it, and as JSON without.
    """
    names = [each.name for each in steps]
    if not steps or len({*names}) < len(names):
        raise DefinitionError(f"workflow {name!r:.80} has steps, each with a name of its own; it has {names}")
    gate = None if exit_gate is None else fitted(exit_gate, owner=f"workflow {name!r:.80}: exit_gate")
    return Workflow(name, tuple(steps), gate, None if result is None else schema_of(result))


AnyStep: TypeAlias = Step[Any, Any, Any]
AnyWorkflow: TypeAlias = Workflow[Any, Any, Any]
"""A workflow whose types do not matter here."""


# --- what comes next


@frozen
class Move:
    """The round to run: *feedback* is the verdict on the one before it (JSON)."""

    index: int
    round: int
    feedback: JSON


def following(rounds: Sequence[int], records: Sequence[Mapping[str, JSON]]) -> Move | None:
    """What comes after *records*, None at the end. *rounds* is how often each step may run. Pure."""
    if not records:
        return Move(0, 1, None)
    last = records[-1]
    index, number = cast("int", last["index"]), cast("int", last["round"])
    if last.get("accepted") or "error" in last:
        return None
    if "skipped" not in last and number < rounds[index]:
        return Move(index, number + 1, last["verdict"])
    return Move(index + 1, 1, None) if index + 1 < len(rounds) else None


class Cascade:
    """The model port of a workflow: it calls the next round, or says that the workflow is over."""

    def __init__(self, workflow: AnyWorkflow) -> None:
        self._rounds = [each.rounds for each in workflow.steps]

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Say what comes after the rounds that the request holds."""
        move = following(self._rounds, records_of(request.messages))
        if move is None:
            return AssistantMessage((Text("over"),))
        arguments = encode(cast("JSON", {"round": move.round, "feedback": move.feedback})).decode()
        return AssistantMessage(
            (ToolCall(f"{move.index}.{move.round}", _tool_name(move.index), arguments),), "tool_calls"
        )


def records_of(messages: Sequence[Message]) -> list[dict[str, JSON]]:
    """The records of the rounds that ran, in order."""
    return [cast("dict[str, JSON]", decode(each.text)) for each in messages if isinstance(each, ToolMessage)]


def _tool_name(index: int) -> str:
    return f"step_{index}"


# --- playing it


async def play(
    workflow: Workflow[InputT, ServicesT, ResultT],
    subject: object,
    ports: Ports,
    *,
    session: Session,
    services: object,
    signal: asyncio.Event | None,
    run_id: str | None,
    on_event: Callable[[AgentEvent], object] | None,
    trace: TraceSink | None,
) -> WorkflowResult[ResultT]:
    """Bring a workflow to its end; see `ComposedAgent.run`."""
    stage = _Stage(workflow, subject, ports, session=session, services=services, on_event=on_event, trace=trace)
    stage.signal = signal or stage.signal
    definition = AgentDefinition(
        f"workflow.{workflow.name}"[:128],
        f"{workflow.name}: {', '.join([each.name for each in workflow.steps])}",
        [stage.tool(index) for index in range(len(workflow.steps))],
        input=cast("type[JSON]", {}),
        strict=False,
        repairs=0,
        limits=Limits(output_bytes=ROOM, argument_bytes=ROOM),
    )
    ports = _own(ports, Cascade(workflow), signal)
    outcome = await open_and_drive(
        *(definition, ports),
        run_id=run_id,
        opening=validated(definition, plain(subject)),
        max_turns=sum([each.rounds for each in workflow.steps]) + 1,
        deadline=None,
    )
    if stage.raised is not None:
        raise stage.raised
    if not isinstance(outcome, Completed):
        raise RunError(outcome.run_id, _waiting(workflow, outcome))
    return cast("WorkflowResult[ResultT]", stage.result(outcome.run_id, records_of(outcome.transcript)))


def _own(ports: Ports, model: Cascade, signal: asyncio.Event | None) -> Ports:
    """The ports of a workflow: what is about models and people who watch them is not for it."""
    return Ports(
        model,
        ports.state,
        inbox=ports.inbox,
        telemetry=ports.telemetry,
        clock=ports.clock,
        ids=ports.ids,
        cancellation=signal or ports.cancellation,
        tenant=ports.tenant,
        grace=ports.grace,
    )


def _waiting(workflow: AnyWorkflow, outcome: object) -> str:
    pending = getattr(outcome, "pending", ())
    if pending and pending[0].kind == "in-doubt":
        name = workflow.steps[int(pending[0].tool.removeprefix("step_"))].name
        return (
            f"workflow {workflow.name!r} was cut within step {name!r}, and what became of that round is unknown; "
            "declare the step with replay='safe' if it may run twice, or run the workflow anew under another run_id"
        )
    why = getattr(outcome, "message", "") or getattr(outcome, "reason", "") or getattr(outcome, "error", "")
    return f"workflow {workflow.name!r} did not end: {why}"


class _Stage:
    """One run of a workflow in this process: what its rounds are given, and what they gave."""

    def __init__(
        self,
        workflow: AnyWorkflow,
        subject: object,
        ports: Ports,
        *,
        session: Session,
        services: object,
        on_event: Callable[[AgentEvent], object] | None,
        trace: TraceSink | None,
    ) -> None:
        self._workflow = workflow
        self._schema: Schema[object] | None = workflow.result
        self._subject = subject
        self._session = session
        self._services = services
        self._on_event = on_event
        self._durable = getattr(ports.state, "durability", "none") != "none"
        self._tracer = Tracer(trace, self._tell, ports.clock, session.id)
        self._live: dict[tuple[int, int], object] = {}
        self._events: list[AgentEvent] = []
        self.signal = asyncio.Event()
        self.raised: BaseException | None = None

    def tool(self, index: int) -> Tool[..., object]:
        """The tool that runs a round of step *index*."""
        of = self._workflow.steps[index]

        async def play_round(context: ToolContext, round: int, feedback: object) -> ToolOutput:  # noqa: A002
            record = await self._play(index, context, round, feedback)
            return ToolOutput(encode(record).decode())

        schema = {"type": "object", "properties": {"round": {"type": "integer"}, "feedback": {}}}
        make = tool(name=_tool_name(index), description=of.name, parameters=schema, replay=of.replay, timeout=None)
        return make(play_round)

    async def _play(self, index: int, call: ToolContext, number: int, feedback: object) -> dict[str, JSON]:
        """Run a round, and say in a record what came of it. What it raises is kept for whoever called."""
        of = self._workflow.steps[index]
        asked: list[MemoryEvent] = []
        context = self._context(of, call, number, feedback, asked)
        record: dict[str, JSON] = {"index": index, "round": number}
        try:
            if number == 1 and of.when is not None and not await of.when(context):
                return {**record, "skipped": True}
            self._tell(StepEvent(self._workflow.name, of.name))
            self._tracer.record("workflow", "step:start", {"step": of.name, "round": number})
            result = await of.run(context)
            verdict = await self._judge(of, result, context)
            record |= {"accepted": verdict.accepted, "verdict": plain(verdict), "result": self._json(result)}
        except Exception as error:  # noqa: BLE001 - told by a fact, and raised where the workflow was called
            self.raised = error
            return {**record, "error": f"{type(error).__name__}: {error}"}
        finally:
            record["memory"] = cast("JSON", [dict(each.patch) for each in asked])
        self._live[index, number] = result
        told = {"round": number, "accepted": verdict.accepted, "reason": verdict.reason}
        self._tracer.record("workflow", "step:verdict", {"step": of.name, **told})
        self._tell(StepEvent(self._workflow.name, of.name, told))
        for each in asked:
            self._tell(each)
        return record

    def _context(
        self,
        of: AnyStep,
        call: ToolContext,
        number: int,
        feedback: object,
        asked: list[MemoryEvent],
    ) -> StepContext[object, object]:
        def emit(event: AgentEvent) -> None:
            asked.append(event) if isinstance(event, MemoryEvent) else self._tell(event)

        def trace(name: str, data: Mapping[str, object]) -> None:
            self._tracer.record("workflow", name, {"step": of.name, **data})

        context: StepContext[object, object] = StepContext(
            *(self._session, self._services, self.signal), emit=emit, trace=trace, call=call
        )
        context.input = self._subject
        context.round = number
        context.feedback = Verdict(**feedback) if isinstance(feedback, dict) else None
        context.run_id = call.effect_id
        return context

    async def _judge(self, of: AnyStep, result: object, context: object) -> Verdict:
        """The verdict on a result: the step's own, then the gate's. A terminal step has neither."""
        if of.until is None:
            return Verdict(accepted=True)
        verdict = _verdict(await of.until(result, context))
        if not verdict.accepted or self._workflow.gate is None:
            return verdict
        gated = _verdict(await self._workflow.gate(result, context))
        if gated.accepted:
            return verdict
        return Verdict(False, gated.reason or GATE, gated.detail, gated.data, True)

    def _json(self, result: object) -> JSON:
        """A result as the record holds it. One that has no JSON form lives in this process alone, if that is enough."""
        try:
            return plain(result)
        except InvalidValue:
            if self._durable:
                raise
            return None

    def _tell(self, event: AgentEvent) -> None:
        self._events.append(event)
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:  # noqa: BLE001 - who watches changes nothing, least of all a round that has run
            warnings.warn(f"on_event failed: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)

    def result(self, run_id: str, records: Sequence[Mapping[str, JSON]]) -> WorkflowResult[object]:
        """What all rounds came to."""
        if records and "error" in records[-1]:
            raise RunError(run_id, f"workflow {self._workflow.name!r} failed: {records[-1]['error']}")
        earlier: list[AgentEvent] = []
        attempts: list[Attempt[object]] = []
        for record in records:
            if "skipped" in record:
                continue
            index, number = cast("int", record["index"]), cast("int", record["round"])
            verdict = Verdict(**cast("dict[str, JSON]", record["verdict"]))  # type: ignore[arg-type]
            if (index, number) not in self._live:
                earlier += [
                    MemoryEvent(cast("dict[str, object]", each)) for each in cast("list[JSON]", record["memory"])
                ]
            attempts.append(
                Attempt(
                    self._workflow.steps[index].name,
                    number,
                    verdict.accepted,
                    self._result_of(index, number, record["result"]),
                    verdict.reason,
                    verdict.detail,
                    verdict.data,
                    verdict.gate_rejected,
                )
            )
        last = attempts[-1] if attempts else None
        return WorkflowResult(
            None if last is None else last.result,
            None if last is None else last.step,
            last is not None and last.accepted,
            tuple(attempts),
            run_id,
            (*earlier, *self._events),
        )

    def _result_of(self, index: int, number: int, recorded: JSON) -> object:
        if (index, number) in self._live:
            return self._live[index, number]
        schema = self._schema
        return recorded if schema is None else schema.load(schema.accept(recorded))


def _verdict(said: object) -> Verdict:
    """A verdict is one that says whether it accepts; whatever else is said counts as yes if it is true."""
    match said:
        case Verdict():
            return said
        case {"accepted": bool(accepted), **rest}:
            known = {key: rest[key] for key in ("reason", "detail", "data") if key in rest}
            return Verdict(accepted, **known)  # type: ignore[arg-type]
        case _:
            return Verdict(accepted=bool(said))
