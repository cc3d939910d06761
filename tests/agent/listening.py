"""Writing down what an agent tells, in the short words of the golden orders."""

from __future__ import annotations

from turnwright.agent import Agent, Signal
from turnwright.lifecycle import (
    AgentEnd,
    LifecycleEvent,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnEnd,
)
from turnwright.messages import ToolMessage

ROLES = {"user": "user", "assistant": "asst", "tool": "tr"}


def short(event: LifecycleEvent) -> str:
    """An event in one word: `ms(user)`, `te_end(fast)`, `turn_end(2)`."""
    match event:
        case MessageStart() | MessageEnd():
            kind = "ms" if isinstance(event, MessageStart) else "me"
            name = f" {event.message.name}" if isinstance(event.message, ToolMessage) else ""
            return f"{kind}({ROLES[event.role]}{name})"
        case MessageUpdate():
            return "mu"
        case ToolExecutionStart(tool_name=name):
            return f"te_start({name})"
        case ToolExecutionUpdate(tool_name=name):
            return f"te_update({name})"
        case ToolExecutionEnd(tool_name=name, is_error=is_error):
            return f"te_end({name}{', err' if is_error else ''})"
        case TurnEnd(results=results):
            return f"turn_end({len(results)})"
        case AgentEnd(messages=messages):
            return f"agent_end({len(messages)})"
        case _:
            return event.type


class Heard:
    """A listener that writes events down; runs of pieces of one answer count as one."""

    def __init__(self, agent: Agent) -> None:
        self.events: list[LifecycleEvent] = []
        self.stop = agent.subscribe(self)

    def __call__(self, event: LifecycleEvent, signal: Signal) -> None:
        """Take an event."""
        self.events.append(event)

    @property
    def order(self) -> list[str]:
        """The events in short words."""
        words = [short(event) for event in self.events]
        return [word for place, word in enumerate(words) if word != "mu" or words[place - 1] != "mu"]
