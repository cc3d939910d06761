"""Perform what the core decides, through ports. Rule: the only loop; it decides nothing itself.

    fold what the journal holds
    until the run is at rest:
        decide
        append the wave's intents, acknowledged before any effect
        perform its commands together; record each result as it lands

Recorded facts that need no acknowledgement before an effect ride with the next append. A text turn takes two appends,
a turn with a tool four. An interruption (a cancelled task, the cancellation port, the deadline) stops the wave: what
ended is recorded, what did not is left to recovery, which is the same path again. Every port call races it, and what is
called on the way out has the grace and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from attrs import define, evolve as replace, field

from turnwright import journal
from turnwright.canonical import digest
from turnwright.commands import Command, ExecuteCall
from turnwright.decide import Rest, decide, may_resume, receive
from turnwright.definition import AnyDefinition
from turnwright.errors import JournalError, LostLease, PortError
from turnwright.evidence import GENESIS, Entry
from turnwright.facts import (
    ApprovalDecided,
    CallAdmitted,
    CallFinished,
    Fact,
    RunOpened,
    RunResumed,
    RunSuspended,
)
from turnwright.inbox import Cancel, LateResult, Word
from turnwright.leasing import Ownership
from turnwright.memory import combine_delta_sinks
from turnwright.performer import Performer
from turnwright.ports import Append, Appended, Conflict, Fenced, Lease, Telemetry
from turnwright.racing import Interrupted, Interruption, Race, end, let_go
from turnwright.spending import Spending
from turnwright.state import RunState, evolve
from turnwright.wiring import Ports

if TYPE_CHECKING:
    from turnwright.listening import Listening

__all__ = ["Driver", "Watch"]

T = TypeVar("T")

POLL_SECONDS: Final = 1.0
"""How often a run that waits for a slow effect looks into its inbox."""
APPEND_TRIES: Final = 5


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

    def noted(self, fact: Fact) -> None:
        """Take a new fact that is decided, and is written next."""
        ...

    def record(self, fact: Fact, at: float) -> None:
        """Take a new fact."""
        ...

    def progress(self, index: int, text: str) -> None:
        """Take a tool's word on its progress."""
        ...


