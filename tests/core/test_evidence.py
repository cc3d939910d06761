"""Evidence tells what happened without a word of what was said, and nobody can change it unseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, get_args, get_type_hints

import pytest
from attrs import evolve as replace, fields, has
from hypothesis import given, settings, strategies as st

from tests.core.test_state import PAID
from turnwright import journal
from turnwright.errors import JournalError
from turnwright.evidence import GENESIS, KINDS, Entry, Evidence, Item, project, verify
from turnwright.facts import CallAdmitted, Fact, Fault, RunFailed, RunMigrated
from turnwright.testing.strategies import every_fact, fact_of

T = TypeVar("T")

CANARY = "kanarienvogel"


def chained(facts: Sequence[Fact], *, salt: str = "salt") -> list[Evidence]:
    """The evidence of *facts*, one after another."""
    items: list[Item] = []
    for seq, fact in enumerate(facts, start=1):
        previous = items[-1][-1] if items else GENESIS
        items.append(project(fact, journal.encode(fact)[1], seq, 100.0 + seq, salt.encode(), previous))
    return [Evidence(*item) for item in items]


def planted(value: T) -> T:
    """*value* with a canary in every text that is not one of a closed set, however deep."""
    match value:
        case str():
            return CANARY  # type: ignore[return-value]
        case dict():
            return {f"{CANARY}{place}": planted(each) for place, each in enumerate(value.values())}  # type: ignore[return-value]
        case list() | tuple():
            return type(value)([planted(each) for each in value])  # type: ignore[return-value]
        case _ if has(type(value)):
            hints = get_type_hints(type(value))
            free = [each.name for each in fields(type(value)) if each.init and not _closed(hints[each.name])]  # type: ignore[arg-type]
            return replace(value, **{name: planted(getattr(value, name)) for name in free})  # type: ignore[type-var]
        case _:
            return value


def _closed(declared: object) -> bool:
    return all([isinstance(each, str) for each in get_args(declared)] or [False])


@pytest.mark.promise("N-04", "N-14")
@pytest.mark.parametrize("kind", get_args(Fact))
@given(data=st.data())
@settings(max_examples=10)
def test_no_text_of_a_fact_gets_into_its_evidence(kind: type[Fact], data: st.DataObject) -> None:
    """Only closed words, counts and digests do, and the name of a tool that the definition declares."""
    fact = planted(data.draw(fact_of(kind)))
    if isinstance(fact, CallAdmitted):
        fact = replace(fact, name="pay")
    if isinstance(fact, RunFailed):
        fact = replace(fact, fault=Fault("output", CANARY, (CANARY,)))

    [item] = chained([fact])

    assert CANARY[:5] not in repr(item)
    assert KINDS[type(fact)] == item.kind


@given(every_fact())
def test_evidence_is_small_however_large_its_fact(fact: Fact) -> None:
    """Every text in it is bounded."""
    [item] = chained([fact])

    texts = (item.kind, item.code, item.digest, item.head)
    assert [] == [each for each in texts if len(each) > 64 and not isinstance(fact, RunFailed)]
    assert len(journal.encode(fact)[1]) == item.size


@pytest.mark.promise("N-14")
def test_the_chain_is_that_of_the_facts() -> None:
    """It verifies by itself, and against the journal that it was made of."""
    evidence = chained(PAID)
    facts = [(fact, journal.encode(fact)[1]) for fact in PAID]

    assert evidence[-1].head == verify(evidence) == verify(evidence, facts, salt="salt")
    assert [*range(1, len(PAID) + 1)] == [each.seq for each in evidence]


CHANGED: dict[str, object] = {
    "at": 1.0,
    "kind": "odd",
    "turn": 99,
    "index": 9,
    "attempt": 9,
    "code": "odd",
    "name": "odd",
    "ms": 9999,
    "input_tokens": 99,
    "output_tokens": 99,
    "size": 1,
    "digest": "0" * 32,
    "head": "0" * 64,
}


@pytest.mark.promise("N-14")
@given(st.integers(0, len(PAID) - 1), st.sampled_from(sorted(CHANGED)))
def test_a_changed_field_of_any_item_breaks_the_chain_there(place: int, field: str) -> None:
    """Whichever it is; the error names the position."""
    evidence = chained(PAID)
    evidence[place] = replace(evidence[place], **{field: CHANGED[field]})

    with pytest.raises(JournalError) as caught:
        verify(evidence)
    assert place + 1 == caught.value.position


@pytest.mark.promise("N-14")
@given(st.integers(0, len(PAID) - 2), st.data())
def test_an_item_that_was_dropped_doubled_or_moved_breaks_the_chain(place: int, data: st.DataObject) -> None:
    """Unless all that follow are dropped too, which the head in the run's outcome tells."""
    evidence = chained(PAID)
    other = data.draw(st.integers(place + 1, len(PAID) - 1))
    swapped = [*evidence]
    swapped[place], swapped[other] = swapped[other], swapped[place]

    for broken in (
        [*evidence[:place], *evidence[place + 1 :]],
        [*evidence[: place + 1], *evidence[place:]],
        swapped,
    ):
        with pytest.raises(JournalError):
            verify(broken)
    assert verify(evidence) != verify(evidence[: place + 1])


