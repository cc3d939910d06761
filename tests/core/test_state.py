"""The same facts always fold to the same state, whatever cannot follow is refused, and every step costs the same."""

from __future__ import annotations

from typing import get_args

import pytest
from attrs import evolve as replace, fields
from hypothesis import given, strategies as st

from tests.core.histories import (
    DIGEST,
    admitted,
    answered,
    approved,
    asked,
    calling,
    done,
    opened,
    requested,
    started,
    turn,
)
from turnwright.errors import JournalError
from turnwright.facts import (
    ApprovalDecided,
    BoundaryDecided,
    CallInDoubt,
    CallRefused,
    CallResolved,
    Fact,
    Fault,
    InboxReceived,
    ModelFailed,
    ModelLost,
    OutputRejected,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunMigrated,
    RunResumed,
    RunSuspended,
    TurnStarted,
)
from turnwright.inbox import Cancel, FollowUp, Steer
from turnwright.messages import AssistantMessage, Text, ToolMessage, Usage, UserMessage
from turnwright.state import _TRANSITIONS, RunState, evolve, fold
from turnwright.testing.strategies import every_fact

PAID: list[Fact] = [
    opened(),
    *turn(1),
    answered(1, *calling("pay", "look")),
    admitted(1, 0, "pay", needs=1),
    admitted(1, 1, "look"),
    requested(1, 0),
    started(1, 1),
    done(1, 1, "seen"),
    RunSuspended("approval"),
    InboxReceived(1, Steer(UserMessage("hurry"))),
    approved(1, 0),
    RunResumed(8, None),
    started(1, 0),
    done(1, 0, "paid"),
    *turn(2, 1),
    answered(2, Text("all done")),
    RunCompleted("all done"),
]
"""A payment that was approved while the run waited, beside a call that was not held up."""


def test_every_fact_has_its_transition() -> None:
    """Nothing can be written that cannot be folded."""
    assert set(get_args(Fact)) == _TRANSITIONS.keys()


def test_a_story_folds_to_its_end() -> None:
    """What was said is the transcript, what was used is the usage, and the run has ended."""
    state = fold(PAID)

    assert (RunCompleted("all done"), len(PAID)) == (state.ended, state.length)
    assert Usage(requests=2, tool_calls=2) == state.usage
    assert [
        UserMessage("go"),
        AssistantMessage(tuple(calling("pay", "look"))),
        ToolMessage("pay", "pay", "paid"),
        ToolMessage("look", "look", "seen"),
        UserMessage("hurry"),
        AssistantMessage("all done"),
    ] == [*state.transcript]


def test_results_enter_the_transcript_in_the_order_of_their_calls() -> None:
    """Whichever ends first: none is there before the last, and then all are."""
    state = fold(
        [opened(), *turn(1), answered(1, *calling("a", "b", "c")), *[admitted(1, n, "abc"[n]) for n in range(3)]]
    )
    for index in (2, 0, 1):
        evolve(state, started(1, index))
        evolve(state, done(1, index, str(index)))

        assert index == 1 or len(state.transcript) == 2
    assert ["0", "1", "2"] == [each.text for each in state.transcript[2:]]


BEFORE: dict[str, list[Fact]] = {
    "nothing": [],
    "opened": [opened()],
    "asked": [opened(), *turn(1)],
    "failed": [opened(), *turn(1), ModelFailed(1, 1, "overloaded", "", True, 0.0)],
    "text": [opened(), *turn(1), answered(1, Text("x"))],
    "calls": [opened(), *turn(1), answered(1, *calling("pay", "look"))],
    "admitted": PAID[:6],
    "requested": PAID[:7],
    "running": PAID[:8],
    "doubted": [*PAID[:8], CallInDoubt(1, 1, 1, "died")],
    "suspended": PAID[:10],
    "approved": PAID[:12],
    "cancelled": [opened(), InboxReceived(4, Cancel())],
    "ended": PAID,
}

CANNOT_FOLLOW: list[tuple[str, Fact]] = [
    ("nothing", TurnStarted(1)),
    ("opened", opened()),
    ("opened", TurnStarted(2)),
    ("opened", TurnStarted(1, (7,))),
    ("opened", asked(1)),
    ("opened", BoundaryDecided(2, "auto")),
    ("opened", RunCompleted("x")),
    ("opened", RunCancelled(())),
    ("opened", OutputRejected(1, ("x",))),
    ("asked", TurnStarted(2)),
    ("asked", asked(1, 2)),
    ("asked", answered(2, Text("x"))),
    ("asked", answered(1, Text("x"), attempt=2)),
    ("asked", ModelLost(1, 2)),
    ("asked", ModelFailed(1, 2, "overloaded", "", True, 0.0)),
    ("asked", admitted(1, 0, "pay")),
    ("failed", answered(1, Text("x"))),
    ("failed", asked(1)),
    ("failed", asked(1, 3)),
    ("text", answered(1, Text("x"))),
    ("text", asked(1, 2)),
    ("text", BoundaryDecided(1, "auto")),
    ("calls", TurnStarted(2)),
    ("calls", started(1, 0)),
    ("calls", admitted(2, 0, "pay")),
    ("calls", admitted(1, 2, "pay")),
    ("calls", admitted(1, -1, "pay")),
    ("calls", requested(1, 0)),
    ("calls", done(1, 0)),
    ("calls", CallInDoubt(1, 0, 1, "died")),
    ("admitted", admitted(1, 0, "pay")),
    ("admitted", started(1, 0)),
    ("admitted", approved(1, 0)),
    ("admitted", started(1, 1, 2)),
    ("admitted", CallResolved(1, 1, True, None, (), None)),
    ("requested", requested(1, 0)),
    ("requested", started(1, 0)),
    ("requested", ApprovalDecided(1, 0, True, "another", None)),
    ("running", started(1, 1)),
    ("running", started(1, 1, 3)),
    ("running", done(1, 1, attempt=2)),
    ("running", CallRefused(1, 1, "guard", "no")),
    ("doubted", done(1, 1)),
    ("doubted", started(1, 1, 2)),
    ("doubted", CallInDoubt(1, 1, 1, "died")),
    ("suspended", started(1, 0)),
    ("suspended", done(1, 1)),
    ("suspended", RunCancelled(())),
    ("suspended", RunFailed(Fault("x", ""))),
    ("approved", approved(1, 0)),
    ("approved", approved(1, 0, yes=False)),
    ("cancelled", InboxReceived(3, Cancel())),
    ("ended", InboxReceived(9, Cancel())),
    ("ended", RunSuspended("external")),
    ("ended", RunCompleted("x")),
]


