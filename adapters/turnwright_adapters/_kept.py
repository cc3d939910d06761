"""How a database keeps entries and words: as values for a row, with their content as it is, dropped, or sealed.

Rule: what is sealed is bound to its place, so that none can be moved to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from turnwright import journal
from turnwright.canonical import decode, encode
from turnwright.errors import PortError
from turnwright.evidence import KINDS as EVIDENCE_KINDS, Entry, Item
from turnwright.inbox import Word
from turnwright.ports import Begun, Cipher, Committed, InFlight, Mismatch

__all__ = ["Content", "Kept", "KeptResults", "Row", "item_of"]

Content: TypeAlias = Literal["keep", "drop", "sealed"]

Row: TypeAlias = tuple[object, ...]

SEALED: Final = "sealed:"
"""How a sealed digest begins."""

KINDS: Final = {fact.__name__: kind for fact, kind in EVIDENCE_KINDS.items()}


class _Folded(msgspec.Struct):
    """The part of an InboxReceived that says which word it folds."""

    position: int


_folded = msgspec.json.Decoder(_Folded).decode


class Kept:
    """What becomes of content in the store of one *tenant*; sealed by *cipher* is the default where one is given."""

    def __init__(self, tenant: str, content: Content | None, cipher: Cipher | None) -> None:
        if content is None:
            content = "keep" if cipher is None else "sealed"
        if content not in ("keep", "drop", "sealed"):
            raise ValueError(f"content is keep, drop or sealed, not {content!r}")
        if (content == "sealed") != (cipher is not None):
            raise ValueError("content is sealed if, and only if, there is a cipher")
        self._tenant = tenant
        self._dropped = content == "drop"
        self._cipher = cipher

    def row(self, run_id: str, entry: Entry) -> Row:
        """Kind, schema, time, the nine tokens of its evidence, digest, head, body."""
        _, _, _, *tokens, digest, head = entry.item
        body: bytes | None = entry.body
        if self._dropped:
            body = None
        elif self._cipher is not None:
            body = self._cipher.seal(entry.body, self._bound("journal", run_id, entry.seq, entry.kind, entry.schema))
        return (
            *(entry.kind, entry.schema, entry.at, *tokens),
            *(bytes.fromhex(digest), bytes.fromhex(head), body),
        )

    def entry(self, run_id: str, row: Row) -> Entry:
        """The entry of the row of an evidence item, schema and body."""
        *_, schema, body = row
        item = item_of(row[:-2])
        seq, at, kind = item[0], item[1], str(row[2])
        assert isinstance(schema, int) and isinstance(body, bytes | None)
        if body is None:
            body = b""
        elif self._cipher is not None:
            body = self._cipher.open(body, self._bound("journal", run_id, seq, kind, schema))
        return Entry(kind, schema, body, seq, at, item)

    def folded(self, facts: Sequence[Entry]) -> list[int]:
        """The places of the words to drop: those that *facts* fold. Before, nobody could say anything to a run."""
        if not self._dropped:
            return []
        return [_folded(entry.body).position for entry in facts if entry.kind == "InboxReceived"]

    def said(self, run_id: str, position: int, word: bytes, *, opening: bytes | None) -> bytes:
        """A word, encoded, as it is kept. *opening* is how the run's first entry begins, if that is known.

        PortError where the run's owner could not read it, and so could never go on: one of the two is sealed.
        """
        if opening and (opening != b"{") != (self._cipher is not None):
            its, ours = ("sealed", "has no cipher") if self._cipher is None else ("not sealed", "seals")
            raise PortError(f"run {run_id!r} is {its}, and this store {ours}; speak to it through a store like its own")
        if self._cipher is None:
            return word
        return self._cipher.seal(word, self._bound("inbox", run_id, position))

    def word(self, run_id: str, position: int, body: bytes) -> Word:
        """The word that was kept."""
        if self._cipher is not None:
            body = self._cipher.open(body, self._bound("inbox", run_id, position))
        return journal.decode_word(body)

    def _bound(self, *place: object) -> bytes:
        return msgspec.json.encode((self._tenant, *place))


class KeptResults:
    """What becomes of the results of keys and of their digests, and what a row of a key says.

    Where there is a *cipher*, both are sealed: the digest of a short argument can be guessed.
    """

    def __init__(self, cipher: Cipher | None) -> None:
        self._cipher = cipher

    def digest(self, namespace: str, key: str, digest: str) -> str:
        """The digest of the arguments as it is kept."""
        if self._cipher is None:
            return digest
        return SEALED + self._cipher.seal(digest.encode(), _bound("digest", namespace, key)).hex()

    def result(self, namespace: str, key: str, result: object) -> bytes:
        """A result as it is kept."""
        kept = encode(result)  # type: ignore[arg-type]
        return kept if self._cipher is None else self._cipher.seal(kept, _bound("result", namespace, key))

    def begun(self, namespace: str, key: str, digest: str, row: tuple[str, str, bytes | None]) -> Begun:
        """What a key that was begun before says to whoever begins it again with arguments of *digest*."""
        known, state, result = row
        if self._cipher is not None:
            known = self._cipher.open(_unhexed(known), _bound("digest", namespace, key)).decode()
        elif known.startswith(SEALED):
            raise PortError(f"key {key!r} is sealed, and this store has no cipher; give it the one that sealed the key")
        if known != digest:
            return Mismatch()
        if state != "committed" or result is None:
            return InFlight()
        if self._cipher is not None:
            result = self._cipher.open(result, _bound("result", namespace, key))
        return Committed(decode(result))


def _bound(what: str, namespace: str, key: str) -> bytes:
    return msgspec.json.encode(("idempotency", what, namespace, key))


def _unhexed(text: str) -> bytes:
    """The bytes of a sealed digest; none where it is no such thing, which no cipher opens."""
    try:
        return bytes.fromhex(text.removeprefix(SEALED)) if text.startswith(SEALED) else b""
    except ValueError:
        return b""


def item_of(row: Row) -> Item:
    """The evidence item of a row that begins with place, time and kind, and ends with digest and head."""
    seq, at, kind, *tokens, digest, head = row
    assert isinstance(digest, bytes) and isinstance(head, bytes)
    return (seq, at, KINDS.get(str(kind), str(kind)), *tokens, digest.hex(), head.hex())  # type: ignore[return-value]
