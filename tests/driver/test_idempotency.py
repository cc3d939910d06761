"""Keys that outlive a run: what was done under one is not done again, by whichever run, and never by mistake."""

from __future__ import annotations

import asyncio

import pytest

from turnwright import (
    AgentDefinition,
    Completed,
    MemoryState,
    Ports,
    Suspended,
    Tool,
    ToolOutput,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.memory import MemoryIdempotency
from turnwright.messages import Image, Text, ToolMessage
from turnwright.ports import Begun
from turnwright.testing import Reply, ScriptedModel, call, text


class Warehouse:
    """A tool that ships orders, and what was shipped."""

    def __init__(self, **contract: object) -> None:
        self.shipped: list[tuple[int, str]] = []
        self.fail = False
        self.hold: asyncio.Event | None = None
        self.entered = asyncio.Event()

        @tool(key=lambda arguments: f"order-{arguments['order']}", **contract)  # type: ignore[call-overload,untyped-decorator]
        async def ship(order: int, to: str = "ann") -> dict[str, object]:
            """Ship."""
            self.shipped.append((order, to))
            self.entered.set()
            if self.hold is not None:
                await self.hold.wait()
            if self.fail:
                message = "the label printer broke after the parcel left"
                raise RuntimeError(message)
            return {"order": order, "parcel": len(self.shipped)}

        self.ship: Tool[..., object] = ship

    @property
    def agent(self) -> AgentDefinition[str, str]:
        """An agent that ships."""
        return AgentDefinition(name="warehouse", instruction="Ship.", tools=[self.ship])


async def shown(
    warehouse: Warehouse, keys: MemoryIdempotency, *calls: Reply, tenant: str = ""
) -> list[tuple[str, bool]]:
    """What the model sees of its calls, one answer each, in a run of its own."""
    ports = Ports(model=ScriptedModel([*calls, text("done")]), idempotency=keys, tenant=tenant)
    outcome = await run_agent(warehouse.agent, "go", ports)
    assert isinstance(outcome, Completed), outcome
    return [(message.text, message.is_error) for message in outcome.transcript if isinstance(message, ToolMessage)]


@pytest.mark.promise("N-13")
async def test_a_committed_key_gives_the_earlier_result_in_any_run() -> None:
    """The same order asked for again, here or elsewhere, is shipped once and told the same."""
    warehouse, keys = Warehouse(), MemoryIdempotency()

    first = await shown(warehouse, keys, call("ship", order=7), call("ship", order=7))
    second = await shown(warehouse, keys, call("ship", order=7), call("ship", order=8))

    assert [('{"order":7,"parcel":1}', False)] * 2 == first
    assert [('{"order":7,"parcel":1}', False), ('{"order":8,"parcel":2}', False)] == second
    assert [(7, "ann"), (8, "ann")] == warehouse.shipped


@pytest.mark.promise("N-13")
async def test_other_arguments_under_a_known_key_are_an_error() -> None:
    """An order that was shipped to ann is not told as shipped to bob, and is not shipped to him."""
    warehouse, keys = Warehouse(), MemoryIdempotency()

    (_, other) = await shown(warehouse, keys, call("ship", order=7), call("ship", order=7, to="bob"))

    assert (True, True) == (other[1], "other arguments" in other[0])
    assert [(7, "ann")] == warehouse.shipped


@pytest.mark.promise("N-13")
async def test_defaults_that_are_spelt_out_are_the_same_arguments() -> None:
    """The digest is of the validated arguments, so it does not matter how the model wrote them."""
    warehouse, keys = Warehouse(), MemoryIdempotency()

    results = await shown(
        warehouse, keys, call("ship", order=7), call("ship", to="ann", order="7"), call("ship", order=7, to="ann")
    )

    assert (1, 1) == (len({*results}), len(warehouse.shipped))


@pytest.mark.promise("N-13")
async def test_a_key_in_flight_is_refused() -> None:
    """Two calls of one answer with one key: one runs, the other is told that the key is in use."""
    warehouse, keys = Warehouse(), MemoryIdempotency()
    warehouse.hold = asyncio.Event()
    first = asyncio.create_task(shown(warehouse, keys, call("ship", order=7)))
    await warehouse.entered.wait()

    (refused,) = await shown(warehouse, keys, call("ship", order=7))
    warehouse.hold.set()
    (done,) = await first
    (again,) = await shown(warehouse, keys, call("ship", order=7))

    assert (True, True) == (refused[1], "in use" in refused[0])
    assert (('{"order":7,"parcel":1}', False), done) == (done, again)
    assert 1 == len(warehouse.shipped)


@pytest.mark.promise("N-13")
async def test_a_tool_that_raises_after_its_effect_never_frees_its_key() -> None:
    """What failed after dispatch may have happened: the key stays taken, for every later run."""
    warehouse, keys = Warehouse(), MemoryIdempotency()
    warehouse.fail = True

    first, second = await shown(warehouse, keys, call("ship", order=7), call("ship", order=7))
    warehouse.fail = False
    (third,) = await shown(warehouse, keys, call("ship", order=7))

    assert (True, True, True) == (first[1], second[1], third[1])
    assert ("printer" in first[0], "unknown" in second[0], "unknown" in third[0]) == (True, True, True)
    assert [(7, "ann")] == warehouse.shipped


@pytest.mark.promise("N-13")
async def test_a_call_that_is_cut_off_never_frees_its_key() -> None:
    """An interrupted shipment is in doubt here, and its key taken everywhere."""
    warehouse, keys = Warehouse(), MemoryIdempotency()
    warehouse.hold = asyncio.Event()
    ports = Ports(model=ScriptedModel([call("ship", order=7), text("done")]), idempotency=keys)
    task = asyncio.create_task(run_agent(warehouse.agent, "go", ports, run_id="r1"))
    await warehouse.entered.wait()
    task.cancel()
    await asyncio.wait([task])
    warehouse.hold = None

    resumed = await resume_agent(warehouse.agent, "r1", ports)
    (other,) = await shown(warehouse, keys, call("ship", order=7))

    assert isinstance(resumed, Suspended)
    assert ("in-doubt", True, 1) == (resumed.reason, other[1], len(warehouse.shipped))


@pytest.mark.promise("N-13")
@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", "t"), ("b", "t")), (("a", "t"), ("a", "u")), (("a/b", "c"), ("a", "b/c")), (("", "t/t"), ("t", "t"))],
)
async def test_a_key_belongs_to_its_tenant_and_its_tool(one: tuple[str, str], other: tuple[str, str]) -> None:
    """The same key of another tenant or another tool is another key, however the names are put together."""
    keys = MemoryIdempotency()

    for tenant, name in (one, other):
        warehouse = Warehouse(name=name)
        await shown(warehouse, keys, call(name, order=7), tenant=tenant)
        assert [(7, "ann")] == warehouse.shipped


