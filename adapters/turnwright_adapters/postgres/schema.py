"""The tables, and how a schema of an older release becomes one of this release.

Rule: a migration is added at the end and never changed; each runs in one transaction that also writes its number, so a
schema is of one release or of the next, whenever the process dies. One of a newer release is refused.

An append is one statement: it moves the head of its run from one length to the next, if the epoch and the length are
as expected, and writes the entries beside it. So one of many writers wins, at READ COMMITTED, without a lock that
anybody holds between two messages.
"""

from __future__ import annotations

from typing import Final, LiteralString

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from turnwright.errors import PortError

__all__ = ["MIGRATIONS", "migrate"]

RUNS: Final = """
CREATE TABLE runs (
    run         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant      text NOT NULL,
    run_id      text NOT NULL,
    epoch       bigint NOT NULL,
    holder      text,                        -- null once it was given back
    expires     float8 NOT NULL,             -- by the server's clock
    clock       float8 NOT NULL,             -- the latest time that the server's clock ever showed for this run
    crashes     integer NOT NULL DEFAULT 0,  -- owners in a row that vanished without a result
    version     bigint NOT NULL DEFAULT 0,   -- the length of the journal
    words       bigint NOT NULL DEFAULT 0,   -- the length of the inbox
    status      text,                        -- null before the first entry
    reason      text,
    definition  text,
    fingerprint text,
    opened_at   float8,
    updated_at  float8,
    retired     bigint,                      -- grows with each run that ended and was given back
    UNIQUE (tenant, run_id)
) WITH (fillfactor = 70)                     -- each append moves the head; there is room for it on its page
"""

JOURNAL: Final = """
CREATE TABLE journal (
    run           bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    seq           bigint NOT NULL,
    kind          text NOT NULL,
    schema        integer NOT NULL,
    at            float8 NOT NULL,
    append_id     text,                      -- on the last entry of each append
    -- the evidence of the entry, beside what it shares with it
    turn          bigint NOT NULL,
    call          bigint NOT NULL,
    attempt       bigint NOT NULL,
    code          text NOT NULL,
    name          text NOT NULL,
    ms            bigint NOT NULL,
    input_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    size          bigint NOT NULL,
    digest        bytea NOT NULL,
    head          bytea NOT NULL,
    -- the content: JSON, sealed if the store has a cipher; null if it was dropped or erased
    body          bytea,
    PRIMARY KEY (run, seq)
)
"""

INBOX: Final = """
CREATE TABLE inbox (
    run      bigint NOT NULL REFERENCES runs ON DELETE CASCADE,
    position bigint NOT NULL,
    body     bytea,                          -- null once erased
    PRIMARY KEY (run, position)
)
"""

ACCOUNTS: Final = """
CREATE TABLE accounts (
    tenant   text NOT NULL,
    scope    text NOT NULL,
    axis     text NOT NULL,
    "limit"  bigint NOT NULL,
    settled  bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, scope, axis)
) WITH (fillfactor = 50)
"""

RESERVATIONS: Final = """
CREATE TABLE reservations (
    tenant  text NOT NULL,
    id      text COLLATE "C" NOT NULL,       -- by bytes: those with a common beginning stand together
    scopes  text NOT NULL,                   -- JSON: the scopes that were asked
    held    text,                            -- JSON: [scope, axis, amount], ...; null once it was settled
    PRIMARY KEY (tenant, id)
)
"""

IDEMPOTENCY: Final = """
CREATE TABLE idempotency (
    namespace text NOT NULL,                 -- the engine puts the tenant and the tool in it
    key       text NOT NULL,
    digest    text NOT NULL,
    state     text NOT NULL CHECK (state IN ('reserved', 'unknown', 'committed')),
    result    bytea,                         -- JSON, sealed if the store has a cipher
    PRIMARY KEY (namespace, key)
)
"""

MIGRATIONS: Final[tuple[tuple[LiteralString, ...], ...]] = (
    (
        "CREATE TABLE turnwright (version integer NOT NULL)",
        "INSERT INTO turnwright VALUES (0)",
        RUNS,
        "CREATE INDEX retired_runs ON runs (tenant, retired) WHERE retired IS NOT NULL",
        "CREATE SEQUENCE retirements",
        JOURNAL,
        INBOX,
        ACCOUNTS,
        RESERVATIONS,
        IDEMPOTENCY,
    ),
)
"""The statements that lead from each schema to the next; the number of a schema is how many of these it has had."""

FIND: Final = """
SELECT n.oid, to_regclass(quote_ident(%(schema)s) || '.turnwright') IS NOT NULL,
       EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'S'))
FROM (SELECT to_regnamespace(quote_ident(%(schema)s)) AS oid) n
"""


def migrate(connection: Connection, schema: str, where: str) -> None:
    """Bring *schema* to this release. PortError for one that is not ours or of a newer release."""
    if _version(connection, schema, where) == len(MIGRATIONS):
        return
    with connection.transaction():
        # Others may be at the same; this lock goes with the transaction.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('turnwright'), hashtext(%s))", (schema,))
        version = _version(connection, schema, where)
        if version is None:
            connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        for migration in MIGRATIONS[version or 0 :]:
            for statement in migration:
                connection.execute(statement)
            connection.execute("UPDATE turnwright SET version = version + 1")


def _version(connection: Connection, schema: str, where: str) -> int | None:
    """How many migrations the schema has had; None if there is no such schema."""
    found = connection.execute(FIND, {"schema": schema}).fetchone()
    assert found is not None
    oid, ours, used = found
    if oid is None:
        return None
    if not ours:
        if used:
            raise PortError(f"{where}: the schema {schema} holds something else; choose another schema")
        return 0
    row = connection.execute("SELECT version FROM turnwright").fetchone()
    version = 0 if row is None else int(row[0])
    if version > len(MIGRATIONS):
        raise PortError(
            f"{where} was written by a newer release (schema {version}, this one knows {len(MIGRATIONS)}); "
            "upgrade turnwright to use it"
        )
    return version