@pytest.mark.parametrize(("after", "fact"), CANNOT_FOLLOW)
def test_a_fact_that_cannot_follow_is_refused_with_its_position(after: str, fact: Fact) -> None:
    """A journal that cannot be true is a JournalError, never a state."""
    state = fold(BEFORE[after])

    with pytest.raises(JournalError) as caught:
        evolve(state, fact)
    assert len(BEFORE[after]) + 1 == caught.value.position


@given(st.sampled_from(sorted(BEFORE)), every_fact(), st.data())
def test_any_fact_after_any_history_folds_or_is_a_journal_error(after: str, fact: Fact, data: st.DataObject) -> None:
    """A hostile journal never breaks the fold in another way."""
    small = {"turn": st.integers(0, 2), "attempt": st.integers(0, 2), "index": st.integers(-1, 2)}
    near = {each.name: data.draw(small[each.name]) for each in fields(type(fact)) if each.name in small}
    if data.draw(st.booleans()) and hasattr(fact, "digest"):
        near["digest"] = DIGEST
    fact = replace(fact, **near)
    state = fold(BEFORE[after])

    try:
        evolve(state, fact)
    except JournalError as error:
        assert len(BEFORE[after]) + 1 == error.position  # noqa: PT017 - most facts are refused, and some are not


@given(st.integers(0, len(PAID)))
def test_folding_step_by_step_gives_what_folding_at_once_gives(cut: int) -> None:
    """A resumed run stands where it stood."""
    state = fold(PAID[:cut])
    for fact in PAID[cut:]:
        evolve(state, fact)

    assert repr(fold(PAID)) == repr(state)
    assert fold(PAID).transcript == state.transcript


def test_time_never_goes_back() -> None:
    """The decider's only clock is the newest time that was recorded."""
    state = RunState()
    for fact, at in zip(PAID, (5.0, 9.0, 3.0), strict=False):
        evolve(state, fact, at)

    assert 9.0 == state.now


def test_a_fact_copies_nothing_of_what_was_said_before() -> None:
    """The transcript grows in place, and what somebody holds of it stays as it was."""
    state = fold(PAID[:-2])
    before = state.transcript
    evolve(state, PAID[-2])

    assert before._messages is state.transcript._messages
    assert len(before) + 1 == len(state.transcript)


def test_steering_waits_until_a_turn_delivers_it() -> None:
    """Queued words are kept by their place in the inbox, apart from follow-ups, until a turn names them."""
    words: list[Fact] = [
        InboxReceived(1, Steer(UserMessage("a"))),
        InboxReceived(3, FollowUp(UserMessage("b"))),
        InboxReceived(4, Steer(UserMessage("c")), "refused"),
    ]
    state = fold([opened(), *words])

    assert ([1], [3], 4) == ([*state.steering], [*state.follow_ups], state.inbox)
    evolve(state, TurnStarted(1, (1, 3)))
    assert ({}, {}) == (state.steering, state.follow_ups)
    assert ["go", "a", "b"] == [each.text for each in state.transcript]


@pytest.mark.case("ret-04")
def test_an_answer_ends_the_count_of_malformed_ones() -> None:
    """Each request has its own tries."""
    junk = ModelFailed(1, 1, "malformed", "", True, 0.0)
    state = fold([opened(), *turn(1), junk, asked(1, 2)])

    assert 1 == state.malformed
    evolve(state, answered(1, Text("x"), attempt=2))
    assert 0 == state.malformed


@pytest.mark.case("loo-01")
def test_a_tool_that_fails_in_a_row_is_counted_over_the_turns_until_it_succeeds() -> None:
    """Other tools in between change nothing, and a refusal is no failure of the tool."""
    history: list[Fact] = [opened()]
    seen = []
    for number, error in enumerate((True, True, False, True), start=1):
        history += [
            *turn(number),
            answered(number, *calling("flaky", "other")),
            admitted(number, 0, "flaky"),
            CallRefused(number, 1, "validate", "no"),
            started(number, 0),
            done(number, 0, error=error),
        ]
        seen.append(fold(history).failures)

    assert [{"flaky": 1}, {"flaky": 2}, {"flaky": 0}, {"flaky": 1}] == seen


def test_a_migration_changes_the_fingerprint_and_nothing_else() -> None:
    """The run goes on under another definition."""
    state = fold([opened(), RunMigrated("g")])

    assert ("g", 0) == (state.fingerprint, state.turn)
