"""After a crash: what the journal holds is not done again, what it does not hold follows the tool's replay policy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from turnwright import (
    AgentDefinition,
    CallView,
    Completed,
    DidNotHappen,
    Happened,
    Limits,
    LostLease,
    MemoryState,
    Outcome,
    PortError,
    Ports,
    Suspended,
    Tool,
    ToolContext,
    ToolOutput,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.evidence import Entry, verify
from turnwright.inbox import LateResult
from turnwright.messages import ToolMessage
from turnwright.ports import Append
from turnwright.testing import ScriptedModel, call, text


class Crash(BaseException):
    """The process is gone: no more of its code runs that matters."""


class CrashingState(MemoryState):
    """A store whose owner dies at its append number *at*: before it is written, or after it."""

    def __init__(self, at: int, *, written: bool) -> None:
        super().__init__()
        self.at = at
        self.written = written
        self.appends = 0
        self.dead = False

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write, or die."""
        if self.dead:
            raise Crash
        self.appends += 1
        if self.appends == self.at:
            self.dead = True
            if self.written:
                await super().append(run_id, epoch, expected, append_id, facts)
            raise Crash
        return await super().append(run_id, epoch, expected, append_id, facts)

    async def release(self, run_id: str, epoch: int) -> None:
        """A dead owner gives nothing back."""
        if not self.dead:
            await super().release(run_id, epoch)

    async def post(self, run_id: str, word: object) -> int:
        """A dead owner says nothing."""
        if self.dead:
            raise Crash
        return await super().post(run_id, word)  # type: ignore[arg-type]


async def resumed(definition: AgentDefinition[str, str], ports: Ports, state: MemoryState) -> Outcome[str]:
    """Start or continue the run in a fresh engine."""
    return await run_agent(definition, "go", Ports(model=ports.model, state=state.reopen()), run_id="r1")


@pytest.mark.promise("N-05", "N-08", "T-01")
@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("replay", ["never", "safe", "idempotent"])
async def test_a_crash_at_any_append_pays_never_twice(replay: str, at: int, written: bool) -> None:
    """Wherever the process dies, the next one ends the run or shows the effect in doubt, by the tool's own policy."""
    effects: list[tuple[str, int]] = []

    @tool(replay=replay)  # type: ignore[call-overload,untyped-decorator]
    async def pay(cents: int, context: ToolContext) -> str:
        """Pay."""
        effects.append((context.key, context.attempt))
        return f"paid {cents}"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    state = CrashingState(at, written=written)
    ports = Ports(model=ScriptedModel([call("pay", cents=5), text("done")]), state=state)
    try:
        await run_agent(payer, "go", ports, run_id="r1")
        crashed = False
    except Crash:
        crashed = True
    state.at, state.dead = 0, False
    known = b"CallFinished" in b" ".join([entry.kind.encode() for entry in await state.load("r1")])

    outcome = await resumed(payer, ports, state)

    assert crashed == (at <= state.appends)
    assert 1 >= len({key for key, _ in effects})
    if replay == "never":
        assert 1 >= len(effects)
    if isinstance(outcome, Suspended):
        assert ("never", "in-doubt", False, True) == (replay, outcome.reason, known, crashed)
        assert "r1:1.0" == outcome.pending[0].effect_id
    else:
        assert isinstance(outcome, Completed)
        assert "paid 5" == outcome.transcript[2].text
    verify(await state.evidence("r1"))


@pytest.mark.promise("N-05")
@pytest.mark.parametrize("policy", ["safe", "idempotent"])
async def test_a_call_that_never_ends_is_tried_three_times_and_is_then_in_doubt(policy: str) -> None:
    """Attempts are bounded over all processes, and each has the same key."""
    attempts: list[tuple[int, str]] = []
    entered = asyncio.Semaphore(0)

    @tool(replay=policy)  # type: ignore[call-overload,untyped-decorator]
    async def charge(context: ToolContext) -> str:
        """Charge."""
        attempts.append((context.attempt, context.key))
        entered.release()
        await asyncio.Event().wait()
        return "never"

    agent = AgentDefinition(name="till", instruction="Charge.", tools=[charge])
    ports = Ports(model=ScriptedModel([call("charge"), text("done")]))
    for _ in range(3):
        task = asyncio.create_task(run_agent(agent, "go", ports, run_id="r1"))
        await entered.acquire()
        task.cancel()
        await asyncio.wait([task])

    outcome = await resume_agent(agent, "r1", ports)

    assert ([1, 2, 3], 1) == ([attempt for attempt, _ in attempts], len({key for _, key in attempts}))
    assert isinstance(outcome, Suspended)
    assert ("in-doubt", "no result after 3 attempts") == (outcome.reason, outcome.pending[0].why)


