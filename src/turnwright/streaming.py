"""`stream_agent`: watch a run from the process that drives it. Rule: the run never waits for whoever watches, and
nothing is lost.

A viewer that falls behind by more than `BACKLOG` items finds the pieces of one text joined into one, so memory is
bounded by what was said and not by in how many pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Final, Generic, TypeAlias, TypeVar

from attrs import evolve as replace

from turnwright.definition import AgentDefinition, Durability
from turnwright.deltas import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from turnwright.lifecycle import Lifecycle, LifecycleEvent
from turnwright.memory import combine_delta_sinks
from turnwright.outcomes import Outcome
from turnwright.run import MAX_TURNS, open_and_drive, validated
from turnwright.wiring import Ports

__all__ = ["AgentStream", "StreamItem", "stream_agent"]

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

BACKLOG: Final = 1000

StreamItem: TypeAlias = Delta | LifecycleEvent | Outcome[OutputT]


def stream_agent(
    definition: AgentDefinition[InputT, OutputT],
    input: InputT,
    ports: Ports,
    *,
    run_id: str | None = None,
    max_turns: int = MAX_TURNS,
    deadline: float | None = None,
    require: Durability = "none",
) -> AgentStream[OutputT]:
    """Run an agent and watch it: lifecycle events and deltas as they happen, and the outcome as the last item.

    ::

        async with stream_agent(support, "Where is my order?", ports) as stream:
            async for item in stream:
                ...

    Leaving the `async with` before the end interrupts the run, which suspends as `cancelled`, and waits until nothing
    of it is left. Raises what `run_agent` raises.
    """
    opening = validated(definition, input)

    def drive(feed: _Feed[OutputT]) -> Coroutine[object, object, Outcome[OutputT]]:
        sink = feed if ports.deltas is None else combine_delta_sinks(feed, ports.deltas)
        return open_and_drive(
            *(definition, replace(ports, deltas=sink)),
            run_id=run_id,
            opening=opening,
            max_turns=max_turns,
            deadline=deadline,
            watch=feed.lifecycle,
            require=require,
        )

    return AgentStream(drive)


class _Feed(Generic[OutputT]):
    """What the run has told and nobody has read. The run holds it, and not the stream: who drops that ends the run."""

    def __init__(self) -> None:
        self.items: deque[StreamItem[OutputT]] = deque()
        self.lifecycle = Lifecycle(self._put)
        self.wake: asyncio.Future[None] | None = None
        self._tail: list[str] = []
        """More text of the newest item, kept apart while the viewer is behind."""

    def take(self) -> StreamItem[OutputT]:
        """Give the oldest item."""
        if self._tail and len(self.items) == 1:
            self._join()
        return self.items.popleft()

    def clear(self) -> None:
        """Forget everything."""
        self.items.clear()
        self._tail.clear()

    def emit(self, delta: Delta) -> None:
        """Take a delta: the feed is a delta sink of its run."""
        self.lifecycle.delta(delta)
        if len(self.items) < BACKLOG and not self._tail:
            self.items.append(delta)
            if self.wake is not None:
                self.rouse()
        elif _continues(self.items[-1], delta):
            self._tail.append(delta.text)  # type: ignore[union-attr]
        else:
            self._put(delta)

    def _put(self, item: Delta | LifecycleEvent) -> None:
        if self._tail:
            self._join()
        self.items.append(item)
        self.rouse()

    def _join(self) -> None:
        last = self.items[-1]
        assert isinstance(last, TextDelta | ReasoningDelta | ToolCallDelta)
        self.items[-1] = replace(last, text=last.text + "".join(self._tail))
        self._tail = []

    def rouse(self) -> None:
        """Tell the viewer that there is something to read."""
        wake, self.wake = self.wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)


class AgentStream(Generic[OutputT]):
    """An async iterator over one run; see `stream_agent`."""

    def __init__(self, drive: Callable[[_Feed[OutputT]], Coroutine[object, object, Outcome[OutputT]]]) -> None:
        self._drive = drive
        self._feed: _Feed[OutputT] = _Feed()
        self._task: asyncio.Task[Outcome[OutputT]] | None = None
        self._ended = False

    def __aiter__(self) -> AgentStream[OutputT]:
        return self

    async def __anext__(self) -> StreamItem[OutputT]:
        feed = self._feed
        while not feed.items:
            if self._ended:
                raise StopAsyncIteration
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._drive(feed))
                self._task.add_done_callback(lambda task: _finished(feed, task))
            elif self._task.done():
                self._ended = True
                return self._task.result()
            feed.wake = asyncio.get_running_loop().create_future()
            await feed.wake
        return feed.take()

    async def aclose(self) -> None:
        """Interrupt the run if it still works, and wait until nothing of it is left. Harmless when repeated."""
        self._ended = True
        self._feed.clear()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> AgentStream[OutputT]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is not None and not self._task.done() and not self._task.get_loop().is_closed():
            self._task.cancel()


def _finished(feed: _Feed[OutputT], task: asyncio.Task[Outcome[OutputT]]) -> None:
    """Let the viewer read the outcome. Where there is none left, an error is no news for the log."""
    if not task.cancelled():
        task.exception()
    feed.rouse()


def _continues(last: StreamItem[OutputT], delta: Delta) -> bool:
    """Whether *delta* goes on where *last* stopped."""
    if isinstance(last, ToolCallDelta) and isinstance(delta, ToolCallDelta):
        return (last.turn, last.attempt, last.index) == (delta.turn, delta.attempt, delta.index)
    if isinstance(last, TextDelta | ReasoningDelta) and type(last) is type(delta):
        return (last.turn, last.attempt) == (delta.turn, delta.attempt)
    return False