@pytest.mark.promise("N-14")
@given(st.integers(0, len(PAID) - 2))
def test_a_forged_past_does_not_fit_an_honest_future(place: int) -> None:
    """Each item holds all before it: who makes one anew must make anew all that follow."""
    honest = chained(PAID)
    forged = chained([*PAID[:place], RunMigrated("forged"), *PAID[place + 1 :]])

    with pytest.raises(JournalError) as caught:
        verify([*forged[: place + 1], *honest[place + 1 :]])
    assert place + 2 == caught.value.position


def test_evidence_of_another_journal_is_found_out_where_it_parts() -> None:
    """A fact that was changed, added or taken away in the journal does not fit an honest chain."""
    facts = [(fact, journal.encode(fact)[1]) for fact in PAID]
    evidence = chained(PAID)
    changed = [*facts]
    changed[4] = (PAID[4], changed[4][1] + b" ")

    for other, position in ((changed, 5), (facts[:-1], len(PAID)), ([*facts, facts[-1]], len(PAID) + 1)):
        with pytest.raises(JournalError) as caught:
            verify(evidence, other, salt="salt")
        assert position == caught.value.position
    with pytest.raises(JournalError):
        verify(evidence, facts, salt="another salt")


def test_equal_facts_of_two_runs_have_unlike_digests() -> None:
    """The salt keys them, so that nobody can guess short arguments from the evidence of another run."""
    assert chained(PAID, salt="a")[5].digest != chained(PAID, salt="b")[5].digest


def test_a_salt_of_any_length_serves() -> None:
    """An ids port may give what it likes."""
    assert chained(PAID[:1], salt="ü" * 200)


@given(st.permutations(range(len(PAID))), st.sets(st.integers(0, len(PAID) - 1)))
def test_evidence_that_is_worked_out_late_is_the_same_evidence(order: list[int], gone: set[int]) -> None:
    """Whoever looks first, at whichever item, and whether or not the facts are still at hand: the chain is the same."""
    entries: list[Entry] = []
    for seq, fact in enumerate(PAID, start=1):
        body = journal.encode(fact)[1]
        before = entries[-1] if entries else None
        entries.append(Entry(type(fact).__name__, 1, body, seq, 100.0 + seq, None, b"salt", before, fact))
    for place in gone:
        entries[place].let_go()

    seen = {place: entries[place].evidence for place in order}

    assert chained(PAID) == [seen[place] for place in range(len(PAID))]


def test_a_long_chain_is_worked_out_without_recursion() -> None:
    """A run of many thousand facts may be looked at for the first time at its end."""
    last: Entry | None = None
    for seq in range(1, 5001):
        last = Entry("RunMigrated", 1, b'{"fingerprint":"f"}', seq, 0.0, None, b"s", last, PAID[8])

    assert last is not None
    assert 5000 == last.evidence.seq
