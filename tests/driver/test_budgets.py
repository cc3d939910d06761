"""Budgets: held before the effect, settled after it, never above the limit, and a reason to wait when used up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from attrs import evolve as replace

from tests.driver.virtual import LoopClock, run
from turnwright import (
    AgentDefinition,
    Cancelled,
    Completed,
    Decision,
    Limits,
    LostLease,
    MemoryState,
    ModelError,
    Outcome,
    PortError,
    Ports,
    Suspended,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.evidence import Entry
from turnwright.inbox import Cancel
from turnwright.memory import MemoryApprovals, MemoryBudgets
from turnwright.messages import AssistantMessage, Text, ToolMessage, Usage
from turnwright.ports import Append, Denied, ModelRequest, Reserved
from turnwright.testing import FixedClock, Reply, ScriptedModel, call, fails, text


@tool(replay="safe", cost={"money": 10})
async def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


LOOKER = AgentDefinition(name="looker", instruction="Look.", tools=[look], cost={"money": 1})
TALKER = AgentDefinition(name="talker", instruction="Talk.")
SCRIPT: list[Reply] = [call("look"), text("done")]


def accounts(**limits: int) -> MemoryBudgets:
    """The accounts of tenant `t`, by axis."""
    return MemoryBudgets({("t", axis): limit for axis, limit in limits.items()})


def world(budgets: MemoryBudgets, *replies: Reply, **ports: object) -> Ports:
    """Ports with these accounts and a model with this script."""
    return Ports(model=ScriptedModel(replies or SCRIPT), budgets=budgets, scopes=("t",), **ports)  # type: ignore[arg-type]


def used(outcome: Outcome[str]) -> tuple[int, int]:
    """Requests and tool calls of a run."""
    return outcome.usage.requests, outcome.usage.tool_calls


@pytest.mark.promise("N-11")
async def test_what_a_run_uses_is_settled_on_every_scope() -> None:
    """Requests, calls, tokens and money are counted on the accounts that are given and on the run's own."""
    budgets = MemoryBudgets(
        {("t", axis): 10_000 for axis in ("requests", "tool_calls", "input_tokens", "output_tokens", "money")}
        | {("r1", "money"): 100}
    )
    answers = [
        AssistantMessage((call("look"),), "tool_calls", Usage(input_tokens=100, output_tokens=20)),
        AssistantMessage((Text("done"),), "stop", Usage(input_tokens=150, output_tokens=5)),
    ]

    await run_agent(LOOKER, "go", world(budgets, *answers), run_id="r1")

    assert [(2, 0), (1, 0), (250, 0), (25, 0), (12, 0), (12, 0)] == [
        budgets.standing(*place)[1:]
        for place in [
            *[("t", axis) for axis in ("requests", "tool_calls", "input_tokens", "output_tokens", "money")],
            ("r1", "money"),
        ]
    ]


@pytest.mark.promise("N-11", "N-05")
@pytest.mark.parametrize(
    ("axis", "limit", "standing"), [("requests", 1, (1, 1)), ("tool_calls", 0, (1, 0)), ("money", 10, (1, 0))]
)
async def test_a_used_up_budget_suspends_and_a_raised_one_goes_on(
    axis: str, limit: int, standing: tuple[int, int]
) -> None:
    """The run waits with the axis as its detail; a resume without money changes nothing; with it the run ends."""
    budgets = accounts(**{axis: limit})
    ports = world(budgets)

    stopped = await run_agent(LOOKER, "go", ports, run_id="r1")
    still = await resume_agent(LOOKER, "r1", ports)
    at_rest = budgets.standing("t", axis)
    budgets.raise_limit("t", axis, 100)
    ended = await resume_agent(LOOKER, "r1", ports)

    assert isinstance(stopped, Suspended)
    assert isinstance(still, Suspended)
    assert ("budget", axis, f"t allows no more {axis}") == (stopped.reason, stopped.detail, stopped.message)
    assert (standing, standing, 0) == (used(stopped), used(still), at_rest[2])
    assert at_rest[1] <= limit
    assert isinstance(ended, Completed)
    assert ((2, 1), 0) == (used(ended), budgets.standing("t", axis)[2])


