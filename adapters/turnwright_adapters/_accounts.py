"""The budgets port over any database: what is held, denied, settled and given back; a database brings its statements.

Rule: a reservation remembers what it holds, account by account, so what is given back is what was taken, whatever
became of the limits meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec
from attrs import frozen

from turnwright.memory import whole_amounts
from turnwright.ports import Denied, Reserved

__all__ = ["Accounts", "Held", "Limits", "Move", "Reservation", "as_json"]

C = TypeVar("C")
"""A connection."""
T = TypeVar("T")

Limits: TypeAlias = Mapping[tuple[str, str], int]
"""By scope and axis."""

Held: TypeAlias = tuple[str, str, int]
"""Scope, axis, amount."""

Move: TypeAlias = tuple[str, str, int, int]
"""Scope, axis, and by how much more is reserved and settled there."""

_held = msgspec.json.Decoder(list[Held]).decode
_scopes = msgspec.json.Decoder(list[str]).decode


@frozen
class Reservation:
    """The scopes that were asked, and what is held on them: None once it was settled."""

    scopes: Sequence[str]
    held: Sequence[Held] | None

    @staticmethod
    def of(row: tuple[str, str | None]) -> Reservation:
        """What a row keeps as two JSON texts."""
        scopes, held = row
        return Reservation(_scopes(scopes), None if held is None else _held(held))


def as_json(value: object) -> str:
    """A part of a reservation as it is kept."""
    return msgspec.json.encode(value).decode()


class Accounts(ABC, Generic[C]):
    """Accounts by scope and axis. What a database does in `_work` and `_take` is done whole or not at all."""

    def __init__(self, limits: Limits | None, tenant: str) -> None:
        self._tenant = tenant
        self._limits = dict(limits or {})
        for (_, axis), limit in self._limits.items():
            whole_amounts({axis: limit})

    async def set_limit(self, scope: str, axis: str, limit: int) -> None:
        """Give the account another limit, or make it."""
        whole_amounts({axis: limit})
        await self._open_accounts()
        await self._work(lambda connection: self._set_limits(connection, {(scope, axis): limit}))

    async def standing(self, scope: str, axis: str) -> tuple[int, int, int]:
        """Limit, settled and reserved of one account. KeyError: there is none."""
        await self._open_accounts()
        found = await self._work(lambda connection: self._account(connection, scope, axis))
        if found is None:
            raise KeyError((scope, axis))
        return found

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Hold *ask* on every scope, or nothing; see `Budgets.reserve`. A cancelled call does not keep what it took."""
        wanted = whole_amounts(ask)
        places = list(dict.fromkeys(scopes))
        await self._open_accounts()

        def reserve(connection: C) -> Reserved | Denied | None:
            if not self._begin(connection, id, places):
                return None
            asked = [(scope, axis, amount) for scope in places for axis, amount in wanted.items()]
            left = self._left(connection, asked)
            held = [each for each in asked if each[:2] in left]
            for scope, axis, amount in held:
                if amount > left[scope, axis]:
                    self._forget(connection, id)
                    return Denied(scope, axis)
            self._move(connection, [(scope, axis, amount, 0) for scope, axis, amount in held])
            self._keep(connection, id, held)
            return Reserved()

        def undo(connection: C, answer: Reserved | Denied | None) -> None:
            if isinstance(answer, Reserved):
                self._release(connection, id)

        return await self._take_whole(reserve, undo) or Reserved()

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        """Replace the reservation by what was used; see `Budgets.settle`."""
        used = whole_amounts(actual)

        def settle(connection: C) -> None:
            found = self._reservation(connection, id)
            if found is not None and found.held is not None:
                moves = [(scope, axis, -amount, 0) for scope, axis, amount in found.held]
                moves += [(scope, axis, 0, amount) for scope in found.scopes for axis, amount in used.items()]
                self._lock(connection, moves)
                self._move(connection, moves)
                self._keep(connection, id, None)

        await self._work(settle)

    async def release(self, id: str) -> None:
        """Let the reservation go; see `Budgets.release`."""
        await self._work(lambda connection: self._release(connection, id))

    async def held(self, prefix: str) -> Sequence[str]:
        """The ids of what is held; see `Budgets.held`."""
        return await self._work(lambda connection: self._ids(connection, prefix))

    def _release(self, connection: C, id: str) -> None:
        found = self._reservation(connection, id)
        if found is not None and found.held is not None:
            self._lock(connection, found.held)
            self._move(connection, [(scope, axis, -amount, 0) for scope, axis, amount in found.held])
            self._forget(connection, id)

    async def _open_accounts(self) -> None:
        """Set the limits that this object was made with, before the first call that looks at them."""
        if self._limits:
            limits = self._limits
            await self._work(lambda connection: self._set_limits(connection, limits))
            self._limits = {}

    # --- what a database brings

    @abstractmethod
    async def _work(self, work: Callable[[C], T]) -> T:
        """Do *work* in a transaction."""

    @abstractmethod
    async def _take_whole(self, take: Callable[[C], T], undo: Callable[[C, T], None]) -> T:
        """Do *take* in a transaction; if nobody waits for what it took any more, do *undo* in one."""

    @abstractmethod
    def _set_limits(self, connection: C, limits: Limits) -> None:
        """Give these accounts other limits, or make them."""

    @abstractmethod
    def _account(self, connection: C, scope: str, axis: str) -> tuple[int, int, int] | None:
        """Limit, settled and reserved."""

    @abstractmethod
    def _lock(self, connection: C, wanted: Sequence[Held | Move]) -> None:
        """Let nobody else change these accounts until we are done."""

    @abstractmethod
    def _left(self, connection: C, wanted: Sequence[Held]) -> dict[tuple[str, str], int]:
        """Lock these accounts; what each of those that there are still allows."""

    @abstractmethod
    def _move(self, connection: C, moves: Sequence[Move]) -> None:
        """Change accounts, those that there are."""

    @abstractmethod
    def _begin(self, connection: C, id: str, scopes: Sequence[str]) -> bool:
        """Make a reservation that holds nothing. False: there is one under that id."""

    @abstractmethod
    def _reservation(self, connection: C, id: str) -> Reservation | None:
        """Find a reservation; nobody else changes it until we are done."""

    @abstractmethod
    def _ids(self, connection: C, prefix: str) -> list[str]:
        """The ids that begin with *prefix* of the reservations that were not settled."""

    @abstractmethod
    def _keep(self, connection: C, id: str, held: Sequence[Held] | None) -> None:
        """Let the reservation hold this; None: it was settled."""

    @abstractmethod
    def _forget(self, connection: C, id: str) -> None:
        """Drop the reservation."""
