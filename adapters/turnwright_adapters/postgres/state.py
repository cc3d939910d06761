"""The state port on a Postgres schema: journal, evidence, inbox, and the right to write.

Rule: whether a run may be taken or written to is decided by the statement that does it, by what the row holds at that
moment; nothing is remembered between two calls. One that did nothing is asked why afterwards, and done again if there
is no reason any more.

Words are found by looking: at every boundary of a run, and each second while a slow effect of it works. Looks of many
runs go as one statement. NOTIFY could be a hint and no more, as it is lost with its connection, so the looking would
stay; and it would need a connection of every process that does nothing but listen, listens anew after each loss, and
has no pooler between. All that it would gain is that a `cancel` reaches a slow tool half a second earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, LiteralString

from attrs import frozen
from psycopg import Connection

from turnwright import heads, journal
from turnwright.definition import Durability
from turnwright.errors import PortError
from turnwright.evidence import Entry, Evidence
from turnwright.heads import RunHead, RunStatus
from turnwright.inbox import Word
from turnwright.ports import Append, Appended, Busy, Cipher, Conflict, Fenced, Lease
from turnwright_adapters._kept import Content, Kept, Row, item_of
from turnwright_adapters.postgres.database import Alone, OnServer
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

# Opened and never written: as if it had not been. One that was taken over before keeps counting its owners, because the
# first of them may still be about, and must not share an epoch with a later one.
FORGET: Final = """
DELETE FROM runs WHERE tenant = %(tenant)s AND run_id = %(run_id)s AND epoch = %(epoch)s AND epoch = 1 AND version = 0
"""

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

# Appends go as two values, since a parameter costs the driver as much as a value in it costs the server: all that is
# said of them as one JSON text, and the bodies of their entries as one string of bytes, which is cut by their lengths.
APPEND_ALONE: Final = """
WITH asked AS MATERIALIZED (
    SELECT asked.*, each AS said
    FROM jsonb_array_elements(convert_from(%(said)s, 'UTF8')::jsonb) AS each, jsonb_to_record(each) AS asked (
        number integer, tenant text, run_id text, epoch bigint, expected bigint, append_id text, length bigint,
        at float8, status text, reason text, definition text, fingerprint text, opened_at float8, results boolean)
), run AS (
    UPDATE runs SET version = version + length, updated_at = coalesce(at, updated_at),
                    status = coalesce(asked.status, runs.status), reason = coalesce(asked.reason, runs.reason),
                    definition = coalesce(asked.definition, runs.definition),
                    fingerprint = coalesce(asked.fingerprint, runs.fingerprint),
                    opened_at = coalesce(asked.opened_at, runs.opened_at),
                    crashes = CASE WHEN results THEN 0 ELSE crashes END
    FROM asked -- that are free
    WHERE runs.tenant = asked.tenant AND runs.run_id = asked.run_id AND runs.epoch = asked.epoch AND version = expected
    RETURNING run, number, expected, length, append_id, said
), entries AS (
    INSERT INTO journal (run, seq, append_id, kind, schema, at, turn, call, attempt, code, name, ms, input_tokens,
                         output_tokens, size, digest, head, body)
    SELECT run, expected + place, CASE WHEN place = length THEN append_id END, entry->>0, (entry->>1)::integer,
           (entry->>2)::float8, (entry->>3)::bigint, (entry->>4)::bigint, (entry->>5)::bigint, entry->>6, entry->>7,
           (entry->>8)::bigint, (entry->>9)::bigint, (entry->>10)::bigint, (entry->>11)::bigint,
           decode(entry->>12, 'base64'), decode(entry->>13, 'base64'),
           substr(%(bodies)s::bytea, (entry->>14)::integer, (entry->>15)::integer)
    FROM run, jsonb_array_elements(said->'entries') WITH ORDINALITY AS each (entry, place)
), words AS (
    UPDATE inbox SET body = NULL FROM run, jsonb_array_elements_text(said->'folded') AS folded
    WHERE inbox.run = run.run AND position = folded::bigint
)
SELECT number FROM run
"""

# Of those that go together none waits for a lock, so that a run that somebody holds up holds up no other.
APPEND: Final = APPEND_ALONE.replace(
    "FROM asked -- that are free",
    """FROM (
        SELECT asked.* FROM asked, LATERAL (
            SELECT FROM runs WHERE runs.tenant = asked.tenant AND runs.run_id = asked.run_id FOR UPDATE SKIP LOCKED
        ) AS free
    ) AS asked""",
)

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

COUNT_WORD: Final = """
UPDATE runs SET words = words + 1 WHERE tenant = %s AND run_id = %s
RETURNING run, words, (SELECT substr(body, 1, 1) FROM journal WHERE journal.run = runs.run AND seq = 1)
"""

READ_INBOXES: Final = """
SELECT number, position, body
FROM jsonb_to_recordset(convert_from(%b, 'UTF8')::jsonb)
         AS asked (number integer, tenant text, run_id text, after bigint)
     JOIN runs USING (tenant, run_id) JOIN inbox USING (run)
