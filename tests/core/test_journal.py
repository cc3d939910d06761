"""Facts to JSON and back: what was written is read as it was, and nothing else is read at all."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from attrs import evolve as replace
from hypothesis import given, settings, strategies as st

from turnwright import journal
from turnwright.errors import JournalError
from turnwright.facts import (
    ApprovalDecided,
    CallAdmitted,
    CallFinished,
    Fact,
    InboxReceived,
    ModelAnswered,
    RunCompleted,
    RunOpened,
    RunSuspended,
    TurnStarted,
)
from turnwright.inbox import Steer, Word
from turnwright.messages import AssistantMessage, Text, ToolCall, UserMessage
from turnwright.testing.strategies import every_fact, fact_of, words

HALVES = st.text(st.sampled_from("aü\ud800\udfff\ud83d\ude00"), min_size=1, max_size=4)


def read(kind: str, body: bytes, *, version: int = journal.VERSION) -> Fact:
    """Read one fact, the third of some journal."""
    return journal.decode(kind, version, body, position=3)


@pytest.mark.parametrize("kind", get_args(Fact))
@given(data=st.data())
@settings(max_examples=15)
def test_every_fact_is_read_as_it_was_written(kind: type[Fact], data: st.DataObject) -> None:
    """Encoding and decoding are inverse for every kind of fact, and for whatever its fields may hold; what was read is
    written in the same bytes.
    """
    fact = data.draw(fact_of(kind))
    written, body = journal.encode(fact)

    assert (fact, fact) == (written, read(kind.__name__, body))
    assert body == journal.encode(read(kind.__name__, body))[1]


@given(words())
def test_every_word_is_read_as_it_was_written(word: Word) -> None:
    """The inbox keeps words by the same codec."""
    assert word == journal.decode_word(journal.encode_word(word))


@given(every_fact(), st.sampled_from(["", "ModelMused", "runopened", "object", "RunOpened "]))
def test_an_unknown_kind_is_refused(fact: Fact, kind: str) -> None:
    """A kind that this release does not know stops the fold, with the position and what to do."""
    with pytest.raises(JournalError, match=r"journal entry 3: .* newer release; upgrade") as caught:
        read(kind, journal.encode(fact)[1])

    assert 3 == caught.value.position


@pytest.mark.parametrize("version", [journal.VERSION + 1, 99, 0, -1])
@given(fact=every_fact())
def test_a_version_that_no_release_up_to_this_one_wrote_is_refused(version: int, fact: Fact) -> None:
    """What is unknown is never guessed."""
    with pytest.raises(JournalError):
        read(type(fact).__name__, journal.encode(fact)[1], version=version)


@given(st.sampled_from([each.__name__ for each in get_args(Fact)]), st.binary(max_size=40))
def test_hostile_bytes_are_a_journal_error(kind: str, body: bytes) -> None:
    """Whatever lies in a body, reading it gives a fact or a JournalError."""
    try:
        fact = read(kind, body)
    except JournalError:
        return

    assert kind == type(fact).__name__


@given(st.data(), every_fact())
def test_a_body_with_a_field_of_another_kind_is_refused_or_reads_as_it_says(data: st.DataObject, fact: Fact) -> None:
    """A value is never bent to fit: a text is no number, a number no truth, and null is nothing else."""
    body = msgspec.json.decode(journal.encode(fact)[1])
    name = data.draw(st.sampled_from(sorted(body) or ["none"]))
    body[name] = data.draw(st.sampled_from([None, True, 7, 1.5, "seven", "", [], {}]))
    try:
        changed = read(type(fact).__name__, msgspec.json.encode(body))
    except JournalError:
        return

    assert body == msgspec.json.decode(journal.encode(changed)[1])


@pytest.mark.parametrize(
    ("fact", "name", "lie"),
    [
        (ApprovalDecided(1, 0, False, "d", None), "approved", "no"),
        (ApprovalDecided(1, 0, False, "d", None), "approved", 1),
        (TurnStarted(1), "turn", "1"),
        (TurnStarted(1), "turn", 1.5),
        (TurnStarted(1), "turn", True),
        (RunSuspended("approval"), "reason", "boredom"),
        (RunSuspended("approval"), "detail", 7),
        (CallFinished(1, 0, 1, None, (), False, 1.0), "seconds", "1"),
    ],
)
def test_a_lie_about_one_field_is_refused(fact: Fact, name: str, lie: object) -> None:
    """`"approved": "no"` does not approve."""
    body = msgspec.json.decode(journal.encode(fact)[1]) | {name: lie}

    with pytest.raises(JournalError, match=type(fact).__name__):
        read(type(fact).__name__, msgspec.json.encode(body))


def test_a_whole_number_of_seconds_is_read_as_seconds() -> None:
    """JSON has one kind of number: what another writer shortened to 2 still is a duration."""
    body = msgspec.json.decode(journal.encode(CallFinished(1, 0, 1, None, (), False, 2.0))[1]) | {"seconds": 2}

    assert CallFinished(1, 0, 1, None, (), False, 2.0) == read("CallFinished", msgspec.json.encode(body))


@pytest.mark.parametrize("body", [b"null", b"[]", b"{", b'{"turn":1}{}', b"[" * 100_000, b'{"turn":1e999}', b"\xff"])
def test_a_broken_body_is_a_journal_error_that_names_the_kind(body: bytes) -> None:
    """The position and the kind are named, and the cause is chained."""
    with pytest.raises(JournalError, match="journal entry 3: the body is no ModelAsked") as caught:
        read("ModelAsked", body)

    assert caught.value.__cause__ is not None


@given(HALVES)
def test_half_a_surrogate_pair_is_replaced_in_the_fact_and_in_its_json(broken: str) -> None:
    """What is folded is what was written, wherever the broken text stood: in a part, a key, a list, a word."""
    whole = broken.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    facts: list[tuple[Fact, Fact]] = [
        (
            ModelAnswered(1, 1, AssistantMessage((Text(broken), ToolCall(broken, "f", broken))), 0.0),
            ModelAnswered(1, 1, AssistantMessage((Text(whole), ToolCall(whole, "f", whole))), 0.0),
        ),
        (CallAdmitted(1, 0, "f", {broken: [broken]}, "d", 0), CallAdmitted(1, 0, "f", {whole: [whole]}, "d", 0)),
        (InboxReceived(1, Steer(UserMessage(broken))), InboxReceived(1, Steer(UserMessage(whole)))),
        (RunCompleted(broken), RunCompleted(whole)),
    ]

    for fact, expected in facts:
        written, body = journal.encode(fact)
        assert (expected, expected) == (written, read(type(fact).__name__, body))


def test_a_fact_that_needs_no_mending_is_not_copied() -> None:
    """Encoding costs no copy where the text is sound."""
    fact = RunCompleted({"a": ["b"]})

    assert fact is journal.encode(fact)[0]


def test_a_digest_is_that_of_the_json() -> None:
    """Equal facts have equal digests, and a changed field changes it."""
    opened = RunOpened("r", "agent", "f", "in", (UserMessage("in"),), 8, None, "salt")

    assert journal.digest(opened) == journal.digest(replace(opened))
    assert journal.digest(opened) != journal.digest(replace(opened, max_turns=9))


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"type":"mutter"}', b'{"type":["a"]}', b'{"type":"steer"}', b"[]", b"\xff"]
)
def test_hostile_bytes_in_an_inbox_are_a_journal_error(body: bytes) -> None:
    """A store may hold anything; what is no word is refused as what it is."""
    with pytest.raises(JournalError, match="no word"):
        journal.decode_word(body)
