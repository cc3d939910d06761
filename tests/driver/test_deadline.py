"""A deadline is one moment for the whole run: it races every port, gives children a reserve and survives a resume."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from attrs import evolve as replace

from tests.driver.hanging import Hang, HangingPort, agent, ports
from tests.driver.virtual import LoopClock, leftovers, run
from turnwright import (
    AgentDefinition,
    Completed,
    Limits,
    LostLease,
    MemoryState,
    PortError,
    Ports,
    Suspended,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.evidence import Entry, verify
from turnwright.inbox import Word
from turnwright.memory import MemoryIdempotency
from turnwright.messages import AssistantMessage, Message
from turnwright.ports import Append, Begun, Busy, Lease, ModelRequest
from turnwright.testing import FixedClock, ScriptedModel, call, text

PLACES = ["model", "tool", "approvals", "context", "guard", "check", "reserve", "settle", "inbox", "read", "append"]


@pytest.mark.promise("N-12", "N-05", "T-10")
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("where", PLACES)
def test_whatever_hangs_the_deadline_ends_it(where: str, stubborn: bool) -> None:
    """Within the grace after the deadline the run is suspended; a later one brings it to its end."""

    async def scene() -> None:
        hang, clock = Hang(stubborn=stubborn), LoopClock()
        worker = agent(where, hang, needs_approval=where == "approvals")
        world = replace(ports(where, hang), clock=clock)

        if where == "append":  # it was written, and nobody said so
            with pytest.raises(PortError, match="did not answer"):
                await run_agent(worker, "go", world, run_id="r1", deadline=clock.now() + 60)
        else:
            outcome = await run_agent(worker, "go", world, run_id="r1", deadline=clock.now() + 60)
            assert isinstance(outcome, Suspended)
            assert ("budget", "deadline") == (outcome.reason, outcome.detail)

        assert 60 <= clock.now() - 1_800_000_000 <= 60 + 3 * world.grace + 1
        if not stubborn:
            assert set() == leftovers()
        hang.let_go()
        for _ in range(8):
            await asyncio.sleep(0)
        assert set() == leftovers()
        ended = await resume_agent(worker, "r1", world, deadline=clock.now() + 60)
        assert isinstance(ended, Suspended if where == "approvals" else Completed)
        verify(await world.state.evidence("r1"))
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("N-12", "T-10")
@pytest.mark.parametrize("how", ["deadline", "signal"])
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("where", ["acquire", "load", "release"])
def test_a_store_that_hangs_at_the_door_is_not_waited_for(where: str, stubborn: bool, how: str) -> None:
    """Before there is a run to suspend, the caller is told that the store did not answer; after it, what it gave."""

    async def scene() -> None:
        hang, clock, signal = Hang(stubborn=stubborn), LoopClock(), asyncio.Event()
        world = replace(ports("", hang), clock=clock, state=HangingPort(where, hang))
        if where == "load":
            await run_agent(agent("", hang), "go", world, run_id="r1", max_turns=1)
        if how == "signal":
            world = replace(world, cancellation=signal)
        deadline = clock.now() + 60 if how == "deadline" else None
        task = asyncio.create_task(run_agent(agent("", hang), "go", world, run_id="r1", deadline=deadline))
        await hang.reached.wait()
        signal.set()
        await asyncio.wait([task])

        if where == "release":
            assert isinstance(task.result(), Completed)
        else:
            why = "the state port did not answer, and the run was"
            assert isinstance(task.exception(), PortError)
            assert why in str(task.exception())
        assert clock.now() - 1_800_000_000 <= 60 + 3 * world.grace + 1
        hang.let_go()
        for _ in range(8):
            await asyncio.sleep(0)
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("N-12")
async def test_a_deadline_in_the_past_starts_nothing() -> None:
    """No model is asked; the run waits for a later deadline."""
    clock = FixedClock()
    model = ScriptedModel([text("hi")])
    talker = AgentDefinition(name="talker", instruction="Talk.")
    world = Ports(model=model, clock=clock)

    outcome = await run_agent(talker, "hello", world, run_id="r1", deadline=clock.now())

    assert isinstance(outcome, Suspended)
    assert ("budget", "deadline", []) == (outcome.reason, outcome.detail, model.requests)
    ended = await resume_agent(talker, "r1", world, deadline=clock.now() + 1)
    assert isinstance(ended, Completed)


@pytest.mark.promise("N-12")
async def test_the_deadline_of_a_run_holds_over_its_pauses() -> None:
    """It is a moment and not a duration: after a pause that outlasts it, a resume starts nothing until it is moved."""
    clock = FixedClock()
    done: list[int] = []

    @tool(approval="required")
    async def pay(cents: int) -> str:
        """Pay."""
        done.append(cents)
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    state = MemoryState()
    world = Ports(model=ScriptedModel([call("pay", cents=5), text("done")]), clock=clock, state=state)
    first = await run_agent(payer, "go", world, run_id="r1", deadline=clock.now() + 60)
    assert isinstance(first, Suspended)
    clock.advance(61)

    late = await resume_agent(
        payer, "r1", replace(world, state=state.reopen()), decisions={first.pending[0].effect_id: "approve"}
    )

    assert isinstance(late, Suspended)
    assert ("budget", "deadline", []) == (late.reason, late.detail, done)
    still = await resume_agent(payer, "r1", world)
    assert isinstance(still, Suspended)
    assert ("budget", "deadline", []) == (still.reason, still.detail, done)
    ended = await resume_agent(payer, "r1", world, deadline=clock.now() + 60)
    assert isinstance(ended, Completed)
    assert [5] == done


@pytest.mark.promise("N-12")
async def test_what_is_left_is_told_to_the_model_with_a_reserve() -> None:
    """The request may take a little less than what is left, so that its answer can still be written down."""
    clock = FixedClock()
    model = ScriptedModel([text("hi")])
    talker = AgentDefinition(name="talker", instruction="Talk.", limits=Limits(model_seconds=40.0))

    for left in (30.0, 50.0):
        await run_agent(talker, "hello", Ports(model=model, clock=clock), deadline=clock.now() + left)

    told = [request.timeout or 0.0 for request in model.requests]
    assert 29.9 < told[0] < 30.0
    assert 40.0 == told[1]


@pytest.mark.promise("N-12")
def test_an_answer_that_comes_in_time_is_kept_although_the_deadline_then_passes() -> None:
    """An answer at the last moment is recorded, and a resume with more time does not ask for it again."""

    async def scene() -> None:
        clock = LoopClock()
        asked: list[int] = []

        class Slow(ScriptedModel):
            async def complete(self, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
                asked.append(request.turn)
                await asyncio.sleep(59.99 if request.turn == 1 else 1)
                return await super().complete(request)

        @tool(replay="safe")
        async def work() -> str:
            """Take a while."""
            await asyncio.sleep(10)
            return "worked"

        worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
        world = Ports(model=Slow([call("work"), text("done")]), clock=clock)

        outcome = await run_agent(worker, "go", world, run_id="r1", deadline=clock.now() + 60)
        ended = await resume_agent(worker, "r1", world, deadline=clock.now() + 60)

        assert isinstance(outcome, Suspended)
        assert isinstance(ended, Completed)
        assert ("deadline", [1, 2]) == (outcome.detail, asked)

    run(scene())


@pytest.mark.promise("N-12")
async def test_a_new_deadline_also_holds_for_a_run_whose_process_died() -> None:
    """A crash leaves no rest to resume from; the new deadline counts all the same."""
    clock = FixedClock()
    talker = AgentDefinition(name="talker", instruction="Talk.")

    class Dying(MemoryState):
        dead = True

        async def append(
            self,
            run_id: str,
            epoch: int,
            expected: int,
            append_id: str,
            facts: Sequence[Entry],
        ) -> Append:
            if self.dead and expected:
                await asyncio.Event().wait()
            return await super().append(run_id, epoch, expected, append_id, facts)

    state = Dying()
    world = Ports(model=ScriptedModel([text("hi")]), clock=clock, state=state, grace=0.0)
    task = asyncio.create_task(run_agent(talker, "hello", world, run_id="r1", deadline=clock.now() + 60))
    while len(await state.load("r1")) < 3:  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    state.dead = False
    clock.advance(3600)

    ended = await resume_agent(talker, "r1", world, deadline=clock.now() + 60)

    assert isinstance(ended, Completed)
    assert ("hi", "run_resumed") == (ended.output, (await state.evidence("r1"))[3].kind)


@pytest.mark.promise("N-12")
@pytest.mark.case("con-04")
def test_a_tool_that_runs_out_of_time_waits_no_longer_than_the_grace_for_its_cleanup() -> None:
    """The timeout and the grace bound the call; its siblings are not held up; the cleanup ends in its own time."""

    async def scene() -> None:
        loop, cleaned, quick = asyncio.get_running_loop(), asyncio.Event(), []

        @tool(timeout=0.05, replay="safe")
        async def slow() -> str:
            """Take its time."""
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(30)
                cleaned.set()
            return "never"

        @tool
        async def fast() -> str:
            """Be quick."""
            quick.append(loop.time())
            return "fast"

        pair = AgentDefinition(name="pair", instruction="Work.", tools=[slow, fast])
        world = Ports(model=ScriptedModel([[call("slow"), call("fast")], text("done")]), grace=1.0)
        began = loop.time()

        outcome = await run_agent(pair, "go", world)

        assert isinstance(outcome, Completed)
        assert ["slow timed out after 0.05 s", "fast"] == [
            message.text for message in outcome.transcript if message.role == "tool"
        ]
        assert loop.time() - began < 1.2
        assert quick[0] - began < 0.05
        assert 1 == len(leftovers())
        await cleaned.wait()
        await asyncio.sleep(0)
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("N-12", "N-07")
@pytest.mark.case("con-10")
async def test_a_timeout_inside_a_tool_is_the_tools_own() -> None:
    """A TimeoutError that a tool raises is its error, not the end of the run's time."""

    @tool
    async def send() -> str:
        """Send."""
        message = "inner"
        raise TimeoutError(message)

    sender = AgentDefinition(name="sender", instruction="Send.", tools=[send])
    clock = FixedClock()

    outcome = await run_agent(
        sender, "go", Ports(model=ScriptedModel([call("send"), text("done")]), clock=clock), deadline=clock.now() + 5
    )

    assert isinstance(outcome, Completed)
    assert "inner" == outcome.transcript[2].text


