"""The fields of classes that declare some, in one shape for attrs classes, dataclasses, NamedTuples and TypedDicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields as dataclass_fields
from typing import Final, NotRequired, Required, get_args, get_origin

import attrs
from attrs import NOTHING, frozen

from turnwright.canonical import JSON
from turnwright.schema.annotations import Scope, annotations_of
from turnwright.schema.docstrings import Docs, read
from turnwright.schema.validation import refused
from turnwright.schema.wire import ABSENT, Form, Member, dump_members, instance_of, load_members, object_schema

_EMPTY: Final = (list, dict, set, frozenset, tuple)


@frozen(eq=False)
class Field:
    """One field as its class declares it.

    *key* is its name on the wire and in the constructor, *name* that of the attribute, *owner* the class in whose
    module its annotation is read. *default* is NOTHING if it must be given, ABSENT if it is not known before.
    """

    key: str
    name: str
    hint: object
    owner: type
    default: object
    description: str = ""


def is_record(cls: type) -> bool:
    """Tell whether *cls* declares fields in one of the ways that are known here."""
    return (
        hasattr(cls, "__attrs_attrs__")
        or hasattr(cls, "__dataclass_fields__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or is_typed_dict(cls)
    )


def is_typed_dict(cls: type) -> bool:
    """Tell whether *cls* is a TypedDict, of `typing` or of `typing_extensions`."""
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def fields_of(cls: type, scope: Scope) -> Iterable[Field]:
    """Return the fields that the constructor of *cls* takes."""
    if is_typed_dict(cls):
        return _of_typed_dict(cls, scope)
    owners = {name: (hint, owner) for owner in reversed(cls.__mro__) for name, hint in annotations_of(owner).items()}
    if hasattr(cls, "__attrs_attrs__"):
        return _of_attrs(cls, owners)
    if hasattr(cls, "__dataclass_fields__"):
        return _of_dataclass(cls, owners)
    return _of_named_tuple(cls, owners)


def record(cls: type, members: list[Member]) -> Form:
    """Return the form of the instances of *cls*, whose fields are *members*."""
    schema = object_schema(members, docs_of(cls).description)
    if is_typed_dict(cls):
        return Form(schema, lambda value: load_members(members, value), lambda value: _dump_dict(cls, members, value))

    def load(value: JSON) -> object:
        arguments = load_members(members, value)
        try:
            return cls(**{member.key: arguments[member.name] for member in members if member.name in arguments})
        except Exception as error:  # a constructor may raise what it likes
            raise refused(f"{cls.__name__}: {error}") from error

    def dump(value: object) -> JSON:
        instance_of(cls, value)
        return dump_members(members, {member.name: getattr(value, member.name) for member in members})

    return Form(schema, load, dump)


def docs_of(cls: type) -> Docs:
    """Return what *cls* says of itself, unless a decorator or a base class said it."""
    text = cls.__dict__.get("__doc__") or ""
    return read("" if text.startswith(f"{cls.__name__}(") else text)


def _dump_dict(cls: type, members: list[Member], value: object) -> JSON:
    if not isinstance(value, Mapping):
        raise refused(f"expected {cls.__name__}, got {type(value).__name__}")
    if unknown := value.keys() - {member.key for member in members}:
        raise refused(f"{cls.__name__} has no key {min(map(str, unknown))!r}")
    return dump_members(members, value)


def _of_attrs(cls: type, owners: Mapping[str, tuple[object, type]]) -> Iterable[Field]:
    for attribute in attrs.fields(cls):
        if not attribute.init:
            continue
        hint, owner = owners.get(attribute.name, (attribute.type or object, cls))
        default = attribute.default
        if hasattr(default, "takes_self"):
            default = _always_same(None if default.takes_self else default.factory)
        description = attribute.metadata.get("description", "")
        yield Field(attribute.alias or attribute.name, attribute.name, hint, owner, default, description)


def _of_dataclass(cls: type, owners: Mapping[str, tuple[object, type]]) -> Iterable[Field]:
    for field in dataclass_fields(cls):
        if not field.init:
            continue
        hint, owner = owners.get(field.name, (field.type, cls))
        default = NOTHING if field.default is MISSING else field.default
        if field.default_factory is not MISSING:
            default = _always_same(field.default_factory)
        yield Field(field.name, field.name, hint, owner, default, field.metadata.get("description", ""))


def _of_named_tuple(cls: type, owners: Mapping[str, tuple[object, type]]) -> Iterable[Field]:
    defaults: Mapping[str, object] = getattr(cls, "_field_defaults", {})
    for name in getattr(cls, "_fields", ()):
        hint, owner = owners.get(name, (object, cls))
        yield Field(name, name, hint, owner, defaults.get(name, NOTHING))


def _of_typed_dict(cls: type, scope: Scope) -> Iterable[Field]:
    for name, annotation in annotations_of(cls).items():
        hint = scope.resolved(annotation)
        required = name in getattr(cls, "__required_keys__", ())
        if get_origin(hint) in (Required, NotRequired):  # the class could not see it in a text
            required = get_origin(hint) is Required
            (hint,) = get_args(hint)
        yield Field(name, name, hint, cls, NOTHING if required else ABSENT)


def _always_same(factory: object) -> object:
    """Return what *factory* makes, if that is sure to be the same each time."""
    return next((kind() for kind in _EMPTY if kind is factory), ABSENT)
