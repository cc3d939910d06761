"""Reference adapters: every port in memory, or doing nothing where nothing will do.

They keep the same promises as the durable ones, for the life of a process, and serve tests and first lines. The
contract suites in `turnwright_contracts` run on them.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from os import urandom

from attrs import define, field

from turnwright import heads, journal
from turnwright.canonical import decode, encode
from turnwright.definition import Durability
from turnwright.deltas import Delta
from turnwright.errors import PortError
from turnwright.evidence import Entry, Evidence
from turnwright.heads import NO_CHANGE, Change, RunHead, RunStatus
from turnwright.inbox import Word
from turnwright.ports import (
    Append,
    Appended,
    ApprovalAnswer,
    ApprovalRequest,
    Begun,
    Busy,
    Committed,
    Conflict,
    Decision,
    Deltas,
    Denied,
    Fenced,
    Fresh,
    InFlight,
    Lease,
    Mismatch,
    NotDecided,
    Reserved,
    Telemetry,
)
from turnwright.values import frozen

__all__ = [
    "EvidenceStream",
    "FixedClock",
    "MemoryApprovals",
    "MemoryBudgets",
    "MemoryIdempotency",
    "MemoryState",
    "RandomIds",
    "SequentialIds",
    "SystemClock",
    "combine_delta_sinks",
    "combine_telemetry",
    "whole_amounts",
]


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


@define
class FixedClock:
    """A clock that stands still until it is told to move, for tests."""

    at: float = 1_800_000_000.0

    def now(self) -> float:
        """The time it was set to."""
        return self.at

    def monotonic(self) -> float:
        """The same time."""
        return self.at

    def advance(self, seconds: float) -> None:
        """Move on by *seconds*."""
        self.at += seconds


class RandomIds:
    """128 random bits from the system, in 32 hexadecimal digits."""

    def new_id(self) -> str:
        """A new id."""
        return urandom(16).hex()


@define
class SequentialIds:
    """`id-1`, `id-2`, ...: ids that a test can foresee."""

    given: int = 0

    def new_id(self) -> str:
        """The next id."""
        self.given += 1
        return f"id-{self.given}"


@define(eq=False)
class _Run:
    """One run in a MemoryState: what a store writes in its head row, its journal and its inbox."""

    epoch: int = 0
    held_until: float | None = None
    """When the lease ends; None once it was given back."""
    crashes: int = 0
    said: Change = NO_CHANGE
    summed_up: int = 0
    """How many entries are in *said*: what a head tells is worked out when somebody asks."""
    entries: list[Entry] = field(factory=list)
    appended: dict[str, int] = field(factory=dict)
    inbox: list[bytes] = field(factory=list)
    ended: bool = False

    def sum_up(self) -> Change:
        """What the entries say of the head."""
        if self.summed_up < len(self.entries):
            self.said = heads.change(self.entries[self.summed_up :], self.said)
            self.summed_up = len(self.entries)
        return self.said


class MemoryState:
    """The state port in memory: the whole contract, for the life of the process.

    It keeps JSON, not objects, so nothing that the engine or a tool holds can change what was recorded. At most
    *finished* ended runs are kept, the oldest go first; a run that has not ended is never dropped.
    """

    durability: Durability = "none"
    waits = False

    def __init__(self, *, finished: int = 1000, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._finished_kept = finished
        self._monotonic = monotonic
        self._runs: dict[str, _Run] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()

    def reopen(self) -> MemoryState:
        """The same store as a new process finds it: what was acknowledged is there, and no lease is held any more."""
        again = MemoryState(finished=self._finished_kept, monotonic=self._monotonic)
        again._runs = self._runs
        again._finished = self._finished
        for run in self._runs.values():
            if run.held_until is not None:
                run.held_until = float("-inf")
        return again

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run; see `State.acquire`."""
        run = self._runs.get(run_id)
        if run is None:
            if not create:
                return None
            run = self._runs[run_id] = _Run()
        self._finished.pop(run_id, None)  # while somebody holds it, it is not dropped
        now = self._monotonic()
        if run.held_until is not None:
            if run.held_until > now:
                return Busy(run.held_until - now)
            run.crashes += 1
        run.epoch += 1
        run.held_until = now + seconds
        return Lease(run_id, run.epoch, len(run.entries), seconds, run.crashes)

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        """Extend the lease; see `State.renew`."""
        run = self._runs.get(run_id)
        if run is None or run.epoch != epoch or run.held_until is None:
            return False
        run.held_until = self._monotonic() + seconds
        return True

    async def release(self, run_id: str, epoch: int) -> None:
        """Give the run back; see `State.release`."""
        run = self._runs.get(run_id)
        if run is None or run.epoch != epoch:
            return
        run.held_until = None
        if run.ended:
            self._retire(run_id)
        elif not run.entries and epoch == 1:
            del self._runs[run_id]  # opened and never written: as if it had not been, and no owner of old knows of it

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write facts; see `State.append`."""
        run = self._runs.get(run_id)
        if run is None:
            raise PortError(f"append to unknown run {run_id!r}; acquire it first")
        if append_id in run.appended:
            return Appended(run.appended[append_id])
        if run.epoch != epoch:
            return Fenced(run.epoch)
        if len(run.entries) != expected:
            return Conflict(len(run.entries))
        run.entries += facts
        version = len(run.entries)
        run.appended[append_id] = version
        run.ended = facts[-1].kind in journal.ENDINGS
        if run.crashes and heads.change(facts).results:
            run.crashes = 0
        return Appended(version)

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries; see `State.load`."""
        run = self._runs.get(run_id)
        return () if run is None else run.entries[after:]

    async def evidence(self, run_id: str, after: int = 0) -> Sequence[Evidence]:
        """The evidence; see `State.evidence`."""
        run = self._runs.get(run_id)
        return () if run is None else [entry.evidence for entry in run.entries[after:]]

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox; see `State.post`."""
        inbox = self._runs[run_id].inbox
        inbox.append(journal.encode_word(word))
        return len(inbox)

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words; see `State.read`."""
        run = self._runs.get(run_id)
        if run is None or len(run.inbox) <= after:
            return ()
        words = enumerate(run.inbox[after:], start=after + 1)
        return [(place, journal.decode_word(body)) for place, body in words if body]

    async def runs(
        self,
        *,
        status: RunStatus | None = None,
        definition: str | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> Sequence[RunHead]:
        """The heads; see `State.runs`."""
        found: list[RunHead] = []
        for run_id, run in reversed(self._runs.items()):
            if len(found) >= limit:
                break
            said = run.sum_up()
            if (
                said.status is not None
                and status in (None, said.status)
                and definition in (None, said.definition)
                and (since is None or run.entries[-1].at >= since)
            ):
                found.append(_head(run_id, run, said))
        return found

    async def erase(self, run_id: str) -> None:
        """Drop content; see `State.erase`."""
        run = self._runs[run_id]
        run.sum_up()
        run.entries = [Entry(each.kind, each.schema, b"", each.seq, each.at, each.item) for each in run.entries]
        run.inbox = [b""] * len(run.inbox)
        run.epoch += 1
        run.held_until = None

    def _retire(self, run_id: str) -> None:
        self._finished[run_id] = None
        self._finished.move_to_end(run_id)
        while len(self._finished) > self._finished_kept:
            oldest, _ = self._finished.popitem(last=False)
            del self._runs[oldest]


def _head(run_id: str, run: _Run, said: Change) -> RunHead:
    newest = run.entries[-1]
    return heads.head(said, run_id, version=newest.seq, updated_at=newest.at, epoch=run.epoch, crashes=run.crashes)


class MemoryApprovals:
    """Answers requests from a table of effect ids; what is not in it is not decided. It remembers what it was asked."""

    def __init__(
        self, decisions: Mapping[str, Decision] | Callable[[ApprovalRequest], ApprovalAnswer] | None = None
    ) -> None:
        self._decisions = decisions or {}
        self.asked: list[ApprovalRequest] = []

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Answer from the table."""
        self.asked.append(request)
        if callable(self._decisions):
            return self._decisions(request)
        return self._decisions.get(request.effect_id, NotDecided())


def whole_amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    """*amounts* as every budgets port counts them. PortError for what is no whole number from 0 to 2**53."""
    for axis, amount in amounts.items():
        if type(amount) is not int or not 0 <= amount <= 2**53:
            raise PortError(f"budget axis {axis!r}: an amount is a whole number from 0 to 2**53, not {amount!r}")
    return dict(amounts)


@define
class _Account:
    limit: int
    settled: int = 0
    reserved: int = 0


class MemoryBudgets:
    """Accounts by scope and axis: `MemoryBudgets({("tenant-1", "requests"): 100})`; no account, no limit."""

    waits = False

    def __init__(self, limits: Mapping[tuple[str, str], int]) -> None:
        self._accounts = {place: _Account(limit) for place, limit in limits.items()}
        self._held: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {}
        self._done: set[str] = set()

    def raise_limit(self, scope: str, axis: str, limit: int) -> None:
        """Give the account another limit."""
        self._accounts[scope, axis].limit = limit

    def standing(self, scope: str, axis: str) -> tuple[int, int, int]:
        """Limit, settled and reserved of one account."""
        account = self._accounts[scope, axis]
        return account.limit, account.settled, account.reserved

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Hold *ask* on every scope, or nothing; see `Budgets.reserve`."""
        ask = whole_amounts(ask)
        if id in self._held or id in self._done:
            return Reserved()
        scopes = tuple(dict.fromkeys(scopes))
        for scope in scopes:
            for axis, amount in ask.items():
                account = self._accounts.get((scope, axis))
                if account is not None and account.settled + account.reserved + amount > account.limit:
                    return Denied(scope, axis)
        self._held[id] = (scopes, ask)
        self._move(id, 1)
        return Reserved()

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        """Replace the reservation by what was used; see `Budgets.settle`."""
        actual = whole_amounts(actual)
        if id not in self._held:
            return
        self._move(id, -1)
        scopes, _ = self._held.pop(id)
        self._done.add(id)
        for scope in scopes:
            for axis, amount in actual.items():
                account = self._accounts.get((scope, axis))
                if account is not None:
                    account.settled += amount

    async def release(self, id: str) -> None:
        """Let the reservation go; see `Budgets.release`."""
        if id in self._held:
            self._move(id, -1)
            del self._held[id]

    async def held(self, prefix: str) -> Sequence[str]:
        """What is held; see `Budgets.held`."""
        return [id for id in self._held if id.startswith(prefix)]

    def _move(self, id: str, sign: int) -> None:
        scopes, ask = self._held[id]
        for scope in scopes:
            for axis, amount in ask.items():
                account = self._accounts.get((scope, axis))
                if account is not None:
                    account.reserved += sign * amount


@frozen
class _Key:
    digest: str
    result: bytes | None = None


class MemoryIdempotency:
    """Keys in memory; a reserved key stays reserved until it is committed."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], _Key] = {}

    async def begin(self, namespace: str, key: str, digest: str) -> Begun:
        """Reserve the key; see `Idempotency.begin`."""
        known = self._keys.get((namespace, key))
        if known is None:
            self._keys[namespace, key] = _Key(digest)
            return Fresh()
        if known.digest != digest:
            return Mismatch()
        return InFlight() if known.result is None else Committed(decode(known.result))

    async def commit(self, namespace: str, key: str, result: object) -> None:
        """Keep the result; see `Idempotency.commit`."""
        known = self._keys[namespace, key]
        if known.result is None:
            self._keys[namespace, key] = _Key(known.digest, encode(result))  # type: ignore[arg-type]

    async def mark_unknown(self, namespace: str, key: str) -> None:
        """Leave the key taken; see `Idempotency.mark_unknown`."""


class _Fanned:
    """Several consumers as one. Each gets everything, in order; one that raises is counted in `failed`."""

    def __init__(self, takers: Iterable[Callable[[object], None]]) -> None:
        self._takers = tuple(takers)
        self.failed = 0

    def _fan(self, item: object) -> None:
        for take in self._takers:
            try:
                take(item)
            except (Exception, asyncio.CancelledError):  # noqa: BLE001 - an observer never changes the run
                self.failed += 1


class _CombinedTelemetry(_Fanned):
    def record(self, evidence: Evidence) -> None:
        self._fan(evidence)


class _CombinedDeltas(_Fanned):
    def emit(self, delta: Delta) -> None:
        self._fan(delta)


def combine_telemetry(*consumers: Telemetry) -> Telemetry:
    """One telemetry port that gives every step of evidence, in order, to each of *consumers*."""
    return _CombinedTelemetry([each.record for each in consumers])  # type: ignore[misc]


def combine_delta_sinks(*sinks: Deltas) -> Deltas:
    """One delta sink that gives every delta, in order, to each of *sinks*."""
    return _CombinedDeltas([each.emit for each in sinks])  # type: ignore[misc]


class EvidenceStream:
    """A telemetry port that is also an async iterable of evidence, for a viewer in the same process.

    It holds at most *size* items. A viewer that falls behind loses the oldest, counted in `dropped`, because a viewer
    must never hold up a run. `close` ends the iteration after what is still held.
    """

    def __init__(self, size: int = 1000) -> None:
        if size < 1:
            message = f"size is at least 1, not {size!r}"
            raise ValueError(message)
        self._items: deque[Evidence] = deque(maxlen=size)
        self._arrived = asyncio.Event()
        self._closed = False
        self.dropped = 0

    def record(self, evidence: Evidence) -> None:
        """Take one item."""
        self.dropped += len(self._items) == self._items.maxlen
        self._items.append(evidence)
        self._arrived.set()

    def close(self) -> None:
        """No more will come."""
        self._closed = True
        self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[Evidence]:
        while True:
            while self._items:
                yield self._items.popleft()
            if self._closed:
                return
            self._arrived.clear()
            await self._arrived.wait()
