"""Words that stand where a dialect has no form for what is meant. Rule: equal meanings, equal words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright.messages import Part, Text
from turnwright.ports import OutputSpec
from turnwright_adapters._wire.json_text import encode

ONLY_IMAGES: Final = "(see attached image)"


def plain_text(parts: Iterable[Part]) -> str:
    """Return the text of *parts*, empty if it is blank."""
    text = "".join([part.text for part in parts if isinstance(part, Text)])
    return text if text.strip() else ""


def prompted(output: OutputSpec) -> str:
    """Return the words that ask for *output* where its schema cannot be sent."""
    schema = encode(output.schema).decode()
    return f"Give your final answer as JSON alone, valid under this JSON Schema:\n{schema}"
