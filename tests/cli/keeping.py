"""Runs that are kept in a store, as another process would have left them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tests.cli.agents import DESK
from turnwright import Ports, Suspended, resume_agent, run_agent
from turnwright.cli.loading import load
from turnwright.evidence import Evidence
from turnwright.facts import Fact
from turnwright.inbox import Word
from turnwright.journal import decode
from turnwright.testing import Reply, ScriptedModel, call, text
from turnwright_adapters.sqlite import SqliteState


class Kept:
    """A run in a store: what it is called, and what the command line says of it."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self.run_id = run_id
        self.state = ["--state", f"sqlite:{path}"]

    def facts(self) -> list[Fact]:
        """Everything that happened in it."""

        async def read() -> list[Fact]:
            async with SqliteState(self.path) as state:
                entries = await state.load(self.run_id)
            return [decode(each.kind, each.schema, each.body, position=each.seq) for each in entries]

        return asyncio.run(read())

    def words(self) -> list[Word]:
        """Everything that was said to it."""

        async def read() -> list[Word]:
            async with SqliteState(self.path) as state:
                return [word for _, word in await state.read(self.run_id)]

        return asyncio.run(read())


def suspended(path: Path, target: str, replies: Sequence[Reply]) -> Kept:
    """Run an agent until it waits for approval, as another process would have done."""

    async def run() -> str:
        async with SqliteState(path) as state:
            ports = Ports(model=ScriptedModel(replies), state=state, principal="ada")
            outcome = await run_agent(load(target).definition, "My teapot broke", ports)
            assert isinstance(outcome, Suspended)
            return outcome.run_id

    return Kept(path, asyncio.run(run()))


class _Stop:
    """Interrupts a run once a call of it was started."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def record(self, evidence: Evidence) -> None:
        if evidence.kind == "call_started":
            self.event.set()


def doubted(path: Path, tool: str = "pay") -> Kept:
    """Run an agent that pays and never hears whether it was done, until somebody must say so."""
    replies = [call(tool), text("Paid.")]

    async def run() -> str:
        stop = _Stop()
        async with SqliteState(path) as state:
            ports = Ports(model=ScriptedModel(replies), state=state, telemetry=stop, cancellation=stop.event)
            outcome = await run_agent(load(DESK).definition, "My teapot broke", ports)
            again = Ports(model=ScriptedModel(replies), state=state)
            outcome = await resume_agent(load(DESK).definition, outcome.run_id, again)
            assert isinstance(outcome, Suspended) and outcome.reason == "in-doubt"
            return outcome.run_id

    return Kept(path, asyncio.run(run()))
