"""A store under processes that meet, are killed, or are cut at every call: Law 1 on a real file and a real server."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.adapters.paying import (
    Stand,
    a_killed_payment_is_in_doubt_and_not_repeated,
    kill_at_random,
    one_pays_and_the_other_is_told_busy,
)
from tests.postgres import conninfo, schema_of
from turnwright import AgentDefinition, Ports, tool
from turnwright.ports import State
from turnwright.testing import ScriptedModel, call, explore_crashes, text
from turnwright_adapters.postgres import PostgresState
from turnwright_adapters.sqlite import SqliteState

pytestmark = pytest.mark.usefixtures("postgres")


class Files:
    """A SQLite file for each place."""

    def address(self, place: Path) -> str:
        return str(place / "runs.db")

    def expire(self, address: str) -> None:
        with closing(sqlite3.connect(address, isolation_level=None)) as meddle:
            meddle.execute("UPDATE runs SET expires = 0")

    def store(self, place: Path) -> State:
        return SqliteState(place / "runs.db")


class Schemas:
    """A Postgres schema for each place."""

    def address(self, place: Path) -> str:
        return f"{conninfo()}#{schema_of(place)}"

    def expire(self, address: str) -> None:
        place, schema = address.split("#")
        with psycopg.connect(place, autocommit=True) as meddle:
            meddle.execute(SQL("UPDATE {}.runs SET expires = 0").format(Identifier(schema)))

    def store(self, place: Path) -> State:
        return PostgresState(conninfo(), schema=schema_of(place))


STORES = {"sqlite": Files(), "postgres": Schemas()}
on_every_store = pytest.mark.parametrize("stores", STORES.values(), ids=STORES)


@pytest.mark.promise("N-05", "N-08", "N-09", "N-10")
@pytest.mark.case("app-10")
@on_every_store
def test_of_two_processes_one_pays_and_the_other_is_told_busy(stores: Stand, tmp_path: Path) -> None:
    """A third one suspended the run; both resume it with the same approval; the payment is made once."""
    one_pays_and_the_other_is_told_busy(stores, tmp_path)


@pytest.mark.promise("T-01")
@on_every_store
@pytest.mark.parametrize("paid", [False, True])
def test_a_payment_whose_process_was_killed_is_in_doubt_and_not_repeated(
    stores: Stand, tmp_path: Path, *, paid: bool
) -> None:
    """Killed inside the approved call, before the money moved or after: the next process waits for a person."""
    a_killed_payment_is_in_doubt_and_not_repeated(stores, tmp_path, paid=paid)


@pytest.mark.promise("T-01", "N-05")
@on_every_store
@pytest.mark.parametrize("batch", range(5))
async def test_a_run_survives_being_killed_at_random(stores: Stand, tmp_path: Path, batch: int) -> None:
    """Ten kills, five times: no payment twice, nothing lost that was acknowledged, and every run comes to its end."""
    await kill_at_random(stores, tmp_path, 10)


@pytest.mark.proof
@pytest.mark.promise("T-01", "N-05")
@on_every_store
async def test_a_run_survives_being_killed_very_often(stores: Stand, tmp_path: Path) -> None:
    """Five hundred kills."""
    await kill_at_random(stores, tmp_path, 500)


@pytest.mark.promise("T-01", "T-02", "N-05")
@on_every_store
def test_an_approved_payment_may_be_cut_anywhere(stores: Stand) -> None:
    """Every call that leaves the engine, hit by every fault, in a fresh place each: the laws hold.

    Some cuts fall where nobody can know, and say so.
    """

    @tool(approval="required")
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    def ports(place: Path) -> Ports:
        return Ports(ScriptedModel([call("pay", cents=500), text("done")]), stores.store(place))

    payer = AgentDefinition("payer", "Pay.", tools=[pay])

    report = explore_crashes(payer, "refund 5", ports, decisions="approve")

    assert [] == report.violations
    assert report.cuts > 50
    assert report.in_doubt > 0
