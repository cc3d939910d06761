"""A document generator: it makes release notes of commit subjects, and climbs no higher than it must.

    python examples/document_generator.py examples/commits.txt

The ladder has three steps. `table` sorts by the first word of each subject and needs no model; it is accepted if it
knows every word. `model` asks a small model about those that the table does not know, and for one sentence about the
release; what is wrong with the sentence is told to the next round, which repairs it. `plain` lists everything under one
heading: the answer of last resort. The gate lets no document pass in which a subject is lost, made up or told twice.

The model is the one that ships for trying things out; `--replay` needs none and says again what it once said. With
`--state runs.db` the work survives the death of the process: run it again and it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict, get_args

from attrs import frozen

from turnwright import AgentDefinition, Completed, Ports, run_agent
from turnwright.harness import (
    AgentEvent,
    Retry,
    StepContext,
    StepEvent,
    Verdict,
    create_agent,
    define_workflow,
    step,
)
from turnwright.ports import Model
from turnwright.testing import RecordedModel
from turnwright_adapters.local import LocalModel
from turnwright_adapters.sqlite import SqliteState

Heading: TypeAlias = Literal["Added", "Changed", "Fixed", "Tests"]
HEADINGS: tuple[Heading, ...] = get_args(Heading)

TABLE: Mapping[str, Heading] = {
    **dict.fromkeys(["Add", "Build", "Write", "Take", "Keep", "Run", "Put"], "Added"),
    **dict.fromkeys(["Change", "Rename", "Move", "Drop", "Let", "Name", "Say", "Tell", "Give", "Make"], "Changed"),
    **dict.fromkeys(["Fix", "Refuse", "Never", "Guard", "Close"], "Fixed"),
    **dict.fromkeys(["Test", "Prove", "Hold", "Measure", "Crash", "Kill", "Pin"], "Tests"),
}

RECORDING = Path(__file__).with_name("recordings") / "document_generator.jsonl"
LONGEST = 110

DOES: Mapping[Heading, str] = {
    "Added": "adds features",
    "Changed": "changes some",
    "Fixed": "fixes bugs",
    "Tests": "tests more",
}


class Services(TypedDict):
    """What the steps may use."""

    model: Model


@frozen
class Document:
    """Release notes: one sentence, and the subjects under their headings."""

    summary: str
    sections: dict[str, list[str]]

    def __str__(self) -> str:
        sections = [
            f"## {heading}\n\n" + "\n".join([f"- {subject}" for subject in subjects])
            for heading, subjects in self.sections.items()
            if subjects
        ]
        return "\n\n".join(["# Release notes", self.summary, *sections]) + "\n"


Context: TypeAlias = StepContext[list[str], Services]


@frozen
class Choice:
    """Where a subject belongs."""

    heading: Heading


SORTER = AgentDefinition(
    name="sorter",
    instruction=(
        "Sort a commit of a software project under one heading. Added: something new. Changed: something works "
        "otherwise. Fixed: something was wrong. Tests: about tests and measurements alone."
    ),
    output=Choice,
    options={"temperature": 0, "max_tokens": 32},
)

WRITER = AgentDefinition(
    name="writer",
    instruction="Write one short sentence about a release of a software project, for its users.",
    options={"temperature": 0, "max_tokens": 60, "stop": ["\n"]},
)


# --- the steps


def by_table(context: Context) -> Document:
    """Sort by the first word, as far as the table knows it."""
    return _document("Small things, all of them known.", {each: TABLE.get(_verb(each)) for each in context.input})


def knows_all(document: Document, context: Context) -> Verdict:
    """Accept it if the table knew every word."""
    unknown = sorted({_verb(each) for each in context.input if _verb(each) not in TABLE})
    if not unknown:
        return Verdict(accepted=True)
    return Verdict(accepted=False, reason="unknown-verbs", detail=f"no heading for {', '.join(unknown)}")


async def by_model(context: Context) -> Document:
    """Let the model sort what the table does not know, and say in a sentence what it is about."""
    known: dict[str, Heading | None] = {each: TABLE.get(_verb(each)) for each in context.input}
    if context.feedback is None:
        ports = Ports(context.services["model"])
        for subject in [each for each, heading in known.items() if heading is None]:
            outcome = await run_agent(SORTER, subject, ports)
            known[subject] = outcome.output.heading if isinstance(outcome, Completed) else "Changed"
    else:
        known = _sorted_before(context.feedback)  # only the sentence was wrong
    document = _document("", known)
    counts = ", ".join([f"{len(each)} {heading.lower()}" for heading, each in document.sections.items()])
    asked = f"The release: {counts}. Among them: {context.input[0]}; {context.input[-1]}."
    if context.feedback is not None:
        does = [says for heading, says in DOES.items() if document.sections[heading]]
        asked = f"A release that {', '.join(does)}. Write without numbers{', in five words' * (context.round > 2)}."
    written = await run_agent(WRITER, asked, Ports(context.services["model"]))
    said = written.output.strip() if isinstance(written, Completed) else ""
    return Document(said, document.sections)


def reads_well(document: Document) -> Verdict:
    """Accept one plain sentence; say what is wrong with anything else."""
    said = document.summary
    wrong = [
        (not said, "empty", "it is empty"),
        (len(said) > LONGEST, "too-long", f"it has {len(said)} characters and may have {LONGEST}"),
        ("\n" in said or said.count(". ") > 0, "several", "it is more than one sentence"),
        (bool(re.search(r"\d", said)), "counts", "it must hold no numbers"),
    ]
    for is_wrong, reason, detail in wrong:
        if is_wrong:
            return Verdict(accepted=False, reason=reason, detail=detail, data=document.sections)
    return Verdict(accepted=True)


def plain(context: Context) -> Document:
    """List everything."""
    return Document("What changed.", {"Changes": context.input})


def complete(document: Document, context: Context) -> Verdict:
    """Let no document pass that loses a subject, makes one up or tells one twice."""
    told = sorted([each for subjects in document.sections.values() for each in subjects])
    if told == sorted(context.input):
        return Verdict(accepted=True)
    return Verdict(accepted=False, reason="incomplete", detail="a subject is lost, made up or told twice")


def _verb(subject: str) -> str:
    return subject.partition(" ")[0]


def _document(summary: str, headings: Mapping[str, Heading | None]) -> Document:
    return Document(summary, {name: [each for each, of in headings.items() if of == name] for name in HEADINGS})


def _sorted_before(feedback: Verdict) -> dict[str, Heading | None]:
    assert isinstance(feedback.data, dict)
    return {subject: heading for heading in HEADINGS for subject in feedback.data[heading]}


LADDER = define_workflow(
    "release-notes",
    [
        step("table", run=by_table, until=knows_all, replay="safe"),
        step("model", run=by_model, until=reads_well, retry=Retry(3), replay="safe"),
        step("plain", run=plain),
    ],
    exit_gate=complete,
    result=Document,
)


# --- putting it together


def show(event: AgentEvent) -> None:
    """Tell how far it has come."""
    if isinstance(event, StepEvent) and event.data is not None:
        print(f"{event.step}: {event.data}", file=sys.stderr)


async def generate(subjects: Sequence[str], *, replay: bool, record: bool, state: str | None) -> Document:
    """Make the document."""
    async with AsyncExitStack() as stack:
        model: Model = RecordedModel(RECORDING)
        if not replay:
            local = await stack.enter_async_context(LocalModel())
            model = RecordedModel(RECORDING, model=local) if record else local
        store = None if state is None else await stack.enter_async_context(SqliteState(state))
        services: Services = {"model": model}
        agent = create_agent(model=model, workflows=[LADDER], services=services, state=store)
        run_id = sha256("\n".join(subjects).encode()).hexdigest()[:16]
        session = agent.create_session()
        result = await agent.run(session, LADDER, [*subjects], run_id=run_id, on_event=show)
    assert result.result is not None
    return result.result


def main() -> None:
    """Read the subjects, one a line, and print the document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", default=Path(__file__).with_name("commits.txt"), type=Path)
    parser.add_argument("--replay", action="store_true", help="replay the recording; no model is needed")
    parser.add_argument("--record", action="store_true", help="add what the model says to the recording")
    parser.add_argument("--state", help="a file that keeps the work over a crash")
    wanted = parser.parse_args()
    subjects = [line.strip() for line in wanted.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    document = asyncio.run(generate(subjects, replay=wanted.replay, record=wanted.record, state=wanted.state))
    print(document)


if __name__ == "__main__":
    main()
