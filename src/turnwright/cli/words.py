"""`turnwright approve`, `deny`, `resolve`, `cancel`, `steer`: put a word into a run's inbox, without a lease.

Rule: a word that its next owner would refuse is refused here, by the same function, and nothing is posted.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Literal, TypeAlias

from attrs import frozen

from turnwright.canonical import decode
from turnwright.cli.console import Screen
from turnwright.cli.exits import COMPLETED, CommandError
from turnwright.cli.histories import READER, History, answer, read
from turnwright.cli.loading import load
from turnwright.cli.loop import EventLoop
from turnwright.cli.reports import short_id
from turnwright.cli.stores import Store
from turnwright.cli.visible import one_line
from turnwright.decide import pending_calls
from turnwright.definition import AnyDefinition
from turnwright.errors import InvalidValue
from turnwright.facts import InboxReceived
from turnwright.inbox import Approve, Cancel, Deny, Resolve, Steer, Word
from turnwright.outcomes import Pending
from turnwright.state import RunState

__all__ = ["CallWord", "RunWord", "say", "say_about_call", "spoken", "value_of"]

About: TypeAlias = Callable[[Pending], Approve | Deny | Resolve]


@frozen(kw_only=True)
class CallWord:
    """A word about one call, which waits as *kind*: *word* makes it of what the call is, *done* tells it.

    *agent* names the definition, where it is at hand: what it would refuse is then refused as well.
    """

    store: Store
    run_id: str
    call: str
    kind: Literal["approval", "in-doubt"]
    word: About
    done: str
    agent: str | None = None


@frozen(kw_only=True)
class RunWord:
    """A word about a whole run; *done* tells it."""

    store: Store
    run_id: str
    word: Cancel | Steer
    done: str


def say_about_call(command: CallWord, *, loop: EventLoop, screen: Screen) -> int:
    """Show the call, whole, and say the word that binds exactly what was shown."""
    state = command.store.open(loop=loop, create=False)
    history = loop.run(read(state, command.run_id, store=command.store))
    definition: AnyDefinition = READER
    if command.agent is not None:
        definition = load(command.agent).definition
        history.refuse_other(definition, target=command.agent)
    run = _open(history, definition)
    pending = _find(run, command)
    word = command.word(pending)
    _refuse(run, history, word, definition)
    screen.pending(pending)
    loop.run(state.post(command.run_id, word))
    screen.note(f"{command.done}; {_next(run)}")
    return COMPLETED


def say(command: RunWord, *, loop: EventLoop, screen: Screen) -> int:
    """Say the word to a run that has not ended."""
    state = command.store.open(loop=loop, create=False)
    run = _open(loop.run(read(state, command.run_id, store=command.store)))
    loop.run(state.post(command.run_id, command.word))
    screen.note(f"{command.done}; {_next(run)}")
    return COMPLETED


def spoken(by: str | None) -> str:
    """Who speaks: *by*, or the user of this process."""
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as nobody whom it knows
        return "terminal"


def value_of(text: str) -> object:
    """Read what a call returned: JSON where it is, else the text itself."""
    try:
        return decode(text)
    except InvalidValue:
        return text


def _open(history: History, definition: AnyDefinition = READER) -> RunState:
    run = history.state(definition)
    history.verify()  # what is shown and decided over is what was written
    if run.ended is not None:
        ending = type(run.ended).__name__.removeprefix("Run").lower()
        raise CommandError(f"run {history.run_id} is {ending}: it hears nothing any more")
    return run


def _find(run: RunState, command: CallWord) -> Pending:
    """The call that waits under its effect id, or under its short form `turn.index`."""
    waiting = [each for each in pending_calls(run) if each.kind == command.kind]
    for each in waiting:
        if command.call in (each.effect_id, short_id(each)):
            return each
    what, do = ("waits for approval", "do") if command.kind == "approval" else ("is in doubt", "are")
    named = ", ".join([f"{short_id(each)} ({one_line(each.tool)})" for each in waiting])
    there = f"these {do}: {named}" if waiting else "none does now" if do == "do" else "none is now"
    raise CommandError(f"run {command.run_id}: no call {command.call!r} {what}; {there}")


def _refuse(run: RunState, history: History, word: Word, definition: AnyDefinition) -> None:
    position = max([place for place, _ in history.unread], default=run.inbox) + 1
    received = answer(run, position, word, definition=definition)[0]
    assert isinstance(received, InboxReceived)
    if received.refused:
        raise CommandError(f"run {history.run_id}: {received.refused}")


def _next(run: RunState) -> str:
    if run.suspended is None:
        return "whoever works on the run hears it; if nobody does any more, turnwright resume takes it up"
    return "turnwright resume takes the run up"
