"""The content-free projection of a fact: tokens, codes, counts, sizes and keyed digests, in a hash chain.

Rule: no word of a person, a model or a tool gets in (tests/laws/test_projection.py plants canaries and looks for
them). A tool's name appears only where the definition declared it; a digest is keyed with the run's salt, which stays
in the journal, so that short arguments cannot be guessed from it.

    digest = BLAKE2b-128(salt, the fact's JSON)        head = SHA-256(previous head, the item's own fields)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b, sha256
from typing import Final, TypeAlias, get_args

import msgspec
from attrs import astuple, define, field, frozen

from turnwright.errors import JournalError
from turnwright.facts import (
    ApprovalDecided,
    ApprovalRequested,
    CallAdmitted,
    CallFinished,
    CallInDoubt,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    InboxReceived,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    ModelLost,
    OutputRejected,
    RunCancelled,
    RunFailed,
    RunSuspended,
    TurnStarted,
)
from turnwright.journal import decode

__all__ = ["GENESIS", "Entry", "Evidence", "Item", "project", "verify"]

GENESIS: Final = "0" * 64
"""The head before the first fact."""


@frozen
class Evidence:
    """One step of a run, told without content. *at* is in seconds since 1970, *ms* a duration in milliseconds."""

    seq: int
    at: float
    kind: str
    turn: int
    index: int
    """The call's place in its turn, -1 for what is not about a call."""
    attempt: int
    code: str
    """A closed word: the stop reason, error kind, stage, or reason; empty where the kind says it all."""
    name: str
    """The tool, where the definition declares it."""
    ms: int
    input_tokens: int
    output_tokens: int
    size: int
    """Bytes of the fact in the journal."""
    digest: str
    head: str


Item: TypeAlias = tuple[int, float, str, int, int, int, str, str, int, int, int, int, str, str]
"""The fields of an `Evidence`, in order: what is stored and sent; the object is made where somebody looks at it."""


@define(eq=False)
class Entry:
    """A fact in its place in the journal: *kind*, *schema* version, JSON *body*, place, time, and its evidence.

    A store writes body and `item` in one transaction. The item is worked out when it is first looked at, which a
    durable store does at once and memory perhaps never.
    """

    kind: str
    schema: int
    body: bytes
    seq: int
    at: float
    _item: Item | None = None
    _salt: bytes = field(default=b"", repr=False)
    """The salt of the run; like the entry before it, it is kept until the item is worked out."""
    _previous: Entry | None = field(default=None, repr=False)
    _fact: Fact | None = field(default=None, repr=False)

    @property
    def item(self) -> Item:
        """The evidence of this fact, chained to that of every fact before it."""
        if self._item is None:
            self._work_out()
            assert self._item is not None
        return self._item

    @property
    def evidence(self) -> Evidence:
        """The evidence item, as an object."""
        return Evidence(*self.item)

    def let_go(self) -> None:
        """Forget the fact itself: whoever wants to know what it was can read the body."""
        self._fact = None

    def _work_out(self) -> None:
        chain: list[Entry] = []
        entry: Entry | None = self
        while entry is not None and entry._item is None:
            chain.append(entry)
            entry = entry._previous
        head = GENESIS if entry is None else entry.item[-1]
        for entry in reversed(chain):
            fact = entry._fact or decode(entry.kind, entry.schema, entry.body, position=entry.seq)
            entry._item = project(fact, entry.body, entry.seq, entry.at, entry._salt, head)
            entry._previous = entry._fact = None
            head = entry._item[-1]


# turn, index, attempt, code, name, seconds, input tokens, output tokens
Tokens = tuple[int, int, int, str, str, float, int, int]

