"""The budgets port on a Postgres schema: accounts that several processes draw on.

Rule: a reservation remembers what it holds, account by account, so what is given back is what was taken, whatever
became of the limits meanwhile. A call takes the lock of its reservation first, then those of all its accounts in one
order, so no two calls wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from psycopg import Connection

from turnwright.definition import Durability
from turnwright.memory import whole_amounts
from turnwright.ports import Denied, Reserved
from turnwright_adapters.postgres.database import OnServer

__all__ = ["PostgresBudgets"]

Held: TypeAlias = tuple[str, str, int]

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

HOLD: Final = "INSERT INTO reservations (tenant, id, scopes, held) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"

FIND_HELD: Final = "SELECT scopes, held FROM reservations WHERE tenant = %s AND id = %s FOR UPDATE"

_held = msgspec.json.Decoder(list[Held]).decode
_scopes = msgspec.json.Decoder(list[str]).decode


class _Refused(Exception):
    """Undoes the transaction that looked."""

    def __init__(self, denied: Denied) -> None:
        super().__init__(denied)
        self.denied = denied


class PostgresBudgets(OnServer):
    """Accounts by scope and axis in a Postgres schema, which may be that of the runs.

    ::

        budgets = PostgresBudgets("postgresql://app@db/app", {("team-1", "requests"): 1000})

    *limits* are set at first use, in place of what was there; `set_limit` sets one later. Where there is no account
    there is no limit. A limit below what is used allows nothing until it is raised.
    """

    def __init__(
        self,
        conninfo: str,
        limits: Mapping[tuple[str, str], int] | None = None,
        *,
        tenant: str = "",
        schema: str = "turnwright",
        connections: int = 8,
        durability: Durability = "power",
    ) -> None:
        super().__init__(conninfo, schema=schema, connections=connections, durability=durability)
        self._tenant = tenant
        self._limits = dict(limits or {})
        for (_, axis), limit in self._limits.items():
            whole_amounts({axis: limit})

    async def set_limit(self, scope: str, axis: str, limit: int) -> None:
        """Give the account another limit, or make it."""
        whole_amounts({axis: limit})
        await self._open_accounts()
        await self._ask(lambda connection: self._set_limits(connection, {(scope, axis): limit}))

    async def standing(self, scope: str, axis: str) -> tuple[int, int, int]:
        """Limit, settled and reserved of one account. KeyError: there is none."""
        await self._open_accounts()

        def standing(connection: Connection) -> tuple[int, int, int]:
            row = connection.execute(FIND, (self._tenant, scope, axis)).fetchone()
            if row is None:
                raise KeyError((scope, axis))
            limit, settled, reserved = row
            return limit, settled, reserved

        return await self._ask(standing)

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Hold *ask* on every scope, or nothing; see `Budgets.reserve`. A cancelled call does not keep what it took."""
        wanted = whole_amounts(ask)
        places = list(dict.fromkeys(scopes))
        await self._open_accounts()

        def reserve(connection: Connection) -> Reserved | Denied | None:
            try:
                with connection.transaction():
                    return self._reserve(connection, id, places, wanted)
            except _Refused as refused:
                return refused.denied

        def undo(connection: Connection, answer: Reserved | Denied | None) -> None:
            if isinstance(answer, Reserved):
                self._release(connection, id)

        return await self._take(reserve, undo) or Reserved()

    def _reserve(
        self, connection: Connection, id: str, scopes: Sequence[str], ask: Mapping[str, int]
    ) -> Reserved | None:
        """Hold it. None: it was held before. What is refused is undone by the end of the transaction."""
        if not connection.execute(HOLD, (self._tenant, id, _json(scopes), "[]")).rowcount:
            return None
        asked = [(scope, axis, amount) for scope in scopes for axis, amount in ask.items()]
        left = self._lock_accounts(connection, asked)
        held = [each for each in asked if each[:2] in left]
        for scope, axis, amount in held:
            if amount > left[scope, axis]:
                raise _Refused(Denied(scope, axis))
        self._move(connection, [(scope, axis, amount, 0) for scope, axis, amount in held])
        connection.execute(
            "UPDATE reservations SET held = %s WHERE tenant = %s AND id = %s", (_json(held), self._tenant, id)
        )
        return Reserved()

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        """Replace the reservation by what was used; see `Budgets.settle`."""
        used = whole_amounts(actual)

        def settle(connection: Connection) -> None:
            with connection.transaction():
                scopes, held = self._reservation(connection, id) or ((), None)
                if held is None:
                    return
                moves = [(scope, axis, -amount, 0) for scope, axis, amount in held]
                moves += [(scope, axis, 0, amount) for scope in scopes for axis, amount in used.items()]
                self._lock_accounts(connection, moves)
                self._move(connection, moves)
                connection.execute(
                    "UPDATE reservations SET held = NULL WHERE tenant = %s AND id = %s", (self._tenant, id)
                )

        await self._ask(settle)

    async def release(self, id: str) -> None:
        """Let the reservation go; see `Budgets.release`."""
        await self._ask(lambda connection: self._release(connection, id))

    def _release(self, connection: Connection, id: str) -> None:
        with connection.transaction():
            _, held = self._reservation(connection, id) or ((), None)
            if held is None:
                return
            self._lock_accounts(connection, held)
            self._move(connection, [(scope, axis, -amount, 0) for scope, axis, amount in held])
            connection.execute("DELETE FROM reservations WHERE tenant = %s AND id = %s", (self._tenant, id))

    def _lock_accounts(
        self, connection: Connection, wanted: Sequence[tuple[str, str, *tuple[int, ...]]]
    ) -> dict[tuple[str, str], int]:
        """Lock those accounts that there are; what each still allows."""
        scopes, axes = [each[0] for each in wanted], [each[1] for each in wanted]
        found = connection.execute(LOCK, (self._tenant, scopes, axes))
        return {(scope, axis): left for scope, axis, left in found.fetchall()}

    def _move(self, connection: Connection, moves: Sequence[tuple[str, str, int, int]]) -> None:
        columns = [list(column) for column in zip(*moves, strict=True)]
        if columns:
            connection.execute(MOVE, (*columns, self._tenant))

    def _reservation(self, connection: Connection, id: str) -> tuple[Sequence[str], Sequence[Held] | None] | None:
        """The scopes of a reservation and what it holds: None once it was settled. It stays locked."""
        row = connection.execute(FIND_HELD, (self._tenant, id)).fetchone()
        if row is None:
            return None
        scopes, held = row
        return _scopes(scopes), None if held is None else _held(held)

    async def _open_accounts(self) -> None:
        """Set the limits that this object was made with, before the first call that looks at them."""
        if self._limits:
            limits = self._limits
            await self._ask(lambda connection: self._set_limits(connection, limits))
            self._limits = {}

    def _set_limits(self, connection: Connection, limits: Mapping[tuple[str, str], int]) -> None:
        with connection.transaction():
            for (scope, axis), limit in sorted(limits.items()):
                connection.execute(SET_LIMIT, (self._tenant, scope, axis, limit))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
