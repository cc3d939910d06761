"""Words that stand where a dialect has no form for what is meant. Rule: equal meanings, equal words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright.context.history import EMPTY_RESULT
from turnwright.messages import File, Image, Part, Text
from turnwright.ports import OutputSpec
from turnwright_adapters._wire.json_text import encode


def plain_text(parts: Iterable[Part]) -> str:
    """Return the text of *parts*, empty if it is blank."""
    text = "".join([part.text for part in parts if isinstance(part, Text)])
    return text if text.strip() else ""


def result_text(parts: Iterable[Part]) -> str:
    """Return the text of a result whose images and files stand elsewhere: that there are some, if it has no other."""
    parts = [*parts]
    shown = dict.fromkeys([part.type for part in parts if isinstance(part, Image | File)])
    return plain_text(parts) or (f"(see attached {' and '.join(shown)})" if shown else EMPTY_RESULT)


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
