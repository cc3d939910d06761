"""`run_agent` and its kin: open or find a run, drive it to rest, tell how it stands. One path for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Final, TypeAlias, TypeVar, get_args

from attrs import frozen

from turnwright.admission import is_decision, unenforced
from turnwright.canonical import encode, plain
from turnwright.decide import standing
from turnwright.definition import AgentDefinition, AnyDefinition, Durability
from turnwright.driver import Driver, Watch
from turnwright.errors import InvalidValue, PortError, RunBusy, RunError, RunMismatch, UnknownRun, UnusablePorts
from turnwright.facts import RunCompleted, RunMigrated, RunOpened, RunSuspended
from turnwright.inbox import Approve, Deny, Resolve
from turnwright.leasing import LEASE_SECONDS
from turnwright.messages import UserMessage, flaw_of_parts
from turnwright.outcomes import Outcome
from turnwright.ports import Busy, Decision, Lease
from turnwright.racing import Interrupted, Race
from turnwright.state import RunState
from turnwright.tools import DidNotHappen, Happened
from turnwright.wiring import Ports

__all__ = ["resume_agent", "run_agent", "run_agent_sync"]

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

MAX_TURNS = 8
POISONED: Final = 5
"""How many owners in a row may die over a run before it is put aside."""
Answer: TypeAlias = Approve | Deny | Resolve
"""A word about one call."""
CLASSES: Final = get_args(Durability)
"""What a store survives, the weakest first."""


async def run_agent(
    definition: AgentDefinition[InputT, OutputT],
    input: InputT,
    ports: Ports,
    *,
    run_id: str | None = None,
    max_turns: int = MAX_TURNS,
    deadline: float | None = None,
    require: Durability = "none",
) -> Outcome[OutputT]:
    """Run an agent on *input* until it completes, fails, is cancelled, or waits for somebody.

    ::

        outcome = await run_agent(support, "Where is my order?", Ports(model=model))
        match outcome:
            case Completed(output=answer): ...
            case Suspended(reason="approval", pending=pending): ...

    Starting is idempotent: with a known *run_id* and the same input the run is continued, or its stored outcome given.
    *deadline* is absolute, in seconds since 1970, and holds over resumes. *require* is what the journal must survive at
    the least; the definition may require more.

    Raises InvalidValue for a bad input and UnusablePorts for ports that cannot do what the definition needs, both
    before any work; RunMismatch for a known run with another input, RunBusy while another holder works on it.
    """
    return await open_and_drive(
        *(definition, ports),
        run_id=run_id,
        opening=validated(definition, input),
        max_turns=max_turns,
        deadline=deadline,
        require=require,
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
    require: Durability = "none",
) -> Outcome[OutputT]:
    """Continue a run in this process, wherever it was before.

    *decisions* answers requests for approval by effect id, with `approve`, `deny` or a Decision; *resolutions* says
    what became of effects in doubt. *max_turns* raises the total, *deadline* replaces the old one. With nothing new,
    a run that waits still waits, and one that ended gives its stored outcome; the model is not asked again for what
    it has answered.

    Raises UnknownRun, RunBusy, UnusablePorts.
    """
    return await open_and_drive(
        *(definition, ports),
        run_id=run_id,
        opening=None,
        max_turns=max_turns,
        deadline=deadline,
        words=words_about_calls(decisions, resolutions),
        require=require,
    )


def run_agent_sync(
    definition: AgentDefinition[InputT, OutputT],
    input: InputT,
    ports: Ports,
    *,
    run_id: str | None = None,
    max_turns: int = MAX_TURNS,
    deadline: float | None = None,
    require: Durability = "none",
) -> Outcome[OutputT]:
    """`run_agent` for callers without an event loop. Raises RuntimeError inside a running one."""
    refuse_running_loop("run_agent_sync", "run_agent")
    return asyncio.run(
        run_agent(*(definition, input, ports), run_id=run_id, max_turns=max_turns, deadline=deadline, require=require)
    )


def refuse_running_loop(called: str, instead: str) -> None:
    """Raise RuntimeError inside a running event loop, where nobody may wait for another one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    message = f"{called} cannot be called inside a running event loop; use: await {instead}(...)"
    raise RuntimeError(message)


@frozen
class Opening:
    """A validated input: its JSON, and the messages that show it to the model."""

    input: object
    messages: tuple[UserMessage, ...]


def validated(definition: AgentDefinition[InputT, OutputT], value: InputT) -> Opening:
    """Check the input before any work."""
    json = definition.input_schema.accept(definition.input_schema.dump(value))
    if definition.render is not None:
        message = UserMessage(definition.render(value))
        if wrong := flaw_of_parts(message.parts):
            raise TypeError(f"agent {definition.name!r}: render gives text or parts: {wrong}")
        return Opening(json, (message,))
    return Opening(json, (UserMessage(json if isinstance(json, str) else encode(json).decode()),))


