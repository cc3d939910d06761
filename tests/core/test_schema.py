"""A type or JSON Schema describes what a model may send, accepts it, and loads it, in agreement with itself."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Unpack,
)
from uuid import UUID

import attrs
import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from turnwright.canonical import JSON, decode, encode
from turnwright.errors import DefinitionError, InvalidValue
from turnwright.schema import Parameters, Schema, parameters_of, schema_of

if TYPE_CHECKING:
    from nowhere import Context as HiddenContext, Nothing

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-50, 50) | st.sampled_from([1.0, 2.5, -0.0, 1e300]) | st.text(max_size=5)
    | st.sampled_from(["1", "2.0", "-3.5", "true", "null", "[1]", '{"n": "1"}', '["a", 2]', "red", "2025-01-02"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["n", "name", "tags", "root", "children", "x"]), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


def refusal(schema: Schema[Any], value: object) -> str:
    """Return the words with which *schema* refuses *value*."""
    with pytest.raises(InvalidValue) as refused:
        schema.accept(value)  # type: ignore[arg-type]
    return str(refused.value)


def called(function: Callable[..., Any], arguments: JSON, context: object = None) -> Any:  # noqa: ANN401
    """Call *function* as a model's arguments ask for, by way of JSON as in a journal."""
    parameters = parameters_of(function, context=Context)
    args, kwargs = parameters.bind(decode(encode(parameters.schema.accept(arguments))), context)
    return function(*args, **kwargs)


