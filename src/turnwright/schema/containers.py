"""The forms of arrays, objects with free keys, literals and Enums, given the forms of what is in them."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, TypeVar, cast

from turnwright.canonical import JSON, encode, step
from turnwright.errors import DefinitionError, InvalidValue
from turnwright.schema.documents import Document
from turnwright.schema.limits import kinds
from turnwright.schema.validation import refused, within
from turnwright.schema.wire import Form, Load, instance_of

Key = TypeVar("Key")
Source = TypeVar("Source")
Target = TypeVar("Target")

ARRAYS: Final[Mapping[object, type[Collection[object]]]] = {
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
    tuple: tuple,
}
OBJECTS: Final = (dict, abc.Mapping, abc.MutableMapping)


def array_of(kind: type[Collection[object]], item: Form) -> Form:
    """Return the form of a *kind* (list, tuple, set or frozenset) of any number of items."""
    schema: Document = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    if issubclass(kind, abc.Set):
        schema["uniqueItems"] = True
    make = cast("Callable[[Iterable[object]], object]", kind)

    def load(value: JSON) -> object:
        return make(_each(item.loaded, _array(value)))

    def dump(value: object) -> JSON:
        if not isinstance(value, abc.Iterable) or isinstance(value, str | bytes | Mapping):
            raise refused(f"expected {kind.__name__}, got {type(value).__name__}")
        dumped = list(_each(item.dumped, value))
        return sorted(dumped, key=encode) if isinstance(value, abc.Set) else dumped

    return Form(schema, load if item.load or kind is not list else None, dump)


def tuple_of(items: list[Form]) -> Form:
    """Return the form of a tuple that has one item of each form, in this order."""
    schema: Document = {"type": "array", "minItems": len(items), "maxItems": len(items)}
    if items:
        schema["prefixItems"] = [item.schema for item in items]

    def load(value: JSON) -> object:
        forms = iter(items)
        return tuple(_each(lambda item: next(forms).loaded(item), _array(value)))

    def dump(value: object) -> JSON:
        if not isinstance(value, tuple | list) or len(value) != len(items):
            raise refused(f"expected a tuple of {len(items)}, got {type(value).__name__}")
        forms = iter(items)
        return list(_each(lambda item: next(forms).dumped(item), value))

    return Form(schema, load, dump)


def mapping_of(key: Form, item: Form) -> Form:
    """Return the form of a dict. Its keys are texts on the wire, whole numbers written as such."""
    schema: Document = {"type": "object"}
    load_key: Load = key.loaded
    if kinds(key.schema) == {"integer"} and "enum" not in key.schema:
        schema["propertyNames"] = {"pattern": "^(0|-?[1-9][0-9]{0,38})$"}
        load_key = _whole_number
    elif kinds(key.schema) != {"string"} and key.schema:
        raise DefinitionError("the keys of a JSON object are texts: use str, int, an Enum or Literal of texts as keys")
    elif key.schema.keys() - {"type"}:
        schema["propertyNames"] = key.schema
    if item.schema:
        schema["additionalProperties"] = item.schema

    def load(value: JSON) -> object:
        if not isinstance(value, dict):
            raise refused("expected a JSON object")
        return {load_key(name): loaded for name, loaded in _members(item.loaded, value)}

    def dump(value: object) -> JSON:
        if not isinstance(value, Mapping):
            raise refused(f"expected dict, got {type(value).__name__}")
        return {str(key.dumped(name)): dumped for name, dumped in _members(item.dumped, value)}

    return Form(schema, load if item.load or key.load or "propertyNames" in schema else None, dump)


def literal_of(options: tuple[object, ...]) -> Form:
    """Return the form of a Literal; members of Enums stand for their values."""
    wire = [option.value if isinstance(option, Enum) else option for option in options]
    members = [(value, option) for value, option in zip(wire, options, strict=True) if isinstance(option, Enum)]

    def load(value: JSON) -> object:
        return next((member for known, member in members if known == value and type(known) is type(value)), value)

    def dump(value: object) -> JSON:
        return cast("JSON", value.value if isinstance(value, Enum) else value)

    return Form(_enumeration(wire), load, dump) if members else Form(_enumeration(wire))


def enum_of(cls: type[Enum]) -> Form:
    """Return the form of an Enum: its values if all are scalars, else its names."""
    by_value = all(isinstance(member.value, str | int | float | None) for member in cls)
    wire: dict[object, Enum] = {member.value if by_value else member.name: member for member in cls}

    def dump(value: object) -> JSON:
        instance_of(cls, value)
        return next(name for name, member in wire.items() if member is value)  # type: ignore[return-value]

    return Form(_enumeration(list(wire)), lambda value: wire[value], dump)


def _enumeration(options: list[object]) -> Document:
    if not all(isinstance(option, str | int | float | None) for option in options):
        raise DefinitionError(f"the options {options!r} are not all texts, numbers, booleans or None")
    schema: Document = {"enum": cast("list[JSON]", options)}
    kinds_of_all = {type(option) for option in options}
    for kind, name in ((str, "string"), (int, "integer")):
        if kinds_of_all == {kind}:
            return {"type": name, **schema}
    return schema


def _array(value: JSON) -> list[JSON]:
    if not isinstance(value, list):
        raise refused("expected array")
    return value


def _whole_number(name: JSON) -> object:
    return int(str(name))


def _each(change: Callable[[Source], Target], values: Iterable[Source]) -> Iterator[Target]:
    for index, value in enumerate(values):
        try:
            yield change(value)
        except InvalidValue as error:
            raise within(f"[{index}]", error) from error


def _members(change: Callable[[Source], Target], values: Mapping[Key, Source]) -> Iterator[tuple[Key, Target]]:
    for name, value in values.items():
        try:
            yield name, change(value)
        except InvalidValue as error:
            raise within(step("", str(name)), error) from error
