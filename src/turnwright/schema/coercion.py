"""Bring a JSON value nearer to its schema, and finish one that has been accepted.

Rule: along the schema only, never by guessing, never in place. What is changed is a table in `turnwright.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Final, TypeAlias

from turnwright.canonical import JSON, decode, step
from turnwright.errors import DefinitionError, InvalidValue
from turnwright.schema.documents import Place, item_schemas, named_schemas, pointer, referred, schemas, types_of
from turnwright.schema.validation import Validation, refused, within

Settle: TypeAlias = Callable[[JSON], JSON]

_EXACT: Final = 1e39  # a float beyond has more digits as an integer than a number may have


def coerce(validation: Validation, value: JSON) -> JSON:
    """Return *value* changed where the table says so; it may still not fit."""
    return _Coercion(validation).along(validation.document, "#", value)


def settling(validation: Validation, *, fill: bool) -> Settle | None:
    """Return what finishes a value that validates, None if there is never anything to do.

    It writes 1.0 as 1 where an integer is due and, if *fill*, puts the defaults of absent properties in. It raises
    `InvalidValue` for a decimal text outside its bounds, which JSON Schema cannot compare. `DefinitionError` for a
    reference that leads back to itself without going deeper into the value.
    """
    return _Settling(validation, fill=fill).at(Place("#", validation.document), frozenset())


class _Coercion:
    """One pass over one value. What was tried at a place is remembered: unions in unions stay linear, circles end."""

    def __init__(self, validation: Validation) -> None:
        self._validation = validation
        self._known: dict[tuple[str, int], tuple[JSON, JSON]] = {}

    def along(self, node: JSON, place: str, value: JSON) -> JSON:
        if not isinstance(node, dict):
            return value
        if known := self._known.get((place, id(value))):
            return known[1]
        self._known[place, id(value)] = (value, value)  # the value is kept as well, so that its id stays its own
        result = _by_type(types_of(node), value)
        if target := referred(self._validation.document, node):
            result = self.along(target.schema, target.pointer, result)
        if isinstance(result, dict):
            result = self._object(node, place, result)
        elif isinstance(result, list):
            result = self._array(node, place, result)
        for index, part in enumerate(schemas(node, "allOf")):
            result = self.along(part, pointer(place, "allOf", index), result)
        for keyword in ("anyOf", "oneOf"):
            if arms := schemas(node, keyword):
                result = self._union(arms, pointer(place, keyword), result)
        self._known[place, id(value)] = (value, result)
        return result

    def _object(self, node: dict[str, JSON], place: str, value: dict[str, JSON]) -> dict[str, JSON]:
        properties = named_schemas(node, "properties")
        required = schemas(node, "required")
        result: dict[str, JSON] = {}
        for key, item in value.items():
            if key not in properties:
                result[key] = self.along(node.get("additionalProperties"), pointer(place, "additionalProperties"), item)
                continue
            where = pointer(place, "properties", key)
            if item is not None or key in required or self._validation.part(where)(None):
                result[key] = self.along(properties[key], where, item)
        return value if _same(result.values(), value.values()) else result

    def _array(self, node: dict[str, JSON], place: str, value: list[JSON]) -> list[JSON]:
        (first_key, first), (rest_key, rest) = item_schemas(node)
        result = [
            self.along(first[index], pointer(place, first_key, index), item)
            if index < len(first)
            else self.along(rest, pointer(place, rest_key), item)
            for index, item in enumerate(value)
        ]
        return value if _same(result, value) else result

    def _union(self, arms: list[JSON], place: str, value: JSON) -> JSON:
        checks = [self._validation.part(pointer(place, index)) for index in range(len(arms))]
        if any(check(value) for check in checks):
            return value
        for index, (arm, check) in enumerate(zip(arms, checks, strict=True)):
            tried = self.along(arm, pointer(place, index), value)
            if check(tried):
                return tried
        return value


def _by_type(types: tuple[str, ...], value: JSON) -> JSON:
    """Read a text that holds what the schema wants, if it wants no text."""
    if not isinstance(value, str) or not types or "string" in types:
        return value
    try:
        read = decode(value)
    except InvalidValue:
        return value
    match read:
        case bool() | str() | None:
            return value
        case int():
            return read if "integer" in types or "number" in types else value
        case float():
            return read if "number" in types or ("integer" in types and read.is_integer()) else value
        case list():
            return read if "array" in types else value
        case dict():
            return read if "object" in types else value


class _Settling:
    """Compiles a schema to the function that finishes a value. Places without anything to do cost nothing later."""

    def __init__(self, validation: Validation, *, fill: bool) -> None:
        self._validation = validation
        self._fill = fill
        self._references: dict[str, list[Settle | None]] = {}

    def of(self, node: JSON, place: str, here: frozenset[str] = frozenset()) -> Settle | None:
        """Return what finishes a value of *node*; *here* are the references followed for this very value."""
        if not isinstance(node, dict):
            return None
        steps: list[Settle] = []
        target = referred(self._validation.document, node)
        if target and (settle := self.at(target, here)):
            steps.append(settle)
        types = types_of(node)
        if ("integer" in types and "number" not in types) or _has_integer(node):
            steps.append(_integral)
        if node.get("format") == "decimal" and (bounds := _bounds(node)):
            steps.append(_within_bounds(bounds))
        if settle := self._object(node, place):
            steps.append(settle)
        if settle := self._array(node, place):
            steps.append(settle)
        for index, part in enumerate(schemas(node, "allOf")):
            if settle := self.of(part, pointer(place, "allOf", index), here):
                steps.append(settle)
        unions = [self._union(schemas(node, keyword), pointer(place, keyword), here) for keyword in ("anyOf", "oneOf")]
        return _one_after_another([*steps, *(settle for settle in unions if settle)])

    def at(self, place: Place, here: frozenset[str]) -> Settle | None:
        """Return what finishes a value of the schema at *place*, to which a reference has led."""
        if place.pointer in here:
            raise DefinitionError(f"the reference {place.pointer!r} leads back to itself, so it says nothing")
        known = self._references.get(place.pointer)
        if known is None:
            known = self._references[place.pointer] = []
            known.append(self.of(place.schema, place.pointer, here | {place.pointer}))
        if known:
            return known[0]
        return lambda value: settle(value) if (settle := known[0]) else value  # a circle: known when it is called

    def _object(self, node: dict[str, JSON], place: str) -> Settle | None:
        members: dict[str, Settle] = {}
        defaults: dict[str, JSON] = {}
        for key, part in named_schemas(node, "properties").items():
            if settle := self.of(part, pointer(place, "properties", key)):
                members[key] = settle
            if self._fill and isinstance(part, dict) and "default" in part:
                defaults[key] = part["default"]
        extra = self.of(node.get("additionalProperties"), pointer(place, "additionalProperties"))
        if not members and not defaults and not extra:
            return None
        known = frozenset(named_schemas(node, "properties"))

        def settle_object(value: JSON) -> JSON:
            if type(value) is not dict:
                return value
            changes: dict[str, JSON] = {}
            for key, settle in members.items():
                if key in value and (settled := _inside(key, settle, value[key])) is not value[key]:
                    changes[key] = settled
            for key, default in defaults.items():
                if key not in value:
                    changes[key] = copied(default)
            if extra:
                for key, item in value.items():
                    if key not in known and (settled := _inside(key, extra, item)) is not item:
                        changes[key] = settled
            return value | changes if changes else value

        return settle_object

    def _array(self, node: dict[str, JSON], place: str) -> Settle | None:
        (first_key, first), (rest_key, rest) = item_schemas(node)
        settle_first = [self.of(part, pointer(place, first_key, index)) for index, part in enumerate(first)]
        settle_rest = self.of(rest, pointer(place, rest_key))
        if not settle_rest and not any(settle_first):
            return None

        def settle_array(value: JSON) -> JSON:
            if type(value) is not list:
                return value
            settled = [
                _inside(index, settle, item)
                if (settle := settle_first[index] if index < len(settle_first) else settle_rest)
                else item
                for index, item in enumerate(value)
            ]
            return value if _same(settled, value) else settled

        return settle_array

    def _union(self, arms: list[JSON], place: str, here: frozenset[str]) -> Settle | None:
        settles = [self.of(arm, pointer(place, index), here) for index, arm in enumerate(arms)]
        if not any(settles):
            return None
        others = [settle for arm, settle in zip(arms, settles, strict=True) if arm != {"type": "null"}]
        if len(others) == 1 and len(arms) == 2 and (only := others[0]):
            return lambda value: value if value is None else only(value)

        def settle_union(value: JSON) -> JSON:
            for index, settle in enumerate(settles):
                if self._validation.part(pointer(place, index))(value):
                    return settle(value) if settle else value
            return value

        return settle_union


def copied(value: JSON) -> JSON:
    """Return *value* with containers of its own."""
    match value:
        case dict():
            return {key: copied(item) for key, item in value.items()}
        case list():
            return [copied(item) for item in value]
        case _:
            return value


def _one_after_another(steps: list[Settle]) -> Settle | None:
    if len(steps) < 2:
        return steps[0] if steps else None

    def settle(value: JSON) -> JSON:
        for settle_part in steps:
            value = settle_part(value)
        return value

    return settle


def _inside(key: str | int, settle: Settle, value: JSON) -> JSON:
    try:
        return settle(value)
    except InvalidValue as error:
        raise within(step("", key), error) from None


def _integral(value: JSON) -> JSON:
    if type(value) is not float or not value.is_integer():
        return value
    if abs(value) >= _EXACT:
        raise refused(f"expected integer of fewer digits, got {value}")
    return int(value)


def _has_integer(node: dict[str, JSON]) -> bool:
    return any(type(option) is int for option in [node.get("const"), *schemas(node, "enum")])


def _bounds(node: dict[str, JSON]) -> dict[str, Decimal]:
    names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
    return {name: Decimal(str(node[name])) for name in names if name in node}


def _within_bounds(bounds: dict[str, Decimal]) -> Settle:
    def settle(value: JSON) -> JSON:
        if isinstance(value, str):
            for name, limit in bounds.items():
                if not _BOUNDS[name][0](Decimal(value), limit):
                    raise refused(f"expected {_BOUNDS[name][1]} {limit}, got {value[:80]}")
        return value

    return settle


_BOUNDS: Final[dict[str, tuple[Callable[[Decimal, Decimal], bool], str]]] = {
    "minimum": (ge, "at least"),
    "exclusiveMinimum": (gt, "more than"),
    "maximum": (le, "at most"),
    "exclusiveMaximum": (lt, "less than"),
    "multipleOf": (lambda value, unit: value % unit == 0, "a multiple of"),
}


def _same(some: Collection[JSON], others: Collection[JSON]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))
