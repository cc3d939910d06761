"""A process in which an agent of session `s1` works until it is killed.

It is started as `python -m tests.agent.living DATABASE WORLD REPLAY`. WORLD is a file that gets a line each time the
tool runs. The process says `ready` when the tool runs, and what was steered and followed up meanwhile outlives it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from turnwright import tool
from turnwright.agent import Agent
from turnwright.testing import ScriptedModel, call, text
from turnwright.tools import Replay
from turnwright_adapters.sqlite import SqliteState


def living(database: str, world: Path, replay: Replay, *, hang: asyncio.Event | None = None) -> Agent:
    """The agent of the session, made the same way in every process. With *hang*, its tool waits inside the call."""

    @tool(replay=replay)
    async def pay() -> str:
        """Pay."""
        with world.open("a") as file:
            file.write("paid\n")
        if hang is not None:
            hang.set()
            await asyncio.Event().wait()
        return "paid"

    model = ScriptedModel([text("hello"), call("pay"), text("done"), text("more"), text("last")])
    return Agent(model, tools=[pay], state=SqliteState(database), session_id="s1")


async def main(database: str, world: str, replay: Replay) -> None:
    """Say something, then work and queue until somebody kills us."""
    running = asyncio.Event()
    agent = living(database, Path(world), replay, hang=running)
    await agent.prompt("hello")
    taken_back = agent.follow_up("never mind")
    await taken_back
    agent.cancel_queued(taken_back.id)
    work = asyncio.ensure_future(agent.prompt("pay"))
    await running.wait()
    await agent.steer("and quickly")
    await agent.follow_up("what then?")
    print("ready", flush=True)
    await work


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))  # type: ignore[arg-type]
