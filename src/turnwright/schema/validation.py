"""Check JSON against a JSON Schema and say what is wrong in words that a model can act on.

Rule: nothing is fetched, no pattern backtracks, no message grows with the value.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypedDict

from turnwright.canonical import JSON, step
from turnwright.errors import DefinitionError, InvalidValue, Issue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import jsonschema_rs

ISSUES: Final = 20
SHOWN: Final = 80

_EXAMPLES: Final = {
    "date-time": "2025-01-02T03:04:05Z",
    "date": "2025-01-02",
    "time": "03:04:05",
    "duration": "P1DT2H30M",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "email": "someone@example.com",
    "uri": "https://example.com/a",
    "decimal": "12.50",
    "base64": "aGVsbG8=",
}


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

    __slots__ = ("_formats", "_parts", "_whole", "document")

    def __init__(self, document: dict[str, JSON], formats: Mapping[str, Callable[[str], bool]]) -> None:
        self.document = document
        self._formats = dict(formats)
        self._whole: jsonschema_rs.Validator | None = None
        self._parts: jsonschema_rs.ValidatorMap | None = None

    def compile(self) -> jsonschema_rs.Validator:
        """Return the check of the whole document. `DefinitionError` if the document is no usable schema."""
        if self._whole is None:
            import jsonschema_rs  # (30 ms, spared to whoever only imports)

            try:
                self._whole = jsonschema_rs.validator_for(self.document, **_options(self._formats))
            except (ValueError, jsonschema_rs.ReferencingError) as error:
                raise DefinitionError(_unusable(error)) from None
        return self._whole

    def part(self, pointer: str) -> Callable[[JSON], bool]:
        """Return the check of the subschema at *pointer* (`#/properties/a/anyOf/0`), or one that refuses everything."""
        if self._parts is None:
            import jsonschema_rs

            self._parts = jsonschema_rs.validator_map_for(self.document, **_options(self._formats))
        check = self._parts.get(pointer)
        return check.is_valid if check else _never

    def issues(self, value: JSON) -> list[Issue]:
        """Return what is wrong with *value*: nothing, or the first places of at most twenty."""
        found: dict[Issue, None] = {}
        for error in islice(self.compile().iter_errors(value), ISSUES):
            found.update(dict.fromkeys(_issues(error, value)))
        return list(islice(found, ISSUES))


def refused(message: str, path: str = "") -> InvalidValue:
    """Return the error of one issue."""
    return InvalidValue([Issue(path, message)])


def within(place: str, error: InvalidValue) -> InvalidValue:
    """Return *error* as seen from one step further out."""

    def joined(path: str) -> str:
        return place + path if not path or path.startswith("[") else f"{place}.{path}"

    return InvalidValue([Issue(joined(issue.path), issue.message) for issue in error.issues])


def shown(value: object) -> str:
    """Return *value* as JSON text, or what it is where that gets long."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value[:SHOWN]}"...' if len(value) > SHOWN else f'"{value}"'
        case list():
            return f"an array of {len(value)}" if value else "[]"
        case dict():
            return f"an object with {_some(value)}" if value else "{}"
        case _:
            return str(value)


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


def _some(words: Iterable[object]) -> str:
    first = [str(word)[:SHOWN] for word in islice(words, 11)]
    return ", ".join(first[:10]) + (", ..." if len(first) > 10 else "")


def _unusable(error: Exception) -> str:
    message = str(error).split("\n", 1)[0]
    place = "".join(f"/{part}" for part in getattr(error, "instance_path", ())) or "its root"
    if "is not present in a registry" in message:
        return f"the schema refers to {message.split(' is not present')[0]}; schemas are never fetched: put it in $defs"
    if message.endswith('is not a "regex"'):
        return f"the pattern at {place} is refused: only patterns without look-around and back-references are matched"
    return f"not a usable JSON Schema at {place}: {message[:300]}"


def _issues(error: jsonschema_rs.ValidationError, root: JSON) -> list[Issue]:
    from jsonschema_rs import ValidationErrorKind as Kind

    path, value = "", root
    for part in error.instance_path:
        path = step(path, part)
        value = value[part]  # type: ignore[index]
    got = shown(value)
    match error.kind:
        case Kind.Required(name):
            return [Issue(step(path, name), "missing, and it is required")]
        case Kind.AdditionalProperties(names) | Kind.UnevaluatedProperties(names):
            return [Issue(step(path, name), "unknown property") for name in names[:ISSUES]]
        case Kind.AnyOf(arms) | Kind.OneOfNotValid(arms):
            return _issues_of_union(arms, Issue(path, got), len(error.instance_path), root)
        case Kind.Type(types):
            message = f"expected {' or '.join(types)}, got {got}"
        case Kind.Enum(options):
            message = f"expected one of {_some(map(shown, options))}, got {got}"
        case Kind.Constant(expected):
            message = f"expected {shown(expected)}, got {got}"
        case Kind.Format(name):
            example = f" such as {_EXAMPLES[name]}" if name in _EXAMPLES else ""
            message = f"expected {name[:SHOWN]}{example}, got {got}"
        case Kind.Pattern(pattern):
            message = f"expected text that matches {pattern[:SHOWN]}, got {got}"
        case Kind.Minimum(limit):
            message = f"expected at least {limit}, got {got}"
        case Kind.Maximum(limit):
            message = f"expected at most {limit}, got {got}"
        case Kind.ExclusiveMinimum(limit):
            message = f"expected more than {limit}, got {got}"
        case Kind.ExclusiveMaximum(limit):
            message = f"expected less than {limit}, got {got}"
        case Kind.MinLength(limit):
            message = f"expected at least {limit} characters, got {got}"
        case Kind.MaxLength(limit):
            message = f"expected at most {limit} characters, got {got}"
        case Kind.MinItems(limit):
            message = f"expected at least {limit} items, got {got}"
        case Kind.MaxItems(limit):
            message = f"expected at most {limit} items, got {got}"
        case Kind.UniqueItems():
            message = "expected items that differ from each other"
        case Kind.PropertyNames(inner):
            message = f"a key is refused: {inner.message[:300]}"
        case _:
            message = error.message[:300]
    return [Issue(path, message)]


def _issues_of_union(
    arms: list[list[jsonschema_rs.ValidationError]], got: Issue, depth: int, root: JSON
) -> list[Issue]:
    """Let the arm that the value came nearest to speak for the union: of its type, with the fewest errors."""
    expected: list[str] = []
    near = []
    for errors in arms:
        of_type = [error for error in errors if error.kind.name == "type" and len(error.instance_path) == depth]
        for error in of_type:
            expected.extend(error.kind.as_dict()["types"])
        if not of_type:
            near.append(errors)
    if near:
        return [issue for error in min(near, key=len)[:ISSUES] for issue in _issues(error, root)]
    return [Issue(got.path, f"expected {' or '.join(dict.fromkeys(expected))}, got {got.message}")]
