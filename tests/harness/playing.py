"""How the tests of the harness play a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from turnwright.harness import AgentEvent, ComposedAgent, Session, reduce

__all__ = ["heard", "of", "play", "shown"]

EventT = TypeVar("EventT")


async def heard(agent: ComposedAgent, text: str = "hi", session: Session | None = None) -> list[AgentEvent]:
    """All events of one turn."""
    return [event async for event in agent.send(session or Session("s"), text)]


async def play(agent: ComposedAgent, *texts: str) -> Session:
    """The session after several turns."""
    session = agent.create_session("s")
    for text in texts:
        for event in await heard(agent, text, session):
            session = reduce(session, event)
    return session


def of(events: Sequence[AgentEvent], kind: type[EventT]) -> list[EventT]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def shown(events: Sequence[AgentEvent]) -> str:
    """What a viewer shows that appends each text, and takes the snapshot of an empty one."""
    text = ""
    for event in events:
        if event.type == "text":
            text = text + event.text if event.text else event.snapshot
    return text