async def open_and_drive(
    definition: AgentDefinition[InputT, OutputT],
    ports: Ports,
    *,
    run_id: str | None,
    opening: Opening | None,
    max_turns: int | None,
    deadline: float | None,
    words: Sequence[Answer] = (),
    watch: Watch | None = None,
    require: Durability = "none",
) -> Outcome[OutputT]:
    """Take the run, bring it to rest, give it back."""
    _check(run_id, max_turns, deadline, require)
    _refuse_unusable(definition, ports, require)
    if run_id is None:
        run_id = ports.ids.new_id()
        if not _is_run_id(run_id):
            raise PortError(f"the ids port gave {run_id!r:.160}, which is no id")
    race = Race(ports.clock, ports.cancellation, grace=ports.grace, deadline=deadline)
    race.start()
    try:
        driver = await _take(definition, ports, run_id, race=race, watch=watch, create=opening is not None)
        try:
            opened = _open(driver, opening, max_turns, deadline, words)
            if await race.run(opened, *driver.written_to, patience=ports.grace):
                await driver.drive(max_turns=max_turns, deadline=deadline)
            return standing(definition, driver.state, driver.head)
        finally:
            await driver.release()
    except Interrupted as error:  # before there was a run that could be suspended
        raise PortError(f"run {run_id!r}: the state port did not answer, and the run was {error.why}") from error
    finally:
        await race.close()


async def open_inbox(definition: AnyDefinition, ports: Ports, run_id: str) -> None:
    """Make sure that there is a run *run_id*, if only as an inbox: one that rests and has nothing to do."""
    race = Race(ports.clock, None, grace=ports.grace)
    driver = await _take(definition, ports, run_id, race=race, watch=None, create=True)
    try:
        if not await driver.load():
            salt = ports.ids.new_id()[:64]
            opened = (run_id, definition.name, definition.fingerprint, None, (), MAX_TURNS, None, salt)
            driver.note(RunOpened(*opened, ports.principal, definition.base, definition.contracts))
            driver.note(RunSuspended("external", "inbox"))
            await driver.flush()
    finally:
        await driver.release()


async def _take(
    definition: AnyDefinition, ports: Ports, run_id: str, *, race: Race, watch: Watch | None, create: bool
) -> Driver:
    holder, asked = ports.ids.new_id(), ports.clock.monotonic()
    taken: list[Lease | Busy | None] = []

    async def take() -> Lease | Busy | None:
        taken.append(await ports.state.acquire(run_id, holder=holder, seconds=LEASE_SECONDS, create=create))
        return taken[0]

    try:
        answer = await race.run(take(), ports.state, patience=ports.grace)
    except BaseException:
        if taken and isinstance(taken[0], Lease):  # cancelled in the moment in which it was ours
            with suppress(Exception):
                await race.hurry(ports.state.release(run_id, taken[0].epoch))
        raise
    match answer:
        case None:
            raise UnknownRun(run_id)
        case Busy(retry_after):
            raise RunBusy(run_id, retry_after)
        case Lease() as lease:
            return Driver(definition, ports, lease, holder=holder, asked=asked, race=race, watch=watch)


async def _open(
    driver: Driver, opening: Opening | None, max_turns: int | None, deadline: float | None, words: Sequence[Answer]
) -> bool:
    """Know the run as far as it has come, or begin it; then hear what the caller says about its calls.

    False for a run that killed too many of its owners and is put aside for somebody to look at.
    """
    run_id, definition = driver.run_id, driver.definition
    if await driver.load():
        _recognise(driver, definition, opening)
    elif opening is None:
        raise UnknownRun(run_id)
    else:
        salt = driver.ports.ids.new_id()[:64]
        driver.note(
            RunOpened(
                *(run_id, definition.name, definition.fingerprint, opening.input, opening.messages),
                *(max_turns or MAX_TURNS, deadline, salt),
                *(driver.ports.principal, definition.base, definition.contracts),
            )
        )
    for word in words:
        _refuse_unknown(driver.state, word.effect_id)
    await driver.hear(words)
    if driver.crashes < POISONED or driver.state.ended is not None or driver.state.suspended is not None:
        return True  # one that rests was brought there by an owner who lived, or somebody looked and wants to try again
    driver.note(RunSuspended("external", "poisoned", f"{driver.crashes} owners died in a row with no result between"))
    await driver.flush()
    return False


def _is_run_id(run_id: object) -> bool:
    return isinstance(run_id, str) and 0 < len(run_id) <= 128 and run_id.isprintable() and " " not in run_id


def _check(run_id: object, max_turns: object, deadline: object, require: object) -> None:
    """Refuse options that no run can have."""
    if run_id is not None and not _is_run_id(run_id):
        message = f"a run id is 1 to 128 printable characters without spaces, not {run_id!r:.160}"
        raise ValueError(message)
    if max_turns is not None and not (type(max_turns) is int and 1 <= max_turns <= 2**53):
        message = f"max_turns is a whole number of at least 1, not {max_turns!r}"
        raise ValueError(message)
    if deadline is not None and not (
        isinstance(deadline, int | float) and not isinstance(deadline, bool) and isfinite(deadline) and deadline >= 0
    ):
        message = f"a deadline is a moment in seconds since 1970, not {deadline!r}"
        raise ValueError(message)
    if require not in CLASSES:
        message = f"require is one of {', '.join(CLASSES)}, not {require!r}"
        raise ValueError(message)


