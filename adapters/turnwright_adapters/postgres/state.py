"""The state port on a Postgres schema: journal, evidence, inbox, and the right to write.

Rule: whether a run may be taken or written to is decided by the statement that does it, by what the row holds at that
moment; nothing is remembered between two calls. One that did nothing is asked why afterwards, and done again if there
is no reason any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import AsyncConnection

from turnwright import heads, journal
from turnwright.definition import Durability
from turnwright.errors import PortError
from turnwright.evidence import Entry, Evidence
from turnwright.heads import RunHead, RunStatus
from turnwright.inbox import Word
from turnwright.ports import Append, Appended, Busy, Cipher, Conflict, Fenced, Lease
from turnwright_adapters._kept import Content, Kept, item_of
from turnwright_adapters.postgres.database import OnServer
from turnwright_adapters.postgres.texts import escaped_json

__all__ = ["PostgresState"]

# A clock that is set back shortens no lease.
TAKE: Final = """
UPDATE runs SET epoch = epoch + 1, holder = %(holder)s, crashes = crashes + (holder IS NOT NULL)::integer,
                clock = greatest(clock, moment), expires = greatest(clock, moment) + %(seconds)s
FROM (SELECT extract(epoch FROM clock_timestamp())::float8 AS moment) AS now
WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND (holder IS NULL OR expires <= greatest(clock, moment))
RETURNING epoch, version, crashes
"""

OPEN: Final = """
INSERT INTO runs (tenant, run_id, epoch, holder, clock, expires)
SELECT %(tenant)s, %(run_id)s, 1, %(holder)s, moment, moment + %(seconds)s
FROM (SELECT extract(epoch FROM clock_timestamp())::float8 AS moment) AS now
ON CONFLICT DO NOTHING RETURNING epoch, version, crashes
"""

HELD: Final = """
SELECT CASE WHEN holder IS NULL THEN 0
            ELSE expires - greatest(clock, extract(epoch FROM clock_timestamp())::float8) END
FROM runs WHERE tenant = %(tenant)s AND run_id = %(run_id)s
"""

RENEW: Final = """
UPDATE runs SET clock = greatest(clock, moment), expires = greatest(clock, moment) + %(seconds)s
FROM (SELECT extract(epoch FROM clock_timestamp())::float8 AS moment) AS now
WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND epoch = %(epoch)s AND holder IS NOT NULL
"""

# Opened and never written: as if it had not been.
FORGET: Final = (
    "DELETE FROM runs WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND epoch = %(epoch)s AND version = 0"
)

RELEASE: Final = """
UPDATE runs SET holder = NULL, retired = CASE WHEN status = ANY(%(ended)s) THEN nextval('retirements') ELSE retired END
WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND epoch = %(epoch)s
RETURNING status = ANY(%(ended)s)
"""

FORGET_OLD: Final = """
DELETE FROM runs WHERE run IN (
    SELECT run FROM runs WHERE tenant = %s AND retired IS NOT NULL ORDER BY retired DESC OFFSET %s
)
"""

# The entries go as one JSON text, since a parameter costs the driver as much as a value in it costs the server.
APPEND: Final = """
WITH run AS (
    UPDATE runs SET version = version + %(length)s, updated_at = coalesce(%(at)s, updated_at),
                    status = coalesce(%(status)s, status), reason = coalesce(%(reason)s, reason),
                    definition = coalesce(%(definition)s, definition),
                    fingerprint = coalesce(%(fingerprint)s, fingerprint),
                    opened_at = coalesce(%(opened_at)s, opened_at),
                    crashes = CASE WHEN %(results)s THEN 0 ELSE crashes END
    WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND epoch = %(epoch)s AND version = %(expected)s
    RETURNING run
), entries AS (
    INSERT INTO journal (run, seq, append_id, kind, schema, at, turn, call, attempt, code, name, ms, input_tokens,
                         output_tokens, size, digest, head, body)
    SELECT run, %(expected)s + place, CASE WHEN place = %(length)s THEN %(append_id)s END, said->>0,
           (said->>1)::integer, (said->>2)::float8, (said->>3)::bigint, (said->>4)::bigint, (said->>5)::bigint,
           said->>6, said->>7, (said->>8)::bigint, (said->>9)::bigint, (said->>10)::bigint, (said->>11)::bigint,
           decode(said->>12, 'hex'), decode(said->>13, 'hex'), body
    FROM run, ROWS FROM (jsonb_array_elements(convert_from(%(entries)s, 'UTF8')::jsonb), unnest(%(bodies)s::bytea[]))
              WITH ORDINALITY AS entry (said, body, place)
), words AS (
    UPDATE inbox SET body = NULL FROM run WHERE inbox.run = run.run AND position = ANY(%(folded)s::bigint[])
)
SELECT FROM run
"""

REFUSED: Final = """
SELECT epoch, version, (SELECT max(seq) FROM journal
                        WHERE journal.run = runs.run AND seq > %(expected)s AND append_id = %(append_id)s)
