"""How a Python type looks on the wire: its JSON Schema, and the way there and back.

Rule: schema, load and dump of a type are made together here, so that they cannot disagree.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from base64 import b64decode, b64encode
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields as dataclass_fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from inspect import get_annotations
from pathlib import Path, PurePath
from typing import Final, ForwardRef, Literal, TypeAlias, TypeVar, Union, get_args, get_origin
from uuid import UUID

from attrs import NOTHING, Factory, evolve as replace, frozen

from turnwright.canonical import JSON, duration, encode, plain, step
from turnwright.errors import DefinitionError, InvalidValue, Issue
from turnwright.schema.docstrings import Docs, read
from turnwright.schema.validation import Validation, refused, shown, within

Document: TypeAlias = dict[str, JSON]
Load: TypeAlias = Callable[[JSON], object]
Dump: TypeAlias = Callable[[object], JSON]

ABSENT: Final = object()


@frozen(eq=False)
class Form:
    """The wire form of one type. *load* turns accepted JSON into the value, *dump* back; None means: as it is.

    *dump* raises `InvalidValue` for what is plainly no such value; the schema checks the rest.
    """

    schema: Document
    load: Load | None = None
    dump: Dump | None = None


@frozen(eq=False)
class Member:
    """One named part of an object: on the wire *key*, in Python *name*. *default* is JSON, or ABSENT."""

    key: str
    name: str
    form: Form
    required: bool
    default: object = ABSENT
    description: str = ""


_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII).fullmatch
_TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII).fullmatch
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII).fullmatch
_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<weeks>\d{1,9})W)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
).fullmatch
_DECIMAL = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?", re.ASCII).fullmatch


def _shaped(text: str, shape: Callable[[str], object]) -> str:
    if not shape(text):
        raise ValueError(text)
    return text.upper()


def _datetime(text: JSON) -> datetime:
    return datetime.fromisoformat(_shaped(str(text), _DATE_TIME))


def _date(text: JSON) -> date:
    return date.fromisoformat(_shaped(str(text), _DATE))


def _time(text: JSON) -> time:
    return time.fromisoformat(_shaped(str(text), _TIME))


def _timedelta(text: JSON) -> timedelta:
    match = _DURATION(str(text))
    if not match or str(text).endswith(("P", "T")):
        raise ValueError(text)
    parts = {name: float(count) for name, count in match.groupdict().items() if count and name != "sign"}
    return timedelta(**parts) * (-1 if match["sign"] else 1)


def _decimal(value: JSON) -> Decimal:
    return Decimal(_shaped(value, _DECIMAL) if isinstance(value, str) else str(value))


def _bytes(text: JSON) -> bytes:
    return b64decode(str(text), validate=True)


def _is(load: Load) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            load(text)
        except (ValueError, ArithmeticError):
            return False
        return True

    return check


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date-time": _is(_datetime),
    "date": _is(_date),
    "time": _is(_time),
    "duration": _is(_timedelta),
    "decimal": _is(_decimal),
    "base64": _is(_bytes),
}
"""The checks of formats in schemas made from Python types: what passes can be loaded."""


def _instance(cls: type, dump: Dump) -> Dump:
    def checked(value: object) -> JSON:
        if not isinstance(value, cls):
            raise refused(f"expected {cls.__name__}, got {type(value).__name__}")
        return dump(value)

    return checked


def _dump_datetime(value: object) -> JSON:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise refused("expected datetime with a time zone")
    return value.isoformat()


def _dump_date(value: object) -> JSON:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise refused(f"expected date, got {type(value).__name__}")
    return value.isoformat()


def _text(format_: str, load: Load, dump: Dump) -> Form:
    return Form({"type": "string", "format": format_}, load, dump)


_SCALARS: Final[Mapping[object, Form]] = {
    object: Form({}, dump=plain),
    typing.Any: Form({}, dump=plain),
    None: Form({"type": "null"}),
    types.NoneType: Form({"type": "null"}),
    bool: Form({"type": "boolean"}),
    int: Form({"type": "integer"}),
    float: Form({"type": "number"}),
    str: Form({"type": "string"}),
    datetime: _text("date-time", _datetime, _dump_datetime),
    date: _text("date", _date, _dump_date),
    time: _text("time", _time, _instance(time, lambda value: value.isoformat())),  # type: ignore[attr-defined]
    timedelta: _text("duration", _timedelta, _instance(timedelta, lambda value: duration(value))),  # type: ignore[arg-type]
    UUID: _text("uuid", lambda text: UUID(str(text)), _instance(UUID, str)),
    Path: _text("path", lambda text: Path(str(text)), _instance(PurePath, str)),
    PurePath: _text("path", lambda text: PurePath(str(text)), _instance(PurePath, str)),
    Decimal: Form(
        {"type": ["string", "number"], "format": "decimal"}, _decimal, _instance(Decimal, lambda value: f"{value:f}")
    ),
    bytes: Form(
        {"type": "string", "format": "base64", "contentEncoding": "base64"},
        _bytes,
        _instance(bytes, lambda value: b64encode(value).decode()),  # type: ignore[arg-type]
    ),
}

_ARRAYS: Final[Mapping[object, type[Collection[object]]]] = {
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}
_OBJECTS: Final = (dict, abc.Mapping, abc.MutableMapping)
_WRAPPERS: Final = (typing.Required, typing.NotRequired, typing.Final, typing.ClassVar)


@frozen(eq=False)
class Scope:
    """Where the names in the annotations of *owner* are looked up: its module, its closure, the functions around it."""

    owner: object
    names: Mapping[str, object]
    outer: Scope | None = None
    variables: Mapping[object, object] = {}

    def find(self, text: str, module: str | None = None) -> object:
        """Return what the annotation *text* means. `DefinitionError` if a name in it is not to be found."""
        try:
            return eval(text, self._globals(module), _Names(self))  # noqa: S307  (the text is the author's own code)
        except NameError as error:
            raise DefinitionError(
                f"the name {error.name!r} in its annotation {text!r} cannot be resolved; "
                "import it where the code runs, not only for type checkers, or define it before"
            ) from None
        except Exception as error:
            raise DefinitionError(f"its annotation {text!r} cannot be evaluated: {error}") from error

    def look_up(self, name: str) -> object:
        """Return what *name* means here; KeyError if nothing."""
        if name in self.names:
            return self.names[name]
        for frame in _frames_around(self.owner):
            if name in frame.f_locals:
                return frame.f_locals[name]
        if self.outer:
            return self.outer.look_up(name)
        raise KeyError(name)

    def _globals(self, module: str | None) -> dict[str, object]:
        home = sys.modules.get(module or getattr(self.owner, "__module__", None) or "")
        return getattr(self.owner, "__globals__", None) or (vars(home) if home else {})


class _Names(dict[str, object]):
    """The local names for `eval`, which asks a subclass of dict for what it lacks."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __missing__(self, name: str) -> object:
        return self._scope.look_up(name)


