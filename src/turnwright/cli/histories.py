"""What a store keeps of one run, read without its definition and without a lease. Rule: what cannot be read is said,
never guessed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from turnwright.cli.exits import CommandError
from turnwright.cli.stores import Store
from turnwright.cli.visible import one_line
from turnwright.decide import receive
from turnwright.definition import AgentDefinition, AnyDefinition
from turnwright.errors import JournalError
from turnwright.evidence import Entry, verify
from turnwright.facts import Fact, InboxReceived, RunOpened
from turnwright.inbox import Word
from turnwright.journal import ENDINGS, decode
from turnwright.ports import State
from turnwright.state import RunState, evolve

__all__ = ["READER", "History", "answer", "read"]

READER: Final = AgentDefinition("reader", "Reads what others ran.")
"""Stands for the definition where it is not here: it knows no tool, so no output is held against one."""

NAMED: Final = 5
"""How many runs are named when the one that was asked for is not there."""


@frozen(eq=False)
class History:
    """One run: its entries, each with its fact, or None where that cannot be read; *flaw* says of the first why.

    *unread* are the words that nobody has folded yet.
    """

    run_id: str
    entries: Sequence[Entry]
    facts: Sequence[Fact | None]
    flaw: JournalError | None
    unread: Sequence[tuple[int, Word]]

    @property
    def has_ended(self) -> bool:
        """Whether there will be no more entries."""
        return self.entries[-1].kind in ENDINGS

    def verify(self) -> str:
        """Check the evidence, and the facts against it if all can be read. Return its head, or raise JournalError."""
        facts = [(fact, entry.body) for fact, entry in zip(self.facts, self.entries, strict=True) if fact is not None]
        salt = facts[0][0].salt if facts and isinstance(facts[0][0], RunOpened) else ""
        return verify([entry.evidence for entry in self.entries], facts if self.flaw is None else (), salt=salt)

    def state(self, definition: AnyDefinition = READER) -> RunState:
        """Fold the run, and then the words that wait, as its next owner will. JournalError for what is flawed."""
        if self.flaw is not None:
            raise self.flaw
        state = RunState()
        for fact, entry in zip(self.facts, self.entries, strict=True):
            assert fact is not None
            evolve(state, fact, entry.at)
        for position, word in self.unread:
            if state.ended is None:
                for fact in answer(state, position, word, definition=definition):
                    evolve(state, fact, time.time())
        return state

    def refuse_other(self, definition: AnyDefinition, *, target: str) -> None:
        """CommandError unless *definition*, which was called *target*, is the agent that began the run."""
        opened = self.facts[0]
        if isinstance(opened, RunOpened) and opened.definition != definition.name:
            whose = f"run {self.run_id} is of agent {opened.definition!r}, and {target} is {definition.name!r}"
            raise CommandError(f"{whose}; name the agent that began it")


def answer(state: RunState, position: int, word: Word, *, definition: AnyDefinition = READER) -> Sequence[Fact]:
    """Say what the next owner of the run makes of *word*, as far as *definition* tells."""
    return receive(definition, state, position, word, now=time.time())


async def read(state: State, run_id: str, *, store: Store) -> History:
    """Read the run *run_id*. CommandError for one that is not in *store*, which names some that are."""
    entries = await state.load(run_id)
    if not entries:
        known = [one_line(head.run_id) for head in await state.runs(limit=NAMED)]
        there = f"the newest are {', '.join(known)}" if known else "there is none at all"
        raise CommandError(f"no run {run_id!r} in {store}; {there}")
    facts: list[Fact | None] = []
    flaw = None
    for position, entry in enumerate(entries, start=1):
        try:
            facts.append(decode(entry.kind, entry.schema, entry.body, position=position))
        except JournalError as error:
            facts.append(None)
            flaw = flaw or _sealed(position, entry.body) or error
    folded = max([fact.position for fact in facts if isinstance(fact, InboxReceived)], default=0)
    unread: Sequence[tuple[int, Word]] = ()
    try:
        unread = await state.read(run_id, folded)
    except JournalError as error:
        flaw = flaw or error
    return History(run_id, entries, facts, flaw, unread)


def _sealed(position: int, body: bytes) -> JournalError | None:
    """What is wrong with a body that no JSON begins like, where no key was given to open it."""
    if not body or body[0] >= ord(" "):
        return None
    return JournalError(position, "its content is sealed; name the file of its keys with --keys")
