"""The state port on a SQLite file: journal, evidence, inbox, and the right to write.

Rule: whether a run may be taken or written to is decided inside the transaction that does it, by what the file holds;
nothing is remembered between two calls.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from sqlite3 import Connection
from typing import Final

from attrs import frozen

from turnwright import heads, journal
from turnwright.definition import Durability
from turnwright.errors import PortError
from turnwright.evidence import Entry, Evidence
from turnwright.heads import Change, RunHead, RunStatus
from turnwright.inbox import Word
from turnwright.ports import Append, Appended, Busy, Cipher, Conflict, Fenced, Lease
from turnwright_adapters._kept import Content, Kept, Row, item_of
from turnwright_adapters.sqlite.database import OnFile
from turnwright_adapters.sqlite.mounts import durability_at

__all__ = ["Content", "SqliteState"]

ROOM: Final = 1 << 32
"""How many entries, and how many words, the place of a run has room for."""

FIND_RUN: Final = """
SELECT run, epoch, holder, expires, clock, crashes, status,
       (SELECT place FROM journal WHERE place < (runs.run + 1) << 32 ORDER BY place DESC LIMIT 1)
FROM runs WHERE tenant = ? AND run_id = ?
"""

OPEN_RUN: Final = "INSERT INTO runs (tenant, run_id, epoch, holder, expires, clock) VALUES (?, ?, 1, ?, ?, ?)"

TAKE_RUN: Final = """
UPDATE runs SET epoch = epoch + 1, holder = ?, expires = ?, clock = ?, crashes = ? WHERE run = ?
"""

FORGET_RUN: Final = (
    "DELETE FROM journal WHERE place BETWEEN :run << 32 AND (:run << 32) + 4294967295",
    "DELETE FROM inbox WHERE place BETWEEN :run << 32 AND (:run << 32) + 4294967295",
    "DELETE FROM runs WHERE run = :run",
)

RETIRE_RUN: Final = """
UPDATE runs SET holder = NULL, retired = (SELECT ifnull(max(retired), 0) + 1 FROM runs WHERE tenant = :tenant)
WHERE run = :run
"""

TOO_OLD: Final = """
SELECT run FROM runs WHERE tenant = ? AND retired IS NOT NULL ORDER BY retired DESC LIMIT -1 OFFSET ?
"""

WRITE_ENTRY: Final = """
INSERT INTO journal (place, kind, schema, at, append_id, turn, call, attempt, code, name, ms, input_tokens,
                     output_tokens, size, digest, head, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

WRITE_HEAD: Final = """
UPDATE runs SET status = ifnull(?, status), reason = ifnull(?, reason), definition = ifnull(?, definition),
                fingerprint = ifnull(?, fingerprint), opened_at = ifnull(?, opened_at), crashes = ?
WHERE run = ?
"""

WRITTEN: Final = "SELECT place FROM journal WHERE place > ? AND place <= ? AND append_id = ?"

READ_JOURNAL: Final = """
SELECT seq, at, kind, turn, call, attempt, code, name, ms, input_tokens, output_tokens, size, digest, head, schema, body
FROM runs JOIN journal ON place BETWEEN (runs.run << 32) + ? + 1 AND (runs.run << 32) + 4294967295
WHERE tenant = ? AND run_id = ? ORDER BY place
"""

READ_EVIDENCE: Final = """
SELECT seq, at, kind, turn, call, attempt, code, name, ms, input_tokens, output_tokens, size, digest, head
FROM runs JOIN journal ON place BETWEEN (runs.run << 32) + ? + 1 AND (runs.run << 32) + 4294967295
WHERE tenant = ? AND run_id = ? ORDER BY place
"""

READ_INBOX: Final = """
SELECT position, body
FROM runs JOIN inbox ON place BETWEEN (runs.run << 32) + ? + 1 AND (runs.run << 32) + 4294967295
WHERE tenant = ? AND run_id = ? AND body IS NOT NULL ORDER BY place
"""

NEXT_WORD: Final = """
SELECT run << 32, (SELECT place FROM inbox WHERE place < (runs.run + 1) << 32 ORDER BY place DESC LIMIT 1),
       (SELECT substr(body, 1, 1) FROM journal WHERE place = (runs.run << 32) + 1)
FROM runs WHERE tenant = ? AND run_id = ?
"""

DROP_WORD: Final = """
UPDATE inbox SET body = NULL WHERE place = (SELECT (run << 32) + ? FROM runs WHERE tenant = ? AND run_id = ?)
"""

READ_HEADS: Final = """
SELECT run_id, definition, fingerprint, status, reason, seq, opened_at, at, epoch, crashes
FROM runs JOIN journal
     ON place = (SELECT place FROM journal WHERE place < (runs.run + 1) << 32 ORDER BY place DESC LIMIT 1)
WHERE tenant = :tenant AND status IS NOT NULL AND status = ifnull(:status, status)
      AND definition = ifnull(:definition, definition) AND at >= ifnull(:since, at)
ORDER BY runs.run DESC LIMIT :limit
"""

ERASE: Final = (
    "UPDATE runs SET epoch = epoch + 1, holder = NULL WHERE run = :run",
    "UPDATE journal SET body = NULL WHERE place BETWEEN :run << 32 AND (:run << 32) + 4294967295",
    "UPDATE inbox SET body = NULL WHERE place BETWEEN :run << 32 AND (:run << 32) + 4294967295",
)


@frozen
class _Run:
    """What a transaction finds of a run."""

    run: int
    epoch: int
    holder: str | None
    expires: float
    clock: float
    crashes: int
    status: RunStatus | None
    newest: int | None

    @property
    def version(self) -> int:
        """The length of the journal; the newest entry below the end of our room may be another run's."""
        return 0 if self.newest is None else max(0, self.newest - self.run * ROOM)


class SqliteState(OnFile):
    """The state port on one SQLite file: what it acknowledged survives kill -9, and on a disk the loss of power.

    ::

        state = SqliteState("runs.db")
        outcome = await run_agent(support, "Where is my order?", Ports(model=model, state=state))
        await state.close()

    Any number of runs, event loops and processes of one host may use the file at once. *content* says what becomes of
    what people, models and tools said: kept, dropped at once (such a run cannot be continued from the store alone), or
    sealed by *cipher*, which is the default where one is given; what is not sealed is then refused on reading.
    Evidence is kept in every case. *finished_kept* bounds how many runs are kept that ended and were given back; the
    oldest go first. A run of another *tenant* is an unknown run.
    """

    durability: Durability
    """`power`, or `process` for a file on a filesystem that is in memory."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        tenant: str = "",
        content: Content | None = None,
        cipher: Cipher | None = None,
        finished_kept: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(path)
        self.durability = durability_at(self.path)
        self._tenant = tenant
        self._kept = Kept(tenant, content, cipher)
        self._finished_kept = finished_kept
        self._clock = clock

    # --- the right to write

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run; see `State.acquire`. A cancelled call does not keep what it took."""

        def undo(connection: Connection, answer: Lease | Busy | None) -> None:
            if isinstance(answer, Lease):
                self._give_back(connection, run_id, answer.epoch)

        return await self._take(
            lambda connection: self._hold(connection, run_id, holder, seconds, create=create), undo, durable=False
        )

    def _hold(
        self, connection: Connection, run_id: str, holder: str, seconds: float, *, create: bool
    ) -> Lease | Busy | None:
        run = self._find(connection, run_id)
        now = self._clock()
        if run is None:
            if not create:
                return None
            connection.execute(OPEN_RUN, (self._tenant, run_id, holder, now + seconds, now))
            return Lease(run_id, 1, 0, seconds)
        now = max(now, run.clock)  # a clock that is set back shortens no lease
        crashes = run.crashes
        if run.holder is not None:
            if run.expires > now:
                return Busy(run.expires - now)
            crashes += 1
        connection.execute(TAKE_RUN, (holder, now + seconds, now, crashes, run.run))
        return Lease(run_id, run.epoch + 1, run.version, seconds, crashes)

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        """Extend the lease; see `State.renew`."""

        def renew(connection: Connection) -> bool:
            run = self._find(connection, run_id)
            if run is None or run.epoch != epoch or run.holder is None:
                return False
            now = max(self._clock(), run.clock)
            connection.execute("UPDATE runs SET expires = ?, clock = ? WHERE run = ?", (now + seconds, now, run.run))
            return True

        return await self._write(renew, durable=False)

    async def release(self, run_id: str, epoch: int) -> None:
        """Give the run back; see `State.release`."""
        await self._write(lambda connection: self._give_back(connection, run_id, epoch), durable=False)

    def _give_back(self, connection: Connection, run_id: str, epoch: int) -> None:
        run = self._find(connection, run_id)
        if run is None or run.epoch != epoch:
            return
        if not run.version and epoch == 1:
            # Opened and never written: as if it had not been. One that was taken over before keeps counting its owners,
            # because the first of them may still be about, and must not share an epoch with a later one.
            self._forget(connection, run.run)
        elif run.status not in heads.ENDED:
            connection.execute("UPDATE runs SET holder = NULL WHERE run = ?", (run.run,))
        else:
            connection.execute(RETIRE_RUN, {"tenant": self._tenant, "run": run.run})
            if self._finished_kept is not None:
                for (old,) in connection.execute(TOO_OLD, (self._tenant, self._finished_kept)).fetchall():
                    self._forget(connection, old)

    def _forget(self, connection: Connection, run: int) -> None:
        for statement in FORGET_RUN:
            connection.execute(statement, {"run": run})

    def _find(self, connection: Connection, run_id: str) -> _Run | None:
        row = connection.execute(FIND_RUN, (self._tenant, run_id)).fetchone()
        return None if row is None else _Run(*row)

    # --- the journal

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write facts and their evidence; see `State.append`."""
        rows = [self._kept.row(run_id, entry) for entry in facts]
        change = heads.change(facts)
        folded = self._kept.folded(facts)

        def append(connection: Connection) -> Append:
            answer = self._append(connection, run_id, epoch, expected, append_id, rows, change)
            if folded and isinstance(answer, Appended):
                connection.executemany(DROP_WORD, [(position, self._tenant, run_id) for position in folded])
            return answer

        return await self._write(append)

    def _append(
        self,
        connection: Connection,
        run_id: str,
        epoch: int,
        expected: int,
        append_id: str,
        rows: Sequence[Row],
        change: Change,
    ) -> Append:
        run = self._find(connection, run_id)
        if run is None:
            raise PortError(f"append to unknown run {run_id!r}; acquire it first")
        version = run.version
        if run.epoch != epoch or version != expected:
            start = run.run * ROOM
            written = connection.execute(WRITTEN, (start + expected, start + version, append_id)).fetchone()
            if written is not None:
                return Appended(written[0] - start)
            return Fenced(run.epoch) if run.epoch != epoch else Conflict(version)
        start = run.run * ROOM + version + 1
        last = len(rows) - 1
        connection.executemany(
            WRITE_ENTRY,
            [
                (start + place, kind, schema, at, append_id if place == last else None, *rest)
                for place, (kind, schema, at, *rest) in enumerate(rows)
            ],
        )
        if change.status is not None or change.fingerprint is not None or (change.results and run.crashes):
            crashes = 0 if change.results else run.crashes
            said = (change.status, change.reason, change.definition, change.fingerprint, change.opened_at)
            connection.execute(WRITE_HEAD, (*said, crashes, run.run))
        return Appended(version + len(rows))

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries; see `State.load`. PortError for one that was not sealed, or sealed for another place."""

        def load(connection: Connection) -> list[Entry]:
            return [
                self._kept.entry(run_id, row) for row in connection.execute(READ_JOURNAL, (after, self._tenant, run_id))
            ]

        return await self._read(load)

    async def evidence(self, run_id: str, after: int = 0) -> Sequence[Evidence]:
        """The evidence; see `State.evidence`."""
        parameters = (after, self._tenant, run_id)
        return await self._read(
            lambda connection: [Evidence(*item_of(row)) for row in connection.execute(READ_EVIDENCE, parameters)]
        )

    # --- the inbox

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox; see `State.post`."""
        body = journal.encode_word(word)

        def post(connection: Connection) -> int:
            found = connection.execute(NEXT_WORD, (self._tenant, run_id)).fetchone()
            if found is None:
                raise KeyError(run_id)
            start, newest, opening = found
            position = 1 if newest is None else max(0, newest - start) + 1
            kept = self._kept.said(run_id, position, body, opening=opening)
            connection.execute("INSERT INTO inbox (place, body) VALUES (?, ?)", (start + position, kept))
            return position

        return await self._write(post)

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words; see `State.read`."""

        def read(connection: Connection) -> list[tuple[int, Word]]:
            rows = connection.execute(READ_INBOX, (after, self._tenant, run_id)).fetchall()
            return [(position, self._kept.word(run_id, position, body)) for position, body in rows]

        return await self._read(read)

    # --- many runs

    async def runs(
        self,
        *,
        status: RunStatus | None = None,
        definition: str | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> Sequence[RunHead]:
        """The heads; see `State.runs`."""
        wanted = {
            "tenant": self._tenant,
            "status": status,
            "definition": definition,
            "since": since,
            "limit": max(0, limit),
        }
        return await self._read(lambda connection: [RunHead(*row) for row in connection.execute(READ_HEADS, wanted)])

    async def erase(self, run_id: str) -> None:
        """Drop content; see `State.erase`. Afterwards no byte of it is left in the file or its log."""

        def erase(connection: Connection) -> None:
            run = self._find(connection, run_id)
            if run is None:
                raise KeyError(run_id)
            for statement in ERASE:
                connection.execute(statement, {"run": run.run})

        await self._write(erase)
        busy, _, _ = await self._read(
            lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        )
        if busy:
            raise PortError(f"{self.path}: erased, but the log still holds a copy that somebody reads; erase again")
