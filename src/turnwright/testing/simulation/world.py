"""One play: the stores that outlive everybody, the workers, the people, and whoever watches.

Rule: what is done here goes by the draws of `Fate`; what is seen is written down by `Chronicle` and `Run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from attrs import evolve as replace, frozen

from turnwright.decide import pending_calls
from turnwright.definition import AnyDefinition
from turnwright.deltas import Delta, TextDelta
from turnwright.errors import LostLease, PortError, RunBusy
from turnwright.evidence import Entry, Evidence
from turnwright.facts import ModelAnswered
from turnwright.inbox import Approve, Cancel, Deny, FollowUp, Resolve, Steer, Withdraw, Word
from turnwright.lifecycle import LifecycleEvent
from turnwright.memory import MemoryIdempotency, SequentialIds
from turnwright.messages import AssistantMessage, UserMessage
from turnwright.outcomes import Outcome, Pending, Suspended
from turnwright.ports import (
    ApprovalAnswer,
    ApprovalRequest,
    Busy,
    Decision,
    Lease,
    Model,
    ModelRequest,
    NotDecided,
    State,
)
from turnwright.run import run_agent
from turnwright.testing.simulation.fate import Fate
from turnwright.testing.simulation.life import ENTERED, LIFE, Dead, Life
from turnwright.testing.simulation.runs import Accounts, Chronicle, Run
from turnwright.testing.watched import WatchedState, watched_ports, watched_tool
from turnwright.tools import Tool
from turnwright.wiring import Ports

__all__ = ["TURNS", "World"]

T = TypeVar("T")

WORKERS: Final = ("a", "b", "c", "d")
TURNS: Final = 100
AXES: Final = ("requests", "tool_calls")
TEAM: Final = "team"
HORIZON: Final = 5_000.0
"""Seconds of virtual time after which a run that has not come to its end counts as stuck."""


class World:
    """Everybody who has to do with *runs*. *ends* says of each whether it comes to an end in calm weather."""

    def __init__(
        self,
        definition: AnyDefinition,
        model: Model,
        runs: Sequence[Run],
        fate: Fate,
        chronicle: Chronicle,
        *,
        ends: Mapping[str, bool],
        time: Callable[[], float],
    ) -> None:
        self._model = model
        self._runs = runs
        self._fate = fate
        self._chronicle = chronicle
        self._ends = ends
        self._time = time
        self._workers = list(WORKERS[: fate.one_of((1, 2, 2, 3, 4))])
        self._ids = SequentialIds()
        self._keys = MemoryIdempotency()
        self._keyed: dict[tuple[str, str], int] = {}
        limits = {(TEAM, axis): fate.one_of((2, 5, 500)) for axis in AXES}
        limits |= {(run.run_id, axis): 10_000 for run in runs for axis in AXES}
        self.budgets = Accounts(limits, chronicle)
        self._has_approvals = fate.chance(0.6)
        self._has_budgets = fate.chance(0.7)
        self._has_listener = fate.chance(0.3)
        self._has_signal = fate.chance(0.3)
        self._has_postbox = fate.chance(0.2)
        self._patience = fate.one_of((None, None, None, 40.0, 15.0))
        self._definition = replace(
            definition, tools=[watched_tool(each, LIFE.get, self._happens) for each in definition.tools]
        )

    async def play(self) -> None:
        """Let everybody loose until every run has come to its end, and then look after what is left."""
        everybody = [
            *[asyncio.create_task(self._employ(worker)) for worker in self._workers],
            *[asyncio.create_task(self._speak(run)) for run in self._runs],
            *[asyncio.create_task(self._view(run)) for run in self._runs],
        ]
        try:
            async with asyncio.timeout(HORIZON):
                while not all([self._rests(run) for run in self._runs]):
                    await asyncio.sleep(5.0)
                    for each in everybody:
                        if each.done() and (error := each.exception()) is not None:
                            raise error
        except TimeoutError:
            stuck = [run.name for run in self._runs if not self._rests(run)]
            self._chronicle.violate(f"{', '.join(stuck)} never came to an end")
        finally:
            for each in everybody:
                each.cancel()
            await asyncio.wait(everybody)
        self._fate.calm_down()
        await asyncio.sleep(60.0)  # the last lease runs out
        for run in self._runs:
            await self._work(self._life("bookkeeper", 1, run))
        if self._has_budgets:
            self._audit()

    def _audit(self) -> None:
        for scope, axis in self.budgets.places:
            sums = [run.used(axis) for run in self._runs if scope in (TEAM, run.run_id)]
            self.budgets.audit((scope, axis), sum([used for used, _ in sums]), sum([meant for _, meant in sums]))

    def _rests(self, run: Run) -> bool:
        state, suspended = run.state, run.state.suspended
        if suspended is None:
            return state.ended is not None
        is_refused = (
            suspended.reason == "model" and suspended.detail == "invalid_request"
        )  # such as past a script's end
        return is_refused or not self._ends[run.name]

    # --- workers

    async def _employ(self, worker: str) -> None:
        """Be one process after another: who dies is replaced."""
        number = 0
        while True:
            number += 1
            await asyncio.sleep(self._fate.between(0.0, 1.0))
            run = self._fate.one_of([each for each in self._runs if not self._rests(each)] or self._runs)
            life = self._life(worker, number, run)
            task = life.task = asyncio.create_task(self._work(life))
            try:
                await asyncio.wait([task])
            finally:
                task.cancel()
            await asyncio.sleep(self._ended(life, task))

    def _ended(self, life: Life, task: asyncio.Task[None]) -> float:
        """Tell how a process ended; seconds until there is another one."""
        chronicle = self._chronicle
        if task.cancelled():
            chronicle.tell(life.name, "is shut down")
            return 1.0
        match task.exception():
            case None:
                return 3.0
            case Dead():
                chronicle.tell(life.name, "is dead")
                return 0.0
            case RunBusy(retry_after=seconds):
                chronicle.tell(life.name, "finds another one at work")
                return seconds + 0.1
            case (LostLease() | PortError()) as error:
                chronicle.tell(life.name, f"gave up: {type(error).__name__}")
                chronicle.meet(f"gave up: {type(error).__name__}")
                return 1.0
            case error:
                chronicle.violate(f"a worker raised {type(error).__name__}: {error}")
                return 1.0

    def _life(self, worker: str, number: int, run: Run) -> Life:
        return Life(worker, number, run, self._fate, self._chronicle, others=self._workers, time=self._time)

    async def _work(self, life: Life) -> None:
        LIFE.set(life)
        patience = self._patience
        deadline = None if patience is None else life.now() + (HORIZON if self._fate.is_calm else patience)
        outcome = await run_agent(
            *(self._definition, life.run.input, self._ports(life)),
            run_id=life.run.run_id,
            max_turns=TURNS,
            deadline=deadline,
        )
        self._chronicle.tell(life.name, f"left it {_stands(outcome)}")

    def _ports(self, life: Life) -> Ports:
        run = life.run
        observer = _Observer(life, self._chronicle)
        store = cast("State", _State(life, partial(self._acknowledge, life, observer)))
        ports = Ports(
            _Model(run, self._model),
            store,
            inbox=_Postbox(run) if self._has_postbox else None,
            approvals=_Approvals(self, run) if self._has_approvals else None,
            budgets=self.budgets if self._has_budgets else None,
            idempotency=self._keys,
            telemetry=observer,
            deltas=observer,
            clock=life,
            ids=self._ids,
            cancellation=life.signal if self._has_signal else None,
            scopes=(TEAM,),
            tenant=run.tenant,
            grace=2.0,
        )
        return replace(watched_ports(ports, life), listener=observer if self._has_listener else None)

    def _acknowledge(self, life: Life, observer: _Observer, expected: int, entries: Sequence[Entry]) -> None:
        for fact in life.run.acknowledge(expected, entries):
            if isinstance(fact, ModelAnswered):
                observer.compare(fact)

    def _happens(self, watched: Tool[..., object], effect: str) -> None:
        """An effect takes place. It may be late: what counts is how all stood when its owner dispatched it."""
        life = LIFE.get()
        run, violate = life.run, self._chronicle.violate
        length, epoch = ENTERED.get()
        times = run.effects[effect] = run.effects.get(effect, 0) + 1
        self._chronicle.tell("world", f"{watched.name} {run.name} {effect} for the time {times}")
        position, admitted = run.started.get(effect, (length + 1, None))
        if admitted is None or position > length:
            violate(f"{effect} took effect without an acknowledged intent")
            return
        if watched.replay == "never" and times > 1:
            violate(f"{effect} took effect {times} times")
        if run.closed.get(effect, length + 1) <= length:
            violate(f"{effect} was dispatched though its result was recorded")
        if epoch != life.epoch:
            violate(f"{effect} was dispatched by owner {life.epoch}, when {epoch} had the run")
        if admitted.needs_approval and (effect, admitted.digest) not in run.approved:
            violate(f"{effect} took effect, and nobody approved of it")
        if watched.key is not None and isinstance(admitted.arguments, dict):
            key = f"{run.tenant} {watched.name}", watched.key(admitted.arguments)
            self._keyed[key] = self._keyed.get(key, 0) + 1
            if self._keyed[key] > 1:
                violate(f"{effect} took effect under a key that was used: {key}")

    # --- people

    async def _speak(self, run: Run) -> None:
        """Be the people: decide what waits, say something now and then."""
        fate = self._fate
        while True:
            await asyncio.sleep(fate.one_of((2.0, 8.0, 25.0)))
            state = run.state
            if state.opened is None or state.ended is not None:
                continue
            for pending in pending_calls(state):
                await self._say(run, self._decision(run, pending))
            if state.suspended is not None and state.suspended.detail in AXES:
                axis = state.suspended.detail
                self.budgets.raise_limit(TEAM, axis, self.budgets.standing(TEAM, axis)[0] + 5)
                self._chronicle.tell("people", f"allow more {axis}")
            if fate.misfortune(0.05):
                hurry = UserMessage("and hurry")
                words: Sequence[Word] = (Steer(hurry, "h"), FollowUp(hurry, "h"), FollowUp(hurry, "i", "b"))
                await self._say(run, fate.one_of(words))
            if fate.chance(0.02):
                await self._say(run, fate.one_of((Withdraw("h"), Withdraw("never said"))))
            if fate.misfortune(0.01):
                await self._say(run, Cancel("enough"))

    async def _say(self, run: Run, word: Word) -> None:
        self._chronicle.tell("people", f"{word.type} {run.name}")
        run.said = await run.store.post(run.run_id, word)

    def _decision(self, run: Run, pending: Pending) -> Word:
        effect, fate = pending.effect_id, self._fate
        if fate.chance(0.1):  # somebody who does not know what it is about: nothing may come of it
            of, level = (pending.digest, 1) if pending.level > 1 else ("something else", 9)
            return Approve(effect, of, "a fool", level)
        if pending.kind == "in-doubt":
            happened = effect in run.effects
            return Resolve(effect, happened, "found out" if happened else None, "people")
        if fate.misfortune(0.15):
            return Deny(effect, "too dear", "people")
        run.approved.add((effect, pending.digest))
        return Approve(effect, pending.digest, "people", 9)

    def decide(self, run: Run, request: ApprovalRequest) -> ApprovalAnswer:
        """Answer an engine that asks: somebody may be there, or not."""
        if self._fate.misfortune(0.3):
            return NotDecided()
        if self._fate.misfortune(0.15):
            return Decision(False, "the port", "too dear")
        run.approved.add((request.effect_id, request.digest))
        return Decision(True, "the port", level=9)

    async def _view(self, run: Run) -> None:
        """Be somebody who reads the evidence while the run is worked on, from any moment on, and again."""
        fate, after = self._fate, 0
        while True:
            await asyncio.sleep(fate.one_of((0.5, 5.0, 20.0)))
            if fate.chance(0.2):
                after = int(fate.between(0, after + 1))
                self._chronicle.meet("a viewer came back and read on from an earlier place")
            for evidence in await run.store.evidence(run.run_id, after):
                after += 1
                if evidence.seq != after:
                    self._chronicle.violate(f"{run.name}: a viewer was shown {evidence.seq} where {after} follows")
                run.show(evidence)


class _State(WatchedState):
    """A process's store, and the epoch that it believes in."""

    def __init__(self, life: Life, acknowledged: Callable[[int, Sequence[Entry]], None]) -> None:
        super().__init__(life, cast("State", life.run.store), "power", acknowledged)
        self._life = life

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        lease = await super().acquire(run_id, holder=holder, seconds=seconds, create=create)
        if isinstance(lease, Lease):
            self._life.epoch = lease.epoch
        return lease