class Context:
    """Stands for what the engine injects."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Shape(Enum):
    POINT = (0, 0)
    LINE = (0, 1)


class Priority(str, Enum):  # noqa: UP042  (this is how people write it)
    HIGH = "high"
    LOW = "low"


@attrs.define
class A:
    """An order.

    Attributes:
        n: how many
    """

    n: int
    when: datetime
    tags: list[Colour]
    _hidden: int = 0
    notes: list[str] = attrs.field(factory=list, metadata={"description": "free text"})
    made: str = attrs.field(factory=lambda: "now")
    computed: int = attrs.field(init=False, default=7)


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)


@dataclass
class Choice:
    mode: Optional[Literal[1, "a"]] = None  # noqa: UP045


class Place(NamedTuple):
    x: int
    y: float = 0.5


class Query(TypedDict):
    text: str
    limit: NotRequired[int]


class Loose(TypedDict, total=False):
    text: Required[str]
    limit: int


T = TypeVar("T")


@attrs.frozen
class Box(Generic[T]):
    item: T
    others: list[T] = attrs.Factory(list)


@attrs.frozen
class NamedBox(Box[str]):
    name: str = ""


@attrs.frozen
class Positive:
    n: int = attrs.field(validator=attrs.validators.gt(0))


UserId = NewType("UserId", int)

ZONED = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]))
TYPES: dict[str, tuple[object, st.SearchStrategy[Any]]] = {
    "str": (str, st.text()),
    "int": (int, st.integers(-(10**38), 10**38)),
    "float": (float, st.floats(allow_nan=False, allow_infinity=False)),
    "bool": (bool, st.booleans()),
    "None": (None, st.none()),
    "any": (object, JSON_VALUES),
    "datetime": (datetime, ZONED),
    "date": (date, st.dates()),
    "time": (time, st.times()),
    "timedelta": (timedelta, st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6))),
    "UUID": (UUID, st.uuids()),
    "Decimal": (Decimal, st.decimals(-(10**9), 10**9, places=3)),
    "bytes": (bytes, st.binary()),
    "Path": (Path, st.sampled_from([Path("/a/b"), Path("c")])),
    "Enum": (Colour, st.sampled_from(Colour)),
    "IntEnum": (Level, st.sampled_from(Level)),
    "Enum by name": (Shape, st.sampled_from(Shape)),
    "Literal": (Literal[1, "a", Colour.RED] | None, st.sampled_from([1, "a", None, Colour.RED])),
    "optional": (datetime | None, st.none() | ZONED),
    "union": (date | int | str | None, st.none() | st.integers(-9, 9) | st.dates() | st.text(max_size=4)),
    "list": (list[date], st.lists(st.dates())),
    "sequence": (Sequence[int], st.lists(st.integers(-9, 9))),
    "set": (set[UUID], st.sets(st.uuids())),
    "frozenset": (frozenset[Level], st.frozensets(st.sampled_from(Level))),
    "tuple": (tuple[int, Colour], st.tuples(st.integers(-9, 9), st.sampled_from(Colour))),
    "tuple of any length": (tuple[date, ...], st.lists(st.dates()).map(tuple)),
    "empty tuple": (tuple[()], st.just(())),
    "dict": (dict[str, date], st.dictionaries(st.text(), st.dates())),
    "dict of int": (dict[int, int], st.dictionaries(st.integers(-99, 99), st.integers(-9, 9))),
    "dict of Enum": (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), st.integers(-9, 9))),
    "mapping": (Mapping[str, object], st.dictionaries(st.text(), JSON_VALUES)),
    "NewType": (UserId, st.integers(-9, 9)),
    "attrs": (A, st.builds(A, st.integers(-9, 9), ZONED, st.lists(st.sampled_from(Colour)), st.integers(-9, 9))),
    "dataclass": (
        Node,
        st.recursive(
            st.builds(Node, st.text()), lambda n: st.builds(Node, st.text(), st.lists(n, max_size=2)), max_leaves=8
        ),
    ),
    "NamedTuple": (Place, st.builds(Place, st.integers(-9, 9), st.sampled_from([0.5, 1.5]))),
    "TypedDict": (Query, st.fixed_dictionaries({"text": st.text()}, optional={"limit": st.integers(-9, 9)})),
    "generic": (Box[date], st.builds(Box, st.dates(), st.lists(st.dates()))),
    "union of classes": (
        Node | Box[int] | None,
        st.none() | st.builds(Node, st.text()) | st.builds(Box, st.integers(-9, 9)),
    ),
}
BY_TYPE = pytest.mark.parametrize("name", TYPES)


@BY_TYPE
@given(data=st.data())
def test_a_value_comes_back_from_its_json(name: str, data: st.DataObject) -> None:
    """Dumped, accepted, journaled and loaded it is what it was; what is accepted is accepted again as it is."""
    schema = SCHEMAS[name]
    value = data.draw(TYPES[name][1])

    accepted = schema.accept(schema.dump(value))
    assert value == schema.load(decode(encode(accepted)))
    assert accepted == schema.accept(accepted)


@BY_TYPE
@given(value=JSON_VALUES)
def test_whatever_a_model_sends_is_accepted_whole_or_refused(name: str, value: JSON) -> None:
    """The input is never changed; what is accepted validates, is accepted again unchanged, and can be loaded."""
    schema = SCHEMAS[name]
    before = copy.deepcopy(value)
    try:
        accepted = schema.accept(value)
    except InvalidValue as refused:
        issues = refused.issues
    else:
        issues = ()

    assert repr(before) == repr(value)
    assert len(issues) <= 20
    assert len(str(InvalidValue(issues))) < 20_000
    if issues:
        return
    assert jsonschema_rs.is_valid(dict(schema.document), accepted, validate_formats=False)
    assert repr(accepted) == repr(schema.accept(accepted))
    schema.load(accepted)


SCHEMAS: dict[str, Schema[Any]] = {name: schema_of(declared) for name, (declared, _) in TYPES.items()}


@given(JSON_VALUES)
def test_a_text_stays_where_a_text_is_allowed(value: JSON) -> None:
    """And nothing that is no text becomes one."""
    for schema in (schema_of(str), schema_of(str | None)):
        if isinstance(value, str) or (value is None and schema.document != {"type": "string"}):
            assert value == schema.accept(value)
        else:
            refusal(schema, value)


@pytest.mark.case("out-04")
@pytest.mark.parametrize(
    ("declared", "value", "accepted"),
    [
        (int, "3", 3),
        (int, " -3 ", -3),
        (int, "3.0", 3),
        (int, 1.0, 1),
        (int, "1e2", 100),
        (float, "2.5", 2.5),
        (float, "1e3", 1000.0),
        (float, 3, 3),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], ["1", 2.0, "3"], [1, 2, 3]),
        (list[list[str]], '[["a"]]', [["a"]]),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (int | None, "3", 3),
        (int | None, None, None),
        (int | str, "3", "3"),
        (str | int, "3", "3"),
        (list[int] | int, "7", 7),
        (list[int] | int, '["7"]', [7]),
        (Literal[1, 2], "1", 1),
        (Level, "2", 2),
        (Level, 2.0, 2),
        (list[int | None], [None, "1"], [None, 1]),
        (tuple[int, str], ["1", "1"], [1, "1"]),
        (Box[int], '{"item": "1"}', {"item": 1, "others": []}),
    ],
)
def test_coercion_follows_its_table(declared: object, value: JSON, accepted: JSON) -> None:
    """Each row of the table, alone and inside of others."""
    assert repr(accepted) == repr(schema_of(declared).accept(value))


@pytest.mark.case("out-04")
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, True),
        (int, False),
        (int, "true"),
        (int, ""),
        (int, " "),
        (int, "1.5"),
        (int, 1.5),
        (int, "1_000"),
        (int, "0x10"),
        (int, "\u0661"),
        (int, "NaN"),
        (int, None),
        (int, "1" * 41),
        (int, 1e300),
        (float, True),
        (float, "inf"),
        (float, float("nan")),
        (float, float("inf")),
        (bool, "true"),
        (bool, 1),
        (bool, 0),
        (bool, None),
        (str, 1),
        (str, True),
        (str, None),
        (str, ["a"]),
        (list[int], "1, 2"),
        (list[int], '{"a": 1}'),
        (list[int], "[1"),
        (list[int], "[" * 200),
        (list[str], {"0": "a"}),
        (dict[str, int], "[]"),
        (dict[str, int], '{"a":1,"a":2}'),
        (object, float("nan")),
        (object, {"a": ["\ud800"]}),
        (dict, {"\ud800": 1}),
        (Level, True),
        (Literal[1], True),
        (set[int], [1, 1]),
        (tuple[int, str], [1]),
        (tuple[int, str], [1, "a", 2]),
        (bytes, "a"),
        (UUID, "1"),
        (date, "2025-02-30"),
        (datetime, "2025-01-02T03:04:05"),
        (datetime, "2025-01-02"),
        (datetime, 1735787045),
        (time, "25:00"),
        (timedelta, "P"),
        (timedelta, "PT"),
        (timedelta, "P1Y"),
        (timedelta, "5"),
        (Decimal, "NaN"),
        (Decimal, "1e5"),
        (Decimal, "\u0661"),
        (Decimal, True),
        (Colour, "RED"),
        (Shape, [0, 0]),
        (dict[int, int], {"01": 1}),
        (Query, {"limit": 1}),
        (Place, [1, 2]),
    ],
)
def test_what_the_table_does_not_allow_is_refused(declared: object, value: JSON) -> None:
    """No boolean becomes a number, nothing becomes a text, and no text is read more generously than JSON."""
    refusal(schema_of(declared), value)


def test_what_fits_is_left_alone_beside_what_is_coerced() -> None:
    """A text that an arm of a union allows stays a text, whatever is read from the text next to it."""
    schema = schema_of(
        {"type": "array", "prefixItems": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "integer"}]}
    )

    assert ["3", 3] == schema.accept(["3", "3"])


@pytest.mark.parametrize("name", ["anyOf", "oneOf"])
def test_null_is_dropped_only_where_it_is_not_allowed(name: str) -> None:
    """An optional property that may not be null loses it, at any depth; one that may, also by reference, keeps it."""
    nullable = {name: [{"type": "integer"}, {"type": "null"}]}
    inner = {
        "type": "object",
        "properties": {
            "plain": {"type": "integer"},
            "nullable": nullable,
            "listed": {"type": ["string", "null"]},
            "referred": {"$ref": "#/$defs/N"},
            "items": {"type": "array", "items": nullable},
        },
    }
    schema = schema_of({"type": "object", "properties": {"a": inner}, "$defs": {"N": nullable}})
    nulls: JSON = {"plain": None, "nullable": None, "listed": None, "referred": None, "items": [None, "1"]}

    kept = {"nullable": None, "listed": None, "referred": None, "items": [None, 1]}
    assert {"a": kept} == schema.accept({"a": nulls})


def test_null_is_refused_where_a_value_is_required() -> None:
    """A required property is not dropped."""
    schema = schema_of({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})

    assert "a: expected integer, got null" == refusal(schema, {"a": None})


def test_a_default_takes_the_place_of_a_dropped_null() -> None:
    """What is absent after coercion has its default."""

    def tool(k: int = 3) -> int:
        return k

    assert 3 == called(tool, {"k": None})


def test_defaults_are_filled_at_every_depth_and_not_shared() -> None:
    """Each accepted value has lists of its own."""
    schema = schema_of(list[Box[int]])

    first = schema.accept([{"item": 1}])
    assert [{"item": 1, "others": []}] == first
    first[0]["others"].append(9)  # type: ignore[index, call-overload, union-attr]
    assert [{"item": 1, "others": []}] == schema.accept([{"item": 1}])


def test_the_default_of_a_given_schema_is_a_note() -> None:
    """Whoever owns the schema fills it in: what a remote tool is sent is what the model wrote."""
    schema = schema_of({"type": "object", "properties": {"a": {"type": "integer", "default": 3}}})

    assert {} == schema.accept({})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"n": "three", "when": "noon", "tags": ["red", "green"], "more": 1},
            (
                'n: expected integer, got "three"; when: expected date-time such as 2025-01-02T03:04:05Z, got "noon"; '
                'tags[1]: expected one of "red", "blue", got "green"; more: unknown property'
            ),
        ),
        ({"tags": []}, "n: missing, and it is required; when: missing, and it is required"),
        ([], "expected a JSON object, got []"),
    ],
)
def test_every_wrong_place_is_named_in_words(value: JSON, message: str) -> None:
    """A model can act on each: path, what was expected, what was there."""
    assert sorted(message.split("; ")) == sorted(refusal(schema_of(A), value).split("; "))


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (int | None, "x", 'expected integer or null, got "x"'),
        (Literal["a", "b"] | None, "c", 'expected one of "a", "b" or null, got "c"'),
        (int | list[int], {"a": 1}, "expected integer or array, got an object with a"),
        (list[int] | None, [1, "x"], '[1]: expected integer, got "x"'),
        (Node | Box[int], {"item": "x"}, 'item: expected integer, got "x"'),
        (Query | None, {"text": 1}, "text: expected string, got 1"),
        (dict[str, int], {"two words": "x"}, '["two words"]: expected integer, got "x"'),
        (dict[Colour, int], {"green": 1}, "green: this key is not allowed here"),
        (Annotated[int, SimpleNamespace(ge=1, le=5)], 9, "expected at most 5, got 9"),
        (Annotated[str, SimpleNamespace(pattern="^a+$")], "b", 'expected text that matches ^a+$, got "b"'),
        (Annotated[Decimal, SimpleNamespace(gt=0)], "-5", "expected more than 0, got -5"),
        (list[Annotated[Decimal, SimpleNamespace(multiple_of=2)]], ["4", "5"], "[1]: expected a multiple of 2, got 5"),
        (Annotated[float, SimpleNamespace(gt=0, lt=1)], 0, "expected more than 0, got 0"),
        (Annotated[float, SimpleNamespace(gt=0, lt=1)], 1.5, "expected less than 1, got 1.5"),
        (Annotated[int, SimpleNamespace(multiple_of=Decimal(2))], 3, "expected a multiple of 2, got 3"),
        (Annotated[str, SimpleNamespace(max_length=2)], "abc", 'expected at most 2 characters, got "abc"'),
        (Annotated[list[int], SimpleNamespace(min_length=1)], [], "expected at least 1 items, got []"),
        (Annotated[list[int], SimpleNamespace(max_length=1)], [1, 2], "expected at most 1 items, got an array of 2"),
        (set[int], [1, 1], "expected items that differ from each other"),
        (Node | Box[int], None, "expected a JSON object, got null"),
        (Node | Box[int] | list[int], True, "expected a JSON object or array, got true"),
        (list[Node | Query | int], [2.5], "[0]: expected a JSON object or integer, got 2.5"),
        (
            list[Node | list[int]],
            [[1, "x", "y"]],
            '[0][1]: expected integer, got "x"; [0][2]: expected integer, got "y"',
        ),
        ({"minProperties": 1}, {}, "the value has less than 1 property"),
        ({"type": "string", "format": "email"}, "x", 'expected email such as someone@example.com, got "x"'),
        ({"const": {"a": 1}}, None, "expected an object with a, got null"),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"n": "x"}, "does not fit #"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "fits more than one of the alternatives"),
        ({"not": {"const": 1}}, 1, "does not fit #"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "a", 'expected at least 2 characters, got "a"'),
        ({"properties": {"a": False}}, {"a": 1}, "a: is not allowed here"),
        ({"prefixItems": [{"type": "integer"}], "items": False}, [1, 2], "[1]: is not allowed here"),
        ({"additionalProperties": {"type": "integer"}}, {"a": "x"}, 'a: expected integer, got "x"'),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 2, "expected at least 3, got 2"),
    ],
)
def test_a_refusal_says_what_would_fit(declared: object, value: JSON, message: str) -> None:
    """Unions speak with the voice of the arm that came nearest."""
    assert message == refusal(schema_of(declared), value)


def test_a_refusal_stays_small() -> None:
    """However much is wrong, and however large it is."""
    assert len(refusal(schema_of(list[int]), ["x" * 10_000] * 200)) < 4000
    assert len(refusal(schema_of(dict[str, int]), {f"{n}" * 1000: "x" for n in range(100)})) < 4000
    assert len(refusal(schema_of(A), {f"{n}" * 1000: "x" for n in range(100)})) < 25_000


def test_a_recursive_union_is_judged_in_linear_time() -> None:
    """Each arm leads deeper, the innermost value is wrong, and no arm is tried inside of every arm."""
    arms = [
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/N"}, "op": {"const": op}}, "required": ["op", "x"]}
        for op in ("and", "or", "not")
    ]
    schema = schema_of({"$ref": "#/$defs/N", "$defs": {"N": {"anyOf": [*arms, {"type": "integer"}]}}})
    value: JSON = "wrong"
    for _ in range(60):
        value = {"x": value, "op": "not"}

    began = clock.perf_counter()
    message = refusal(schema, value)

    assert message.endswith(': expected a JSON object or integer, got "wrong"')
    assert clock.perf_counter() - began < 30


def test_no_pattern_holds_the_loop() -> None:
    """A pattern that a backtracking engine would take years for is matched against a million characters."""
    schema = schema_of({"type": "string", "pattern": "^(a|a)*(a+)+$"})

    began = clock.perf_counter()
    refusal(schema, "a" * 1_000_000 + "!")

    assert clock.perf_counter() - began < 30


@pytest.mark.case("sch-05", "sch-08", "sch-01", "sch-17")
@pytest.mark.parametrize(
    "document",
    [
        {"type": "object", "properties": {"plain": {}, "tags": {"anyOf": [{"type": "array"}, {"type": "null"}]}}},
        {
            "type": "object",
            "properties": {"f": {"$ref": "#/$defs/T"}},
            "$defs": {"T": {"enum": ["fit", "raw"]}},
            "additionalProperties": False,
            "required": ["f"],
        },
        {"properties": {"t": {"$ref": "#/$defs/T", "description": "d"}}, "$defs": {"T": {"type": "object"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a/b": {}}, "x-own": [1, {"y": None}]},
    ],
)
def test_a_given_schema_is_kept_verbatim(document: dict[str, object]) -> None:
    """Nothing is added, dropped or changed, in the copy or in the original, however often it is used."""
    before = copy.deepcopy(document)
    schema = schema_of(document)
    again = schema_of(document)
    schema.document["properties"] = {}  # type: ignore[index]

    assert before == document
    assert before == again.document


@pytest.mark.case("sch-05")
def test_references_of_a_given_schema_resolve() -> None:
    """What stands under `$defs` decides."""
    schema = schema_of({"properties": {"f": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"enum": ["fit", "raw"]}}})

    assert {"f": "fit"} == schema.accept({"f": "fit"})
    assert 'f: expected one of "fit", "raw", got "x"' == refusal(schema, {"f": "x"})


@pytest.mark.case("sch-08")
def test_a_reference_and_its_siblings_both_hold() -> None:
    """They are not merged: what contradicts the other is never accepted."""
    target = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["b"]}
    schema = schema_of(
        {"$ref": "#/$defs/T", "properties": {"a": {"type": "string"}}, "required": ["a"], "$defs": {"T": target}}
    )

    assert "b: missing, and it is required" in refusal(schema, {"a": "x"})
    refusal(schema, {"a": 1, "b": 0})


@pytest.mark.case("sch-04")
def test_a_given_schema_may_be_circular() -> None:
    """A refers to B and B to A; the value ends the circle."""
    schema = schema_of(
        {
            "$ref": "#/$defs/A",
            "$defs": {
                "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}, "n": {"type": "integer"}}},
                "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}},
            },
        }
    )

    assert {"b": {"a": {"n": 3}}} == schema.accept({"b": {"a": '{"n": "3"}'}})


@pytest.mark.parametrize(
    ("reference", "target", "read"),
    [
        ("#/$defs/a~1b", {"$defs": {"a/b": {"type": "integer"}}}, True),
        ("#/$defs/a%20b", {"$defs": {"a b": {"type": "integer"}}}, True),
        ("#/$defs/list/anyOf/1", {"$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}, True),
        ("#own", {"$defs": {"T": {"$anchor": "own", "type": "integer"}}}, False),
        (
            "https://example.com/a#/$defs/T",
            {"$id": "https://example.com/a", "$defs": {"T": {"type": "integer"}}},
            False,
        ),
    ],
)
def test_every_way_to_refer_inside_the_document_works(reference: str, target: dict[str, object], *, read: bool) -> None:
    """Escapes, lists, anchors and the document's own name; values are coerced along pointers only."""
    schema = schema_of({"type": "object", "properties": {"a": {"$ref": reference}}, **target})

    assert {"a": 3} == schema.accept({"a": 3})
    assert refusal(schema, {"a": "x"}).startswith("a: ")
    if read:
        assert {"a": 3} == schema.accept({"a": "3"})
    assert reference == schema_of({"$ref": reference, **target}).document["$ref"]


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ({"const": 1}, 1.0),
        ({"enum": ["a", 1]}, 1.0),
        ({"type": ["integer", "null"]}, 1.0),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, 1.0),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, [1.0]),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, 1.0),
        ({"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "integer"}}, {"a": 1.0, "b": 1.0}),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "integer"}}, [1.0, 1.0]),
        (
            {"$ref": "#/$defs/N", "$defs": {"N": {"items": {"$ref": "#/$defs/N"}, "type": ["array", "integer"]}}},
            [[1.0]],
        ),
    ],
)
def test_a_whole_float_becomes_an_integer_wherever_one_is_due(document: dict[str, object], value: JSON) -> None:
    """Through references, unions and at every kind of place; a value of another type passes by."""
    assert "1.0" not in repr(schema_of(document).accept(value))
    assert "1.0" == schema_of({"anyOf": [document, {"type": "string"}], "$defs": document.get("$defs", {})}).accept(
        "1.0"
    )


