"""Where runs are kept, as the command line names it. Rule: a store's package is imported when its scheme is named."""

from __future__ import annotations

from turnwright.cli.exits import CommandError
from turnwright.cli.loop import EventLoop
from turnwright.ports import State

__all__ = ["open_state"]


def open_state(name: str, *, loop: EventLoop) -> State:
    """Return the store called *name*, open until *loop* is left; it keeps runs beyond this process."""
    scheme, _, place = name.partition(":")
    if scheme == "sqlite" and place:
        from turnwright_adapters.sqlite import SqliteState

        return loop.open(SqliteState(place))
    if scheme in ("postgres", "postgresql") and place.startswith("//"):
        from turnwright_adapters.postgres import PostgresState

        return loop.open(PostgresState(name))
    raise CommandError(f"--state {name}: name a store as sqlite:PATH or postgresql://USER@HOST/DATABASE")
