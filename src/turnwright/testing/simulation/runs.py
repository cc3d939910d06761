"""A run as the world knows it, whatever its engines believe: what was acknowledged, approved and done.

Rule: what breaks a law is written down here, at the moment at which it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field

from turnwright import journal
from turnwright.errors import JournalError
from turnwright.evidence import Entry, Evidence
from turnwright.facts import (
    ApprovalDecided,
    CallAdmitted,
    CallFinished,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    ModelAsked,
)
from turnwright.memory import MemoryBudgets, MemoryState
from turnwright.ports import Busy, Denied, Lease, Reserved
from turnwright.state import RunState, evolve

__all__ = ["Accounts", "Chronicle", "Run", "Store"]


@define(eq=False)
class Chronicle:
    """What is written down of a play: every event in order, the states that it went through, the laws it broke."""

    _time: Callable[[], float]
    trace: list[str] = field(factory=list)
    met: set[str] = field(factory=set)
    violations: list[str] = field(factory=list)

    def tell(self, who: str, what: str) -> None:
        """Write an event down."""
        self.trace.append(f"{self._time():.3f} {who} {what}")

    def meet(self, state: str) -> None:
        """The play went through a state worth knowing of."""
        self.met.add(state)

    def violate(self, what: str) -> None:
        """A law did not hold."""
        self.violations.append(what)
        self.tell("law", what)


class Store(MemoryState):
    """The store of one tenant. It remembers who owns what; *away* says until when whose calls do not reach it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(monotonic=monotonic)
        self.away: dict[str, float] = {}
        self.epochs: dict[str, int] = {}

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run; see `State.acquire`."""
        lease = await super().acquire(run_id, holder=holder, seconds=seconds, create=create)
        if isinstance(lease, Lease):
            self.epochs[run_id] = lease.epoch
        return lease


class Accounts(MemoryBudgets):
    """The accounts of a world. No call may leave one of them overdrawn."""

    def __init__(self, limits: Mapping[tuple[str, str], int], chronicle: Chronicle) -> None:
        super().__init__(limits)
        self.places = [*limits]
        self._chronicle = chronicle

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Hold *ask*; see `Budgets.reserve`."""
        answer = await super().reserve(id, scopes, ask)
        self._look()
        return answer

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        """Replace the reservation by what was used; see `Budgets.settle`."""
        await super().settle(id, actual)
        self._look()

    def _look(self) -> None:
        for scope, axis in self.places:
            limit, settled, reserved = self.standing(scope, axis)
            if settled + reserved > limit:
                self._chronicle.violate(f"{scope} has spent {settled} and holds {reserved} {axis} of {limit}")

    def audit(self, place: tuple[str, str], used: int, intended: int) -> None:
        """Look at an account when all is over: nothing is held, and what was used was paid once."""
        scope, axis = place
        _, settled, reserved = self.standing(scope, axis)
        if reserved:
            self._chronicle.violate(f"{scope} holds {reserved} {axis} for runs that have ended")
        if not used <= settled <= intended:
            self._chronicle.violate(f"{scope} was charged {settled} {axis}: {intended} were intended, {used} were used")


@define(eq=False)
class Run:
    """One run, and what is known of it outside every engine."""

    name: str
    """Its name in the chronicle: two tenants may have runs of one id."""
    run_id: str
    tenant: str
    input: object
    store: Store
    _chronicle: Chronicle
    state: RunState = field(factory=RunState)
    """What was acknowledged, folded."""
    facts: list[Fact] = field(factory=list)
    bodies: list[bytes] = field(factory=list)
    started: dict[str, tuple[int, CallAdmitted]] = field(factory=dict)
    """By effect, the position of its first intent, and what was admitted."""
    closed: dict[str, int] = field(factory=dict)
    """By effect, the position of the entry that said what became of it."""
    effects: dict[str, int] = field(factory=dict)
    """How often each effect took place."""
    requests: int = 0
    """How often the model was asked."""
    approved: set[tuple[str, str]] = field(factory=set)
    """The effects that somebody said yes to, with the digest of what they were shown."""
    shown: dict[int, Evidence] = field(factory=dict)
    """What people who watch were shown, by its place."""
    said: int = 0
    """How many words were acknowledged."""

    def used(self, axis: str) -> tuple[int, int]:
        """How much of *axis* it used, and how much it intended to use."""
        if axis == "requests":
            return self.requests, sum([isinstance(fact, ModelAsked) for fact in self.facts])
        return sum(self.effects.values()), sum([isinstance(fact, CallStarted) for fact in self.facts])

    @property
    def epoch(self) -> int:
        """The epoch of its newest owner."""
        return self.store.epochs.get(self.run_id, 0)

    def acknowledge(self, expected: int, entries: Sequence[Entry]) -> Sequence[Fact]:
        """The store acknowledged *entries* after *expected* others; once more, if the append was repeated.

        Gives the facts that are new.
        """
        bodies = [each.body for each in entries]
        if expected < len(self.bodies):
            self._chronicle.meet("an append whose acknowledgement was lost is acknowledged again")
            if self.bodies[expected : expected + len(entries)] != bodies:
                self._chronicle.violate(f"{self.name}: entry {expected + 1} was acknowledged, and then another one")
            return ()
        if expected > len(self.bodies):
            self._chronicle.violate(f"{self.name}: entry {expected + 1} was acknowledged without one before it")
        self.bodies += bodies
        try:
            for entry in entries:
                fact = journal.decode(entry.kind, entry.schema, entry.body, position=entry.seq)
                evolve(self.state, fact, entry.at)
                self.facts.append(fact)
                self._note(fact)
        except JournalError as error:
            self._chronicle.violate(f"{self.name}: the journal cannot be true: {error}")
        return self.facts[expected:]

    def _note(self, fact: Fact) -> None:
        match fact:
            case CallStarted(index=index, attempt=1, effect_id=effect):
                admitted = self.state.calls[index].admitted
                assert admitted is not None
                self.started[effect] = len(self.facts), admitted
            case CallFinished() | CallResolved() | CallRefused() | ApprovalDecided(approved=False):
                self.closed[self.state.effect_id(fact.turn, fact.index)] = len(self.facts)
            case _:
                pass

    def show(self, evidence: Evidence) -> None:
        """Somebody who watches was shown this: what was acknowledged, and the same as everybody else."""
        if evidence.seq > len(self.bodies):
            self._chronicle.violate(f"{self.name}: evidence {evidence.seq} was shown before it was acknowledged")
        if self.shown.setdefault(evidence.seq, evidence) != evidence:
            self._chronicle.violate(f"{self.name}: evidence {evidence.seq} changed")
