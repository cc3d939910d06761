"""`turnwright why`: tell the account of a run, to a person or to a program. It needs neither definition nor lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import asdict, frozen

from turnwright.canonical import encode, plain
from turnwright.cli.accounts import Account, OpenCall, account
from turnwright.cli.console import Screen
from turnwright.cli.exits import COMPLETED, FAILED
from turnwright.cli.histories import read
from turnwright.cli.loop import EventLoop
from turnwright.cli.reports import used
from turnwright.cli.runs import when
from turnwright.cli.stores import Store
from turnwright.cli.visible import one_line

__all__ = ["WhyCommand", "why"]

WIDTH: Final = 200
"""How much of one thing that was said is shown; --json has all of it."""

STANDINGS: Final = {
    "approval": "waits for approval",
    "approved": "may run and has not been started",
    "started": "was started and has no result yet; its process works on it, or died",
    "in-doubt": "is in doubt: find out whether it took effect, then say so with turnwright resolve",
}


@frozen(kw_only=True)
class WhyCommand:
    """What `turnwright why` was told."""

    store: Store
    run_id: str
    json: bool


def why(command: WhyCommand, *, loop: EventLoop, screen: Screen) -> int:
    """Tell it. The exit code says whether the evidence holds together."""
    state = command.store.open(loop=loop, create=False)
    told = account(loop.run(read(state, command.run_id, store=command.store)))
    if command.json:
        screen.answer(_as_json(told))
    else:
        for line in _lines(told):
            screen.line(line)
    return COMPLETED if told.chain.verified else FAILED


def _lines(told: Account) -> Iterator[str]:
    first, last = told.steps[0].evidence, told.steps[-1].evidence
    standing = f"{told.status} ({told.reason})" if told.reason else told.status
    whose = f" of {_short(told.definition)}" if told.definition else ""
    yield f"run {told.run_id}{whose}: {standing}"
    yield f"opened {when(first.at)}, last written {when(last.at)}, {len(told.steps)} entries"
    for step in told.steps:
        said = f": {_short(step.content)}" if step.content else ""
        yield f"{step.evidence.at - first.at:9.3f} s  {step.told}{said}"
    for call in told.open_calls:
        yield from _call(call)
    for word in told.unread:
        yield f"not heard yet: {_short(word)}"
    yield f"used: {used(told.usage)}"
    if told.chain.verified:
        yield f"evidence: all {len(told.steps)} entries verified, head {told.chain.head}"
    else:
        yield f"evidence: BROKEN at entry {told.chain.broken_at}: {_short(told.chain.message)}"
    if told.flaw:
        yield f"content: {_short(told.flaw)}"


def _call(call: OpenCall) -> Iterator[str]:
    yield f"call {call.call} ({_short(call.tool)}) {STANDINGS[call.standing]}"
    if call.digest:
        yield f"  {_short(encode(plain(call.arguments)).decode())}"
        yield f"  digest {call.digest}"


def _short(text: str) -> str:
    return one_line(text, width=WIDTH)


def _as_json(told: Account) -> bytes:
    steps = [{**asdict(step.evidence), "told": step.told, "content": step.content or None} for step in told.steps]
    shown = {
        "run_id": told.run_id,
        "definition": told.definition or None,
        "status": told.status,
        "reason": told.reason or None,
        "opened_at": told.steps[0].evidence.at,
        "updated_at": told.steps[-1].evidence.at,
        "usage": told.usage,
        "evidence": told.chain,
        "content_flaw": told.flaw or None,
        "open_calls": told.open_calls,
        "unread": told.unread,
        "steps": steps,
    }
    return encode(plain(shown)) + b"\n"
