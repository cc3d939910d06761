"""`simulate`: play a run in a world that is decided by a seed, and hold the laws against what happened.

    assert simulate(7) == simulate(7)
    assert [] == simulate(7, payer, "refund 5", model=script).violations

Workers take the run up, lose their lease, fail at their store and die at any call; people approve, deny, resolve,
steer and sometimes cancel while it works. Time is virtual: an hour costs nothing, and whose turn it is follows from
the seed alone. When the trouble is over, the run must come to an end.

Rule: everything that could differ between two plays is drawn from the seed, in one place (`_World.chance`), so that a
seed replays byte for byte, and any one misfortune can be left out to see whether it mattered.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from random import Random
from typing import Final, TypeAlias, TypeVar, cast

from attrs import evolve as replace, field, frozen

from turnwright import journal
from turnwright.decide import pending_calls
from turnwright.definition import AgentDefinition, AnyDefinition
from turnwright.errors import JournalError, PortError, RunBusy, RunError
from turnwright.evidence import Entry, verify
from turnwright.inbox import Approve, Cancel, Deny, Resolve, Steer, Word
from turnwright.memory import MemoryState, SequentialIds
from turnwright.messages import UserMessage
from turnwright.outcomes import Outcome, Pending, Suspended
from turnwright.ports import Model, State
from turnwright.replay import replay_agent
from turnwright.run import run_agent
from turnwright.state import RunState, fold
from turnwright.testing.models import ScriptedModel, call, text
from turnwright.testing.watched import WatchedState, started_effects, watched_ports, watched_tool
from turnwright.tools import Tool, tool
from turnwright.wiring import Ports

__all__ = ["Simulation", "simulate"]

T = TypeVar("T")

Law: TypeAlias = Callable[[Mapping[str, int], RunState], str]
"""Looks at how often each effect took place, by its id, and at the run; gives what is wrong, empty if nothing is."""

RUN: Final = "run"
WORKERS: Final = 2
TROUBLE: Final = 400.0
"""Seconds of virtual time in which things go wrong."""
TURNS: Final = 100
HORIZON: Final = 20_000.0
"""Seconds of virtual time after which a run that has not ended counts as stuck."""


@frozen
class Simulation:
    """What one seed led to: every event in order, how the run stands, and the laws that did not hold."""

    seed: int
    trace: tuple[str, ...] = field(repr=False)
    stands: str
    violations: tuple[str, ...]
    misfortunes: tuple[int, ...]
    """The numbers of the draws that went wrong. After a violation: of those without which it is not seen."""
    without: tuple[int, ...] = ()
    """The numbers of those that were left out."""

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
    """Play *definition*, or one that has a tool of every kind, in the world of *seed*.

    *laws* are your own, beside those of every run. *model* makes the model port, afresh for every play; its answers
    must follow from the request, as those of a ScriptedModel do. The definition's tools are really called: they should
    do nothing that outlives the play.

    After a violation the play is repeated with one misfortune less, again and again, until each that is left matters.
    What it prints plays that again: *without* names the misfortunes to leave out.
    """
    given = definition or _example()
    make = model or _script
    left_out = set(without)
    played = _play(seed, given, input, make, laws, left_out)
    while played.violations:
        for each in played.misfortunes:
            calmer = _play(seed, given, input, make, laws, {*left_out, each})
            if calmer.violations:
                left_out.add(each)
                played = calmer
                break
        else:
            break
    return played


def _play(
    seed: int,
    definition: AnyDefinition,
    input: object,
    model: Callable[[], Model],
    laws: Sequence[Law],
    left_out: Collection[int],
) -> Simulation:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        world = _World(seed, definition, input, model(), laws, left_out, loop=runner.get_loop())
        return runner.run(world.play())


# --- time


class _Selector(selectors.BaseSelector):
    """Lets time pass instead of waiting for it."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)  # type: ignore[arg-type]

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)  # type: ignore[arg-type]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return self._real.select(10.0)  # a tool in a thread, or somebody who will never be woken
        if timeout > 0:
            self.now += timeout
        return self._real.select(0)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[object, selectors.SelectorKey]:  # type: ignore[override]
        return self._real.get_map()  # type: ignore[return-value]


class _Loop(asyncio.SelectorEventLoop):
    """A loop with a time of its own, which starts at 0 and jumps to the next thing that is due."""

    def __init__(self) -> None:
        self._time = _Selector()
        super().__init__(self._time)

    def time(self) -> float:
        return self._time.now


class _Clock:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return 1_800_000_000.0 + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()


# --- the world


class _Dead(Exception):
    """This worker's process is no more."""


