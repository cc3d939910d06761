r"""Text that somebody else wrote, made safe to show on a terminal. Rule: whatever a model, a tool or a file says goes
through here before it is shown.

Control characters become visible escapes (`\x1b`), so that no text can move the cursor, colour its surroundings, hide
itself or turn the reading direction of what stands beside it.
"""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["one_line", "visible"]

JOINERS: Final = "\u200c\u200d"
"""Formatting characters without which some scripts and emoji cannot be written, and which hide nothing."""


def visible(text: str) -> str:
    """Return *text* with lines and tabs as they are and every other control or formatting character escaped."""
    if text.isprintable():
        return text
    return "".join([each if _harmless(each) else _escaped(each) for each in text.replace("\r\n", "\n")])


def one_line(text: str, *, width: int = 500) -> str:
    """Return *text* as one line of at most *width* characters, white space folded, the rest as `visible` has it."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _harmless(character: str) -> bool:
    return (
        character in "\n\t"
        or character in JOINERS
        or unicodedata.category(character) not in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