class Driver:
    """One owner's work on one run. *asked* is when it asked for the lease, on the monotonic clock."""

    def __init__(
        self,
        definition: AnyDefinition,
        ports: Ports,
        lease: Lease,
        *,
        holder: str,
        asked: float,
        race: Race,
        watch: Watch | None = None,
    ) -> None:
        self._holder = holder
        self._race = race
        race.rouse = self._rouse
        self.definition = definition
        self.ports = ports
        self.state = RunState()
        self._last: Entry | None = None
        self._lease = lease
        self._ownership = Ownership(lease, ports.state, ports.clock, asked=asked)
        self.run_id = lease.run_id
        self._salt = b""
        self._version = 0
        self._buffer: list[Entry] = []
        self._told: list[Fact] = []
        self._listening: Listening | None = None
        if ports.listener is not None:
            from turnwright.listening import Listening  # only a run that somebody listens to pays for it

            self._listening = Listening(ports.listener, self._rouse)
        watches: list[Watch | None] = [watch, None if self._listening is None else self._listening.lifecycle]
        self._watches = [each for each in watches if each is not None]
        self.written_to = (ports.state,) if self._listening is None else (ports.state, self._listening)
        """Whom `flush` asks."""
        if self._listening is not None and ports.deltas is not None:
            ports = replace(ports, deltas=combine_delta_sinks(self._listening, ports.deltas))
        budgets = ports.budgets
        self._spending = (
            None
            if budgets is None
            else Spending(
                definition, budgets, self.state, ports.scopes, ports.tenant, ports.prices, self._ownership.fence
            )
        )
        progress = self._progress if self._watches else None
        self._words = ports.state if ports.inbox is None else ports.inbox
        self._performer = Performer(
            *(definition, ports, self.state), progress=progress, spending=self._spending, fence=self._ownership.fence
        )
        self._appends = 0
        self._sent = 0
        """How much of the buffer was sent and is not acknowledged."""
        self._taken_over = False
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._landed: list[_Running] = []

    # --- the journal

    async def load(self) -> bool:
        """Fold what the journal holds. False for a new run, whose journal is empty."""
        if self._lease.version:
            await self._fold()
        if self._spending is not None and self._lease.epoch > 1:
            self._spending.adopt()
        return self._taken_over

    async def _fold(self) -> None:
        for position, entry in enumerate(await self.ports.state.load(self.run_id), start=1):
            fact = journal.decode(entry.kind, entry.schema, entry.body, position=position)
            self._believe(fact, position)
            if type(fact) is RunOpened:
                self._salt = fact.salt.encode()
            evolve(self.state, fact, entry.at)
            for watch in self._watches:
                watch.seen(fact)
            self._last = entry
        self._version = self.state.length
        self._taken_over = True

    def _believe(self, fact: Fact, position: int) -> None:
        """Refuse a stored call that was changed: what runs is what was admitted. The fold holds the rest to it."""
        if type(fact) is CallAdmitted:
            calls = self.state.calls
            named = fact.index < len(calls) and fact.name == calls[fact.index].part.name
            if not named or fact.digest != digest(fact.arguments):  # type: ignore[arg-type] # JSON
                raise JournalError(position, f"call {fact.index} of turn {fact.turn} is not what was admitted")

    def note(self, fact: Fact) -> None:
        """Fold *fact*; it is written with the next append."""
        fact, body = journal.encode(fact)
        if type(fact) is RunOpened:
            self._salt = fact.salt.encode()
        at = self.ports.clock.now()
        evolve(self.state, fact, at)
        self._last = Entry(
            type(fact).__name__, journal.VERSION, body, self.state.length, at, None, self._salt, self._last, fact
        )
        self._buffer.append(self._last)
        self._told.append(fact)
        for watch in self._watches:
            watch.noted(fact)

    @property
    def crashes(self) -> int:
        """How many owners in a row died over this run."""
        return self._lease.crashes

    @property
    def head(self) -> Callable[[], str]:
        """What gives the head of the evidence chain as it is now."""
        last = self._last
        return lambda: GENESIS if last is None else last.item[-1]

    async def flush(self) -> None:
        """Write what is noted, and wait until the listener has heard of it."""
        await self._write()
        if self._listening is not None:
            await self._listening.catch_up()

    async def _write(self) -> None:
        """Write what is noted and wait for the acknowledgement.

        What was sent is sent again under the same append id until it is acknowledged: a lost acknowledgement, an error
        and an interruption are cured alike.
        """
        while self._buffer:
            if not self._sent:
                self._sent = len(self._buffer)
                self._appends += 1
            entries, told = self._buffer[: self._sent], self._told[: self._sent]
            lease = self._lease
            match await self._append(f"{self._holder}-{self._appends}", entries):
                case Appended(version):
                    self._version = version
                case Conflict(version):
                    raise LostLease(
                        lease.run_id,
                        f"run {lease.run_id!r} has {version} entries, not {self._version}: another holder wrote",
                    )
                case Fenced():
                    raise LostLease(lease.run_id, f"run {lease.run_id!r} was taken over by another holder")
            del self._buffer[: self._sent], self._told[: self._sent]
            self._sent = 0
            self._tell(entries, told)

    def _tell(self, entries: Sequence[Entry], told: Sequence[Fact]) -> None:
        """Acknowledged facts go to whoever watches, and are not kept for anybody else."""
        if self.ports.telemetry is not None:
            self._record(self.ports.telemetry, entries)
        for watch in self._watches:
            for fact, entry in zip(told, entries, strict=True):
                watch.record(fact, entry.at)
        for entry in entries:
            entry.let_go()

    def _progress(self, index: int, text: str) -> None:
        for watch in self._watches:
            watch.progress(index, text)

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
            except (Exception, asyncio.CancelledError):  # noqa: BLE001, S110 - an observer never changes the run
                pass

    # --- the loop

    async def drive(self, *, max_turns: int | None, deadline: float | None) -> None:
        """Bring the run to rest. Afterwards `standing` tells how it stands."""
        until = self.state.deadline if deadline is None else deadline
        self._race.deadline = None if self.state.suspended is not None else until
        try:
            await self._work(max_turns, until)
            await self._race.run(self.flush(), *self.written_to)
            if self._spending is not None:
                await self._race.run(self._while_ours(self._spending.settle(leaving=True)), self.ports.budgets)
        except Interrupted as interrupted:
            with suppress(Exception):
                await self._race.hurry(self._hear_last_words())
            self._suspend(interrupted.why)
            await self._race.hurry(self._write())
            await self._part()
        except BaseException as error:
            # Let it through, but first write, within a bounded time, what is known.
            if isinstance(error, asyncio.CancelledError):
                self._suspend("cancelled")
            with suppress(Exception):
                await self._race.hurry(self._observe_late() if isinstance(error, LostLease) else self._write())
            if not isinstance(error, LostLease):
                await self._part()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _work(self, max_turns: int | None, deadline: float | None) -> None:
        await self._race.run(self._read_inbox(), self._words)
        if not self._take_up(max_turns, deadline):
            return
        while not isinstance(wave := decide(self.definition, self.state), Rest):
            immediate = self._performer.is_immediate(wave.commands)
            if not immediate:
                self._race.heed()
                if self._spending is not None:
                    length = self.state.length
                    wave = await self._race.run(self._while_ours(self._spending.reserve(wave)), self.ports.budgets)
                    if self.ports.inbox is not None:  # what the wave would deliver may have been taken back
                        await self._race.run(self._read_inbox(), self._words)
                        if self.state.length > length:
                            continue
            for fact in wave.facts:
                self.note(fact)
            if immediate:
                for command in wave.commands:
                    for fact in await self._performer.perform(command):
                        self.note(fact)
            elif wave.commands:
                await self._perform(wave.commands)

    async def _part(self) -> None:
        """Tell the listener and the budgets on the way out, as far as they answer within the grace."""
        if self._listening is not None:
            with suppress(Exception):
                await self._race.hurry(self._listening.catch_up())
        if self._spending is not None:
            with suppress(Exception):
                await self._race.hurry(self._while_ours(self._spending.settle(leaving=True)))

    def _take_up(self, max_turns: int | None, deadline: float | None) -> bool:
        """Whether there is something to do. A run that goes on, after a rest or a crash, says so."""
        state = self.state
        if not self._taken_over or state.ended is not None:
            return True
        turns = state.max_turns if max_turns is None else max(max_turns, state.max_turns)
        now = self.ports.clock.now()
        if state.suspended is not None and not may_resume(
            self.definition, state, max_turns=turns, now=now, deadline=deadline
        ):
            return False
        self.note(RunResumed(turns, deadline))
        self._race.deadline = deadline
        return True

    async def _hear_last_words(self) -> None:
        """An interrupted run to which somebody also said `cancel` ends here instead of waiting."""
        await self._read_inbox()
        while self.state.cancel is not None and not isinstance(wave := decide(self.definition, self.state), Rest):
            for fact in wave.facts:
                self.note(fact)

    def _suspend(self, why: Interruption) -> None:
        if self.state.suspended is None and self.state.ended is None:
            self.note(RunSuspended("budget", "deadline") if why == "deadline" else RunSuspended("cancelled"))

    async def hear(self, words: Sequence[Word]) -> None:
        """Take what the caller says about calls, by way of the inbox, so that it outlives a crash from here on."""
        for word in words:
            if self.ports.inbox is None:
                await self.ports.state.post(self.run_id, word)
            elif self.state.ended is None:
                self._receive(self.state.inbox, word)

    def _receive(self, position: int, word: Word) -> None:
        for fact in receive(self.definition, self.state, position, word, now=self.ports.clock.now()):
            self.note(fact)

    async def _read_inbox(self) -> bool:
        """Fold the words that came. True if one of them was `cancel`."""
        run_id, after = self.run_id, self.state.inbox
        inbox = self.ports.inbox
        words = await (self.ports.state.read(run_id, after) if inbox is None else inbox.poll(run_id, after))
        if not words or self.state.ended is not None:
            return False
        for position, word in words:
            if inbox is not None:
                _refuse_odd(position, word)
            if position > self.state.inbox:  # a port may repeat itself
                self._receive(position, word)
        return any([isinstance(word, Cancel) for _, word in words])

    # --- one wave

    async def _perform(self, commands: Sequence[Command]) -> None:
        """Perform *commands* together and note their facts as they land."""
        if self._buffer:
            await self._race.run(self.flush(), *self.written_to)
        if self._ownership.is_due:
            await self._race.run(self._ownership.renew(), self.ports.state)
        loop = asyncio.get_running_loop()
        start = loop.time()
        running = dict.fromkeys([_Running(command, start + self._performer.seconds(command)) for command in commands])
        for each in running:
            each.task = loop.create_task(self._carry_out(each))
        try:
            cancel = await self._collect(running, loop)
        except BaseException as error:
            await self._stop(running, error.why if isinstance(error, Interrupted) else "cancelled")
            raise
        if cancel:
            await self._stop(running, "cancelled")
        else:
            if self._spending is not None:
                await self._race.run(self._while_ours(self._spending.settle()), self.ports.budgets)
            await self._race.run(self._read_inbox(), self._words)

    async def _carry_out(self, each: _Running) -> Sequence[Fact]:
        try:
            return await self._performer.perform(each.command)
        finally:
            self._landed.append(each)
            self._rouse()

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _collect(self, running: dict[_Running, None], loop: asyncio.AbstractEventLoop) -> bool:
        """Wait until every command has its facts. True if the word `cancel` came first."""
        poll_at = loop.time() + POLL_SECONDS
        await asyncio.sleep(0)  # what is done at once needs neither a wake-up nor an alarm
        while running:
            if self._listening is not None and self._listening.is_behind:
                await self._race.run(self._listening.catch_up(), self._listening)
            elif not self._landed:
                self._wake = loop.create_future()
                self._set_alarm(min([poll_at, *[each.expires for each in running]]), loop)
                await self._wake
            await self._take(running)
            if not running:
                return False
            self._race.heed()
            self._expire(running, loop.time())
            if loop.time() >= poll_at:
                poll_at = loop.time() + POLL_SECONDS
                # A store that is away for a moment is no reason to stop, as long as the lease holds.
                with suppress(PortError):
                    await self._race.run(self._ownership.renew(), self.ports.state)
                    if await self._race.run(self._read_inbox(), self._words):
                        return True
                self._ownership.fence()
        return False

    def _set_alarm(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Be woken by *when* at the latest. An alarm that is set for earlier serves as well, and outlives the wave."""
        if self._race.deadline is not None:
            when = min(when, loop.time() + self._race.left())
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._alarm)

    def _alarm(self) -> None:
        self._timer = None
        self._rouse()

    async def _take(self, running: dict[_Running, None]) -> None:
        """Note the facts of what has landed; write results at once while others still run, so that none can be lost."""
        landed, self._landed = self._landed, []
        results = False
        for each in landed:
            if each not in running:
                continue  # it was abandoned, and its late answer is on its way to the inbox
            del running[each]
            for fact in self._facts(each):
                self._note_result(fact)
                results = results or type(fact) is CallFinished
        if running and results:
            await self._race.run(self.flush(), *self.written_to)

    def _note_result(self, fact: Fact) -> None:
        """Note what a command ended in. Where a word decided over the call meanwhile, the first answer counts."""
        if type(fact) is not ApprovalDecided or self.state.calls[fact.index].waits:
            self.note(fact)

    def _facts(self, each: _Running) -> Sequence[Fact]:
        if each.task.cancelled():
            return self._performer.unfinished(each.command, "timed out" if each.timed_out else "interrupted")
        return each.task.result()

    def _expire(self, running: dict[_Running, None], now: float) -> None:
        """Cancel what ran out of time; abandon what does not end within the grace."""
        for each in [each for each in running if each.expires <= now]:
            if each.timed_out:
                del running[each]
                self._abandon(each)
                for fact in self._performer.unfinished(each.command, "timed out"):
                    self.note(fact)
            else:
                each.timed_out = True
                each.expires = now + self.ports.grace
                each.task.cancel()

    async def _stop(self, running: Collection[_Running], interruption: Interruption) -> None:
        """Cancel everything, wait for it within the grace, note what ended and what did not."""
        await end([each.task for each in running], self.ports.grace)
        self._landed = []
        for each in running:
            if each.task.done() and not each.task.cancelled() and each.task.exception() is None:
                facts = each.task.result()
            else:
                if not each.task.done():
                    self._abandon(each)
                facts = self._performer.interrupted(each.command, interruption)
            for fact in facts:
                self._note_result(fact)

    def _abandon(self, each: _Running) -> None:
        """Let go of a task that ignores its cancellation. What it says after all goes to the inbox, for people."""
        let_go(each.task)
        if isinstance(each.command, ExecuteCall):
            effect_id = each.command.effect_id
            each.task.add_done_callback(lambda task: self._observe(effect_id, task))

    def _observe(self, effect_id: str, task: asyncio.Task[Sequence[Fact]]) -> None:
        if not task.cancelled() and task.exception() is None:
            for fact in task.result():
                if isinstance(fact, CallFinished):
                    let_go(asyncio.get_running_loop().create_task(self._post_late(effect_id, fact)))

    async def _observe_late(self) -> None:
        """Leave what a worker that lost its lease has seen, as evidence for the next one and for people."""
        for fact in self._told:
            if isinstance(fact, CallFinished):
                await self._post_late(self.state.effect_id(fact.turn, fact.index), fact)

    async def _post_late(self, effect_id: str, fact: CallFinished) -> None:
        await self.ports.state.post(self.run_id, LateResult(effect_id, fact.output, fact.is_error))

    # --- the lease

    def _while_ours(self, spending: Coroutine[object, object, T]) -> Coroutine[object, object, T]:
        """Ask the budgets, which no epoch fences: the next owner uses the same ids."""
        return self._ownership.during(spending, self.ports.budgets, grace=self.ports.grace)

    async def release(self) -> None:
        """Give the run back. Where that fails, the lease ends by itself."""
        giving = self.ports.state.release(self.run_id, self._lease.epoch)
        with suppress(Exception):
            await self._race.last(giving, self.ports.state)


def _refuse_odd(position: object, word: Word) -> None:
    """Fold nothing from an inbox port that the journal could not hold."""
    try:
        journal.encode_word(word)
        sound = type(position) is int and position > 0
    except (JournalError, TypeError):
        sound = False
    if not sound:
        raise PortError(
            f"the inbox port gave {type(word).__name__} at {position!r:.40}, which is no word at a position"
        )
