"""JSON passes the borders strictly, is written in one way, and nothing half-formed passes in either direction."""

from __future__ import annotations

import dataclasses
import json
import random
import time as clock
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from uuid import UUID

import attrs
import pytest
from hypothesis import example, given, strategies as st

from turnwright.canonical import JSON, decode, digest, encode, find_json, plain, well_formed
from turnwright.errors import InvalidValue

TEXT = st.text()
NUMBERS = st.integers(-(10**39) + 1, 10**40 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)


def same(one: object, other: object) -> bool:
    """Tell whether two JSON values are equal and of equal types, so that 1, 1.0 and True are three things."""
    return repr(one) == repr(other) or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(VALUES)
def test_what_is_encoded_decodes_to_the_same(value: JSON) -> None:
    """No value is changed by a way through its encoding, down to the difference of 1 and 1.0."""
    assert same(value, decode(encode(value)))


@given(st.dictionaries(TEXT, VALUES, min_size=2, max_size=6), st.randoms())
def test_the_order_of_keys_leaves_no_trace(value: dict[str, JSON], chance: random.Random) -> None:
    """Two objects with the same members have one encoding and one digest."""
    shuffled = list(value.items())
    chance.shuffle(shuffled)

    assert encode(value) == encode(dict(shuffled))
    assert digest(value) == digest(dict(shuffled))


@given(VALUES, st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :"), ("\n,\t", "\r\n:")]), st.booleans())
def test_any_way_to_write_json_is_read(value: JSON, separators: tuple[str, str], ascii_only: bool) -> None:
    """Spaces, escapes and the kind of input make no difference to the value."""
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)

    assert same(value, decode(text))
    assert same(value, decode(text.encode()))


@given(
    st.dictionaries(TEXT, VALUES, min_size=1, max_size=4),
    st.sampled_from([":", " :", ": ", '\t:"'[:2]]),
    st.lists(st.sampled_from(["", ":", '":', ' ":', "https://a.b:1/c"]), max_size=3),
)
def test_a_repeated_key_is_never_read(members: dict[str, JSON], colon: str, decoys: list[str]) -> None:
    """Wherever the second one stands, however its colon is spaced and whatever colons are in strings."""
    first = next(iter(members))
    pairs = [*members.items(), ("decoys " + first, [*decoys]), (first, 0)]
    text = "{" + ",".join(json.dumps(key) + colon + json.dumps(value) for key, value in pairs) + "}"

    with pytest.raises(InvalidValue, match="duplicate key"):
        decode(text)
    with pytest.raises(InvalidValue, match="duplicate key"):
        decode(f"[{text}]")


@given(st.text(st.characters()) | st.binary())
@example("\ud800")
@example('"\\ud800"')
@example(b"\xff")
def test_whatever_comes_in_is_read_or_refused(text: str | bytes) -> None:
    """No input raises anything but the refusal, and what is read can be written again."""
    try:
        value = decode(text)
    except InvalidValue:
        return

    assert same(value, decode(encode(value)))


