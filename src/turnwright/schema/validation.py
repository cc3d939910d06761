"""Check JSON against a JSON Schema.

Rule: nothing is fetched, and no pattern backtracks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from turnwright.canonical import JSON
from turnwright.errors import DefinitionError, InvalidValue, Issue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import jsonschema_rs


class _Options(TypedDict):
    formats: dict[str, Callable[[str], bool]]
    validate_formats: bool
    pattern_options: jsonschema_rs.RegexOptions
    mask: str
    offline: bool


class Validation:
    """A JSON Schema and its compiled checks, made when they are first needed and kept.

    *formats* are checks that stand in for the standard meaning of a format's name. Safe to share between threads: two
    that come first at once compile twice and keep equal results.
    """

    __slots__ = ("_parts", "_whole", "document", "formats")

    def __init__(self, document: dict[str, JSON], formats: Mapping[str, Callable[[str], bool]]) -> None:
        self.document = document
        self.formats = dict(formats)
        self._whole: jsonschema_rs.Validator | None = None
        self._parts: jsonschema_rs.ValidatorMap | None = None

    def compile(self) -> jsonschema_rs.Validator:
        """Return the check of the whole document. `DefinitionError` if the document is no usable schema."""
        if self._whole is None:
            import jsonschema_rs  # (30 ms, spared to whoever only imports)

            try:
                self._whole = jsonschema_rs.validator_for(self.document, **_options(self.formats))
            except (ValueError, jsonschema_rs.ReferencingError) as error:
                raise DefinitionError(_unusable(error)) from None
        return self._whole

    def part(self, pointer: str) -> Callable[[JSON], bool]:
        """Return the check of the subschema at *pointer* (`#/properties/a/anyOf/0`), or one that refuses everything."""
        if self._parts is None:
            import jsonschema_rs

            self._parts = jsonschema_rs.validator_map_for(self.document, **_options(self.formats))
        check = self._parts.get(pointer)
        return check.is_valid if check else _never


def refused(message: str, path: str = "") -> InvalidValue:
    """Return the error of one issue."""
    return InvalidValue([Issue(path, message)])


def outward(place: str, issues: Iterable[Issue]) -> list[Issue]:
    """Return *issues* as seen from one step further out, where their value stands at *place*."""

    def joined(path: str) -> str:
        return place + path if not path or path.startswith("[") else f"{place}.{path}"

    return [Issue(joined(issue.path), issue.message) for issue in issues]


def within(place: str, error: InvalidValue) -> InvalidValue:
    """Return *error* as seen from one step further out."""
    return InvalidValue(outward(place, error.issues))


def _options(formats: dict[str, Callable[[str], bool]]) -> _Options:
    import jsonschema_rs

    return {
        "formats": formats,
        "validate_formats": True,
        "pattern_options": jsonschema_rs.RegexOptions(),  # the engine that cannot backtrack
        "mask": "the value",
        "offline": True,
    }


def _never(_: JSON) -> bool:
    return False


def _unusable(error: Exception) -> str:
    message = str(error).split("\n", 1)[0]
    place = "".join(f"/{part}" for part in getattr(error, "instance_path", ())) or "its root"
    if "is not present in a registry" in message:
        name = message.removeprefix("Resource ").split(" is not present")[0]
        return f"the schema refers to {name}, and schemas are never fetched: put it in $defs"
    if message.endswith('is not a "regex"'):
        return f"the pattern at {place} is refused: only patterns without look-around and back-references are matched"
    return f"not a usable JSON Schema at {place}: {message[:300]}"
