"""The command `turnwright`. Rule: what the extra `cli` brings is imported after it is known to be there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

__all__ = ["main"]


def main(tokens: Sequence[str] | None = None) -> int:
    """Run the command line *tokens*, those of this process if None, and return the exit code."""
    from turnwright.errors import MissingExtra

    for package in ("cyclopts", "rich"):
        if find_spec(package) is None:
            print(f"turnwright: {MissingExtra('cli', package)}", file=sys.stderr)
            return 2
    from turnwright.cli.command import command

    return command(sys.argv[1:] if tokens is None else tokens)
