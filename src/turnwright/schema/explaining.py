"""Say where a value does not fit its schema and why, in words that a model can act on.

Rule: at most twenty issues, no message grows with the value, and the work is linear. A validator that lists its errors
itself tries every arm of every union inside every arm, which is exponential on a recursive schema; here only checks are
asked, which remember what they have seen, and each value is explained once for each schema that it meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from turnwright.canonical import JSON, step
from turnwright.errors import Issue
from turnwright.schema.documents import Document, item_schemas, named_schemas, pointer, referred, schemas, types_of
from turnwright.schema.validation import Validation, outward

if TYPE_CHECKING:
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
_OF_THE_VALUE_ALONE: Final = (
    "$schema",
    "const",
    "dependentRequired",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "propertyNames",
    "required",
    "type",
    "uniqueItems",
)


def explain(validation: Validation, value: JSON) -> list[Issue]:
    """Return what is wrong with *value*: nothing, or the first places of at most twenty."""
    return _Explanation(validation).of(validation.document, "#", value)


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


def _some(words: Iterable[object]) -> str:
    first = [str(word)[:SHOWN] for word in islice(words, 11)]
    return ", ".join(first[:10]) + (", ..." if len(first) > 10 else "")


class _Explanation:
    """One reading of one value, which is not changed meanwhile, so that its parts are known by their identity."""

    def __init__(self, validation: Validation) -> None:
        self._validation = validation
        self._known: dict[tuple[str, int], list[Issue]] = {}
        self._alone: dict[str, jsonschema_rs.Validator] = {}

    def of(self, node: JSON, place: str, value: JSON) -> list[Issue]:
        if self._validation.part(place)(value):
            return []
        known = self._known.get((place, id(value)))
        if known is None:
            self._known[place, id(value)] = []
            found = dict.fromkeys(islice(self._all(node, place, value), ISSUES))
            known = self._known[place, id(value)] = list(found) or [Issue("", f"does not fit {place}")]
        return known

    def _all(self, node: JSON, place: str, value: JSON) -> Iterator[Issue]:
        if not isinstance(node, dict):
            yield Issue("", "is not allowed here")
            return
        for error in self._check_alone(node, place).iter_errors(value):
            yield from _issues(error, value)
        if target := referred(self._validation.document, node):
            yield from self.of(target.schema, target.pointer, value)
        if isinstance(value, dict):
            yield from self._members(node, place, value)
        elif isinstance(value, list):
            yield from self._items(node, place, value)
        for index, part in enumerate(schemas(node, "allOf")):
            yield from self.of(part, pointer(place, "allOf", index), value)
        for keyword in ("anyOf", "oneOf"):
            if arms := schemas(node, keyword):
                yield from self._union(arms, pointer(place, keyword), value, one=keyword == "oneOf")
        if "if" in node:
            branch = "then" if self._validation.part(pointer(place, "if"))(value) else "else"
            if branch in node:
                yield from self.of(node[branch], pointer(place, branch), value)

    def _members(self, node: Document, place: str, value: dict[str, JSON]) -> Iterator[Issue]:
        properties = named_schemas(node, "properties")
        extra = node.get("additionalProperties") if "patternProperties" not in node else None
        for key, item in value.items():
            if key in properties:
                yield from outward(step("", key), self.of(properties[key], pointer(place, "properties", key), item))
            elif isinstance(extra, dict):
                yield from outward(step("", key), self.of(extra, pointer(place, "additionalProperties"), item))

    def _items(self, node: Document, place: str, value: list[JSON]) -> Iterator[Issue]:
        (first_key, first), (rest_key, rest) = item_schemas(node)
        for index, item in enumerate(value):
            if index < len(first):
                found = self.of(first[index], pointer(place, first_key, index), item)
            elif rest_key in node:
                found = self.of(rest, pointer(place, rest_key), item)
            else:
                break
            yield from outward(step("", index), found)

    def _union(self, arms: list[JSON], place: str, value: JSON, *, one: bool) -> Iterable[Issue]:
        """Let the arm that the value comes nearest to speak for the union: of its type, with the fewest issues."""
        found = [self.of(arm, pointer(place, index), value) for index, arm in enumerate(arms)]
        fitting = sum(not issues for issues in found)
        if fitting:
            return [Issue("", "fits more than one of the alternatives")] if one and fitting > 1 else []
        if all(len(issues) == 1 and not issues[0].path for issues in found):
            return [Issue("", _either([issues[0].message for issues in found]))]
        of_its_type = [issues for arm, issues in zip(arms, found, strict=True) if self._may_be(arm, value)]
        return min(of_its_type or found, key=len)

    def _may_be(self, arm: JSON, value: JSON) -> bool:
        """Tell whether *value* is of a type that *arm* names, if it names any."""
        for _ in range(ISSUES):  # references to references end somewhere
            if target := referred(self._validation.document, arm):
                arm = target.schema
        types = types_of(arm)
        return not types or not _types_of_value(value).isdisjoint(types)

    def _check_alone(self, node: Document, place: str) -> jsonschema_rs.Validator:
        """Return a check of what *node* says of a value without looking at what is in it."""
        if place not in self._alone:
            alone: Document = {key: node[key] for key in _OF_THE_VALUE_ALONE if key in node}
            if isinstance(schema := self._validation.document.get("$schema"), str):
                alone["$schema"] = schema
            if node.get("additionalProperties") is False:
                alone["additionalProperties"] = False
                for keyword in ("properties", "patternProperties"):
                    alone[keyword] = {key: {} for key in named_schemas(node, keyword)}
            self._alone[place] = Validation(alone, self._validation.formats).compile()
        return self._alone[place]


def _types_of_value(value: JSON) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"integer", "number"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case dict():
            return {"object"}


def _either(messages: list[str]) -> str:
    """Join messages of the shape "expected A, got B" to "expected A or C, got B"."""
    first, *others = dict.fromkeys(messages)
    wanted, comma, got = first.rpartition(", got ")
    if not wanted or not all(message.endswith(comma + got) for message in others):
        return first
    alternatives = [message.removeprefix("expected ").removesuffix(comma + got) for message in others[:10]]
    return " or ".join([wanted, *alternatives]) + comma + got


def _issues(error: jsonschema_rs.ValidationError, value: JSON) -> list[Issue]:
    from jsonschema_rs import ValidationErrorKind as Kind

    got = shown(value)
    match error.kind:
        case Kind.Required(name):
            return [Issue(step("", name), "missing, and it is required")]
        case Kind.AdditionalProperties(names):
            return [Issue(step("", name), "unknown property") for name in names[:ISSUES]]
        case Kind.PropertyNames(inner):
            return [Issue(step("", str(inner.instance)), "this key is not allowed here")]
        case Kind.Type(["object"]):
            message = f"expected a JSON object, got {got}"
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
        case Kind.MultipleOf(unit):
            message = f"expected a multiple of {unit}, got {got}"
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
        case _:
            message = error.message[:300]
    return [Issue("", message)]
