"""What others wrote is shown so that it can do nothing to the terminal or to the text around it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, strategies as st

from turnwright.cli.visible import one_line, visible


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "L", "So"])))
def test_no_control_character_gets_through(text: str) -> None:
    """Of all that can move, colour or turn what a terminal shows, only lines, tabs and joiners are left."""
    left = {each for each in visible(text) if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}

    assert set() == left - set("\n\t\u200c\u200d")


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    """Letters, numbers, signs and spaces of every script stay."""
    assert text == visible(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("over\rwritten", "over\\x0dwritten"),
        ("a line\r\nand another", "a line\nand another"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("\x9b2J", "\\x9b2J"),
        ("\ud800", "\\ud800"),
    ],
)
def test_a_control_character_is_named(text: str, shown: str) -> None:
    """A reader sees what was there."""
    assert shown == visible(text)


@given(st.text(), st.integers(2, 40))
def test_one_line_is_one_line_of_bounded_length(text: str, width: int) -> None:
    """Whatever it is made of, it fits."""
    line = one_line(text, width=width)

    assert (True, 1) == (len(line) <= width, len(f"{line}.".splitlines()))
