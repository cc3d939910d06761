"""A run whose content its caller carries: the store keeps evidence alone, and what was said travels as a continuation.

    state = CarriedContent(SqliteState("runs.db", content="drop"))
    outcome = await run_agent(payer, "refund 5", Ports(model=model, state=state))
    carried = state.continuation(outcome.run_id)          # bytes, for the caller to keep

    state = CarriedContent(SqliteState("runs.db", content="drop"), carried)
    outcome = await resume_agent(payer, run_id, Ports(model=model, state=state))

Rule: a continuation is believed only if the evidence in the store is its projection, entry by entry; one that was
changed, cut, or is not the newest is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwright import journal
from turnwright.definition import Durability
from turnwright.errors import JournalError
from turnwright.evidence import Entry, Evidence, verify
from turnwright.facts import RunOpened
from turnwright.heads import RunHead, RunStatus
from turnwright.inbox import Word
from turnwright.ports import Append, Appended, Busy, Lease, State

__all__ = ["CarriedContent"]

FORMAT = 1


class _Continuation(msgspec.Struct):
    format: int
    run_id: str
    bodies: list[bytes]


class CarriedContent:
    """A state port over *state*, which may drop all content; *continuations* are those of runs to go on with.

    Its durability is that of *state* for evidence, leases and inbox. What was acknowledged and not yet asked for with
    `continuation` is lost with the process, and with it the means to go on.
    """

    def __init__(self, state: State, *continuations: bytes) -> None:
        self.durability: Durability = state.durability
        self._state = state
        self._bodies: dict[str, list[bytes]] = {}
        for carried in continuations:
            said = msgspec.json.decode(carried, type=_Continuation)
            if said.format != FORMAT:
                raise ValueError(f"a continuation of format {said.format} is of a newer release; upgrade turnwright")
            self._bodies[said.run_id] = said.bodies

    def continuation(self, run_id: str) -> bytes:
        """What a caller has to carry to go on with *run_id*: everything that was acknowledged here and before.

        It holds the content of the run in the clear. KeyError: no entry of this run passed through here.
        """
        return msgspec.json.encode(_Continuation(FORMAT, run_id, self._bodies[run_id]))

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write facts; see `State.append`."""
        answer = await self._state.append(run_id, epoch, expected, append_id, facts)
        if isinstance(answer, Appended):
            self._bodies.setdefault(run_id, [])[expected : answer.version] = [entry.body for entry in facts]
        return answer

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries with the content that was carried. JournalError where it is not that of the run's evidence."""
        entries = await self._state.load(run_id)
        if run_id not in self._bodies:
            return entries[after:]
        bodies = self._bodies[run_id]
        if len(bodies) != len(entries):
            raise JournalError(
                min(len(bodies), len(entries)) + 1,
                f"the continuation has {len(bodies)} entries and the run {len(entries)}; carry the newest one",
            )
        whole = [
            Entry(entry.kind, entry.schema, body, entry.seq, entry.at, entry.item)
            for entry, body in zip(entries, bodies, strict=True)
        ]
        facts = [journal.decode(each.kind, each.schema, each.body, position=each.seq) for each in whole]
        salt = facts[0].salt if facts and isinstance(facts[0], RunOpened) else ""
        verify([entry.evidence for entry in entries], list(zip(facts, bodies, strict=True)), salt=salt)
        return whole[after:]

    async def erase(self, run_id: str) -> None:
        """Drop content, here too; see `State.erase`."""
        await self._state.erase(run_id)
        self._bodies.pop(run_id, None)

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run; see `State.acquire`."""
        return await self._state.acquire(run_id, holder=holder, seconds=seconds, create=create)

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        """Extend the lease; see `State.renew`."""
        return await self._state.renew(run_id, epoch, seconds=seconds)

    async def release(self, run_id: str, epoch: int) -> None:
        """Give the run back; see `State.release`."""
        await self._state.release(run_id, epoch)

    async def evidence(self, run_id: str, after: int = 0) -> Sequence[Evidence]:
        """The evidence; see `State.evidence`."""
        return await self._state.evidence(run_id, after)

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox; see `State.post`."""
        return await self._state.post(run_id, word)

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words; see `State.read`."""
        return await self._state.read(run_id, after)

    async def runs(
        self,
        *,
        status: RunStatus | None = None,
        definition: str | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> Sequence[RunHead]:
        """The heads; see `State.runs`."""
        return await self._state.runs(status=status, definition=definition, since=since, limit=limit)