class _Life:
    """A worker's process: it may die at any call, and whatever it calls then is not there any more."""

    def __init__(self, world: _World, name: str) -> None:
        self._world = world
        self._name = name
        self._dead = False

    async def call(self, name: str, work: Callable[[], Awaitable[T]], error: Exception) -> T:
        """Do *work*, or what becomes of it."""
        world = self._world
        await world.pause()
        self._breathe(0.015, f"died before {name}")
        if world.chance(0.02):
            world.tell(self._name, f"{name} failed")
            raise error
        if world.chance(0.02):
            world.tell(self._name, f"{name} hangs")
            await asyncio.sleep(50.0)
            self._breathe(0.0, "")
        reply = await work()
        world.tell(self._name, name)
        self._breathe(0.015, f"died after {name}")
        if world.chance(0.02):
            world.tell(self._name, f"{name} took effect and failed")
            raise error
        await world.pause()
        self._breathe(0.0, "")
        return reply

    def _breathe(self, of: float, last_words: str) -> None:
        if not self._dead and of and self._world.chance(of):
            self._dead = True
            self._world.tell(self._name, last_words)
        if self._dead:
            raise _Dead


LIFE: Final[ContextVar[_Life]] = ContextVar("LIFE")


class _World:
    """One play: the store that outlives everybody, what was done outside, and who is alive."""

    def __init__(
        self,
        seed: int,
        definition: AnyDefinition,
        input: object,
        model: Model,
        laws: Sequence[Law],
        left_out: Collection[int],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._seed = seed
        self._random = Random(seed)  # noqa: S311 - it decides a play, and keeps no secret
        self._laws = laws
        self._left_out = left_out
        self._draws = 0
        self._misfortunes: list[int] = []
        self._input = input
        self._trace: list[str] = []
        self._violations: list[str] = []
        self._effects: dict[str, int] = {}
        self._started: set[str] = set()
        """The effects whose intent is acknowledged."""
        self._acknowledged: dict[int, bytes] = {}
        self._said = 0
        """How many words were acknowledged."""
        self._loop = loop
        self.store = MemoryState(monotonic=self._loop.time)
        self.model = model
        self.clock = _Clock(self._loop)
        self.ids = SequentialIds()
        self.definition = replace(
            definition, tools=[watched_tool(each, LIFE.get, self._happens) for each in definition.tools]
        )

    # --- what is drawn

    def chance(self, of: float) -> bool:
        """Whether something goes wrong now, once in *of*; when the time of trouble is over, never."""
        self._draws += 1
        drawn = self._random.random() < of
        if not drawn or self._draws in self._left_out or self._loop.time() > TROUBLE:
            return False
        self._misfortunes.append(self._draws)
        return True

    async def pause(self) -> None:
        """Let somebody else go first, for a moment or for long."""
        await asyncio.sleep(self._random.choice((0.0, 0.0, 0.0, 0.01, 0.3, 2.0)))

    def tell(self, who: str, what: str) -> None:
        """Write an event down."""
        self._trace.append(f"{self._loop.time():.3f} {who} {what}")

    # --- the play

    async def play(self) -> Simulation:
        """Let everybody loose, and look at what is left."""
        workers = [asyncio.create_task(self._employ(f"w{number}")) for number in range(WORKERS)]
        people = asyncio.create_task(self._live())
        ended = asyncio.create_task(self._end())
        try:
            async with asyncio.timeout(HORIZON):
                await ended
        except TimeoutError:
            self._violations.append("the run never came to an end")
        everybody = [*workers, people, ended]
        for each in everybody:
            each.cancel()
        await asyncio.wait(everybody)
        for each in workers:
            if not each.cancelled() and (error := each.exception()) is not None:
                self._violations.append(f"a worker raised {type(error).__name__}: {error}")
        stands = await self._judge()
        return Simulation(
            self._seed,
            tuple(self._trace),
            stands,
            tuple(self._violations),
            tuple(self._misfortunes),
            tuple(sorted(self._left_out)),
        )

    async def _end(self) -> None:
        """Look at the run now and then, from outside, until it has ended."""
        while (await self._state()).ended is None:  # noqa: ASYNC110 - nobody tells who is outside
            await asyncio.sleep(5.0)

    async def _employ(self, name: str) -> None:
        """Be one worker after another: who dies is replaced."""
        number = 0
        while True:
            number += 1
            worker = f"{name}.{number}"
            await self.pause()
            task = asyncio.create_task(self._work(worker))
            try:
                await task
            except _Dead:
                self.tell(worker, "is dead")
            except (RunBusy, PortError, RunError) as error:
                self.tell(worker, f"gave up: {type(error).__name__}")
                await asyncio.sleep(getattr(error, "retry_after", 1.0) + 0.1)
            else:
                await asyncio.sleep(3.0)

    async def _work(self, worker: str) -> None:
        life = _Life(self, worker)
        LIFE.set(life)
        store = WatchedState(life, self.store, "power", self._acknowledge)
        ports = Ports(model=self.model, state=cast("State", store), clock=self.clock, ids=self.ids, grace=2.0)
        ports = watched_ports(ports, life)
        outcome = await run_agent(self.definition, self._input, ports, run_id=RUN, max_turns=TURNS)
        self.tell(worker, f"left it {_stands(outcome)}")

    async def _live(self) -> None:
        """Be the people: decide what waits, say something now and then."""
        while True:
            await asyncio.sleep(self._random.choice((1.0, 5.0, 30.0)))
            state = await self._state()
            if state.opened is None or state.ended is not None:
                continue
            for pending in pending_calls(state):
                word = self._decision(pending)
                self.tell("people", word.type)
                self._said = await self.store.post(RUN, word)
            if self.chance(0.05):
                self._said = await self.store.post(RUN, Steer(UserMessage("and hurry")))
                self.tell("people", "steer")
            if self.chance(0.01):
                self._said = await self.store.post(RUN, Cancel("enough"))
                self.tell("people", "cancel")

    def _decision(self, pending: Pending) -> Word:
        if pending.kind == "in-doubt":
            happened = pending.effect_id in self._effects
            return Resolve(pending.effect_id, happened, "found out" if happened else None)
        if self.chance(0.2):
            return Deny(pending.effect_id, "too dear")
        return Approve(pending.effect_id, pending.digest, level=9)

    # --- what is done outside

    def _acknowledge(self, expected: int, facts: Sequence[Entry]) -> None:
        self._acknowledged |= {each.seq: each.body for each in facts}
        self._started |= {*started_effects(facts)}

    def _happens(self, watched: Tool[..., object], effect: str) -> None:
        self._effects[effect] = self._effects.get(effect, 0) + 1
        self.tell("world", f"{watched.name} {effect} for the time {self._effects[effect]}")
        if effect not in self._started:
            self._violations.append(f"{effect} took effect without an acknowledged intent")
        if watched.replay == "never" and self._effects[effect] > 1:
            self._violations.append(f"{effect} took effect {self._effects[effect]} times")

    # --- what is left

    async def _state(self) -> RunState:
        entries = await self.store.load(RUN)
        return fold([journal.decode(each.kind, each.schema, each.body, position=each.seq) for each in entries])

    async def _judge(self) -> str:
        """Hold the laws against the journal, and tell how the run stands."""
        try:
            state = await self._state()
            verify(await self.store.evidence(RUN))
        except JournalError as error:
            self._violations.append(f"the journal cannot be true: {error}")
            return "broken"
        entries = {each.seq: each.body for each in await self.store.load(RUN)}
        for seq, body in self._acknowledged.items():
            if entries.get(seq) != body:
                self._violations.append(f"entry {seq} was acknowledged and is not there as it was")
        if state.ended is None and state.inbox < self._said:
            self._violations.append(f"word {self._said} was acknowledged and never heard")
        replayed = await replay_agent(self.definition, RUN, Ports(self.model, self.store, clock=self.clock))
        if replayed.divergence is not None:
            self._violations.append(f"replaying it goes another way: {replayed.divergence}")
        self._violations += [wrong for law in self._laws if (wrong := law(self._effects, state))]
        return f"{'open' if state.ended is None else type(state.ended).__name__} after turn {state.turn}"


def _stands(outcome: Outcome[object]) -> str:
    detail = f" ({outcome.reason} {outcome.detail})" if isinstance(outcome, Suspended) else ""
    return f"{type(outcome).__name__}{detail}"


# --- an agent with a tool of every kind


def _example() -> AgentDefinition[str, str]:
    @tool(replay="safe")
    async def look(what: str) -> str:
        """Look something up."""
        await asyncio.sleep(0.5)
        return f"saw {what}"

    @tool(replay="idempotent")
    async def book(room: int) -> str:
        """Book a room."""
        await asyncio.sleep(3.0)
        return f"booked {room}"

    @tool
    async def write(to: str) -> str:
        """Write a letter."""
        await asyncio.sleep(1.0)
        return f"wrote to {to}"

    @tool(approval="required")
    async def pay(cents: int) -> str:
        """Pay."""
        await asyncio.sleep(0.2)
        return f"paid {cents}"

    return AgentDefinition("clerk", "Do it.", tools=[look, book, write, pay])


def _script() -> Model:
    return ScriptedModel(
        [
            [call("look", what="the account"), call("pay", cents=500)],
            [call("write", to="ada"), call("book", room=7), call("write", to="ben")],
            call("pay", cents=700),
            *[text("done")] * TURNS,
        ]
    )