_PROJECTIONS: Final[dict[type, Callable[..., Tokens]]] = {
    InboxReceived: lambda f: (0, -1, 0, f"{f.word.type}_refused" if f.refused else f.word.type, "", 0.0, 0, 0),
    TurnStarted: lambda f: (f.turn, -1, 0, "", "", 0.0, 0, 0),
    ModelAsked: lambda f: (f.turn, -1, f.attempt, "", "", 0.0, 0, 0),
    ModelAnswered: lambda f: (
        f.turn,
        -1,
        f.attempt,
        f.message.stop_reason,
        "",
        f.seconds,
        f.message.usage.input_tokens,
        f.message.usage.output_tokens,
    ),
    ModelFailed: lambda f: (
        f.turn,
        -1,
        f.attempt,
        f.kind,
        "",
        f.seconds,
        f.usage.input_tokens,
        f.usage.output_tokens,
    ),
    ModelLost: lambda f: (f.turn, -1, f.attempt, "", "", 0.0, 0, 0),
    CallAdmitted: lambda f: (f.turn, f.index, 0, "approval" if f.needs_approval else "", f.name, 0.0, 0, 0),
    CallRefused: lambda f: (f.turn, f.index, 0, f.stage, "", 0.0, 0, 0),
    ApprovalRequested: lambda f: (f.turn, f.index, 0, "", "", 0.0, 0, 0),
    ApprovalDecided: lambda f: (f.turn, f.index, 0, "approved" if f.approved else "denied", "", 0.0, 0, 0),
    CallStarted: lambda f: (f.turn, f.index, f.attempt, "", "", 0.0, 0, 0),
    CallFinished: lambda f: (f.turn, f.index, f.attempt, "error" if f.is_error else "ok", "", f.seconds, 0, 0),
    CallInDoubt: lambda f: (f.turn, f.index, f.attempt, "", "", 0.0, 0, 0),
    CallResolved: lambda f: (f.turn, f.index, 0, "happened" if f.happened else "did_not_happen", "", 0.0, 0, 0),
    OutputRejected: lambda f: (f.turn, -1, 0, "", "", 0.0, 0, 0),
    RunSuspended: lambda f: (0, -1, 0, f.reason, "", 0.0, 0, 0),
    RunFailed: lambda f: (0, -1, 0, f.fault.code, "", 0.0, 0, 0),
    RunCancelled: lambda f: (0, -1, len(f.in_doubt), "", "", 0.0, 0, 0),
}
_BARE: Final[Tokens] = (0, -1, 0, "", "", 0.0, 0, 0)

_encode = msgspec.json.Encoder().encode


def _kind(fact: type) -> str:
    return "".join(["_" + letter.lower() if letter.isupper() else letter for letter in fact.__name__])[1:]


KINDS: Final = {fact: _kind(fact) for fact in get_args(Fact)}


def project(fact: Fact, body: bytes, seq: int, at: float, salt: bytes, previous: str) -> Item:
    """Make the evidence of one fact. *body* is its JSON, *previous* the head before it (`GENESIS` for the first)."""
    kind = type(fact)
    projection = _PROJECTIONS.get(kind)
    turn, index, attempt, code, name, seconds, tokens_in, tokens_out = projection(fact) if projection else _BARE
    digest = blake2b(body, key=salt[:64], digest_size=16).hexdigest()  # 64 bytes are the longest key there is
    ms = round(seconds * 1000)
    fields = (seq, at, KINDS[kind], turn, index, attempt, code, name, ms, tokens_in, tokens_out, len(body), digest)
    return (*fields, _link(previous, fields))


def _link(previous: str, fields: tuple[object, ...]) -> str:
    return sha256(_encode((previous, fields))).hexdigest()


def verify(evidence: Iterable[Evidence], facts: Sequence[tuple[Fact, bytes]] = (), *, salt: str = "") -> str:
    """Check a whole chain and return its head; with *facts* and *salt* also that it is their projection.

    Raises JournalError at the first item that was changed, dropped, added or moved.
    """
    head, seq = GENESIS, 0
    for seq, item in enumerate(evidence, start=1):
        *fields, claimed = astuple(item)
        if item.seq != seq or claimed != _link(head, tuple(fields)):
            raise JournalError(seq, "the evidence chain is broken here")
        if facts:
            fact, body = facts[seq - 1] if seq <= len(facts) else (None, b"")
            if fact is None or Evidence(*project(fact, body, seq, item.at, salt.encode(), head)) != item:
                raise JournalError(seq, f"the evidence is not that of this {type(fact).__name__}")
        head = claimed
    if len(facts) > seq:
        raise JournalError(seq + 1, f"the evidence of this {type(facts[seq][0]).__name__} is missing")
    return head
