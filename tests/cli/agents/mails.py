"""An agent whose module says what its inputs are, and writes down what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from turnwright import AgentDefinition, Completed, Outcome

definition = AgentDefinition("mails", "You answer mails.")


def inputs(argument: str, *, all: bool) -> Iterator[tuple[str, str]]:  # noqa: A002 - the name of the option
    """Give a mail for each line of the file, with its number."""
    lines = Path(argument).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines if all else lines[:1], 1):
        yield f"mail {number}", line


def write(argument: str, results: Sequence[tuple[str, Outcome[object]]]) -> Path:
    """Write each label and its answer beside the file."""
    drafts = Path(argument).with_suffix(".drafts")
    told = [f"{label}: {outcome.output}" for label, outcome in results if isinstance(outcome, Completed)]
    drafts.write_text("\n".join(told), encoding="utf-8")
    return drafts
