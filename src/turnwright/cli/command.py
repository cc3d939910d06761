"""One command from its words to its exit code. Rule: what a person can cause ends in one line, never in a traceback."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from turnwright.cli.app import parse
from turnwright.cli.console import Screen
from turnwright.cli.exits import BUSY, COMPLETED, FAILED, INTERRUPTED, UNUSABLE, CommandError
from turnwright.cli.loop import EventLoop
from turnwright.errors import DefinitionError, InvalidValue, MissingExtra, RunBusy, TurnwrightError, UnusablePorts

__all__ = ["command"]


def command(tokens: Sequence[str]) -> int:
    """Do what *tokens* say and return the exit code."""
    _tolerate()
    screen = Screen(answer_apart="--json" in tokens)
    try:
        work = parse(tokens)
    except CommandError as error:
        screen.error(f"turnwright: {error}")
        return UNUSABLE
    if work is None:
        return COMPLETED
    loop = EventLoop()
    code = FAILED
    try:
        code = work(loop, screen)
    except KeyboardInterrupt:
        screen.error("interrupted")
        code = INTERRUPTED
    except (CommandError, InvalidValue, DefinitionError, UnusablePorts, MissingExtra) as error:
        screen.error(f"turnwright: {error}")
        code = UNUSABLE
    except RunBusy as error:
        screen.error(f"turnwright: {error}")
        code = BUSY
    except TurnwrightError as error:
        screen.error(f"turnwright: {error}")
    except BrokenPipeError:
        # Whoever read our output has gone. The interpreter must not try to write the rest of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        screen.rest()
        code = loop.leave(code, screen.error)
    return code


def _tolerate() -> None:
    """Let no character that a terminal's encoding lacks, and no byte that it cannot have meant, end a command."""
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
