"""What is held against a run once it is over, and the states that it went through.

Rule: a law looks at what was acknowledged and at what took place, never at what an engine believes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from attrs import frozen

from turnwright.definition import AnyDefinition
from turnwright.facts import (
    ApprovalDecided,
    CallFinished,
    CallInDoubt,
    CallRefused,
    CallResolved,
    CallStarted,
    Fact,
    InboxReceived,
    ModelAsked,
    ModelFailed,
    ModelLost,
    RunCancelled,
    RunCompleted,
    RunResumed,
    RunSuspended,
    TurnStarted,
)
from turnwright.messages import Message
from turnwright.testing.simulation.runs import Run

__all__ = ["Calm", "broken_laws", "states"]


@frozen
class Calm:
    """How a run ends when nothing goes wrong, None if it does not end."""

    ended: object
    transcript: tuple[Message, ...]


def broken_laws(run: Run, definition: AnyDefinition, calm: Calm) -> Iterator[str]:
    """What is wrong with *run*, which has ended."""
    yield from _truth(run, definition)
    yield from _end(run)
    yield from _calm(run, definition, calm)


def _truth(run: Run, definition: AnyDefinition) -> Iterator[str]:
    """What the model was told of a call is what became of it, and nothing took place that nobody knows of."""
    state = run.state
    known: set[str] = set()
    for fact in run.facts:
        match fact:
            case CallFinished() | CallInDoubt() | CallResolved():
                effect = state.effect_id(fact.turn, fact.index)
                known.add(effect)
                if isinstance(fact, CallFinished) and not fact.is_error:
                    name = _name(run, fact)
                    if not run.effects.get(effect) and definition.toolbox[name].key is None:
                        yield f"{effect} was told as done and did not take place"
            case CallRefused() | ApprovalDecided(approved=False):
                effect = state.effect_id(fact.turn, fact.index)
                if run.effects.get(effect):
                    yield f"{effect} was told as refused and took place"
            case RunCancelled(in_doubt):
                known |= {*in_doubt}
            case _:
                pass
    for effect in run.effects.keys() - known:
        yield f"{effect} took place and the run knows nothing of it"


def _name(run: Run, call: CallFinished) -> str:
    answers = [each for each in run.state.transcript if each.role == "assistant"]
    return answers[call.turn - 1].calls[call.index].name


def _end(run: Run) -> Iterator[str]:
    """Nothing begins once the run was told to end."""
    told = False
    for fact in run.facts:
        if told and isinstance(fact, ModelAsked | CallStarted | TurnStarted):
            yield f"{type(fact).__name__} after the word cancel"
        told = told or (isinstance(fact, InboxReceived) and fact.word.type == "cancel" and not fact.refused)


def _calm(run: Run, definition: AnyDefinition, calm: Calm) -> Iterator[str]:
    """Where nothing that was said or done differs, the run ends as it does in calm weather."""
    keyed = {each.name for each in definition.tools if each.key is not None}
    raced = any([each.role == "tool" and each.is_error and each.name in keyed for each in calm.transcript])
    if raced or any([_changes(fact) for fact in run.facts]):
        return
    if run.state.ended != calm.ended:
        yield f"the run ended as {run.state.ended!r}, in calm weather as {calm.ended!r}"
    elif tuple(run.state.transcript) != calm.transcript:
        yield "another conversation was held than in calm weather"


def _changes(fact: Fact) -> bool:
    """Whether *fact* may lead a run elsewhere than calm weather does."""
    match fact:
        case InboxReceived(word=word, refused=refused):
            return not refused and word.type in ("cancel", "steer", "follow_up")
        case ApprovalDecided(approved=approved):
            return not approved
        case CallFinished(is_error=is_error):
            return is_error
        case CallResolved() | CallRefused():
            return True
        case _:
            return False


def states(run: Run) -> Iterator[str]:
    """The states worth knowing of that *run* went through."""
    for fact in run.facts:
        match fact:
            case ModelLost():
                yield "a request was lost"
            case ModelFailed(kind=kind):
                yield f"the model failed: {kind}"
            case CallStarted(attempt=attempt) if attempt > 1:
                yield f"a call ran for the time {attempt}"
            case CallFinished(output=output, is_error=True):
                yield f"a call gave an error: {_sort(output)}"
            case CallInDoubt(why=why):
                yield f"in doubt: {_sort(why)}"
            case CallResolved(happened=happened, by=by):
                yield f"resolved by {by or 'people'}: {'it happened' if happened else 'it did not happen'}"
            case CallRefused(stage=stage):
                yield f"refused: {stage}"
            case ApprovalDecided(approved=approved, by=by, reason=reason):
                yield f"{'approved' if approved else 'denied'} by {by or ('expiry' if 'expired' in reason else '?')}"
            case InboxReceived(word=word, refused=refused) if refused:
                yield f"a word was refused: {word.type}"
            case InboxReceived(word=word):
                yield f"a word was heard: {word.type}"
            case RunSuspended(reason=reason, detail=detail):
                yield f"suspended: {reason} {detail}".rstrip()
            case RunCancelled(in_doubt=in_doubt):
                yield f"cancelled with {'something' if in_doubt else 'nothing'} in doubt"
            case RunCompleted():
                yield "completed"
            case _:
                pass
    for suspended, resumed in pairwise(run.facts):
        if isinstance(suspended, RunSuspended) and isinstance(resumed, RunResumed):
            yield f"resumed from: {suspended.reason}"


def _sort(why: object) -> str:
    """The sort of a reason: its words without what varies."""
    return "".join([each for each in str(why) if not each.isdigit()]).partition(":")[0][:60]