def _frames_around(owner: object) -> Iterable[types.FrameType]:
    """Find the running functions in which *owner* was defined, the nearest first: a local class is in their locals."""
    around = getattr(owner, "__qualname__", "").split(".<locals>")[:-1]
    frame: types.FrameType | None = sys._getframe() if around else None
    wanted = [".<locals>".join(around[: end + 1]) for end in range(len(around))]
    while frame and wanted:
        if frame.f_code.co_qualname in wanted and frame.f_globals.get("__name__") == getattr(owner, "__module__", None):
            yield frame
        frame = frame.f_back


class Forms:
    """The forms of the types met while one schema is made. Classes are described once, under `$defs`."""

    def __init__(self) -> None:
        self.definitions: Document = {}
        self._declared: dict[object, Form] = {}
        self._finished = False

    def finish(self) -> None:
        """Say that no type will be added, so that checks of parts may be kept."""
        self._finished = True

    def of(self, hint: object, scope: Scope) -> Form:
        """Return the form of *hint*. `DefinitionError` if it has none."""
        if isinstance(hint, str):
            return self.of(scope.find(hint), scope)
        if isinstance(hint, ForwardRef):
            return self.of(scope.find(hint.__forward_arg__, _module_of(hint)), scope)
        if isinstance(hint, type) or hint is None or hint is typing.Any:
            scalar = _SCALARS.get(hint)
            if scalar:
                return scalar
        if isinstance(hint, TypeVar):
            bound = scope.variables.get(hint, hint.__bound__ or Union[hint.__constraints__ or (object,)])  # noqa: UP007
            return self.of(bound, scope)
        if scope.variables and not isinstance(hint, type) and (unbound := getattr(hint, "__parameters__", ())):
            hint = hint[tuple(scope.variables.get(variable, variable) for variable in unbound)]  # type: ignore[index]
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is typing.Annotated:
            return annotated(self.of(arguments[0], scope), arguments[1:])
        if origin is Literal:
            return _literal(arguments)
        if origin is Union or origin is types.UnionType:
            return self._union([self.of(argument, scope) for argument in arguments])
        if origin in _WRAPPERS:
            return self.of(arguments[0], scope)
        if supertype := getattr(hint, "__supertype__", None):
            return self.of(supertype, scope)
        if hasattr(origin or hint, "__value__"):
            return self._alias(hint, origin or hint, arguments, scope)
        return self._collection(origin or hint, arguments, scope) or self._class(hint, origin or hint, arguments, scope)

    def check(self, schema: Document) -> Callable[[JSON], bool]:
        """Return a check of *schema*, compiled when it is first asked."""
        kept: list[Validation] = []

        def fits(value: JSON) -> bool:
            validation = kept[0] if kept else Validation({**schema, "$defs": self.definitions}, FORMATS)
            if self._finished and not kept:
                kept.append(validation)
            try:
                return validation.compile().is_valid(value)
            except ValueError:  # not JSON at all
                return False

        return fits

    def default(self, form: Form, value: object) -> object:
        """Return *value* as JSON if it may stand in the schema as a default, else ABSENT."""
        try:
            json = form.dump(value) if form.dump else value
            encode(json)  # type: ignore[arg-type]
        except InvalidValue:
            return ABSENT
        fits = _obviously_fits(form.schema, json)
        return json if (self.check(form.schema)(json) if fits is None else fits) else ABSENT  # type: ignore[arg-type]

    def _union(self, forms: list[Form]) -> Form:
        schema: Document = {"anyOf": [form.schema for form in forms]}
        others = [form for form in forms if form.schema != {"type": "null"}]
        if len(others) == 1:
            load, dump = others[0].load, others[0].dump
            return Form(
                schema,
                load and (lambda value: None if value is None else load(value)),
                dump and (lambda value: None if value is None else dump(value)),
            )
        arms = [(form, self.check(form.schema)) for form in forms]

        def load_arm(value: JSON) -> object:
            for form, fits in arms:
                if fits(value):
                    return form.load(value) if form.load else value
            raise refused("fits no arm of the union")

        def dump_arm(value: object) -> JSON:
            for form, fits in arms:
                try:
                    json = form.dump(value) if form.dump else value
                except InvalidValue:
                    continue
                if fits(json):  # type: ignore[arg-type]
                    return json  # type: ignore[return-value]
            raise refused(f"{type(value).__name__} is no arm of the union")

        return Form(
            schema,
            load_arm if any(form.load for form in forms) else None,
            dump_arm if any(form.dump for form in forms) else None,
        )

    def _collection(self, kind: object, arguments: tuple[object, ...], scope: Scope) -> Form | None:
        if kind is tuple and arguments and arguments[-1] is not Ellipsis:
            return _tuple([self.of(argument, scope) for argument in arguments if argument != ()])
        if kind is tuple:
            return array_of(tuple, self.of(arguments[0] if arguments else object, scope))
        if kind in _ARRAYS:
            return array_of(_ARRAYS[kind], self.of(arguments[0] if arguments else object, scope))
        if kind in _OBJECTS:
            key, item = arguments or (str, object)
            return mapping_of(self.of(key, scope), self.of(item, scope))
        return None

    def _class(self, hint: object, cls: object, arguments: tuple[object, ...], scope: Scope) -> Form:
        if not isinstance(cls, type):
            raise DefinitionError(f"{hint!r} has no JSON form")
        if issubclass(cls, Enum):
            return _enum(cls)
        if callable(getattr(cls, "model_json_schema", None)) and callable(getattr(cls, "model_validate", None)):
            return self._declare(hint, cls.__name__, lambda: self._model(cls))
        inner = Scope(cls, {cls.__name__: cls, **_type_parameters(cls)}, scope, _variables(cls, arguments, scope))
        name = "_".join([cls.__name__, *(getattr(argument, "__name__", "X") for argument in arguments)])
        if hasattr(cls, "__attrs_attrs__") or hasattr(cls, "__dataclass_fields__"):
            return self._declare(hint, name, lambda: self._record(cls, inner))
        if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
            return self._declare(hint, name, lambda: self._typed_dict(cls, inner))
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._declare(hint, name, lambda: self._named_tuple(cls, inner))
        raise DefinitionError(
            f"{cls.__name__} has no JSON form; use a plain type, an Enum, an attrs class, a dataclass or a TypedDict"
        )

    def _declare(self, hint: object, name: str, describe: Callable[[], Form]) -> Form:
        """Describe a class once, under a name of its own; inside its description it is already known."""
        if hint in self._declared:
            return self._declared[hint]
        name = unused = re.sub(r"\W", "_", name)
        while name in self.definitions:
            name = f"{unused}_{len(self.definitions)}"
        described: list[Form] = []
        reference: Document = {"$ref": f"#/$defs/{name}"}
        self.definitions[name] = {}
        self._declared[hint] = Form(
            reference,
            lambda value: load(value) if (load := described[0].load) else value,
            lambda value: dump(value) if (dump := described[0].dump) else value,  # type: ignore[return-value]
        )
        described.append(describe())
        self.definitions[name] = described[0].schema
        self._declared[hint] = replace(described[0], schema=reference)
        return self._declared[hint]

    def _alias(self, hint: object, alias: object, arguments: tuple[object, ...], scope: Scope) -> Form:
        variables = dict(zip(getattr(alias, "__type_params__", ()), arguments, strict=False))
        inner = Scope(alias, {}, scope, {**scope.variables, **variables})
        name = getattr(alias, "__name__", "Alias")
        return self._declare(hint, name, lambda: self.of(getattr(alias, "__value__"), inner))  # noqa: B009

    def _record(self, cls: type, scope: Scope) -> Form:
        docs = _docs(cls)
        members = [
            self._member(cls, field, scope, field.description or docs.parameters.get(field.name, ""))
            for field in _fields(cls)
        ]

        def dump(value: object) -> JSON:
            if not isinstance(value, cls):
                raise refused(f"expected {cls.__name__}, got {type(value).__name__}")
            return dump_members(members, {member.name: getattr(value, member.name) for member in members})

        return Form(object_schema(members, docs.description), lambda value: _made(cls, members, value), dump)

    def _named_tuple(self, cls: type, scope: Scope) -> Form:
        docs = _docs(cls)
        defaults = getattr(cls, "_field_defaults", {})
        hints = annotations_of(cls)
        members = [
            self._member(
                cls,
                Field(name, name, hints.get(name, object), cls, defaults.get(name, NOTHING)),
                scope,
                docs.parameters.get(name, ""),
            )
            for name in getattr(cls, "_fields", ())
        ]

        def dump(value: object) -> JSON:
            if not isinstance(value, cls):
                raise refused(f"expected {cls.__name__}, got {type(value).__name__}")
            return dump_members(members, {member.name: getattr(value, member.name) for member in members})

        return Form(object_schema(members, docs.description), lambda value: _made(cls, members, value), dump)

    def _typed_dict(self, cls: type, scope: Scope) -> Form:
        docs = _docs(cls)
        members = []
        for name, annotation in annotations_of(cls).items():
            hint = resolved(annotation, scope)
            required = name in getattr(cls, "__required_keys__", ())
            if get_origin(hint) in (typing.Required, typing.NotRequired):  # unseen by the class if it was a text
                required = get_origin(hint) is typing.Required
            field = Field(name, name, hint, cls, NOTHING if required else ABSENT)
            members.append(self._member(cls, field, scope, docs.parameters.get(name, "")))

        def dump(value: object) -> JSON:
            if not isinstance(value, Mapping):
                raise refused(f"expected a {cls.__name__}, got {type(value).__name__}")
            if unknown := [key for key in value if key not in {member.key for member in members}]:
                raise refused(f"{cls.__name__} has no key {unknown[0]!r}")
            return dump_members(members, value)

        return Form(object_schema(members, docs.description), lambda value: load_members(members, value), dump)

    def _model(self, cls: type) -> Form:
        """Describe a pydantic model by what it says of itself; it stays the judge of its own values."""
        described: Document = cls.model_json_schema()  # type: ignore[attr-defined]
        inner = described.pop("$defs", {})
        renamed = {}
        for name in inner if isinstance(inner, dict) else ():
            renamed[name] = name if name not in self.definitions else f"{cls.__name__}_{name}"
            self.definitions[renamed[name]] = {}
        for name, schema in inner.items() if isinstance(inner, dict) else ():
            self.definitions[renamed[name]] = _lifted(schema, renamed)

        def load(value: JSON) -> object:
            try:
                return cls.model_validate_json(encode(value))  # type: ignore[attr-defined]
            except ValueError as error:
                raise _from_model(error) from error

        def dump(value: object) -> JSON:
            if not isinstance(value, cls):
                raise refused(f"expected {cls.__name__}, got {type(value).__name__}")
            dumped: JSON = value.model_dump(mode="json", by_alias=True)  # type: ignore[attr-defined]
            return dumped

        return Form(_lifted(described, renamed), load, dump)  # type: ignore[arg-type]

    def _member(self, cls: type, field: Field, scope: Scope, description: str) -> Member:
        owner = scope if field.owner is cls else Scope(field.owner, {}, scope, scope.variables)
        try:
            form = self.of(field.hint, owner)
        except DefinitionError as error:
            raise DefinitionError(f"field {field.name!r} of {cls.__name__}: {error}") from None
        known = field.default is not NOTHING and field.default is not ABSENT
        return Member(
            field.key,
            field.name,
            form,
            required=field.default is NOTHING,
            default=self.default(form, field.default) if known else ABSENT,
            description=description,
        )