def test_a_float_stays_where_a_number_will_do() -> None:
    """Only an integer is written as one."""
    assert "[1.0, 'x']" == repr(schema_of({"items": {"type": ["integer", "number", "string"]}}).accept([1.0, "x"]))


def test_an_older_draft_is_honoured() -> None:
    """`$schema` decides what keywords mean."""
    seven = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "integer"}],
        "additionalItems": False,
    }
    four = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}

    assert "[1]: is not allowed here" == refusal(schema_of(seven), [1, 2])
    assert "expected more than 1, got 1" == refusal(schema_of(four), 1).replace("at least", "more than")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"$ref": "https://example.com/s"}, "https://example.com/s"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "never fetched"),
        ({"$ref": "#/$defs/Missing"}, "/$defs/Missing"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"anyOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": {"allOf": [{"$ref": "#"}]}}}, "leads back to itself"),
        ({"type": "text"}, "/type"),
        ({"properties": {"a": {"minimum": "3"}}}, "/properties/a/minimum"),
        ({"$schema": "https://example.com/own"}, "https://example.com/own"),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "/properties/a/pattern"),
        ({"pattern": "(a)\\1"}, "pattern"),
        ({"pattern": "("}, "pattern"),
        ({"enum": [object()]}, "enum[0]"),
    ],
)
def test_an_unusable_schema_is_refused_at_once(document: dict[str, object], message: str) -> None:
    """When it is defined and not when a model calls, with the place or the name."""
    with pytest.raises(DefinitionError) as error:
        schema_of(document)

    assert message in str(error.value)


