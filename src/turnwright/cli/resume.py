"""`turnwright resume`: go on with a run that is kept in a store, in front of a person as `turnwright run` does."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from attrs import frozen

from turnwright.cli.attended import Answer, Attended, attend_again
from turnwright.cli.console import Screen
from turnwright.cli.exits import INTERRUPTED, exit_code, worst
from turnwright.cli.histories import read
from turnwright.cli.loading import load
from turnwright.cli.loop import EventLoop
from turnwright.cli.models import Answers, choose
from turnwright.cli.reports import as_json
from turnwright.cli.run import tell, tell_next
from turnwright.cli.stores import Store
from turnwright.cli.visible import one_line
from turnwright.definition import AnyDefinition
from turnwright.errors import RunBusy
from turnwright.outcomes import Completed, Suspended
from turnwright.wiring import Ports

__all__ = ["ResumeCommand", "resume"]

LOOK_AGAIN: Final = 0.5
"""Seconds between two looks at a run that somebody else has: they may give it back before their lease ends."""


@frozen(kw_only=True)
class ResumeCommand:
    """What `turnwright resume` was told. *wait* is how many seconds to wait for a run that somebody else has."""

    target: str
    run_id: str
    answers: Answers
    max_turns: int | None
    answer: Answer
    store: Store
    wait: float
    json: bool


def resume(command: ResumeCommand, *, loop: EventLoop, screen: Screen) -> int:
    """Do *command* and return its exit code. Raises RunBusy while another process works on the run."""
    target = load(command.target)
    definition = target.definition
    state = command.store.open(loop=loop, create=False)
    history = loop.run(read(state, command.run_id, store=command.store))
    history.refuse_other(definition, target=command.target)
    folded = history.state()
    calls, opened = folded.calls, folded.opened
    screen.settled = frozenset([call.part.id for call in calls if call.result is not None])
    name, model = choose(command.answers, target.recording, loop=loop, screen=screen)
    screen.note(f"{one_line(definition.name)} with {name}")
    if definition.output_spec is not None:
        screen.text_style = "dim"
    # Whoever may open the store acts for whom the run does.
    ports = Ports(model=model, state=state, principal="" if opened is None else opened.principal)
    attended = _when_free(command, definition, ports, loop=loop, screen=screen)
    outcome = attended.outcome
    if history.has_ended and isinstance(outcome, Completed) and definition.output_spec is None:
        screen.text(str(outcome.output))
    tell(outcome, attended.seconds, definition=definition, screen=screen, kept=True)
    tell_next(outcome, target=command.target, store=command.store, screen=screen)
    if command.json:
        line = as_json(definition, outcome, label="", model=name, seconds=attended.seconds)
        screen.answer(line)
    interrupted = attended.interrupted and isinstance(outcome, Suspended)
    return worst([exit_code(outcome), *([INTERRUPTED] if interrupted else [])])


def _when_free(
    command: ResumeCommand, definition: AnyDefinition, ports: Ports, *, loop: EventLoop, screen: Screen
) -> Attended:
    """Take the run as soon as nobody else has it, within the time that may be waited."""
    until = time.monotonic() + command.wait
    while True:
        try:
            return attend_again(
                *(definition, command.run_id, ports),
                loop=loop,
                screen=screen,
                answer=command.answer,
                max_turns=command.max_turns,
                require="process",
            )
        except RunBusy as busy:
            left = until - time.monotonic()
            if left <= 0:
                raise
            screen.wait(f"another process has the run, for at most {busy.retry_after:.0f} s")
            loop.run(asyncio.sleep(min(left, LOOK_AGAIN)))
