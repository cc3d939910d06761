"""The ports on a Postgres schema keep their contracts: with content as it is, sealed, and for one tenant of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import conninfo, schema_of
from turnwright_adapters.postgres import PostgresBudgets, PostgresIdempotency, PostgresState
from turnwright_adapters.sealed import AesGcmCipher
from turnwright_contracts import BudgetsSuite, IdempotencySuite, StateSuite
from turnwright_contracts.budgets import Limits

pytestmark = pytest.mark.usefixtures("postgres")

CIPHER = AesGcmCipher({"2026": bytes(32), "2027": bytes(range(32))}, current="2027")


@pytest.mark.promise("T-05", "N-03")
class TestPostgresState(StateSuite):
    """The store as it comes."""

    durability = "power"

    def make(self, place: Path, *, finished_kept: int | None = None) -> PostgresState:
        return PostgresState(conninfo(), schema=schema_of(place), finished_kept=finished_kept)


@pytest.mark.promise("T-05", "N-04")
class TestSealedPostgresState(StateSuite):
    """The store of one tenant, with its content sealed."""

    durability = "power"

    def make(self, place: Path, *, finished_kept: int | None = None) -> PostgresState:
        return PostgresState(
            conninfo(), schema=schema_of(place), tenant="acme", cipher=CIPHER, finished_kept=finished_kept
        )


@pytest.mark.promise("T-05", "N-11")
class TestPostgresBudgets(BudgetsSuite[PostgresBudgets]):
    """Accounts in a schema."""

    def make(self, place: Path, limits: Limits) -> PostgresBudgets:
        return PostgresBudgets(conninfo(), limits, schema=schema_of(place))

    async def set_limit(self, budgets: PostgresBudgets, scope: str, axis: str, limit: int) -> None:
        await budgets.set_limit(scope, axis, limit)

    async def standing(self, budgets: PostgresBudgets, scope: str, axis: str) -> tuple[int, int, int]:
        return await budgets.standing(scope, axis)


@pytest.mark.promise("T-05", "N-13")
class TestPostgresIdempotency(IdempotencySuite):
    """Keys in a schema."""

    def make(self, place: Path) -> PostgresIdempotency:
        return PostgresIdempotency(conninfo(), schema=schema_of(place))


@pytest.mark.promise("T-05", "N-13")
class TestSealedPostgresIdempotency(IdempotencySuite):
    """Keys in a schema, with their results sealed."""

    def make(self, place: Path) -> PostgresIdempotency:
        return PostgresIdempotency(conninfo(), schema=schema_of(place), cipher=CIPHER)
