"""The tool contract, and `@tool`, which makes one from a function.

A contract says what the model is told (name, description, parameters), what admission asks before a call may run
(capability, approval, policy, cost), and what recovery may do when a call was started and its result is unknown
(replay).
"""

from __future__ import annotations

import inspect
from base64 import b32encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast, overload

import msgspec
from attrs import field

from turnwright.canonical import JSON, plain
from turnwright.declarations import (
    AMOUNTS,
    CALLABLE,
    CAPABILITY,
    COUNT,
    DESCRIPTIVE,
    FLAG,
    NAME,
    PLAIN,
    SECONDS,
    SIZE,
    TEXT,
    Rule,
    one_of,
    optional,
    refuse_unsound,
)
from turnwright.errors import DefinitionError
from turnwright.messages import Part, Text
from turnwright.schema import Parameters, Schema, parameters_of, schema_of
from turnwright.values import frozen

__all__ = [
    "TOOL_CHOICES",
    "Approval",
    "DidNotHappen",
    "Happened",
    "Replay",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolSpec",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Replay: TypeAlias = Literal["never", "safe", "idempotent"]
"""What may be done with a call that was started and whose result is unknown.

`never` (the default): it is in doubt, and a person or `reconcile` says what happened. `safe`: it runs again.
`idempotent`: it runs again under the same key, which the target must honour.
"""

Approval: TypeAlias = Literal["none", "required"] | int | Callable[[Mapping[str, object]], bool]
"""Who must say yes before a call runs: nobody; somebody; somebody of at least this level (1 and up); or a predicate
over the validated arguments that says whether somebody must. A predicate that raises counts as yes, somebody must."""


@frozen
class ToolSpec:
    """What a model is told of a tool: its *name*, *description* and the JSON Schema of its *parameters* (an object)."""

    name: str
    description: str
    parameters: Mapping[str, object]


@frozen
class ToolOutput:
    """What a tool may return instead of a plain value: *content* for the model, an error mark, *details* for people.

    *terminate*: the model need not be asked about this result. If every result of a turn says so, the run rests.
    """

    content: str | Sequence[Part]
    is_error: bool = False
    details: object = None
    terminate: bool = False


@frozen
class Happened:
    """A `reconcile` function's or a person's word that an effect in doubt took place, with what it returned."""

    output: object = None


@frozen
class DidNotHappen:
    """The word that an effect in doubt did not take place. The model may ask again: a new call, a new approval."""


@frozen
class ToolContext:
    """What a tool may know of its call. A parameter annotated with this class receives it and is hidden from the model.

    *attempt* counts from 1. *principal* is on whose behalf the run acts.
    """

    run_id: str
    effect_id: str
    turn: int
    index: int
    attempt: int
    _tenant: str = field(repr=False)
    _update: Callable[[str], None] = field(repr=False, eq=False)
    principal: str = ""

    @property
    def key(self) -> str:
        """The idempotency key to send along: the same on every attempt, in every process; safe in URLs and headers."""
        return call_key(self._tenant, self.effect_id)

    def update(self, text: str) -> None:
        """Show *text* as progress to whoever watches. Dropped once the call has its result."""
        self._update(text)


@frozen(eq=False)
class Tool(Generic[P, R_co]):
    """A function under a contract. Call it like the function it wraps; the engine runs it only after admission.

    *label* is what people are shown, the name by default. *timeout* is in seconds. *max_failures* is how often in a row
    the tool may fail before further calls are refused.
    *policy* names what the execution policy port must be able to enforce. *cost* is reserved per call, by budget axis.
    """

    function: Callable[P, R_co | Awaitable[R_co]] = field(repr=False)
    parameters: Parameters = field(repr=False)
    name: str
    description: str
    label: str = ""
    output: Schema[object] | None = field(default=None, repr=False)
    capability: str = ""
    approval: Approval = "none"
    replay: Replay = "never"
    reconcile: Callable[[str], Awaitable[Happened | DidNotHappen | None]] | None = field(default=None, repr=False)
    prepare: Callable[[object], object] | None = field(default=None, repr=False)
    key: Callable[[Mapping[str, object]], str] | None = field(default=None, repr=False)
    cost: Mapping[str, int] = field(factory=dict)
    sensitivity: Literal["public", "internal", "sensitive", "secret"] = "internal"
    annotations: Mapping[str, object] = field(factory=dict)
    policy: tuple[str, ...] = ()
    sequential: bool = False
    timeout: float | None = 300.0
    max_attempts: int = 3
    max_failures: int | None = None
    version: str = ""
    is_async: bool = field(init=False, repr=False)
    spec: ToolSpec = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        refuse_unsound(f"tool {self.name!r:.80}: ", self, _RULES)
        target = self.function
        is_async = inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(getattr(target, "__call__", None))  # noqa: B004
        while isinstance(target, partial):
            target = target.func
            is_async = is_async or inspect.iscoroutinefunction(target)
        object.__setattr__(self, "label", self.label or self.name)
        object.__setattr__(self, "is_async", is_async)
        object.__setattr__(self, "spec", ToolSpec(self.name, self.description, self.parameters.schema.document))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co | Awaitable[R_co]:
        """Call the function itself, past every check: for tests and for your own code, not for models."""
        return self.function(*args, **kwargs)

    def contract(self) -> dict[str, JSON]:
        """The part of the contract that a running run depends on, as JSON: two equal contracts are interchangeable."""
        said = plain(
            {
                "name": self.name,
                "capability": self.capability,
                "approval": self.approval if isinstance(self.approval, str | int) else "predicate",
                "replay": self.replay,
                "cost": self.cost,
                "policy": self.policy,
                "version": self.version,
            }
        )
        assert isinstance(said, dict)
        output = None if self.output is None else {**self.output.document}
        return {**said, "parameters": {**self.parameters.schema.document}, "output": output}


def _is_approval(approval: object) -> bool:
    if isinstance(approval, int):
        return not isinstance(approval, bool) and approval > 0
    return approval in ("none", "required") or PLAIN[0](approval)


TOOL_CHOICES: Final = ("auto", "required", "none")
"""The words of a tool choice that are no tool's name."""

_RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("name", NAME),
    (
        "name",
        (lambda value: value not in TOOL_CHOICES, f"none of {', '.join(TOOL_CHOICES)}: they are words of tool_choice"),
    ),
    ("description", TEXT),
    ("label", TEXT),
    ("capability", CAPABILITY),
    ("approval", (_is_approval, "none, required, a level of 1 or more, or a plain predicate")),
    ("replay", one_of("never", "safe", "idempotent")),
    ("reconcile", optional(CALLABLE)),
    ("prepare", optional(PLAIN)),
    ("key", optional(PLAIN)),
    ("cost", AMOUNTS),
    ("sensitivity", one_of("public", "internal", "sensitive", "secret")),
    ("annotations", DESCRIPTIVE),
    (
        "policy",
        (lambda value: isinstance(value, tuple) and all([isinstance(each, str) for each in value]), "a list of names"),
    ),
    ("sequential", FLAG),
    ("timeout", optional(SECONDS)),
    ("timeout", (lambda value: value is None or value <= 86_400, "at most 86,400 seconds, or None")),  # type: ignore[operator]
    ("max_attempts", SIZE),
    ("max_failures", optional(COUNT)),
    ("version", TEXT),
)


