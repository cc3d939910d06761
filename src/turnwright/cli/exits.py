"""How a command ends: its exit code, and the error that is one line for people.

    0     completed
    1     failed, or a port broke
    2     the command cannot be carried out as it was given
    3     suspended: the run waits for somebody or something
    4     cancelled
    5     busy: another process works on the run
    130   interrupted by Ctrl-C

Of several runs the worst counts, in the order of `SEVERITY`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from turnwright.errors import TurnwrightError
from turnwright.outcomes import Cancelled, Completed, Failed, Outcome, Suspended

__all__ = [
    "BUSY",
    "CANCELLED",
    "COMPLETED",
    "FAILED",
    "INTERRUPTED",
    "SUSPENDED",
    "UNUSABLE",
    "CommandError",
    "exit_code",
    "worst",
]

COMPLETED: Final = 0
FAILED: Final = 1
UNUSABLE: Final = 2
SUSPENDED: Final = 3
CANCELLED: Final = 4
BUSY: Final = 5
INTERRUPTED: Final = 130

SEVERITY: Final = (COMPLETED, SUSPENDED, CANCELLED, BUSY, FAILED, UNUSABLE, INTERRUPTED)


class CommandError(TurnwrightError):
    """What a command was given cannot be used. The message is one line that names the thing and the remedy."""


def exit_code(outcome: Outcome[object]) -> int:
    """Return the code of one outcome."""
    match outcome:
        case Completed():
            return COMPLETED
        case Failed():
            return FAILED
        case Suspended(reason="cancelled"):
            return INTERRUPTED
        case Suspended():
            return SUSPENDED
        case Cancelled():
            return CANCELLED
        case _:
            assert_never(outcome)


def worst(codes: Iterable[int]) -> int:
    """Return the worst of *codes*, `COMPLETED` if there is none."""
    return max(codes, key=SEVERITY.index, default=COMPLETED)