FROM runs WHERE tenant = %(tenant)s AND run_id = %(run_id)s
"""

READ_JOURNAL: Final = """
SELECT seq, at, kind, turn, call, attempt, code, name, ms, input_tokens, output_tokens, size, digest, head, schema, body
FROM runs JOIN journal USING (run) WHERE tenant = %s AND run_id = %s AND seq > %s ORDER BY seq
"""

READ_EVIDENCE: Final = """
SELECT seq, at, kind, turn, call, attempt, code, name, ms, input_tokens, output_tokens, size, digest, head
FROM runs JOIN journal USING (run) WHERE tenant = %s AND run_id = %s AND seq > %s ORDER BY seq
"""

READ_INBOX: Final = """
SELECT position, body FROM runs JOIN inbox USING (run)
WHERE tenant = %s AND run_id = %s AND position > %s AND body IS NOT NULL ORDER BY position
"""

READ_HEADS: Final = """
SELECT run_id, definition, fingerprint, status, reason, version, opened_at, updated_at, epoch, crashes
FROM runs
WHERE tenant = %(tenant)s AND status IS NOT NULL AND (%(status)s::text IS NULL OR status = %(status)s)
      AND (%(definition)s::text IS NULL OR definition = %(definition)s)
      AND (%(since)s::float8 IS NULL OR updated_at >= %(since)s)
