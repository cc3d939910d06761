"""Do what one command asks, and say in facts what came of it. Rule: user code and ports with effects are called here
only.

Whatever they raise becomes a fact. A result that cannot be known follows the tool's replay policy: `never` is in
doubt unless the tool can `reconcile`, `safe` is told to the model as an error, `idempotent` is left to recovery,
which runs it again under its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, get_args

from attrs import evolve as replace

from turnwright import journal
from turnwright.admission import admit, is_decision, rendering
from turnwright.canonical import find_json, plain
from turnwright.commands import (
    AdmitCalls,
    AskModel,
    CheckOutput,
    Command,
    ConsultBoundary,
    ExecuteCall,
    Reconcile,
    RequestApproval,
)
from turnwright.decide import resolution
from turnwright.definition import AnyDefinition, CallView, Go, Stop, TurnView
from turnwright.deltas import AttemptReset, Delta
from turnwright.errors import InvalidValue, Issue, ModelError, ModelErrorKind
from turnwright.facts import (
    ApprovalDecided,
    ApprovalRequested,
    BoundaryDecided,
    CallAdmitted,
    CallFinished,
    CallInDoubt,
    CallRefused,
    CallResolved,
    Fact,
    Fault,
    ModelAnswered,
    ModelFailed,
    OutputRejected,
    RunCompleted,
    RunFailed,
)
from turnwright.messages import AssistantMessage, Part, Text, UserMessage, flaw, flaw_of_parts
from turnwright.ports import ApprovalRequest, Committed, Fresh, InFlight, Mismatch, ModelRequest
from turnwright.schema.coercion import copied
from turnwright.spending import Spending
from turnwright.state import RunState
from turnwright.tools import (
    MESSAGE_LENGTH,
    DidNotHappen,
    Happened,
    Tool,
    ToolContext,
    ToolOutput,
    awaited,
    bounded,
    call_key,
    called,
    parts_of_output,
    told,
)
from turnwright.wiring import Ports

__all__ = ["Performer"]

T = TypeVar("T")

Progress: TypeAlias = Callable[[int, str], None]

FOREVER: Final = float("inf")
MODEL_ERROR_KINDS: Final = get_args(ModelErrorKind)
RESERVE: Final = 0.005
"""Seconds of a deadline that an effect may not use, so that its result can still be recorded."""
NOTHING: Final = AssistantMessage(())


class Performer:
    """Performs commands of one run. It reads the state and never changes it.

    *fence* raises LostLease once another process may own the run; it is asked again where a port took its time between
    the intent and the effect.
    """

    def __init__(
        self,
        definition: AnyDefinition,
        ports: Ports,
        state: RunState,
        *,
        progress: Progress | None = None,
        spending: Spending | None = None,
        fence: Callable[[], None] | None = None,
    ) -> None:
        self._fence = fence or _unfenced
        self._progress = progress
        self._spending = spending
        self._definition = definition
        self._ports = ports
        self._state = state
        self._emit = None if ports.deltas is None else _isolated(ports.deltas.emit)

    async def perform(self, command: Command) -> Sequence[Fact]:
        """Do *command*. A port that cancels itself, unasked, counts as one that failed."""
        try:
            match command:
                case AskModel():
                    return (await self._ask(command),)
                case ExecuteCall():
                    return await self._execute(command)
                case AdmitCalls():
                    return await admit(self._definition, self._state, self._ports, command)
                case RequestApproval():
                    return await self._request_approval(command)
                case CheckOutput():
                    return (await self._check_output(command),)
                case ConsultBoundary():
                    return (await self._consult(command),)
                case Reconcile():
                    return (await self._reconcile(command),)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self.unfinished(command, "it cancelled itself")

    def is_immediate(self, commands: Sequence[Command]) -> bool:
        """Whether *commands* call nothing that could wait: no port, and no code of the definition that may be slow."""
        definition = self._definition
        for command in commands:
            match command:
                case AdmitCalls() if not definition.guards:
                    pass
                case CheckOutput() if not definition.check_output:
                    pass
                case ConsultBoundary() if definition.boundary is None:
                    pass
                case _:
                    return False
        return True

    def seconds(self, command: Command) -> float:
        """How long *command* may take."""
        match command:
            case AskModel():
                return self._definition.limits.model_seconds
            case ExecuteCall() | Reconcile():
                timeout = self._tool(command.call.name).timeout
                return FOREVER if timeout is None else timeout
            case RequestApproval() if command.request.expires_at is not None:
                return command.request.expires_at - self._ports.clock.now()
            case _:
                return FOREVER

    def unfinished(self, command: Command, why: str) -> Sequence[Fact]:
        """The facts of a command that took too long or gave up without a result."""
        match command:
            case AskModel():
                limit = self._definition.limits.model_seconds
                if why != "timed out":
                    return (ModelFailed(command.turn, command.attempt, "cancelled", why, True, 0.0),)
                message = f"timed out (limit {limit:g} s)"
                return (ModelFailed(command.turn, command.attempt, "timeout", message, True, limit),)
            case ExecuteCall():
                return self._unknown(command, why)
            case AdmitCalls():
                message = f"not executed: a guard gave up ({why})"
                return [CallRefused(command.turn, index, "guard", message) for index, _ in command.calls]
            case CheckOutput():
                return (RunFailed(Fault("check_output", f"a check of the output gave up: {why}")),)
            case ConsultBoundary():
                asked = "tool_choice" if self._definition.boundary is None else "boundary"
                return (RunFailed(Fault(asked, f"{asked} gave up: {why}")),)
            case Reconcile():
                return (CallInDoubt(command.call.turn, command.call.index, 0, f"reconcile gave up: {why}"),)
            case RequestApproval():
                return ()

    def interrupted(self, command: Command, why: str) -> Sequence[Fact]:
        """The facts of a command that the run's own interruption stopped: what recovery can repair stays open."""
        if isinstance(command, ExecuteCall):
            tool = self._tool(command.call.name)
            if tool.replay == "never" and tool.reconcile is None:
                return (CallInDoubt(command.call.turn, command.call.index, command.attempt, why),)
        return ()

    # --- the model

    async def _ask(self, command: AskModel) -> ModelAnswered | ModelFailed:
        state, ports, definition = self._state, self._ports, self._definition
        assert state.opened is not None
        if self._emit is not None and command.attempt > 1:
            self._emit(AttemptReset(command.turn, command.attempt - 1))
        began = ports.clock.monotonic()
        try:
            messages = state.transcript
            request = ModelRequest(
                state.opened.run_id,
                command.turn,
                command.attempt,
                definition.instruction,
                messages if ports.context is None else await ports.context.prepare(messages, ports.context_budget),
                definition.specs,
                command.tool_choice,
                definition.output_spec,
                definition.options,
                self._time_left(definition.limits.model_seconds),
                self._emit,
            )
        except Exception as error:  # noqa: BLE001 - what a port raises is a fact
            return self._failed(command, error, began)
        self._fence()
        if self._spending is not None:
            self._spending.dispatched(command)
        try:
            answer = await ports.model.complete(request)
        except Exception as error:  # noqa: BLE001 - what a port raises is a fact
            return self._failed(command, error, began)
        seconds = ports.clock.monotonic() - began
        if wrong := flaw(answer):
            message = f"the model port gave no sound answer: {wrong}"
            return self._failed(command, ModelError("malformed", message, retryable=True), began)
        if self._spending is not None:
            self._spending.spent(command, answer, seconds)
        return ModelAnswered(command.turn, command.attempt, answer, seconds)

    def _failed(self, command: AskModel, error: Exception, began: float) -> ModelFailed:
        """What became of a request. Of an answer that broke off only what is sound is kept."""
        kind: ModelErrorKind = "internal"
        message, retryable, partial = told(error), False, NOTHING
        if isinstance(error, ModelError):
            kind, retryable = error.kind, bool(error.retryable)
            if isinstance(error.partial, AssistantMessage) and not flaw(replace(error.partial, stop_reason="stop")):
                partial = error.partial
            if kind not in MODEL_ERROR_KINDS:
                kind, message = "internal", f"{kind}: {message}"
            if error.dispatched is False and self._spending is not None:
                self._spending.withdrawn(command)
        seconds, message = self._ports.clock.monotonic() - began, message[:MESSAGE_LENGTH]
        return ModelFailed(
            command.turn, command.attempt, kind, message, retryable, seconds, partial.parts, partial.usage
        )

    def _time_left(self, seconds: float) -> float | None:
        if self._state.deadline is not None:
            seconds = min(seconds, self._state.deadline - self._ports.clock.now() - RESERVE)
        return None if seconds == FOREVER else max(seconds, 0.0)

    async def _consult(self, command: ConsultBoundary) -> BoundaryDecided | RunFailed:
        """Ask the definition's boundary, unless it is the first turn, and its chooser of tools."""
        state, definition = self._state, self._definition
        waiting = len(state.steering) + len(state.follow_ups)
        view = TurnView(command.turn, state.transcript, state.history, command.ending, waiting)
        stop, choice = False, definition.tool_choice
        messages: tuple[UserMessage, ...] = ()
        asked = "boundary"
        try:
            if definition.boundary is not None and 0 < state.turn < command.turn and state.boundary is None:
                stop, messages = _decision(await awaited(definition.boundary(view)))
            asked = "tool_choice"
            if not isinstance(choice, str):
                choice = choice(view)
        except Exception as error:  # noqa: BLE001 - the definition's own code failed
            return RunFailed(Fault(asked, f"{asked} failed: {told(error)}"))
        if choice not in ("auto", "required", "none", *definition.toolbox):
            return RunFailed(Fault("tool_choice", f"tool_choice gave {choice!r}, which is no tool of this definition"))
        return BoundaryDecided(command.turn, choice, stop, messages)

    # --- output

    async def _check_output(self, command: CheckOutput) -> RunCompleted | OutputRejected | RunFailed:
        answer, definition = command.answer, self._definition
        if definition.strict and answer.stop_reason == "length":
            return OutputRejected(command.turn, ("the answer was cut at the output limit; give a shorter one",))
        if definition.strict and not answer.text.strip():
            return OutputRejected(command.turn, ("the answer was empty",))
        try:
            value = answer.text if definition.output_spec is None else find_json(answer.text)
            if definition.wraps_output and isinstance(value, dict) and value.keys() == {"response"}:
                value = value["response"]
            value = definition.output_schema.accept(value)
            typed = definition.output_schema.load(value)
            issues = await self._objections(typed) if definition.check_output else ()
        except InvalidValue as error:
            return OutputRejected(command.turn, tuple([str(issue) for issue in error.issues]))
        except Exception as error:  # noqa: BLE001 - the definition's own code failed
            return RunFailed(Fault("check_output", f"a check of the output failed: {told(error)}"))
        return OutputRejected(command.turn, issues) if issues else RunCompleted(value)

    async def _objections(self, output: object) -> tuple[str, ...]:
        issues: list[str] = []
        for check in self._definition.check_output:
            try:
                found = await awaited(check(output, self._state.history))
            except ValueError as error:
                found = told(error)
            if found is not None:
                objections = found if isinstance(found, list | tuple) else [found]
                if not all([isinstance(each, str | Issue) for each in objections]):
                    raise TypeError(f"a check gives None, text, an Issue or a list of these, not {found!r:.40}")
                issues += map(str, objections)
        return tuple(issues)

    # --- tools

    def _tool(self, name: str) -> Tool[..., object]:
        return self._definition.toolbox[name]

    async def _request_approval(self, command: RequestApproval) -> Sequence[Fact]:
        """Ask whoever decides. Whatever is not a clear answer leaves the call undecided."""
        approvals, call, request = self._ports.approvals, command.call, command.request
        if approvals is None:
            return ()
        assert self._state.opened is not None
        tool = self._tool(call.name)
        question = ApprovalRequest(
            self._state.opened.run_id,
            request.effect_id,
            call.name,
            tool.capability,
            copied(call.arguments),  # type: ignore[arg-type] # JSON, once admitted
            rendering(call.arguments),
            call.digest,
            call.needs_approval,
            request.expires_at,
            self._state.opened.principal,
        )
        try:
            answer = await approvals.request(question)
        except Exception:  # noqa: BLE001 - fail closed
            return ()
        if not is_decision(answer) or _has_expired(request, self._ports.clock.now()):
            return ()
        if answer.approved and call.needs_approval > 1 and (answer.level or 0) < call.needs_approval:
            return ()
        return (ApprovalDecided(call.turn, call.index, answer.approved, call.digest, answer.by, answer.reason),)

    async def _execute(self, command: ExecuteCall) -> Sequence[Fact]:
        call = command.call
        tool = self._tool(call.name)
        began = self._ports.clock.monotonic()
        if self._spending is not None:
            self._spending.dispatched(command)
        if tool.key is not None and self._ports.idempotency is not None:
            output = await self._execute_once(tool, tool.key, command)
        else:
            output = await self._run(tool, command)
        seconds = self._ports.clock.monotonic() - began
        if self._spending is not None:
            self._spending.spent(command, seconds=seconds)
        shown, is_error = self._shown(tool, output)
        value = output.details if isinstance(output, ToolOutput) else output
        terminate = isinstance(output, ToolOutput) and output.terminate
        if self._definition.result_guards:
            looked = await self._looked_at(tool, call, ToolOutput(shown, is_error, value, terminate))
            shown, is_error, value, terminate = _parts(looked), looked.is_error, looked.details, looked.terminate
        if is_error and isinstance(shown[0], Text):
            value = shown[0].text
        shown, value = bounded(shown, value, self._definition.limits.output_bytes)
        return (CallFinished(call.turn, call.index, command.attempt, value, shown, is_error, seconds, terminate),)

    async def _looked_at(self, tool: Tool[..., object], call: CallAdmitted, output: ToolOutput) -> ToolOutput:
        """Show a result to the definition's guards. One that fails makes it an error: the effect has happened."""
        state = self._state
        part = state.calls[call.index].part
        view = CallView(state.opened.run_id, call.turn, call.index, tool, part, call.arguments)  # type: ignore[union-attr,arg-type] # JSON
        try:
            for guard in self._definition.result_guards:
                seen = replace(output, details=copied(output.details))  # type: ignore[arg-type] # JSON
                said = await awaited(guard(replace(view, arguments=copied(call.arguments)), seen))  # type: ignore[arg-type] # JSON
                if said is None:
                    continue
                if not isinstance(said, ToolOutput):
                    raise TypeError(f"a result guard gives None or a ToolOutput, not {said!r:.40}")
                output = _recordable(said)
        except Exception as error:  # noqa: BLE001 - the effect has happened, and the model must know
            message = f"{tool.name} ran, but its result was refused: {told(error)}"
            return ToolOutput(message[:MESSAGE_LENGTH], is_error=True)
        return output

    async def _run(self, tool: Tool[..., object], command: ExecuteCall) -> object:
        """Call the function. Its value as JSON, or a ToolOutput; what it raises is an error that the model sees."""
        self._fence()  # its key may have taken longer than the lease
        call = command.call
        context = ToolContext(
            self._state.opened.run_id,  # type: ignore[union-attr]
            command.effect_id,
            call.turn,
            call.index,
            command.attempt,
            self._ports.tenant,
            self._updates(tool, call),
            self._ports.principal,
        )
        try:
            args, kwargs = tool.parameters.bind(call.arguments, context)  # type: ignore[arg-type] # JSON, once admitted
            if tool.is_async:
                value = await tool.function(*args, **kwargs)  # type: ignore[misc]
            else:
                # A decorator may hide that the function is asynchronous.
                value = await awaited(await asyncio.to_thread(called, tool.function, args, kwargs))
        except Exception as error:  # noqa: BLE001 - a failing tool is a result that the model sees
            return ToolOutput(told(error), is_error=True)
        try:
            return _recordable(value) if isinstance(value, ToolOutput) else plain(value)
        except Exception as error:  # noqa: BLE001 - the effect has happened, and the model must know
            return ToolOutput(f"{tool.name} ran, but its result is unreadable: {told(error)}"[:MESSAGE_LENGTH], True)

    async def _execute_once(
        self, tool: Tool[..., object], key: Callable[[Mapping[str, object]], str], command: ExecuteCall
    ) -> object:
        """Run under a key that outlives the run: what it gave before is given again, and nothing runs twice."""
        idempotency, call = self._ports.idempotency, command.call
        assert idempotency is not None and isinstance(call.arguments, dict)
        namespace = f"{self._ports.tenant}\n{tool.name}"  # a name has no line break, so no two pairs look alike
        try:
            name: object = key(copied(call.arguments))  # type: ignore[arg-type] # JSON, once admitted
            if not isinstance(name, str) or not name:
                raise TypeError(f"a key is text, not {name!r:.40}")
            begun: object = await idempotency.begin(namespace, name, call.digest)
            if isinstance(begun, Committed):
                return _restored(plain(begun.result))
        except Exception as error:  # noqa: BLE001 - fail closed: nothing was dispatched
            return ToolOutput(f"not executed: its key could not be reserved: {told(error)}", is_error=True)
        match begun:
            case InFlight():
                return ToolOutput("not executed: this key is in use, or what became of it is unknown", is_error=True)
            case Mismatch():
                return ToolOutput("not executed: this key was used with other arguments", is_error=True)
            case Fresh():
                pass
            case _:  # fail closed: nothing was dispatched
                return ToolOutput("not executed: its key could not be reserved", is_error=True)
        try:
            value = await self._run(tool, command)
        except asyncio.CancelledError:
            await idempotency.mark_unknown(namespace, name)
            raise
        try:
            if isinstance(value, ToolOutput) and value.is_error:
                await idempotency.mark_unknown(namespace, name)
            else:
                await idempotency.commit(namespace, name, _kept(value))
        except Exception:  # noqa: BLE001, S110 - the key stays taken, and the result is recorded all the same
            pass
        return value

    def _shown(self, tool: Tool[..., object], output: object) -> tuple[tuple[Part, ...], bool]:
        """What the model sees of an output, and whether it is an error."""
        if isinstance(output, ToolOutput):
            return _parts(output), output.is_error
        if tool.output is not None:
            try:
                output = tool.output.accept(output)  # type: ignore[arg-type]
            except InvalidValue as error:
                return (Text(f"{tool.name} ran, but its output is not valid: {error}"),), True
        return parts_of_output(output), False

    def _unknown(self, command: ExecuteCall, why: str) -> Sequence[Fact]:
        call = command.call
        tool = self._tool(call.name)
        if tool.replay == "safe":
            message = f"{tool.name} {why}" + (
                f" after {tool.timeout:g} s" if why == "timed out" and tool.timeout else ""
            )
            return (
                CallFinished(
                    call.turn, call.index, command.attempt, message, (Text(message),), True, tool.timeout or 0.0
                ),
            )
        if tool.replay == "idempotent" or tool.reconcile is not None:
            return ()
        if why == "it cancelled itself":
            return (CallFinished(call.turn, call.index, command.attempt, why, (Text(why),), True, 0.0),)
        return (CallInDoubt(call.turn, call.index, command.attempt, why),)

    async def _reconcile(self, command: Reconcile) -> Fact:
        call = command.call
        tool = self._tool(call.name)
        assert tool.reconcile is not None
        try:
            said = await tool.reconcile(call_key(self._ports.tenant, command.effect_id))
            if isinstance(said, Happened):
                said = Happened(plain(said.output))
            if isinstance(said, Happened | DidNotHappen):
                return await self._settled(tool, call, resolution(tool, call.turn, call.index, said, by="reconcile"))
            why = "reconcile does not know"
        except Exception as error:  # noqa: BLE001 - an answer that did not come is no answer
            why = f"reconcile failed: {told(error)}"
        return CallInDoubt(call.turn, call.index, 0, why[:MESSAGE_LENGTH])

    async def _settled(self, tool: Tool[..., object], call: CallAdmitted, said: CallResolved) -> CallResolved:
        """What `reconcile` *said*, as the definition's guards and limits let it be seen."""
        shown, value = said.parts, said.output
        if said.happened and self._definition.result_guards:
            looked = await self._looked_at(tool, call, ToolOutput(shown, details=value))
            shown, value = _parts(looked), looked.details
        shown, value = bounded(shown, value, self._definition.limits.output_bytes)
        return replace(said, output=value, parts=shown)

    def _updates(self, tool: Tool[..., object], call: CallAdmitted) -> Callable[[str], None]:
        progress = self._progress
        if progress is None:
            return lambda _: None

        def show(text: str) -> None:
            if call.turn == self._state.turn:
                progress(call.index, text)

        if tool.is_async:
            return show
        loop = asyncio.get_running_loop()

        def show_from_thread(text: str) -> None:
            if not loop.is_closed():  # an abandoned thread may outlive it
                loop.call_soon_threadsafe(show, text)

        return show_from_thread


