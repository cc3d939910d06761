"""The form of a pydantic model, known by its methods alone.

Rule: the schema is what the model says of itself, and it stays the judge of its own values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol, TypeGuard, cast

from turnwright.canonical import JSON, encode, step
from turnwright.errors import InvalidValue, Issue
from turnwright.schema.documents import Document
from turnwright.schema.wire import Form, instance_of

_looks_around = re.compile(r"\(\?[=!<]").search


class Model(Protocol):
    """The part of a pydantic model class that is used here."""

    __name__: str

    def model_json_schema(self) -> dict[str, object]: ...
    def model_validate_json(self, data: bytes) -> object: ...


def is_model(cls: object) -> TypeGuard[Model]:
    """Tell whether *cls* is a pydantic model, or passes for one."""
    return callable(getattr(cls, "model_json_schema", None)) and callable(getattr(cls, "model_validate_json", None))


def model(cls: Model, own_name: str, definitions: Document) -> Form:
    """Return the form of *cls*, to be defined as *own_name*; what it refers to joins *definitions*."""
    described = cast("Document", cls.model_json_schema())
    inner = cast("Document", described.pop("$defs", {}))
    names = {name: name if name not in definitions else f"{own_name}_{name}" for name in inner}
    if (itself := str(described.get("$ref")).removeprefix("#/$defs/")) in inner:  # it is recursive
        names[itself] = own_name
        described = cast("Document", inner.pop(itself))
    definitions.update({names[name]: _lifted(schema, names) for name, schema in inner.items()})

    def load(value: JSON) -> object:
        try:
            return cls.model_validate_json(encode(value))
        except ValueError as error:
            raise _refused(error) from error

    def dump(value: object) -> JSON:
        instance_of(cast("type", cls), value)
        return cast("JSON", value.model_dump(mode="json", by_alias=True))  # type: ignore[attr-defined]

    return Form(cast("Document", _lifted(described, names)), load, dump)


def _lifted(schema: JSON, names: Mapping[str, str]) -> JSON:
    """Return *schema* with its references renamed, its objects closed and no pattern that looks around.

    Such a pattern cannot be matched in linear time; the model checks it when the value is loaded.
    """
    if isinstance(schema, list):
        return [_lifted(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lifted = {key: _lifted(item, names) for key, item in schema.items()}
    match schema:
        case {"$ref": str(reference)} if (name := reference.removeprefix("#/$defs/")) in names:
            lifted["$ref"] = f"#/$defs/{names[name]}"
        case {"pattern": str(pattern)} if _looks_around(pattern):
            del lifted["pattern"]
        case {"type": "object", "properties": dict()}:
            lifted.setdefault("additionalProperties", False)
        case _:
            pass
    return lifted


def _refused(error: ValueError) -> InvalidValue:
    list_errors = getattr(error, "errors", None)
    if not callable(list_errors):
        return InvalidValue([Issue("", str(error))])
    found = cast("list[dict[str, object]]", list_errors())
    return InvalidValue([Issue(_path(cast("tuple[str | int, ...]", item["loc"])), str(item["msg"])) for item in found])


def _path(location: tuple[str | int, ...]) -> str:
    path = ""
    for part in location:
        path = step(path, part)
    return path