ORDER BY run DESC LIMIT %(limit)s
"""

ERASE: Final = "UPDATE runs SET epoch = epoch + 1, holder = NULL WHERE tenant = %s AND run_id = %s RETURNING run"


class PostgresState(OnServer):
    """The state port on one Postgres schema: what it acknowledged survives kill -9 and the loss of power.

    ::

        state = PostgresState("postgresql://app@db/app")
        outcome = await run_agent(support, "Where is my order?", Ports(model=model, state=state))
        await state.close()

    Any number of runs, event loops, processes and hosts may use the schema at once; leases run by the server's clock.
    *content* says what becomes of what people, models and tools said: kept, dropped at once (such a run cannot be
    continued from the store alone), or sealed by *cipher*, which is the default where one is given; what is not sealed
    is then refused on reading. Evidence is kept in every case. *finished_kept* bounds how many runs are kept that ended
    and were given back; the oldest go first. A run of another *tenant* is an unknown run.

    The promise is that of the server: one that was told to work without fsync keeps nothing through a loss of power.
    """

    durability: Durability = "power"

    def __init__(
        self,
        conninfo: str,
        *,
        tenant: str = "",
        content: Content | None = None,
        cipher: Cipher | None = None,
        finished_kept: int | None = None,
        schema: str = "turnwright",
        connections: int = 8,
    ) -> None:
        super().__init__(conninfo, schema=schema, connections=connections)
        self._tenant = tenant
        self._kept = Kept(tenant, content, cipher)
        self._finished_kept = finished_kept

    # --- the right to write

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run; see `State.acquire`. A cancelled call does not keep what it took."""
        wanted = {"tenant": self._tenant, "run_id": run_id, "holder": holder, "seconds": float(seconds)}

        async def take(connection: AsyncConnection) -> Lease | Busy | None:
            while True:  # as often as the run comes, goes or falls free between two looks
                taken = await (await connection.execute(TAKE, wanted)).fetchone()
                if taken is None:
                    held = await (await connection.execute(HELD, wanted)).fetchone()
                    if held is not None and held[0] > 0:
                        return Busy(held[0])
                    if held is None and not create:
                        return None
                    if held is None:
                        taken = await (await connection.execute(OPEN, wanted)).fetchone()
                if taken is not None:
                    epoch, version, crashes = taken
                    return Lease(run_id, epoch, version, seconds, crashes)

        async def undo(connection: AsyncConnection, answer: Lease | Busy | None) -> None:
            if isinstance(answer, Lease):
                await self._give_back(connection, run_id, answer.epoch)

        return await self._take(take, undo)

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        """Extend the lease; see `State.renew`."""
        wanted = {"tenant": self._tenant, "run_id": run_id, "epoch": epoch, "seconds": float(seconds)}

        async def renew(connection: AsyncConnection) -> bool:
            return (await connection.execute(RENEW, wanted)).rowcount > 0

        return await self._ask(renew)

    async def release(self, run_id: str, epoch: int) -> None:
        """Give the run back; see `State.release`."""
        await self._ask(lambda connection: self._give_back(connection, run_id, epoch))

    async def _give_back(self, connection: AsyncConnection, run_id: str, epoch: int) -> None:
        wanted = {"tenant": self._tenant, "run_id": run_id, "epoch": epoch}
        if (await connection.execute(FORGET, wanted)).rowcount:
            return
        given = await connection.execute(RELEASE, {**wanted, "ended": sorted(heads.ENDED)})
        if self._finished_kept is not None and await given.fetchone() == (True,):
            await connection.execute(FORGET_OLD, (self._tenant, self._finished_kept))

    # --- the journal

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write facts and their evidence; see `State.append`."""
        rows = [self._kept.row(run_id, entry) for entry in facts]
        change = heads.change(facts)
        wanted = {
            "tenant": self._tenant,
            "run_id": run_id,
            "epoch": epoch,
            "expected": expected,
            "append_id": append_id,
            "length": len(rows),
            "at": facts[-1].at if facts else None,
            "status": change.status,
            "reason": change.reason,
            "definition": change.definition,
            "fingerprint": change.fingerprint,
            "opened_at": change.opened_at,
            "results": change.results,
            "folded": self._kept.folded(facts),
            "entries": escaped_json([row[:-1] for row in rows]),
            "bodies": [row[-1] for row in rows],
        }

        async def append(connection: AsyncConnection) -> Append:
            while not (await connection.execute(APPEND, wanted)).rowcount:
                found = await (await connection.execute(REFUSED, wanted)).fetchone()
                if found is None:
                    raise PortError(f"append to unknown run {run_id!r}; acquire it first")
                owner, version, written = found
                if written is not None:
                    return Appended(written)
                if owner != epoch:
                    return Fenced(owner)
                if version != expected:
                    return Conflict(version)
            return Appended(expected + len(rows))

        return await self._ask(append)

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries; see `State.load`. PortError for one that was not sealed, or sealed for another place."""

        async def load(connection: AsyncConnection) -> list[Entry]:
            found = await connection.execute(READ_JOURNAL, (self._tenant, run_id, after), binary=True)
            return [self._kept.entry(run_id, row) for row in await found.fetchall()]

        return await self._ask(load)

    async def evidence(self, run_id: str, after: int = 0) -> Sequence[Evidence]:
        """The evidence; see `State.evidence`."""

        async def evidence(connection: AsyncConnection) -> list[Evidence]:
            found = await connection.execute(READ_EVIDENCE, (self._tenant, run_id, after), binary=True)
            return [Evidence(*item_of(row)) for row in await found.fetchall()]

        return await self._ask(evidence)

    # --- the inbox

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox; see `State.post`."""
        body = journal.encode_word(word)

        async def post(connection: AsyncConnection) -> int:
            async with connection.transaction():
                found = await connection.execute(
                    "UPDATE runs SET words = words + 1 WHERE tenant = %s AND run_id = %s RETURNING run, words",
                    (self._tenant, run_id),
                )
                row = await found.fetchone()
                if row is None:
                    raise KeyError(run_id)
                run, position = row
                await connection.execute(
                    "INSERT INTO inbox (run, position, body) VALUES (%s, %s, %s)",
                    (run, position, self._kept.said(run_id, position, body)),
                )
                return int(position)

        return await self._ask(post)

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words; see `State.read`."""

        async def read(connection: AsyncConnection) -> list[tuple[int, Word]]:
            found = await connection.execute(READ_INBOX, (self._tenant, run_id, after), binary=True)
            return [(position, self._kept.word(run_id, position, body)) for position, body in await found.fetchall()]

        return await self._ask(read)

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

        async def runs(connection: AsyncConnection) -> list[RunHead]:
            found = await connection.execute(READ_HEADS, wanted, binary=True)
            return [RunHead(*row) for row in await found.fetchall()]

        return await self._ask(runs)

    async def erase(self, run_id: str) -> None:
        """Drop content; see `State.erase`.

        Nobody can read it any more through this port or by a query. The server overwrites its bytes when it vacuums
        the tables and reuses its log; where they must be gone at once, also from copies, seal and destroy the key.
        """

        async def erase(connection: AsyncConnection) -> None:
            async with connection.transaction():
                found = await (await connection.execute(ERASE, (self._tenant, run_id))).fetchone()
                if found is None:
                    raise KeyError(run_id)
                await connection.execute("UPDATE journal SET body = NULL WHERE run = %s", found)
                await connection.execute("UPDATE inbox SET body = NULL WHERE run = %s", found)

        await self._ask(erase)
