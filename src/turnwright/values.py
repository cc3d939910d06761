"""`frozen`, as attrs has it, for the many small values of the core. Rule: only the price of the import differs.

attrs compiles a `__repr__`, an `__eq__` and a `__hash__` for every class, which was a good part of what importing the
core cost. Here each is written once, over the fields of the class. A type checker sees attrs itself.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

__all__ = ["frozen"]

if TYPE_CHECKING:
    from attrs import frozen
else:
    import attrs

    def frozen(cls: type | None = None, *, eq: bool = True, **options: bool) -> object:
        """Make *cls* a frozen attrs class; see `attrs.frozen`."""
        if cls is None:
            return lambda each: frozen(each, eq=eq, **options)
        made = attrs.frozen(cls, repr=False, eq=False, **options)
        made.__repr__ = _repr
        if eq:
            names = [each.name for each in attrs.fields(made) if each.eq]
            made._compared = attrgetter(*names) if names else type
            made.__eq__ = _eq
            made.__hash__ = _hash
        return made

    def _repr(self: object) -> str:
        shown = [f"{each.name}={getattr(self, each.name)!r}" for each in attrs.fields(type(self)) if each.repr]
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(shown)})"

    def _eq(self: object, other: object) -> bool:
        kind = type(self)
        if type(other) is not kind:
            return NotImplemented
        return kind._compared(self) == kind._compared(other)

    def _hash(self: object) -> int:
        kind = type(self)
        return hash((kind, kind._compared(self)))