@frozen(eq=False)
class Field:
    """One field of a class as the class declares it: *default* is NOTHING if it must be given, ABSENT if unknown."""

    key: str
    name: str
    hint: object
    owner: type
    default: object
    description: str = ""


def object_schema(members: Iterable[Member], description: str = "") -> Document:
    """Return the schema of an object with exactly these members."""
    properties: Document = {}
    for member in members:
        properties[member.key] = described = dict(member.form.schema)
        if member.description:
            described.setdefault("description", member.description)
        if member.default is not ABSENT:
            described["default"] = member.default  # type: ignore[assignment]
    schema: Document = {"type": "object"}
    if description:
        schema["description"] = description
    schema["properties"] = properties
    if required := [member.key for member in members if member.required]:
        schema["required"] = list(required)
    schema["additionalProperties"] = False
    return schema


def load_members(members: Iterable[Member], value: JSON) -> dict[str, object]:
    """Return the Python values of the members that *value* has, by their Python names."""
    if not isinstance(value, dict):
        raise refused(f"expected object, got {shown(value)}")
    loaded: dict[str, object] = {}
    for member in members:
        if member.key in value:
            item = value[member.key]
            if member.form.load:
                try:
                    loaded[member.name] = member.form.load(item)
                except InvalidValue as error:
                    raise within(member.key, error) from None
            else:
                loaded[member.name] = item
    return loaded


