"""What the model may call: a function, or an endpoint behind HTTP. Rule: a tool is declared once, and the engine's
tool that it becomes finds its turn by the run that it is called in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, overload, runtime_checkable

from attrs import field

from turnwright.errors import DefinitionError
from turnwright.harness.calling import Fitted, fitted
from turnwright.harness.context import ServicesT, TurnContext
from turnwright.harness.resources import Resource
from turnwright.schema import Schema, schema_of
from turnwright.tools import Approval, Replay, Tool, ToolContext, tool
from turnwright.values import frozen

__all__ = ["DefinedTool", "Endpoint", "define_tool", "engine_tool", "reader"]

InputT = TypeVar("InputT")

Execute: TypeAlias = (
    Callable[[InputT], object | Awaitable[object]]
    | Callable[[InputT, TurnContext[ServicesT]], object | Awaitable[object]]
)

Contexts: TypeAlias = Callable[[ToolContext], TurnContext[object]]
"""Finds the turn that a call belongs to."""

NOTHING: Mapping[str, object] = {"type": "object", "properties": {}}


@runtime_checkable
class Endpoint(Protocol):
    """Something behind an address that takes an object and gives a value, such as
    `turnwright_adapters.http_tools.HttpEndpoint`.
    """

    async def call(self, input: Mapping[str, object], *, key: str) -> object:
        """Send *input* and give what comes back; raise for whatever is no answer. *key* is the call's own."""
        ...


@frozen(eq=False)
class DefinedTool:
    """A declared tool; see `define_tool`."""

    name: str
    description: str
    schema: Schema[object] = field(repr=False)
    execute: Fitted = field(repr=False)
    typed: bool = field(repr=False)
    contract: Mapping[str, Any] = field(repr=False)
    """What else `turnwright.tool` is told."""


@overload
def define_tool(
    *,
    name: str,
    description: str,
    input_schema: type[InputT],
    execute: Execute[InputT, ServicesT],
    replay: Replay = "never",
    approval: Approval = "none",
    capability: str | None = None,
    output: object = None,
    timeout: float | None = 300.0,
    sequential: bool = False,
    policy: Sequence[str] = (),
) -> DefinedTool: ...
@overload
def define_tool(
    *,
    name: str,
    description: str,
    input_schema: Mapping[str, object] | None = None,
    execute: Execute[Mapping[str, object], ServicesT],
    replay: Replay = "never",
    approval: Approval = "none",
    capability: str | None = None,
    output: object = None,
    timeout: float | None = 300.0,
    sequential: bool = False,
    policy: Sequence[str] = (),
) -> DefinedTool: ...
@overload
def define_tool(
    *,
    name: str,
    description: str,
    input_schema: Mapping[str, object] | type | None = None,
    endpoint: Endpoint,
    replay: Replay = "never",
    approval: Approval = "none",
    capability: str | None = None,
    output: object = None,
    timeout: float | None = 300.0,
    sequential: bool = False,
    policy: Sequence[str] = (),
) -> DefinedTool: ...
def define_tool(
    *,
    name: str,
    description: str,
    input_schema: object = None,
    execute: Callable[..., object] | None = None,
    endpoint: Endpoint | None = None,
    **contract: object,
) -> DefinedTool:
    """Declare a tool: a function, or an *endpoint*.

    *input_schema* is a JSON Schema, of which the function gets an object, or a Python type, of which it gets a value.
    Arguments are checked before anything runs. *execute* takes the input and, if it wants, the TurnContext; a plain
    function runs in a thread. Whatever it raises is a result that the model sees. The other options are those of
    `turnwright.tool`. DefinitionError for what cannot work.
    """
    owner = f"tool {name!r:.80}"
    if (execute is None) == (endpoint is None):
        raise DefinitionError(f"{owner} has either execute= or endpoint=")
    if endpoint is not None and not isinstance(endpoint, Endpoint):
        raise DefinitionError(f"{owner}: an endpoint has an async call(input, key=), and {endpoint!r:.80} has none")
    try:
        schema: Schema[object] = schema_of(NOTHING if input_schema is None else input_schema)
    except DefinitionError as error:
        raise DefinitionError(f"{owner}: input_schema: {error}") from error
    called = _asking(endpoint) if endpoint is not None else fitted(execute, owner=f"{owner}: execute", threaded=True)
    typed = execute is not None and isinstance(input_schema, type)  # an endpoint is sent the object as it is
    defined = DefinedTool(name, description, schema, called, typed, contract)
    engine_tool(defined, _nowhere)  # so that what is wrong with it is told here
    return defined


def reader(resource: Resource) -> DefinedTool:
    """The read-only tool with which the model reads *resource*."""
    return DefinedTool(
        f"read_{resource.name}",
        resource.description or f"Read {resource.name}.",
        schema_of(resource.input_schema or NOTHING),
        resource.get,
        typed=False,
        contract={"replay": "safe", "annotations": {"readOnlyHint": True}},
    )


def engine_tool(defined: DefinedTool, contexts: Contexts) -> Tool[..., object]:
    """The engine's tool that *defined* stands for."""

    async def call(context_of_the_call: ToolContext, **arguments: object) -> object:
        given = defined.schema.load(arguments) if defined.typed else arguments  # type: ignore[arg-type] # JSON
        return await defined.execute(given, contexts(context_of_the_call))

    make = tool(
        name=defined.name,
        description=defined.description,
        parameters=defined.schema.document,
        **defined.contract,
    )
    made: Tool[..., object] = make(call)
    return made


def _asking(endpoint: Endpoint) -> Fitted:
    async def ask(input: Mapping[str, object], context: TurnContext[object]) -> object:
        assert context.call is not None
        return await endpoint.call(input, key=context.call.key)

    return ask


def _nowhere(context: ToolContext) -> TurnContext[object]:
    raise AssertionError(context)  # pragma: no cover - a tool is called by a run only