@pytest.mark.parametrize(
    "declared",
    [
        complex,
        Callable[[], int],
        type,
        dict[float, int],
        dict[tuple[int, int], int],
        Literal[b"x"],
        list[complex],
        Annotated[str, SimpleNamespace(ge=1)],
        Annotated[date, SimpleNamespace(ge=date(2020, 1, 1))],
        Annotated[int, SimpleNamespace(min_length=1)],
        Annotated[str, SimpleNamespace(pattern="(?=a)b")],
        list["Unknown"],  # type: ignore[name-defined]  # noqa: F821
        Context,
        3,
    ],
)
def test_a_type_without_a_json_form_is_refused(declared: object) -> None:
    """Also a limit that could not be kept: it would be believed."""
    with pytest.raises(DefinitionError):
        schema_of(declared)


def test_the_place_of_an_unusable_type_is_named() -> None:
    """By parameter and by field."""

    @attrs.define
    class Inner:
        z: complex

    def tool(a: int, inner: Inner | None = None) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"parameter 'inner' of .*tool: field 'z' of Inner: complex has no JSON form"
    ):
        parameters_of(tool)


@pytest.mark.case("sch-19")
def test_a_tool_gets_what_its_annotations_say() -> None:
    """Classes, dates, Enums, Annotated descriptions, defaults and Literals reach the tool as what they are."""

    def tool(
        a: A, k: Annotated[int, SimpleNamespace(description="the k")] = 3, lit: Literal["x", 2] = "x"
    ) -> tuple[object, ...]:
        return a, k, lit

    got = called(tool, {"a": {"n": 1, "when": "2025-01-02T03:04:05Z", "tags": ["red"]}, "lit": 2})
    properties = parameters_of(tool).schema.document["properties"]
    order = parameters_of(tool).schema.document["$defs"]["A"]  # type: ignore[index, call-overload]

    assert (A(1, datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), [Colour.RED]), 3, 2) == got
    assert {
        "a": {"$ref": "#/$defs/A"},
        "k": {"type": "integer", "description": "the k", "default": 3},
        "lit": {"enum": ["x", 2], "default": "x"},
    } == properties
    assert {
        "type": "object",
        "description": "An order.",
        "properties": {
            "n": {"type": "integer", "description": "how many"},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
            "hidden": {"type": "integer", "default": 0},
            "notes": {"type": "array", "items": {"type": "string"}, "description": "free text", "default": []},
            "made": {"type": "string"},
        },
        "required": ["n", "when", "tags"],
        "additionalProperties": False,
    } == order
    assert 'a.n: expected integer, got "x"' in refusal(parameters_of(tool).schema, {"a": {"n": "x"}})


