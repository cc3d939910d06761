"""What people queue for an agent: steering and follow-ups, each with an id until it is delivered.

Rule: an item leaves the queue when the journal says that it was delivered, or when somebody takes it back; an abort or
a failure in between loses nothing. To a run the queue is its inbox: it hands out what is due by its mode, and keeps
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from attrs import frozen

from turnwright.facts import Fact, InboxReceived, RunOpened, TurnStarted
from turnwright.inbox import Cancel, FollowUp, Steer, Withdraw, Word
from turnwright.messages import UserMessage

__all__ = ["Queue", "QueueKind", "QueueMode", "Queued"]

QueueKind: TypeAlias = Literal["steer", "follow_up"]
QueueMode: TypeAlias = Literal["one-at-a-time", "all"]
"""Whether a boundary delivers the oldest item, or all of them."""

KINDS: Final[tuple[QueueKind, ...]] = ("steer", "follow_up")


@frozen
class Queued:
    """One item: a message, or several that are delivered together."""

    id: str
    kind: QueueKind
    messages: tuple[UserMessage, ...]

    def words(self) -> list[Steer | FollowUp]:
        """The item as the inbox of a run has it."""
        if self.kind == "steer":
            return [Steer(message, self.id) for message in self.messages]
        return [FollowUp(message, self.id, self.id) for message in self.messages]


class Queue:
    """Both queues of one agent, and the inbox of each of its runs. It watches the run to know what was delivered."""

    waits = False

    def __init__(self) -> None:
        self.modes: dict[QueueKind, QueueMode] = dict.fromkeys(KINDS, "one-at-a-time")
        self._items: dict[str, Queued] = {}
        self._handed: set[str] = set()
        """The items that the run knows of and has not delivered."""
        self._withdrawn: dict[str, None] = {}
        """Those that the run still has and that were taken back."""
        self._leaving: set[str] = set()
        """The items that are being delivered, or perhaps were: it is too late to take them back."""
        self._delivered: set[str] = set()
        self._places: dict[int, str] = {}
        """Which item has which position in the inbox of the run."""
        self._turn_to_speak = False
        self._ending = ""
        self.opened = False
        """Whether the journal holds the run."""
        self.length = 0
        """How much of the journal was seen."""
        self.turn = 0
        """The newest turn of the run."""

    @property
    def items(self) -> tuple[Queued, ...]:
        """What waits, the oldest first."""
        return (*self._items.values(),)  # at one stroke: another thread may queue something

    def add(self, item: Queued) -> None:
        """Queue *item*."""
        self._items[item.id] = item

    def recall(self, kept: Sequence[Queued]) -> None:
        """Queue what was *kept* elsewhere and not delivered here, before what was queued here alone."""
        self._items = {**{item.id: item for item in kept if item.id not in self._delivered}, **self._items}

    def take_back(self, ids: Sequence[str]) -> list[Queued]:
        """Remove what was not delivered yet, and is not on its way."""
        ids = [id for id in ids if id in self._items and id not in self._leaving]
        self._withdrawn.update(dict.fromkeys([id for id in ids if id in self._handed]))
        self._handed.difference_update(ids)
        return [self._items.pop(id) for id in ids]

    # --- the inbox of a run

    def begin(self, *, speak: bool = False) -> None:
        """A run begins. With *speak* it has nothing to say itself: what is queued, also a follow-up, begins it."""
        self._turn_to_speak = speak
        self._ending = ""
        self.opened = False
        self.length = 0
        self.turn = 0
        self._handed.clear()
        self._withdrawn.clear()
        self._leaving.clear()
        self._places.clear()

    def end(self, reason: str) -> None:
        """Tell the run to end; nothing more is handed out."""
        self._ending = reason

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        """What is due; see `Inbox.poll`."""
        return [*enumerate(self._due(), start=after + 1)]

    def _due(self) -> list[Word]:
        if self._ending:
            return [Cancel(self._ending)]
        words: list[Word] = [Withdraw(id) for id in self._withdrawn]
        self._withdrawn.clear()
        if not self._items:
            return words
        for kind in KINDS:
            for item in self._chosen(kind):
                self._handed.add(item.id)
                words += self._worded(item)
        self._turn_to_speak = self._turn_to_speak and not words
        return words

    def _chosen(self, kind: QueueKind) -> list[Queued]:
        """The items of *kind* that the run may have now: in one-at-a-time, none while it has one already."""
        alike = [item for item in self.items if item.kind == kind]
        if self._turn_to_speak and kind == "follow_up" and self._handed:
            return []  # somebody who steers speaks first
        if self.modes[kind] == "all":
            return [item for item in alike if item.id not in self._handed]
        return [] if any([item.id in self._handed for item in alike]) else alike[:1]

    def _worded(self, item: Queued) -> list[Steer | FollowUp]:
        if self._turn_to_speak:
            return [Steer(message, item.id) for message in item.messages]
        if item.kind == "follow_up" and self.modes["follow_up"] == "all":
            return [FollowUp(message, item.id, "all") for message in item.messages]
        return item.words()

    # --- what became of it

    def seen(self, fact: Fact) -> None:
        """Take a fact of the past."""
        self.length += 1
        match fact:
            case RunOpened():
                self.opened = True
            case InboxReceived(position, Steer(id=str() as id) | FollowUp(id=str() as id), ""):
                self._places[position] = id
                if id in self._items:
                    self._handed.add(id)
                else:
                    self._withdrawn[id] = None  # unless it is delivered further on
            case InboxReceived(_, Withdraw(id)):
                self._withdrawn.pop(id, None)
            case TurnStarted(turn, delivered):
                self.turn = turn
                for position in delivered:
                    id = self._places.pop(position, "")
                    self._items.pop(id, None)
                    self._handed.discard(id)
                    self._leaving.discard(id)
                    self._withdrawn.pop(id, None)
                    self._delivered.add(id)
            case _:
                pass

    def noted(self, fact: Fact) -> None:
        """Take a fact that is being written: what it delivers cannot be taken back any more."""
        match fact:
            case InboxReceived(position, Steer(id=str() as id) | FollowUp(id=str() as id), ""):
                self._places[position] = id
            case TurnStarted(_, delivered):
                self._leaving.update([self._places[position] for position in delivered if position in self._places])
            case _:
                pass

    def record(self, fact: Fact, at: float) -> None:
        """Take a new fact."""
        self.seen(fact)

    def progress(self, index: int, text: str) -> None:
        """Progress delivers nothing."""