def _refuse_unusable(definition: AnyDefinition, ports: Ports, require: Durability) -> None:
    """Refuse ports that cannot give what the definition or the caller needs, naming each need (T-07)."""
    needed = max(definition.durability, require, key=CLASSES.index)
    given = getattr(ports.state, "durability", "none")
    missing = []
    if CLASSES.index(given) < CLASSES.index(needed):
        whose = f"agent {definition.name!r}" if needed == definition.durability else "the caller"
        missing.append(
            f"{whose} requires durability {needed!r}, and {type(ports.state).__name__} is of class {given!r}"
        )
    for tool in definition.tools:
        if lacking := unenforced(tool, ports.policy):
            missing.append(f"tool {tool.name!r} needs {', '.join(lacking)} enforced, and the policy port cannot")
        if tool.key is not None and ports.idempotency is None:
            missing.append(f"tool {tool.name!r} derives a key that outlives the run, and there is no idempotency port")
    if missing:
        raise UnusablePorts(missing)


def _refuse_unknown(state: RunState, effect_id: object) -> None:
    """Refuse a word about what is no call of the run; one about a call that was decided before is only recorded."""
    assert state.opened is not None
    run_id = state.opened.run_id
    _, _, place = str(effect_id).rpartition(":")
    turn, _, index = place.partition(".")
    made = 0
    if turn.isdecimal() and index.isdecimal() and effect_id == state.effect_id(int(turn), int(index)):
        past = sum([each.turn == int(turn) for each in state.history])
        made = len(state.calls) if int(turn) == state.turn else past
    if not made or int(index) >= made:
        waiting = ", ".join([state.effect_id(call.turn, call.index) for call in state.calls if call.result is None])
        raise RunError(run_id, f"run {run_id!r} has no call {effect_id!r}; open now: {waiting or 'none'}")


def _recognise(driver: Driver, definition: AnyDefinition, opening: Opening | None) -> None:
    """Refuse another input or principal; wait for the right definition when the run was opened under another one."""
    opened, principal = driver.state.opened, driver.ports.principal
    assert opened is not None
    if opened.principal != principal:
        message = (
            f"run {opened.run_id!r} acts for another principal than {principal!r}; give Ports(principal=...) its own"
        )
        raise RunMismatch(opened.run_id, message)
    if opening is not None and encode(plain(opening.input)) != encode(plain(opened.input)):
        raise RunMismatch(opened.run_id, f"run {opened.run_id!r} was opened with another input; use another run id")
    suspended = driver.state.suspended
    waiting = suspended is not None and suspended.reason == "definition"
    ended = driver.state.ended
    if isinstance(ended, RunCompleted) and driver.state.fingerprint != definition.fingerprint:
        try:
            definition.output_schema.accept(ended.output)  # type: ignore[arg-type] # JSON
        except InvalidValue as error:
            message = f"run {opened.run_id!r} was completed under another definition, with another output: {error}"
            raise RunMismatch(opened.run_id, message) from error
    if ended is not None or driver.state.fingerprint == definition.fingerprint:
        return
    if definition.may_go_on(fingerprint=driver.state.fingerprint, base=opened.base, contracts=opened.contracts):
        driver.note(RunMigrated(definition.fingerprint))
    elif not waiting:
        driver.note(RunSuspended("definition", "fingerprint", f"opened by another version of {opened.definition!r}"))


def words_about_calls(
    decisions: Mapping[str, str | Decision] | None, resolutions: Mapping[str, Happened | DidNotHappen] | None
) -> list[Answer]:
    """What a caller says about calls, as words of the inbox."""
    return [*_decision_words(decisions or {}), *_resolution_words(resolutions or {})]


def _decision_words(decisions: Mapping[str, str | Decision]) -> list[Answer]:
    words: list[Answer] = []
    for effect_id, decision in decisions.items():
        match decision:
            case "approve":
                words.append(Approve(effect_id))
            case "deny":
                words.append(Deny(effect_id))
            case Decision(approved=True) if is_decision(decision):
                words.append(Approve(effect_id, by=decision.by, level=decision.level))
            case Decision(approved=False) if is_decision(decision):
                words.append(Deny(effect_id, decision.reason, decision.by))
            case _:
                message = f"decision for {effect_id!r}: approve, deny or a Decision, not {decision!r}"
                raise ValueError(message)
    return words


def _resolution_words(resolutions: Mapping[str, object]) -> list[Answer]:
    words: list[Answer] = []
    for effect_id, said in resolutions.items():
        match said:
            case Happened(output):
                words.append(Resolve(effect_id, True, plain(output)))
            case DidNotHappen():
                words.append(Resolve(effect_id, False))
            case _:
                message = f"resolution for {effect_id!r}: Happened or DidNotHappen, not {said!r}"
                raise ValueError(message)
    return words
