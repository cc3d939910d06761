"""Words that stand where a dialect has no form for what is meant. Rule: equal meanings, equal words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright.context.history import EMPTY_RESULT
from turnwright.messages import File, Image, Part, Text
from turnwright.ports import OutputSpec
from turnwright_adapters._wire.json_text import encode


def plain_text(parts: Sequence[Part]) -> str:
    """Return the text of *parts*, empty if it is blank."""
    text = "".join([part.text for part in parts if type(part) is Text])
    return text if text and not text.isspace() else ""


def shown_in(parts: Sequence[Part]) -> list[Image | File]:
    """Return the images and files among *parts*."""
    return [part for part in parts if isinstance(part, _SHOWN)]


_SHOWN: Final = (Image, File)


def result_text(parts: Sequence[Part]) -> str:
    """Return the text of a result whose images and files stand elsewhere: that there are some, if it has no other."""
    if text := plain_text(parts):
        return text
    kinds = dict.fromkeys([part.type for part in shown_in(parts)])
    return f"(see attached {' and '.join(kinds)})" if kinds else EMPTY_RESULT


def data_url(shown: Image | File) -> str:
    """Return the data of *shown* as a URL."""
    return f"data:{shown.media_type};base64,{shown.data}"


def file_name(file: File) -> str:
    """Return what *file* is called, for dialects in which every file has a name."""
    return file.name or f"document{_ENDINGS.get(file.media_type, '')}"


_ENDINGS: Final = {"application/pdf": ".pdf", "text/csv": ".csv", "text/markdown": ".md", "text/plain": ".txt"}


def prompted(output: OutputSpec) -> str:
    """Return the words that ask for *output* where its schema cannot be sent."""
    schema = encode(output.schema).decode()
    return f"Give your final answer as JSON alone, valid under this JSON Schema:\n{schema}"
