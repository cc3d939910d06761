"""What the code of an agent's owner is told of the turn in which it runs, and how it asks for something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic

from turnwright.errors import DefinitionError
from turnwright.harness.events import AgentEvent, MemoryEvent, ProgressEvent, SurfaceEvent, is_progress_stage
from turnwright.harness.session import Session, remember
from turnwright.schema.coercion import copied
from turnwright.tools import ToolContext

__all__ = ["TurnContext"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    ServicesT = TypeVar("ServicesT", default=Mapping[str, object])
else:
    from typing import TypeVar

    ServicesT = TypeVar("ServicesT")


class TurnContext(Generic[ServicesT]):
    """What a tool, a resource, a guardrail or a prompt layer may know of its turn.

    *session* is the session as it was when the turn began, *services* what the turn may use, *signal* its
    cancellation. *call* is the engine's word on the tool call, for what runs in one. *emit* tells an event.
    """

    __slots__ = ("_trace", "call", "emit", "services", "session", "signal")

    def __init__(
        self,
        session: Session,
        services: ServicesT,
        signal: asyncio.Event,
        *,
        emit: Callable[[AgentEvent], None],
        trace: Callable[[str, Mapping[str, object]], None],
        call: ToolContext | None = None,
    ) -> None:
        self.session = session
        self.services = services
        self.signal = signal
        self.call = call
        self.emit = emit
        self._trace = trace

    @property
    def memory(self) -> Mapping[str, object]:
        """A copy of what the session remembered when the turn began."""
        return copied(dict(self.session.memory))  # type: ignore[arg-type,return-value] # JSON

    def remember(self, patch: Mapping[str, object]) -> None:
        """Ask that the session remember *patch*; None forgets a key. InvalidValue, with the path, for unsafe values."""
        event: MemoryEvent = remember(patch)
        self.emit(event)

    def surface(self, surface_id: str, line: str) -> None:
        """Tell one wire line of a surface."""
        self.emit(SurfaceEvent(surface_id, line))

    def progress(self, stage: str) -> None:
        """Tell that the turn reached *stage*, one of PROGRESS_STAGES."""
        if not is_progress_stage(stage):
            raise DefinitionError(f"a progress stage is one of PROGRESS_STAGES, not {stage!r:.80}")
        self.emit(ProgressEvent(stage))

    def trace(self, name: str, data: Mapping[str, object] | None = None) -> None:
        """Add a record to the trace, if there is one."""
        self._trace(name, data or {})
