"""Perform what the core decides, through ports. Rule: the only loop; it decides nothing itself.

    fold what the journal holds
    until the run is at rest:
        decide
        append the wave's intents, acknowledged before any effect
        perform its commands together; record each result as it lands

Recorded facts that need no acknowledgement before an effect ride with the next append. A text turn takes two appends,
a turn with a tool four. An interruption (a cancelled task, the cancellation port, the deadline) stops the wave: what
ended is recorded, what did not is left to recovery, which is the same path again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

from attrs import define

from turnwright import journal
from turnwright.commands import AdmitCalls, CheckOutput, Command, ExecuteCall
from turnwright.decide import Rest, decide, may_resume, receive
from turnwright.definition import AnyDefinition
from turnwright.errors import LostLease, PortError
from turnwright.evidence import GENESIS, Recorded, project
from turnwright.facts import CallFinished, Fact, RunOpened, RunResumed, RunSuspended
from turnwright.inbox import Cancel, LateResult
from turnwright.performer import Performer
from turnwright.ports import Appended, Conflict, Fenced, Lease
from turnwright.state import RunState, evolve
from turnwright.wiring import Ports

__all__ = ["LEASE_SECONDS", "Driver", "Watch"]

LEASE_SECONDS: Final = 30.0
RENEW_AFTER: Final = 10.0
MARGIN: Final = 5.0
POLL_SECONDS: Final = 1.0
"""How often a run that waits for a slow effect looks into its inbox."""
APPEND_TRIES: Final = 5

Interruption = Literal["cancelled", "deadline", "cancel"]


@define(eq=False)
class _Running:
    """A command on its way. *expires* is on the loop's clock."""

    command: Command
    task: asyncio.Task[Sequence[Fact]]
    expires: float
    timed_out: bool = False


class Watch(Protocol):
    """Whoever watches a run in its own process: first the facts of the past, then each new one once acknowledged."""

    def seen(self, fact: Fact) -> None:
        """Take a fact of the past."""
        ...

    def record(self, fact: Fact, at: float) -> None:
        """Take a new fact."""
        ...

    def progress(self, index: int, text: str) -> None:
        """Take a tool's word on its progress."""
        ...


