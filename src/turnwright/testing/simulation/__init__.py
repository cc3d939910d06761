"""`simulate`: play runs in a world that is decided by a seed, and hold the laws against what happened.

    assert simulate(7) == simulate(7)
    assert () == simulate(7, payer, "refund 5", model=script).violations

One to three runs of one or two tenants are worked on by up to four workers, who lose their leases, their stores and the
time, and die at any call; people approve, deny, resolve, steer and sometimes cancel meanwhile, and others watch. Time
is virtual: an hour costs nothing. When the trouble is over, every run must come to its end, and where nothing that was
said or done differs, to the end that it has in calm weather.

Rule: a seed is a whole story. It replays byte for byte, also in another process, and any one misfortune can be left out
to see whether it mattered. What is ready at the same time runs in the order in which it became ready, as asyncio
promises; how long a call is on its way, and the order of alarms that are due together, are drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from random import Random

from attrs import field, frozen

from turnwright import journal
from turnwright.canonical import encode, plain
from turnwright.definition import AnyDefinition
from turnwright.errors import JournalError
from turnwright.evidence import verify
from turnwright.memory import MemoryApprovals, MemoryIdempotency, MemoryState, SequentialIds
from turnwright.outcomes import Suspended
from turnwright.ports import Decision, Model
from turnwright.replay import replay_agent
from turnwright.run import run_agent
from turnwright.state import RunState, fold
from turnwright.testing.simulation import example
from turnwright.testing.simulation.fate import Fate
from turnwright.testing.simulation.laws import Calm, broken_laws, states
from turnwright.testing.simulation.runs import Chronicle, Run, Store
from turnwright.testing.simulation.world import TURNS, World
from turnwright.testing.virtual import LoopClock, VirtualLoop
from turnwright.testing.watched import Law
from turnwright.wiring import Ports

__all__ = ["Simulation", "simulate"]

CASTS = (
    (("ada", "run-1"),),
    (("ada", "run-1"),),
    (("ada", "run-1"),),
    (("ada", "run-1"), ("ada", "run-2")),
    (("ada", "run-1"), ("ben", "run-1")),
    (("ada", "run-1"), ("ada", "run-2"), ("ben", "run-1")),
)
"""The runs of a world, by tenant and id. Each tenant has a store of its own; accounts and keys are everybody's."""


@frozen
class Simulation:
    """What one seed led to: every event in order, how the runs stand, and the laws that did not hold."""

    seed: int
    trace: tuple[str, ...] = field(repr=False)
    stands: str
    violations: tuple[str, ...]
    misfortunes: tuple[int, ...]
    """The numbers of the draws that went wrong. After a violation: of those without which it is not seen."""
    met: frozenset[str] = field(default=frozenset(), repr=False)
    """The states worth knowing of that the play went through."""
    without: tuple[int, ...] = ()
    """The numbers of the misfortunes that were left out."""

    def __str__(self) -> str:
        wrong = "; ".join(self.violations) or "no violation"
        play = f"{self.seed}, without={list(self.without)}" if self.without else str(self.seed)
        return f"simulate({play}): {wrong} [{self.stands}, misfortunes {list(self.misfortunes)}]"


def simulate(
    seed: int,
    definition: AnyDefinition | None = None,
    input: object = "go",
    *,
    model: Callable[[], Model] | None = None,
    laws: Sequence[Law] = (),
    without: Collection[int] = (),
) -> Simulation:
    """Play *definition* on *input*, or an agent with a tool of every kind, in the world of *seed*.

    *laws* are your own, beside those of every run. *model* makes the model port, afresh for every play; its answers
    must follow from the request, as those of a ScriptedModel do, and what a tool returns from its arguments. The
    definition's tools are really called: they should do nothing that outlives the play.

    After a violation the play is repeated with one misfortune less, again and again, until each that is left matters.
    What it prints plays that again: *without* names the misfortunes to leave out.
    """
    if (definition is None) != (model is None):
        raise TypeError("a definition is played with the model that was made for it: give both, or neither")
    left_out = set(without)
    played = _play(seed, definition, input, model, laws, left_out)
    while played.violations:
        for each in played.misfortunes:
            calmer = _play(seed, definition, input, model, laws, {*left_out, each})
            if _sorts(played) & _sorts(calmer):
                left_out.add(each)
                played = calmer
                break
        else:
            break
    return played


def _sorts(played: Simulation) -> set[str]:
    """The sorts of its violations: what they say without what varies."""
    return {"".join([each for each in told if not each.isdigit()]) for told in played.violations}


