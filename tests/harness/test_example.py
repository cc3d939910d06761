"""The document generator of the examples, on what the embedded model once said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def generated(*arguments: str | Path) -> tuple[list[str], list[str]]:
    """The lines of the document, and the reasons of the verdicts on the way."""
    command = [sys.executable, EXAMPLES / "document_generator.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    return done.stdout.splitlines(), [line.split("'reason': ")[1].strip("'}") for line in done.stderr.splitlines()]


@pytest.mark.promise("A-04")
def test_the_generator_climbs_to_the_model_and_repairs_its_sentence(tmp_path: Path) -> None:
    """The table does not know every word; the first sentence is too long, the second is not; no subject is lost."""
    subjects = (EXAMPLES / "commits.txt").read_text(encoding="utf-8").splitlines()
    state = tmp_path / "runs.db"

    lines, reasons = generated("--replay", "--state", state)

    assert ["unknown-verbs", "too-long", ""] == reasons
    assert sorted(subjects) == sorted([line.removeprefix("- ") for line in lines if line.startswith("- ")])
    again = generated("--replay", "--state", state)
    assert (lines, []) == again  # finished before: nothing runs, the document is the same


def test_known_words_need_no_model(tmp_path: Path) -> None:
    """The first step is enough."""
    known = tmp_path / "commits.txt"
    known.write_text("Add a clock\nFix the clock\n")

    lines, reasons = generated("--replay", known)

    assert [""] == reasons
    assert ["## Added", "", "- Add a clock", "", "## Fixed", "", "- Fix the clock"] == lines[4:11]
