"""`frozen`, as attrs has it, for the many small values of the core. Rule: a class costs nothing until it is used.

attrs compiles an `__init__` and more for every class, which was half of what importing the core cost. Here a class is
given its slots at once, and attrs is asked for the rest when the first instance is made or somebody asks for its
fields. Whoever looks finds an attrs class, and a type checker sees attrs itself.
"""

from __future__ import annotations

from functools import cache
from inspect import get_annotations
from operator import attrgetter
from typing import TYPE_CHECKING

__all__ = ["frozen"]

if TYPE_CHECKING:
    from attrs import frozen
else:
    import attrs
    from attrs.exceptions import FrozenInstanceError

    def frozen(cls: type | None = None, *, eq: bool = True, slots: bool = True, kw_only: bool = False) -> object:
        """Make *cls* a frozen attrs class; see `attrs.frozen`."""
        if cls is None:
            return lambda each: frozen(each, eq=eq, slots=slots, kw_only=kw_only)
        if not slots:
            return attrs.frozen(cls, eq=eq, slots=False, kw_only=kw_only)
        names = [*get_annotations(cls)]
        body = {name: value for name, value in cls.__dict__.items() if name not in (*names, "__dict__", "__weakref__")}
        referable = any([hasattr(base, "__weakref__") for base in cls.__bases__])
        body["__slots__"] = tuple(names) if referable else (*names, "__weakref__")
        body["__match_args__"] = () if kw_only else _positional(cls, names)
        body["__init__"] = _first_init
        body["__attrs_attrs__"] = _Fields(cls, kw_only=kw_only)
        body["__setattr__"] = body["__delattr__"] = _refuse
        body["__setstate__"] = _restore
        body.setdefault("__repr__", _repr)
        if eq:
            body["__eq__"], body["__hash__"] = _eq, _hash
        body["__qualname__"] = cls.__qualname__
        return type(cls)(cls.__name__, cls.__bases__, body)

    def _positional(cls: type, names: list[str]) -> tuple[str, ...]:
        inherited = [name for base in cls.__bases__ for name in getattr(base, "__match_args__", ())]
        own = [name for name in names if getattr(cls.__dict__.get(name), "init", True)]
        return (*inherited, *own)

    class _Fields:
        """In the place of a class's fields until somebody asks: attrs makes the class anew, and that is kept."""

        def __init__(self, cls: type, *, kw_only: bool) -> None:
            self._cls = cls
            self._kw_only = kw_only

        def __set_name__(self, owner: type, name: str) -> None:
            self._owner = owner

        def __get__(self, instance: object, kind: type) -> tuple[object, ...]:
            made = attrs.frozen(self._cls, repr=False, eq=False, kw_only=self._kw_only)
            self._owner.__init__ = made.__init__
            self._owner.__attrs_attrs__ = made.__attrs_attrs__
            return made.__attrs_attrs__

    def _first_init(self: object, *args: object, **fields: object) -> None:
        kind = next(each for each in type(self).__mro__ if each.__dict__.get("__init__") is _first_init)
        attrs.fields(kind)
        kind.__init__(self, *args, **fields)

    def _refuse(self: object, *_: object) -> None:
        raise FrozenInstanceError

    def _restore(self: object, state: tuple[None, dict[str, object]]) -> None:
        for name, value in state[1].items():
            object.__setattr__(self, name, value)

    def _repr(self: object) -> str:
        shown = [f"{each.name}={getattr(self, each.name)!r}" for each in attrs.fields(type(self)) if each.repr]
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(shown)})"

    @cache
    def _compared(kind: type) -> object:
        names = [each.name for each in attrs.fields(kind) if each.eq]
        return attrgetter(*names) if names else type

    def _eq(self: object, other: object) -> bool:
        kind = type(self)
        if type(other) is not kind:
            return NotImplemented
        return _compared(kind)(self) == _compared(kind)(other)

    def _hash(self: object) -> int:
        kind = type(self)
        return hash((kind, _compared(kind)(self)))