HOSTILE = {
    "empty": "",
    "blank": "  \n",
    "two values": "1 2",
    "trailing text": '{"a":1} x',
    "trailing comma": "[1,]",
    "leading comma": "[,1]",
    "missing comma": "[1 2]",
    "missing value": '{"a":}',
    "missing colon": '{"a" 1}',
    "bare key": "{a:1}",
    "single quotes": "{'a':1}",
    "comment": "[1 /* one */]",
    "line comment": "[1] // one",
    "byte order mark": "\ufeff1",
    "open array": "[1",
    "open object": '{"a":1',
    "open string": '"a',
    "closed twice": "[1]]",
    "wrong bracket": "[1}",
    "NaN": "NaN",
    "Infinity": "[Infinity]",
    "-Infinity": '{"a":-Infinity}',
    "nan": "nan",
    "overflow": "1e400",
    "negative overflow": "[-1e400]",
    "plus": "+1",
    "leading zero": "01",
    "bare point": ".5",
    "point without digits": "1.",
    "hexadecimal": "0x10",
    "bare minus": "-",
    "bare exponent": "1e",
    "underscore": "1_000",
    "5,000 digits": "9" * 5000,
    "41 digits": "1" * 41,
    "41 characters with sign": "-" + "1" * 40,
    "long fraction": "0." + "1" * 39,
    "long exponent": "1e" + "0" * 39,
    "long number deep inside": '{"a":[0,{"b":' + "7" * 60 + "}]}",
    "high surrogate": '"\\ud83d"',
    "low surrogate": '"\\udc00"',
    "swapped surrogates": '"\\udc00\\ud83d"',
    "two high surrogates": '"\\ud83d\\ud83d"',
    "surrogate in a key": '{"\\uD800":1}',
    "raw surrogate": '"\ud83d"',
    "cut escape": '"\\u12"',
    "unknown escape": '"\\x41"',
    "raw newline": '"a\nb"',
    "raw nul": '"\x00"',
    "duplicate": '{"a":1,"a":1}',
    "duplicate by escape": '{"a":1,"\\u0061":2}',
    "duplicate after a colon in a string": '{"a":":","a":2}',
    "duplicate with a spaced colon": '{"a" :1,"a":2}',
    "duplicate with a quote and colon in a string": '{"a":"\\":","a" :2}',
    "duplicate deep inside": '[[{"x":{"b":1,"b":2}}]]',
    "65 levels": "[" * 65 + "]" * 65,
    "65 levels of objects": '{"a":' * 64 + "[1]" + "}" * 64,
    "100,000 levels": "[" * 100_000,
    "100,000 levels of objects": '{"a":' * 100_000,
    "100,000 closed levels": "[" * 100_000 + "]" * 100_000,
    "True": "True",
    "None": "None",
    "undefined": "undefined",
    "invalid UTF-8": b'"\xff"',
    "overlong UTF-8": b'"\xc0\x80"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "UTF-16": '"a"'.encode("utf-16"),
}


@pytest.mark.case("arg-10")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_json_is_refused(text: str | bytes) -> None:
    """Each is an InvalidValue whose message is short, and never a RecursionError or a bare ValueError."""
    with pytest.raises(InvalidValue) as refusal:
        decode(text)

    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[" * 64 + "]" * 64, None),
        ("9" * 40, int("9" * 40)),
        ("-" + "9" * 39, -int("9" * 39)),
        ('"' + "1" * 100 + '"', "1" * 100),
        ('{"__proto__":1,"constructor":2,"__class__":3}', {"__proto__": 1, "constructor": 2, "__class__": 3}),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("1e-400", 0.0),
        (" \t\r\n[ ] ", []),
    ],
)
def test_the_limits_themselves_are_allowed(text: str, value: JSON) -> None:
    """64 levels, 40 characters, odd keys and pairs of surrogates are JSON like any other."""
    assert decode(text) == (value if value is not None else decode(text))


def test_a_deeper_limit_is_for_what_wraps_a_value() -> None:
    """Whoever puts a value of the full depth into another one says so when writing and when reading."""
    value: JSON = []
    for _ in range(70):
        value = [value]

    with pytest.raises(InvalidValue, match="deep"):
        encode(value)
    assert value == decode(encode(value, depth=80), depth=80)


@pytest.mark.case("arg-10")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, float("nan")]}, "a[1]"),
        ({"a": float("inf"), "b": None}, "a"),
        ([-float("inf")], "[0]"),
        (float("nan"), ""),
        ({"two words": {"x": "\ud800"}}, '["two words"].x'),
        ({"k": {"\udc00": 1}}, "k"),
        ({"a": {1: 2}}, "a"),
        ([10**40], "[0]"),
        ({"n": -(10**39)}, "n"),
        ({"a": object()}, "a"),
    ],
)
def test_a_refusal_to_encode_names_the_place(value: JSON, path: str) -> None:
    """What is no canonical JSON is found where it stands."""
    with pytest.raises(InvalidValue) as refusal:
        encode(value)

    assert [path] == [issue.path for issue in refusal.value.issues]


