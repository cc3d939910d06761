"""A run is interrupted by its task, by the cancellation port or by a word; nothing of it stays behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest
from attrs import evolve as replace

from tests.driver.hanging import Hang, agent, ports
from tests.driver.virtual import LoopClock, leftovers, run
from turnwright import (
    AgentDefinition,
    Cancelled,
    Completed,
    Decision,
    Failed,
    MemoryState,
    Outcome,
    PortError,
    Ports,
    Suspended,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.evidence import Entry, verify
from turnwright.inbox import Cancel, LateResult, Steer, Word
from turnwright.memory import MemoryBudgets
from turnwright.messages import AssistantMessage, UserMessage
from turnwright.ports import Append, ApprovalRequest, ModelRequest
from turnwright.testing import ScriptedModel, call, text

PLACES = ["model", "tool", "approvals", "context", "guard", "check", "reserve", "settle", "inbox", "read", "append"]


async def settled(task: asyncio.Task[Outcome[str]]) -> Outcome[str] | BaseException:
    """What became of a task."""
    await asyncio.wait([task])
    return task.exception() or task.result() if not task.cancelled() else asyncio.CancelledError()


async def until(ready: Callable[[], bool]) -> None:
    """Let the loop turn until *ready*."""
    while not ready():  # noqa: ASYNC110 - what it waits for is not always an event
        await asyncio.sleep(0)


async def ticks() -> None:
    """Give what was let go a few turns of the loop to say its last word."""
    for _ in range(8):
        await asyncio.sleep(0)


@pytest.mark.promise("N-12", "T-10")
@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("where", PLACES)
def test_the_cancellation_port_ends_a_wait_for_anything(where: str, stubborn: bool) -> None:
    """Wherever the run hangs, within the grace it is suspended as `cancelled` and can be resumed to its end."""

    async def scene() -> None:
        hang, signal = Hang(stubborn=stubborn), asyncio.Event()
        worker, world = agent(where, hang, needs_approval=where == "approvals"), ports(where, hang)
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(run_agent(worker, "go", replace(world, cancellation=signal), run_id="r1"))
        await hang.reached.wait()
        slow = ("append", "settle", "inbox", "read")  # they are needed on the way out, too
        began = loop.time()
        signal.set()

        got = await settled(task)

        assert loop.time() - began <= (3 * world.grace + 1 if stubborn or where in slow else 0.5)
        if where == "append":  # it was written, and nobody said so
            assert isinstance(got, PortError)
        else:
            assert isinstance(got, Suspended)
            assert ("cancelled", where == "approvals") == (got.reason, got.pending != ())
        if not stubborn:
            assert set() == leftovers()
        hang.let_go()
        await until(lambda: hang.left == hang.entered)
        await ticks()
        assert set() == leftovers()
        ended = await resume_agent(worker, "r1", replace(world, cancellation=asyncio.Event()))
        if where == "approvals":
            assert isinstance(ended, Suspended)
            assert "approval" == ended.reason
        else:
            assert isinstance(ended, Completed)
            assert "done" == ended.output
        verify(await world.state.evidence("r1"))
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("N-12", "T-10")
@pytest.mark.parametrize(
    ("where", "stubborn"),
    # Without a deadline or a signal to race, the run's own task waits for these, and only they can let it go.
    [*[(where, False) for where in PLACES], *[(where, True) for where in PLACES[:6]]],
)
def test_a_cancelled_task_lets_the_cancellation_through(where: str, stubborn: bool) -> None:
    """The caller sees CancelledError and nothing else, and the run can be resumed to its end."""

    async def scene() -> None:
        hang = Hang(stubborn=stubborn)
        worker, world = agent(where, hang, needs_approval=where == "approvals"), ports(where, hang)
        task = asyncio.create_task(run_agent(worker, "go", world, run_id="r1"))
        await hang.reached.wait()
        task.cancel()

        got = await settled(task)

        assert isinstance(got, asyncio.CancelledError)
        if not stubborn:
            assert set() == leftovers()
        hang.let_go()
        await until(lambda: hang.left == hang.entered)
        await ticks()
        assert set() == leftovers()
        ended = await resume_agent(worker, "r1", world)
        assert isinstance(ended, Suspended if where == "approvals" else Completed)
        verify(await world.state.evidence("r1"))
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("N-05")
async def test_an_interrupted_run_says_so_in_its_journal() -> None:
    """Whoever looks at the run later finds it suspended as `cancelled`, not in the middle of nowhere."""
    hang = Hang()
    world = ports("tool", hang)
    task = asyncio.create_task(run_agent(agent("tool", hang), "go", world, run_id="r1"))
    await hang.reached.wait()
    task.cancel()
    await settled(task)

    last = (await world.state.evidence("r1"))[-1]

    assert ("run_suspended", "cancelled") == (last.kind, last.code)


@pytest.mark.promise("N-12")
async def test_a_signal_given_before_the_start_starts_nothing() -> None:
    """A run that is cancelled already asks no model, and is there to be resumed."""
    signal = asyncio.Event()
    signal.set()
    model = ScriptedModel([text("hi")])
    talker = AgentDefinition(name="talker", instruction="Talk.")
    world = Ports(model=model, cancellation=signal)

    outcome = await run_agent(talker, "hello", world, run_id="r1")
    asked = len(model.requests)
    signal.clear()
    ended = await resume_agent(talker, "r1", world)

    assert isinstance(outcome, Suspended)
    assert ("cancelled", 0) == (outcome.reason, asked)
    assert isinstance(ended, Completed)
    assert set() == leftovers()


@pytest.mark.promise("N-12")
@pytest.mark.case("loo-06")
async def test_a_signal_during_a_tool_makes_no_other_model_call() -> None:
    """One terminal fact, one model call; what waited in the inbox still waits."""
    hang, signal = Hang(), asyncio.Event()
    world = replace(ports("tool", hang), cancellation=signal)
    task = asyncio.create_task(run_agent(agent("tool", hang), "go", world, run_id="r1"))
    await hang.reached.wait()
    await world.state.post("r1", Steer(UserMessage("second")))
    signal.set()

    outcome = await settled(task)

    assert isinstance(outcome, Suspended)
    assert ("cancelled", 1) == (outcome.reason, outcome.usage.requests)
    assert 1 == [each.kind for each in await world.state.evidence("r1")].count("run_suspended")
    hang.let_go()
    ended = await resume_agent(agent("", hang), "r1", replace(world, cancellation=None))
    assert isinstance(ended, Completed)
    assert 1 == [message.text for message in ended.transcript].count("second")


@pytest.mark.promise("N-12")
@pytest.mark.case("con-01")
async def test_a_cancelled_batch_waits_for_the_cleanup_of_each_tool() -> None:
    """Every tool of the batch sees the cancellation and ends its cleanup before the run returns."""
    cleaned: list[int] = []
    entered = asyncio.Semaphore(0)

    @tool(replay="safe")
    async def work(n: int) -> str:
        """Work."""
        entered.release()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(n)
        return "never"

    batch = AgentDefinition(name="batch", instruction="Work.", tools=[work])
    model = ScriptedModel([[call("work", n=n) for n in range(5)], text("done")])
    task = asyncio.create_task(run_agent(batch, "go", Ports(model=model), run_id="r1"))
    for _ in range(5):
        await entered.acquire()
    task.cancel()

    got = await settled(task)

    assert isinstance(got, asyncio.CancelledError)
    assert ([0, 1, 2, 3, 4], set()) == (sorted(cleaned), leftovers())


@pytest.mark.promise("N-07", "T-10")
@pytest.mark.case("con-01")
async def test_a_failing_tool_leaves_its_siblings_alone() -> None:
    """A tool that raises is an error result; the slow one ends in its own time, and both are told to the model."""
    failed = asyncio.Event()

    @tool
    async def fast() -> str:
        """Fail."""
        await asyncio.sleep(0)
        failed.set()
        message = "broken"
        raise RuntimeError(message)

    @tool
    async def slow() -> str:
        """Wait for the other."""
        await failed.wait()
        await asyncio.sleep(0)
        return "fine"

    pair = AgentDefinition(name="pair", instruction="Work.", tools=[fast, slow])
    outcome = await run_agent(pair, "go", Ports(model=ScriptedModel([[call("fast"), call("slow")], text("done")])))

    assert isinstance(outcome, Completed)
    assert [("fast", "broken"), ("slow", "fine")] == [
        (message.name, message.text) for message in outcome.transcript if message.role == "tool"
    ]
    assert set() == leftovers()


@pytest.mark.promise("N-07", "T-10")
@pytest.mark.parametrize("fault", ["lease", "journal", "store"])
async def test_a_run_that_breaks_leaves_no_task_behind(fault: str) -> None:
    """When the engine itself must give up in the middle of a batch, the other tools of the batch are ended first."""
    cleaned: list[str] = []

    class Faulty(MemoryState):
        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            answer = await super().append(run_id, epoch, expected, append_id, facts)
            if cleaned == ["began"]:
                cleaned.append("broke")
                match fault:
                    case "lease":
                        self._runs["r1"].epoch += 1
                        return await super().append(run_id, epoch, expected, "another", facts)
                    case "journal":
                        message = "what is written is not what was sent"
                        raise ValueError(message)
                    case _:
                        message = "disk full"
                        raise OSError(message)
            return answer

    @tool
    async def fast() -> str:
        """Begin and end."""
        await asyncio.sleep(0)
        cleaned.append("began")
        return "fast"

    @tool
    async def slow() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("cleaned")
        return "never"

    pair = AgentDefinition(name="pair", instruction="Work.", tools=[fast, slow])
    world = Ports(model=ScriptedModel([[call("fast"), call("slow")], text("done")]), state=Faulty())

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, it must not leave tasks
        await run_agent(pair, "go", world, run_id="r1")
    assert (["began", "broke", "cleaned"], set()) == (cleaned, leftovers())


@pytest.mark.promise("N-07")
@pytest.mark.case("con-02")
async def test_a_tool_that_cancels_itself_is_a_failing_tool() -> None:
    """A CancelledError that nobody asked for is an error result, and the run goes on."""

    @tool
    async def confused() -> str:
        """Raise."""
        message = "inner"
        raise asyncio.CancelledError(message)

    one = AgentDefinition(name="one", instruction="Work.", tools=[confused])
    outcome = await run_agent(one, "go", Ports(model=ScriptedModel([call("confused"), text("done")])))

    assert isinstance(outcome, Completed)
    (result,) = [message for message in outcome.transcript if message.role == "tool"]
    assert (True, "it cancelled itself") == (result.is_error, result.text)


@pytest.mark.case("con-02")
async def test_a_model_that_cancels_itself_is_a_failing_model() -> None:
    """The run suspends as `model`; the caller is not cancelled."""

    class Confused:
        async def complete(self, request: ModelRequest) -> AssistantMessage:
            raise asyncio.CancelledError

    outcome = await run_agent(AgentDefinition(name="one", instruction="Talk."), "go", Ports(model=Confused()))

    assert isinstance(outcome, Suspended)
    assert ("model", "cancelled") == (outcome.reason, outcome.detail)


@pytest.mark.promise("N-12")
@pytest.mark.case("con-05")
async def test_a_tool_that_ends_as_the_run_is_cancelled_swallows_nothing() -> None:
    """The result lands and the cancellation arrives in one turn of the loop: the caller is cancelled all the same."""
    ended = asyncio.Event()
    tasks: list[asyncio.Task[Outcome[str]]] = []

    @tool
    async def work() -> str:
        """End, and cancel whoever waits."""
        await ended.wait()
        tasks[0].cancel()
        return "worked"

    one = AgentDefinition(name="one", instruction="Work.", tools=[work])
    world = Ports(model=ScriptedModel([call("work"), text("done")]))
    tasks.append(asyncio.create_task(run_agent(one, "go", world, run_id="r1")))
    await asyncio.sleep(0)
    ended.set()

    got = await settled(tasks[0])
    resumed = await resume_agent(one, "r1", world)

    assert isinstance(got, asyncio.CancelledError)
    assert isinstance(resumed, Completed)
    assert "worked" == resumed.transcript[2].text  # what had ended was recorded, and did not run again


@pytest.mark.promise("N-12", "T-01")
async def test_a_payment_that_is_interrupted_is_in_doubt_and_not_repeated() -> None:
    """A `never` tool that was cut off is shown to people; a resume runs nothing."""
    hang = Hang()

    @tool
    async def pay(cents: int) -> str:
        """Pay."""
        await hang()
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    world = Ports(model=ScriptedModel([call("pay", cents=5), text("done")]))
    task = asyncio.create_task(run_agent(payer, "go", world, run_id="r1"))
    await hang.reached.wait()
    task.cancel()
    await settled(task)

    outcome = await resume_agent(payer, "r1", world)

    assert isinstance(outcome, Suspended)
    assert ("in-doubt", [("in-doubt", "r1:1.0", "pay")], 1) == (
        outcome.reason,
        [(each.kind, each.effect_id, each.tool) for each in outcome.pending],
        hang.entered,
    )


@pytest.mark.promise("N-12")
def test_the_word_cancel_reaches_a_run_at_work() -> None:
    """A run that waits for a slow tool looks into its inbox, ends the tool, and ends with what is in doubt."""

    async def scene() -> None:
        hang = Hang()

        @tool(timeout=None)
        async def pay(cents: int) -> str:
            """Pay."""
            await hang()
            return "paid"

        payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
        world = Ports(model=ScriptedModel([call("pay", cents=5), text("done")]))
        task = asyncio.create_task(run_agent(payer, "go", world, run_id="r1"))
        await hang.reached.wait()
        await world.state.post("r1", Cancel("enough", by="ann"))

        outcome = await settled(task)

        assert isinstance(outcome, Cancelled)
        assert ("enough", ("r1:1.0",), 1) == (outcome.reason, outcome.in_doubt, hang.cancelled)
        assert set() == leftovers()

    run(scene())


@pytest.mark.promise("N-12")
def test_a_tool_that_ignores_its_cancellation_is_abandoned_and_its_word_is_kept() -> None:
    """The run ends within the grace; what the tool says after all is a late observation in the inbox, not a result."""

    async def scene() -> None:
        hang, signal = Hang(stubborn=True), asyncio.Event()

        @tool
        async def pay(cents: int) -> str:
            """Pay."""
            await hang()
            return "paid"

        payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
        model = ScriptedModel([call("pay", cents=5), text("done")])
        world = Ports(model=model, cancellation=signal, budgets=MemoryBudgets({}))
        task = asyncio.create_task(run_agent(payer, "go", world, run_id="r1"))
        await hang.reached.wait()
        signal.set()
        outcome = await settled(task)
        assert isinstance(outcome, Suspended)
        hang.let_go()
        await ticks()

        words = await world.state.read("r1")

        assert [LateResult("r1:1.0", "paid")] == [word for _, word in words]
        again = await resume_agent(payer, "r1", replace(world, cancellation=None))
        assert isinstance(again, Suspended)
        assert "in-doubt" == again.reason

    run(scene())


@pytest.mark.promise("T-10")
@pytest.mark.parametrize("replies", [[text("hi")], [call("work"), text("hi")], [ValueError("no")], []])
async def test_no_outcome_leaves_a_task_or_a_thread(replies: list[object]) -> None:
    """After any outcome the loop and the threads are as before, also with a signal that was never given."""
    before = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}

    @tool
    def work() -> str:
        """Work in a thread."""
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    world = Ports(model=ScriptedModel(replies), cancellation=asyncio.Event())  # type: ignore[arg-type]

    await run_agent(worker, "go", world)

    assert set() == leftovers()
    assert before == {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


@pytest.mark.promise("N-12")
async def test_a_broken_signal_changes_nothing() -> None:
    """A cancellation port whose wait raises is one that never speaks."""

    class Broken:
        def is_set(self) -> bool:
            return False

        async def wait(self) -> object:
            message = "no signal"
            raise OSError(message)

    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    world = Ports(model=ScriptedModel([call("work"), text("done")]), cancellation=Broken())

    outcome = await run_agent(agent("", Hang()), "go", world)
    gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)

    assert isinstance(outcome, Completed)
    assert (set(), []) == (leftovers(), reported)


async def test_a_signal_that_comes_and_goes_was_given() -> None:
    """Whoever sets and clears the event within one turn of the loop has cancelled."""
    hang, signal = Hang(), asyncio.Event()
    task = asyncio.create_task(run_agent(agent("tool", hang), "go", replace(ports("tool", hang), cancellation=signal)))
    await hang.reached.wait()
    signal.set()
    signal.clear()

    outcome = await settled(task)

    assert isinstance(outcome, Suspended)
    assert "cancelled" == outcome.reason


@pytest.mark.promise("T-10")
async def test_many_cancelled_runs_leave_nothing() -> None:
    """A hundred runs cut at a hundred places are all over when their tasks are."""

    async def scene(turns: int) -> Awaitable[None] | None:
        worker = agent("", Hang())
        world = Ports(model=ScriptedModel([[call("work"), call("work")], text("done")]))
        task = asyncio.create_task(run_agent(worker, "go", world, run_id="r1"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await settled(task)
        if await world.state.load("r1"):
            ended = await resume_agent(worker, "r1", world)
            assert isinstance(ended, Completed)
            verify(await world.state.evidence("r1"))
        return None

    for turns in range(25):
        await scene(turns)
        assert set() == leftovers()


@pytest.mark.case("con-02")
@pytest.mark.parametrize("where", ["guard", "check", "tool_choice", "approvals", "reconcile"])
def test_code_that_cancels_itself_gives_up_and_is_not_asked_for_ever(where: str) -> None:
    """A guard refuses, a check or a tool choice fails the run, an approver leaves it waiting, `reconcile` in doubt."""

    async def scene() -> None:
        async def give_up(*_: object) -> None:
            raise asyncio.CancelledError

        def give_up_now(_: object) -> str:
            raise asyncio.CancelledError

        entered = asyncio.Event()

        @tool(approval="required" if where == "approvals" else "none", reconcile=give_up)
        async def work() -> str:
            """Work, or hang."""
            entered.set()
            if where == "reconcile":
                await asyncio.Event().wait()
            return "worked"

        class Approver:
            async def request(self, request: ApprovalRequest) -> Decision:
                raise asyncio.CancelledError

        worker: AgentDefinition[str, str] = AgentDefinition(
            name="worker",
            instruction="Work.",
            tools=[work],
            guards=[give_up] if where == "guard" else [],
            check_output=[give_up] if where == "check" else [],
            tool_choice=give_up_now if where == "tool_choice" else "auto",
        )
        world = Ports(model=ScriptedModel([call("work"), text("done")]), approvals=Approver())
        task = asyncio.create_task(run_agent(worker, "go", world, run_id="r1"))
        if where == "reconcile":
            await entered.wait()
            task.cancel()
            await asyncio.wait([task])
            task = asyncio.create_task(resume_agent(worker, "r1", world))

        outcome = await settled(task)

        match where:
            case "guard":
                assert isinstance(outcome, Completed)
                assert "not executed" in outcome.transcript[2].text
            case "check" | "tool_choice":
                assert isinstance(outcome, Failed)
                assert where in outcome.error.code
            case _:
                assert isinstance(outcome, Suspended)
                assert ("in-doubt" if where == "reconcile" else "approval") == outcome.reason

    run(scene())


@pytest.mark.promise("N-12")
@pytest.mark.parametrize("where", ["approvals", "reconcile"])
def test_whoever_is_asked_about_a_call_is_not_waited_for_for_ever(where: str) -> None:
    """An approver has until the request expires, `reconcile` as long as its tool; then the run rests."""

    async def scene() -> None:
        hang, entered, loop = Hang(), asyncio.Event(), asyncio.get_running_loop()

        async def find(_: str) -> None:
            await hang()

        @tool(approval="required" if where == "approvals" else "none", reconcile=find, timeout=60)
        async def work() -> str:
            """Hang."""
            entered.set()
            await asyncio.Event().wait()
            return "never"

        class Approver:
            async def request(self, request: ApprovalRequest) -> Decision:
                await hang()
                return Decision(approved=True)

        worker = AgentDefinition(name="worker", instruction="Work.", tools=[work], approval_seconds=60)
        world = Ports(model=ScriptedModel([call("work"), text("done")]), approvals=Approver(), clock=LoopClock())
        task = asyncio.create_task(run_agent(worker, "go", world, run_id="r1"))
        if where == "reconcile":
            await entered.wait()
            task.cancel()
            await asyncio.wait([task])
            task = asyncio.create_task(resume_agent(worker, "r1", world))
        began = loop.time()

        outcome = await settled(task)

        assert isinstance(outcome, Suspended)
        assert ("in-doubt" if where == "reconcile" else "approval") == outcome.reason
        assert 59 < loop.time() - began < 60 + world.grace + 1
        assert (1, set()) == (hang.cancelled, leftovers())

    run(scene())


@pytest.mark.promise("N-12")
def test_a_broken_signal_costs_no_time_while_a_port_is_slow() -> None:
    """A run whose signal is lost waits for its ports as it would without one, and does not turn in circles."""

    async def scene() -> None:
        class Broken:
            def is_set(self) -> bool:
                return False

            async def wait(self) -> object:
                message = "no signal"
                raise OSError(message)

        class Slow(MemoryState):
            async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
                await asyncio.sleep(10)
                return await super().read(run_id, after)

        world = Ports(model=ScriptedModel([text("hi")]), cancellation=Broken(), state=Slow())

        outcome = await run_agent(AgentDefinition(name="talker", instruction="Talk."), "hello", world)

        assert isinstance(outcome, Completed)

    run(scene())


@pytest.mark.promise("N-12", "T-10")
def test_a_task_that_is_cancelled_while_it_reads_its_run_does_not_wait_for_a_dead_store() -> None:
    """A store that hangs as the run is read hangs as it is given back, and that has the grace and no more."""

    async def scene() -> None:
        hang = Hang()

        class Dying(MemoryState):
            dead = False

            async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
                if self.dead:
                    await hang()
                return await super().load(run_id, after)

            async def release(self, run_id: str, epoch: int) -> None:
                if self.dead:
                    await hang()
                await super().release(run_id, epoch)

        state = Dying()
        worker = AgentDefinition(name="worker", instruction="Work.")
        world = Ports(model=ScriptedModel([text("done")]), state=state, clock=LoopClock())
        await run_agent(worker, "go", world, run_id="r1")
        state.dead = True
        task = asyncio.create_task(run_agent(worker, "go", world, run_id="r1"))
        await hang.reached.wait()
        task.cancel()

        await asyncio.wait([task], timeout=60)

        assert task.cancelled()
        assert (2, 2) == (hang.entered, hang.left)

    run(scene())