@pytest.mark.case("arg-01")
@pytest.mark.parametrize("arguments", [[], "value", 123, None, True])
def test_arguments_are_an_object(arguments: JSON) -> None:
    """Whatever else they are is said in words."""

    def echo(value: str) -> str:
        return value

    assert refusal(parameters_of(echo).schema, arguments).startswith("expected a JSON object, got ")


@pytest.mark.case("arg-03")
def test_arguments_written_as_json_in_a_text_are_read() -> None:
    """Where an array or object is due; a text parameter keeps its text."""

    def tool(tags: list[str], opt: dict[str, int] | None, note: str) -> tuple[object, ...]:
        return tags, opt, note

    assert (["a", "b"], {"k": 1}, "[1,2]") == called(tool, {"tags": '["a","b"]', "opt": '{"k":1}', "note": "[1,2]"})
    assert 'tags: expected array, got "a, b"' == refusal(
        parameters_of(tool).schema, {"tags": "a, b", "opt": None, "note": ""}
    )


@pytest.mark.case("arg-04")
def test_a_text_that_looks_like_something_else_stays_a_text() -> None:
    """A text parameter gets what was written."""

    def tool(a: str, b: int, c: str | None) -> tuple[object, ...]:
        return a, b, c

    assert ("123", 123, "null") == called(tool, {"a": "123", "b": 123, "c": "null"})


@pytest.mark.case("arg-15")
def test_what_is_false_or_empty_is_delivered() -> None:
    """0, false and "" are given, not absent."""

    def tool(n: int = 1, b: bool = True, s: str = "x") -> tuple[object, ...]:
        return n, b, s

    assert (0, False, "") == called(tool, {"n": 0, "b": False, "s": ""})


@pytest.mark.case("sch-02")
def test_a_required_parameter_may_be_null() -> None:
    """It is required and nullable, and null arrives as None."""

    def task(d: str, p: Priority | None) -> object:
        return p

    document = parameters_of(task).schema.document
    assert ["d", "p"] == document["required"]
    assert {"anyOf": [{"type": "string", "enum": ["high", "low"]}, {"type": "null"}]} == document["properties"]["p"]  # type: ignore[index, call-overload]
    assert called(task, {"d": "x", "p": None}) is None
    assert called(task, {"d": "x", "p": "high"}) is Priority.HIGH
    assert "p: missing, and it is required" == refusal(parameters_of(task).schema, {"d": "x"})


@pytest.mark.case("sch-03")
def test_an_optional_literal_of_mixed_types_is_described() -> None:
    """It has no single type and is not lost."""

    def tool(c: Choice) -> Choice:
        return c

    mode = parameters_of(tool).schema.document["$defs"]["Choice"]["properties"]["mode"]  # type: ignore[index, call-overload]
    assert {"anyOf": [{"enum": [1, "a"]}, {"type": "null"}], "default": None} == mode
    assert Choice(1) == called(tool, {"c": {"mode": 1}})


@pytest.mark.case("sch-04")
def test_a_recursive_class_is_described_once() -> None:
    """Its reference resolves from the root, and three levels are built."""

    def tool(root: Node) -> Node:
        return root

    document = parameters_of(tool).schema.document
    tree: JSON = {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]}

    assert {"$ref": "#/$defs/Node"} == document["properties"]["root"]  # type: ignore[index, call-overload]
    assert {"$ref": "#/$defs/Node"} == document["$defs"]["Node"]["properties"]["children"]["items"]  # type: ignore[index, call-overload]
    assert Node("a", [Node("b", [Node("c")])]) == called(tool, {"root": tree})


def test_the_root_of_a_class_is_an_object() -> None:
    """Providers want no reference there; a definition is there only if something refers to it."""
    assert "object" == schema_of(Node).document["type"]
    assert ["Node"] == list(schema_of(Node).document["$defs"])  # type: ignore[arg-type]
    assert "$defs" not in schema_of(A).document


@pytest.mark.case("sch-07")
def test_an_object_with_free_keys_stays_open() -> None:
    """Its keys are the model's to choose."""

    def tool(m: dict[str, int], free: dict) -> tuple[object, ...]:  # type: ignore[type-arg]
        return m, free

    properties = parameters_of(tool).schema.document["properties"]
    assert {
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object"},
    } == properties
    assert ({"a": 1}, {"b": [2]}) == called(tool, {"m": {"a": 1}, "free": {"b": [2]}})


@pytest.mark.case("sch-11")
def test_names_in_annotations_are_found_around_the_function() -> None:
    """This module's annotations are texts; a local class, also one named only in them, and the context are found."""

    @dataclass
    class Point:
        x: int
        next: Point | None = None

    def tool(x: int, ctx: Context, y: list[Point] | None = None) -> tuple[object, ...]:
        return x, ctx, y

    parameters = parameters_of(tool, context=Context)
    context = Context()

    assert "ctx" == parameters.context
    assert ["x", "y"] == list(parameters.schema.document["properties"])  # type: ignore[arg-type]
    assert (1, context, [Point(2, Point(3))]) == called(tool, {"x": 1, "y": [{"x": 2, "next": {"x": 3}}]}, context)
    assert (1, context, None) == called(tool, {"x": 1}, context)


@pytest.mark.case("sch-11")
def test_a_name_that_cannot_be_resolved_names_its_parameter() -> None:
    """With the name, so that the author knows what to import."""

    def tool(x: int, y: Nothing) -> None: ...

    with pytest.raises(DefinitionError, match=r"parameter 'y' of .*tool: the name 'Nothing'"):
        parameters_of(tool)


@pytest.mark.case("sch-11")
@pytest.mark.parametrize("form", ["plain", "optional", "annotated", "subclass", "hidden"])
def test_a_context_is_known_in_every_form(form: str) -> None:
    """Optional, annotated, of a subclass, or imported for type checkers alone."""

    class Own(Context): ...

    def plain(c: Context) -> None: ...
    def optional(c: Context | None = None) -> None: ...
    def annotated(c: Annotated[Context, "where we are"] | None = None) -> None: ...
    def subclass(c: Own) -> None: ...
    def hidden(c: HiddenContext) -> None: ...

    hidden.__annotations__["c"] = "missing.Context"
    tool = {"plain": plain, "optional": optional, "annotated": annotated, "subclass": subclass, "hidden": hidden}[form]

    parameters = parameters_of(tool, context=Context)
    assert "c" == parameters.context
    assert ([7], {}) == parameters.bind(parameters.schema.accept({}), 7)


def test_a_second_context_is_refused() -> None:
    """One is enough, and two are a mistake."""

    def tool(a: Context, b: Context) -> None: ...

    with pytest.raises(DefinitionError, match="parameter 'b'"):
        parameters_of(tool, context=Context)


