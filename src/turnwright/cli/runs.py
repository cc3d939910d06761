"""`turnwright runs`: the runs of a store, newest first. A line tells how each stands, without its content."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final

from attrs import frozen

from turnwright.canonical import encode, plain
from turnwright.cli.console import Screen
from turnwright.cli.exits import COMPLETED, CommandError
from turnwright.cli.loop import EventLoop
from turnwright.cli.stores import Store
from turnwright.cli.visible import one_line
from turnwright.heads import RunHead, RunStatus

__all__ = ["RunsCommand", "moment", "runs", "when"]

SPANS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@frozen(kw_only=True)
class RunsCommand:
    """What `turnwright runs` was told."""

    store: Store
    status: RunStatus | None
    definition: str | None
    since: str | None
    limit: int
    json: bool


def runs(command: RunsCommand, *, loop: EventLoop, screen: Screen) -> int:
    """List the runs that fit."""
    since = None if command.since is None else moment(command.since, now=time.time())
    state = command.store.open(loop=loop, create=False)
    found = loop.run(state.runs(status=command.status, definition=command.definition, since=since, limit=command.limit))
    for head in found:
        if command.json:
            screen.answer(encode(plain(head)) + b"\n")
        else:
            screen.line(_told(head))
    if not found:
        screen.note(f"no such run in {command.store}")
    return COMPLETED


def moment(text: str, *, now: float) -> float:
    """Return the moment that *text* means, in seconds since 1970: `90s`, `30m`, `2h`, `7d` ago, or a date and time."""
    number, unit = text[:-1], text[-1:]
    if unit in SPANS and number.isdecimal():
        return now - int(number) * SPANS[unit]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError as error:
        raise CommandError(f"--since {text}: say how long ago, as in 2h or 7d, or a date as in 2026-01-31") from error


def when(at: float) -> str:
    """Return a moment as people here read it."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _told(head: RunHead) -> str:
    standing = f"{head.status} ({head.reason})" if head.reason else head.status
    return f"{head.run_id}  {when(head.updated_at)}  {standing:<22}  {one_line(head.definition)}"
