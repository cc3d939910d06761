"""Write the journal of a made-up run, as the engine would: numbered, timed, with chained evidence; awkward texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from turnwright import journal
from turnwright.evidence import Entry, Item
from turnwright.facts import (
    CallAdmitted,
    CallFinished,
    CallStarted,
    Fact,
    ModelAnswered,
    ModelAsked,
    RunOpened,
    TurnStarted,
)
from turnwright.messages import AssistantMessage, Text, ToolCall, UserMessage

__all__ = ["AT", "AWKWARD", "Author", "Told", "told"]

AT: Final = 1_800_000_000.0
"""When a made-up run begins."""

AWKWARD: Final = (
    "plain",
    "two words",
    'it\'s "quoted"; DROP TABLE journal; --',
    "%_*?[a-z]",
    "../../etc/passwd",
    "Ünïcödé ☃ 🙂 漢字",
    "e\u0301 is not \u00e9",
    "right \u202e to left",
    "nul \x00 inside",
    "line\r\nbreak",
    "\ufffd\uffff",
    "x" * 1000,
)
"""Texts that a store may stumble over: quoting, patterns, paths, code points, length."""

Told: TypeAlias = tuple[str, int, bytes, int, float, Item]


def told(entries: Iterable[Entry]) -> list[Told]:
    """All that entries hold, to compare them by."""
    return [(each.kind, each.schema, each.body, each.seq, each.at, each.item) for each in entries]


class Author:
    """Writes one run. What was written so far is in *entries* and *facts*; each fact is a second and a bit after the
    one before.
    """

    def __init__(self, run_id: str = "r1", definition: str = "clerk", *, at: float = AT) -> None:
        self.run_id = run_id
        self.salt = "ab" * 16
        self.entries: list[Entry] = []
        self.facts: list[Fact] = []
        self._definition = definition
        self._at = at

    def opening(self, said: str = "hello") -> list[Entry]:
        """The first entry of the run: *said* is its input."""
        message = UserMessage(said)
        return self.write(
            RunOpened(self.run_id, self._definition, "f" * 64, said, (message,), 8, None, self.salt),
        )

    def turn(self, said: str = "3") -> list[Entry]:
        """Six entries: a turn in which the model calls a tool, which gives *said*."""
        turn = 1 + sum([isinstance(fact, TurnStarted) for fact in self.facts])
        call = ToolCall(f"c{turn}", "add", '{"a":1,"b":2}')
        return self.write(
            TurnStarted(turn),
            ModelAsked(turn, 1, "auto"),
            ModelAnswered(turn, 1, AssistantMessage((call,), "tool_calls"), 0.25),
            CallAdmitted(turn, 0, "add", {"a": 1, "b": 2}, "d" * 64, 0),
            CallStarted(turn, 0, 1, f"{self.run_id}:{turn}.0"),
            CallFinished(turn, 0, 1, said, (Text(said),), False, 0.125),
        )

    def write(self, *facts: Fact) -> list[Entry]:
        """The entries of *facts*, after all that was written before."""
        written: list[Entry] = []
        for fact in facts:
            tidy, body = journal.encode(fact)
            seq = len(self.entries) + 1
            before = self.entries[-1] if self.entries else None
            at = self._at + seq * 1.1
            kind, salt = type(tidy).__name__, self.salt.encode()
            entry = Entry(kind, journal.VERSION, body, seq, at, None, salt, before, tidy)
            self.entries.append(entry)
            self.facts.append(tidy)
            written.append(entry)
        return written
