"""What a tool call passes before it may run: one fixed order for every tool, each stage recorded, fail closed.

    limit        not too many calls in one turn, arguments not too large, a tool that keeps failing is held back
    lookup       the definition has a tool of that name
    prepare      the raw text is a JSON object; the tool's `prepare` may reshape it
    validate     coerced, checked and defaulted by the tool's schema
    capability   granted to this run
    policy       the execution policy port can enforce what the tool needs
    guard        the definition's guards allow, block or rewrite; a rewrite is validated again

What comes after, approval, deadline, budget, idempotency, intent, execution, output validation and settlement, is the
driver's, in this order. A refusal at any stage is a result that the model sees.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from types import NoneType
from typing import TypeGuard

from attrs import evolve as replace

from turnwright.canonical import JSON, decode, digest, plain
from turnwright.commands import AdmitCalls
from turnwright.definition import AnyDefinition, Block, CallView, Rewrite
from turnwright.errors import InvalidValue
from turnwright.facts import CallAdmitted, CallRefused, RefusalStage
from turnwright.messages import ToolCall
from turnwright.ports import Decision, Policy
from turnwright.schema.coercion import copied
from turnwright.state import RunState
from turnwright.tools import Tool, awaited, told
from turnwright.wiring import Ports

__all__ = ["admit", "is_decision", "rendering", "unenforced"]

Admission = CallAdmitted | CallRefused


async def admit(definition: AnyDefinition, state: RunState, ports: Ports, command: AdmitCalls) -> list[Admission]:
    """Take the calls through every stage, one after another in the order of the answer."""
    return [await _admit(definition, state, ports, command.turn, index, call) for index, call in command.calls]


class _Refused(Exception):
    """A stage said no."""

    def __init__(self, stage: RefusalStage, message: str, *, terminate: bool = False) -> None:
        self.stage: RefusalStage = stage
        self.message = message
        self.terminate = terminate


async def _admit(
    definition: AnyDefinition, state: RunState, ports: Ports, turn: int, index: int, call: ToolCall
) -> Admission:
    try:
        if index >= definition.limits.calls_per_turn:
            raise _Refused("limit", f"not executed: at most {definition.limits.calls_per_turn} calls in one turn")
        if _exceeds(call.arguments, definition.limits.argument_bytes):
            raise _Refused("limit", f"not executed: the arguments exceed {definition.limits.argument_bytes:,} bytes")
        tool = _look_up(definition, state, call)
        arguments = _validate(tool, _prepare(tool, call.arguments))
        _permit(tool, ports)
        if definition.guards:
            assert state.opened is not None
            view = CallView(state.opened.run_id, turn, index, tool, call, arguments)
            arguments = await _guard(definition, view, arguments)
    except _Refused as refused:
        return CallRefused(turn, index, refused.stage, refused.message, refused.terminate)
    needs_approval, contract = _approval(tool, arguments), definition.contracts[tool.name]
    return CallAdmitted(turn, index, tool.name, arguments, digest(arguments), needs_approval, contract)


def _exceeds(text: str, size: int) -> bool:
    """Whether *text* has more than *size* bytes; only a text that may is encoded."""
    return len(text) * 4 > size and (len(text) > size or len(text.encode("utf-8", "replace")) > size)


def _look_up(definition: AnyDefinition, state: RunState, call: ToolCall) -> Tool[..., object]:
    tool = definition.toolbox.get(call.name)
    if tool is None:
        known = ", ".join(definition.toolbox) or "none"
        raise _Refused("lookup", f"there is no tool {call.name[:128]!r}; available tools: {known}")
    if tool.max_failures is not None and state.failures.get(tool.name, 0) > tool.max_failures:
        raise _Refused("limit", f"{tool.name} exceeded max retries of {tool.max_failures} and is not called again")
    return tool


def _prepare(tool: Tool[..., object], text: str) -> JSON:
    takes_nothing = not tool.parameters.schema.document.get("properties")
    if takes_nothing and text.strip() in ("", "null"):
        return {}
    try:
        raw = decode(text)
        if tool.prepare is not None:
            raw = tool.prepare(raw)  # type: ignore[assignment]
    except InvalidValue as error:
        raise _Refused("prepare", f"the arguments are not valid JSON: {error}") from error
    except Exception as error:
        raise _Refused("prepare", f"the arguments could not be prepared: {told(error)}") from error
    if not isinstance(raw, dict):
        raise _Refused("prepare", f"expected a JSON object of arguments, got {_kind(raw)}")
    return raw


def _validate(tool: Tool[..., object], raw: JSON) -> dict[str, JSON]:
    try:
        arguments = tool.parameters.schema.accept(raw)
    except InvalidValue as error:
        lines = "\n".join([f"- {issue}" for issue in error.issues])
        raise _Refused("validate", f"the arguments of {tool.name} are not valid:\n{lines}") from error
    assert isinstance(arguments, dict)
    return arguments


def _permit(tool: Tool[..., object], ports: Ports) -> None:
    if ports.capabilities is not None and tool.capability not in ports.capabilities:
        raise _Refused(
            "capability", f"{tool.name} needs the capability {tool.capability!r}, which this run does not have"
        )
    if missing := unenforced(tool, ports.policy):
        raise _Refused("policy", f"{tool.name} cannot run here: {', '.join(missing)} cannot be enforced")


def unenforced(tool: Tool[..., object], policy: Policy | None) -> Sequence[str]:
    """Name what *tool* needs and the policy port cannot enforce; all of it if the port cannot say."""
    if not tool.policy or policy is None:
        return tool.policy
    try:
        if policy.can_satisfy(tool.policy) is True:
            return ()
        return [str(each) for each in policy.limitations(tool.policy)] or tool.policy
    except Exception:  # noqa: BLE001 - fail closed
        return tool.policy


async def _guard(definition: AnyDefinition, view: CallView, arguments: dict[str, JSON]) -> dict[str, JSON]:
    tool = view.tool
    for guard in definition.guards:
        try:
            # A copy: a change goes through Rewrite and validation.
            verdict = await awaited(guard(replace(view, arguments=copied(arguments))))  # type: ignore[arg-type]
        except Exception as error:
            raise _Refused("guard", f"{tool.name} was refused: its guard failed ({type(error).__name__})") from error
        match verdict:
            case None:
                pass
            case Rewrite(changed):
                arguments = _validate(tool, _written(tool, changed))
            case str():
                raise _Refused("guard", verdict or f"{tool.name} was refused")
            case Block(str() as reason, bool() as terminate):
                raise _Refused("guard", reason or f"{tool.name} was refused", terminate=terminate)
            case _:
                raise _Refused("guard", f"{tool.name} was refused: its guard gave {type(verdict).__name__}")
    return arguments


def _written(tool: Tool[..., object], changed: object) -> JSON:
    """What a guard wrote, as JSON."""
    try:
        written = plain(changed)
    except InvalidValue as error:
        raise _Refused("guard", f"{tool.name} was refused: its guard wrote what is no JSON: {error}") from error
    if not isinstance(written, dict):
        raise _Refused(
            "guard", f"{tool.name} was refused: its guard wrote {_kind(written)}, not an object of arguments"
        )
    return written


def _approval(tool: Tool[..., object], arguments: dict[str, JSON]) -> int:
    """The level of approval that the call needs; 0 for none."""
    match tool.approval:
        case "none":
            return 0
        case "required":
            return 1
        case int():
            return tool.approval
        case predicate:
            assert callable(predicate)
            try:
                return 1 if predicate(copied(arguments)) else 0  # type: ignore[arg-type]
            except Exception:  # noqa: BLE001 - a question that cannot be answered is put to a person
                return 1


def is_decision(answer: object) -> TypeGuard[Decision]:
    """Whether *answer* is a clear yes or no that the journal can hold. What is true without being True is no yes."""
    if not isinstance(answer, Decision):
        return False
    held: list[object] = [answer.approved, answer.by, answer.reason, answer.level]
    kinds = [(bool,), (str, NoneType), (str,), (int, NoneType)]
    return all([type(value) in kind for value, kind in zip(held, kinds, strict=True)])


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
    return names.get(type(value), "null")


def rendering(arguments: object) -> str:
    """Show validated arguments whole: what is seen is what runs; nothing in them can hide or turn the text around."""
    text = json.dumps(arguments, ensure_ascii=False, indent=2)
    if text.isascii():
        return text
    return "".join(
        [
            f"\\u{ord(each):04x}"
            if unicodedata.category(each) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and each != "\n"
            else each
            for each in text
        ]
    )
