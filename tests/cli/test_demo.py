"""The demonstration of a crash, as anybody runs it."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Timer

import pytest

from tests.cli.terminal import WITHIN
from turnwright.cli import main

ROOT = Path(__file__).parents[2]


def without_chance(shown: str) -> list[str]:
    """Return the lines of *shown* with what differs from one time to the next made the same."""
    for pattern, same in [
        (r"\b[0-9a-f]{64}\b", "DIGEST"),
        (r"\b[0-9a-f]{32}\b", "RUN"),
        (r" *\d+\.\d+ s\b", " 0.0 s"),
        (r"\b\d+ ms\b", "0 ms"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "THEN"),
    ]:
        shown = re.sub(pattern, same, shown)
    return shown.splitlines()


@contextmanager
def playing(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The demonstration, in *folder*; it does not outlive the block, nor its bound."""
    command = [sys.executable, str(ROOT / "examples" / "demo_crash.py"), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as playing:
        timer = Timer(2 * WITHIN, playing.kill)
        timer.start()
        try:
            yield playing
        finally:
            timer.cancel()
            playing.kill()


@pytest.mark.promise("T-01", "I-07")
def test_the_demonstration_pays_once_and_is_what_the_readme_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lease of the killed process is let run out at once; all else is the real thing, kill -9 included."""
    shown = ""

    with playing(tmp_path) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            shown += line
            if line.startswith("# Its lease"):
                capsys.readouterr()
                run_id = re.findall(r"^run (\S+)$", shown, re.MULTILINE)[0]
                assert 0 == main(["why", run_id, "--state", f"sqlite:{tmp_path / 'runs.db'}"])
                assert "call 1.0 (pay) was started and has no result yet; its " in capsys.readouterr().out
                with closing(sqlite3.connect(tmp_path / "runs.db")) as meddle, meddle:
                    meddle.execute("UPDATE runs SET expires = 0")
        ended = demo.wait(WITHIN)

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = re.search(r"^\$ make demo-crash\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert (0, ["4500 cents to anna"]) == (ended, (tmp_path / "payments.txt").read_text(encoding="utf-8").splitlines())
    assert printed is not None
    assert without_chance(printed[1]) == without_chance(shown)
