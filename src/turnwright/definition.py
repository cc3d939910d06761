"""An agent before it runs: instruction, tools, types, limits, and the fingerprint of all that a running run depends on.

Everything that can be wrong with it is found when it is built; nothing is looked up or compiled again while it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, get_args

from attrs import field

from turnwright.canonical import digest, plain
from turnwright.declarations import (
    AMOUNTS,
    CALLABLE,
    CALLABLES,
    COUNT,
    FLAG,
    NAME,
    OPTIONS,
    PLAIN,
    SECONDS,
    SIZE,
    TEXT,
    Rule,
    one_of,
    optional,
    refuse_unsound,
)
from turnwright.errors import DefinitionError, Issue
from turnwright.messages import Part, ToolCall, Transcript, UserMessage
from turnwright.schema import Schema, schema_of
from turnwright.tools import TOOL_CHOICES, Tool, ToolOutput, ToolSpec, tool
from turnwright.values import frozen

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    InputT = TypeVar("InputT", default=str)
    OutputT = TypeVar("OutputT", default=str)
else:
    from typing import TypeVar

    InputT = TypeVar("InputT")
    OutputT = TypeVar("OutputT")

__all__ = [
    "AgentDefinition",
    "AnyDefinition",
    "Block",
    "Boundary",
    "CallView",
    "Check",
    "Durability",
    "Go",
    "Guard",
    "Limits",
    "OutputSpec",
    "ResultGuard",
    "Rewrite",
    "RunCall",
    "Stop",
    "TurnView",
]

Durability: TypeAlias = Literal["none", "process", "power"]
"""What a journal survives: nothing; the death of any process; the loss of power."""


@frozen
class RunCall:
    """One finished tool call of a run, as checks and `tool_choice` functions see it. *output* is JSON."""

    turn: int
    name: str
    arguments: object
    output: object
    is_error: bool


@frozen
class TurnView:
    """What the definition's own code may look at before a turn: its number, the transcript, the calls so far.

    *ending* says that the run is about to end with the answer that it has; *waiting* counts the messages that wait to
    be delivered.
    """

    turn: int
    transcript: Transcript
    calls: Sequence[RunCall]
    ending: bool = False
    waiting: int = 0


@frozen
class CallView:
    """One tool call as guards see it: *call* as the model wrote it, *arguments* as they were validated."""

    run_id: str
    turn: int
    index: int
    tool: Tool[..., object]
    call: ToolCall
    arguments: Mapping[str, object]


@frozen
class Rewrite:
    """A guard's word that a call may go on with other *arguments*, which are validated again."""

    arguments: Mapping[str, object]


@frozen
class Block:
    """A guard's no, with a *reason* that the model is told. *terminate* as in `ToolOutput`."""

    reason: str
    terminate: bool = False


def _kept(messages: Iterable[UserMessage]) -> Sequence[UserMessage]:
    return tuple(messages)


@frozen
class Go:
    """A boundary's word that the run goes on. *messages* are said before the turn, and keep a run from ending."""

    messages: Sequence[UserMessage] = field(default=(), converter=_kept)


@frozen
class Stop:
    """A boundary's word that the run rests here. Resuming it goes on: the boundary is asked again, and cannot stop it
    before the same turn once more. Where the run is about to end, it ends.
    """


@frozen
class OutputSpec:
    """The shape that the final answer must have, as a JSON Schema whose root is an object."""

    name: str
    schema: Mapping[str, object]


CheckResult: TypeAlias = str | Issue | Sequence[str | Issue] | None

Check: TypeAlias = Callable[[OutputT, Sequence[RunCall]], CheckResult | Awaitable[CheckResult]]
"""Looks at a typed output and the run's calls; gives None if it is fine, else what is wrong in words for the model."""

GuardResult: TypeAlias = str | Block | Rewrite | None

Guard: TypeAlias = Callable[[CallView], GuardResult | Awaitable[GuardResult]]
"""Looks at a validated call: None allows it, `Block` or a string denies it, `Rewrite` changes its arguments."""

ResultGuard: TypeAlias = Callable[[CallView, ToolOutput], ToolOutput | Awaitable[ToolOutput | None] | None]
"""Looks at what a call gave before anybody else sees it: None keeps it, a `ToolOutput` takes its place."""

BoundaryResult: TypeAlias = Go | Stop | None

Boundary: TypeAlias = Callable[[TurnView], BoundaryResult | Awaitable[BoundaryResult]]
"""Looks at the run before every turn but the first, and before it ends: None lets it take its course."""

ToolChooser: TypeAlias = str | Callable[[TurnView], str]


