"""Take one run to its outcome with a person in front of it: watched, asked for approvals, interrupted by Ctrl-C."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from attrs import evolve as replace, frozen

from turnwright.cli.console import Screen
from turnwright.cli.loop import EventLoop, interrupts
from turnwright.definition import AnyDefinition, Durability
from turnwright.inbox import Approve, Deny
from turnwright.outcomes import Cancelled, Completed, Failed, Outcome, Pending, Suspended
from turnwright.run import open_and_drive
from turnwright.streaming import AgentStream, stream_agent
from turnwright.wiring import Ports

__all__ = ["GRACE", "Answer", "Attended", "approvals", "attend", "attend_again", "decide"]

Answer: TypeAlias = Literal["ask", "yes", "no"]
"""What to do when a call needs approval."""

Watching: TypeAlias = Callable[[Ports], AgentStream[object]]
"""Opens a run, or goes on with it, with these ports."""

GRACE: Final = 2.0
"""Seconds that an effect may take to end after Ctrl-C; a person waits for it."""


@frozen
class Attended:
    """What came of one input. *seconds* does not count the time in which a person was asked."""

    outcome: Outcome[object]
    seconds: float
    interrupted: bool


def attend(
    definition: AnyDefinition,
    input: object,
    ports: Ports,
    *,
    loop: EventLoop,
    screen: Screen,
    answer: Answer,
    max_turns: int,
    require: Durability,
) -> Attended:
    """Run *input* until it needs nothing that a person here can give. Each call is asked about once."""
    run_id = ports.ids.new_id()

    def watch(ports: Ports) -> AgentStream[object]:
        return stream_agent(definition, input, ports, run_id=run_id, max_turns=max_turns, require=require)

    return _attend(watch, run_id, ports, loop=loop, screen=screen, answer=answer)


def attend_again(
    definition: AnyDefinition,
    run_id: str,
    ports: Ports,
    *,
    loop: EventLoop,
    screen: Screen,
    answer: Answer,
    max_turns: int | None,
    require: Durability,
) -> Attended:
    """Go on with the run *run_id* in the same way. Raises RunBusy while another holder works on it."""

    def watch(ports: Ports) -> AgentStream[object]:
        return AgentStream(
            lambda feed: open_and_drive(
                *(definition, replace(ports, deltas=feed)),
                run_id=run_id,
                opening=None,
                max_turns=max_turns,
                deadline=None,
                watch=feed.lifecycle,
                require=require,
            )
        )

    return _attend(watch, run_id, ports, loop=loop, screen=screen, answer=answer)


def _attend(watch: Watching, run_id: str, ports: Ports, *, loop: EventLoop, screen: Screen, answer: Answer) -> Attended:
    asked: set[str] = set()
    words: Sequence[Approve | Deny] = ()
    seconds = 0.0
    while True:
        began = time.monotonic()
        outcome, interrupted = loop.run(_watch(watch, run_id, ports, words=words, screen=screen))
        seconds += time.monotonic() - began
        waiting = [each for each in approvals(outcome) if each.effect_id not in asked]
        asked |= {each.effect_id for each in waiting}
        try:
            words = [word for each in waiting if (word := decide(each, screen, answer)) is not None]
        except KeyboardInterrupt:
            return Attended(outcome, seconds, interrupted=True)
        if not words:
            return Attended(outcome, seconds, interrupted)


def approvals(outcome: Outcome[object]) -> Sequence[Pending]:
    """The calls whose approval the run waits for."""
    match outcome:
        case Suspended(reason="approval", pending=pending):
            return [each for each in pending if each.kind == "approval"]
        case _:
            return ()


def decide(pending: Pending, screen: Screen, answer: Answer) -> Approve | Deny | None:
    """What is said about a call that needs approval; None if nobody says anything."""
    if answer == "yes":
        return Approve(pending.effect_id, pending.digest, by="--yes", level=pending.level)
    if answer == "no":
        return Deny(pending.effect_id, by="--no")
    return screen.ask(pending) if screen.can_ask else None


async def _watch(
    watch: Watching, run_id: str, ports: Ports, *, words: Sequence[Approve | Deny], screen: Screen
) -> tuple[Outcome[object], bool]:
    """Open the run, or go on with it after *words*, and show it until it rests."""
    task = asyncio.current_task()
    assert task is not None
    stop = asyncio.Event()
    for word in words:
        await ports.state.post(run_id, word)
    ports = replace(ports, cancellation=stop, grace=GRACE)
    with interrupts(stop.set, task.cancel):
        async with watch(ports) as stream:
            async for item in stream:
                screen.show(item)
                if isinstance(item, Completed | Suspended | Failed | Cancelled):
                    return item, stop.is_set()
    raise AssertionError("a stream ends with an outcome")