def test_a_circle_is_refused() -> None:
    """A value that holds itself raises no RecursionError."""
    circle: list[JSON] = []
    circle.append(circle)

    with pytest.raises(InvalidValue, match="deep"):
        encode(circle)
    with pytest.raises(InvalidValue, match="deep"):
        plain(circle)


def test_the_encoding_and_the_digest_are_pinned() -> None:
    """These bytes are in journals: they stay what they are."""
    value: JSON = {"é": [1, 1.0, 1e16, 1e-7, True, None], "b": "/\x7f\u2028\n\U0001f600", "a": {}}

    text = '{"a":{},"b":"/\x7f\u2028\\n\U0001f600","é":[1,1.0,1e16,1e-7,true,null]}'
    assert text.encode() == encode(value)
    assert "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" == digest({})


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024  (the untyped kind is met as well)


@attrs.frozen
class Order:
    id: UUID
    when: datetime
    total: Decimal


@dataclasses.dataclass
class Line:
    name: str
    colour: Colour


class Model:
    """Passes for a pydantic model."""

    def model_dump(self, *, mode: str) -> dict[str, object]:
        return {"mode": mode}


@pytest.mark.case("arg-15")
@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}, True, 1, "x", [0], {"a": None}])
def test_a_plain_value_stays_what_it_is(value: JSON) -> None:
    """What is empty or false is not absent."""
    assert same(value, plain(value))


@pytest.mark.case("arg-10")
@pytest.mark.parametrize(
    ("value", "json_value"),
    [
        ({"m": float("nan"), "x": [float("inf")]}, {"m": None, "x": [None]}),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), "2025-01-02T03:04:05+00:00"),
        (date(2025, 1, 2), "2025-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(days=1, microseconds=500_000), "P1DT0.5S"),
        (timedelta(seconds=-90), "-PT90S"),
        (timedelta(), "PT0S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("12.50"), "12.50"),
        (PurePosixPath("/a/b"), "/a/b"),
        (b"hi", "aGk="),
        (bytearray(b"hi"), "aGk="),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ((1, (2,)), [1, [2]]),
        (range(3), [0, 1, 2]),
        (Point(1, None), {"x": 1, "y": None}),
        (MappingProxyType({None: "b", True: "c", 2.5: "d"}), {"true": "c", "null": "b", "2.5": "d"}),
        ({Colour.RED: 1, (1, 2): 2}, {"red": 1, "[1,2]": 2}),
        (
            Order(UUID(int=1), datetime(2025, 1, 2, tzinfo=UTC), Decimal(3)),
            {"id": str(UUID(int=1)), "when": "2025-01-02T00:00:00+00:00", "total": "3"},
        ),
        ([Line("n", Colour.RED)], [{"name": "n", "colour": "red"}]),
        (Model(), {"mode": "json"}),
        (10**40, hex(10**40)),
        ("ok \ud83d end", "ok \ufffd end"),
        ({"\udc00": 1}, {"\ufffd": 1}),
    ],
)
def test_what_a_tool_returns_becomes_json(value: object, json_value: JSON) -> None:
    """Each row of the table in the docstring; no NaN, no half of a surrogate, no Python object is left."""
    assert same(json_value, plain(value))
    encode(plain(value))


@given(VALUES)
def test_plain_leaves_json_alone(value: JSON) -> None:
    """JSON is its own plain form."""
    assert same(value, plain(value))


def test_what_has_no_json_form_is_refused_by_name() -> None:
    """A class that nobody described is not guessed at."""
    with pytest.raises(InvalidValue, match=r"rows\[1\].cursor: object has no JSON form"):
        plain({"rows": [1, {"cursor": object()}]})


@pytest.mark.case("arg-09")
@given(st.text(st.characters()))
@example("\ud83d\ude00")
@example("a\ud83d")
def test_text_becomes_well_formed_and_then_stays(text: str) -> None:
    """The result can be sent and is its own well-formed form; nothing else of the text is lost."""
    formed = well_formed(text)

    formed.encode()
    assert formed is well_formed(formed)
    assert (formed is text) == (formed == text)


