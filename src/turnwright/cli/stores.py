"""Where runs are kept, as the command line names it. Rule: a store's package is imported when its scheme is named."""

from __future__ import annotations

import re
from pathlib import Path

from turnwright.cli.exits import CommandError
from turnwright.cli.loop import EventLoop
from turnwright.ports import State

__all__ = ["named", "open_state"]


def open_state(name: str, *, loop: EventLoop, create: bool = True) -> State:
    """Return the store called *name*, open until *loop* is left; it keeps runs beyond this process.

    Without *create*, a file that is not there is an error: whoever asks for a run wants one that was kept.
    """
    scheme, _, place = name.partition(":")
    if scheme == "sqlite" and place:
        from turnwright_adapters.sqlite import SqliteState

        if not create and not Path(place).is_file():
            raise CommandError(f"--state {name}: there is no file {place}")
        return loop.open(SqliteState(place))
    if scheme in ("postgres", "postgresql") and place.startswith("//"):
        from turnwright_adapters.postgres import PostgresState

        return loop.open(PostgresState(name))
    raise CommandError(f"--state {named(name)}: name a store as sqlite:PATH or postgresql://USER@HOST/DATABASE")


def named(name: str) -> str:
    """Return *name* as it may be shown: without a password."""
    return re.sub(r"(//[^:@/]*):[^@/]*@", r"\1:***@", name)
