"""The tables, and how a file of an older release becomes one of this release.

Rule: a migration is added at the end and never changed; each runs in one transaction that also writes its number, so a
file is of one schema or of the next, whenever the process dies. A file of a newer release is refused.

A run has a number in its file. What belongs to it lies side by side, under `place`: the number of the run in the upper
32 bits, its own number within the run in the lower. So one append touches one page of the journal and no index, and
that is all it writes, unless it changes how the run stands.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from sqlite3 import Connection
from time import monotonic, sleep
from typing import Final

from turnwright.errors import PortError

__all__ = ["APPLICATION", "MIGRATIONS", "migrate"]

APPLICATION: Final = 0x74777274
"""`twrt`: marks the file as ours, for us and for `file`."""

WAL_SECONDS: Final = 10.0
"""How long the first use of a file waits for others that are at the same."""

RUNS: Final = """
CREATE TABLE runs (
    run         INTEGER PRIMARY KEY,
    tenant      TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    holder      TEXT,                        -- null once it was given back
    expires     REAL NOT NULL,               -- by the store's clock
    clock       REAL NOT NULL,               -- the latest time that the store's clock ever showed for this run
    crashes     INTEGER NOT NULL DEFAULT 0,  -- owners in a row that vanished without a result
    status      TEXT,                        -- null before the first entry
    reason      TEXT,
    definition  TEXT,
    fingerprint TEXT,
    opened_at   REAL,
    retired     INTEGER,                     -- grows with each run that ended and was given back
    UNIQUE (tenant, run_id)
) STRICT
"""

JOURNAL: Final = """
CREATE TABLE journal (
    place         INTEGER PRIMARY KEY,
    run           INTEGER GENERATED ALWAYS AS (place >> 32) VIRTUAL,
    seq           INTEGER GENERATED ALWAYS AS (place & 4294967295) VIRTUAL,
    kind          TEXT NOT NULL,
    schema        INTEGER NOT NULL,
    at            REAL NOT NULL,
    append_id     TEXT,                      -- on the last entry of each append
    -- the evidence of the entry, beside what it shares with it
    turn          INTEGER NOT NULL,
    call          INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    code          TEXT NOT NULL,
    name          TEXT NOT NULL,
    ms            INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    size          INTEGER NOT NULL,
    digest        BLOB NOT NULL,
    head          BLOB NOT NULL,
    -- the content: JSON, sealed if the store has a cipher; null if it was dropped or erased
    body          BLOB
) STRICT
"""

INBOX: Final = """
CREATE TABLE inbox (
    place    INTEGER PRIMARY KEY,
    run      INTEGER GENERATED ALWAYS AS (place >> 32) VIRTUAL,
    position INTEGER GENERATED ALWAYS AS (place & 4294967295) VIRTUAL,
    body     BLOB                            -- null once erased
) STRICT
"""

ACCOUNTS: Final = """
CREATE TABLE accounts (
    tenant   TEXT NOT NULL,
    scope    TEXT NOT NULL,
    axis     TEXT NOT NULL,
    "limit"  INTEGER NOT NULL,
    settled  INTEGER NOT NULL DEFAULT 0,
    reserved INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, scope, axis)
) STRICT, WITHOUT ROWID
"""

RESERVATIONS: Final = """
CREATE TABLE reservations (
    tenant  TEXT NOT NULL,
    id      TEXT NOT NULL,
    scopes  TEXT NOT NULL,                   -- JSON: the scopes that were asked
    held    TEXT,                            -- JSON: [scope, axis, amount], ...; null once it was settled
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID
"""

IDEMPOTENCY: Final = """
CREATE TABLE idempotency (
    namespace TEXT NOT NULL,                 -- the engine puts the tenant and the tool in it
    key       TEXT NOT NULL,
    digest    TEXT NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('reserved', 'unknown', 'committed')),
    result    BLOB,                          -- JSON, sealed if the store has a cipher
    PRIMARY KEY (namespace, key)
) STRICT
"""

MIGRATIONS: Final = (
    (
        RUNS,
        "CREATE INDEX retired_runs ON runs (tenant, retired) WHERE retired IS NOT NULL",
        JOURNAL,
        INBOX,
        ACCOUNTS,
        RESERVATIONS,
        IDEMPOTENCY,
    ),
)
"""The statements that lead from each schema to the next; the number of a schema is how many of these a file has had."""


def migrate(connection: Connection, path: Path) -> None:
    """Bring the file to the schema of this release. PortError for a file that is not ours or of a newer release."""
    _refuse_foreign(connection, path)
    _use_wal(connection, path)
    while _version(connection) < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _version(connection)  # another process may have been faster
            if version < len(MIGRATIONS):
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _refuse_foreign(connection: Connection, path: Path) -> None:
    if sqlite3.sqlite_version_info < (3, 37):
        raise PortError(f"SQLite {sqlite3.sqlite_version} is too old for STRICT tables; 3.37 or newer is needed")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # first: the mark comes with them
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if tables and application != APPLICATION:
        raise PortError(f"{path} is a database of something else; choose another path")
    if _version(connection) > len(MIGRATIONS):
        raise PortError(
            f"{path} was written by a newer release (schema {_version(connection)}, this one knows {len(MIGRATIONS)}); "
            "upgrade turnwright to use it"
        )


def _version(connection: Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _use_wal(connection: Connection, path: Path) -> None:
    """Switch to the write-ahead log, which the file remembers. SQLite itself does not wait for others here."""
    until = monotonic() + WAL_SECONDS
    mode = ""
    while not mode:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError:
            if monotonic() > until:
                raise
            sleep(0.01)
    if mode != "wal":
        raise PortError(f"{path}: SQLite cannot keep a write-ahead log here (it says {mode!r}); use a local disk")
