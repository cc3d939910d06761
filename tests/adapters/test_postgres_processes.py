"""One Postgres schema under processes that meet, are killed, or are cut at every call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.adapters.paying import (
    BOUND,
    a_killed_payment_is_in_doubt_and_not_repeated,
    kill_at_random,
    one_pays_and_the_other_is_told_busy,
)
from tests.postgres import conninfo, schema_of
from turnwright import AgentDefinition, Ports, tool
from turnwright.testing import ScriptedModel, call, explore_crashes, text
from turnwright_adapters.postgres import PostgresState

pytestmark = pytest.mark.usefixtures("postgres")


class Schemas:
    """A schema for each place."""

    def address(self, place: Path) -> str:
        return f"{conninfo()}#{schema_of(place)}"

    def expire(self, address: str) -> None:
        place, schema = address.split("#")
        with psycopg.connect(place, autocommit=True) as meddle:
            meddle.execute(SQL("UPDATE {}.runs SET expires = 0").format(Identifier(schema)))


@pytest.mark.promise("N-05", "N-08", "N-09", "N-10")
@pytest.mark.case("app-10")
def test_of_two_processes_one_pays_and_the_other_is_told_busy(tmp_path: Path) -> None:
    """A third one suspended the run; both resume it with the same approval; the payment is made once."""
    one_pays_and_the_other_is_told_busy(Schemas(), tmp_path)


@pytest.mark.promise("T-01")
@pytest.mark.parametrize("paid", [False, True])
def test_a_payment_whose_process_was_killed_is_in_doubt_and_not_repeated(tmp_path: Path, *, paid: bool) -> None:
    """Killed inside the approved call, before the money moved or after: the next process waits for a person."""
    a_killed_payment_is_in_doubt_and_not_repeated(Schemas(), tmp_path, paid=paid)


@pytest.mark.promise("T-01", "N-05")
@pytest.mark.parametrize("batch", range(5))
async def test_a_run_survives_being_killed_at_random(tmp_path: Path, batch: int) -> None:
    """Ten kills, five times: no payment twice, nothing lost that was acknowledged, and every run comes to its end."""
    await kill_at_random(Schemas(), tmp_path, 10)


@pytest.mark.proof
@pytest.mark.promise("T-01", "N-05")
async def test_a_run_survives_being_killed_very_often(tmp_path: Path) -> None:
    """Five hundred kills."""
    await kill_at_random(Schemas(), tmp_path, 500)


@pytest.mark.promise("T-01", "T-02")
def test_an_approved_payment_may_be_cut_anywhere() -> None:
    """Every call that leaves the engine, hit by every fault, over a fresh schema each: the laws hold."""

    @tool(approval="required")
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    def ports(place: Path) -> Ports:
        model = ScriptedModel([call("pay", cents=500), text("done")])
        return Ports(model=model, state=PostgresState(conninfo(), schema=schema_of(place)))

    payer = AgentDefinition("payer", "Pay.", tools=[pay])

    report = explore_crashes(payer, "refund 5", ports, decisions="approve")

    assert [] == report.violations
    assert report.cuts > 50
    assert report.in_doubt > 0


def test_a_process_that_closes_nothing_ends_quietly(tmp_path: Path) -> None:
    """It warns of nothing, and what its loop cut off at the end was taken back."""
    program = (
        "import asyncio, sys\n"
        "from turnwright_adapters.postgres import PostgresState\n"
        "state = PostgresState(sys.argv[1], schema=sys.argv[2])\n"
        "async def main():\n"
        "    await state.acquire('r1', holder='a', seconds=9)\n"
        "    cut_off = asyncio.ensure_future(state.acquire('r2', holder='a', seconds=9))\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-X", "dev", "-c", program, conninfo(), schema_of(tmp_path)]

    ended = subprocess.run(command, check=False, timeout=BOUND, capture_output=True, text=True)

    assert (0, "") == (ended.returncode, ended.stderr)
    with psycopg.connect(conninfo()) as look:
        left = look.execute(SQL("SELECT run_id FROM {}.runs").format(Identifier(schema_of(tmp_path)))).fetchall()
    assert [("r1",)] == left
