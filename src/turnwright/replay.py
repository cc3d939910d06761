"""`replay_agent`: go through a journal again with today's definition, without a model call and without an effect.

What the world said (answers, results, decisions, words) is taken from the journal; what the engine and the
definition's own pure code conclude from it (turns, admission, checks, completion) is concluded again and compared.
The first difference is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

from turnwright import journal
from turnwright.commands import AdmitCalls, CheckOutput, ConsultBoundary
from turnwright.decide import Rest, Wave, decide
from turnwright.definition import AnyDefinition
from turnwright.errors import JournalError, UnknownRun
from turnwright.evidence import verify
from turnwright.facts import (
    ApprovalDecided,
    BoundaryDecided,
    CallAdmitted,
    CallFinished,
    CallInDoubt,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    InboxReceived,
    ModelAnswered,
    ModelFailed,
    OutputRejected,
    RunCompleted,
    RunFailed,
    RunMigrated,
    RunOpened,
    RunResumed,
    RunSuspended,
)
from turnwright.performer import Performer
from turnwright.state import RunState, evolve
from turnwright.values import frozen
from turnwright.wiring import Ports

__all__ = ["Divergence", "Replay", "replay_agent"]

FROM_OUTSIDE: Final = (
    *(RunOpened, RunResumed, RunMigrated, InboxReceived, ModelAnswered, ModelFailed),
    *(ApprovalDecided, CallFinished, CallInDoubt, CallResolved),
)
"""Facts that only the world can say."""

CONCLUSIONS: Final = (RunCompleted, OutputRejected, RunFailed)
"""Facts that say what became of an answer."""

CHOSEN_OUTSIDE: Final = ("cancelled", "budget", "definition", "external")
"""Why a run suspends without the decider having said so."""


@frozen
class Divergence:
    """Where replay and journal part. *position* counts from 1; the rest names kinds and digests, no content."""

    position: int
    what: Literal["tool", "arguments", "output", "evidence", "fact"]
    recorded: str
    replayed: str


@frozen
class Replay:
    """How a replay went: how many facts agreed, and the first that did not, None if all did."""

    run_id: str
    agreed: int
    divergence: Divergence | None


async def replay_agent(definition: AnyDefinition, run_id: str, ports: Ports) -> Replay:
    """Replay the journal of *run_id* under *definition*. Nothing is asked, executed or written.

    Raises UnknownRun for a run without journal, JournalError for one that cannot be read.
    """
    entries = await ports.state.load(run_id)
    if not entries:
        raise UnknownRun(run_id)
    facts = [
        journal.decode(each.kind, each.schema, each.body, position=place) for place, each in enumerate(entries, start=1)
    ]
    opened = facts[0]
    salt = opened.salt if isinstance(opened, RunOpened) else ""
    try:
        verify(
            [each.evidence for each in entries],
            [(fact, each.body) for fact, each in zip(facts, entries, strict=True)],
            salt=salt,
        )
    except JournalError as error:
        return Replay(run_id, error.position - 1, Divergence(error.position, "evidence", "chain", str(error)))
    engine = _Engine(definition, ports)
    replayable = zip(facts, entries, _awaiting_code(facts), strict=True)
    for position, (fact, entry, awaiting) in enumerate(replayable, start=1):
        if isinstance(fact, InboxReceived) and awaiting:
            await engine.look()
        elif isinstance(fact, FROM_OUTSIDE) or (isinstance(fact, RunSuspended) and fact.reason in CHOSEN_OUTSIDE):
            engine.hear(fact)
        else:
            replayed = await engine.conclude(fact)
            if replayed != fact:
                return Replay(run_id, position - 1, _divergence(position, fact, replayed))
        evolve(engine.state, fact, entry.at)
    return Replay(run_id, len(facts), None)


def _awaiting_code(facts: Sequence[Fact]) -> list[bool]:
    """For each fact, whether the next one that is no word says what code of the definition saw: it may be slow."""
    awaiting, upcoming = [], False
    for fact in reversed(facts):
        awaiting.append(upcoming)
        if not isinstance(fact, InboxReceived):
            upcoming = isinstance(fact, (BoundaryDecided, *CONCLUSIONS))
    return awaiting[::-1]


class _Engine:
    """Concludes again what the engine concluded, wave by wave."""

    def __init__(self, definition: AnyDefinition, ports: Ports) -> None:
        self.state = RunState()
        self.due: deque[Fact] = deque()
        """What the wave in hand still has to say."""
        self.seen: list[Fact] = []
        """What a look at the run would have concluded before the words that came last."""
        self._definition = definition
        self._performer = Performer(definition, ports, self.state)

    async def look(self) -> None:
        """Conclude now what may have been concluded while the words came that are next."""
        if not self.due:
            self.seen += await self._wave()

    def hear(self, said: Fact) -> None:
        """Go on from *said*. Nothing comes into the midst of a wave but its own facts: another one ended it.

        A doubt is the world's, or is concluded from the past and begins a wave.
        """
        if (
            isinstance(said, CallInDoubt)
            and not self.due
            and isinstance(wave := decide(self._definition, self.state), Wave)
        ):
            self.due.extend(wave.facts)
        if said in self.due:
            self.due.remove(said)
        else:
            self.due.clear()

    async def conclude(self, recorded: Fact) -> Fact | None:
        """The next conclusion. One that a budget may have taken out of its wave is passed over for a later one."""
        seen, self.seen = self.seen, []
        if recorded in seen:
            return recorded
        while self.due:
            concluded = self.due.popleft()
            if concluded == recorded or not isinstance(concluded, CallStarted):
                return concluded
        self.due.extend(await self._wave())
        while self.due:
            concluded = self.due.popleft()
            if concluded == recorded or not isinstance(concluded, CallStarted) or not self.due:
                return concluded
        return None

    async def _wave(self) -> list[Fact]:
        """What follows without the world: intents, and the results of commands that only look."""
        wave = decide(self._definition, self.state)
        if isinstance(wave, Rest):
            return []
        facts = [*wave.facts]
        for command in wave.commands:
            if isinstance(command, AdmitCalls | CheckOutput | ConsultBoundary):
                facts += await self._performer.perform(command)
        return facts


def _divergence(position: int, recorded: Fact, replayed: Fact | None) -> Divergence:
    match recorded, replayed:
        case (CallAdmitted(), CallAdmitted()) if recorded.name != replayed.name:
            return Divergence(position, "tool", recorded.name, replayed.name)
        case (CallAdmitted(), CallAdmitted()) if recorded.digest != replayed.digest:
            return Divergence(position, "arguments", recorded.digest, replayed.digest)
        case (CallRefused(), CallAdmitted()) | (CallAdmitted(), CallRefused()):
            stages = {each.stage for each in (recorded, replayed) if isinstance(each, CallRefused)}
            what: Literal["tool", "arguments", "fact"] = "fact"
            if "lookup" in stages:
                what = "tool"
            elif stages & {"prepare", "validate"}:
                what = "arguments"
            return Divergence(position, what, _named(recorded), _named(replayed))
        case _:
            pass
    if isinstance(recorded, CONCLUSIONS) and isinstance(replayed, CONCLUSIONS):
        return Divergence(position, "output", _named(recorded), _named(replayed))
    return Divergence(position, "fact", _named(recorded), _named(replayed))


def _named(fact: Fact | None) -> str:
    if fact is None:
        return "nothing"
    return f"{type(fact).__name__} {journal.digest(fact)[:16]}"