@pytest.mark.promise("N-12", "N-05")
def test_a_model_that_takes_too_long_suspends_the_run() -> None:
    """A request has its own bound, with or without a deadline."""

    async def scene() -> None:
        hang = Hang()
        talker = replace(agent("", hang), limits=Limits(model_seconds=30.0))

        outcome = await run_agent(talker, "go", ports("model", hang))

        assert isinstance(outcome, Suspended)
        assert ("model", "timeout", 1) == (outcome.reason, outcome.detail, hang.cancelled)
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("N-10")
def test_a_run_that_takes_hours_keeps_its_lease() -> None:
    """While a slow tool works the lease is renewed, so nobody else can take the run."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        state = MemoryState(monotonic=loop.time)
        refused = []

        @tool(timeout=None)
        async def slow() -> str:
            """Take two hours, and look who could take the run meanwhile."""
            for _ in range(120):
                await asyncio.sleep(60)
                refused.append(await state.acquire("r1", holder="thief", seconds=30.0))
            return "slow"

        worker = AgentDefinition(name="worker", instruction="Work.", tools=[slow])
        world = Ports(model=ScriptedModel([call("slow"), text("done")]), state=state, clock=LoopClock())

        outcome = await run_agent(worker, "go", world, run_id="r1")

        assert isinstance(outcome, Completed)
        assert {"Busy"} == {type(each).__name__ for each in refused}

    run(scene())


@pytest.mark.promise("N-10")
def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    """Where the answer took longer than the lease, it is renewed before the first effect."""

    async def scene() -> None:
        done: list[str] = []

        class Slow(MemoryState):
            async def acquire(
                self, run_id: str, *, holder: str, seconds: float, create: bool = True
            ) -> Lease | Busy | None:
                lease = await super().acquire(run_id, holder=holder, seconds=seconds, create=create)
                await asyncio.sleep(40)
                return lease

            async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
                done.append("renew")
                return await super().renew(run_id, epoch, seconds=seconds)

        class Told(ScriptedModel):
            async def complete(self, request: ModelRequest) -> AssistantMessage:
                done.append("ask")
                return await super().complete(request)

        state = Slow(monotonic=asyncio.get_running_loop().time)
        talker = AgentDefinition(name="talker", instruction="Talk.")

        await run_agent(talker, "go", Ports(model=Told([text("hi")]), state=state, clock=LoopClock()))

        assert ["renew", "ask"] == done

    run(scene())


@pytest.mark.promise("N-10")
@pytest.mark.parametrize("where", ["key", "context"])
async def test_a_process_that_stood_still_after_the_intent_dispatches_nothing(where: str) -> None:
    """It slept while a port answered; the lease ran out, another took the run and said what became of the call."""
    clock = FixedClock()
    done: list[str] = []

    def sleep() -> None:
        clock.at += 60.0

    class Keys(MemoryIdempotency):
        async def begin(self, namespace: str, key: str, digest: str) -> Begun:
            sleep()
            return await super().begin(namespace, key, digest)

    class Window:
        async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
            if where == "context":
                sleep()
            return messages

    class Told(ScriptedModel):
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            done.append("model")
            return await super().complete(request)

    @tool(key=lambda _: "k")
    async def pay() -> str:
        """Pay."""
        done.append("pay")
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    state = MemoryState(monotonic=clock.monotonic)
    ports = Ports(Told([call("pay"), text("done")]), state, clock=clock, idempotency=Keys(), context=Window())

    with pytest.raises(LostLease):
        await run_agent(payer, "go", ports, run_id="r1")

    assert ([] if where == "context" else ["model"]) == done


@pytest.mark.promise("N-10")
@pytest.mark.parametrize("how", ["refused", "unreachable"])
def test_a_worker_that_cannot_renew_its_lease_stops(how: str) -> None:
    """When another may own the run, the tool at work is ended and nothing more is started or written."""

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        hang = Hang()
        started: list[str] = []

        class Losing(MemoryState):
            async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
                if how == "refused":
                    return False
                message = "no route to the store"
                raise PortError(message)

        @tool(timeout=None)
        async def slow() -> str:
            """Never end."""
            started.append("slow")
            await hang()
            return "slow"

        worker = AgentDefinition(name="worker", instruction="Work.", tools=[slow])
        state = Losing(monotonic=loop.time)
        world = Ports(model=ScriptedModel([call("slow"), text("done")]), state=state, clock=LoopClock())

        with pytest.raises(LostLease):
            await run_agent(worker, "go", world, run_id="r1")

        assert (1, ["slow"], set()) == (hang.cancelled, started, leftovers())
        assert "call_started" == (await state.evidence("r1"))[-1].kind

    run(scene())


@pytest.mark.promise("N-10")
def test_a_store_that_is_away_for_a_moment_does_not_stop_a_slow_tool() -> None:
    """While the lease holds, a poll that fails is tried again."""

    async def scene() -> None:
        class Flaky(MemoryState):
            failed = 0

            async def read(self, run_id: str, after: int = 0) -> list[tuple[int, Word]]:
                if loop.time() - began > 1 and self.failed < 5:
                    self.failed += 1
                    message = "away"
                    raise PortError(message)
                return [*await super().read(run_id, after)]

        @tool(timeout=None)
        async def slow() -> str:
            """Take a while."""
            await asyncio.sleep(20)
            return "slow"

        loop = asyncio.get_running_loop()
        began = loop.time()
        worker = AgentDefinition(name="worker", instruction="Work.", tools=[slow])
        state = Flaky(monotonic=loop.time)

        outcome = await run_agent(worker, "go", Ports(model=ScriptedModel([call("slow"), text("done")]), state=state))

        assert isinstance(outcome, Completed)
        assert 5 == state.failed

    run(scene())


@pytest.mark.promise("N-12")
def test_a_deadline_that_outlasts_the_run_is_never_felt() -> None:
    """With time to spare a run with a deadline ends like one without."""

    async def scene() -> None:
        clock = LoopClock()
        world = replace(ports("", Hang()), clock=clock)

        outcome = await run_agent(agent("", Hang()), "go", world, deadline=clock.now() + 1e9)

        assert isinstance(outcome, Completed)
        assert set() == leftovers()

    run(scene())
