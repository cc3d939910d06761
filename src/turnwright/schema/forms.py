"""The form of any Python type that has one.

Classes are described once, under `$defs`. An attrs class, a dataclass, a NamedTuple and a TypedDict are objects with
exactly their fields; a pydantic model is what it says of itself; an Enum is its values, or its names where a value is
no scalar. Of the arms of a union the first that validates is loaded.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from types import UnionType
from typing import Final, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

from attrs import NOTHING

from turnwright.canonical import JSON, encode
from turnwright.errors import DefinitionError, InvalidValue
from turnwright.schema.annotations import Scope, type_parameters
from turnwright.schema.containers import ARRAYS, OBJECTS, array_of, enum_of, literal_of, mapping_of, tuple_of
from turnwright.schema.documents import Document
from turnwright.schema.limits import annotated
from turnwright.schema.models import is_model, model
from turnwright.schema.records import Field, docs_of, fields_of, is_record, record
from turnwright.schema.scalars import FORMATS, SCALARS, scalars
from turnwright.schema.validation import Validation, refused
from turnwright.schema.wire import ABSENT, Form, Member

_WRAPPERS: Final = (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


class Forms:
    """The forms of the types that are met while one schema is made."""

    def __init__(self) -> None:
        self.definitions: Document = {}
        self._declared: dict[object, Form] = {}
        self._finished = False

    def finish(self) -> None:
        """Say that no type will be added, so that the checks of parts may be kept."""
        self._finished = True

    def of(self, hint: object, scope: Scope) -> Form:
        """Return the form of *hint*. `DefinitionError` if it has none."""
        if isinstance(hint, type) and (scalar := SCALARS.get(hint) or scalars().get(hint)):
            return scalar
        if isinstance(hint, str | ForwardRef):
            return self.of(scope.resolved(hint), scope)
        if isinstance(hint, TypeVar):
            bound = hint.__bound__ or (Union[hint.__constraints__] if hint.__constraints__ else object)  # noqa: UP007
            return self.of(scope.variables.get(hint, bound), scope)
        if hint is None or hint is typing.Any:
            return SCALARS[hint]
        if scope.variables and (free := getattr(hint, "__parameters__", ())) and not isinstance(hint, type):
            hint = hint[tuple(scope.variables.get(variable, variable) for variable in free)]  # type: ignore[index]
        origin, arguments = get_origin(hint) or hint, get_args(hint)
        if origin is typing.Annotated:
            return annotated(self.of(arguments[0], scope), arguments[1:])
        if origin is Literal:
            return literal_of(arguments)
        if origin is Union or origin is UnionType:
            return self._union([self.of(argument, scope) for argument in arguments])
        if origin in _WRAPPERS:
            return self.of(arguments[0], scope)
        if supertype := getattr(hint, "__supertype__", None):  # a NewType
            return self.of(supertype, scope)
        if hasattr(origin, "__value__"):  # an alias made by a type statement
            return self._alias(hint, origin, arguments, scope)
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            return tuple_of([self.of(argument, scope) for argument in arguments if argument != ()])
        if origin in ARRAYS:
            return array_of(ARRAYS[origin], self.of(arguments[0] if arguments else object, scope))
        if origin in OBJECTS:
            key, item = arguments or (str, object)
            return mapping_of(self.of(key, scope), self.of(item, scope))
        return self._class(hint, origin, arguments, scope)

    def default(self, form: Form, value: object) -> object:
        """Return *value* as JSON if it can stand in the schema as a default, else ABSENT."""
        try:
            json = form.dumped(value)
            encode(json)
        except InvalidValue:
            return ABSENT
        fits = _fits_plainly(form.schema, json)
        return json if fits or (fits is None and self._check(form.schema)(json)) else ABSENT

    def _check(self, schema: Document) -> Callable[[JSON], bool]:
        """Return a check of *schema*, compiled when it is first used."""
        kept: list[Validation] = []

        def fits(value: JSON) -> bool:
            validation = kept[0] if kept else Validation({**schema, "$defs": self.definitions}, FORMATS)
            if self._finished and not kept:
                kept.append(validation)
            try:
                return validation.compile().is_valid(value)
            except ValueError:  # a Python value that is not JSON
                return False

        return fits

    def _union(self, forms: list[Form]) -> Form:
        schema: Document = {"anyOf": [form.schema for form in forms]}
        others = [form for form in forms if form.schema != {"type": "null"}]
        if len(others) == 1 and len(forms) == 2:
            (other,) = others
            return Form(
                schema,
                other.load and (lambda value: None if value is None else other.loaded(value)),
                other.dump and (lambda value: None if value is None else other.dumped(value)),
            )
        arms = [(form, self._check(form.schema)) for form in forms]

        def load(value: JSON) -> object:
            for form, fits in arms:
                if fits(value):
                    return form.loaded(value)
            raise refused("fits no arm of the union")

        def dump(value: object) -> JSON:
            for form, fits in arms:
                try:
                    json = form.dumped(value)
                except InvalidValue:
                    continue
                if fits(json):
                    return json
            raise refused(f"{type(value).__name__} is no arm of the union")

        return Form(
            schema,
            load if any(form.load for form in forms) else None,
            dump if any(form.dump for form in forms) else None,
        )

    def _class(self, hint: object, cls: object, arguments: tuple[object, ...], scope: Scope) -> Form:
        if not isinstance(cls, type):
            raise DefinitionError(f"{hint!r} has no JSON form")
        if issubclass(cls, Enum):
            return enum_of(cls)
        if is_model(cls):
            return self._declare(hint, cls.__name__, lambda name: model(cls, name, self.definitions))
        if is_record(cls):
            inner = Scope(cls, {cls.__name__: cls, **type_parameters(cls)}, scope, _variables(cls, arguments, scope))
            name = "_".join(getattr(part, "__name__", str(part)) for part in (cls, *arguments))
            return self._declare(hint, name, lambda _: self._record(cls, inner))
        raise DefinitionError(
            f"{cls.__name__} has no JSON form; use a plain type, an Enum, an attrs class, a dataclass or a TypedDict"
        )

    def _declare(self, hint: object, name: str, describe: Callable[[str], Form]) -> Form:
        """Describe a class once, under a name of its own; inside its own description it is already known."""
        if hint in self._declared:
            return self._declared[hint]
        name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")  # as a reference may be written
        while not name or name in self.definitions:
            name = f"{name}_{len(self.definitions)}"
        described: list[Form] = []
        reference: Document = {"$ref": f"#/$defs/{name}"}
        self.definitions[name] = {}

        def load(value: JSON) -> object:
            return described[0].loaded(value)

        def dump(value: object) -> JSON:
            return described[0].dumped(value)

        self._declared[hint] = Form(reference, load, dump)
        described.append(describe(name))
        self.definitions[name] = described[0].schema
        return self._declared[hint]

    def _alias(self, hint: object, alias: object, arguments: tuple[object, ...], scope: Scope) -> Form:
        name = getattr(alias, "__name__", "Alias")
        parameters = type_parameters(alias)
        variables = {**scope.variables, **dict(zip(parameters.values(), arguments, strict=False))}
        inner = Scope(alias, {name: alias, **parameters}, scope, variables)
        value = alias.__value__  # type: ignore[attr-defined]
        return self._declare(hint, name, lambda _: self.of(value, inner))

    def _record(self, cls: type, scope: Scope) -> Form:
        docs = docs_of(cls)
        return record(cls, [self._member(cls, field, scope, docs.parameters) for field in fields_of(cls, scope)])

    def _member(self, cls: type, field: Field, scope: Scope, texts: Mapping[str, str]) -> Member:
        home = scope if field.owner is cls else Scope(field.owner, {}, scope, scope.variables)
        try:
            form = self.of(field.hint, home)
        except DefinitionError as error:
            raise DefinitionError(f"field {field.name!r} of {cls.__name__}: {error}") from None
        known = field.default is not NOTHING and field.default is not ABSENT
        return Member(
            field.key,
            field.name,
            form,
            required=field.default is NOTHING,
            default=self.default(form, field.default) if known else ABSENT,
            description=field.description or texts.get(field.name, ""),
        )


def _variables(cls: type, arguments: tuple[object, ...], scope: Scope) -> Mapping[object, object]:
    """Return what the type variables of *cls* and of its bases stand for."""
    bound = {**scope.variables, **dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))}
    for base in cls.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            pairs = zip(getattr(get_origin(generic), "__parameters__", ()), get_args(generic), strict=False)
            bound.update({variable: argument for variable, argument in pairs if variable is not argument})
    return bound


def _fits_plainly(schema: JSON, value: JSON) -> bool | None:
    """Tell whether *value* validates, where that can be seen without a validator; else None."""
    match schema:
        case {"enum": list(options)}:
            return any(type(option) is type(value) and option == value for option in options)
        case {"anyOf": list(arms)}:
            return True if any(_fits_plainly(arm, value) for arm in arms) else None
        case {"type": "array", **rest} if not value and not rest.keys() & {"minItems", "prefixItems"}:
            return isinstance(value, list)
        case {"type": "object", **rest} if not value and not rest.keys() & {"required", "minProperties"}:
            return isinstance(value, dict)
        case {"type": str(name), **rest} if name in _PLAIN and not rest.keys() - {"description"}:
            return type(value) in _PLAIN[name]
        case _:
            return None


_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
}
