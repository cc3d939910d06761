"""Where tools read, write and run: an execution environment as a port. It is what tools are built on, not the engine.

Rule: this module says what an environment promises and nothing of how it is done. Names of parameters are part of the
promise. It is not a security boundary: what a program may do there is for the host to limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from turnwright.values import frozen

__all__ = ["LONGEST_TIMEOUT", "SHOWN_BYTES", "SHOWN_LINES", "Entry", "EntryKind", "Environment", "Ran"]

SHOWN_LINES: Final = 2000
"""Lines of an output that are shown: its last."""

SHOWN_BYTES: Final = 50 * 1024
"""Bytes of an output that are shown: its last."""

LONGEST_TIMEOUT: Final = 7 * 24 * 3600.0
"""Seconds that a program may be given."""

EntryKind: TypeAlias = Literal["file", "directory", "link", "other"]


@frozen
class Entry:
    """What stands in a directory under *name*; *size* in bytes is a file's."""

    name: str
    kind: EntryKind
    size: int = 0


@frozen
class Ran:
    """What became of a program. *exit_code* is None if it was ended because its time was up.

    *output* is the end of what it wrote, both streams as they came: whole lines where that is possible. Where that is
    not all, *truncated* says so and *saved* names a file that holds the whole, up to what the environment keeps of one.
    *lines* and *size* (bytes) count all of it, *last_line* the bytes of its last line; a newline at the end begins no
    line.
    """

    exit_code: int | None
    output: str
    lines: int
    size: int
    last_line: int
    truncated: bool = False
    saved: str | None = None

    @property
    def timed_out(self) -> bool:
        """Whether its time was up."""
        return self.exit_code is None


@runtime_checkable
class Environment(Protocol):
    """Files and programs below one root. Paths are relative to it; one that leads out of it is a PortError.

    ::

        await environment.write("notes/a.txt", b"one")
        await environment.edit("notes/a.txt", lambda text: text + b" two")
        ran = await environment.run(["wc", "-w", "notes/a.txt"], timeout=10.0)
        ran.exit_code, ran.output
    """

    async def read(self, path: str, *, at_most: int = 2**24) -> bytes:
        """The bytes of a file. PortError if there is none, or if it has more than *at_most*."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Make *data* the whole of a file, and the directories that lead to it. A reader sees the old or the new.

        Writes and edits of one file, under whatever name, happen in the order in which they were asked for. One that
        is cancelled happened or did not, and is over when CancelledError leaves.
        """
        ...

    async def edit(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Replace what a file holds by what *change* makes of it, with no other write or edit in between.

        What *change* raises leaves the file as it was.
        """
        ...

    async def entries(self, path: str = ".") -> Sequence[Entry]:
        """What stands in a directory, by name."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> Ran:
        """Run a program, without a shell, to its end. A code other than 0 is no error.

        With *env*, it has these variables and none of the host's. *on_output* is plain and quick; it is given each
        piece as it comes, and nothing once this returned. When the time is up, or the caller cancels, the program and
        all that it started are ended first; so is what it left behind when it ended by itself. ValueError for a
        *timeout* that is not above 0 or above LONGEST_TIMEOUT, PortError for a program or a *cwd* that is not there.
        """
        ...

    async def aclose(self) -> None:
        """End every program that still runs; its `run` raises PortError. A second call does nothing."""
        ...
