"""What was once written is readable for ever: each golden journal folds to the outcome that was written beside it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from attrs import astuple

from tests.core.golden import JOURNALS, STORIES, stands
from turnwright import Completed, Happened, MemoryState, Ports, Suspended, journal, resume_agent
from turnwright.evidence import GENESIS, Entry, Evidence, verify
from turnwright.facts import Fact, RunOpened
from turnwright.ports import Appended, Decision, Lease
from turnwright.state import fold
from turnwright.testing import ScriptedModel, text

PATHS = sorted(JOURNALS.glob("*.json"))
READ_ON = {"waiting_for_approval", "in_doubt", "out_of_turns"}


class Line(msgspec.Struct):
    """One entry as it was written."""

    kind: str
    schema: int
    body: msgspec.Raw
    evidence: Evidence


class Golden(msgspec.Struct):
    """One journal as it was written."""

    story: str
    entries: list[Line]
    stands: object


def golden(path: Path) -> tuple[Golden, list[tuple[Fact, bytes]]]:
    """A golden journal, and its facts as this release reads them."""
    written = msgspec.json.decode(path.read_bytes(), type=Golden)
    facts = []
    for place, line in enumerate(written.entries, start=1):
        body = bytes(line.body)
        facts.append((journal.decode(line.kind, line.schema, body, position=place), body))
    return written, facts


def test_every_story_has_its_journal() -> None:
    """`python -m tests.core.golden` writes what is missing."""
    assert sorted(STORIES) == [path.stem for path in PATHS]


def test_the_stories_tell_of_every_kind_of_fact() -> None:
    """A new kind needs a story."""
    told = {type(fact) for path in PATHS for fact, _ in golden(path)[1]}

    assert {*get_args(Fact)} == told


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_golden_journal_folds_to_its_outcome(path: Path) -> None:
    """The ending, the transcript, the usage and what is open are those that were written beside it."""
    written, facts = golden(path)

    assert written.stands == stands(fold([fact for fact, _ in facts]))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_golden_journal_is_written_as_it_was(path: Path) -> None:
    """While a shape keeps its version, this release writes the same bytes; and the evidence is still theirs."""
    written, facts = golden(path)
    opened = facts[0][0]
    assert isinstance(opened, RunOpened)

    for line, (fact, body) in zip(written.entries, facts, strict=True):
        assert line.schema < journal.VERSION or body == journal.encode(fact)[1]
    head = verify([line.evidence for line in written.entries], facts, salt=opened.salt)
    assert head == written.entries[-1].evidence.head != GENESIS


@pytest.mark.promise("N-05")
@pytest.mark.parametrize("path", [path for path in PATHS if path.stem in READ_ON], ids=lambda path: path.stem)
async def test_a_run_of_an_earlier_release_goes_on(path: Path) -> None:
    """Its journal is taken up by this engine, as its definition still is the same one, and comes to its end."""
    written, facts = golden(path)
    opened = facts[0][0]
    assert isinstance(opened, RunOpened)
    state = MemoryState()
    lease = await state.acquire(opened.run_id, holder="earlier", seconds=10.0)
    assert isinstance(lease, Lease)
    lines = enumerate(written.entries, start=1)
    entries = [
        Entry(line.kind, line.schema, bytes(line.body), seq, line.evidence.at, astuple(line.evidence))
        for seq, line in lines
    ]
    assert Appended(len(entries)) == await state.append(opened.run_id, lease.epoch, 0, "all", entries)
    await state.release(opened.run_id, lease.epoch)
    definition = (await STORIES[path.stem]()).agent
    ports = Ports(model=ScriptedModel([text("unused"), text("done")]), state=state)

    waits = await resume_agent(definition, opened.run_id, ports, max_turns=8)
    if isinstance(waits, Suspended):
        [pending] = waits.pending
        waits = await resume_agent(
            definition,
            opened.run_id,
            ports,
            decisions={pending.effect_id: Decision(approved=True)} if pending.kind == "approval" else None,
            resolutions={pending.effect_id: Happened("sent")} if pending.kind == "in-doubt" else None,
        )

    assert isinstance(waits, Completed)
    assert "done" == waits.output
