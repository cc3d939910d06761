"""A process that drives one run on a store: `python payer.py STORE WORLD COMMAND [JSON]`.

STORE is the path of a SQLite file, or the address of a Postgres database, `#` and a schema. The world outside is the
file WORLD: each payment is a line in it, synced before the tool returns. What the process says goes to its standard
output, a line at a time.

    start             open the run, or find it, and drive it to rest
    resume            go on, with the decisions and resolutions of JSON
    asking-...        with an agent that asks before it pays, and pays when it reads a line
    asking-dying-...  and then waits for another line inside of the call
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Final

from turnwright import (
    AgentDefinition,
    DidNotHappen,
    Happened,
    Ports,
    RunBusy,
    Suspended,
    ToolContext,
    resume_agent,
    run_agent,
    tool,
)
from turnwright.evidence import Evidence
from turnwright.outcomes import Outcome
from turnwright.testing import ScriptedModel, call, text
from turnwright_adapters.postgres import PostgresState
from turnwright_adapters.sqlite import SqliteState

RUN: Final = "r1"
TURNS: Final = 6


def say(*words: object) -> None:
    """Tell whoever started this process."""
    print(*words, flush=True)


class Acknowledged:
    """Tells every acknowledged step of evidence."""

    def record(self, evidence: Evidence) -> None:
        """Say its place and its head."""
        say("ack", evidence.seq, evidence.head)


def paying(world: str, *, ask: bool, dying: bool) -> AgentDefinition[str, str]:
    """An agent that pays, asking before each payment or not. An asking one pays when it reads a line."""

    @tool(approval="required" if ask else "none", replay="never")
    def pay(cents: int, context: ToolContext) -> str:
        """Pay."""
        if ask:
            say("paying", context.effect_id)
            sys.stdin.readline()
        file = os.open(world, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{context.effect_id} {cents}\n".encode())
        os.fsync(file)
        os.close(file)
        if dying:
            say("paid", context.effect_id)
            sys.stdin.readline()
        return f"paid {cents}"

    return AgentDefinition("payer", "Pay.", tools=[pay])


def store(address: str) -> SqliteState | PostgresState:
    """Open the store of that address."""
    if "://" in address:
        conninfo, schema = address.split("#")
        return PostgresState(conninfo, schema=schema)
    return SqliteState(address)


async def main(address: str, world: str, command: str, words: str = "{}") -> None:
    """Do what the command line says, and say how the run stands."""
    ask = command.startswith("asking-")
    agent = paying(world, ask=ask, dying="dying" in command)
    calls = [call("pay", cents=number + 1) for number in range(1 if ask else TURNS)]
    async with store(address) as state:
        ports = Ports(model=ScriptedModel([*calls, text("done")]), state=state, telemetry=Acknowledged())
        await state.runs()
        say("ready")
        sys.stdin.readline()
        try:
            if command.endswith("start"):
                say_outcome(await run_agent(agent, "go", ports, run_id=RUN, max_turns=TURNS + 2))
            else:
                said = json.loads(words)
                resolutions = {
                    effect: Happened("paid") if happened else DidNotHappen()
                    for effect, happened in said.get("resolutions", {}).items()
                }
                say_outcome(
                    await resume_agent(agent, RUN, ports, decisions=said.get("decisions"), resolutions=resolutions)
                )
        except RunBusy:
            say("busy")


def say_outcome(outcome: Outcome[str]) -> None:
    """One line: what the run came to, and what it waits for."""
    pending = [each.effect_id for each in outcome.pending] if isinstance(outcome, Suspended) else []
    say("outcome", type(outcome).__name__, *pending)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