_LIMITS: Final[tuple[tuple[str, Rule], ...]] = (
    ("requests", optional(COUNT)),
    ("input_tokens", optional(COUNT)),
    ("output_tokens", optional(COUNT)),
    ("tool_calls", optional(COUNT)),
    ("calls_per_turn", SIZE),
    ("calls_at_once", optional(SIZE)),
    ("argument_bytes", SIZE),
    ("output_bytes", SIZE),
    ("model_seconds", SECONDS),
)


@frozen
class Limits:
    """What one run may use in all; None is no limit. Reaching one suspends the run with reason `budget`."""

    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tool_calls: int | None = None
    calls_per_turn: int = 64
    calls_at_once: int | None = None
    """How many calls of a turn run together; the next so many start when these have ended."""
    argument_bytes: int = 262_144
    output_bytes: int = 262_144
    """How much of one tool result the model is shown; the rest is cut and marked."""
    model_seconds: float = 600.0

    def __attrs_post_init__(self) -> None:
        refuse_unsound("limits: ", self, _LIMITS)


_RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("name", NAME),
    ("instruction", TEXT),
    ("tools", (lambda value: isinstance(value, tuple) and CALLABLES[0](value), "a list of tools and functions")),
    ("render", optional(PLAIN)),
    ("check_output", CALLABLES),
    (
        "tool_choice",
        (lambda value: isinstance(value, str) or PLAIN[0](value), "a word, a tool's name or a plain function"),
    ),
    ("guards", CALLABLES),
    ("result_guards", CALLABLES),
    ("strict", FLAG),
    ("boundary", optional(CALLABLE)),
    ("repairs", COUNT),
    ("options", OPTIONS),
    ("limits", (lambda value: isinstance(value, Limits), "a Limits")),
    ("approval_seconds", optional(SECONDS)),
    ("cost", AMOUNTS),
    ("durability", one_of(*get_args(Durability))),
    ("version", TEXT),
    (
        "compatible_with",
        (lambda value: isinstance(value, tuple) and all([isinstance(each, str) for each in value]), "fingerprints"),
    ),
)


def _tools(given: Sequence[Tool[..., object] | Callable[..., object]]) -> Sequence[Tool[..., object]]:
    """Make tools of plain functions. What is neither is left for the rules to refuse."""
    if not isinstance(given, Sequence):
        return given  # type: ignore[unreachable]
    return tuple([_tool(each) for each in given])


def _names(given: Sequence[str]) -> Sequence[str]:
    return tuple(given) if isinstance(given, list | tuple) else given


def _tool(given: object) -> Tool[..., object]:
    return tool(given) if callable(given) and not isinstance(given, Tool) else given  # type: ignore[return-value]


