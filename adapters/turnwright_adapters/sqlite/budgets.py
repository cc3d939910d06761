"""The budgets port on a SQLite file: accounts that several processes draw on. The arithmetic is in `_accounts.py`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import takewhile
from sqlite3 import Connection
from typing import Final, TypeVar

from turnwright_adapters._accounts import Accounts, Held, Limits, Move, Reservation, as_json
from turnwright_adapters.sqlite.database import OnFile

__all__ = ["SqliteBudgets"]

T = TypeVar("T")

SET_LIMIT: Final = """
INSERT INTO accounts (tenant, scope, axis, "limit") VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET "limit" = excluded."limit"
"""

FIND: Final = 'SELECT "limit", settled, reserved FROM accounts WHERE tenant = ? AND scope = ? AND axis = ?'

MOVE: Final = """
UPDATE accounts SET reserved = reserved + ?, settled = settled + ? WHERE tenant = ? AND scope = ? AND axis = ?
"""

BEGIN: Final = "INSERT INTO reservations (tenant, id, scopes, held) VALUES (?, ?, ?, '[]') ON CONFLICT DO NOTHING"

FIND_HELD: Final = "SELECT scopes, held FROM reservations WHERE tenant = ? AND id = ?"

FIND_FROM: Final = "SELECT id, held IS NOT NULL FROM reservations WHERE tenant = ? AND id >= ? ORDER BY id"

KEEP: Final = "UPDATE reservations SET held = ? WHERE tenant = ? AND id = ?"

FORGET: Final = "DELETE FROM reservations WHERE tenant = ? AND id = ?"


class SqliteBudgets(Accounts[Connection], OnFile):
    """Accounts by scope and axis in a SQLite file, which may be that of the runs.

    ::

        budgets = SqliteBudgets("runs.db", {("team-1", "requests"): 1000})

    *limits* are set at first use, in place of what was there; `set_limit` sets one later. Where there is no account
    there is no limit. A limit below what is used allows nothing until it is raised.
    """

    def __init__(self, path: str | os.PathLike[str], limits: Limits | None = None, *, tenant: str = "") -> None:
        OnFile.__init__(self, path)
        Accounts.__init__(self, limits, tenant)

    async def _work(self, work: Callable[[Connection], T]) -> T:
        return await self._write(work)

    async def _take_whole(self, take: Callable[[Connection], T], undo: Callable[[Connection, T], None]) -> T:
        return await self._take(take, undo)

    def _set_limits(self, connection: Connection, limits: Limits) -> None:
        connection.executemany(SET_LIMIT, [(self._tenant, *account, limit) for account, limit in limits.items()])

    def _account(self, connection: Connection, scope: str, axis: str) -> tuple[int, int, int] | None:
        found: tuple[int, int, int] | None = connection.execute(FIND, (self._tenant, scope, axis)).fetchone()
        return found

    def _lock(self, connection: Connection, wanted: Sequence[Held | Move]) -> None:
        pass  # whoever writes has the file to themselves

    def _left(self, connection: Connection, wanted: Sequence[Held]) -> dict[tuple[str, str], int]:
        left = {}
        for scope, axis, _ in wanted:
            if (account := self._account(connection, scope, axis)) is not None:
                limit, settled, reserved = account
                left[scope, axis] = limit - settled - reserved
        return left

    def _move(self, connection: Connection, moves: Sequence[Move]) -> None:
        connection.executemany(MOVE, [(*by, self._tenant, scope, axis) for scope, axis, *by in moves])

    def _begin(self, connection: Connection, id: str, scopes: Sequence[str]) -> bool:
        return connection.execute(BEGIN, (self._tenant, id, as_json(scopes))).rowcount > 0

    def _reservation(self, connection: Connection, id: str) -> Reservation | None:
        row = connection.execute(FIND_HELD, (self._tenant, id)).fetchone()
        return None if row is None else Reservation.of(row)

    def _ids(self, connection: Connection, prefix: str) -> list[str]:
        rows = takewhile(lambda row: row[0].startswith(prefix), connection.execute(FIND_FROM, (self._tenant, prefix)))
        return [id for id, held in rows if held]

    def _keep(self, connection: Connection, id: str, held: Sequence[Held] | None) -> None:
        connection.execute(KEEP, (None if held is None else as_json(held), self._tenant, id))

    def _forget(self, connection: Connection, id: str) -> None:
        connection.execute(FORGET, (self._tenant, id))