@pytest.mark.case("sch-12")
def test_rest_and_options_are_described_and_reachable() -> None:
    """`*rest` is an array and `**opts` an object of that name, each with its type and description."""

    def tool(a: int, *rest: int, flag: bool = False, **opts: str) -> tuple[object, ...]:
        """Do.

        Args:
            a: A.
            *rest: R.
            **opts: O.
        """
        return a, rest, flag, opts

    document = parameters_of(tool).schema.document
    properties: Any = document["properties"]
    assert {"type": "array", "items": {"type": "integer"}, "description": "R.", "default": []} == properties["rest"]
    assert "O." == properties["opts"]["description"]
    assert {"type": "string"} == properties["opts"]["additionalProperties"]
    assert ["a"] == document["required"]
    assert (1, (2, 3), True, {"k": "v"}) == called(tool, {"a": 1, "rest": [2, 3], "flag": True, "opts": {"k": "v"}})
    assert (1, (), False, {}) == called(tool, {"a": 1})


def test_what_a_docstring_says_of_results_is_not_said_of_parameters() -> None:
    """A result may have the name of a parameter."""

    def tool(a: int) -> dict[str, int]:
        """Do.

        Returns:
            a: what was done
        """
        return {"a": a}

    assert {"a": {"type": "integer"}} == parameters_of(tool).schema.document["properties"]


def test_a_local_class_may_name_another_that_only_its_user_can_see() -> None:
    """The function around them has returned; the closure of the tool still holds both."""

    def make() -> Callable[..., object]:
        @dataclass
        class Inner:
            n: int

        @dataclass
        class Outer:
            inner: Inner

        def tool(outer: Outer) -> object:
            return Outer, Inner, outer.inner.n

        return tool

    tool = make()

    assert 3 == called(tool, {"outer": {"inner": {"n": "3"}}})[2]


@pytest.mark.parametrize("name", ["a", "flag", "opts"])
def test_options_cannot_name_another_parameter(name: str) -> None:
    """They would clash with it in the call; a parameter that is given by position only has a name of its own."""

    def tool(a: int, /, b: int = 0, *, flag: bool = False, **opts: int) -> tuple[object, ...]:
        return a, b, flag, opts

    if name == "flag":
        assert "opts.flag: this key is not allowed here" == refusal(
            parameters_of(tool).schema, {"a": 1, "opts": {"flag": 2}}
        )
    else:
        assert (1, 0, False, {name: 2}) == called(tool, {"a": 1, "opts": {name: 2}})


def test_options_may_be_a_typed_dict() -> None:
    """Each key has its own type."""

    def tool(**options: Unpack[Query]) -> object:
        return options

    assert {"text": "x", "limit": 2} == called(tool, {"options": {"text": "x", "limit": "2"}})
    assert "options: missing, and it is required" == refusal(parameters_of(tool).schema, {})


def test_arguments_by_position_come_in_order() -> None:
    """Also when one in the middle has a default that JSON cannot say."""
    marker = object()

    def tool(a: int, b: object = marker, /, c: int = 3, *rest: int) -> tuple[object, ...]:
        return a, b, c, rest

    assert (1, marker, 3, (9,)) == called(tool, {"a": 1, "rest": [9]})


@pytest.mark.case("sch-13")
def test_a_docstring_is_parted_into_description_and_parameters() -> None:
    """The sections on parameters and results are not repeated in the description."""

    def tool(p: str, q=None) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """Main.

        More.

        Args:
          p: First: with colon
          q: Second

        Returns:
          x
        """

    parameters = parameters_of(tool)
    properties = parameters.schema.document["properties"]

    assert "Main.\n\nMore." == parameters.description
    assert {
        "p": {"type": "string", "description": "First: with colon"},
        "q": {"description": "Second", "default": None},
    } == properties


def google(a: int, b: int, c: int) -> None:
    """Do.

    Note:
        Mind the gap.

    Args:
        a (int): The a
            goes on.
        b (dict[str, int], optional): The b: or not.

        c: The c.

    Raises:
        ValueError: never
    """


def numpy(a: int, b: int, c: int) -> None:
    """Do.

    Note:
        Mind the gap.

    Parameters
    ----------
    a : int
        The a
        goes on.
    b, c : dict, optional
        Both.

    Returns
    -------
    int
        x
    """


def sphinx(a: int, b: int, c: int) -> None:
    """Do.

    Note:
        Mind the gap.

    :param int a: The a
        goes on.
    :param b: The b: or not.
    :type b: int
    :returns: x
    """


@pytest.mark.parametrize(
    ("tool", "texts"),
    [
        (google, ["The a\ngoes on.", "The b: or not.", "The c."]),
        (numpy, ["The a\ngoes on.", "Both.", "Both."]),
        (sphinx, ["The a\ngoes on.", "The b: or not.", None]),
    ],
)
def test_docstrings_of_three_styles_are_read(tool: Callable[..., None], texts: list[str | None]) -> None:
    """Types, continuation lines and blank lines included; other sections stay in the description."""
    parameters = parameters_of(tool)
    properties: Any = parameters.schema.document["properties"]

    assert texts == [properties[name].get("description") for name in "abc"]
    assert "Do.\n\nNote:\n    Mind the gap." == parameters.description


class Doubler:
    """Doubles."""

    async def __call__(self, x: int) -> int:
        return 2 * x

    def method(self, x: int) -> int:
        """Add one."""
        return x + 1

    @classmethod
    def of(cls, x: int) -> int:
        return x

    @staticmethod
    def static(x: int) -> int:
        return x


def logged(function: Callable[..., int]) -> Callable[..., int]:
    """Wrap, as decorators do."""

    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> int:
        return function(*args, **kwargs)

    return wrapper


@logged
def wrapped(x: int) -> int:
    """Wrapped."""
    return x


@pytest.mark.case("sch-15")
@pytest.mark.parametrize(
    ("tool", "description"),
    [
        (Doubler(), "Doubles."),
        (Doubler().method, "Add one."),
        (Doubler.of, ""),
        (Doubler.static, ""),
        (wrapped, "Wrapped."),
        (functools.partial(wrapped), "Wrapped."),
        (functools.partial(Doubler().method), "Add one."),
        (lambda x: x, ""),
    ],
)
def test_anything_callable_has_parameters(tool: Callable[..., object], description: str) -> None:
    """No `self`, no `cls`, no wrapper's `*args`."""
    parameters = parameters_of(tool)

    assert ["x"] == list(parameters.schema.document["properties"])  # type: ignore[arg-type]
    assert ([1], {}) == parameters.bind(parameters.schema.accept({"x": 1}), None)
    assert description == parameters.description


@pytest.mark.case("sch-15")
async def test_an_object_with_an_asynchronous_call_is_called() -> None:
    """What is bound can be awaited."""
    assert 4 == await called(Doubler(), {"x": 2})


@pytest.mark.case("sch-15", "arg-13")
def test_what_a_partial_has_fixed_is_out_of_reach() -> None:
    """Neither by its name nor through `**kwargs` can a model override it."""

    def call(tool_name: str, x: int = 0, **arguments: str) -> tuple[object, ...]:
        return tool_name, x, arguments

    fixed = functools.partial(functools.partial(call, x=1), tool_name="list_issues")
    schema = parameters_of(fixed).schema

    assert ["arguments"] == list(schema.document["properties"])  # type: ignore[arg-type]
    assert "tool_name: unknown property" == refusal(schema, {"tool_name": "delete_repo"})
    assert "arguments.tool_name: this key is not allowed here" == refusal(
        schema, {"arguments": {"tool_name": "delete_repo"}}
    )
    assert ("list_issues", 1, {"repo": "r"}) == called(fixed, {"arguments": {"repo": "r"}})


