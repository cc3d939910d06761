"""Law 10: every adapter of a port answers the same script of calls alike."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.postgres import conninfo, schema_of
from turnwright import MemoryState
from turnwright.memory import MemoryBudgets, MemoryIdempotency
from turnwright.ports import Budgets, Idempotency, State
from turnwright_adapters.postgres import PostgresBudgets, PostgresIdempotency, PostgresState
from turnwright_adapters.sealed import AesGcmCipher
from turnwright_adapters.sqlite import SqliteBudgets, SqliteIdempotency, SqliteState
from turnwright_contracts.agreement import BudgetsAgreement, IdempotencyAgreement, StateAgreement

pytestmark = pytest.mark.usefixtures("postgres")

CIPHER = AesGcmCipher({"k": bytes(32)}, current="k")


class StatesAgree(StateAgreement):
    """Memory, SQLite and Postgres, each also sealed for one tenant in the same place."""

    def stores(self, place: Path) -> Sequence[AbstractAsyncContextManager[State]]:
        return (
            nullcontext(MemoryState()),
            SqliteState(place / "runs.db"),
            SqliteState(place / "runs.db", tenant="acme", cipher=CIPHER),
            PostgresState(conninfo(), schema=schema_of(place)),
            PostgresState(conninfo(), schema=schema_of(place), tenant="acme", cipher=CIPHER),
        )


class AccountsAgree(BudgetsAgreement):
    """Memory, SQLite and Postgres."""

    def accounts(self, place: Path) -> Sequence[AbstractAsyncContextManager[Budgets]]:
        return (
            nullcontext(MemoryBudgets(self.LIMITS)),
            SqliteBudgets(place / "runs.db", self.LIMITS),
            PostgresBudgets(conninfo(), self.LIMITS, schema=schema_of(place)),
        )


class KeysAgree(IdempotencyAgreement):
    """Memory, SQLite and Postgres."""

    def keys(self, place: Path) -> Sequence[AbstractAsyncContextManager[Idempotency]]:
        return (
            nullcontext(MemoryIdempotency()),
            SqliteIdempotency(place / "runs.db"),
            PostgresIdempotency(conninfo(), schema=schema_of(place)),
        )


# A step costs an fsync, so the everyday examples are few.
few = settings(max_examples=30, stateful_step_count=40)

TestStatesAgree = pytest.mark.promise("T-05")(StatesAgree.TestCase)
TestStatesAgree.settings = few
TestAccountsAgree = pytest.mark.promise("T-05", "N-11")(AccountsAgree.TestCase)
TestAccountsAgree.settings = few
TestKeysAgree = pytest.mark.promise("T-05", "N-13")(KeysAgree.TestCase)
TestKeysAgree.settings = few


@pytest.mark.proof
@pytest.mark.promise("T-05")
def test_states_agree_in_many_examples() -> None:
    """Five hundred sequences of fifty calls."""
    run_state_machine_as_test(StatesAgree, settings=settings(max_examples=500, stateful_step_count=50))