@pytest.mark.promise("N-05", "T-01")
@pytest.mark.parametrize(
    ("said", "ends", "shown"),
    [
        (Happened("receipt 7"), True, "receipt 7"),
        (DidNotHappen(), True, "this call did not take effect; it may be issued again"),
        (None, False, ""),
        ("yes", False, ""),
        (OSError("away"), False, ""),
        (Happened(object()), False, ""),
    ],
)
async def test_a_tool_that_can_find_out_is_asked_before_anybody_else(said: object, ends: bool, shown: str) -> None:
    """`reconcile` gets the call's key; a clear word settles it, anything else leaves it to people, and nothing runs."""
    asked: list[str] = []
    keys: list[str] = []
    entered = asyncio.Event()

    async def find(key: str) -> Happened | DidNotHappen | None:
        asked.append(key)
        if isinstance(said, Exception):
            raise said
        return said  # type: ignore[return-value]

    @tool(reconcile=find)
    async def pay(context: ToolContext) -> str:
        """Pay."""
        keys.append(context.key)
        entered.set()
        await asyncio.Event().wait()
        return "never"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    ports = Ports(model=ScriptedModel([call("pay"), text("done")]))
    task = asyncio.create_task(run_agent(payer, "go", ports, run_id="r1"))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    outcome = await resume_agent(payer, "r1", ports)

    assert keys == asked
    assert 1 == len(keys)
    if ends:
        assert isinstance(outcome, Completed)
        assert shown == outcome.transcript[2].text
    else:
        assert isinstance(outcome, Suspended)
        assert "in-doubt" == outcome.reason


@pytest.mark.promise("N-05")
async def test_a_lost_acknowledgement_is_no_reason_to_write_twice() -> None:
    """An append that failed after it was written is asked again under its id, and the journal is whole."""

    class Forgetful(MemoryState):
        appends = 0

        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            answer = await super().append(run_id, epoch, expected, append_id, facts)
            self.appends += 1
            if self.appends % 2:
                message = "connection reset"
                raise PortError(message)
            return answer

    @tool
    async def work() -> str:
        """Work."""
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    state = Forgetful()
    outcome = await run_agent(
        worker, "go", Ports(model=ScriptedModel([call("work"), text("done")]), state=state), run_id="r1"
    )

    assert isinstance(outcome, Completed)
    kinds = [item.kind for item in await state.evidence("r1")]
    assert (1, 1) == (kinds.count("call_started"), kinds.count("run_completed"))
    verify(await state.evidence("r1"))


@pytest.mark.promise("N-05", "N-10")
async def test_a_store_that_stays_away_stops_the_run_before_its_effect() -> None:
    """Without an acknowledged intent nothing reaches outside; the caller sees the port's error."""
    ran: list[int] = []

    class Away(MemoryState):
        tries = 0

        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            if any([entry.kind == "CallStarted" for entry in facts]):
                self.tries += 1
                message = "disk full"
                raise PortError(message)
            return await super().append(run_id, epoch, expected, append_id, facts)

    @tool
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    state = Away()
    with pytest.raises(PortError, match="disk full"):
        await run_agent(payer, "go", Ports(model=ScriptedModel([call("pay"), text("done")]), state=state), run_id="r1")

    assert [] == ran
    assert 5 <= state.tries <= 10
    ended = await run_agent(
        payer, "go", Ports(model=ScriptedModel([call("pay"), text("done")]), state=_same(state)), run_id="r1"
    )
    assert isinstance(ended, Completed)
    assert [1] == ran


