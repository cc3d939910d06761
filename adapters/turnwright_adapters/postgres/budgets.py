"""The budgets port on a Postgres schema: accounts that several processes draw on. The arithmetic is in `_accounts.py`.

Rule: a call takes the lock of its reservation first, then those of all its accounts in one order, so no two calls wait
for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from psycopg import Connection, Cursor
from psycopg.rows import TupleRow

from turnwright.definition import Durability
from turnwright_adapters._accounts import Accounts, Held, Limits, Move, Reservation, as_json
from turnwright_adapters.postgres.database import OnServer

__all__ = ["PostgresBudgets"]

T = TypeVar("T")

SET_LIMIT: Final = """
INSERT INTO accounts (tenant, scope, axis, "limit") VALUES (%s, %s, %s, %s)
ON CONFLICT (tenant, scope, axis) DO UPDATE SET "limit" = excluded."limit"
"""

FIND: Final = 'SELECT "limit", settled, reserved FROM accounts WHERE tenant = %s AND scope = %s AND axis = %s'

LOCK: Final = """
SELECT scope, axis, "limit" - settled - reserved FROM accounts
WHERE tenant = %s AND (scope, axis) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
ORDER BY scope COLLATE "C", axis COLLATE "C" FOR UPDATE
"""

MOVE: Final = """
UPDATE accounts SET reserved = accounts.reserved + moved.reserved, settled = accounts.settled + moved.settled
FROM (SELECT scope, axis, sum(reserved)::bigint AS reserved, sum(settled)::bigint AS settled
      FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) AS each (scope, axis, reserved, settled)
      GROUP BY scope, axis) AS moved
WHERE tenant = %s AND accounts.scope = moved.scope AND accounts.axis = moved.axis
"""

BEGIN: Final = "INSERT INTO reservations (tenant, id, scopes, held) VALUES (%s, %s, %s, '[]') ON CONFLICT DO NOTHING"

FIND_HELD: Final = "SELECT scopes, held FROM reservations WHERE tenant = %s AND id = %s FOR UPDATE"

FIND_IDS: Final = "SELECT id FROM reservations WHERE tenant = %s AND starts_with(id, %s) AND held IS NOT NULL"

KEEP: Final = "UPDATE reservations SET held = %s WHERE tenant = %s AND id = %s"

FORGET: Final = "DELETE FROM reservations WHERE tenant = %s AND id = %s"


class PostgresBudgets(Accounts[Connection], OnServer):
    """Accounts by scope and axis in a Postgres schema, which may be that of the runs.

    ::

        budgets = PostgresBudgets("postgresql://app@db/app", {("team-1", "requests"): 1000})

    *limits* are set at first use, in place of what was there; `set_limit` sets one later. Where there is no account
    there is no limit. A limit below what is used allows nothing until it is raised.
    """

    def __init__(
        self,
        conninfo: str,
        limits: Limits | None = None,
        *,
        tenant: str = "",
        schema: str = "turnwright",
        connections: int = 8,
        durability: Durability = "power",
    ) -> None:
        OnServer.__init__(self, conninfo, schema=schema, connections=connections, durability=durability)
        Accounts.__init__(self, limits, tenant)

    async def _work(self, work: Callable[[Connection], T]) -> T:
        return await self._ask(lambda connection: _whole(connection, work), repeat=True)

    async def _take_whole(self, take: Callable[[Connection], T], undo: Callable[[Connection, T], None]) -> T:
        return await self._take(
            lambda connection: _whole(connection, take),
            lambda connection, taken: _whole(connection, lambda connection: undo(connection, taken)),
            repeat=True,
        )

    def _set_limits(self, connection: Connection, limits: Limits) -> None:
        for account, limit in sorted(limits.items()):
            connection.execute(SET_LIMIT, (self._tenant, *account, limit))

    def _account(self, connection: Connection, scope: str, axis: str) -> tuple[int, int, int] | None:
        return connection.execute(FIND, (self._tenant, scope, axis)).fetchone()

    def _lock(self, connection: Connection, wanted: Sequence[Held | Move]) -> None:
        self._locked(connection, wanted)

    def _left(self, connection: Connection, wanted: Sequence[Held]) -> dict[tuple[str, str], int]:
        return {(scope, axis): left for scope, axis, left in self._locked(connection, wanted).fetchall()}

    def _locked(self, connection: Connection, wanted: Sequence[Held | Move]) -> Cursor[TupleRow]:
        scopes, axes = [each[0] for each in wanted], [each[1] for each in wanted]
        return connection.execute(LOCK, (self._tenant, scopes, axes))

    def _move(self, connection: Connection, moves: Sequence[Move]) -> None:
        if moves:
            columns = [list(column) for column in zip(*moves, strict=True)]
            connection.execute(MOVE, (*columns, self._tenant))

    def _begin(self, connection: Connection, id: str, scopes: Sequence[str]) -> bool:
        return connection.execute(BEGIN, (self._tenant, id, as_json(scopes))).rowcount > 0

    def _reservation(self, connection: Connection, id: str) -> Reservation | None:
        row = connection.execute(FIND_HELD, (self._tenant, id)).fetchone()
        return None if row is None else Reservation.of(row)

    def _ids(self, connection: Connection, prefix: str) -> list[str]:
        return [id for (id,) in connection.execute(FIND_IDS, (self._tenant, prefix))]

    def _keep(self, connection: Connection, id: str, held: Sequence[Held] | None) -> None:
        connection.execute(KEEP, (None if held is None else as_json(held), self._tenant, id))

    def _forget(self, connection: Connection, id: str) -> None:
        connection.execute(FORGET, (self._tenant, id))


def _whole(connection: Connection, work: Callable[[Connection], T]) -> T:
    with connection.transaction():
        return work(connection)
