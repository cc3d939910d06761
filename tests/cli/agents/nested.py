"""An agent that asks another, which asks a third, which does what somebody must approve.

Each asks by a tool that is safe to repeat: the run of the one that is asked is named after the call, so a repeated call
goes on with it. While that run waits, whoever asked it is paused as well.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from turnwright import AgentDefinition, Completed, Ports, ToolContext, run_agent, tool
from turnwright.ports import ModelRequest
from turnwright.testing import Reply, ScriptedModel, call, text
from turnwright_adapters.sqlite import SqliteState

stop = asyncio.Event()
"""Pauses the outermost run."""


def repeat(request: ModelRequest) -> Reply:
    """Answer with the last result."""
    return text(request.messages[-1].text)


async def ask(definition: AgentDefinition[str, str], first: Reply, words: str, context: ToolContext) -> str:
    """Have an agent work on *words*, or go on with that, until it has an answer."""
    async with SqliteState(os.environ["RUNS"]) as state:
        ports = Ports(model=ScriptedModel([first, repeat]), state=state)
        outcome = await run_agent(definition, words, ports, run_id=context.effect_id)
        if isinstance(outcome, Completed):
            return outcome.output
    stop.set()
    await asyncio.Event().wait()
    raise AssertionError("whoever waits for ever is cancelled")


@tool(approval="required")
def protected(words: str) -> str:
    """Do what must not be done without leave; each time is a line of the file that DONE names."""
    with Path(os.environ["DONE"]).open("a", encoding="utf-8") as done:
        done.write(f"{words}\n")
    return f"did {words}"


inner = AgentDefinition("inner", "You do it.", tools=[protected])


@tool(replay="safe")
async def ask_inner(words: str, context: ToolContext) -> str:
    """Ask the one who may do it."""
    return await ask(inner, call("protected", words=words), words, context)


middle = AgentDefinition("middle", "You ask.", tools=[ask_inner])


@tool(replay="safe")
async def ask_middle(words: str, context: ToolContext) -> str:
    """Ask the one who knows whom to ask."""
    return await ask(middle, call("ask_inner", words=words), words, context)


definition = AgentDefinition("outer", "You ask.", tools=[ask_middle])