GIVEN = {
    "type": "object",
    "properties": {"when": {"type": "string"}, "repo": {"type": "string", "maxLength": 5}},
    "required": ["when"],
}


def test_a_given_schema_may_describe_a_function() -> None:
    """The model sees it word for word; annotations say what arrives, and `**kwargs` takes the rest by name."""

    def tool(when: date, ctx: Context, *, limit: int = 3, **more: object) -> tuple[object, ...]:
        return when, ctx, limit, more

    parameters = parameters_of(tool, context=Context).described_by(schema_of(GIVEN))
    args, kwargs = parameters.bind(parameters.schema.accept({"when": "2025-01-02", "repo": "r", "z": [1]}), 7)

    assert GIVEN == parameters.schema.document
    assert (date(2025, 1, 2), 7, 3, {"repo": "r", "z": [1]}) == tool(*args, **kwargs)  # type: ignore[arg-type]
    assert "repo: expected at most 5 characters" in refusal(parameters.schema, {"when": "", "repo": "too long"})


def test_a_given_schema_may_let_pass_what_an_annotation_does_not() -> None:
    """Then the argument is named when it is loaded."""

    def tool(when: date, **more: int) -> None: ...

    parameters = parameters_of(tool).described_by(schema_of(GIVEN))

    with pytest.raises(InvalidValue, match="when: ValueError"):
        parameters.bind(parameters.schema.accept({"when": "noon"}), None)


@pytest.mark.case("arg-13")
def test_a_given_schema_reaches_nothing_that_is_fixed() -> None:
    """An open schema lets any name pass, but not into the call."""

    def call(tool_name: str, **arguments: object) -> tuple[object, ...]:
        return tool_name, arguments

    fixed = parameters_of(functools.partial(call, tool_name="list_issues"))
    parameters = fixed.described_by(schema_of({"type": "object"}))
    args, kwargs = parameters.bind(parameters.schema.accept({"repo": "r"}), None)

    assert ("list_issues", {"repo": "r"}) == functools.partial(call, tool_name="list_issues")(*args, **kwargs)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="tool_name: unknown property"):
        parameters.bind({"tool_name": "delete_repo", "repo": "r"}, None)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"type": "string"}, '"type": "object"'),
        ({}, '"type": "object"'),
        ({"type": "object", "properties": {"a": {}, "ctx": {}}}, "'ctx', which is not the model's"),
        ({"type": "object", "properties": {"a": {}, "fixed": {}}}, "'fixed', which is not the model's"),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, "'b', which is no parameter"),
        ({"type": "object"}, "lacks the required parameter 'a'"),
    ],
)
def test_a_given_schema_that_does_not_fit_the_function_is_refused(document: dict[str, object], message: str) -> None:
    """At once, by the name of the parameter."""

    def tool(a: int, ctx: Context, *, fixed: int) -> None: ...

    parameters = parameters_of(functools.partial(tool, fixed=1), context=Context)

    with pytest.raises(DefinitionError) as error:
        parameters.described_by(schema_of(document))
    assert message in str(error.value)


def test_a_default_that_does_not_fit_is_left_to_the_call() -> None:
    """It is not shown, not filled in, and used."""
    naive = datetime(2020, 1, 1)  # noqa: DTZ001

    def tool(a: int = None, b: datetime = naive, c: object = Context) -> tuple[object, ...]:  # type: ignore[assignment]  # noqa: RUF013
        return a, b, c

    assert {} == parameters_of(tool).schema.accept({"a": None})
    assert (None, naive, Context) == called(tool, {})


def test_a_call_shares_nothing_with_its_arguments() -> None:
    """What a tool does to its lists does not reach the journal."""

    def tool(a: list[int], b: dict[str, list[int]], *rest: list[int]) -> None:
        a.append(9)
        b["x"].append(9)
        rest[0].append(9)

    arguments: JSON = {"a": [1], "b": {"x": [1]}, "rest": [[1]]}
    before = copy.deepcopy(arguments)
    args, kwargs = parameters_of(tool).bind(arguments, None)
    tool(*args, **kwargs)  # type: ignore[arg-type]

    assert before == arguments


def test_what_a_class_refuses_is_named_by_path() -> None:
    """A validator of the user's class speaks when the value is loaded."""
    schema = schema_of(dict[str, list[Positive]])

    with pytest.raises(InvalidValue, match=r"a\[1\]: Positive: 'n' must be > 0"):
        schema.load(schema.accept({"a": [{"n": 1}, {"n": 0}]}))


def test_a_loaded_value_shares_nothing_with_the_json() -> None:
    """Nor does the next one that is loaded from it."""
    accepted: JSON = {"item": [1], "others": []}
    schema = schema_of(Box[list[int]])
    schema.load(accepted).item.append(2)

    assert {"item": [1], "others": []} == accepted


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, "3"),
        (int, True),
        (float, float("nan")),
        (str, "\ud800"),
        (datetime, datetime(2020, 1, 1)),  # noqa: DTZ001
        (date, datetime(2020, 1, 1, tzinfo=UTC)),
        (UUID, "00000000-0000-0000-0000-000000000001"),
        (Decimal, Decimal("NaN")),
        (bytes, "aGk="),
        (timedelta, 5),
        (Path, "/a"),
        (Colour, "red"),
        (A, {"n": 1}),
        (list[int], "12"),
        (list[int], {1: 2}),
        (list[A], [3]),
        (tuple[int, int], (1,)),
        (dict[str, int], [("a", 1)]),
        (Query, {"text": "x", "more": 1}),
        (Query, 3),
        (Positive | None, 3),
        (date | int, "x"),
        ({"type": "integer"}, "3"),
        (object, object()),
    ],
)
def test_only_a_value_of_the_type_is_dumped(declared: object, value: object) -> None:
    """Input given as Python objects is checked as strictly as a model's."""
    with pytest.raises(InvalidValue):
        schema_of(declared).dump(value)


@pytest.mark.parametrize("value", [datetime(2020, 1, 1, tzinfo=UTC), "x", None])
def test_a_union_dumps_by_the_arm_that_fits(value: object) -> None:
    """An arm that takes any value as it is does not swallow what is no JSON."""
    schema = schema_of(str | datetime | None)

    assert isinstance(schema.dump(value), str | None)


def test_a_set_is_dumped_in_one_order() -> None:
    """Whatever order Python has for it: the same input has the same digest."""
    letters = {chr(code) for code in range(ord("a"), ord("z") + 1)}

    assert sorted(letters) == schema_of(set[str]).dump(letters)