WHERE position > after AND body IS NOT NULL ORDER BY number, position
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


@frozen
class _Append:
    """What is to be appended, as the database is told of it."""

    tenant: str
    run_id: str
    epoch: int
    expected: int
    append_id: str
    rows: Sequence[Row]
    said: Mapping[str, object]

    @property
    def asked(self) -> dict[str, object]:
        """Which run, and where in it."""
        return {
            "tenant": self.tenant,
            "run_id": self.run_id,
            "epoch": self.epoch,
            "expected": self.expected,
            "append_id": self.append_id,
        }


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
    """

    durability: Durability

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
        durability: Durability = "power",
    ) -> None:
        super().__init__(conninfo, schema=schema, connections=connections, durability=durability)
        self.durability = durability
        self._tenant = tenant
        self._kept = Kept(tenant, content, cipher)
        self._finished_kept = finished_kept

    # --- the right to write

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run; see `State.acquire`. A cancelled call does not keep what it took."""
        wanted = {"tenant": self._tenant, "run_id": run_id, "holder": holder, "seconds": float(seconds)}

        def take(connection: Connection) -> Lease | Busy | None:
            while True:  # as often as the run comes, goes or falls free between two looks
                taken = connection.execute(TAKE, wanted).fetchone()
                if taken is None:
                    held = connection.execute(HELD, wanted).fetchone()
                    if held is not None and held[0] > 0:
                        return Busy(held[0])
                    if held is None and not create:
                        return None
                    if held is None:
                        taken = connection.execute(OPEN, wanted).fetchone()
                if taken is not None:
                    epoch, version, crashes = taken
                    return Lease(run_id, epoch, version, seconds, crashes)

        def undo(connection: Connection, answer: Lease | Busy | None) -> None:
            if isinstance(answer, Lease):
                self._give_back(connection, run_id, answer.epoch)

        return await self._take(take, undo)

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        """Extend the lease; see `State.renew`."""
        wanted = {"tenant": self._tenant, "run_id": run_id, "epoch": epoch, "seconds": float(seconds)}

        def renew(connection: Connection) -> bool:
            return connection.execute(RENEW, wanted).rowcount > 0

        return await self._ask(renew, repeat=True)

    async def release(self, run_id: str, epoch: int) -> None:
        """Give the run back; see `State.release`."""
        await self._ask(lambda connection: self._give_back(connection, run_id, epoch), repeat=True)

    def _give_back(self, connection: Connection, run_id: str, epoch: int) -> None:
        wanted = {"tenant": self._tenant, "run_id": run_id, "epoch": epoch}
        if connection.execute(FORGET, wanted).rowcount:
            return
        given = connection.execute(RELEASE, {**wanted, "ended": sorted(heads.ENDED)})
        if self._finished_kept is not None and given.fetchone() == (True,):
            connection.execute(FORGET_OLD, (self._tenant, self._finished_kept))

    # --- the journal

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write facts and their evidence; see `State.append`."""
        rows = [self._kept.row(run_id, entry) for entry in facts]
        change = heads.change(facts)
        said = {
            "length": len(rows),
            "at": facts[-1].at if facts else None,
            "status": change.status,
            "reason": change.reason,
            "definition": change.definition,
            "fingerprint": change.fingerprint,
            "opened_at": change.opened_at,
            "results": change.results,
            "folded": self._kept.folded(facts),
        }
        asked = _Append(self._tenant, run_id, epoch, expected, append_id, rows, said)
        return await self._ask_together(_append, asked)

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries; see `State.load`. PortError for one that was not sealed, or sealed for another place."""

        def load(connection: Connection) -> list[Entry]:
            found = connection.execute(READ_JOURNAL, (self._tenant, run_id, after), binary=True)
            return [self._kept.entry(run_id, row) for row in found.fetchall()]

        return await self._ask(load, repeat=True)

    async def evidence(self, run_id: str, after: int = 0) -> Sequence[Evidence]:
        """The evidence; see `State.evidence`."""

        def evidence(connection: Connection) -> list[Evidence]:
            found = connection.execute(READ_EVIDENCE, (self._tenant, run_id, after), binary=True)
            return [Evidence(*item_of(row)) for row in found.fetchall()]

        return await self._ask(evidence, repeat=True)

    # --- the inbox

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox; see `State.post`."""
        body = journal.encode_word(word)

        def post(connection: Connection) -> int:
            with connection.transaction():
                found = connection.execute(COUNT_WORD, (self._tenant, run_id), binary=True)
                row = found.fetchone()
                if row is None:
                    raise KeyError(run_id)
                run, position, opening = row
                connection.execute(
                    "INSERT INTO inbox (run, position, body) VALUES (%s, %s, %s)",
                    (run, position, self._kept.said(run_id, position, body, opening=opening)),
                )
                return int(position)

        return await self._ask(post)

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words; see `State.read`."""
        said = await self._ask_together(_read, (self._tenant, run_id, after))
        return [(position, self._kept.word(run_id, position, body)) for position, body in said]

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

        def runs(connection: Connection) -> list[RunHead]:
            found = connection.execute(READ_HEADS, wanted, binary=True)
            return [RunHead(*row) for row in found.fetchall()]

        return await self._ask(runs, repeat=True)

    async def erase(self, run_id: str) -> None:
        """Drop content; see `State.erase`.

        Nobody can read it any more through this port or by a query. The server overwrites its bytes when it vacuums
        the tables and reuses its log; where they must be gone at once, also from copies, seal and destroy the key.
        """

        def erase(connection: Connection) -> None:
            with connection.transaction():
                found = connection.execute(ERASE, (self._tenant, run_id)).fetchone()
                if found is None:
                    raise KeyError(run_id)
                connection.execute("UPDATE journal SET body = NULL WHERE run = %s", found)
                connection.execute("UPDATE inbox SET body = NULL WHERE run = %s", found)

        await self._ask(erase, repeat=True)


