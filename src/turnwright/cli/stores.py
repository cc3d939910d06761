"""Where runs are kept, as the command line names it. Rule: a store's package is imported when its scheme is named.

What a store seals is opened and sealed with the keys of a file, never with one that was typed. A line of the file is a
key: its name, and 64 hex digits. The last one seals, and each opens what it has sealed; so a new key is put at the end,
and an old one stays as long as something that it sealed shall be read.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from attrs import frozen

from turnwright.cli.exits import CommandError
from turnwright.cli.loop import EventLoop
from turnwright.ports import Cipher, State

__all__ = ["Store"]


@frozen
class Store:
    """A store by its *name*, and the file of its *keys*. Its text is the name as it may be shown: no password in it."""

    name: str
    keys: Path | None = None

    def __str__(self) -> str:
        return re.sub(r"(//[^:@/]*):[^@/]*@", r"\1:***@", self.name)

    @property
    def options(self) -> str:
        """How it is named on a command line, ready to be typed."""
        keys = "" if self.keys is None else f" --keys {shlex.quote(str(self.keys))}"
        return f"--state {shlex.quote(str(self))}{keys}"

    def open(self, *, loop: EventLoop, create: bool = True) -> State:
        """Open it until *loop* is left; it keeps runs beyond this process.

        Without *create*, a file that is not there is an error: whoever asks for a run wants one that was kept.
        """
        cipher = None if self.keys is None else _cipher(self.keys)
        scheme, _, place = self.name.partition(":")
        if scheme == "sqlite" and place:
            from turnwright_adapters.sqlite import SqliteState

            if not create and not Path(place).is_file():
                raise CommandError(f"--state {self}: there is no file {place}")
            return loop.open(SqliteState(place, cipher=cipher))
        if scheme in ("postgres", "postgresql") and place.startswith("//"):
            from turnwright_adapters.postgres import PostgresState

            return loop.open(PostgresState(self.name, cipher=cipher))
        raise CommandError(f"--state {self}: name a store as sqlite:PATH or postgresql://USER@HOST/DATABASE")


def _cipher(path: Path) -> Cipher:
    """The cipher of a file of keys. No message quotes what is in it but the names."""
    from turnwright_adapters.sealed import AesGcmCipher

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise CommandError(f"--keys {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from error
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, digits = line.strip().partition(" ")
        if not re.fullmatch(r"[0-9a-fA-F]{64}", digits.strip()):
            raise CommandError(f"--keys {path}, line {number}: write a name, a blank and 64 hex digits")
        if name in keys:
            raise CommandError(f"--keys {path}, line {number}: a second key is named {name!r}; name each its own way")
        keys[name] = bytes.fromhex(digits)
    if not keys:
        raise CommandError(f"--keys {path}: there is no key in it; write a name, a blank and 64 hex digits")
    try:
        return AesGcmCipher(keys, current=next(reversed(keys)))
    except ValueError as error:
        raise CommandError(f"--keys {path}: {error}") from error
