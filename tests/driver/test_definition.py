"""What is wrong with an agent or a tool is said when it is built, naming the thing and the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime

import pytest
from attrs import evolve as replace, frozen

from turnwright import AgentDefinition, Completed, DefinitionError, Limits, Ports, Tool, run_agent, tool
from turnwright.schema import schema_of
from turnwright.testing import ScriptedModel, text


@tool
async def look(path: str = "/") -> str:
    """Look."""
    return path


def agent(**fields: object) -> AgentDefinition[str, str]:
    """An agent that is fine but for *fields*."""
    return AgentDefinition(**{"name": "plain", "instruction": "Be.", "tools": [look], **fields})  # type: ignore[arg-type]


def contract(**fields: object) -> Tool[..., object]:
    """A tool that is fine but for *fields*."""

    async def work(n: int) -> str:
        """Work."""
        return str(n)

    return tool(**fields)(work)  # type: ignore[call-overload,no-any-return]


async def later(_: object) -> str:
    """Answer later."""
    return "auto"


class Nameless:
    """A class that has no JSON form."""

    def __init__(self, connection: object) -> None:
        self.connection = connection


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "name is 1 to 128"),
        ({"name": "a\nb"}, "name is 1 to 128"),
        ({"name": "x" * 129}, "name is 1 to 128"),
        ({"name": 7}, "name is 1 to 128"),
        ({"name": None}, "name is 1 to 128"),
        ({"instruction": None}, "instruction"),
        ({"instruction": ["Be."]}, "instruction"),
        ({"tool_choice": "lock"}, r"tool_choice 'lock'.*\['look'\]"),
        ({"tool_choice": ""}, "tool_choice"),
        ({"tool_choice": None}, "tool_choice"),
        ({"tool_choice": 3}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "needs a tool"),
        ({"repairs": -1}, "repairs"),
        ({"repairs": True}, "repairs"),
        ({"repairs": 1.5}, "repairs"),
        ({"repairs": "2"}, "repairs"),
        ({"approval_seconds": 0}, "approval_seconds"),
        ({"approval_seconds": -1.0}, "approval_seconds"),
        ({"approval_seconds": float("nan")}, "approval_seconds"),
        ({"approval_seconds": "60"}, "approval_seconds"),
        ({"durability": "forever"}, "durability.*none, process, power"),
        ({"durability": None}, "durability"),
        ({"cost": {"money": -1}}, "cost is a mapping"),
        ({"cost": {"money": 1.5}}, "cost is a mapping"),
        ({"cost": {"money": True}}, "cost is a mapping"),
        ({"cost": {7: 1}}, "cost"),
        ({"options": {"temperature": float("nan")}}, "options"),
        ({"options": {"hook": print}}, "options"),
        ({"options": {"s": "\ud800"}}, "options"),
        ({"options": {7: 1}}, "options"),
        ({"options": ["temperature"]}, "options"),
        ({"version": 3}, "version"),
        ({"check_output": [None]}, "check_output"),
        ({"check_output": ["len"]}, "check_output"),
        ({"guards": [True]}, "guards"),
        ({"tool_choice": later}, "tool_choice.*plain"),
        ({"render": later}, "render.*not async"),
        ({"render": "text"}, "render"),
        ({"tools": ["look"]}, "tools"),
        ({"tools": [None]}, "tools"),
        ({"tools": look}, "tools"),
        ({"input": Nameless}, "input.*Nameless"),
        ({"output": Nameless}, "output.*Nameless"),
        ({"output": Callable[[int], int]}, "output"),
        ({"output": {"type": "wrong"}}, "output"),
        ({"output": {"$ref": "https://example.org/schema"}}, "output"),
        ({"limits": None}, "limits"),
        ({"limits": {"requests": 3}}, "limits"),
    ],
)
def test_an_agent_that_cannot_work_is_refused_when_it_is_built(fields: dict[str, object], said: str) -> None:
    """The error is a DefinitionError that names the agent where it has a name, the field, and what it may be."""
    with pytest.raises(DefinitionError, match=said) as refused:
        agent(**fields)
    assert str(refused.value).startswith("agent ")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"requests": -1}, "requests"),
        ({"requests": 1.5}, "requests"),
        ({"input_tokens": True}, "input_tokens"),
        ({"output_tokens": "9"}, "output_tokens"),
        ({"tool_calls": -3}, "tool_calls"),
        ({"calls_per_turn": 0}, "calls_per_turn"),
        ({"calls_per_turn": None}, "calls_per_turn"),
        ({"argument_bytes": 0}, "argument_bytes"),
        ({"output_bytes": -1}, "output_bytes"),
        ({"model_seconds": 0}, "model_seconds"),
        ({"model_seconds": float("nan")}, "model_seconds"),
        ({"model_seconds": "60"}, "model_seconds"),
    ],
)
def test_limits_that_limit_nothing_sensible_are_refused(fields: dict[str, object], said: str) -> None:
    """A limit is a whole number, a bound in seconds is more than nothing."""
    with pytest.raises(DefinitionError, match=said):
        Limits(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": " "}, "name is 1 to 128"),
        ({"name": " work"}, "name is 1 to 128"),
        ({"name": "a\tb"}, "name is 1 to 128"),
        ({"name": "x" * 129}, "name is 1 to 128"),
        ({"name": "auto"}, "tool_choice"),
        ({"name": "required"}, "tool_choice"),
        ({"name": "none"}, "tool_choice"),
        ({"replay": "always"}, "replay"),
        ({"approval": "maybe"}, "approval"),
        ({"approval": 0}, "approval"),
        ({"approval": -1}, "approval"),
        ({"approval": True}, "approval"),
        ({"approval": 1.5}, "approval"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": 1e9}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1.5}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_failures": -1}, "max_failures"),
        ({"max_failures": "2"}, "max_failures"),
        ({"cost": {"money": -1}}, "cost is a mapping"),
        ({"cost": {"money": 2**54}}, "cost is a mapping"),
        ({"cost": ["money"]}, "cost"),
        ({"sensitivity": "high"}, "sensitivity"),
        ({"policy": "no_network"}, "policy"),
        ({"policy": [7]}, "policy"),
        ({"reconcile": "ask"}, "reconcile"),
        ({"prepare": "trim"}, "prepare"),
        ({"key": "order"}, "key"),
        ({"key": later}, "key.*not async"),
        ({"prepare": later}, "prepare.*not async"),
        ({"approval": later}, "approval.*plain"),
        ({"capability": 7}, "capability"),
        ({"annotations": {"hook": print}}, "annotations"),
        ({"sequential": "yes"}, "sequential"),
        ({"output": Nameless}, "Nameless"),
        ({"parameters": {"type": "wrong"}}, "'work'"),
        ({"parameters": {"type": "array"}}, "'work'"),
        ({"parameters": {"type": "object", "properties": {"m": {"type": "integer"}}, "required": ["m"]}}, "'work'"),
    ],
)
def test_a_tool_that_cannot_work_is_refused_when_it_is_made(fields: dict[str, object], said: str) -> None:
    """The error is a DefinitionError that names the tool, the field, and what it may be."""
    with pytest.raises(DefinitionError, match=said) as refused:
        contract(**fields)
    assert str(refused.value).startswith("tool ")


def test_a_misspelt_field_of_a_contract_is_an_error() -> None:
    """What is no field of a contract is not taken for a wish."""
    with pytest.raises((TypeError, DefinitionError), match="aproval"):
        contract(aproval="required")


def test_a_function_that_cannot_be_called_by_a_model_is_refused() -> None:
    """A generator gives no result, a parameter without JSON form no schema, a tool twice decorated no sense."""

    def generate(n: int) -> Iterator[int]:
        """Generate."""
        yield n

    async def generate_async(n: int) -> AsyncIterator[int]:
        """Generate."""
        yield n

    def connect(connection: Nameless) -> str:
        """Connect."""
        return str(connection)

    for function in (generate, generate_async):
        with pytest.raises(DefinitionError, match=f"tool '{function.__name__}': .*generator"):
            tool(function)
    with pytest.raises(DefinitionError, match="tool 'connect': parameter 'connection'"):
        tool(connect)
    with pytest.raises(DefinitionError, match="tool 'look' is a tool already"):
        tool(look)
    with pytest.raises(DefinitionError, match="tools"):
        agent(tools=[look, 7])


@pytest.mark.case("nam-04")
def test_two_tools_of_one_name_are_refused_with_both_owners() -> None:
    """Neither disappears silently: the error says whose they are and how to rename one."""

    @tool(name="search")
    async def search_mail(q: str) -> str:
        """Search mail."""
        return q

    @tool(name="search")
    async def search_web(q: str) -> str:
        """Search the web."""
        return q

    with pytest.raises(DefinitionError, match=r"'search' .*search_mail.*search_web.*@tool\(name="):
        agent(tools=[search_mail, look, search_web])


@pytest.mark.case("nam-04")
async def test_two_tools_may_swap_their_names() -> None:
    """Names are what the contract says, whatever the functions are called."""

    async def a() -> str:
        """Be a."""
        return "a"

    async def b() -> str:
        """Be b."""
        return "b"

    swapped = agent(tools=[tool(name="b")(a), tool(name="a")(b)])

    assert ["b", "a"] == [*swapped.toolbox]
    assert ["a", "b"] == [await each() for each in swapped.tools]  # type: ignore[misc]


def test_a_plain_function_becomes_a_tool() -> None:
    """What needs no contract needs no decorator."""

    def count(things: list[str]) -> int:
        """Count *things*."""
        return len(things)

    (made,) = agent(tools=[count]).tools

    assert ("count", "tool.count", "never") == (made.name, made.capability, made.replay)


def test_a_definition_keeps_nothing_that_its_maker_may_change() -> None:
    """What is appended to the lists and mappings that it was made of changes no agent and no fingerprint."""
    tools, options, cost, guards = [look], {"temperature": 0.5}, {"money": 1}, []  # type: ignore[var-annotated]
    made = agent(tools=tools, options=options, cost=cost, guards=guards)
    before = made.fingerprint

    tools.append(look)
    options["temperature"] = 1.0
    cost["money"] = 100
    guards.append(print)

    assert ((look,), {"temperature": 0.5}, {"money": 1}, ()) == (made.tools, made.options, made.cost, made.guards)
    assert before == replace(made).fingerprint


@pytest.mark.promise("N-05")
@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"name": "other"}, False),
        ({"instruction": "Do."}, False),
        ({"tools": []}, False),
        ({"tools": [contract()]}, False),
        ({"output": int}, False),
        ({"input": int}, False),
        ({"repairs": 5}, False),
        ({"options": {"temperature": 1.0}}, False),
        ({"version": "2"}, False),
        ({"tool_choice": "none"}, False),
        ({"limits": Limits(requests=3)}, True),
        ({"approval_seconds": 60.0}, True),
        ({"durability": "process"}, True),
        ({"cost": {"money": 3}}, True),
        ({"check_output": [lambda *_: None]}, True),
        ({"guards": [lambda *_: None]}, True),
    ],
)
def test_a_fingerprint_covers_what_a_running_run_depends_on(fields: dict[str, object], same: bool) -> None:
    """Contracts, schemas, words and options count; limits and budgets, which may be raised, and code do not."""
    assert same == (agent().fingerprint == agent(**fields).fingerprint)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("approval", "required"),
        ("replay", "safe"),
        ("capability", "root"),
        ("cost", {"money": 3}),
        ("policy", ["no_network"]),
        ("version", "2"),
        ("output", int),
        ("name", "other"),
    ],
)
def test_a_changed_contract_changes_the_fingerprint(field: str, value: object) -> None:
    """Whatever recovery or approval relies on is part of it."""
    assert agent(tools=[contract()]).fingerprint != agent(tools=[contract(**{field: value})]).fingerprint


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """Neither the order of options nor the making of it anew leaves a trace."""
    assert (
        agent(options={"a": 1, "b": 2}).fingerprint
        == agent(options={"b": 2, "a": 1}).fingerprint
        == "".join(agent(options={"a": 1, "b": 2}).fingerprint)
    )


@pytest.mark.promise("N-06")
def test_a_contract_carries_what_admission_and_recovery_ask() -> None:
    """Name, description, input, output, capability, approval, idempotency, cost, sensitivity, annotations, policy."""

    @tool(
        name="pay",
        output=str,
        capability="payments",
        approval=2,
        key=lambda arguments: str(arguments["order"]),
        cost={"money": 5},
        sensitivity="secret",
        annotations={"destructive": True},
        policy=["no_network"],
        replay="idempotent",
        timeout=5,
        max_failures=1,
        sequential=True,
    )
    async def pay_out(order: int) -> str:
        """Pay out an order.

        Once.
        """
        return str(order)

    assert ("pay", "Pay out an order.\n\nOnce.", ["order"]) == (
        pay_out.spec.name,
        pay_out.spec.description,
        pay_out.spec.parameters["required"],
    )
    assert {
        "name": "pay",
        "parameters": pay_out.parameters.schema.document,
        "output": schema_of(str).document,
        "capability": "payments",
        "approval": 2,
        "replay": "idempotent",
        "cost": {"money": 5},
        "policy": ["no_network"],
        "version": "",
    } == pay_out.contract()
    assert (pay_out.output is not None, 5, True) == (True, pay_out.timeout, pay_out.sequential)
    assert "7" == asyncio.run(pay_out(7))  # type: ignore[arg-type]


async def test_an_agent_serves_many_runs_at_once() -> None:
    """A definition is a value: nothing of a run is kept in it."""
    talker = agent()
    world = Ports(model=ScriptedModel([text("hi")]))

    got = await asyncio.gather(*[run_agent(talker, "go", world) for _ in range(20)])

    assert {Completed} == {type(each) for each in got}


def test_types_that_json_can_carry_are_inputs_and_outputs() -> None:
    """Dates, unions, containers and classes need no help."""

    @frozen
    class Meeting:
        at: datetime
        who: list[str]
        where: str | None = None

    made = AgentDefinition(name="planner", instruction="Plan.", input=Meeting, output=Meeting)

    assert {"at", "who", "where"} == made.output_schema.document["properties"].keys()  # type: ignore[union-attr]
