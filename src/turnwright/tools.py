"""The tool contract, and `@tool`, which makes one from a function."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen


@frozen
class ToolSpec:
    """What a model is told of a tool: its *name*, *description* and the JSON Schema of its *parameters* (an object)."""

    name: str
    description: str
    parameters: Mapping[str, object]
