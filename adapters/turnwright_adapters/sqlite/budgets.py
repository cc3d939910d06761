"""The budgets port on a SQLite file: accounts that several processes draw on.

Rule: a reservation remembers what it holds, account by account, so what is given back is what was taken, whatever
became of the limits meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from sqlite3 import Connection
from typing import Final, TypeAlias

import msgspec

from turnwright.memory import whole_amounts
from turnwright.ports import Denied, Reserved
from turnwright_adapters.sqlite.database import OnFile

__all__ = ["SqliteBudgets"]

Held: TypeAlias = tuple[str, str, int]

SET_LIMIT: Final = """
INSERT INTO accounts (tenant, scope, axis, "limit") VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET "limit" = excluded."limit"
"""

FIND: Final = 'SELECT "limit", settled, reserved FROM accounts WHERE tenant = ? AND scope = ? AND axis = ?'

MOVE: Final = """
UPDATE accounts SET reserved = reserved + ?, settled = settled + ? WHERE tenant = ? AND scope = ? AND axis = ?
"""

_held = msgspec.json.Decoder(list[Held]).decode
_scopes = msgspec.json.Decoder(list[str]).decode


class SqliteBudgets(OnFile):
    """Accounts by scope and axis in a SQLite file, which may be that of the runs.

    ::

        budgets = SqliteBudgets("runs.db", {("team-1", "requests"): 1000})

    *limits* are set at first use, in place of what was there; `set_limit` sets one later. Where there is no account
    there is no limit. A limit below what is used allows nothing until it is raised.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: Mapping[tuple[str, str], int] | None = None,
        *,
        tenant: str = "",
    ) -> None:
        super().__init__(path)
        self._tenant = tenant
        self._limits = dict(limits or {})
        for (_, axis), limit in self._limits.items():
            whole_amounts({axis: limit})

    async def set_limit(self, scope: str, axis: str, limit: int) -> None:
        """Give the account another limit, or make it."""
        whole_amounts({axis: limit})
        await self._open_accounts()
        await self._write(lambda connection: self._set_limits(connection, {(scope, axis): limit}))

    async def standing(self, scope: str, axis: str) -> tuple[int, int, int]:
        """Limit, settled and reserved of one account. KeyError: there is none."""
        await self._open_accounts()

        def standing(connection: Connection) -> tuple[int, int, int]:
            row = connection.execute(FIND, (self._tenant, scope, axis)).fetchone()
            if row is None:
                raise KeyError((scope, axis))
            limit, settled, reserved = row
            return limit, settled, reserved

        return await self._write(standing, durable=False)

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Hold *ask* on every scope, or nothing; see `Budgets.reserve`. A cancelled call does not keep what it took."""
        wanted = whole_amounts(ask)
        places = list(dict.fromkeys(scopes))
        await self._open_accounts()

        def reserve(connection: Connection) -> Reserved | Denied | None:
            if self._reservation(connection, id) is not None:
                return None
            return self._reserve(connection, id, places, wanted)

        def undo(connection: Connection, answer: Reserved | Denied | None) -> None:
            if isinstance(answer, Reserved):
                self._release(connection, id)

        return await self._take(reserve, undo) or Reserved()

    def _reserve(
        self, connection: Connection, id: str, scopes: Sequence[str], ask: Mapping[str, int]
    ) -> Reserved | Denied:
        held: list[Held] = []
        for scope in scopes:
            for axis, amount in ask.items():
                account = connection.execute(FIND, (self._tenant, scope, axis)).fetchone()
                if account is not None:
                    limit, settled, reserved = account
                    if settled + reserved + amount > limit:
                        return Denied(scope, axis)
                    held.append((scope, axis, amount))
        for scope, axis, amount in held:
            connection.execute(MOVE, (amount, 0, self._tenant, scope, axis))
        connection.execute(
            "INSERT INTO reservations (tenant, id, scopes, held) VALUES (?, ?, ?, ?)",
            (self._tenant, id, _json(scopes), _json(held)),
        )
        return Reserved()

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        """Replace the reservation by what was used; see `Budgets.settle`."""
        used = whole_amounts(actual)

        def settle(connection: Connection) -> None:
            scopes, held = self._reservation(connection, id) or ((), None)
            if held is None:
                return
            self._let_go(connection, held)
            for scope in scopes:
                for axis, amount in used.items():
                    connection.execute(MOVE, (0, amount, self._tenant, scope, axis))
            connection.execute("UPDATE reservations SET held = NULL WHERE tenant = ? AND id = ?", (self._tenant, id))

        await self._write(settle)

    async def release(self, id: str) -> None:
        """Let the reservation go; see `Budgets.release`."""
        await self._write(lambda connection: self._release(connection, id))

    def _release(self, connection: Connection, id: str) -> None:
        _, held = self._reservation(connection, id) or ((), None)
        if held is not None:
            self._let_go(connection, held)
            connection.execute("DELETE FROM reservations WHERE tenant = ? AND id = ?", (self._tenant, id))

    def _let_go(self, connection: Connection, held: Iterable[Held]) -> None:
        for scope, axis, amount in held:
            connection.execute(MOVE, (-amount, 0, self._tenant, scope, axis))

    def _reservation(self, connection: Connection, id: str) -> tuple[Sequence[str], Sequence[Held] | None] | None:
        """The scopes of a reservation and what it holds: None once it was settled."""
        row = connection.execute(
            "SELECT scopes, held FROM reservations WHERE tenant = ? AND id = ?", (self._tenant, id)
        ).fetchone()
        if row is None:
            return None
        scopes, held = row
        return _scopes(scopes), None if held is None else _held(held)

    async def _open_accounts(self) -> None:
        """Set the limits that this object was made with, before the first call that looks at them."""
        if self._limits:
            limits = self._limits
            await self._write(lambda connection: self._set_limits(connection, limits))
            self._limits = {}

    def _set_limits(self, connection: Connection, limits: Mapping[tuple[str, str], int]) -> None:
        for (scope, axis), limit in limits.items():
            connection.execute(SET_LIMIT, (self._tenant, scope, axis, limit))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