def _same(state: MemoryState) -> MemoryState:
    """A sound store with what *state* holds."""
    sound = MemoryState()
    sound._runs = state._runs
    return sound


@pytest.mark.promise("N-10")
@pytest.mark.parametrize("error", [OSError("disk"), ValueError("bug"), RuntimeError()])
@pytest.mark.parametrize("call_", ["acquire", "load", "read", "append"])
async def test_a_store_that_raises_is_heard_and_leaves_the_run_as_it_was(call_: str, error: Exception) -> None:
    """What the store raises reaches the caller, no effect has happened, and the run can be taken up again."""
    ran: list[int] = []

    class Raising(MemoryState):
        broken = False

        def __getattribute__(self, name: str) -> object:
            if name == call_ and super().__getattribute__("broken"):

                async def fail(*_: object, **__: object) -> object:
                    raise error

                return fail
            return super().__getattribute__(name)

    @tool(approval="required")
    async def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    state = Raising()
    ports = Ports(model=ScriptedModel([call("pay"), text("done")]), state=state)
    await run_agent(payer, "go", ports, run_id="r1")
    state.broken = True

    with pytest.raises(type(error)):
        await resume_agent(payer, "r1", ports, decisions={"r1:1.0": "approve"})
    state.broken = False
    ended = await resume_agent(payer, "r1", ports, decisions={"r1:1.0": "approve"})

    assert isinstance(ended, Completed)
    assert [1] == ran


@pytest.mark.promise("N-10")
async def test_a_worker_that_was_overtaken_writes_nothing_and_says_what_it_saw() -> None:
    """Another owner took the run; the late one raises, and leaves the result of its effect as an observation."""
    overtaken = asyncio.Event()

    @tool
    async def pay() -> str:
        """Pay, slowly."""
        await overtaken.wait()
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    state = MemoryState()
    ports = Ports(model=ScriptedModel([call("pay"), text("done")]), state=state)
    slow = asyncio.create_task(run_agent(payer, "go", ports, run_id="r1"))
    while "CallStarted" not in [entry.kind for entry in await state.load("r1")]:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)

    other = await resume_agent(payer, "r1", Ports(model=ports.model, state=state.reopen()))
    overtaken.set()
    with pytest.raises(LostLease):
        await slow
    words = [word for _, word in await state.read("r1")]

    assert isinstance(other, Suspended)
    assert "in-doubt" == other.reason
    assert [LateResult("r1:1.0", "paid")] == words
    verify(await state.evidence("r1"))


@pytest.mark.promise("N-05")
async def test_a_release_that_fails_does_not_hide_the_outcome() -> None:
    """The lease ends by itself; the caller gets what the run gave."""

    class Sticky(MemoryState):
        async def release(self, run_id: str, epoch: int) -> None:
            message = "away"
            raise PortError(message)

    talker = AgentDefinition(name="talker", instruction="Talk.")

    outcome = await run_agent(talker, "go", Ports(model=ScriptedModel([text("hi")]), state=Sticky()))

    assert isinstance(outcome, Completed)


@pytest.mark.promise("N-08")
async def test_an_effect_has_one_id_from_the_question_to_the_result() -> None:
    """The approval, every attempt in every process and the record of it all name one id and one key."""
    contexts: list[ToolContext] = []
    entered = asyncio.Event()

    @tool(approval="required", replay="idempotent")
    async def pay(context: ToolContext) -> str:
        """Pay, the second time."""
        contexts.append(context)
        if context.attempt == 1:
            entered.set()
            await asyncio.Event().wait()
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    state = MemoryState()
    ports = Ports(model=ScriptedModel([call("pay"), text("done")]), state=state, tenant="t1")
    asked = await run_agent(payer, "go", ports, run_id="r1")
    assert isinstance(asked, Suspended)
    task = asyncio.create_task(resume_agent(payer, "r1", ports, decisions={asked.pending[0].effect_id: "approve"}))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    ended = await resume_agent(payer, "r1", Ports(model=ports.model, state=state.reopen(), tenant="t1"))

    assert isinstance(ended, Completed)
    assert [1, 2] == [context.attempt for context in contexts]
    assert {asked.pending[0].effect_id} == {context.effect_id for context in contexts}
    assert 1 == len({context.key for context in contexts})
    bodies = b"".join(
        [entry.body for entry in await state.load("r1") if entry.kind in ("ApprovalRequested", "CallStarted")]
    )
    assert 3 == bodies.count(b'"r1:1.0"')


