"""An agent with a tool of every kind, and what its model says: a script for every run, drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from random import Random
from typing import Final

from attrs import evolve as replace

from turnwright.definition import AgentDefinition, Limits
from turnwright.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from turnwright.ports import Model, ModelRequest
from turnwright.testing.models import Reply, ScriptedModel, call, text
from turnwright.tools import DidNotHappen, Happened, Tool, ToolContext, tool

__all__ = ["LONGEST", "SENT", "clerk", "scripts"]

LONGEST: Final = 100
"""How often the model of a script says at the most that it is done: whatever is said to a run needs an answer."""

SENT: Final[ContextVar[set[str]]] = ContextVar("SENT")
"""The keys of the boxes that were sent in this play."""


@tool(replay="safe")
async def look(what: str) -> str:
    """Look something up."""
    await asyncio.sleep(0.5)
    return f"saw {what}"


@tool(replay="safe", sequential=True, timeout=4.0, max_attempts=2)
async def tidy(shelf: int) -> str:
    """Tidy up, with nobody else at work."""
    await asyncio.sleep(1.0)
    return f"tidied {shelf}"


@tool(replay="idempotent")
async def book(room: int) -> str:
    """Book a room."""
    await asyncio.sleep(3.0)
    return f"booked {room}"


@tool
async def write(to: str) -> str:
    """Write a letter."""
    await asyncio.sleep(1.0)
    return f"wrote to {to}"


@tool(key=lambda arguments: str(arguments["item"]))
async def order(item: str) -> str:
    """Order something, once."""
    await asyncio.sleep(2.0)
    return f"ordered {item}"


@tool(approval="required")
async def pay(cents: int) -> str:
    """Pay."""
    await asyncio.sleep(0.2)
    return f"paid {cents}"


@tool(approval=2, replay="idempotent", timeout=20.0)
async def wire(cents: int) -> str:
    """Wire money."""
    await asyncio.sleep(5.0)
    return f"wired {cents}"


@tool
async def ship(box: int, context: ToolContext) -> str:
    """Send a box; whoever has its key can ask for it."""
    SENT.get().add(context.key)
    await asyncio.sleep(2.0)
    return f"sent {box}"


async def _ask(key: str) -> Happened | DidNotHappen:
    return Happened("sent it seems") if key in SENT.get() else DidNotHappen()


@cache
def _tools() -> tuple[Tool[..., object], ...]:
    return (look, tidy, book, write, order, pay, wire, replace(ship, reconcile=_ask))


def clerk(draws: Random) -> AgentDefinition[str, str]:
    """The agent, within some limits."""
    return AgentDefinition(
        "clerk",
        "Do it.",
        tools=_tools(),
        approval_seconds=draws.choice((None, None, 40.0, 200.0)),
        limits=Limits(calls_at_once=draws.choice((None, None, 1, 2)), model_seconds=20.0),
    )


def scripts(draws: Random, inputs: Sequence[object], *, chunk: int | None) -> Model:
    """A model that says for each of *inputs* what was drawn for it."""
    return _Scripts({each: ScriptedModel(_script(draws), chunk=chunk) for each in inputs})


class _Scripts:
    def __init__(self, by_input: dict[object, ScriptedModel]) -> None:
        self._by_input = by_input

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        await asyncio.sleep(0.2)
        first = request.messages[0]
        assert isinstance(first, UserMessage)
        return await self._by_input[first.text].complete(request)


def _script(draws: Random) -> list[Reply]:
    turns: list[Reply] = [
        [_call(draws) for _ in range(draws.choice((1, 1, 2, 2, 3)))] for _ in range(draws.choice((1, 1, 2, 2, 3)))
    ]
    return [*turns, *[_report] * LONGEST]


def _call(draws: Random) -> ToolCall:
    number = draws.randrange(3)
    name = draws.choice(("ada", "ben"))
    return draws.choice(
        (
            call("look", what=name),
            call("tidy", shelf=number),
            call("book", room=number),
            call("write", to=name),
            call("order", item=name),
            call("pay", cents=number),
            call("pay", cents=number),
            call("wire", cents=number),
            call("ship", box=number),
        )
    )


def _report(request: ModelRequest) -> Reply:
    """Tell all that was done."""
    return text("; ".join([each.text for each in request.messages if isinstance(each, ToolMessage)]))