@overload
def tool(function: Callable[P, Awaitable[R]], /) -> Tool[P, R]: ...
@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    label: str = "",
    parameters: Mapping[str, object] | None = None,
    output: object = None,
    capability: str | None = None,
    approval: Approval = "none",
    replay: Replay = "never",
    reconcile: Callable[[str], Awaitable[Happened | DidNotHappen | None]] | None = None,
    prepare: Callable[[object], object] | None = None,
    key: Callable[[Mapping[str, object]], str] | None = None,
    cost: Mapping[str, int] | None = None,
    sensitivity: Literal["public", "internal", "sensitive", "secret"] = "internal",
    annotations: Mapping[str, object] | None = None,
    policy: Sequence[str] = (),
    sequential: bool = False,
    timeout: float | None = 300.0,
    max_attempts: int = 3,
    max_failures: int | None = None,
    version: str = "",
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., object] | None = None, /, **contract: object) -> object:
    """Make a tool from a function; its signature and docstring become what the model is told.

    ::

        @tool(approval="required")
        async def refund(order_id: str, cents: Annotated[int, "amount in cents"]) -> str:
            '''Pay money back for an order.'''

    *parameters* replaces the derived JSON Schema; *output*, a type or a JSON Schema, checks what the function
    returns. *prepare* may reshape raw arguments before validation, *key* derives an idempotency key that outlives the
    run. A contract that cannot work raises DefinitionError here.
    """
    if function is None:
        return lambda function: _make(function, contract)
    return _make(function, contract)


