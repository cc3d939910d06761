"""What must do whoever stands outside a run and has a say in it, or listens: inbox, cancellation, policy, listener.

See `turnwright.ports`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

from turnwright.definition import AgentDefinition
from turnwright.inbox import Approve, Cancel, Deny, FollowUp, Resolve, Steer, Withdraw, Word
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import UserMessage
from turnwright.ports import Cancellation, Inbox, Listener, Policy
from turnwright.run import run_agent
from turnwright.testing import ScriptedModel, call, text
from turnwright.wiring import Ports
from turnwright_contracts.running import cut, scenario

__all__ = ["CancellationSuite", "InboxSuite", "ListenerSuite", "PolicySuite"]

InboxT = TypeVar("InboxT", bound=Inbox)
CancellationT = TypeVar("CancellationT", bound=Cancellation)
ListenerT = TypeVar("ListenerT", bound=Listener)

WORDS: Final[tuple[Word, ...]] = (
    Steer(UserMessage("and hurry ☃"), "s1"),
    FollowUp(UserMessage("then rest"), "f1", "b1"),
    Withdraw("f1"),
    Approve("r1:1.0", "d" * 64, "ann", 2),
    Deny("r1:1.1", "too much", "bob"),
    Resolve("r1:1.2", True, {"paid": [5, None]}),
    Cancel("enough"),
)


class InboxSuite(Generic[InboxT]):
    """Subclass it, and say how the inbox is made and how a word gets into it."""

    def make(self, place: Path) -> AbstractAsyncContextManager[InboxT]:
        """Give an inbox that is empty."""
        raise NotImplementedError

    async def put(self, inbox: InboxT, run_id: str, word: Word) -> None:
        """Say *word* to the run, as people do."""
        raise NotImplementedError

    @scenario
    async def test_nobody_has_said_anything_yet(self, tmp_path: Path) -> None:
        """Also to a run that nobody has heard of, and whatever position is asked from."""
        async with self.make(tmp_path) as inbox:
            assert [] == [*await inbox.poll("r1", 0)]
            assert [] == [*await inbox.poll("r1", 99)]

    @scenario
    async def test_words_come_in_the_order_in_which_they_were_said(self, tmp_path: Path) -> None:
        """Each with a position above 0 that rises, and as it was said."""
        async with self.make(tmp_path) as inbox:
            for word in WORDS:
                await self.put(inbox, "r1", word)
            heard = await inbox.poll("r1", 0)

            positions = [position for position, _ in heard]
            assert [*WORDS] == [word for _, word in heard]
            assert sorted({*positions}) == positions
            assert {int} == {type(position) for position in positions}
            assert positions[0] > 0

    @scenario
    async def test_only_what_comes_after_a_position_is_given(self, tmp_path: Path) -> None:
        """A run asks from the last word that its journal holds."""
        async with self.make(tmp_path) as inbox:
            for word in WORDS:
                await self.put(inbox, "r1", word)
            heard = await inbox.poll("r1", 0)

            for number, (position, _) in enumerate(heard, start=1):
                assert [*heard[number:]] == [*await inbox.poll("r1", position)]

    @scenario
    async def test_a_word_stays_until_the_run_has_moved_on(self, tmp_path: Path) -> None:
        """A worker that died before it wrote down what it heard is followed by one that hears the same."""
        async with self.make(tmp_path) as inbox:
            await self.put(inbox, "r1", WORDS[0])
            for steps in range(4):
                await cut(inbox.poll("r1", 0), steps)

            assert [*await inbox.poll("r1", 0)] == [*await inbox.poll("r1", 0)] != []

    @scenario
    async def test_a_run_hears_only_what_was_said_to_it(self, tmp_path: Path) -> None:
        """Also where ids look alike."""
        async with self.make(tmp_path) as inbox:
            for run_id in ("r1", "r10", "R1"):
                await self.put(inbox, run_id, Cancel(run_id))

            for run_id in ("r1", "r10", "R1"):
                assert [Cancel(run_id)] == [word for _, word in await inbox.poll(run_id, 0)]


class CancellationSuite(Generic[CancellationT]):
    """Subclass it, and say how the signal is made and how it is given."""

    def make(self) -> CancellationT:
        """A signal that was not given."""
        raise NotImplementedError

    def give(self, cancellation: CancellationT) -> None:
        """Give the signal."""
        raise NotImplementedError

    @scenario
    async def test_it_is_given_once_and_for_all(self) -> None:
        """It is not set before, and set for ever after."""
        signal = self.make()
        assert not signal.is_set()
        self.give(signal)
        self.give(signal)

        assert signal.is_set()
        await signal.wait()
        assert signal.is_set()

    @scenario
    async def test_whoever_waits_is_woken(self) -> None:
        """All of them; one that was cancelled takes nobody with it."""
        signal = self.make()
        waiting = [asyncio.ensure_future(_wait(signal)) for _ in range(8)]
        assert await cut(_wait(signal), 3) is None
        assert not [each for each in waiting if each.done()]
        self.give(signal)

        await asyncio.gather(*waiting)


async def _wait(signal: Cancellation) -> bool:
    await signal.wait()
    return True


class PolicySuite:
    """Subclass it, say how the policy is made, and name what the host enforces and what it does not."""

    enforces: ClassVar[Sequence[str]]
    lacks: ClassVar[Sequence[str]]

    def make(self) -> Policy:
        """Give the policy."""
        raise NotImplementedError

    def test_it_can_satisfy_what_it_enforces(self) -> None:
        """One by one, together, and where nothing is needed."""
        policy = self.make()

        assert policy.can_satisfy(())
        assert policy.can_satisfy(self.enforces)
        assert all([policy.can_satisfy([need]) for need in self.enforces])

    def test_it_fails_closed(self) -> None:
        """One need that is not enforced is enough, and so is one that nobody has heard of."""
        policy = self.make()

        for need in (*self.lacks, "no-such-need-9"):
            assert policy.can_satisfy([need]) is False
            assert policy.can_satisfy([*self.enforces, need]) is False

    def test_it_names_what_is_lacking(self) -> None:
        """That and nothing else: it is what the error says."""
        policy = self.make()

        assert [] == [*policy.limitations(self.enforces)]
        assert {*self.lacks} == {*policy.limitations([*self.enforces, *self.lacks])}


class ListenerSuite(Generic[ListenerT]):
    """Subclass it, and say how the listener is made and what it has heard."""

    def make(self) -> ListenerT:
        """Give a listener."""
        raise NotImplementedError

    def heard(self, listener: ListenerT) -> Sequence[LifecycleEvent]:
        """What it has heard so far."""
        raise NotImplementedError

    @scenario
    async def test_it_hears_a_run_in_order(self) -> None:
        """Every event once, numbered without a gap, from the first to the last."""
        listener = self.make()
        model = ScriptedModel([call("fly", to="mars"), text("I cannot")])
        await run_agent(AgentDefinition("clerk", "Do it."), "go", Ports(model, listener=listener))

        events = self.heard(listener)
        assert [*range(1, len(events) + 1)] == [each.seq for each in events]
        assert ("agent_start", "agent_end") == (events[0].type, events[-1].type)