def _play(
    seed: int,
    definition: AnyDefinition | None,
    input: object,
    model: Callable[[], Model] | None,
    laws: Sequence[Law],
    left_out: Collection[int],
) -> Simulation:
    draws, alarms = Random(f"{seed} agent"), Random(f"{seed} alarms")  # noqa: S311 - they decide a play
    cast = draws.choice(CASTS)
    inputs = [f"task {number}" if definition is None else input for number, _ in enumerate(cast)]
    if definition is None or model is None:
        definition = example.clerk(draws)
        port = example.scripts(draws, inputs, chunk=draws.choice((None, 7)))
    else:
        port = model()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(lambda: alarms.random() * 1e-6)) as runner:
        runner.get_loop().set_exception_handler(lambda *_: None)  # what processes leave behind
        return runner.run(_tell(seed, definition, port, cast, inputs, laws, left_out))


async def _tell(
    seed: int,
    definition: AnyDefinition,
    model: Model,
    cast: Sequence[tuple[str, str]],
    inputs: Sequence[object],
    laws: Sequence[Law],
    left_out: Collection[int],
) -> Simulation:
    example.SENT.set(set())
    calm = {encode(plain(each)): await _calm(definition, model, each) for each in inputs}
    start = asyncio.get_running_loop().time()

    def time() -> float:
        return asyncio.get_running_loop().time() - start

    chronicle = Chronicle(time)
    stores = {tenant: Store(time) for tenant, _ in cast}
    runs = [
        Run(f"{tenant}/{run_id}", run_id, tenant, given, stores[tenant], chronicle)
        for (tenant, run_id), given in zip(cast, inputs, strict=True)
    ]
    fate = Fate(seed, left_out, time)
    ends = {run.name: calm[encode(plain(run.input))].ended is not None for run in runs}
    world = World(definition, model, runs, fate, chronicle, ends=ends, time=time)
    await world.play()
    for run in runs:
        await _judge(run, definition, calm[encode(plain(run.input))], laws, chronicle, model)
        chronicle.met |= {*states(run)}
    return Simulation(
        seed,
        tuple(chronicle.trace),
        ", ".join([f"{run.name} {_stands(run.state)}" for run in runs]),
        tuple(chronicle.violations),
        tuple(fate.misfortunes),
        frozenset(chronicle.met),
        tuple(sorted(left_out)),
    )


async def _calm(definition: AnyDefinition, model: Model, input: object) -> Calm:
    """Play it without misfortune, and with somebody who approves of all."""
    approvals = MemoryApprovals(lambda _: Decision(True, level=2**53))
    ports = Ports(
        *(model, MemoryState(monotonic=asyncio.get_running_loop().time)),
        approvals=approvals,
        idempotency=MemoryIdempotency(),
        clock=LoopClock(),
        ids=SequentialIds(),
        tenant="calm weather",
    )
    outcome = await run_agent(definition, input, ports, run_id="calm", max_turns=TURNS)
    entries = await ports.state.load("calm")
    state = fold([journal.decode(each.kind, each.schema, each.body, position=each.seq) for each in entries])
    return Calm(None if isinstance(outcome, Suspended) else state.ended, tuple(state.transcript))


async def _judge(
    run: Run, definition: AnyDefinition, calm: Calm, laws: Sequence[Law], chronicle: Chronicle, model: Model
) -> None:
    """Hold the laws against what is left of *run*."""
    entries = await run.store.load(run.run_id)
    if [each.body for each in entries] != run.bodies:
        chronicle.violate(f"{run.name}: the journal is not what was acknowledged")
    evidence = await run.store.evidence(run.run_id)
    for shown in evidence:
        run.show(shown)
    try:
        verify(evidence)
    except JournalError as error:
        chronicle.violate(f"{run.name}: the evidence cannot be true: {error}")
        return
    replayed = await replay_agent(definition, run.run_id, Ports(model, run.store, clock=LoopClock()))
    if replayed.divergence is not None:
        chronicle.violate(f"{run.name}: replaying it goes another way: {replayed.divergence}")
    for wrong in [*broken_laws(run, definition, calm), *[law(run.effects, run.state) for law in laws]]:
        if wrong:
            chronicle.violate(f"{run.name}: {wrong}")


def _stands(state: RunState) -> str:
    return f"{'open' if state.ended is None else type(state.ended).__name__} after turn {state.turn}"
