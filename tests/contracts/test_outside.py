"""The suites for whoever stands outside a run hold for what is here, and see what an adapter may do wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import pytest
from attrs import define, field, frozen

from turnwright import MemoryState
from turnwright.inbox import Word
from turnwright.lifecycle import LifecycleEvent
from turnwright.ports import State
from turnwright_contracts import CancellationSuite, InboxSuite, ListenerSuite, PolicySuite


@frozen
class FromState:
    """An inbox over another store than the journal's."""

    state: State

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        """What was said."""
        return await self.state.read(run_id, after)


@pytest.mark.promise("T-05", "N-03")
class TestAnInboxOfItsOwn(InboxSuite[FromState]):
    """Words that are kept apart from the journal."""

    def make(self, place: Path) -> AbstractAsyncContextManager[FromState]:
        return nullcontext(FromState(MemoryState()))

    async def put(self, inbox: FromState, run_id: str, word: Word) -> None:
        await inbox.state.acquire(run_id, holder="people", seconds=0.0)
        await inbox.state.post(run_id, word)


@pytest.mark.promise("T-05", "N-03")
class TestAnEvent(CancellationSuite[asyncio.Event]):
    """The cancellation that everybody has, and that an agent gives its runs."""

    def make(self) -> asyncio.Event:
        return asyncio.Event()

    def give(self, cancellation: asyncio.Event) -> None:
        cancellation.set()


@frozen
class Sandbox:
    """A host that enforces what it names."""

    enforced: frozenset[str]

    def can_satisfy(self, policy: Sequence[str]) -> bool:
        """Whether all of it is named."""
        return not self.limitations(policy)

    def limitations(self, policy: Sequence[str]) -> Sequence[str]:
        """What is not."""
        return [need for need in policy if need not in self.enforced]


@pytest.mark.promise("T-05", "N-03")
class TestASandbox(PolicySuite):
    """A policy by names."""

    enforces = ("no_network", "read_only")
    lacks = ("isolated",)

    def make(self) -> Sandbox:
        return Sandbox(frozenset(self.enforces))


@define
class Diary:
    """A listener that writes everything down."""

    events: list[LifecycleEvent] = field(factory=list)

    async def on_event(self, event: LifecycleEvent) -> None:
        """Write it down, after others had their turn."""
        await asyncio.sleep(0)
        self.events.append(event)


@pytest.mark.promise("T-05", "N-03")
class TestADiary(ListenerSuite[Diary]):
    """A listener that takes its time."""

    def make(self) -> Diary:
        return Diary()

    def heard(self, listener: Diary) -> Sequence[LifecycleEvent]:
        return listener.events