class Driver:
    """One owner's work on one run."""

    def __init__(self, definition: AnyDefinition, ports: Ports, lease: Lease, watch: Watch | None) -> None:
        self.definition = definition
        self.ports = ports
        self.state = RunState()
        self.head = GENESIS
        self._lease = lease
        self._salt = b""
        self._version = 0
        self._buffer: list[Recorded] = []
        self._watch = watch
        self._performer = Performer(definition, ports, self.state, None if watch is None else watch.progress)
        self._wake: asyncio.Future[None] | None = None
        self._landed: list[asyncio.Task[Sequence[Fact]]] = []
        now = ports.clock.monotonic()
        self._renew_at = now + RENEW_AFTER
        self._valid_until = now + lease.seconds - MARGIN

    # --- the journal

    async def load(self) -> None:
        """Fold what the journal holds."""
        for position, entry in enumerate(await self.ports.state.load(self._lease.run_id), start=1):
            fact = journal.decode(entry.kind, entry.schema, entry.body, position=position)
            if type(fact) is RunOpened:
                self._salt = fact.salt.encode()
            evolve(self.state, fact, entry.evidence.at)
            if self._watch is not None:
                self._watch.seen(fact)
            self.head = entry.evidence.head
        self._version = self.state.length

    def note(self, fact: Fact) -> None:
        """Fold *fact*; it is written with the next append."""
        fact, body = journal.encode(fact)
        if type(fact) is RunOpened:
            self._salt = fact.salt.encode()
        at = self.ports.clock.now()
        evolve(self.state, fact, at)
        evidence = project(fact, body, seq=self.state.length, at=at, salt=self._salt, previous=self.head)
        self.head = evidence.head
        self._buffer.append(Recorded(fact, body, evidence))

    async def flush(self) -> None:
        """Write what is noted and wait for the acknowledgement. A lost one is cured by the same append id."""
        if not self._buffer:
            return
        facts, self._buffer = self._buffer, []
        state, lease = self.ports.state, self._lease
        append_id = self.ports.ids.new_id()
        for attempt in range(1, APPEND_TRIES + 1):
            try:
                answer = await state.append(lease.run_id, lease.epoch, self._version, append_id, facts)
                break
            except PortError:
                if attempt == APPEND_TRIES:
                    raise
        match answer:
            case Appended(version):
                self._version = version
            case Conflict(version):
                raise LostLease(
                    lease.run_id,
                    f"run {lease.run_id!r} has {version} entries, not {self._version}: another holder wrote",
                )
            case Fenced():
                raise LostLease(lease.run_id, f"run {lease.run_id!r} was taken over by another holder")
        for recorded in facts:
            self._tell(recorded)

    def _tell(self, recorded: Recorded) -> None:
        """Acknowledged facts go to those who watch; none of them can change the run."""
        if self.ports.telemetry is not None:
            try:
                self.ports.telemetry.record(recorded.evidence)
            except Exception:  # noqa: BLE001, S110 - telemetry never changes the run
                pass
        if self._watch is not None:
            self._watch.record(recorded.fact, recorded.evidence.at)

    # --- the loop

    async def drive(self, *, max_turns: int | None, deadline: float | None) -> None:
        """Bring the run to rest. Afterwards `standing` tells how it stands."""
        await self._read_inbox()
        if self.state.suspended is not None and not self._resume(max_turns, deadline):
            await self.flush()
            return
        try:
            while not isinstance(wave := decide(self.definition, self.state), Rest):
                if self.ports.budgets is not None:
                    wave = await self._performer.reserve(wave)
                for fact in wave.facts:
                    self.note(fact)
                if wave.commands:
                    await self._perform(wave.commands)
        except asyncio.CancelledError:
            # Let the cancellation through, but first write, within a bounded time, what is known.
            if self.state.suspended is None and self.state.ended is None:
                self.note(RunSuspended("cancelled"))
            await asyncio.wait_for(asyncio.shield(self.flush()), self.ports.grace)
            raise
        await self.flush()

    def _resume(self, max_turns: int | None, deadline: float | None) -> bool:
        turns = self.state.max_turns if max_turns is None else max(max_turns, self.state.max_turns)
        until = self.state.deadline if deadline is None else deadline
        now = self.ports.clock.now()
        if not may_resume(self.definition, self.state, max_turns=turns, now=now, deadline=until):
            return False
        self.note(RunResumed(turns, until))
        return True

    async def _read_inbox(self) -> bool:
        """Fold the words that came. True if one of them was `cancel`."""
        run_id, after = self._lease.run_id, self.state.inbox
        inbox = self.ports.inbox
        words = await (self.ports.state.read(run_id, after) if inbox is None else inbox.poll(run_id, after))
        if not words or self.state.ended is not None:
            return False
        for position, word in words:
            for fact in receive(self.definition, self.state, position, word, now=self.ports.clock.now()):
                self.note(fact)
        return any([isinstance(word, Cancel) for _, word in words])

    # --- one wave

    async def _perform(self, commands: Sequence[Command]) -> None:
        """Perform *commands* together and note their facts as they land."""
        effects = [command for command in commands if not isinstance(command, AdmitCalls | CheckOutput)]
        if effects:
            await self._renew()
            await self.flush()
        loop = asyncio.get_running_loop()
        start = loop.time()
        running: dict[asyncio.Task[Sequence[Fact]], _Running] = {}
        for command in commands:
            task = loop.create_task(self._performer.perform(command))
            task.add_done_callback(self._land)
            running[task] = _Running(command, task, start + self._performer.seconds(command))
        watcher = self._watch_cancellation(loop)
        try:
            interruption = await self._collect(running, loop)
        except asyncio.CancelledError:
            await self._stop(running, "cancelled")
            raise
        finally:
            if watcher is not None:
                watcher.cancel()
        if interruption is not None:
            await self._stop(running, interruption)
            if interruption == "deadline":
                self.note(RunSuspended("budget", "deadline"))
            elif interruption == "cancelled":
                self.note(RunSuspended("cancelled"))
        elif effects:
            await self._read_inbox()

    def _land(self, task: asyncio.Task[Sequence[Fact]]) -> None:
        self._landed.append(task)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _watch_cancellation(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[object] | None:
        if self.ports.cancellation is None:
            return None
        task = loop.create_task(_wait(self.ports.cancellation.wait))
        task.add_done_callback(
            lambda _: self._wake is not None and not self._wake.done() and self._wake.set_result(None)
        )
        return task

    async def _collect(
        self, running: dict[asyncio.Task[Sequence[Fact]], _Running], loop: asyncio.AbstractEventLoop
    ) -> Interruption | None:
        """Wait until every command has its facts, or until something interrupts."""
        poll_at = loop.time() + POLL_SECONDS
        while running:
            if not self._landed:
                timer = loop.call_at(self._next_wake(running, poll_at, loop), self._alarm)
                self._wake = loop.create_future()
                await self._wake
                self._wake = None
                timer.cancel()
            if self._landed:
                await self._take(running)
                if not running:
                    return None
            if self.ports.cancellation is not None and self.ports.cancellation.is_set():
                return "cancelled"
            if self._deadline_left() <= 0:
                return "deadline"
            self._expire(running, loop.time())
            if loop.time() >= poll_at:
                poll_at = loop.time() + POLL_SECONDS
                await self._renew()
                if await self._read_inbox():
                    return "cancel"
        return None

    def _alarm(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _next_wake(
        self, running: dict[asyncio.Task[Sequence[Fact]], _Running], poll_at: float, loop: asyncio.AbstractEventLoop
    ) -> float:
        soonest = min([poll_at, *[each.expires for each in running.values()]])
        return min(soonest, loop.time() + self._deadline_left())

    def _deadline_left(self) -> float:
        deadline = self.state.deadline
        return float("inf") if deadline is None else deadline - self.ports.clock.now()

    async def _take(self, running: dict[asyncio.Task[Sequence[Fact]], _Running]) -> None:
        """Note the facts of what has landed; write results at once while others still run, so that none can be lost."""
        landed, self._landed = self._landed, []
        results = False
        for task in landed:
            each = running.pop(task, None)
            if each is None:
                continue  # it was abandoned, and its late answer is on its way to the inbox
            for fact in self._facts(each):
                self.note(fact)
                results = results or type(fact) is CallFinished
        if running and results:
            await self.flush()

    def _facts(self, each: _Running) -> Sequence[Fact]:
        if each.task.cancelled():
            return self._performer.unfinished(each.command, "timed out" if each.timed_out else "interrupted")
        error = each.task.exception()
        if error is not None:
            raise error
        return each.task.result()

    def _expire(self, running: dict[asyncio.Task[Sequence[Fact]], _Running], now: float) -> None:
        """Cancel what ran out of time; abandon what does not end within the grace."""
        for task, each in [*running.items()]:
            if now < each.expires:
                continue
            if each.timed_out:
                del running[task]
                self._abandon(each)
                for fact in self._performer.unfinished(each.command, "timed out"):
                    self.note(fact)
            else:
                each.timed_out = True
                each.expires = now + self.ports.grace
                task.cancel()

    async def _stop(self, running: dict[asyncio.Task[Sequence[Fact]], _Running], interruption: Interruption) -> None:
        """Cancel everything, wait for it within the grace, note what ended and what did not."""
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait([*running], timeout=self.ports.grace)
        self._landed = []
        for task, each in running.items():
            if task.done() and not task.cancelled() and task.exception() is None:
                facts: Sequence[Fact] = task.result()
            else:
                if not task.done():
                    self._abandon(each)
                facts = self._performer.interrupted(each.command, interruption)
            for fact in facts:
                self.note(fact)

    def _abandon(self, each: _Running) -> None:
        """Let go of a task that ignores its cancellation. What it says after all goes to the inbox, for people."""
        if isinstance(each.command, ExecuteCall):
            effect_id = each.command.effect_id
            each.task.add_done_callback(lambda task: _post_late(self.ports, self._lease.run_id, effect_id, task))

    # --- the lease

    async def _renew(self) -> None:
        """Keep the lease alive, and dispatch nothing on one that may have run out."""
        now = self.ports.clock.monotonic()
        if now < self._renew_at:
            return
        lease = self._lease
        if not await self.ports.state.renew(lease.run_id, lease.epoch, seconds=LEASE_SECONDS):
            raise LostLease(lease.run_id, f"run {lease.run_id!r} was taken over by another holder")
        self._renew_at = now + RENEW_AFTER
        self._valid_until = now + LEASE_SECONDS - MARGIN


async def _wait(wait: Callable[[], object]) -> object:
    return await wait()  # type: ignore[misc]


_late: set[asyncio.Task[int]] = set()


def _post_late(ports: Ports, run_id: str, effect_id: str, task: asyncio.Task[Sequence[Fact]]) -> None:
    if task.cancelled() or task.exception() is not None:
        return
    for fact in task.result():
        if isinstance(fact, CallFinished):
            word = LateResult(effect_id, fact.output, fact.is_error)
            posting = asyncio.get_running_loop().create_task(ports.state.post(run_id, word))
            _late.add(posting)
            posting.add_done_callback(_late.discard)
