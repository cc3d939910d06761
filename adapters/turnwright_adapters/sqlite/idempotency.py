"""The idempotency port on a SQLite file: keys that outlive a run and a process.

Rule: a key is taken for ever. It is committed with a result, or what became of it is unknown.
"""

from __future__ import annotations

import os
from sqlite3 import Connection
from typing import Final

from turnwright.ports import Begun, Cipher, Fresh
from turnwright_adapters._kept import KeptResults
from turnwright_adapters.sqlite.database import OnFile

__all__ = ["SqliteIdempotency"]

FIND: Final = "SELECT digest, state, result FROM idempotency WHERE namespace = ? AND key = ?"

RESERVE: Final = "INSERT INTO idempotency (namespace, key, digest, state) VALUES (?, ?, ?, 'reserved')"

COMMIT: Final = """
UPDATE idempotency SET state = 'committed', result = ? WHERE namespace = ? AND key = ? AND state <> 'committed'
"""

DOUBT: Final = "UPDATE idempotency SET state = 'unknown' WHERE namespace = ? AND key = ? AND state = 'reserved'"


class SqliteIdempotency(OnFile):
    """Keys in a SQLite file, which may be that of the runs. With *cipher*, results and digests are sealed."""

    def __init__(self, path: str | os.PathLike[str], *, cipher: Cipher | None = None) -> None:
        super().__init__(path)
        self._results = KeptResults(cipher)

    async def begin(self, namespace: str, key: str, digest: str) -> Begun:
        """Reserve the key; see `Idempotency.begin`. A cancelled call does not keep what it took."""
        kept = self._results.digest(namespace, key, digest)

        def begin(connection: Connection) -> Begun:
            row = connection.execute(FIND, (namespace, key)).fetchone()
            if row is None:
                connection.execute(RESERVE, (namespace, key, kept))
                return Fresh()
            return self._results.begun(namespace, key, digest, row)

        def forget(connection: Connection, begun: Begun) -> None:
            if isinstance(begun, Fresh):
                connection.execute("DELETE FROM idempotency WHERE namespace = ? AND key = ?", (namespace, key))

        return await self._take(begin, forget)

    async def commit(self, namespace: str, key: str, result: object) -> None:
        """Keep the result; see `Idempotency.commit`."""
        kept = self._results.result(namespace, key, result)

        def commit(connection: Connection) -> None:
            if connection.execute(FIND, (namespace, key)).fetchone() is None:
                raise KeyError((namespace, key))
            connection.execute(COMMIT, (kept, namespace, key))

        await self._write(commit)

    async def mark_unknown(self, namespace: str, key: str) -> None:
        """Leave the key taken; see `Idempotency.mark_unknown`."""
        await self._write(lambda connection: connection.execute(DOUBT, (namespace, key)).close())
