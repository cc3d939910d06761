"""What the names in annotations mean: in the module, the closure and the functions around the thing that has them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import Signature, currentframe, get_annotations, signature
from types import FrameType
from typing import ForwardRef

from attrs import frozen

from turnwright.errors import DefinitionError


@frozen(eq=False)
class Scope:
    """Where the names in the annotations of *owner* are looked up, *names* first, then the functions around it.

    *outer* is the scope in which *owner* was met: a local class may name what only its user can see. *variables* says
    what type variables stand for.
    """

    owner: object
    names: Mapping[str, object]
    outer: Scope | None = None
    variables: Mapping[object, object] = {}

    def resolved(self, hint: object) -> object:
        """Return what *hint* means if it is a text or a forward reference. `DefinitionError` if a name is nowhere."""
        while isinstance(hint, str | ForwardRef):
            if isinstance(hint, str):
                hint = self._evaluated(hint, None)
            else:
                hint = self._evaluated(hint.__forward_arg__, hint.__forward_module__)
        return hint

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

    def _evaluated(self, text: str, module: object) -> object:
        home = sys.modules.get(str(module or getattr(self.owner, "__module__", "")))
        names: dict[str, object] = getattr(self.owner, "__globals__", None) or (vars(home) if home else {})
        try:
            return eval(text, names, _Names(self))  # noqa: S307  (the text is source code of the one who declares)
        except NameError as error:
            raise DefinitionError(
                f"the name {error.name!r} in its annotation {text!r} cannot be resolved; "
                "define it before, and import it for the run as well, not for type checkers alone"
            ) from None
        except Exception as error:
            raise DefinitionError(f"its annotation {text!r} cannot be evaluated: {error}") from error


class _Names(dict[str, object]):
    """The local names for `eval`, which asks a subclass of dict for what it lacks."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def __missing__(self, name: str) -> object:
        return self._scope.look_up(name)


def annotations_of(thing: object) -> Mapping[str, object]:
    """Return the annotations of *thing* itself; those that cannot be evaluated yet stay texts or references."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(thing, format=annotationlib.Format.FORWARDREF)
    return get_annotations(thing) if isinstance(thing, type) else {}


def signature_of(function: Callable[..., object]) -> Signature:
    """Return the signature of *function*, with such annotations."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return signature(function)


def type_parameters(thing: object) -> dict[str, object]:
    """Return the type parameters that *thing* declares in brackets, by name."""
    return {parameter.__name__: parameter for parameter in getattr(thing, "__type_params__", ())}


def _frames_around(owner: object) -> Iterable[FrameType]:
    """Find the running functions in which *owner* was defined, nearest first: a local class is among their locals."""
    around = getattr(owner, "__qualname__", "").split(".<locals>")[:-1]
    wanted = {".<locals>".join(around[: end + 1]) for end in range(len(around))}
    frame = currentframe() if wanted else None
    while frame:
        if frame.f_code.co_qualname in wanted and frame.f_globals.get("__name__") == getattr(owner, "__module__", None):
            yield frame
        frame = frame.f_back