def _has_expired(request: ApprovalRequested, now: float) -> bool:
    return request.expires_at is not None and now >= request.expires_at


def _parts(output: ToolOutput) -> tuple[Part, ...]:
    return (Text(output.content),) if isinstance(output.content, str) else tuple(output.content)


def _recordable(output: ToolOutput) -> ToolOutput:
    """*output* as the journal can hold it: its content in parts, at least one of them, and its details as JSON."""
    content = _parts(output)
    wrong = flaw_of_parts(content)
    if wrong:
        raise TypeError(f"the content of a ToolOutput is text or parts: {wrong}")
    return ToolOutput(content or (Text(""),), bool(output.is_error), plain(output.details), output.terminate is True)


OUTPUT: Final = "turnwright.output"


def _kept(value: object) -> object:
    """What a tool gave, as a key keeps it (JSON)."""
    if not isinstance(value, ToolOutput):
        return value
    return {OUTPUT: plain({"parts": _parts(value), "details": value.details, "terminate": value.terminate})}


def _restored(kept: object) -> object:
    """The inverse of `_kept`."""
    match kept:
        case {"turnwright.output": {"parts": parts, "details": details, "terminate": terminate}}:
            return ToolOutput(journal.parts_of(parts), details=details, terminate=terminate is True)
        case _:
            return kept


def _decision(said: object) -> tuple[bool, tuple[UserMessage, ...]]:
    """Whether a boundary stops the run, and what it says before the next turn."""
    match said:
        case None:
            return False, ()
        case Stop():
            return True, ()
        case Go(messages) if all([isinstance(each, UserMessage) for each in messages]):
            return False, tuple([_sound(each) for each in messages])
        case _:
            raise TypeError(f"a boundary gives None, Go with user messages, or Stop, not {said!r:.40}")


def _sound(message: UserMessage) -> UserMessage:
    """*message* as the journal can hold it."""
    wrong = flaw_of_parts(message.parts) or ("" if type(message.kind) is str else "its kind is no text")
    if wrong:
        raise TypeError(f"a message of a boundary holds parts: {wrong}")
    return replace(message, data=plain(message.data))


def _unfenced() -> None:
    """Nobody else could be at work."""


def _isolated(emit: Callable[[Delta], None]) -> Callable[[Delta], None]:
    def isolated(delta: Delta) -> None:
        try:
            emit(delta)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001, S110 - a sink never fails the step
            pass

    return isolated