def _make(function: Callable[..., object], contract: dict[str, object]) -> Tool[..., object]:
    if isinstance(function, Tool):
        message = f"tool {function.name!r} is a tool already; decorate the function once"
        raise DefinitionError(message)
    given = {name: value for name, value in contract.items() if value is not None}
    name = given.pop("name", None) or _name(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = (
            f"tool {name!r}: a generator gives no result; return it whole, and tell progress by ToolContext.update"
        )
        raise DefinitionError(message)
    policy = given.pop("policy", ())
    document = given.pop("parameters", None)
    try:
        parameters = parameters_of(function, context=ToolContext)
        if document is not None:
            parameters = parameters.described_by(schema_of(document))
        output = given.pop("output", None)
        schema = None if output is None else schema_of(output)
    except DefinitionError as error:
        message = f"tool {name!r}: {error}"
        raise DefinitionError(message) from error
    return Tool(
        function=function,
        parameters=parameters,
        name=name,  # type: ignore[arg-type]
        description=given.pop("description", None) or parameters.description,  # type: ignore[arg-type]
        output=schema,
        capability=given.pop("capability", None) or f"tool.{name}",  # type: ignore[arg-type]
        policy=tuple(policy) if isinstance(policy, list | tuple | frozenset) else policy,  # type: ignore[arg-type]
        timeout=contract.get("timeout", 300.0),  # type: ignore[arg-type]
        **{name: value for name, value in given.items() if name != "timeout"},  # type: ignore[arg-type]
    )


def _name(function: object) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


async def awaited(value: R | Awaitable[R]) -> R:
    """What *value* is, or what it comes to: what a caller gives may be a plain function or an async one."""
    return cast("R", await value if inspect.isawaitable(value) else value)


def called(function: Callable[..., R], args: Sequence[object], kwargs: Mapping[str, object]) -> R:
    """Call *function* in a thread, out of which no StopIteration finds its way: its caller would wait for ever."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("raised StopIteration") from error


MESSAGE_LENGTH: Final = 4000


def told(error: BaseException) -> str:
    """An exception in words for a model or a person, bounded: what it says, or at least what it is."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001 - it is broken in this as well
        said = ""
    return said[:MESSAGE_LENGTH] or type(error).__name__


def call_key(tenant: str, effect_id: str) -> str:
    """The idempotency key of a call."""
    return "tw1-" + b32encode(blake2b(f"{tenant}\n{effect_id}".encode(), digest_size=20).digest()).decode().lower()


def parts_of_output(output: object) -> tuple[Part, ...]:
    """What the model sees of a tool's JSON output: text as it is, all else as JSON, falsy or not."""
    return (Text(output if isinstance(output, str) else _encode(output).decode()),)


def bounded(parts: tuple[Part, ...], output: object, size: int) -> tuple[tuple[Part, ...], object]:
    """*parts* with no more than *size* characters of text, and *output*; what is cut says so, and takes its place."""
    if sum([len(part.text) for part in parts if isinstance(part, Text)]) <= size:
        return parts, output
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, Text):
            length, left = len(part.text), size
            size = max(0, size - length)
            cut = f"{part.text[:left]}\n[cut: {length:,} characters, {left:,} shown]" if length > left else part.text
            kept.append(Text(cut))
        else:
            kept.append(part)
    return tuple(kept), "".join([part.text for part in kept if isinstance(part, Text)])


_encode = msgspec.json.Encoder().encode