@pytest.mark.promise("N-09")
async def test_a_recovered_call_needs_no_second_approval_and_a_new_one_does() -> None:
    """The approval belongs to the effect, not to the attempt."""
    runs: list[int] = []
    entered = asyncio.Event()

    @tool(approval="required", replay="safe")
    async def pay(context: ToolContext) -> str:
        """Pay, the second time."""
        runs.append(context.attempt)
        if context.attempt == 1 and len(runs) == 1:
            entered.set()
            await asyncio.Event().wait()
        return "paid"

    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay])
    ports = Ports(model=ScriptedModel([call("pay"), call("pay"), text("done")]))
    await run_agent(payer, "go", ports, run_id="r1")
    task = asyncio.create_task(resume_agent(payer, "r1", ports, decisions={"r1:1.0": "approve"}))
    await entered.wait()
    task.cancel()
    await asyncio.wait([task])

    outcome = await resume_agent(payer, "r1", ports)

    assert isinstance(outcome, Suspended)
    assert ("approval", "r1:2.0", [1, 2]) == (outcome.reason, outcome.pending[0].effect_id, runs)


async def test_a_batch_goes_on_where_it_was_cut() -> None:
    """What had ended is kept, what is `safe` runs again, what is `never` is in doubt, and the model waits for all."""
    ran: list[str] = []
    entered = asyncio.Semaphore(0)

    def make(name: str, replay: str, *, hangs: bool) -> Tool[..., object]:
        async def work(context: ToolContext) -> str:
            ran.append(name)
            if hangs and context.attempt == 1:
                entered.release()
                await asyncio.Event().wait()
            return name

        work.__doc__ = "Work."
        return tool(name=name, replay=replay)(work)  # type: ignore[call-overload,no-any-return]

    tools = [
        make("ended", "never", hangs=False),
        make("again", "safe", hangs=True),
        make("doubt", "never", hangs=True),
    ]
    agent = AgentDefinition(name="batch", instruction="Work.", tools=tools)
    model = ScriptedModel([[call("ended"), call("again"), call("doubt")], text("done")])
    ports = Ports(model=model)
    task = asyncio.create_task(run_agent(agent, "go", ports, run_id="r1"))
    for _ in range(2):
        await entered.acquire()
    for _ in range(4):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    doubted = await resume_agent(agent, "r1", ports)
    ended = await resume_agent(agent, "r1", ports, resolutions={"r1:1.2": Happened("doubt")})

    assert isinstance(doubted, Suspended)
    assert ("in-doubt", ["r1:1.2"], 1) == (
        doubted.reason,
        [each.effect_id for each in doubted.pending],
        doubted.usage.requests,
    )
    assert isinstance(ended, Completed)
    assert ["ended", "again", "doubt", "again"] == ran
    assert ["ended", "again", "doubt"] == [m.text for m in ended.transcript if isinstance(m, ToolMessage)]


@pytest.mark.promise("N-05", "N-12")
@pytest.mark.parametrize("place", range(1, 5))
async def test_an_append_that_was_cut_off_is_sent_again_before_anything_else(place: int) -> None:
    """A run that is cancelled while it writes knows what it wrote: its last word is that it was interrupted."""
    hanging = asyncio.Event()

    class Slow(MemoryState):
        appends = 0

        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            answer = await super().append(run_id, epoch, expected, append_id, facts)
            self.appends += 1
            if self.appends == place:
                hanging.set()
                await asyncio.Event().wait()
            return answer

    @tool(replay="safe")
    async def work() -> str:
        """Work."""
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    state = Slow()
    ports = Ports(model=ScriptedModel([call("work"), text("done")]), state=state)
    task = asyncio.create_task(run_agent(worker, "go", ports, run_id="r1"))
    await hanging.wait()
    task.cancel()
    await asyncio.wait([task])

    kinds = [item.kind for item in await state.evidence("r1")]
    ended = await resume_agent(worker, "r1", ports)

    assert task.cancelled()
    assert ("run_completed" if place == 4 else "run_suspended") == kinds[-1]
    assert isinstance(ended, Completed)
    assert [*range(1, len(kinds) + 1)] == [entry.seq for entry in await state.load("r1")][: len(kinds)]
    verify(await state.evidence("r1"))


