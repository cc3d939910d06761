"""Code between the model and the world, which no text can talk past. Rule: in the order of their declaration, each sees
what the one before made of it, and the first denial ends it; one that fails lets nothing pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from attrs import field

from turnwright.definition import Block, CallView, Guard, Rewrite
from turnwright.errors import DefinitionError
from turnwright.harness.calling import Fitted, fitted
from turnwright.harness.context import ServicesT, TurnContext
from turnwright.harness.events import AgentEvent, GuardrailEvent
from turnwright.values import frozen

__all__ = [
    "Deny",
    "GuardedCall",
    "Guardrail",
    "RewriteInput",
    "RewriteText",
    "define_guardrail",
    "engine_guard",
    "looked",
]


@frozen
class GuardedCall:
    """A tool call as a guardrail sees it. *input* is validated; changing it changes nothing, `RewriteInput` does."""

    id: str
    name: str
    input: Mapping[str, object]


@frozen
class Deny:
    """A guardrail's no. Of a call, the model is told the *reason*."""

    reason: str = ""


@frozen
class RewriteInput:
    """A guardrail's word that a call may go on with another *input*, which is validated again."""

    input: Mapping[str, object]


@frozen
class RewriteText:
    """A guardrail's word that *text* takes the answer's place."""

    text: str


CallVerdict: TypeAlias = Deny | RewriteInput | None
TextVerdict: TypeAlias = Deny | RewriteText | None

CallGuard: TypeAlias = (
    Callable[[GuardedCall], CallVerdict | Awaitable[CallVerdict]]
    | Callable[[GuardedCall, TurnContext[ServicesT]], CallVerdict | Awaitable[CallVerdict]]
)
TextGuard: TypeAlias = (
    Callable[[str], TextVerdict | Awaitable[TextVerdict]]
    | Callable[[str, TurnContext[ServicesT]], TextVerdict | Awaitable[TextVerdict]]
)

Turns: TypeAlias = Callable[[str], "TurnContext[object]"]
"""Finds the context of a run's turn."""


@frozen(eq=False)
class Guardrail:
    """A declared guardrail; see `define_guardrail`."""

    name: str
    tool_call: Fitted | None = field(repr=False)
    output: Fitted | None = field(repr=False)


def define_guardrail(
    *,
    name: str,
    tool_call: CallGuard[ServicesT] | None = None,
    output: TextGuard[ServicesT] | None = None,
) -> Guardrail:
    """Declare a guardrail.

    *tool_call* sees each validated call before it runs, *output* the text of the answer that ends the turn. Both may
    take the TurnContext too, and give None to allow it, `Deny`, or `RewriteInput` and `RewriteText`. What text of a
    round with calls says is not guarded: look at the calls.
    """
    if tool_call is None and output is None:
        raise DefinitionError(f"guardrail {name!r:.80} looks at nothing; give it tool_call= or output=")
    owner = f"guardrail {name!r:.80}"
    return Guardrail(
        name,
        None if tool_call is None else fitted(tool_call, owner=f"{owner}: tool_call"),
        None if output is None else fitted(output, owner=f"{owner}: output"),
    )


def engine_guard(name: str, guard: Fitted, context_of: Turns) -> Guard:
    """The engine's guard that a guardrail's look at calls stands for."""

    async def look(view: CallView) -> Block | Rewrite | None:
        context = context_of(view.run_id)
        id = view.call.id or f"{view.turn}.{view.index}"

        def tell(action: str, reason: str = "") -> AgentEvent:
            return GuardrailEvent(name, "tool_call", action, reason, view.tool.name, id)  # type: ignore[arg-type]

        try:
            verdict = await guard(GuardedCall(id, view.tool.name, view.arguments), context)
        except Exception:
            context.emit(tell("deny", "it failed"))
            raise
        match verdict:
            case None:
                return None
            case Deny(str() as reason):
                context.emit(tell("deny", reason))
                return Block(f"denied by guardrail {name!r}" + (f": {reason}" if reason else ""))
            case RewriteInput(changed):
                context.emit(tell("rewrite"))
                return Rewrite(changed)
            case other:
                raise TypeError(f"guardrail {name!r} gives None, Deny or RewriteInput, not {type(other).__name__}")

    return look


async def looked(guardrails: list[Guardrail], text: str, context: TurnContext[object]) -> str | Deny:
    """What the guardrails make of an answer. Raises what one of them raises."""
    for each in guardrails:
        if each.output is None:
            continue
        match await each.output(text, context):
            case None:
                continue
            case Deny(reason) as deny:
                context.emit(GuardrailEvent(each.name, "output", "deny", reason))
                return deny
            case RewriteText(str() as changed):
                context.emit(GuardrailEvent(each.name, "output", "rewrite"))
                text = changed
            case other:
                raise TypeError(f"guardrail {each.name!r} gives None, Deny or RewriteText, not {type(other).__name__}")
    return text
