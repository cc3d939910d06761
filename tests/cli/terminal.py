"""`turnwright` on a pseudo-terminal of its own, driven as a person would. Rule: every wait is bounded."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

TURNWRIGHT = Path(sys.executable).with_name("turnwright")

WITHIN = 30.0
"""Seconds for anything that a test waits for; the machine may be slow."""

# Makes the terminal the one that Ctrl-C comes from, then becomes the command.
LAUNCH = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"

CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """One command on a terminal. `seen` is all that it showed, without colours and cursor movements."""

    def __init__(self, *words: str) -> None:
        self._master, terminal = pty.openpty()
        command = [sys.executable, "-c", LAUNCH, str(TURNWRIGHT), *words]
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
        self._process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=env, start_new_session=True
        )
        os.close(terminal)
        self.raw = ""
        self._told = 0

    @property
    def seen(self) -> str:
        """What a person has read so far."""
        return CONTROL.sub("", self.raw).replace("\r\n", "\n").replace("\r", "")

    def wait_for(self, text: str, *, within: float = WITHIN) -> None:
        """Wait until *text* is shown after what was waited for before."""
        until = time.monotonic() + within
        while (place := self.seen.find(text, self._told)) < 0:
            assert self._read(until), f"{text!r} is not in {self.seen[self._told :]!r}"
        self._told = place + len(text)

    def press_until(self, keys: str, text: str) -> None:
        """Press *keys*, and again if they seem to have no effect, as a person does, until *text* is shown.

        Python's line editing does not notice a Ctrl-C that comes in the instant before it waits for a key.
        """
        for _ in range(5):
            self.type(keys)
            with contextlib.suppress(AssertionError):
                return self.wait_for(text, within=WITHIN / 5)
        raise AssertionError(f"{text!r} is not in {self.seen[self._told :]!r}")

    def type(self, keys: str) -> None:
        """Press *keys*."""
        os.write(self._master, keys.encode())

    def end(self) -> int:
        """Wait for the end of the command and of everything that it started, and return its exit code."""
        until = time.monotonic() + WITHIN
        while self._read(until):
            pass
        return self._process.wait(max(0.1, until - time.monotonic()))

    def has_left_something(self) -> bool:
        """Whether a process of the command still lives."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(WITHIN)
        os.close(self._master)

    def _read(self, until: float) -> bool:
        """Take what is shown next. False at the end, or when the time is over."""
        if not select.select([self._master], [], [], max(0.0, until - time.monotonic()))[0]:
            return False
        try:
            piece = os.read(self._master, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # how Linux says that nobody holds the other side
                return False
            raise
        self.raw += piece.decode(errors="replace")
        return bool(piece)
