"""The ports on a SQLite file keep their contracts: with content as it is, sealed, and for one tenant among others."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir

import pytest

from turnwright_adapters.sealed import AesGcmCipher
from turnwright_adapters.sqlite import SqliteBudgets, SqliteIdempotency, SqliteState
from turnwright_adapters.sqlite.mounts import durability_at
from turnwright_contracts import BudgetsSuite, IdempotencySuite, StateSuite
from turnwright_contracts.budgets import Limits

DURABILITY = durability_at(Path(gettempdir()))
CIPHER = AesGcmCipher({"2026": bytes(32), "2027": bytes(range(32))}, current="2027")


@pytest.mark.promise("T-05", "N-03")
class TestSqliteState(StateSuite):
    """The store as it comes."""

    durability = DURABILITY

    def make(self, place: Path, *, finished_kept: int | None = None) -> SqliteState:
        return SqliteState(place / "runs.db", finished_kept=finished_kept)


@pytest.mark.promise("T-05", "N-04")
class TestSealedSqliteState(StateSuite):
    """The store of one tenant, with its content sealed."""

    durability = DURABILITY

    def make(self, place: Path, *, finished_kept: int | None = None) -> SqliteState:
        return SqliteState(place / "runs.db", tenant="acme", cipher=CIPHER, finished_kept=finished_kept)


@pytest.mark.promise("T-05", "N-11")
class TestSqliteBudgets(BudgetsSuite[SqliteBudgets]):
    """Accounts in a file."""

    def make(self, place: Path, limits: Limits) -> SqliteBudgets:
        return SqliteBudgets(place / "runs.db", limits)

    async def set_limit(self, budgets: SqliteBudgets, scope: str, axis: str, limit: int) -> None:
        await budgets.set_limit(scope, axis, limit)

    async def standing(self, budgets: SqliteBudgets, scope: str, axis: str) -> tuple[int, int, int]:
        return await budgets.standing(scope, axis)


@pytest.mark.promise("T-05", "N-13")
class TestSqliteIdempotency(IdempotencySuite):
    """Keys in a file."""

    def make(self, place: Path) -> SqliteIdempotency:
        return SqliteIdempotency(place / "runs.db")


@pytest.mark.promise("T-05", "N-13")
class TestSealedSqliteIdempotency(IdempotencySuite):
    """Keys in a file, with their results sealed."""

    def make(self, place: Path) -> SqliteIdempotency:
        return SqliteIdempotency(place / "runs.db", cipher=CIPHER)
