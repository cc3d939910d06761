"""Agents that the tests of the command line run, each from its file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["DESK", "MAILS", "NESTED", "TILL"]

DESK: Final = str(Path(__file__).with_name("desk.py"))
MAILS: Final = str(Path(__file__).with_name("mails.py"))
NESTED: Final = str(Path(__file__).with_name("nested.py"))
TILL: Final = str(Path(__file__).with_name("till.py"))