@frozen(eq=False, slots=False)
class AgentDefinition(Generic[InputT, OutputT]):
    """An agent before it runs.

    *input* and *output* are Python types or JSON Schemas. *render* makes the first user message of an input; without
    it text stays text and all else becomes JSON. *check_output* functions see the typed output and the run's calls;
    what they object to goes back to the model, at most *repairs* times; so does, when *strict*, an answer that is
    empty or was cut at its length. *tool_choice* is `auto`, `required`, `none`,
    a tool's name, or a function of the turn that gives one of these. *guards* see each validated call before
    approval, *result_guards* see what it gave. *boundary* may stop the run between turns, or keep it from ending.
    *options* go to the model port as they are. *approval_seconds* is how long a request for approval stands. *cost* is
    reserved for each model request, by budget axis. *compatible_with* are the fingerprints of earlier versions whose
    runs this one may go on with, as it may where it only has more tools; a waiting call whose contract it changed is
    not for it to run.

    Raises DefinitionError, naming the thing, for whatever cannot work.
    """

    name: str
    instruction: str
    tools: Sequence[Tool[..., object]] = field(default=(), converter=_tools)
    input: type[InputT] | Mapping[str, object] = str  # type: ignore[assignment]
    output: type[OutputT] | Mapping[str, object] = str  # type: ignore[assignment]
    render: Callable[[InputT], str | Sequence[Part]] | None = None
    check_output: Sequence[Check[OutputT]] = ()
    tool_choice: ToolChooser = "auto"
    guards: Sequence[Guard] = ()
    result_guards: Sequence[ResultGuard] = ()
    boundary: Boundary | None = None
    repairs: int = 2
    strict: bool = True
    options: Mapping[str, object] = field(factory=dict)
    limits: Limits = Limits()
    approval_seconds: float | None = None
    cost: Mapping[str, int] = field(factory=dict)
    durability: Durability = "none"
    version: str = ""
    compatible_with: Sequence[str] = field(default=(), converter=_names)

    def __attrs_post_init__(self) -> None:
        set_once = object.__setattr__
        refuse_unsound(f"agent {self.name!r:.80}: ", self, _RULES)
        set_once(self, "check_output", tuple(self.check_output))
        set_once(self, "guards", tuple(self.guards))
        set_once(self, "result_guards", tuple(self.result_guards))
        set_once(self, "options", dict(self.options))
        set_once(self, "cost", dict(self.cost))
        set_once(self, "toolbox", {each.name: each for each in self.tools})
        self._check()
        set_once(self, "specs", tuple([each.spec for each in self.tools]))
        set_once(self, "input_schema", self._schema("input", self.input))
        set_once(self, "output_schema", self._schema("output", self.output))
        set_once(self, "output_spec", _output_spec(self.output_schema.document))

    toolbox: Mapping[str, Tool[..., object]] = field(init=False, repr=False)
    specs: tuple[ToolSpec, ...] = field(init=False, repr=False)
    input_schema: Schema[InputT] = field(init=False, repr=False)
    output_schema: Schema[OutputT] = field(init=False, repr=False)
    output_spec: OutputSpec | None = field(init=False, repr=False)
    """What the model port is told of the output; None for plain text."""

    @property
    def wraps_output(self) -> bool:
        """Whether the model writes the output as the `response` of an object, as providers want objects."""
        return self.output_spec is not None and self.output_spec.schema is not self.output_schema.document

    def _check(self) -> None:
        if len(self.toolbox) < len(self.tools):
            names = [each.name for each in self.tools]
            twice = next(name for name in names if names.count(name) > 1)
            owners = " and ".join([_owner(each) for each in self.tools if each.name == twice])
            self._refuse(f"two tools are named {twice!r} ({owners}); rename one with @tool(name=...)")
        if isinstance(self.tool_choice, str) and self.tool_choice not in (*TOOL_CHOICES, *self.toolbox):
            self._refuse(
                f"tool_choice {self.tool_choice!r} is no tool; it is auto, required, none or one of {[*self.toolbox]}"
            )
        if self.tool_choice == "required" and not self.tools:
            self._refuse("tool_choice 'required' needs a tool")

    def _schema(self, part: str, declared: object) -> Schema[object]:
        try:
            return schema_of(declared)
        except DefinitionError as error:
            message = f"agent {self.name!r}: {part}: {error}"
            raise DefinitionError(message) from error

    def _refuse(self, why: str) -> None:
        message = f"agent {self.name!r}: {why}"
        raise DefinitionError(message)

    @cached_property
    def contracts(self) -> Mapping[str, str]:
        """The digest of each tool's contract, by the tool's name."""
        return {each.name: digest(each.contract()) for each in self.tools}

    @cached_property
    def base(self) -> str:
        """The digest of what a running run depends on beside tools: schemas, instruction, options; no source text."""
        return digest(
            plain(
                {
                    "engine": 1,
                    "name": self.name,
                    "instruction": self.instruction,
                    "input": self.input_schema.document,
                    "output": self.output_schema.document,
                    "tool_choice": self.tool_choice if isinstance(self.tool_choice, str) else "function",
                    "repairs": self.repairs,
                    "options": dict(self.options),
                    "version": self.version,
                }
            )
        )

    @cached_property
    def fingerprint(self) -> str:
        """The digest of all that a running run depends on. Limits are how much and not what, and no part of it."""
        return digest({"base": self.base, "tools": {**self.contracts}})

    def may_go_on(self, *, fingerprint: str, base: str, contracts: Mapping[str, str]) -> bool:
        """Whether this may go on with a run of another version: it says so, or it only has more tools."""
        return fingerprint in self.compatible_with or (
            base == self.base and contracts.items() <= self.contracts.items()
        )


def _output_spec(document: Mapping[str, object]) -> OutputSpec | None:
    if document.get("type") == "string" and not document.keys() - {"type", "description"}:
        return None
    if document.get("type") == "object":
        return OutputSpec("output", document)
    inner = {key: value for key, value in document.items() if key != "$defs"}
    wrapped: dict[str, object] = {"type": "object", "properties": {"response": inner}, "required": ["response"]}
    wrapped["additionalProperties"] = False
    if "$defs" in document:
        wrapped["$defs"] = document["$defs"]
    return OutputSpec("output", wrapped)


AnyDefinition: TypeAlias = AgentDefinition[Any, Any]
"""A definition whose types do not matter here. `Any`: a generic class is invariant in what it both takes and gives."""


def _owner(tool: Tool[..., object]) -> str:
    function = tool.function
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"
