"""The wire form of one type, and of an object made of several.

Rule: schema, load and dump of a type are made in one place, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, cast

from attrs import frozen

from turnwright.canonical import JSON
from turnwright.errors import InvalidValue
from turnwright.schema.documents import Document
from turnwright.schema.validation import refused, within

Load: TypeAlias = Callable[[JSON], object]
Dump: TypeAlias = Callable[[object], JSON]

ABSENT: Final = object()


@frozen(eq=False)
class Form:
    """How one type looks on the wire.

    *load* turns accepted JSON into the value, *dump* the value into JSON; None means that they are the same. *dump*
    refuses what is plainly no such value and leaves the rest to the schema.
    """

    schema: Document
    load: Load | None = None
    dump: Dump | None = None

    def loaded(self, value: JSON) -> object:
        return self.load(value) if self.load else value

    def dumped(self, value: object) -> JSON:
        return self.dump(value) if self.dump else cast("JSON", value)


@frozen(eq=False)
class Member:
    """One named part of an object: on the wire *key*, in Python *name*. *default* is JSON, or ABSENT."""

    key: str
    name: str
    form: Form
    required: bool
    default: object = ABSENT
    description: str = ""


def object_schema(members: Iterable[Member], description: str = "") -> Document:
    """Return the schema of an object with these members and no others."""
    properties: Document = {}
    required: list[JSON] = []
    for member in members:
        properties[member.key] = described = dict(member.form.schema)
        if member.description:
            described.setdefault("description", member.description)
        if member.default is not ABSENT:
            described["default"] = cast("JSON", member.default)
        if member.required:
            required.append(member.key)
    schema: Document = {"type": "object"}
    if description:
        schema["description"] = description
    schema["properties"] = properties
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    return schema


def load_members(members: Iterable[Member], value: JSON) -> dict[str, object]:
    """Return the Python values of those members that *value* has, by their Python names."""
    if not isinstance(value, dict):
        raise refused("expected a JSON object")
    loaded: dict[str, object] = {}
    for member in members:
        if member.key in value:
            try:
                loaded[member.name] = member.form.loaded(value[member.key])
            except InvalidValue as error:
                raise within(member.key, error) from error
    return loaded


def dump_members(members: Iterable[Member], values: Mapping[str, object]) -> dict[str, JSON]:
    """Return the JSON of *values*, which are by Python name, by their keys on the wire."""
    dumped: dict[str, JSON] = {}
    for member in members:
        if member.name in values:
            try:
                dumped[member.key] = member.form.dumped(values[member.name])
            except InvalidValue as error:
                raise within(member.key, error) from error
    return dumped


def instance_of(cls: type, value: object) -> None:
    """Refuse *value* if it is no instance of *cls*."""
    if not isinstance(value, cls):
        raise refused(f"expected {cls.__name__}, got {type(value).__name__}")