def test_a_class_name_may_be_in_any_script() -> None:
    """Its reference resolves."""
    cls = attrs.make_class("Größe", {"n": attrs.field(type=int)})

    assert [cls(1)] == schema_of(list[cls]).load(schema_of(list[cls]).accept([{"n": "1"}]))  # type: ignore[valid-type]


def test_a_given_schema_takes_plain_values() -> None:
    """Input for it may hold what has a plain form."""
    schema = schema_of({"type": "object", "properties": {"when": {"type": "string"}}})

    assert {"when": "2025-01-02"} == schema.dump({"when": date(2025, 1, 2)})


def test_limits_and_descriptions_come_from_annotated() -> None:
    """Whatever library they are from, and whether they stand on a type, in a union or behind an alias."""
    tagged = Annotated[list[str], SimpleNamespace(min_length=1, max_length=2), "some tags"]
    price = Annotated[Decimal | None, SimpleNamespace(metadata=[SimpleNamespace(ge=0)], description="in euro")]
    name = Annotated[str, SimpleNamespace(min_length=1, pattern="^[a-z]+$")]

    def tool(tags: tagged, price: price = None, names: dict[str, name] | None = None) -> None:  # type: ignore[valid-type]
        """Do.

        Args:
            tags: overruled
            names: by key
        """

    assert {
        "tags": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": 2,
            "description": "some tags",
        },
        "price": {
            "anyOf": [{"type": ["string", "number"], "format": "decimal", "minimum": 0}, {"type": "null"}],
            "description": "in euro",
            "default": None,
        },
        "names": {
            "anyOf": [
                {
                    "type": "object",
                    "additionalProperties": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
                },
                {"type": "null"},
            ],
            "description": "by key",
            "default": None,
        },
    } == parameters_of(tool).schema.document["properties"]


def test_a_typed_dict_knows_what_may_be_absent() -> None:
    """Also where its annotations are texts."""
    assert ["text"] == schema_of(Query).document["required"]
    assert ["text"] == schema_of(Loose).document["required"]
    assert {"text": "x"} == schema_of(Query).load(schema_of(Query).accept({"text": "x"}))


def test_a_generic_class_is_described_for_its_argument() -> None:
    """Each argument has its own description, and a subclass fixes it."""

    def tool(a: Box[int], b: Box[date], c: NamedBox) -> tuple[object, ...]:
        return a, b, c

    assert ["Box_int", "Box_date", "NamedBox"] == list(parameters_of(tool).schema.document["$defs"])  # type: ignore[arg-type]
    assert (Box(1), Box(date(2025, 1, 2)), NamedBox("x")) == called(
        tool, {"a": {"item": "1"}, "b": {"item": "2025-01-02"}, "c": {"item": "x"}}
    )


def test_classes_of_one_name_are_told_apart() -> None:
    """Two modules may both have a Point."""

    def point(kind: type) -> type:
        return attrs.make_class("Point", {"x": attrs.field(type=kind)})

    numbers, texts = point(int), point(str)
    document = schema_of(numbers | texts).document

    assert 2 == len(document["$defs"])  # type: ignore[arg-type]


def test_an_alias_that_names_itself_is_recursive() -> None:
    """As the type statement of newer Pythons makes it."""
    extensions = pytest.importorskip("typing_extensions")
    tree = extensions.TypeAliasType("tree", list["tree"] | int)  # type: ignore[name-defined]

    assert [[1], [[2]]] == schema_of(tree).accept([["1"], [["2"]]])


def test_a_pydantic_model_is_described_by_itself() -> None:
    """It is closed, recursive if it likes, refuses in its own words, and comes back as itself."""
    pydantic = pytest.importorskip("pydantic")

    class Tag(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        name: str

    class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        n: int = pydantic.Field(alias="count", description="how many")
        price: Decimal = Decimal(1)
        when: datetime
        parts: list[Item] = []  # noqa: RUF012
        tag: Tag | None = None

        @pydantic.field_validator("n")
        @classmethod
        def odd(cls, n: int) -> int:
            if n % 2 == 0:
                raise ValueError("must be odd")
            return n

    Item.model_rebuild(_types_namespace={"Item": Item, "Tag": Tag})

    def tool(item: Item, other: Item | None = None) -> Item:
        return item

    schema = parameters_of(tool).schema
    sent: JSON = {"count": "3", "when": "2025-01-02T03:04:05Z", "parts": [], "tag": {"name": "x"}}
    item = called(tool, {"item": sent})

    assert ["Item", "Tag"] == sorted(schema.document["$defs"])  # type: ignore[arg-type]
    assert Item(count=3, when=datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), tag=Tag(name="x")) == item
    assert "item.more: unknown property" in refusal(schema, {"item": {**sent, "more": 1}})  # type: ignore[dict-item]
    assert item == schema_of(Item).load(schema_of(Item).dump(item))
    with pytest.raises(InvalidValue, match=r"item\.count: Value error, must be odd"):
        called(tool, {"item": {**sent, "count": 2}})  # type: ignore[dict-item]


def test_a_class_is_a_tool_as_well() -> None:
    """Its parameters are those of its constructor."""
    assert Node("a", [Node("b")]) == called(Node, {"name": "a", "children": [{"name": "b"}]})


@pytest.mark.parametrize("tool", [3, dict.get.__get__({}).__self__])
def test_what_cannot_be_called_is_refused(tool: Any) -> None:  # noqa: ANN401
    """With what it is."""
    with pytest.raises(DefinitionError):
        parameters_of(tool)


def test_a_missing_required_argument_is_refused_when_bound() -> None:
    """Arguments that were never accepted do not reach the call."""

    def tool(a: int) -> int:
        return a

    with pytest.raises(InvalidValue, match="a: missing"):
        parameters_of(tool).bind({}, None)
    with pytest.raises(InvalidValue, match="a JSON object"):
        parameters_of(tool).bind([], None)


def test_importing_loads_no_validator() -> None:
    """Compiling costs when it is needed; cattrs, pydantic and jsonschema-rs are not touched by the import."""
    script = (
        "import sys, turnwright.schema as s\n"
        "def f(a: int, b: str = 'x', c: list[str] | None = None): ...\n"
        "s.parameters_of(f)\n"
        "print([name for name in ('jsonschema_rs', 'cattrs', 'pydantic') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "[]" == done.stdout.strip()


def test_schemas_can_be_shown_to_a_model() -> None:
    """Every document is JSON."""
    for schema in SCHEMAS.values():
        assert schema.document == json.loads(encode(dict(schema.document)))


def test_parameters_say_what_they_are() -> None:
    """The types of the face are what its users import."""
    assert isinstance(parameters_of(google), Parameters)
    assert isinstance(parameters_of(google).schema, Schema)


def test_a_class_that_is_text_stands_for_its_text() -> None:
    """What a caller's own subclass of str means is plain."""

    class Name(str):
        """A name."""

        __slots__ = ()

    dumped = schema_of(str).dump(Name("ada"))

    assert ("ada", str) == (dumped, type(dumped))
