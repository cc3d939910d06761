"""The idempotency port on a Postgres schema: keys that outlive a run and a process.

Rule: a key is taken for ever. It is committed with a result, or what became of it is unknown.
"""

from __future__ import annotations

from typing import Final

from psycopg import Connection

from turnwright.definition import Durability
from turnwright.ports import Begun, Cipher, Fresh
from turnwright_adapters._kept import KeptResults
from turnwright_adapters.postgres.database import OnServer

__all__ = ["PostgresIdempotency"]

RESERVE: Final = """
INSERT INTO idempotency (namespace, key, digest, state) VALUES (%s, %s, %s, 'reserved') ON CONFLICT DO NOTHING
"""

FIND: Final = "SELECT digest, state, result FROM idempotency WHERE namespace = %s AND key = %s"

COMMIT: Final = """
UPDATE idempotency SET result = CASE state WHEN 'committed' THEN result ELSE %s END, state = 'committed'
WHERE namespace = %s AND key = %s
"""

DOUBT: Final = "UPDATE idempotency SET state = 'unknown' WHERE namespace = %s AND key = %s AND state = 'reserved'"

FORGET: Final = "DELETE FROM idempotency WHERE namespace = %s AND key = %s AND state = 'reserved'"


class PostgresIdempotency(OnServer):
    """Keys in a Postgres schema, which may be that of the runs. With *cipher*, results and digests are sealed."""

    def __init__(
        self,
        conninfo: str,
        *,
        cipher: Cipher | None = None,
        schema: str = "turnwright",
        connections: int = 8,
        durability: Durability = "power",
    ) -> None:
        super().__init__(conninfo, schema=schema, connections=connections, durability=durability)
        self._results = KeptResults(cipher)

    async def begin(self, namespace: str, key: str, digest: str) -> Begun:
        """Reserve the key; see `Idempotency.begin`. A cancelled call does not keep what it took."""
        kept = self._results.digest(namespace, key, digest)

        def begin(connection: Connection) -> Begun:
            row = None
            while row is None:  # as often as another one gives it back between our two looks
                if connection.execute(RESERVE, (namespace, key, kept)).rowcount:
                    return Fresh()
                row = connection.execute(FIND, (namespace, key), binary=True).fetchone()
            return self._results.begun(namespace, key, digest, row)

        def forget(connection: Connection, begun: Begun) -> None:
            if isinstance(begun, Fresh):
                connection.execute(FORGET, (namespace, key))

        return await self._take(begin, forget)

    async def commit(self, namespace: str, key: str, result: object) -> None:
        """Keep the result; see `Idempotency.commit`."""
        kept = self._results.result(namespace, key, result)

        def commit(connection: Connection) -> None:
            if not connection.execute(COMMIT, (kept, namespace, key)).rowcount:
                raise KeyError((namespace, key))

        await self._ask(commit, repeat=True)

    async def mark_unknown(self, namespace: str, key: str) -> None:
        """Leave the key taken; see `Idempotency.mark_unknown`."""
        await self._ask(lambda connection: connection.execute(DOUBT, (namespace, key)), repeat=True)
