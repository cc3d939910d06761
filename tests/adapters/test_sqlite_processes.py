"""One SQLite file under processes that meet, are killed, or are cut at every call."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.adapters.paying import (
    BOUND,
    a_killed_payment_is_in_doubt_and_not_repeated,
    kill_at_random,
    one_pays_and_the_other_is_told_busy,
)
from turnwright import AgentDefinition, Ports, tool
from turnwright.testing import ScriptedModel, call, explore_crashes, text
from turnwright_adapters.sqlite import SqliteState


class Files:
    """A file for each place."""

    def address(self, place: Path) -> str:
        return str(place / "runs.db")

    def expire(self, address: str) -> None:
        with closing(sqlite3.connect(address, isolation_level=None)) as meddle:
            meddle.execute("UPDATE runs SET expires = 0")


@pytest.mark.promise("N-05", "N-08", "N-09", "N-10")
@pytest.mark.case("app-10")
def test_of_two_processes_one_pays_and_the_other_is_told_busy(tmp_path: Path) -> None:
    """A third one suspended the run; both resume it with the same approval; the payment is made once."""
    one_pays_and_the_other_is_told_busy(Files(), tmp_path)


@pytest.mark.promise("T-01")
@pytest.mark.parametrize("paid", [False, True])
def test_a_payment_whose_process_was_killed_is_in_doubt_and_not_repeated(tmp_path: Path, *, paid: bool) -> None:
    """Killed inside the approved call, before the money moved or after: the next process waits for a person."""
    a_killed_payment_is_in_doubt_and_not_repeated(Files(), tmp_path, paid=paid)


@pytest.mark.promise("T-01", "N-05")
@pytest.mark.parametrize("batch", range(5))
async def test_a_run_survives_being_killed_at_random(tmp_path: Path, batch: int) -> None:
    """Ten kills, five times: no payment twice, nothing lost that was acknowledged, and every run comes to its end."""
    await kill_at_random(Files(), tmp_path, 10)


@pytest.mark.proof
@pytest.mark.promise("T-01", "N-05")
async def test_a_run_survives_being_killed_very_often(tmp_path: Path) -> None:
    """Five hundred kills."""
    await kill_at_random(Files(), tmp_path, 500)


@pytest.mark.promise("T-01", "T-02")
def test_an_approved_payment_may_be_cut_anywhere() -> None:
    """Every call that leaves the engine, hit by every fault, over a fresh file each: the laws hold."""

    @tool(approval="required")
    def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    def ports(place: Path) -> Ports:
        model = ScriptedModel([call("pay", cents=500), text("done")])
        return Ports(model=model, state=SqliteState(place / "runs.db"))

    payer = AgentDefinition("payer", "Pay.", tools=[pay])

    report = explore_crashes(payer, "refund 5", ports, decisions="approve")

    assert [] == report.violations
    assert report.cuts > 50
    assert report.in_doubt > 0


def test_a_process_that_closes_nothing_leaves_one_whole_file(tmp_path: Path) -> None:
    """At its end the log is moved into the file, so that the file can be copied alone."""
    program = (
        "import asyncio, sys\n"
        "from turnwright_adapters.sqlite import SqliteState\n"
        "state = SqliteState(sys.argv[1])\n"
        "asyncio.run(state.acquire('r1', holder='a', seconds=9))\n"
    )

    ended = subprocess.run([sys.executable, "-c", program, tmp_path / "runs.db"], check=False, timeout=BOUND)

    assert 0 == ended.returncode
    assert ["runs.db"] == [file.name for file in tmp_path.iterdir()]
