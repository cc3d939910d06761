"""Durable runs on SQLite and Postgres, every append synced: what a turn costs, how runs share the disk, and so on.

The bare side is the same turn in memory, or one run alone. The Postgres server is one of its own on this host; its CPU
time is not in the figures.

How many runs share a sync shows only where a sync takes time, and this disk may be a fast one: the crowd is measured
on it, and again where each sync takes 2 ms. SQLite is held up for so long in each commit that syncs; Postgres itself
waits before each sync (`commit_delay`), and lets others join it meanwhile, as it would while a sync is on its way.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

from psycopg.conninfo import make_conninfo

from tests.benchmarks.measuring import Effort, Row, alternate, count, factor, memory
from tests.benchmarks.turns import ARGUMENTS, Replies, add, answer, calling
from tests.postgres import serving
from turnwright import AgentDefinition, Completed, MemoryState, Ports, run_agent
from turnwright.journal import decode
from turnwright.messages import AssistantMessage
from turnwright.ports import ModelRequest, State
from turnwright.state import RunState, evolve
from turnwright_adapters.postgres import PostgresState
from turnwright_adapters.sqlite import SqliteState

__all__ = ["durable", "durable_on_postgres"]

CROWD: Final = 16
SYNC_SECONDS: Final = 2e-3
DEFINITION = AgentDefinition("bench", "You answer questions.", tools=[add])


async def durable(effort: Effort) -> list[Row]:
    """Measure tool turns on SQLite, alone and in a crowd, and the load of a long run."""
    with tempfile.TemporaryDirectory() as place:
        async with SqliteState(Path(place) / "runs.db") as state:
            rows = [
                *await _turns(state, effort, "SQLite"),
                *await _bytes(state),
                *await _crowd(state, effort, "SQLite"),
                *await _load(state, "SQLite"),
            ]
        with _slow_syncs():
            async with SqliteState(Path(place) / "slow.db") as state:
                return [*rows, *await _slow_crowd(state, effort, "SQLite")]


async def durable_on_postgres(effort: Effort) -> list[Row]:
    """Measure the same turns on Postgres, and the load of a long run."""
    with serving() as address:
        async with PostgresState(address) as state:
            rows = [
                *await _turns(state, effort, "Postgres"),
                *await _crowd(state, effort, "Postgres"),
                *await _load(state, "Postgres"),
            ]
        slow = f"-c commit_delay={SYNC_SECONDS * 1e6:.0f} -c commit_siblings=0"
        async with PostgresState(make_conninfo(address, options=slow)) as state:
            return [*rows, *await _slow_crowd(state, effort, "Postgres")]


class _Slow(sqlite3.Connection):
    """A connection to a file on a disk whose syncs take time."""

    _synced = True

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        if sql.startswith("PRAGMA synchronous"):
            self._synced = sql.endswith("FULL")
        elif sql == "COMMIT" and self._synced:
            time.sleep(SYNC_SECONDS)
        return super().execute(sql, *parameters)  # type: ignore[arg-type]


@contextmanager
def _slow_syncs() -> Iterator[None]:
    connect = sqlite3.connect
    with patch("sqlite3.connect", lambda *given, **named: connect(*given, factory=_Slow, **named)):
        yield


class _Marking:
    """A model that calls a tool in each of *turns*, and notes what the process had written before each answer."""

    def __init__(self, turns: int) -> None:
        self._replies = Replies([*[calling(("add", ARGUMENTS))] * turns, answer("3")])
        self.written: list[int] = []

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give the next reply."""
        self.written.append(_written())
        return await self._replies.complete(request)


def _written() -> int:
    """The bytes that this process has handed to the system so far."""
    line = next(line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("wchar"))
    return int(line.split()[1])


async def _run(state: State, turns: int) -> None:
    model = Replies([*[calling(("add", ARGUMENTS))] * turns, answer("3")])
    outcome = await run_agent(DEFINITION, "1 + 2?", Ports(model=model, state=state), max_turns=turns + 1)
    assert isinstance(outcome, Completed)


async def _turns(state: State, effort: Effort, where: str) -> Sequence[Row]:
    turns = effort.of(100)
    volatile = MemoryState()
    theirs, own = await alternate(
        lambda: _run(volatile, turns), lambda: _run(state, turns), units=turns, rounds=effort.rounds
    )
    return [
        Row(f"{where}: tool turn, CPU", own.cpu, theirs.cpu, at_most=1e-3 if where == "SQLite" else None),
        Row("  wall", own.wall, theirs.wall),
    ]


async def _bytes(state: State) -> Sequence[Row]:
    model = _Marking(210)
    await run_agent(DEFINITION, "1 + 2?", Ports(model=model, state=state), max_turns=211)
    at_50, at_200 = [(model.written[end] - model.written[end - 40]) / 40 for end in (60, 210)]
    return [
        Row("  written at turn 50", at_50, unit=memory, at_most=24e3),
        Row("  written at turn 200", at_200, unit=memory, at_most=24e3),
    ]


async def _crowd(state: State, effort: Effort, where: str) -> Sequence[Row]:
    one, many = await _paces(state, effort)
    return [
        Row(f"{where}: turns a second, {CROWD} runs at once", 1 / many, 1 / one, unit=count),
        Row("  against one run", one / many, unit=factor),
    ]


async def _slow_crowd(state: State, effort: Effort, where: str) -> Sequence[Row]:
    one, many = await _paces(state, effort)
    return [
        Row(f"{where}: the same, where a sync takes 2 ms", 1 / many, 1 / one, unit=count),
        Row("  a turn, against one run's", many / one, unit=factor, at_most=1 / 3),
    ]


async def _paces(state: State, effort: Effort) -> tuple[float, float]:
    """Seconds for a turn of one run alone, and of many. A disk changes from second to second: they take turns."""
    turns = effort.of(20)
    alone: list[float] = []
    together: list[float] = []
    for _ in range(effort.rounds):
        for taken, runs in ((alone, 1), (together, CROWD)):
            began = time.perf_counter()
            await asyncio.gather(*[_run(state, turns) for _ in range(runs)])
            taken.append((time.perf_counter() - began) / (turns * runs))
    return statistics.median(alone), statistics.median(together)


async def _load(state: State, where: str) -> Sequence[Row]:
    await run_agent(
        DEFINITION,
        "1 + 2?",
        Ports(model=_Marking(1700), state=state),
        run_id="long",
        max_turns=1701,
    )
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        entries = await state.load("long")
        folded = RunState()
        for place, entry in enumerate(entries, start=1):
            evolve(folded, decode(entry.kind, entry.schema, entry.body, position=place), entry.at)
        best = min(best, (time.perf_counter() - began) * 10_000 / len(entries))
    return [Row(f"{where}: load and fold 10,000 facts", best, at_most=0.5)]
