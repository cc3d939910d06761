"""`explore_crashes`: cut a run at every call that leaves the engine, go on in a fresh engine, hold the laws against it.

    report = explore_crashes(payer, "refund 5", ports, decisions="approve")
    assert report.violations == []

A calm run is counted first. Then each of its calls (to a port, or into a tool) is hit by each fault in a run of its
own:

    before       the process dies before the call
    lost         the call takes effect, and the process dies before the reply
    unused       the reply arrives, and the process dies at its next call
    late         the reply comes after the lease ran out and another engine took the run over
    hidden       the call takes effect and reports an error
    failed       the call reports an error without having taken effect

Death is not an exception that a `finally` could heal: every later call of that engine fails too. Rule: what was
acknowledged is kept, no effect happens without an acknowledged intent, a `never` effect happens at most once, nor one
under a key, the evidence is that of the journal, nothing stays held on an account, and the run ends as the calm one did
or waits in doubt.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, cast, get_args

from attrs import define, evolve as replace, field, frozen

from turnwright import journal
from turnwright.definition import AnyDefinition
from turnwright.errors import TurnwrightError
from turnwright.evidence import Entry
from turnwright.memory import MemoryBudgets, MemoryIdempotency, MemoryState
from turnwright.outcomes import Outcome, Suspended
from turnwright.ports import Busy, Clock, Lease, State
from turnwright.replay import replay_agent
from turnwright.run import resume_agent, run_agent
from turnwright.state import fold
from turnwright.testing.watched import Law, WatchedState, started_effects, watched_ports, watched_tool
from turnwright.tools import Tool
from turnwright.wiring import Ports

__all__ = ["CrashReport", "Fault", "FaultKind", "Violation", "explore_crashes"]

T = TypeVar("T")

FaultKind: TypeAlias = Literal["before", "lost", "unused", "late", "hidden", "failed"]
DEATHS: Final = frozenset[FaultKind](("before", "lost", "unused"))
KINDS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

RUN: Final = "run"
ROUNDS: Final = 8
"""How often a run that waits is taken up again before it counts as stuck."""
MAY_GO_ON: Final = ("approval", "model", "cancelled", "external")
"""Why a run may wait that has only to be taken up again."""


@frozen
class Fault:
    """One fault: at the *call*th call of engine number *engine*, both counted from 1."""

    engine: int
    call: int
    kind: FaultKind


@frozen
class Violation:
    """A law that did not hold under *plan*, which replays it."""

    plan: tuple[Fault, ...]
    what: str

    def __str__(self) -> str:
        faults = " then ".join([f"{each.kind} at call {each.call} of engine {each.engine}" for each in self.plan])
        return f"{self.what} [{faults}]"


@define
class CrashReport:
    """What an exploration found: how many *cuts* were made, how many runs were left *in_doubt*, what was violated."""

    calls: list[str] = field(factory=list)
    """The calls of the calm run, in order."""
    cuts: int = 0
    in_doubt: int = 0
    violations: list[Violation] = field(factory=list)


def explore_crashes(
    definition: AnyDefinition,
    input: object,
    ports: Callable[[Path], Ports],
    *,
    decisions: Literal["approve", "deny"] = "approve",
    faults: Literal["single", "pairs"] = "single",
    kinds: Sequence[FaultKind] = KINDS,
    plans: Sequence[Sequence[Fault]] | None = None,
    laws: Sequence[Law] = (),
) -> CrashReport:
    """Explore the crashes of one scenario. *ports* is called afresh, with the scenario's own folder, for every engine.

    *plans* replays given plans only. *laws* are your own, beside those of every run. A store, accounts and keys in
    memory are carried from engine to engine, as those on disk would be.
    """
    return asyncio.run(_explore(definition, input, ports, decisions, faults, kinds, plans, laws))


async def _explore(
    definition: AnyDefinition,
    given: object,
    ports: Callable[[Path], Ports],
    decisions: str,
    faults: str,
    kinds: Sequence[FaultKind],
    plans: Sequence[Sequence[Fault]] | None,
    laws: Sequence[Law],
) -> CrashReport:
    report = CrashReport()

    async def play(plan: Sequence[Fault]) -> _Scenario:
        with tempfile.TemporaryDirectory() as folder:
            scenario = _Scenario(definition, given, ports, Path(folder), decisions, tuple(plan), laws)
            await scenario.play()
            return scenario

    calm = await play(())
    report.calls = calm.world.calls[0]
    calm.check(None)
    report.violations += calm.violations
    if plans is None:
        plans = _singles(len(report.calls), kinds)
        if faults == "pairs":
            met = [(plan[0], (await play(plan)).world.calls) for plan in plans]
            plans = [pair for first, calls in met for pair in _seconds(first, calls, kinds)]
    for plan in plans:
        scenario = await play(plan)
        scenario.check(calm.outcome)
        report.cuts += 1
        report.in_doubt += isinstance(scenario.outcome, Suspended) and scenario.outcome.reason == "in-doubt"
        report.violations += scenario.violations
    return report


def _singles(calls: int, kinds: Sequence[FaultKind]) -> list[tuple[Fault, ...]]:
    return [(Fault(1, call, kind),) for call, kind in product(range(1, calls + 1), kinds)]


def _seconds(first: Fault, calls: Sequence[Sequence[str]], kinds: Sequence[FaultKind]) -> list[tuple[Fault, ...]]:
    """Every second fault that can strike after *first*, which led to *calls*: in the next engine, or later in this."""
    engine, start = (2, 1) if len(calls) > 1 else (1, first.call + 1)
    places = range(start, len(calls[engine - 1]) + 1)
    return [(first, Fault(engine, call, kind)) for call, kind in product(places, kinds)]


class _Dead(BaseException):
    """The process of this engine is gone: no more of its code runs."""


@define(eq=False)
class _World:
    """What stands outside every engine: what really happened, and what was really acknowledged."""

    calls: list[list[str]] = field(factory=list)
    effects: dict[str, int] = field(factory=dict)
    """How often each took place, by its id."""
    tools: dict[str, Tool[..., object]] = field(factory=dict)
    """Which tool each effect is of."""
    started: set[str] = field(factory=set)
    acknowledged: list[Entry] = field(factory=list)
    broken: list[str] = field(factory=list)

    def acknowledge(self, expected: int, facts: Sequence[Entry]) -> None:
        """The store acknowledged *facts* after *expected* others; once more, if the append was repeated."""
        if len(self.acknowledged) <= expected:
            self.acknowledged += facts
            self.started |= {*started_effects(facts)}


class _Scenario:
    """One scenario under one plan: engines take the run over from each other until it rests."""

    def __init__(
        self,
        definition: AnyDefinition,
        given: object,
        ports: Callable[[Path], Ports],
        folder: Path,
        decisions: str,
        plan: tuple[Fault, ...],
        laws: Sequence[Law],
    ) -> None:
        self._definition = definition
        self._given = given
        self._make = ports
        self._folder = folder
        self._decisions = decisions
        self._plan = plan
        self._laws = laws
        self._kept: Ports | None = None
        self._engines = 0
        self.world = _World()
        self.outcome: Outcome[object] | None = None
        self.violations: list[Violation] = []

    async def play(self) -> None:
        """Run engines until one brings the run to rest, then look at what is left."""
        for _ in range(len(self._plan) + 2):
            self.outcome = await self.engine()
            if self.outcome is not None:
                break
        ports = self._ports()
        try:
            if self.outcome is not None and await self._holds(ports):
                await self.engine()  # one that could not let go leaves that to the next
            await self._look(ports)
        finally:
            await _close(ports.state)

    async def engine(self) -> Outcome[object] | None:
        """Let one engine work. None if it died, was overtaken, or met an error that its caller would see."""
        self._engines += 1
        ports = self._ports()
        engine = _Engine(self, [each for each in self._plan if each.engine == self._engines])
        self.world.calls.append(engine.calls)
        worker = asyncio.ensure_future(self._work(engine.watched_definition(self._definition), engine.watched(ports)))
        try:
            await asyncio.wait([worker], timeout=60)
            if not worker.done():
                worker.cancel()
                self.world.broken.append("an engine hangs")
                return None
            return worker.result()
        except (_Dead, TurnwrightError):
            if not self._plan:
                raise  # it is the scenario's own
            return None
        finally:
            await _close(ports.state)

    async def _work(self, definition: AnyDefinition, ports: Ports) -> Outcome[object]:
        outcome = await run_agent(definition, self._given, ports, run_id=RUN)
        for _ in range(ROUNDS):
            if not isinstance(outcome, Suspended) or not (
                outcome.reason in MAY_GO_ON or outcome.detail == "unavailable"
            ):
                break
            asked = [each.effect_id for each in outcome.pending if each.kind == "approval"]
            outcome = await resume_agent(definition, RUN, ports, decisions=dict.fromkeys(asked, self._decisions))
        return outcome

    def _ports(self) -> Ports:
        ports = self._make(self._folder)
        kept = self._kept = self._kept or ports
        if isinstance(kept.state, MemoryState) and kept is not ports:
            ports = replace(ports, state=kept.state.reopen())
        if isinstance(kept.budgets, MemoryBudgets):
            ports = replace(ports, budgets=kept.budgets)
        if isinstance(kept.idempotency, MemoryIdempotency):
            ports = replace(ports, idempotency=kept.idempotency)
        return ports

    async def _holds(self, ports: Ports) -> Sequence[str]:
        return () if ports.budgets is None else await ports.budgets.held(f"{ports.tenant}\n{RUN}:")

    async def _look(self, ports: Ports) -> None:
        broken, world = self.world.broken, self.world
        entries = await ports.state.load(RUN)
        kept = [(each.kind, each.body) for each in world.acknowledged]
        if [(each.kind, each.body) for each in entries[: len(kept)]] != kept:
            broken.append("an acknowledged fact is lost")
        if entries:
            replayed = await replay_agent(self._definition, RUN, ports)
            if replayed.divergence is not None:
                broken.append(f"the journal does not replay: {replayed.divergence}")
            state = fold([journal.decode(each.kind, each.schema, each.body, position=each.seq) for each in entries])
            broken += [wrong for law in self._laws if (wrong := law(world.effects, state))]
        lease = await ports.state.acquire(RUN, holder="afterwards", seconds=0.0, create=False)
        if self.outcome is not None and not isinstance(lease, Lease):
            broken.append("a run at rest is still held")
        if self.outcome is not None and (held := await self._holds(ports)):
            broken.append(f"a run at rest holds {', '.join(held).strip()}")

    def check(self, calm: Outcome[object] | None) -> None:
        """Hold the laws against what happened; *calm* is how the undisturbed run ended."""
        broken = [*self.world.broken]
        has_keys = self._kept is not None and self._kept.idempotency is not None
        for effect, times in self.world.effects.items():
            tool = self.world.tools[effect]
            if times > 1 and (tool.replay == "never" or (has_keys and tool.key is not None)):
                broken.append(f"{effect}, of {tool.name}, which is never repeated, happened {times} times")
        if self.outcome is None:
            broken.append("the run never came to rest")
        elif calm is not None and not _same(self.outcome, calm):
            broken.append(f"the run ended as {self.outcome!r}, the calm one as {calm!r}")
        elif calm is not None and not isinstance(self.outcome, Suspended):
            # Where no port lied, nobody was asked what became of a call and no key was left taken, the model was told
            # the same.
            asked = any([tool.reconcile is not None or tool.key is not None for tool in self._definition.tools])
            died = {each.kind for each in self._plan} <= DEATHS and not asked
            if died and self.outcome.transcript != calm.transcript:
                broken.append("another conversation was held than in the calm run")
        self.violations = [Violation(self._plan, what) for what in broken]


def _same(outcome: Outcome[object], calm: Outcome[object]) -> bool:
    if isinstance(outcome, Suspended):
        waits = isinstance(calm, Suspended) and outcome.reason == calm.reason
        return waits or outcome.reason == "in-doubt"
    return type(outcome) is type(calm) and getattr(outcome, "output", None) == getattr(calm, "output", None)


async def _close(state: State) -> None:
    close = getattr(state, "close", None) or getattr(state, "aclose", None)
    if close is not None:
        closing = close()
        if isinstance(closing, Awaitable):
            await closing


class _Engine:
    """One engine's ports and tools, each call of which is counted and may meet its fault."""

    def __init__(self, scenario: _Scenario, faults: Sequence[Fault]) -> None:
        self._scenario = scenario
        self._faults = {each.call: each.kind for each in faults}
        self._dead = False
        self.calls: list[str] = []
        self.skew = 0.0

    async def call(self, name: str, work: Callable[[], Awaitable[T]], error: Exception) -> T:
        """Do *work*, or what the plan says instead. *error* is what this port reports when it fails."""
        if self._dead:
            raise _Dead
        self.calls.append(name)
        match self._faults.get(len(self.calls)):
            case "before":
                self._dead = True
                raise _Dead
            case "lost":
                await work()
                self._dead = True
                raise _Dead
            case "unused":
                reply = await work()
                self._dead = True
                return reply
            case "late":
                reply = await work()
                self.skew += 3600.0
                outcome = await self._scenario.engine()
                self._scenario.outcome = outcome
                return reply
            case "hidden":
                await work()
                raise error
            case "failed":
                raise error
            case _:
                return await work()

    def watched(self, ports: Ports) -> Ports:
        """*ports* with every call counted."""
        state = cast("State", _State(self, ports.state, self._scenario.world))  # all of it that an engine calls
        return replace(watched_ports(ports, self), state=state, clock=_Clock(self, ports.clock))

    def watched_definition(self, definition: AnyDefinition) -> AnyDefinition:
        """*definition* with every tool counted."""
        return replace(definition, tools=[self._tool(tool) for tool in definition.tools])

    def _tool(self, tool: Tool[..., object]) -> Tool[..., object]:
        world = self._scenario.world

        def happens(tool: Tool[..., object], effect_id: str) -> None:
            world.tools[effect_id] = tool
            world.effects[effect_id] = world.effects.get(effect_id, 0) + 1
            if effect_id not in world.started:
                world.broken.append(f"{effect_id}, of {tool.name}, happened without an acknowledged intent")

        return watched_tool(tool, lambda: self, happens)


@frozen(eq=False)
class _Clock:
    """The engine's clock, moved on when a reply comes late."""

    _engine: _Engine
    _inner: Clock

    def now(self) -> float:
        return self._inner.now()

    def monotonic(self) -> float:
        return self._inner.monotonic() + self._engine.skew


class _State(WatchedState):
    """The engine's store. What it acknowledged is written down outside; a lease ends with its holder."""

    def __init__(self, engine: _Engine, inner: State, world: _World) -> None:
        super().__init__(engine, inner, inner.durability, world.acknowledge)

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        lease = await super().acquire(run_id, holder=holder, seconds=0.0, create=create)
        return replace(lease, seconds=seconds) if isinstance(lease, Lease) else lease

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        return await super().renew(run_id, epoch, seconds=0.0)