@pytest.mark.promise("N-10")
async def test_a_journal_that_somebody_else_wrote_to_stops_the_run() -> None:
    """Two drivers that share an epoch cannot both write: the second is told, and starts nothing more."""
    ran: list[int] = []
    state = MemoryState()

    @tool
    async def work() -> str:
        """Work, while another writes."""
        ran.append(1)
        entries = state._runs["r1"].entries
        entries.append(entries[-1])
        return "worked"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[work])
    model = ScriptedModel([call("work"), call("work"), text("done")])

    with pytest.raises(LostLease, match="another holder wrote"):
        await run_agent(worker, "go", Ports(model=model, state=state), run_id="r1")

    assert ([1], 1) == (ran, len(model.requests))


@pytest.mark.promise("N-05", "N-10")
async def test_a_result_is_written_while_its_slower_siblings_still_run() -> None:
    """What has happened is in the journal at once: a crash now would not forget it."""
    may_end, kept = asyncio.Event(), asyncio.Event()

    class Watched(MemoryState):
        async def append(
            self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]
        ) -> Append:
            answer = await super().append(run_id, epoch, expected, append_id, facts)
            if any([each.kind == "CallFinished" for each in facts]):
                kept.set()
            return answer

    @tool
    async def fast() -> str:
        """Be fast."""
        return "fast"

    @tool
    async def slow() -> str:
        """Be slow."""
        await may_end.wait()
        return "slow"

    worker = AgentDefinition(name="worker", instruction="Work.", tools=[fast, slow])
    state = Watched()
    ports = Ports(model=ScriptedModel([[call("slow"), call("fast")], text("done")]), state=state)
    task = asyncio.create_task(run_agent(worker, "go", ports, run_id="r1"))

    async with asyncio.timeout(10):
        await kept.wait()
    finished = [each for each in await state.load("r1") if each.kind == "CallFinished"]
    may_end.set()
    ended = await task

    assert 1 == len(finished)
    assert isinstance(ended, Completed)


@pytest.mark.promise("N-05", "P-06")
@pytest.mark.parametrize("found", [True, False], ids=["reconcile", "a person"])
async def test_what_is_found_out_of_a_call_is_shown_like_any_result(found: bool) -> None:
    """What the tool itself finds passes the guards of results. Whoever tells it, its length has a bound."""

    async def find(key: str) -> Happened | None:
        return Happened("secret " + "x" * 1000) if found else None

    @tool(reconcile=find)
    async def pay() -> str:
        """Pay."""
        raise Crash

    def redact(_: CallView, output: ToolOutput) -> ToolOutput:
        assert isinstance(output.details, str)
        return ToolOutput(output.details.replace("secret", "******"), details=None)

    limits = Limits(output_bytes=100)
    payer = AgentDefinition(name="payer", instruction="Pay.", tools=[pay], result_guards=[redact], limits=limits)
    ports = Ports(model=ScriptedModel([call("pay"), text("done")]))
    with pytest.raises(Crash):
        await run_agent(payer, "go", ports, run_id="r1")

    outcome = await resume_agent(payer, "r1", ports)
    if not found:
        said = {"r1:1.0": Happened("****** " + "x" * 1000)}
        outcome = await resume_agent(payer, "r1", ports, resolutions=said)

    assert isinstance(outcome, Completed)
    assert "****** " + "x" * 93 + "\n[cut: 1,007 characters, 100 shown]" == outcome.transcript[2].text