@pytest.mark.case("arg-09")
def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    """A lone half is replaced, two halves side by side are the character that they mean."""
    assert "ok \ufffd end" == well_formed("ok \ud83d end")
    assert "\ufffdé" == well_formed("\udc00é")
    assert "\U0001f600\ufffd" == well_formed("\ud83d\ude00\ud83d")


PROSE = st.text(st.characters(exclude_characters='[]{}"`', codec="utf-8"), max_size=30)
CONTAINERS = st.dictionaries(TEXT, VALUES, max_size=4) | st.lists(TEXT, min_size=1, max_size=4)


@given(PROSE, CONTAINERS, PROSE)
def test_a_value_is_found_in_prose(before: str, value: JSON, after: str) -> None:
    """Whatever stands around it, and whatever brackets and quotes are in its strings."""
    assert same(value, find_json(f"{before} {json.dumps(value)} {after}"))


@given(PROSE, VALUES, PROSE)
def test_a_value_is_found_in_a_fence(before: str, value: JSON, after: str) -> None:
    """A fence may hold any value, not only objects."""
    assert same(value, find_json(f"{before}\n```json\n{json.dumps(value, indent=1)}\n```\n{after}"))


@given(VALUES)
def test_a_bare_value_is_found(value: JSON) -> None:
    """An answer that is JSON and nothing else is that value."""
    assert same(value, find_json(f" {json.dumps(value)}\n"))


@pytest.mark.case("out-01")
def test_an_answer_ends_with_its_fence() -> None:
    """Braces in the prose after the fence are not part of it."""
    assert {"result": "pass"} == find_json('```json\n{"result":"pass"}\n```\nThis matches {"type":"object"}')


@pytest.mark.case("out-02")
def test_braces_in_strings_do_not_count() -> None:
    """Strings are read as strings, escapes included."""
    answer = 'Result: {"name":"a } b","v":"\\"{"} done'

    assert {"name": "a } b", "v": '"{'} == find_json(answer)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('As [1] says: {"a":1}', {"a": 1}),
        ("I chose [1, 2].", [1, 2]),
        ('Not {this}, nor {"that"}: {"a":1}', {"a": 1}),
        ('```python\nx = {}\n```\n```json\n{"a":1}\n```', {"a": 1}),
        ('```\n{"code":"```js\\n{}\\n```"}\n```', {"code": "```js\n{}\n```"}),
        ('{"md":"```json\\n{}\\n```"}', {"md": "```json\n{}\n```"}),
        ("```json\n[1]\n```", [1]),
        ("42", 42),
    ],
)
def test_the_value_that_is_meant_is_found(answer: str, value: JSON) -> None:
    """Citations, placeholders, other fences and fences in strings do not lead astray."""
    assert same(value, find_json(answer))


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I do not know.",
        '{"items":[{"a":1},{"b":',
        'Here: {"a":{"b":1}, c}',
        'Here: {"a": oops, "b": {"c": 1}}',
        '{"a":1,"a":2}',
        '{"a":NaN}',
        "{" * 100,
    ],
)
def test_an_answer_without_a_whole_value_is_refused(answer: str) -> None:
    """What is cut off, broken or ambiguous has no answer in it, whatever whole values it holds."""
    with pytest.raises(InvalidValue):
        find_json(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "{" * 1_000_000,
        "[" * 1_000_000,
        '{"' * 500_000,
        "```" * 300_000,
        "```\n" * 250_000,
        '["\\"' * 250_000,
        "[1] " * 250_000,
    ],
    ids=["braces", "brackets", "keys", "fences", "lines of fences", "escapes", "citations"],
)
def test_a_million_characters_are_searched_once(answer: str) -> None:
    """The work is linear: seconds on a slow machine, where searching again from each bracket would take minutes."""
    began = clock.perf_counter()
    try:
        find_json(answer)
    except InvalidValue:
        pass

    assert clock.perf_counter() - began < 30
