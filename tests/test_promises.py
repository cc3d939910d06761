"""Promises and tests hold each other: no test names an unknown promise, no built promise lacks a test.

Marks are read from the source of the tests: one that is skipped still counts, and one that is misspelt fails.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
PROMISES = tomllib.loads((TESTS.parent / "contracts" / "promises.toml").read_text(encoding="utf-8"))


def marks(name: str, source: str) -> Iterator[str]:
    """Give each id in `pytest.mark.<name>(...)` of *source*; one that is not written out is given as its expression."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr=attr), args=args) if attr == name:
                for arg in args:
                    match arg:
                        case ast.Constant(value=str(mark)):
                            yield mark
                        case expression:
                            yield ast.unparse(expression)


def marked(name: str) -> dict[str, set[str]]:
    """Give each id that the tests carry under the mark *name*, with the files that carry it."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for mark in marks(name, path.read_text(encoding="utf-8")):
            found.setdefault(mark, set()).add(path.relative_to(TESTS).as_posix())
    return found


def test_marks_are_read_wherever_they_are_written() -> None:
    """A mark on a test, on a class, on a module and on one row of a table is found; what is not written out shows."""
    source = """
import pytest
pytestmark = [pytest.mark.anyio, pytest.mark.sample("A-1")]
@pytest.mark.sample("A-2", "A-3")
class TestIt:
    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.sample("A-4"))])
    def test_it(self, n): ...
    @pytest.mark.sample(name)
    @pytest.mark.other("A-5")
    async def test_that(self): ...
"""

    assert ["A-1", "A-2", "A-3", "A-4", "name"] == sorted(marks("sample", source))


def test_every_promise_named_by_a_test_exists() -> None:
    """A test that names an unknown promise fails here, with its file."""
    assert {} == {mark: files for mark, files in marked("promise").items() if mark not in PROMISES}


def test_every_built_promise_is_carried_by_a_test() -> None:
    """What contracts/promises.toml calls built, some test keeps."""
    built = {name for name, promise in PROMISES.items() if promise["built"]}

    assert set() == built - marked("promise").keys()


def test_every_promise_has_an_id_a_sentence_and_a_standing() -> None:
    """An entry of contracts/promises.toml is an id, one sentence, and whether it is built; nothing else."""
    malformed = [
        name
        for name, promise in PROMISES.items()
        if not (
            re.fullmatch(r"[NPIAT]-\d\d", name)
            and promise.keys() == {"says", "built"}
            and re.fullmatch(r"[A-Z`][^\n]*\.", promise["says"])
            and isinstance(promise["built"], bool)
        )
    ]

    assert [] == malformed


def test_every_case_named_by_a_test_is_well_formed() -> None:
    """A bug case is three signs, a dash and two digits: `oac-05`, `a2a-01`."""
    assert {} == {mark: files for mark, files in marked("case").items() if not re.fullmatch(r"[a-z0-9]{3}-\d\d", mark)}
