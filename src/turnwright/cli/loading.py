"""Find what the command line names: a definition in a module or a file, and the inputs that an argument stands for.

Rule: whatever is wrong with them is one line that says where.

A module may say how its inputs are made of the argument, and do something with what came of them:

    definition                                                   the agent
    inputs(argument, *, all) -> iterable of (label, input)       the first few, or *all* of them
    write(argument, results) -> path or text                     after the last run; *results* are (label, outcome)

Without `inputs` the argument is the input itself: text where the definition takes text, else JSON.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from attrs import frozen

from turnwright.canonical import decode
from turnwright.cli.exits import CommandError
from turnwright.cli.visible import one_line
from turnwright.definition import AgentDefinition, AnyDefinition
from turnwright.errors import InvalidValue, MissingExtra
from turnwright.outcomes import Outcome

__all__ = ["Target", "load"]

T = TypeVar("T")


@frozen(eq=False)
class Target:
    """A definition and the module it is from. *place* is what the user calls the module."""

    place: str
    module: ModuleType
    definition: AnyDefinition

    def inputs(self, argument: str, *, all: bool) -> Sequence[tuple[str, object]]:  # noqa: A002 - the flag's own name
        """Return what *argument* stands for, each input with a label, which may be empty."""
        make = getattr(self.module, "inputs", None)
        if make is None:
            if all:
                raise CommandError(f"--all: {self.place} has no inputs(argument, *, all), so there is but one input")
            return [("", self._input(argument))]
        found = self._attempt(lambda: [(str(label), value) for label, value in make(argument, all=all)])
        if not found:
            raise CommandError(f"{argument}: {self.place} finds no input in it")
        return found

    def write(self, argument: str, results: Sequence[tuple[str, Outcome[object]]]) -> str | None:
        """Let the module write down what came of its inputs. Return where, None if it has nothing to write."""
        make = getattr(self.module, "write", None)
        if make is None:
            return None
        written = self._attempt(lambda: make(argument, results))
        return None if written is None else str(written)

    @property
    def recording(self) -> Path | None:
        """The recorded conversation that came with the module, if one did."""
        if self.module.__file__ is None:
            return None
        source = Path(self.module.__file__)
        recording = source.parent / "recordings" / f"{source.stem}.jsonl"
        return recording if recording.is_file() else None

    def _input(self, argument: str) -> object:
        schema = self.definition.input_schema
        try:
            is_text = schema.document.get("type") == "string"
            return schema.load(schema.accept(argument if is_text else decode(argument)))
        except InvalidValue as error:
            raise CommandError(f"the input does not fit agent {self.definition.name!r}: {error}") from error

    def _attempt(self, work: Callable[[], T]) -> T:
        """Do *work* of the module's own; what goes wrong in it is the user's to know, in one line."""
        try:
            return work()
        except OSError as error:
            named = error.filename or self.place
            raise CommandError(f"{named}: {error.strerror or error}") from error
        except (Exception, SystemExit) as error:
            raise CommandError(_told(self.place, error, self.module.__file__)) from error


def load(named: str) -> Target:
    """Load `module.path[:definition]` or `path/to/file.py[:definition]`."""
    place, _, attribute = named.rpartition(":")
    if not place or Path(named).is_file():
        place, attribute = named, ""
    attribute = attribute or "definition"
    module = _load_file(Path(place)) if place.endswith(".py") or os.sep in place else _load_module(place)
    found = getattr(module, attribute, None)
    if isinstance(found, AgentDefinition):
        return Target(place, module, found)
    if found is not None:
        raise CommandError(f"{place}: {attribute!r} is not an AgentDefinition but of type {type(found).__name__}")
    known = [name for name, value in vars(module).items() if isinstance(value, AgentDefinition)]
    near = difflib.get_close_matches(attribute, known, 1, 0.0)
    hint = f"; did you mean {place}:{near[0]}?" if near else ", nor any other AgentDefinition"
    raise CommandError(f"{place} has no {attribute!r}{hint}")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CommandError(f"no file {path}" if not path.exists() else f"{path} is not a file")
    # A module of that name may be loaded already; the file must not take its place.
    name = path.stem if path.stem not in sys.modules else f"{path.stem} in {path}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CommandError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # annotations are looked up there
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CommandError(_told(str(path), error, str(path))) from error
    return module


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as python -m does
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            hint = f"; for a file, say {name}.py" if Path(f"{name}.py").is_file() else ""
            raise CommandError(f"no module {error.name!r} here or in this environment{hint}") from error
        raise CommandError(_told(name, error, None)) from error
    except (Exception, SystemExit) as error:
        raise CommandError(_told(name, error, None)) from error


def _told(place: str, error: BaseException, file: str | None) -> str:
    """Say in one line what *error* is, and on which line of the user's *file* it arose."""
    if isinstance(error, MissingExtra):
        return one_line(str(error))
    if isinstance(error, SyntaxError):
        return one_line(f"{error.filename}, line {error.lineno}: {error.msg}")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = f", line {frames[-1].lineno}" if frames else ""
    kind = "" if isinstance(error, ValueError | ImportError) and str(error) else f"{type(error).__name__}: "
    return one_line(f"{place}{line}: {kind}{error}")
