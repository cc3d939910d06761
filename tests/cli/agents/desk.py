"""An agent with a tool for every way in which a call can go."""

from __future__ import annotations

import asyncio
import threading

from turnwright import AgentDefinition, ToolContext, tool


@tool
def look_up(order: str) -> str:
    """Say what an order is."""
    return f"order {order}: a teapot,\x1b[2J [bold]broken[/bold]"


@tool(approval="required")
def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return f"paid {cents} back for {order}"


@tool
async def pay(context: ToolContext) -> str:
    """Pay, and never hear whether it was done."""
    context.update("on its way")
    await asyncio.Event().wait()
    return ""


@tool(output=int)
async def charge() -> int:
    """Take money, and never hear how much it was."""
    await asyncio.Event().wait()
    return 0


@tool
def block() -> str:
    """Hold its thread for ever."""
    threading.Event().wait()
    return ""


definition = AgentDefinition("desk", "You answer mails.", tools=[look_up, refund, pay, charge, block])

counting = AgentDefinition("counting", "You count.", input=list[int], output=dict[str, int])

summing = AgentDefinition("summing", "You sum up.", output=int, tools=[refund])