def _append(connection: Connection, appends: Sequence[_Append]) -> Sequence[Append | Alone | Exception]:
    """Make *appends*, in one statement. Of two to one run it makes one; what was not made is told why."""
    made = _written(connection, appends, APPEND)
    return [
        Appended(each.expected + len(each.rows))
        if number in made
        else _refusal(connection, each) or Alone(partial(_append_alone, append=each))
        for number, each in enumerate(appends)
    ]


def _append_alone(connection: Connection, append: _Append) -> Append:
    """Make *append*, waiting for whoever holds its run up."""
    while not _written(connection, [append], APPEND_ALONE):
        refusal = _refusal(connection, append)
        if isinstance(refusal, PortError):
            raise refusal
        if refusal is not None:
            return refusal
    return Appended(append.expected + len(append.rows))


def _refusal(connection: Connection, append: _Append) -> Append | PortError | None:
    """Why *append* was not made; None: there is no reason, at least not any more."""
    found = connection.execute(REFUSED, append.asked).fetchone()
    if found is None:
        return PortError(f"append to unknown run {append.run_id!r}; acquire it first")
    owner, version, written = found
    if written is not None:
        return Appended(written)
    if owner != append.epoch:
        return Fenced(owner)
    return None if version == append.expected else Conflict(version)


def _written(connection: Connection, appends: Sequence[_Append], statement: LiteralString) -> set[int]:
    """The numbers of those that *statement* made."""
    said: list[object] = []
    bodies: list[bytes] = []
    start = 1
    for number, each in enumerate(appends):
        entries: list[Row] = []
        for *tokens, body in each.rows:
            size = None
            if isinstance(body, bytes):
                size = len(body)
                bodies.append(body)
            entries.append((*tokens, start, size))
            start += size or 0
        said.append({"number": number, **each.asked, **each.said, "entries": entries})
    written = connection.execute(statement, {"said": escaped_json(said), "bodies": b"".join(bodies)})
    return {number for (number,) in written.fetchall()}


def _read(connection: Connection, wanted: Sequence[tuple[str, str, int]]) -> list[list[tuple[int, bytes]]]:
    """What is in the inboxes of some tenant's runs after some position, in one statement."""
    asked = [
        {"number": number, "tenant": tenant, "run_id": run_id, "after": after}
        for number, (tenant, run_id, after) in enumerate(wanted)
    ]
    answers: list[list[tuple[int, bytes]]] = [[] for _ in wanted]
    for number, position, body in connection.execute(READ_INBOXES, (escaped_json(asked),), binary=True).fetchall():
        answers[number].append((position, body))
    return answers
