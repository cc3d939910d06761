"""The parameters of a callable as one object schema, and the way from accepted arguments to the call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from inspect import Parameter, unwrap
from types import FunctionType, MethodType, UnionType
from typing import Annotated, Union, Unpack, get_args, get_origin

from attrs import evolve as replace

from turnwright.canonical import JSON
from turnwright.errors import DefinitionError, InvalidValue
from turnwright.schema.annotations import Scope, signature_of, type_parameters
from turnwright.schema.coercion import copied
from turnwright.schema.containers import array_of, mapping_of
from turnwright.schema.declared import Schema, made
from turnwright.schema.docstrings import read
from turnwright.schema.documents import Document, named_schemas, types_of
from turnwright.schema.forms import Forms
from turnwright.schema.validation import refused, within
from turnwright.schema.wire import ABSENT, Form, Load, Member, dump_members, load_members, object_schema

_Slot = tuple[str, Load | None, object]


class Parameters:
    """The parameters of a callable.

    *schema* describes them as one object. *description* is what the docstring says of the callable, without its
    sections on parameters and results. *context* is the name of the parameter that the caller injects, if there is one;
    the schema does not know it.
    """

    __slots__ = ("_fixed", "_given", "_keyword", "_options", "_positional", "_rest", "context", "description", "schema")

    def __init__(
        self,
        schema: Schema[dict[str, object]],
        description: str,
        *,
        context: str | None,
        slots: Mapping[str, tuple[Parameter, Load | None]],
        fixed: frozenset[str],
    ) -> None:
        self.schema = schema
        self.description = description
        self.context = context
        self._positional = _slots(slots, Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        self._keyword = _slots(slots, Parameter.KEYWORD_ONLY)
        self._rest = _slots(slots, Parameter.VAR_POSITIONAL)
        self._options = _slots(slots, Parameter.VAR_KEYWORD)
        self._fixed = fixed
        self._given = False

    def described_by(self, schema: Schema[object]) -> Parameters:
        """Return the parameters of the same callable as *schema* describes them: an object with an argument a name.

        The annotations still say what the callable gets; what is no parameter goes to `**kwargs`, flat. It is a
        `DefinitionError` if there is no `**kwargs` for it, if a required parameter is missing, or if the schema offers
        one that is fixed or injected.
        """
        root = schema.document
        offered = named_schemas(root, "properties").keys()
        named = {name for name, _, _ in (*self._positional, *self._keyword, *self._rest)}
        needed = {name for name, _, default in (*self._positional, *self._keyword) if default is Parameter.empty}
        if types_of(root) != ("object",):
            raise DefinitionError('the schema of parameters must say "type": "object"')
        if taken := sorted(offered & (self._fixed | {self.context})):
            raise DefinitionError(f"the schema offers {taken[0]!r}, which is not the model's to give")
        if missing := sorted(needed - offered - {self.context}):
            raise DefinitionError(f"the schema lacks the required parameter {missing[0]!r}")
        if not self._options and (unknown := sorted(offered - named)):
            raise DefinitionError(f"the schema offers {unknown[0]!r}, which is no parameter of the function")
        described = copy(self)
        described.schema = schema  # type: ignore[assignment]
        described._given = True
        return described

    def bind(self, arguments: JSON, context: object) -> tuple[list[object], dict[str, object]]:
        """Return the positional and the keyword arguments of the call that the accepted *arguments* ask for.

        Nothing of *arguments* is shared with the call, so a callable may change what it gets. `InvalidValue` with the
        path if a class refuses to be made of its part.
        """
        if not isinstance(arguments, dict):
            raise refused("expected a JSON object")
        positional = [self._value(slot, arguments, context) for slot in self._positional]
        for name, load, _ in self._rest:
            if name in arguments:
                positional.extend(_loaded(name, load, arguments[name]))  # type: ignore[arg-type]
        keyword = {slot[0]: self._value(slot, arguments, context) for slot in self._keyword}
        for name, load, _ in self._options:
            if self._given:
                keyword.update(_loaded("", load, self._unnamed(arguments)))  # type: ignore[call-overload]
            elif name in arguments:
                keyword.update(_loaded(name, load, arguments[name]))  # type: ignore[call-overload]
        return positional, keyword

    def _unnamed(self, arguments: Document) -> Document:
        """Return the arguments that no parameter is named for."""
        named = {name for name, _, _ in (*self._positional, *self._keyword, *self._rest)}
        unnamed = {name: value for name, value in arguments.items() if name not in named}
        if taken := sorted(unnamed.keys() & self._fixed):
            raise refused("unknown property", taken[0])
        return unnamed

    def _value(self, slot: _Slot, arguments: Document, context: object) -> object:
        name, load, default = slot
        if name == self.context:
            return context
        if name in arguments:
            value = arguments[name]
            kind = type(value)
            return _loaded(name, load, value) if load or kind is dict or kind is list else value
        if default is Parameter.empty:
            raise refused("missing, and it is required", name)
        return default


def parameters_of(function: Callable[..., object], *, context: type | None = None) -> Parameters:
    """Return the parameters of *function*: a function, a bound method, a partial, a class or an object to be called.

    A parameter annotated with the class *context* (or a subclass, or it or None) is left out of the schema and injected
    by `Parameters.bind`. Parameters that a partial has already fixed by name are out of anyone's reach. `*args` is an
    array of that name, `**kwargs` an object of that name. `DefinitionError` names a parameter that has no JSON form.
    """
    inner, fixed = _innermost(function)
    name = getattr(inner, "__qualname__", type(function).__name__)
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{name} has no signature to read ({error}); wrap it in a Python function") from None
    docs = read(_docstring(function, inner))
    scope = Scope(inner, _closure(inner))
    forms = Forms()
    members: list[Member] = []
    slots: dict[str, tuple[Parameter, Load | None]] = {}
    injected = None
    for parameter in parameters:
        if parameter.name in fixed:
            continue
        try:
            hint = _hint(parameter, scope, context)
            if hint is context and context is not None:
                if injected:
                    raise DefinitionError(f"{injected!r} is injected already, and one context is enough")
                injected = parameter.name
                slots[parameter.name] = (parameter, None)
                continue
            member = _member(parameter, hint, forms, scope, docs.parameters.get(parameter.name, ""))
        except DefinitionError as error:
            raise DefinitionError(f"parameter {parameter.name!r} of {name}: {error}") from None
        members.append(member)
        slots[parameter.name] = (parameter, member.form.load)
    _reserve(members, slots, fixed)
    form = Form(
        object_schema(members),
        lambda value: load_members(members, value),
        lambda value: dump_members(members, value),  # type: ignore[arg-type]
    )
    schema: Schema[dict[str, object]] = made(form, forms)  # type: ignore[assignment]
    return Parameters(schema, docs.description, context=injected, slots=slots, fixed=fixed)


def _slots(slots: Mapping[str, tuple[Parameter, Load | None]], *kinds: object) -> list[_Slot]:
    return [(name, load, parameter.default) for name, (parameter, load) in slots.items() if parameter.kind in kinds]


def _loaded(name: str, load: Load | None, value: JSON) -> object:
    own = copied(value)
    if not load:
        return own
    try:
        return load(own)
    except InvalidValue as error:
        raise (within(name, error) if name else error) from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # it was accepted by a schema given apart
        raise refused(f"{type(error).__name__}: {error}", name) from error


def _innermost(function: object) -> tuple[object, frozenset[str]]:
    """Return what was written with `def` or `class` inside *function*, and the names that partials have fixed."""
    fixed: frozenset[str] = frozenset()
    while True:
        if isinstance(function, partial):
            fixed |= function.keywords.keys()
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = unwrap(function)  # type: ignore[arg-type]
        elif isinstance(function, FunctionType | type) or not hasattr(type(function).__call__, "__code__"):
            return function, fixed
        else:
            function = type(function).__call__


def _docstring(function: object, inner: object) -> str | None:
    while isinstance(function, partial):
        function = function.func
    written = getattr(inner, "__doc__", None)
    if not written and not isinstance(function, FunctionType | MethodType):
        written = getattr(type(function), "__doc__", None)  # an object to be called, described by its class
    return written


def _closure(function: object) -> dict[str, object]:
    """Return what the free variables of *function* hold now, and its type parameters."""
    names = type_parameters(function)
    code = getattr(function, "__code__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def _hint(parameter: Parameter, scope: Scope, context: type | None) -> object:
    """Return the annotation of *parameter*, evaluated; *context* itself if it asks for that."""
    if parameter.annotation is Parameter.empty:
        return object
    try:
        hint = scope.resolved(parameter.annotation)
    except DefinitionError:
        # A context imported for type checkers alone has no value to compare: then its name has to do.
        text = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
        if context and context.__name__ in re.findall(r"\w+", text):
            return context
        raise
    return context if context and _asks_for(hint, context) else hint


def _asks_for(hint: object, context: type) -> bool:
    """Tell whether *hint* is *context*, a subclass or generic form of it, or one of those annotated or optional."""
    if get_origin(hint) in (Annotated, Union, UnionType):
        return any(_asks_for(part, context) for part in get_args(hint))
    cls = get_origin(hint) or hint
    return isinstance(cls, type) and context in cls.__mro__


def _member(parameter: Parameter, hint: object, forms: Forms, scope: Scope, description: str) -> Member:
    name = parameter.name
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return Member(
            name, name, array_of(list, forms.of(hint, scope)), required=False, default=[], description=description
        )
    if parameter.kind is Parameter.VAR_KEYWORD:
        if get_origin(hint) is Unpack:
            form = forms.of(get_args(hint)[0], scope)
            default = forms.default(form, {})
            return Member(name, name, form, required=default is ABSENT, default=default, description=description)
        form = mapping_of(forms.of(str, scope), forms.of(hint, scope))
        return Member(name, name, form, required=False, default={}, description=description)
    form = forms.of(hint, scope)
    if parameter.default is Parameter.empty:
        return Member(name, name, form, required=True, description=description)
    return Member(
        name, name, form, required=False, default=forms.default(form, parameter.default), description=description
    )


def _reserve(members: list[Member], slots: Mapping[str, tuple[Parameter, Load | None]], fixed: frozenset[str]) -> None:
    """Keep the names of other parameters out of `**kwargs`: they would clash or, worse, override what is fixed."""
    taken = {name for name, (parameter, _) in slots.items() if parameter.kind is not Parameter.POSITIONAL_ONLY} | fixed
    for index, member in enumerate(members):
        if slots[member.name][0].kind is Parameter.VAR_KEYWORD and (names := sorted(taken - {member.name})):
            reserved: Document = {"not": {"enum": list[JSON](names)}}
            schema = {**member.form.schema, "propertyNames": reserved}
            members[index] = replace(member, form=replace(member.form, schema=schema))
