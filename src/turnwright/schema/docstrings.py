"""Read what a docstring says of a function or class and of its parameters, in Google's, NumPy's and Sphinx' styles."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARAMETERS: Final = {
    "args", "arguments", "attributes", "fields", "keyword args", "keyword arguments", "other parameters", "parameters",
    "params",
}  # fmt: skip
_DROPPED: Final = {"raises", "return", "returns", "warns", "yield", "yields"}

_entry = re.compile(r"(?P<name>\*{0,2}\w+)(?: ?\([^()]*(?:\([^()]*\)[^()]*)*\))? ?:(?:\s+(?P<text>.*))?$").match
_numpy_entry = re.compile(r"(?P<name>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: ?:.*)?$").match
_sphinx_entry = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|ivar)\s+(?:[^:]*\s)?(?P<name>\\?\*{0,2}\w+):\s*(?P<text>.*)$"
).match
_sphinx_other = re.compile(r":(?:type|returns?|rtype|raises?|yields?)\b[^:]*:").match


@frozen
class Docs:
    """The *description* leaves out the sections on parameters and results; *parameters* are by name, without stars."""

    description: str
    parameters: Mapping[str, str]


def read(docstring: str | None) -> Docs:
    """Return what *docstring* says. Text in no known style is all description."""
    if not docstring:
        return Docs("", {})
    kept: list[str] = []
    parameters: dict[str, list[str]] = {}
    lines = cleandoc(docstring).split("\n")
    index = 0
    while index < len(lines):
        line = lines[index]
        following = lines[index + 1] if index + 1 < len(lines) else ""
        title = line.strip().removesuffix(":").lower()
        if title in _PARAMETERS | _DROPPED and not line.startswith(" "):
            numpy = len(following) > 2 and not following.strip("-")
            if numpy or line.rstrip().endswith(":"):
                index, section = _section(lines, index + (2 if numpy else 1), numpy=numpy)
                if title in _PARAMETERS:
                    _read_entries(section, parameters, numpy=numpy)
                continue
        if entry := _sphinx_entry(line):
            index, text = _indented(lines, index + 1)
            parameters[entry["name"].lstrip("\\*")] = [entry["text"], *text]
        elif _sphinx_other(line):
            index, _ = _indented(lines, index + 1)
        else:
            kept.append(line)
            index += 1
    texts = {name: "\n".join(text).strip() for name, text in parameters.items()}
    return Docs("\n".join(kept).strip(), {name: text for name, text in texts.items() if text})


def _indented(lines: list[str], index: int) -> tuple[int, list[str]]:
    text = []
    while index < len(lines) and lines[index].startswith(" "):
        text.append(lines[index].strip())
        index += 1
    return index, text


def _section(lines: list[str], index: int, *, numpy: bool) -> tuple[int, list[str]]:
    """Return the end of the section that begins at *index*, and its lines; NumPy's at the next underlined title."""
    section: list[str] = []
    while index < len(lines):
        line = lines[index]
        following = lines[index + 1] if index + 1 < len(lines) else ""
        underlined = len(following) > 2 and not following.strip("-")
        if line and not line.startswith(" ") and (underlined or not numpy):
            break
        section.append(line)
        index += 1
    return index, section


def _read_entries(section: list[str], parameters: dict[str, list[str]], *, numpy: bool) -> None:
    margin = min((len(line) - len(line.lstrip()) for line in section if line.strip()), default=0)
    names: list[str] = []
    for line in section:
        entry = (_numpy_entry if numpy else _entry)(line[margin:])
        if entry and line.strip():
            names = [name.lstrip("*") for name in entry["name"].split(", ")]
            for name in names:
                parameters[name] = [] if numpy else [entry["text"] or ""]
        else:
            for name in names:
                parameters[name].append(line.strip())
