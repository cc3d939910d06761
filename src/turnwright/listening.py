"""The listener: the one observer that a run waits for. Rule: it is told every event, in order and one at a time, and
what it raises is reported to the loop's exception handler and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from turnwright.deltas import Delta
from turnwright.lifecycle import Lifecycle, LifecycleEvent
from turnwright.ports import Listener
from turnwright.racing import may_wait

__all__ = ["Listening"]


class Listening:
    """What a listener still has to be told. *rouse* is called when there is something."""

    def __init__(self, listener: Listener, rouse: Callable[[], None]) -> None:
        self._listener = listener
        self._rouse = rouse
        self._waiting: deque[LifecycleEvent] = deque()
        self.lifecycle = Lifecycle(self._take, updates=True)

    def _take(self, event: LifecycleEvent) -> None:
        self._waiting.append(event)
        self._rouse()

    def emit(self, delta: Delta) -> None:
        """Take a delta."""
        self.lifecycle.delta(delta)

    @property
    def waits(self) -> bool:
        """Whether the listener may take time."""
        return may_wait(self._listener)

    @property
    def is_behind(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._waiting)

    async def catch_up(self) -> None:
        """Tell the listener all that it was not told, and wait until it has heard."""
        while self._waiting:
            event = self._waiting.popleft()
            try:
                await self._listener.on_event(event)
            except BaseException as error:
                task = asyncio.current_task()
                own = isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling()
                if not isinstance(error, Exception) and not own:
                    raise
                told = {"message": f"the listener failed on {event.type}; the run goes on", "exception": error}
                asyncio.get_running_loop().call_exception_handler(told)
