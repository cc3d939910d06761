"""Where an agent's conversation lives: in the runs of its session, and in the inbox that outlives each of them.

Rule: run number n of session `s` is `s.n`, and `s.inbox` is a run that only has an inbox, for what is queued: no id of
one session is an id of another, whatever they are called. Nothing else is stored: transcript, queues and the
unfinished run are read from these journals (`load`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from attrs import evolve as replace

from turnwright import journal
from turnwright.agent.queues import Queue, Queued
from turnwright.definition import AnyDefinition
from turnwright.errors import RunBusy
from turnwright.facts import Fact
from turnwright.inbox import FollowUp, Steer, Withdraw
from turnwright.run import open_inbox
from turnwright.wiring import Ports

__all__ = ["RESET", "Session"]

RESET: Final = "turnwright.reset"
"""The kind of the message that says that everything before it is forgotten."""


class Session:
    """The runs of one conversation in a state port."""

    def __init__(self, session_id: str, ports: Ports) -> None:
        self.id = session_id
        self._inbox = f"{session_id}.inbox"
        self._ports = ports
        self.runs = 0
        """How many runs it has had."""
        self._has_inbox = False
        self._position = 0
        """Where in the inbox our newest word stands."""
        self._is_unsure = False
        """Whether nobody said what became of the word after it."""

    def run_id(self, number: int) -> str:
        """The id of run *number*, counted from 1."""
        return f"{self.id}.{number}"

    async def load(
        self,
        queue: Queue,
        *,
        forget: Callable[[], None],
        begin: Callable[[int], None],
        record: Callable[[Fact, float], None],
    ) -> None:
        """Read what is new: *begin* is told of each run, *record* of its facts; *queue* gets what still waits.

        *forget* is called first where everything that was read before is forgotten by now.
        """
        first = await self._load_queue(queue)
        if first > self.runs + 1:
            forget()
        while entries := await self._ports.state.load(self.run_id(self.runs + 1)):
            self.runs += 1
            queue.begin()
            if self.runs >= first:
                begin(self.runs)
            for position, entry in enumerate(entries, start=1):
                fact = journal.decode(entry.kind, entry.schema, entry.body, position=position)
                queue.seen(fact)
                if self.runs >= first:
                    record(fact, entry.at)

    async def _load_queue(self, queue: Queue) -> int:
        """Queue what was ever queued and not taken back. The number of the first run that is not forgotten."""
        first = 1
        waiting: dict[str, Queued] = {}
        for _, word in await self._ports.state.read(self._inbox):
            self._has_inbox = True
            match word:
                case Steer(message, str()) if message.kind == RESET:
                    assert isinstance(message.data, int)
                    first = message.data + 1
                    waiting.clear()
                case Steer(message, str() as id) | FollowUp(message, str() as id):
                    earlier = waiting[id].messages if id in waiting else ()
                    kind = "steer" if isinstance(word, Steer) else "follow_up"
                    waiting[id] = Queued(id, kind, (*earlier, message))  # type: ignore[arg-type]
                case Withdraw(id):
                    waiting.pop(id, None)
                case _:
                    pass
        queue.recall([*waiting.values()])
        return first

    async def facts(self, run_id: str) -> list[Fact]:
        """All that happened in a run."""
        entries = await self._ports.state.load(run_id)
        return [
            journal.decode(each.kind, each.schema, each.body, position=n) for n, each in enumerate(entries, start=1)
        ]

    async def is_behind(self, run_id: str, length: int) -> bool:
        """Whether somebody else went on: with run *run_id*, of which *length* entries are known, or with the next."""
        return bool(await self._ports.state.load(run_id or self.run_id(self.runs + 1), length if run_id else 0))

    async def post(self, definition: AnyDefinition, word: Steer | FollowUp | Withdraw) -> None:
        """Put *word* where it outlives this process; one of which nobody said whether it is there, once at the most."""
        if not self._has_inbox:
            with suppress(RunBusy):  # somebody else makes the same one
                await open_inbox(definition, self._ports, self._inbox)
            self._has_inbox = True
        if isinstance(word, Steer) and word.message.kind == RESET:
            word = replace(word, message=replace(word.message, data=await self._count()))
        found = await self._find(word) if self._is_unsure else None
        self._is_unsure = found is None
        self._position = found or await self._ports.state.post(self._inbox, word)
        self._is_unsure = False

    async def _find(self, word: Steer | FollowUp | Withdraw) -> int | None:
        """Where *word* stands after our newest that we know of: of those with its id, the first is the next."""
        came = await self._ports.state.read(self._inbox, self._position)
        like = (type(word), word.id)
        return next((place for place, each in came if (type(each), getattr(each, "id", None)) == like), None)

    async def _count(self) -> int:
        """How many runs there are, also of those that were not read."""
        number = self.runs
        while await self._ports.state.load(self.run_id(number + 1)):
            number += 1
        return number
