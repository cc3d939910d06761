"""What `Annotated` adds to a type: a description and limits, known by their shape and not by their library.

A text is the description; so is an attribute `description` (pydantic, msgspec) or `documentation` (typing_extensions).
Limits are attributes with the names that annotated_types, pydantic and msgspec share. A limit that the schema cannot
keep is a `DefinitionError`; other metadata says nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from attrs import evolve as replace

from turnwright.canonical import JSON
from turnwright.errors import DefinitionError
from turnwright.schema.documents import Document
from turnwright.schema.validation import Validation
from turnwright.schema.wire import Form

_NUMBER: Final = {"integer", "number"}
_LIMITS: Final[Mapping[str, Mapping[str, set[str]]]] = {
    "ge": {"minimum": _NUMBER},
    "gt": {"exclusiveMinimum": _NUMBER},
    "le": {"maximum": _NUMBER},
    "lt": {"exclusiveMaximum": _NUMBER},
    "multiple_of": {"multipleOf": _NUMBER},
    "min_length": {"minLength": {"string"}, "minItems": {"array"}, "minProperties": {"object"}},
    "max_length": {"maxLength": {"string"}, "maxItems": {"array"}, "maxProperties": {"object"}},
    "pattern": {"pattern": {"string"}},
}


def annotated(form: Form, metadata: Iterable[object]) -> Form:
    """Return *form* with the descriptions and limits of *metadata*."""
    schema = form.schema
    for item in _flat(metadata):
        if description := _description(item):
            schema = {**schema, "description": description}
        if isinstance(item, str):
            continue
        for name in _LIMITS:
            if (limit := getattr(item, name, None)) is not None:
                schema = _limited(schema, name, _as_json(limit))
    return replace(form, schema=schema)


def kinds(schema: JSON) -> set[str]:
    """Return the JSON types that a value of *schema* can have, as far as the schema itself says."""
    if not isinstance(schema, dict):
        return set()
    if isinstance(arms := schema.get("anyOf"), list):
        return {kind for arm in arms for kind in kinds(arm)}
    if "$ref" in schema:
        return {"object"}
    named = schema.get("type", ["array", "boolean", "integer", "null", "number", "object", "string"])
    return {str(kind) for kind in named} if isinstance(named, list) else {str(named)}


def _flat(metadata: Iterable[object]) -> Iterable[object]:
    for item in metadata:
        yield item
        if isinstance(inner := getattr(item, "metadata", None), list | tuple):
            yield from _flat(inner)


def _description(item: object) -> str:
    if isinstance(item, str):
        return item
    texts = (getattr(item, name, None) for name in ("description", "documentation"))
    return next((text for text in texts if isinstance(text, str)), "")


def _as_json(limit: object) -> JSON:
    if isinstance(limit, Decimal):
        return int(limit) if limit == int(limit) else float(limit)
    if isinstance(pattern := getattr(limit, "pattern", limit), str):
        Validation({"pattern": pattern}, {}).compile()
        return pattern
    return limit if isinstance(limit, int | float) else None


def _limited(schema: Document, name: str, limit: JSON) -> Document:
    """Return *schema* with the limit wherever it means something: in a union, in the arms that it fits."""
    if limit is not None:
        if isinstance(arms := schema.get("anyOf"), list):
            fitting = set[str]().union(*_LIMITS[name].values())
            limited: list[JSON] = [
                _limited(arm, name, limit) if isinstance(arm, dict) and kinds(arm) & fitting else arm for arm in arms
            ]
            if limited != arms:
                return {**schema, "anyOf": limited}
        elif keywords := [keyword for keyword, fitting in _LIMITS[name].items() if kinds(schema) & fitting]:
            return {**schema, **dict.fromkeys(keywords, limit)}
    raise DefinitionError(f"the limit {name} cannot be kept on {' or '.join(sorted(kinds(schema)))}")