@pytest.mark.promise("N-11")
async def test_64_runs_that_reserve_at_once_never_exceed_the_limit() -> None:
    """At no moment are settled and reserved together above the limit, and exactly as many calls run as it allows."""
    peak = entered = 0

    class Watched(MemoryBudgets):
        async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
            nonlocal peak
            answer = await super().reserve(id, scopes, ask)
            _, settled, reserved = self.standing("t", "tool_calls")
            peak = max(peak, settled + reserved)
            await asyncio.sleep(0)
            return answer

    @tool
    async def work() -> str:
        """Work."""
        nonlocal entered
        entered += 1
        await asyncio.sleep(0)
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    budgets = Watched({("t", "tool_calls"): 40})
    ports = world(budgets, call("work"), text("done"))

    got = await asyncio.gather(*[run_agent(worker, "go", ports) for _ in range(64)])

    assert (40, 40, (40, 40, 0)) == (peak, entered, budgets.standing("t", "tool_calls"))
    assert (40, 24) == (
        len([each for each in got if isinstance(each, Completed)]),
        len([each for each in got if isinstance(each, Suspended) and each.reason == "budget"]),
    )


@pytest.mark.promise("N-11")
async def test_of_one_answer_as_many_calls_run_as_the_budget_allows() -> None:
    """What is paid for runs; what is not waits, and runs when the budget is raised; nothing runs twice."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        """Work."""
        ran.append(n)
        return f"worked {n}"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    budgets = accounts(tool_calls=2)
    ports = world(budgets, [call("work", n=n) for n in range(4)], text("done"))

    stopped = await run_agent(worker, "go", ports, run_id="r1")
    first = [*ran]
    budgets.raise_limit("t", "tool_calls", 4)
    ended = await resume_agent(worker, "r1", ports)

    assert isinstance(stopped, Suspended)
    assert ("budget", "tool_calls", [0, 1]) == (stopped.reason, stopped.detail, first)
    assert isinstance(ended, Completed)
    assert [0, 1, 2, 3] == ran
    assert [f"worked {n}" for n in range(4)] == [m.text for m in ended.transcript if isinstance(m, ToolMessage)]


@pytest.mark.promise("N-11")
async def test_an_overrun_is_settled_as_it_was_and_stops_the_next_request() -> None:
    """Tokens are known only afterwards: what was used is counted, and a used-up account allows no more."""
    long = AssistantMessage((call("look"),), "tool_calls", Usage(input_tokens=500, output_tokens=70))
    budgets = accounts(output_tokens=50)

    outcome = await run_agent(LOOKER, "go", world(budgets, long, text("done")))

    assert isinstance(outcome, Suspended)
    assert ("output_tokens", (50, 70, 0), 1) == (
        outcome.detail,
        budgets.standing("t", "output_tokens"),
        outcome.usage.requests,
    )


@pytest.mark.promise("N-11")
async def test_a_declared_cost_is_held_before_the_request() -> None:
    """A request that may take more than is left is not made, though less might have done."""
    careful = replace(TALKER, cost={"output_tokens": 1000})
    model = ScriptedModel([text("hi")])
    budgets = accounts(output_tokens=999)

    outcome = await run_agent(careful, "go", replace(world(budgets), model=model))

    assert isinstance(outcome, Suspended)
    assert (("budget", "output_tokens"), [], (999, 0, 0)) == (
        (outcome.reason, outcome.detail),
        model.requests,
        budgets.standing("t", "output_tokens"),
    )


@pytest.mark.promise("N-11")
@pytest.mark.parametrize("dispatched", [True, False])
async def test_a_failed_request_counts_unless_it_surely_never_left(dispatched: bool) -> None:
    """A request that may have been charged is settled as it was reserved, one that never left is let go."""
    error = ModelError("connection", "no route", dispatched=dispatched)
    budgets = accounts(requests=10, money=10)

    outcome = await run_agent(LOOKER, "go", world(budgets, fails(error, then=text("hi"))), run_id="r1")

    assert isinstance(outcome, Suspended)
    assert [(10, int(dispatched), 0)] * 2 == [budgets.standing("t", axis) for axis in ("requests", "money")]


@pytest.mark.promise("N-11")
async def test_a_run_at_rest_holds_nothing_whatever_its_outcome() -> None:
    """Completed, failed, suspended, cancelled, interrupted or broken: no reservation is left behind."""
    hang = asyncio.Event()

    @tool(cost={"money": 10})
    async def stuck() -> str:
        """Never end."""
        await hang.wait()
        return "free"

    @tool(approval="required", cost={"money": 10})
    async def asked() -> str:
        """Ask."""
        return "asked"

    agent = AgentDefinition(name="all", instruction="Do.", tools=[look, stuck, asked], cost={"money": 1}, repairs=0)
    scripts: list[list[Reply]] = [
        [call("look"), text("done")],
        [text("")],
        [call("look"), ModelError("internal", "500")],
        [call("asked")],
        [[call("look"), call("stuck")]],
    ]
    for script in scripts:
        budgets = accounts(requests=100, tool_calls=100, money=1000)
        task = asyncio.create_task(run_agent(agent, "go", world(budgets, *script)))
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert [0, 0, 0] == [budgets.standing("t", axis)[2] for axis in ("requests", "tool_calls", "money")], script


@pytest.mark.promise("N-11")
async def test_an_effect_that_was_cut_off_counts_as_it_was_reserved() -> None:
    """A call in doubt may have cost what it may cost."""
    entered = asyncio.Event()

    @tool(cost={"money": 10})
    async def stuck() -> str:
        """Never end."""
        entered.set()
        await asyncio.Event().wait()
        return "free"

    agent = AgentDefinition(name="stuck", instruction="Do.", tools=[stuck])
    budgets = accounts(money=100, tool_calls=5)
    task = asyncio.create_task(run_agent(agent, "go", world(budgets, call("stuck")), run_id="r1"))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    assert [(100, 10, 0), (5, 1, 0)] == [budgets.standing("t", axis) for axis in ("money", "tool_calls")]


@pytest.mark.promise("N-11")
@pytest.mark.parametrize("when", ["model", "tool", "settle"])
async def test_what_a_dead_process_held_is_closed_by_whoever_takes_over(when: str) -> None:
    """A reservation that nobody settled is settled by the next owner, at what was reserved or what is known."""
    entered = asyncio.Event()

    class Mortal(MemoryBudgets):
        alive = True

        async def settle(self, id: str, actual: Mapping[str, int]) -> None:
            if not self.alive or when == "settle":
                entered.set()
                await asyncio.Event().wait()
            await super().settle(id, actual)

    class Stuck(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            if when == "model" and request.attempt == 1:
                entered.set()
                await asyncio.Event().wait()
            return await super().complete(request)

    @tool(replay="safe", cost={"money": 10})
    async def work() -> str:
        """Work, the second time."""
        if when == "tool" and not entered.is_set():
            entered.set()
            await asyncio.Event().wait()
        return "worked"

    agent = AgentDefinition(name="mortal", instruction="Do.", tools=[work], cost={"money": 1})
    budgets, state = Mortal({("t", "money"): 1000, ("t", "output_tokens"): 1000}), MemoryState()
    usage = Usage(output_tokens=30)
    model = Stuck([AssistantMessage((call("work"),), "tool_calls", usage), text("done", usage=usage)])
    ports = Ports(model=model, state=state, budgets=budgets, scopes=("t",), grace=0.0)
    task = asyncio.create_task(run_agent(agent, "go", ports, run_id="r1"))
    await entered.wait()
    budgets.alive = False
    task.cancel()
    await asyncio.wait([task])
    held = budgets.standing("t", "money")[2]
    budgets.alive = True
    again, when = when, ""

    ended = await resume_agent(agent, "r1", replace(ports, state=state.reopen()))

    assert isinstance(ended, Completed)
    assert held > 0
    _, settled, reserved = budgets.standing("t", "money")
    assert 0 == reserved
    assert ended.usage.requests + 10 * ended.usage.tool_calls == settled
    assert (60 + (again == "model"), 0) == budgets.standing("t", "output_tokens")[1:]


@pytest.mark.promise("N-11")
async def test_two_tenants_with_one_run_id_pay_each_for_themselves() -> None:
    """Reservations of equal runs of two tenants are not taken for one."""
    budgets = MemoryBudgets({("a", "requests"): 5, ("b", "requests"): 5})

    for tenant in ("a", "b"):
        ports = Ports(model=ScriptedModel([text("hi")]), budgets=budgets, scopes=(tenant,), tenant=tenant)
        await run_agent(TALKER, "go", ports, run_id="r1")

    assert [(5, 1, 0), (5, 1, 0)] == [budgets.standing(tenant, "requests") for tenant in ("a", "b")]


@pytest.mark.promise("N-06", "N-11")
@pytest.mark.parametrize("answer", [OSError("away"), None, True, asyncio.CancelledError()])
async def test_a_budget_port_that_cannot_say_yes_starts_nothing(answer: object) -> None:
    """The run waits for it; when it can say yes again, a resume goes on."""

    class Odd(MemoryBudgets):
        broken = True

        async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
            if not self.broken:
                return await super().reserve(id, scopes, ask)
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[return-value]

    budgets = Odd({})
    ports = world(budgets, text("hi"))

    stopped = await run_agent(TALKER, "go", ports, run_id="r1")
    budgets.broken = False
    ended = await resume_agent(TALKER, "r1", ports)

    assert isinstance(stopped, Suspended)
    assert ("budget", "unavailable", 0) == (stopped.reason, stopped.detail, stopped.usage.requests)
    assert isinstance(ended, Completed)


@pytest.mark.promise("N-11")
def test_time_is_an_axis() -> None:
    """What an effect took is settled in milliseconds."""

    async def scene() -> None:
        @tool
        async def nap() -> str:
            """Sleep."""
            await asyncio.sleep(2)
            return "rested"

        sleeper = AgentDefinition(name="sleeper", instruction="Sleep.", tools=[nap])
        budgets = accounts(ms=1500)

        outcome = await run_agent(sleeper, "go", world(budgets, call("nap"), text("done"), clock=LoopClock()))

        assert isinstance(outcome, Suspended)
        assert ("ms", True) == (outcome.detail, 2000 <= budgets.standing("t", "ms")[1] < 2500)

    run(scene())


# --- the definition's own limits need no port


@pytest.mark.promise("N-11", "N-05")
@pytest.mark.parametrize(
    ("tight", "axis", "standing"),
    [
        (Limits(requests=1), "requests", (1, 1)),
        (Limits(tool_calls=1), "tool_calls", (2, 1)),
        (Limits(input_tokens=100), "input_tokens", (1, 1)),
        (Limits(output_tokens=10), "output_tokens", (1, 1)),
    ],
)
async def test_a_limit_of_the_definition_suspends_and_a_raised_one_goes_on(
    tight: Limits, axis: str, standing: tuple[int, int]
) -> None:
    """Limits fold from the journal; a definition that allows more is the same agent."""
    usage = Usage(input_tokens=100, output_tokens=10)
    calls = AssistantMessage((call("look"),), "tool_calls", usage)
    ports = Ports(model=ScriptedModel([calls, calls, text("done")]))

    stopped = await run_agent(replace(LOOKER, limits=tight), "go", ports, run_id="r1")
    still = await resume_agent(replace(LOOKER, limits=tight), "r1", ports)
    ended = await resume_agent(replace(LOOKER, limits=Limits()), "r1", ports)

    assert isinstance(stopped, Suspended)
    assert isinstance(still, Suspended)
    assert ("budget", axis, standing, standing) == (stopped.reason, stopped.detail, used(stopped), used(still))
    assert isinstance(ended, Completed)
    assert (3, 2) == used(ended)


@pytest.mark.promise("N-11")
async def test_a_call_that_is_approved_still_needs_its_budget() -> None:
    """A yes is no money: the call waits for both."""
    paid: list[int] = []

    @tool(approval="required", cost={"money": 5})
    async def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    budgets = accounts(money=4)
    yes = MemoryApprovals(lambda _: Decision(approved=True))
    ports = world(budgets, call("pay"), text("done"), approvals=yes)

    stopped = await run_agent(payer, "go", ports, run_id="r1")
    budgets.raise_limit("t", "money", 5)
    ended = await resume_agent(payer, "r1", ports)

    assert isinstance(stopped, Suspended)
    assert ("budget", 1) == (stopped.reason, len(yes.asked))
    assert isinstance(ended, Completed)
    assert ([1], (5, 5, 0)) == (paid, budgets.standing("t", "money"))


@pytest.mark.promise("N-11")
async def test_a_cancelled_run_that_waits_for_money_holds_none() -> None:
    """The word cancel ends it, and nothing stays held."""
    budgets = accounts(tool_calls=0, money=100)
    ports = world(budgets)
    await run_agent(LOOKER, "go", ports, run_id="r1")
    await ports.state.post("r1", Cancel())

    await resume_agent(LOOKER, "r1", ports)

    assert (100, 1, 0) == budgets.standing("t", "money")


@pytest.mark.promise("N-11")
async def test_nothing_more_is_used_while_an_earlier_use_is_not_settled() -> None:
    """Else a crash in a later turn would leave a reservation behind that no later owner looks for."""

    class Forgetful(MemoryBudgets):
        broken = True

        async def settle(self, id: str, actual: Mapping[str, int]) -> None:
            if self.broken:
                raise PortError("out of paper")
            await super().settle(id, actual)

    budgets = Forgetful({("t", "requests"): 9, ("t", "tool_calls"): 9})
    ports = world(budgets)

    stopped = await run_agent(LOOKER, "go", ports, run_id="r1")
    budgets.broken = False
    ended = await resume_agent(LOOKER, "r1", ports)

    assert isinstance(stopped, Suspended)
    assert ("budget", "unavailable", (1, 0)) == (stopped.reason, stopped.detail, used(stopped))
    assert isinstance(ended, Completed)
    assert [(9, 2, 0), (9, 1, 0)] == [budgets.standing("t", axis) for axis in ("requests", "tool_calls")]


@pytest.mark.promise("N-11")
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_what_an_owner_held_and_did_not_live_to_say_is_let_go(number: int) -> None:
    """It died between a reservation and the intent, and the run was cancelled before anybody could use it.

    The journal knows nothing of the first request, nor of the answer that the call comes from.
    """
    died = asyncio.Event()

    class Mortal(MemoryBudgets):
        left = number

        async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
            answer = await super().reserve(id, scopes, ask)
            self.left -= 1
            if not self.left:
                died.set()
                await asyncio.Event().wait()
            return answer

        async def release(self, id: str) -> None:
            if not self.left:
                raise PortError("nobody is there")
            await super().release(id)

    class Left(MemoryState):
        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            if died.is_set():
                raise PortError("nobody is there")
            return await super().append(run_id, epoch, expected, append_id, facts)

        async def release(self, run_id: str, epoch: int) -> None:
            if not died.is_set():
                await super().release(run_id, epoch)

    budgets, state = Mortal({("t", axis): 9 for axis in ("requests", "tool_calls")}), Left()
    ports = world(budgets, state=state)
    working = asyncio.ensure_future(run_agent(LOOKER, "go", ports, run_id="r1"))
    await died.wait()
    working.cancel()
    await asyncio.wait([working])
    held = [budgets.standing("t", axis)[2] for axis in ("requests", "tool_calls")]
    budgets.left = -1
    died.clear()
    await state.post("r1", Cancel())

    ended = await run_agent(LOOKER, "go", replace(ports, state=state.reopen()), run_id="r1")

    assert isinstance(ended, Cancelled)
    assert 1 == sum(held)
    assert [0, 0] == [budgets.standing("t", axis)[2] for axis in ("requests", "tool_calls")]


@pytest.mark.promise("N-11", "N-10")
@pytest.mark.parametrize("slow", ["reserve", "settle"])
def test_a_run_keeps_its_lease_while_the_accounts_take_their_time(slow: str) -> None:
    """No epoch fences them, and the next owner uses the same ids: two must not be at them."""

    async def scene() -> None:
        state = MemoryState(monotonic=asyncio.get_running_loop().time)
        others: list[object] = []

        class Slow(MemoryBudgets):
            waits = True

            async def _take(self, call: str) -> None:
                for _ in range(3 if call == slow else 0):
                    await asyncio.sleep(20)
                    others.append(await state.acquire("r1", holder="thief", seconds=30.0))

            async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
                await self._take("reserve")
                return await super().reserve(id, scopes, ask)

            async def settle(self, id: str, actual: Mapping[str, int]) -> None:
                await self._take("settle")
                await super().settle(id, actual)

        ports = replace(world(Slow({}), text("done")), state=state, clock=LoopClock())

        outcome = await run_agent(TALKER, "go", ports, run_id="r1")

        assert isinstance(outcome, Completed)
        assert ["Busy"] * 3 == [type(each).__name__ for each in others]

    run(scene())


@pytest.mark.promise("N-11", "N-10")
async def test_who_stood_still_touches_nothing_that_the_next_owner_holds() -> None:
    """It slept while the accounts answered; under the same ids there is what another process holds now."""
    clock = FixedClock()

    class Slow(MemoryBudgets):
        waits = True

        async def held(self, prefix: str) -> Sequence[str]:
            clock.at += 60.0
            await ports.state.acquire("r1", holder="next", seconds=30.0)
            await super().reserve("\nr1:2#1", ["t"], {"requests": 3})
            return await super().held(prefix)

    budgets = Slow({("t", "requests"): 9})
    ports = world(budgets, state=MemoryState(monotonic=clock.monotonic), clock=clock)
    await ports.state.acquire("r1", holder="dies", seconds=0.0)

    with pytest.raises(LostLease):
        await run_agent(LOOKER, "go", ports, run_id="r1")

    assert (9, 0, 3) == budgets.standing("t", "requests")


@pytest.mark.promise("N-11")
async def test_only_what_is_held_for_the_run_itself_is_let_go() -> None:
    """Ids that only look like its own belong to somebody else."""
    budgets = accounts(requests=9)
    ports = world(budgets)
    for id in ("\nr1:9.7#1", "\nr1:9#2", "\nr1:1:9#1", "\nr1:9#1#", "other\nr1:9#1"):
        await budgets.reserve(id, ["t"], {"requests": 1})
    await ports.state.acquire("r1", holder="dies", seconds=0.0)

    ended = await run_agent(LOOKER, "go", ports, run_id="r1")

    assert isinstance(ended, Completed)
    assert (9, 2, 3) == budgets.standing("t", "requests")


@pytest.mark.promise("N-11")
@pytest.mark.parametrize("answer", [PortError("out of paper"), asyncio.CancelledError(), None, [7]])
async def test_a_run_waits_while_nobody_says_what_is_held_for_it(answer: object) -> None:
    """And goes on when somebody does."""

    class Mute(MemoryBudgets):
        broken = True

        async def held(self, prefix: str) -> Sequence[str]:
            if self.broken and isinstance(answer, BaseException):
                raise answer
            return answer if self.broken else await super().held(prefix)  # type: ignore[return-value]

    budgets = Mute({})
    ports = world(budgets)
    await ports.state.acquire("r1", holder="dies", seconds=0.0)

    stopped = await run_agent(LOOKER, "go", ports, run_id="r1")
    budgets.broken = False
    ended = await resume_agent(LOOKER, "r1", ports)

    assert isinstance(stopped, Suspended)
    assert ("budget", "unavailable", (0, 0)) == (stopped.reason, stopped.detail, used(stopped))
    assert isinstance(ended, Completed)
