"""`run_agent` and its kin: open or find a run, drive it to rest, tell how it stands. One path for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from attrs import frozen

from turnwright.canonical import encode, plain
from turnwright.decide import standing
from turnwright.definition import AgentDefinition, AnyDefinition
from turnwright.driver import LEASE_SECONDS, Driver, Watch
from turnwright.errors import RunBusy, RunMismatch, UnknownRun
from turnwright.facts import RunOpened, RunSuspended
from turnwright.inbox import Approve, Deny, Resolve, Word
from turnwright.messages import UserMessage
from turnwright.outcomes import Outcome
from turnwright.ports import Busy, Decision, Lease
from turnwright.tools import DidNotHappen, Happened
from turnwright.wiring import Ports

__all__ = ["resume_agent", "run_agent", "run_agent_sync"]

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

MAX_TURNS = 8


async def run_agent(
    definition: AgentDefinition[InputT, OutputT],
    input: InputT,
    ports: Ports,
    *,
    run_id: str | None = None,
    max_turns: int = MAX_TURNS,
    deadline: float | None = None,
) -> Outcome[OutputT]:
    """Run an agent on *input* until it completes, fails, is cancelled, or waits for somebody.

    ::

        outcome = await run_agent(support, "Where is my order?", Ports(model=model))
        match outcome:
            case Completed(output=answer): ...
            case Suspended(reason="approval", pending=pending): ...

    Starting is idempotent: with a known *run_id* and the same input the run is continued, or its stored outcome given.
    *deadline* is absolute, in seconds since 1970, and holds over resumes.

    Raises InvalidValue for a bad input and UnusablePorts for ports that cannot do what the definition needs, both
    before any work; RunMismatch for a known run with another input, RunBusy while another holder works on it.
    """
    opening = validated(definition, input, max_turns)
    return await open_and_drive(
        definition, ports, run_id=run_id, opening=opening, max_turns=max_turns, deadline=deadline
    )


async def resume_agent(
    definition: AgentDefinition[InputT, OutputT],
    run_id: str,
    ports: Ports,
    *,
    decisions: Mapping[str, str | Decision] | None = None,
    resolutions: Mapping[str, Happened | DidNotHappen] | None = None,
    max_turns: int | None = None,
    deadline: float | None = None,
) -> Outcome[OutputT]:
    """Continue a run in this process, wherever it was before.

    *decisions* answers requests for approval by effect id, with `approve`, `deny` or a Decision; *resolutions* says
    what became of effects in doubt. *max_turns* raises the total, *deadline* replaces the old one. With nothing new,
    a run that waits still waits, and one that ended gives its stored outcome; the model is not asked again for what
    it has answered.

    Raises UnknownRun, RunBusy.
    """
    words = [*_decision_words(decisions or {}), *_resolution_words(resolutions or {})]
    return await open_and_drive(
        definition, ports, run_id=run_id, opening=None, max_turns=max_turns, deadline=deadline, words=words
    )


def run_agent_sync(
    definition: AgentDefinition[InputT, OutputT],
    input: InputT,
    ports: Ports,
    *,
    run_id: str | None = None,
    max_turns: int = MAX_TURNS,
    deadline: float | None = None,
) -> Outcome[OutputT]:
    """`run_agent` for callers without an event loop. Raises RuntimeError inside a running one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run_agent(definition, input, ports, run_id=run_id, max_turns=max_turns, deadline=deadline))
    message = "run_agent_sync cannot be called inside a running event loop; use: await run_agent(...)"
    raise RuntimeError(message)


@frozen
class Opening:
    """A validated input: its JSON, and the messages that show it to the model."""

    input: object
    messages: tuple[UserMessage, ...]


def validated(definition: AgentDefinition[InputT, OutputT], value: InputT, max_turns: int) -> Opening:
    """Check what a caller gives before any work."""
    if isinstance(max_turns, bool) or max_turns < 1:
        message = f"max_turns is at least 1, not {max_turns!r}"
        raise ValueError(message)
    json = definition.input_schema.accept(definition.input_schema.dump(value))
    if definition.render is not None:
        return Opening(json, (UserMessage(definition.render(value)),))
    return Opening(json, (UserMessage(json if isinstance(json, str) else encode(json).decode()),))


async def open_and_drive(
    definition: AgentDefinition[InputT, OutputT],
    ports: Ports,
    *,
    run_id: str | None,
    opening: Opening | None,
    max_turns: int | None,
    deadline: float | None,
    words: Sequence[Word] = (),
    watch: Watch | None = None,
) -> Outcome[OutputT]:
    """Take the run, bring it to rest, give it back."""
    holder = ports.ids.new_id()
    run_id = run_id or ports.ids.new_id()
    lease = await ports.state.acquire(run_id, holder=holder, seconds=LEASE_SECONDS, create=opening is not None)
    match lease:
        case None:
            raise UnknownRun(run_id)
        case Busy(retry_after):
            raise RunBusy(run_id, retry_after)
        case Lease():
            pass
    try:
        driver = Driver(definition, ports, lease, holder=holder, watch=watch)
        if lease.version:
            await driver.load()
            _recognise(driver, definition, opening)
        elif opening is None:
            raise UnknownRun(run_id)
        else:
            salt = ports.ids.new_id()[:64]
            driver.note(
                RunOpened(
                    *(run_id, definition.name, definition.fingerprint, opening.input, opening.messages),
                    *(max_turns or MAX_TURNS, deadline, salt),
                )
            )
        for word in words:
            await ports.state.post(run_id, word)
        await driver.drive(max_turns=max_turns, deadline=deadline)
        return standing(definition, driver.state, driver.head)
    finally:
        await ports.state.release(run_id, lease.epoch)


def _recognise(driver: Driver, definition: AnyDefinition, opening: Opening | None) -> None:
    """Refuse another input; wait for the right definition when the run was opened under another one."""
    opened = driver.state.opened
    assert opened is not None
    if opening is not None and encode(plain(opening.input)) != encode(plain(opened.input)):
        raise RunMismatch(opened.run_id, f"run {opened.run_id!r} was opened with another input; use another run id")
    suspended = driver.state.suspended
    waiting = suspended is not None and suspended.reason == "definition"
    if driver.state.ended is None and driver.state.fingerprint != definition.fingerprint and not waiting:
        driver.note(RunSuspended("definition", "fingerprint", f"opened by another version of {opened.definition!r}"))


def _decision_words(decisions: Mapping[str, str | Decision]) -> list[Word]:
    words: list[Word] = []
    for effect_id, decision in decisions.items():
        match decision:
            case "approve":
                words.append(Approve(effect_id))
            case "deny":
                words.append(Deny(effect_id))
            case Decision(approved=True):
                words.append(Approve(effect_id, by=decision.by, level=decision.level))
            case Decision():
                words.append(Deny(effect_id, decision.reason, decision.by))
            case _:
                message = f"decision for {effect_id!r}: approve, deny or a Decision, not {decision!r}"
                raise ValueError(message)
    return words


def _resolution_words(resolutions: Mapping[str, Happened | DidNotHappen]) -> list[Word]:
    return [
        Resolve(effect_id, True, plain(said.output)) if isinstance(said, Happened) else Resolve(effect_id, False)
        for effect_id, said in resolutions.items()
    ]