@pytest.mark.promise("N-13", "N-06")
@pytest.mark.parametrize("odd", [None, "", 7, ["k"], KeyError("order")])
async def test_a_key_function_that_gives_no_key_runs_nothing(odd: object) -> None:
    """Without a key there is no promise, so the call is refused in words."""
    ran: list[int] = []

    def key(_: object) -> str:
        if isinstance(odd, Exception):
            raise odd
        return odd  # type: ignore[return-value]

    @tool(key=key)
    async def ship() -> str:
        """Ship."""
        ran.append(1)
        return "shipped"

    agent = AgentDefinition(name="warehouse", instruction="Ship.", tools=[ship])
    ports = Ports(model=ScriptedModel([call("ship"), text("done")]), idempotency=MemoryIdempotency())
    outcome = await run_agent(agent, "go", ports)

    assert isinstance(outcome, Completed)
    result = outcome.transcript[2]
    assert isinstance(result, ToolMessage)
    assert (True, True, []) == (result.is_error, result.text.startswith("not executed"), ran)


@pytest.mark.promise("N-13", "N-06")
@pytest.mark.parametrize("answer", [OSError("away"), None, "fresh"])
async def test_a_ledger_that_cannot_say_that_a_key_is_free_runs_nothing(answer: object) -> None:
    """A port that raises, or says what is no answer, is not taken for a yes."""

    class Odd(MemoryIdempotency):
        async def begin(self, namespace: str, key: str, digest: str) -> Begun:
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]

    warehouse = Warehouse()
    (result,) = await shown(warehouse, Odd(), call("ship", order=7))

    assert (True, True, []) == (result[1], result[0].startswith("not executed"), warehouse.shipped)


