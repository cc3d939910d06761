"""An agent that pays out, and is held up in the payment while a line is awaited on the standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from turnwright import AgentDefinition, tool


@tool(approval="required")
def pay(cents: int) -> str:
    """Pay out; each payment is a line of the file that TILL names."""
    if "TILL" in os.environ:
        with Path(os.environ["TILL"]).open("a", encoding="utf-8") as till:
            till.write(f"{cents}\n")
        sys.stdin.readline()
    return f"paid {cents}"


definition = AgentDefinition("till", "You pay.", tools=[pay])
