"""The breaks still apply, and each of them is seen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.mutants.breaks import BREAKS, Break

ROOT = Path(__file__).parents[2]
COPIED = ("src", "adapters", "contracts", "tests", "examples", "pyproject.toml")
SECONDS = 600


@pytest.mark.promise("T-01")
@pytest.mark.parametrize("broken", BREAKS, ids=lambda each: each.name)
def test_a_break_is_still_about_something(broken: Break) -> None:
    """Its old text is in its file exactly once, and its tests are there."""
    source = (ROOT / broken.path).read_text(encoding="utf-8")

    assert 1 == source.count(broken.old)
    assert broken.old != broken.new
    assert all([(ROOT / path).exists() for path in broken.seen_by.split()])


def test_there_are_thirty_and_more() -> None:
    """As many as were promised, each under a name of its own."""
    assert len({each.name for each in BREAKS}) == len(BREAKS) >= 30


@pytest.mark.proof
@pytest.mark.promise("T-01")
def test_every_break_is_seen(tmp_path: Path) -> None:
    """In a copy of the tree with one break, the tests that are named for it fail; without any, they pass."""
    suites = " ".join(sorted({path for each in BREAKS for path in each.seen_by.split()}))
    nothing = Break("nothing", f"{BREAKS[0].path}", "", "", suites)
    with ThreadPoolExecutor(2) as pool:
        whole, *ends = pool.map(lambda pair: seen(pair[1], tmp_path / str(pair[0])), enumerate((nothing, *BREAKS)))

    assert not whole, "the tests fail without a break"
    assert [] == [each.name for each, was_seen in zip(BREAKS, ends, strict=True) if not was_seen]


def seen(broken: Break, copy: Path) -> bool:
    """Whether the tests of *broken* fail in a copy that has it."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    target = copy / broken.path
    target.write_text(target.read_text(encoding="utf-8").replace(broken.old, broken.new, 1), encoding="utf-8")
    paths = os.pathsep.join([str(copy / name) for name in ("src", "adapters", "contracts")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    where = [sys.executable, "-c", "import turnwright; print(turnwright.__file__)"]
    told = subprocess.run(where, cwd=copy, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.startswith(str(copy)), "the copy is not what is imported"
    run = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *broken.seen_by.split()]
    try:
        ended = subprocess.run(run, cwd=copy, env=environment, capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return True  # a run that never ends is seen as well
    finally:
        shutil.rmtree(copy)
    return ended.returncode == 1