@pytest.mark.promise("N-13")
async def test_falsy_results_are_results() -> None:
    """A tool that gives nothing has given nothing, and is not run again for it."""
    calls: list[int] = []
    values: list[object] = [None, False, 0, "", [], {}]
    for place in range(len(values)):

        @tool(key=lambda _: "k")
        async def once(place: int = place) -> object:
            """Give, and count."""
            calls.append(place)
            return values[place]

        agent = AgentDefinition(name="giver", instruction="Give.", tools=[once])
        ports = Ports(model=ScriptedModel([call("once"), call("once"), text("done")]), idempotency=MemoryIdempotency())
        outcome = await run_agent(agent, "go", ports)
        assert isinstance(outcome, Completed)
        first, second = [message for message in outcome.transcript if isinstance(message, ToolMessage)]
        assert (first.text, False) == (second.text, second.is_error)
    assert [*range(len(values))] == calls


@pytest.mark.promise("N-08", "N-13")
async def test_a_call_has_one_key_of_its_own_on_every_attempt() -> None:
    """The key that a tool sends along is the same when it runs again in another process, and no other call has it."""
    from turnwright import ToolContext

    keys: list[tuple[int, str]] = []
    entered = asyncio.Event()

    @tool(replay="idempotent")
    async def charge(cents: int, context: ToolContext) -> str:
        """Charge."""
        keys.append((cents, context.key))
        if context.attempt == 1 and cents == 1:
            entered.set()
            await asyncio.Event().wait()
        return "charged"

    agent = AgentDefinition(name="till", instruction="Charge.", tools=[charge])
    state = MemoryState()
    ports = Ports(model=ScriptedModel([[call("charge", cents=1), call("charge", cents=2)], text("done")]), state=state)
    task = asyncio.create_task(run_agent(agent, "go", ports, run_id="r1"))
    await entered.wait()
    for _ in range(4):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    outcome = await resume_agent(agent, "r1", ports)

    assert isinstance(outcome, Completed)
    ones, twos = ({key for cents, key in keys if cents == wanted} for wanted in (1, 2))
    assert (1, 1, 3) == (len(ones), len(twos), len(keys))
    assert ones != twos
    assert all([key.isascii() and key.replace("-", "").isalnum() and len(key) <= 64 for _, key in keys])


@pytest.mark.promise("N-13")
async def test_a_key_keeps_an_output_with_all_its_parts() -> None:
    """What a tool gave as a ToolOutput is given again as one, with its pictures; it is not taken for an unknown end."""
    drawn: list[str] = []

    @tool(key=lambda arguments: str(arguments["what"]))
    async def draw(what: str) -> ToolOutput:
        """Draw."""
        drawn.append(what)
        return ToolOutput((Text(what), Image("image/png", data="aGk=")), details={"n": 1})

    artist = AgentDefinition(name="artist", instruction="Draw.", tools=[draw])
    ports = Ports(
        model=ScriptedModel([call("draw", what="cat"), call("draw", what="cat"), text("done")]),
        idempotency=MemoryIdempotency(),
    )

    outcome = await run_agent(artist, "go", ports)

    first, second = [message for message in outcome.transcript if isinstance(message, ToolMessage)]
    assert (["cat"], first.parts, False) == (drawn, second.parts, second.is_error)
    assert isinstance(first.parts[1], Image)
