"""A schema in the closed form that Anthropic holds an answer to.

Rule: what cannot be said in it is not said at all: the schema then has no closed form, and goes to the model in words
(tests/adapters/test_schemas.py). What is only left out of it, such as a bound, is checked when the answer is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["closed_form"]

_FORMATS: Final = frozenset(
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"]
)


class _OpenError(Exception):
    """There is no closed form."""


def closed_form(schema: Mapping[str, object]) -> dict[str, object] | None:
    """Return the closed form of *schema*, None if it has none."""
    try:
        form = _closed(schema)
    except _OpenError:
        return None
    definitions = form.get("$defs", {})
    assert isinstance(definitions, dict)
    uses = {f"#/$defs/{name}": {*_references(each)} for name, each in definitions.items()}
    while leaves := {name for name, used in uses.items() if not used & uses.keys()}:
        for name in leaves:
            del uses[name]
    return None if uses else form  # what is left is in terms of itself


def _closed(schema: object) -> dict[str, object]:
    if not isinstance(schema, Mapping) or schema.keys() & {"allOf", "not", "if", "patternProperties", "prefixItems"}:
        raise _OpenError
    form: dict[str, object] = {}
    if "$defs" in schema:
        form["$defs"] = {name: _closed(each) for name, each in schema["$defs"].items()}
    match schema:
        case {"$ref": str(reference)} if reference.startswith("#/$defs/"):
            return {**form, "$ref": reference}
        case {"$ref": _}:
            raise _OpenError
        case {"enum": [*values]} if all([isinstance(value, str | int | float | None) for value in values]):
            form["enum"] = values
        case {"const": str() | int() | float() | None as value}:
            form["const"] = value
        case {"enum": _} | {"const": _}:
            raise _OpenError
        case {"anyOf": [*each]} | {"oneOf": [*each]}:
            form["anyOf"] = [_closed(one) for one in each]
        case {"type": [*types]}:
            rest = {key: value for key, value in schema.items() if key not in {"$defs", "title", "description"}}
            form["anyOf"] = [_closed({**rest, "type": one}) for one in types]
        case {"type": "object", "properties": Mapping() as properties} if not isinstance(
            schema.get("additionalProperties"), Mapping
        ):
            form["type"] = "object"
            form["properties"] = {name: _closed(each) for name, each in properties.items()}
            form["required"] = [*schema.get("required", ())]
            form["additionalProperties"] = False
        case {"type": "array", "items": items}:
            form |= {"type": "array", "items": _closed(items)}
            if schema.get("minItems") in {0, 1}:
                form["minItems"] = schema["minItems"]
        case {"type": "string"}:
            form["type"] = "string"
            if schema.get("format") in _FORMATS:
                form["format"] = schema["format"]
        case {"type": "integer" | "number" | "boolean" | "null" as plain}:
            form["type"] = plain
        case _:
            raise _OpenError
    return form | {key: schema[key] for key in ("title", "description") if key in schema}


def _references(form: object) -> Iterator[str]:
    match form:
        case {"$ref": str(reference)}:
            yield reference
        case Mapping():
            for each in form.values():
                yield from _references(each)
        case list():
            for each in form:
                yield from _references(each)
        case _:
            pass