@frozen(eq=False)
class _Model:
    _run: Run
    _inner: Model

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        self._run.requests += 1
        return await self._inner.complete(request)


@frozen(eq=False)
class _Approvals:
    _world: World
    _run: Run

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        return self._world.decide(self._run, request)


@frozen(eq=False)
class _Postbox:
    _run: Run

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        return await self._run.store.read(run_id, after)


class _Observer:
    """Whoever watches from within a process: telemetry, deltas and the listener."""

    def __init__(self, life: Life, chronicle: Chronicle) -> None:
        self._life = life
        self._chronicle = chronicle
        self._seen = 0
        self._told = 0
        self._said: dict[tuple[int, int], str] = {}

    def record(self, evidence: Evidence) -> None:
        """Take evidence."""
        if self._seen and evidence.seq != self._seen + 1:
            self._chronicle.violate(f"telemetry was given {evidence.seq} after {self._seen}")
        self._seen = evidence.seq
        self._life.run.show(evidence)

    def emit(self, delta: Delta) -> None:
        """Take a delta."""
        if isinstance(delta, TextDelta):
            place = delta.turn, delta.attempt
            self._said[place] = self._said.get(place, "") + delta.text

    def compare(self, fact: ModelAnswered) -> None:
        """Hold what was said against the answer that was recorded."""
        said = self._said.get((fact.turn, fact.attempt), "")
        if said != fact.message.text:
            self._chronicle.violate(f"the deltas of turn {fact.turn} say {said!r}, the answer {fact.message.text!r}")

    async def on_event(self, event: LifecycleEvent) -> None:
        """Take a lifecycle event."""
        if self._told and event.seq != self._told + 1:
            self._chronicle.violate(f"the listener was told {event.seq} after {self._told}")
        self._told = event.seq  # whatever befalls the call that tells it
        await self._life.call("listener.on_event", _nothing, RuntimeError("the listener failed"))


async def _nothing() -> None:
    """Nobody does anything."""


def _stands(outcome: Outcome[object]) -> str:
    detail = f" ({outcome.reason} {outcome.detail})" if isinstance(outcome, Suspended) else ""
    return f"{type(outcome).__name__}{detail}"
