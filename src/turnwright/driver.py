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

from attrs import define, field

from turnwright import journal
from turnwright.commands import Command, ExecuteCall
from turnwright.decide import Rest, decide, may_resume, receive
from turnwright.definition import AnyDefinition
from turnwright.errors import LostLease, PortError
from turnwright.evidence import GENESIS, Entry
from turnwright.facts import CallFinished, Fact, RunOpened, RunResumed, RunSuspended
from turnwright.inbox import Cancel, LateResult
from turnwright.performer import Performer
from turnwright.ports import Append, Appended, Conflict, Fenced, Lease, Telemetry
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
    expires: float
    timed_out: bool = False
    task: asyncio.Task[Sequence[Fact]] = field(init=False)


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

    def __init__(
        self, definition: AnyDefinition, ports: Ports, lease: Lease, *, holder: str, watch: Watch | None
    ) -> None:
        self._holder = holder
        self.definition = definition
        self.ports = ports
        self.state = RunState()
        self._last: Entry | None = None
        self._lease = lease
        self._salt = b""
        self._version = 0
        self._buffer: list[Entry] = []
        self._told: list[Fact] = []
        self._watch = watch
        self._performer = Performer(definition, ports, self.state, None if watch is None else watch.progress)
        self._appends = 0
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._landed: list[_Running] = []
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
            evolve(self.state, fact, entry.at)
            if self._watch is not None:
                self._watch.seen(fact)
            self._last = entry
        self._version = self.state.length

    def note(self, fact: Fact) -> None:
        """Fold *fact*; it is written with the next append."""
        fact, body = journal.encode(fact)
        if type(fact) is RunOpened:
            self._salt = fact.salt.encode()
        at = self.ports.clock.now()
        evolve(self.state, fact, at)
        self._last = Entry(
            type(fact).__name__, journal.VERSION, body, self.state.length, at, None, (fact, self._salt, self._last)
        )
        self._buffer.append(self._last)
        self._told.append(fact)

    @property
    def head(self) -> Callable[[], str]:
        """What gives the head of the evidence chain as it is now."""
        last = self._last
        return lambda: GENESIS if last is None else last.item[-1]

    async def flush(self) -> None:
        """Write what is noted and wait for the acknowledgement. A lost one is cured by the same append id."""
        if not self._buffer:
            return
        entries, self._buffer = self._buffer, []
        told, self._told = self._told, []
        lease = self._lease
        self._appends += 1
        append_id = f"{self._holder}-{self._appends}"
        match await self._append(append_id, entries):
            case Appended(version):
                self._version = version
            case Conflict(version):
                raise LostLease(
                    lease.run_id,
                    f"run {lease.run_id!r} has {version} entries, not {self._version}: another holder wrote",
                )
            case Fenced():
                raise LostLease(lease.run_id, f"run {lease.run_id!r} was taken over by another holder")
        if self.ports.telemetry is not None:
            self._record(self.ports.telemetry, entries)
        if self._watch is not None:
            for fact, entry in zip(told, entries, strict=True):
                self._watch.record(fact, entry.at)

    async def _append(self, append_id: str, entries: Sequence[Entry]) -> Append:
        lease, state = self._lease, self.ports.state
        for _ in range(APPEND_TRIES - 1):
            try:
                return await state.append(lease.run_id, lease.epoch, self._version, append_id, entries)
            except PortError:
                continue  # it may have been written all the same: the same id tells
        return await state.append(lease.run_id, lease.epoch, self._version, append_id, entries)

    def _record(self, telemetry: Telemetry, entries: Sequence[Entry]) -> None:
        """Acknowledged evidence goes to telemetry, which cannot change the run."""
        for entry in entries:
            try:
                telemetry.record(entry.evidence)
            except Exception:  # noqa: BLE001, S110 - an observer never changes the run
                pass

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
        finally:
            if self._timer is not None:
                self._timer.cancel()
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
        if self._performer.is_immediate(commands):
            for command in commands:
                for fact in await self._performer.perform(command):
                    self.note(fact)
            return
        await self._renew()
        await self.flush()
        loop = asyncio.get_running_loop()
        start = loop.time()
        running = {_Running(command, start + self._performer.seconds(command)) for command in commands}
        for each in running:
            each.task = loop.create_task(self._carry_out(each))
        watcher = self._watch_cancellation(loop)
        try:
            interruption = await self._collect(running, loop)
        except asyncio.CancelledError:
            await self._stop(running, "cancelled")
            raise
        finally:
            if watcher is not None:
                watcher.cancel()
        if interruption is None:
            await self._read_inbox()
            return
        await self._stop(running, interruption)
        if interruption == "deadline":
            self.note(RunSuspended("budget", "deadline"))
        elif interruption == "cancelled":
            self.note(RunSuspended("cancelled"))

    async def _carry_out(self, each: _Running) -> Sequence[Fact]:
        try:
            return await self._performer.perform(each.command)
        finally:
            self._landed.append(each)
            self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _watch_cancellation(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[object] | None:
        if self.ports.cancellation is None:
            return None
        task = loop.create_task(_wait(self.ports.cancellation.wait))
        task.add_done_callback(lambda _: self._rouse())
        return task

    async def _collect(self, running: set[_Running], loop: asyncio.AbstractEventLoop) -> Interruption | None:
        """Wait until every command has its facts, or until something interrupts."""
        poll_at = loop.time() + POLL_SECONDS
        while running:
            if not self._landed:
                self._wake = loop.create_future()
                self._set_alarm(min([poll_at, *[each.expires for each in running]]), loop)
                await self._wake
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

    def _set_alarm(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Be woken by *when* at the latest. An alarm that is set for earlier serves as well, and outlives the wave."""
        if self.state.deadline is not None:
            when = min(when, loop.time() + self._deadline_left())
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._alarm)

    def _alarm(self) -> None:
        self._timer = None
        self._rouse()

    def _deadline_left(self) -> float:
        deadline = self.state.deadline
        return float("inf") if deadline is None else deadline - self.ports.clock.now()

    async def _take(self, running: set[_Running]) -> None:
        """Note the facts of what has landed; write results at once while others still run, so that none can be lost."""
        landed, self._landed = self._landed, []
        results = False
        for each in landed:
            if each not in running:
                continue  # it was abandoned, and its late answer is on its way to the inbox
            running.discard(each)
            for fact in self._facts(each):
                self.note(fact)
                results = results or type(fact) is CallFinished
        if running and results:
            await self.flush()

    def _facts(self, each: _Running) -> Sequence[Fact]:
        if each.task.cancelled():
            return self._performer.unfinished(each.command, "timed out" if each.timed_out else "interrupted")
        return each.task.result()

    def _expire(self, running: set[_Running], now: float) -> None:
        """Cancel what ran out of time; abandon what does not end within the grace."""
        for each in [each for each in running if each.expires <= now]:
            if each.timed_out:
                running.discard(each)
                self._abandon(each)
                for fact in self._performer.unfinished(each.command, "timed out"):
                    self.note(fact)
            else:
                each.timed_out = True
                each.expires = now + self.ports.grace
                each.task.cancel()

    async def _stop(self, running: set[_Running], interruption: Interruption) -> None:
        """Cancel everything, wait for it within the grace, note what ended and what did not."""
        for each in running:
            each.task.cancel()
        if running:
            await asyncio.wait([each.task for each in running], timeout=self.ports.grace)
        self._landed = []
        for each in running:
            if each.task.done() and not each.task.cancelled() and each.task.exception() is None:
                facts = each.task.result()
            else:
                if not each.task.done():
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