def dump_members(members: Iterable[Member], values: Mapping[str, object]) -> dict[str, JSON]:
    """Return the JSON of *values*, which are by Python name, by their keys on the wire."""
    dumped: dict[str, JSON] = {}
    for member in members:
        if member.name in values:
            item = values[member.name]
            try:
                dumped[member.key] = member.form.dump(item) if member.form.dump else item  # type: ignore[assignment]
            except InvalidValue as error:
                raise within(member.key, error) from None
    return dumped


def resolved(hint: object, scope: Scope) -> object:
    """Return what *hint* means, if it is a text or a forward reference."""
    while isinstance(hint, str | ForwardRef):
        hint = scope.find(hint) if isinstance(hint, str) else scope.find(hint.__forward_arg__, _module_of(hint))
    return hint


def annotations_of(thing: object) -> Mapping[str, object]:
    """Return the annotations that *thing* itself has; those that cannot be evaluated yet stay texts or references."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)
    return get_annotations(thing)  # type: ignore[arg-type]


def annotated(form: Form, metadata: Iterable[object]) -> Form:
    """Return *form* with the descriptions and limits that *metadata* holds; what it does not know says nothing here."""
    schema = dict(form.schema)
    for item in _flattened(metadata):
        description = item if isinstance(item, str) else _description(item)
        if description:
            schema["description"] = description
        if isinstance(item, str):
            continue
        for attribute, keyword in _LIMITS.items():
            limit = getattr(item, attribute, None)
            if limit is not None:
                _limit(schema, keyword, limit)
    return replace(form, schema=schema)


_LIMITS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "min",
    "max_length": "max",
    "pattern": "pattern",
}
_LENGTHS: Final = {"string": "Length", "array": "Items", "object": "Properties"}


def _flattened(metadata: Iterable[object]) -> Iterable[object]:
    for item in metadata:
        yield item
        if isinstance(inner := getattr(item, "metadata", None), list | tuple):
            yield from _flattened(inner)


def _description(item: object) -> str:
    for name in ("description", "documentation"):
        if isinstance(text := getattr(item, name, None), str):
            return text
    return ""


def _limit(schema: Document, keyword: str, limit: object) -> None:
    kinds = _kinds(schema)
    if keyword in ("min", "max"):
        keywords = [keyword + name for kind, name in _LENGTHS.items() if kind in kinds]
        possible = isinstance(limit, int)
    elif keyword == "pattern":
        limit = getattr(limit, "pattern", limit)
        keywords = [keyword] if "string" in kinds else []
        possible = isinstance(limit, str)
        if possible:
            Validation({"pattern": limit}, FORMATS).compile()
    else:
        if isinstance(limit, Decimal):
            limit = int(limit) if limit == int(limit) else float(limit)
        keywords = [keyword] if kinds & {"integer", "number"} else []
        possible = isinstance(limit, int | float)
    if not keywords or not possible:
        raise DefinitionError(f"the limit {keyword} = {limit!r} cannot be kept for {' or '.join(sorted(kinds))}")
    for name in keywords:
        schema[name] = limit  # type: ignore[assignment]


def _kinds(schema: JSON) -> set[str]:
    """Return the types that a value of *schema* can have, as far as the schema itself says."""
    if not isinstance(schema, dict):
        return set()
    arms = schema.get("anyOf")
    if isinstance(arms, list):
        return {kind for arm in arms for kind in _kinds(arm)}
    kinds = schema.get("type", ["string", "array", "object", "integer", "number"] if "$ref" not in schema else "object")
    return {str(kind) for kind in kinds} if isinstance(kinds, list) else {str(kinds)}


def _obviously_fits(schema: JSON, value: object) -> bool | None:
    """Tell whether *value* fits where that needs no validator; None where it does."""
    if not isinstance(schema, dict):
        return None
    if isinstance(options := schema.get("enum"), list):
        return any(type(option) is type(value) and option == value for option in options)
    if isinstance(arms := schema.get("anyOf"), list):
        return True if any(_obviously_fits(arm, value) for arm in arms) else None
    if schema.keys() - {"type", "description"} and value not in ([], {}):
        return None
    match schema.get("type"):
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return type(value) is int
        case "number":
            return type(value) in (int, float)
        case "string":
            return type(value) is str
        case "array" if not schema.keys() & {"minItems", "prefixItems"}:
            return True if value == [] else None
        case "object" if not schema.keys() & {"required", "minProperties"}:
            return True if value == {} else None
        case _:
            return None


def _literal(options: tuple[object, ...]) -> Form:
    wire = [option.value if isinstance(option, Enum) else option for option in options]
    if not all(isinstance(option, str | int | float | None) for option in wire):
        raise DefinitionError(f"Literal{list(options)!r} holds what JSON cannot; use texts, numbers, booleans and None")
    members = [(value, option) for value, option in zip(wire, options, strict=True) if isinstance(option, Enum)]

    def load(value: JSON) -> object:
        return next((member for known, member in members if known == value and type(known) is type(value)), value)

    return Form(
        _enumeration(wire),
        load if members else None,
        (lambda value: value.value if isinstance(value, Enum) else value) if members else None,  # type: ignore[return-value]
    )


def _enumeration(values: list[object]) -> Document:
    kinds = {type(value) for value in values}
    named: Document = {"type": {str: "string", int: "integer"}[kinds.pop()]} if kinds in ({str}, {int}) else {}
    return {**named, "enum": values}  # type: ignore[dict-item]


def _enum(cls: type[Enum]) -> Form:
    """Describe an Enum by its values if all are texts, numbers or booleans, else by its names."""
    by_value = all(isinstance(member.value, str | int | float | None) for member in cls)
    wire = {member.value if by_value else member.name: member for member in cls}

    def dump(value: object) -> JSON:
        if not isinstance(value, cls):
            raise refused(f"expected {cls.__name__}, got {type(value).__name__}")
        named: JSON = value.value if by_value else value.name
        return named

    return Form(_enumeration(list(wire)), lambda value: wire[value], dump)  # type: ignore[index]


def array_of(kind: type[Collection[object]], item: Form) -> Form:
    schema: Document = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    if issubclass(kind, set | frozenset):
        schema["uniqueItems"] = True
    make: Callable[[Iterable[object]], object] = kind

    def load(value: JSON) -> object:
        return make(_each(item.load, value))

    def dump(value: object) -> JSON:
        if not isinstance(value, abc.Iterable) or isinstance(value, str | bytes | Mapping):
            raise refused(f"expected {kind.__name__}, got {type(value).__name__}")
        dumped: list[JSON] = list(_each(item.dump, value))  # type: ignore[arg-type]
        return sorted(dumped, key=encode) if isinstance(value, abc.Set) else dumped

    return Form(schema, load if item.load or kind is not list else None, dump)


def _each(change: Callable[..., object] | None, values: object) -> Iterable[object]:
    assert isinstance(values, abc.Iterable)
    if not change:
        yield from values
        return
    for index, value in enumerate(values):
        try:
            yield change(value)
        except InvalidValue as error:
            raise within(f"[{index}]", error) from None


def _tuple(items: list[Form]) -> Form:
    schema: Document = {"type": "array", "minItems": len(items), "maxItems": len(items)}
    if items:
        schema["prefixItems"] = [item.schema for item in items]

    def load(value: JSON) -> object:
        return tuple(_zipped(items, "load", value))

    def dump(value: object) -> JSON:
        if not isinstance(value, tuple | list) or len(value) != len(items):
            raise refused(f"expected a tuple of {len(items)}, got {type(value).__name__}")
        return list(_zipped(items, "dump", value))  # type: ignore[arg-type]

    return Form(schema, load, dump)


def _zipped(items: list[Form], way: Literal["load", "dump"], values: object) -> Iterable[object]:
    assert isinstance(values, abc.Iterable)
    for index, (item, value) in enumerate(zip(items, values, strict=True)):
        change: Callable[..., object] | None = item.load if way == "load" else item.dump
        try:
            yield change(value) if change else value
        except InvalidValue as error:
            raise within(f"[{index}]", error) from None


def mapping_of(key: Form, item: Form) -> Form:
    schema: Document = {"type": "object"}
    load_key: Load | None = key.load
    if key.schema == {"type": "integer"}:
        schema["propertyNames"] = {"pattern": "^-?[0-9]{1,40}$"}
        load_key = lambda name: int(str(name))  # noqa: E731
    elif "string" not in _kinds(key.schema) and key.schema:
        raise DefinitionError("the keys of a JSON object are texts: use str, int, a text Enum or a Literal as keys")
    elif key.schema.keys() - {"type"}:
        schema["propertyNames"] = key.schema
    if item.schema:
        schema["additionalProperties"] = item.schema

    def load(value: JSON) -> object:
        assert isinstance(value, dict)
        return {load_key(name) if load_key else name: loaded for name, loaded in _members(item.load, value)}

    def dump(value: object) -> JSON:
        if not isinstance(value, Mapping):
            raise refused(f"expected dict, got {type(value).__name__}")
        return {str(key.dump(name) if key.dump else name): dumped for name, dumped in _members(item.dump, value)}  # type: ignore[misc]

    return Form(schema, load if item.load or load_key else None, dump)


def _members(
    change: Callable[..., object] | None, values: Mapping[object, object] | Document
) -> Iterable[tuple[JSON, object]]:
    for name, value in values.items():
        try:
            yield name, change(value) if change else value  # type: ignore[misc]
        except InvalidValue as error:
            raise within(str(name), error) from None


def _made(cls: type, members: Iterable[Member], value: JSON) -> object:
    arguments = load_members(members, value)
    try:
        return cls(**arguments)
    except Exception as error:  # what a validator of the user's class raises is up to the user
        raise refused(f"{cls.__name__}: {error}") from error


def _fields(cls: type) -> Iterable[Field]:
    """Return the fields that the constructor of an attrs class or dataclass takes."""
    owners = {name: (hint, owner) for owner in reversed(cls.__mro__) for name, hint in annotations_of(owner).items()}
    if attributes := getattr(cls, "__attrs_attrs__", None):
        for attribute in attributes:
            if attribute.init:
                hint, owner = owners.get(attribute.name, (attribute.type or object, cls))
                default = attribute.default
                if isinstance(default, Factory):  # type: ignore[arg-type]
                    default = _made_by(None if default.takes_self else default.factory)
                description = attribute.metadata.get("description", "")
                yield Field(attribute.alias, attribute.name, hint, owner, default, description)
    elif hasattr(cls, "__dataclass_fields__"):
        for field in dataclass_fields(cls):
            if field.init:
                hint, owner = owners.get(field.name, (field.type, cls))
                default = NOTHING if field.default is MISSING else field.default
                if field.default_factory is not MISSING:
                    default = _made_by(field.default_factory)
                yield Field(field.name, field.name, hint, owner, default, field.metadata.get("description", ""))


def _made_by(factory: object) -> object:
    """Return what *factory* makes, if it is sure to make the same each time."""
    return factory() if factory in (list, dict, set, tuple, frozenset) else ABSENT  # type: ignore[operator]


def _docs(cls: type) -> Docs:
    """Return what the class says of itself, unless a decorator or base said it."""
    text = cls.__dict__.get("__doc__") or ""
    return read("" if text.startswith((f"{cls.__name__}(", "Method generated by attrs")) else text)


def _module_of(reference: ForwardRef) -> str | None:
    module = getattr(reference, "__forward_module__", None)
    return module if isinstance(module, str) else getattr(module, "__name__", None)


def _type_parameters(thing: object) -> dict[str, object]:
    return {parameter.__name__: parameter for parameter in getattr(thing, "__type_params__", ())}


def _variables(cls: type, arguments: tuple[object, ...], scope: Scope) -> Mapping[object, object]:
    """Return what the type variables of *cls* and of its bases stand for."""
    bound: dict[object, object] = dict(scope.variables)
    bound.update(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
    for base in cls.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            pairs = zip(getattr(get_origin(generic), "__parameters__", ()), get_args(generic), strict=False)
            bound.update({variable: argument for variable, argument in pairs if variable is not argument})
    return bound


def _lifted(schema: JSON, renamed: Mapping[str, str]) -> JSON:
    """Return a pydantic schema with references to lifted definitions, closed objects and linear patterns only.

    Patterns that look around are left to the model itself, which checks them when the value is loaded.
    """
    if isinstance(schema, list):
        return [_lifted(item, renamed) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lifted = {key: _lifted(item, renamed) for key, item in schema.items()}
    reference, pattern = schema.get("$ref"), schema.get("pattern")
    if isinstance(reference, str) and (name := reference.removeprefix("#/$defs/")) in renamed:
        lifted["$ref"] = f"#/$defs/{renamed[name]}"
    if isinstance(pattern, str) and re.search(r"\(\?[=!<]", pattern):
        del lifted["pattern"]
    if schema.get("type") == "object" and "properties" in schema:
        lifted.setdefault("additionalProperties", False)
    return lifted


def _from_model(error: ValueError) -> InvalidValue:
    found = error.errors() if callable(getattr(error, "errors", None)) else [{"loc": (), "msg": str(error)}]  # type: ignore[attr-defined]
    issues = []
    for item in found:
        path = ""
        for part in item["loc"]:
            path = step(path, part)
        issues.append(Issue(path, item["msg"]))
    return InvalidValue(issues)
