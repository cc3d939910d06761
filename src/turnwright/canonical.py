"""JSON at the borders: strict decoding, one canonical encoding, digests of it.

Rule: nothing non-finite, duplicated, deeper than 64 or half a surrogate passes, in either direction
(tests/core/test_canonical.py).

The canonical encoding follows RFC 8785 in spirit: no spaces, UTF-8, members in the order of their keys' code points,
numbers as short as they can be read back. It differs where Python is exact and JavaScript is not: integers of up to 40
digits keep every digit, and 1.0 stays apart from 1. Values that came out of `decode`, `plain` or a schema encode;
other classes are for `plain` first.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import fields as dataclass_fields
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from math import isfinite
from types import NoneType
from typing import Final, NamedTuple, TypeAlias

import msgspec

from turnwright.errors import InvalidValue, Issue

__all__ = ["JSON", "decode", "digest", "encode", "find_json", "plain", "well_formed"]

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"

DEPTH: Final = 64
NUMBER_LENGTH: Final = 40
LEAST: Final = -(10 ** (NUMBER_LENGTH - 1))
GREATEST: Final = 10**NUMBER_LENGTH

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder()
_long_number = re.compile(rb"[-+.0-9eE]{%d}" % (NUMBER_LENGTH + 1)).search
_surrogate_escape = re.compile(rb"\\u[dD][89a-fA-F]").search
_spaced_colon = re.compile(rb"[ \t\r\n]:").search
_opening = re.compile(r"\{\s*[\"}]|\[\s*[\"\[\]{0-9tfn-]").search
_fence = re.compile(r"```[^\n`]*\n\s*").finditer
_end_of_fence = re.compile(r"\s*```").match
_member = re.compile(r'"\s*:').search


def decode(text: str | bytes, *, depth: int = DEPTH) -> JSON:
    """Return the JSON value that *text* is, strictly.

    Refused with `InvalidValue`: what RFC 8259 refuses, anything before or after the value, duplicate keys, NaN and
    infinities (also by overflow), half a surrogate pair, more than *depth* levels, numbers of more than 40 characters.
    """
    data = b""
    try:
        data = text.encode() if isinstance(text, str) else text
        if _long_number(data):
            _read_slowly(data)
        value: JSON = _decoder.decode(data)
        members = _survey(value, depth)
        # Each key has its colon, so as many colons as members means that no key was lost to a later one. Where strings
        # hold colons, only those right after a quote are counted, which is sound if no colon follows a space.
        if members != data.count(b":") and (members != data.count(b'":') or _spaced_colon(data)):
            _read_slowly(data)
    except RecursionError:
        raise _refusal(f"nested deeper than {depth} levels") from None
    except UnicodeError:
        raise _refusal("not UTF-8, or half a surrogate pair in the text") from None
    except msgspec.DecodeError as error:
        halved = _surrogate_escape(data) and _is_json(data)
        raise _refusal("half a surrogate pair in a string" if halved else f"not JSON: {error}") from None
    return value


def encode(value: JSON, *, depth: int = DEPTH) -> bytes:
    """Return the canonical encoding of *value*. Equal JSON gives equal bytes, and `decode` gives it back.

    Refused with `InvalidValue` that names the path: NaN and infinities, half a surrogate pair, keys that are not
    strings, more than *depth* levels, numbers of more than 40 characters.
    """
    try:
        data: bytes = _encoder.encode(value)
    except (TypeError, ValueError, RecursionError):
        refuse_unencodable(value, "", depth)
        raise
    # msgspec writes a number that is not finite as null, so only a text with a null, with many brackets or with what
    # looks like a long number can hide something: it costs a walk, the others do not.
    doubtful = b"null" in data or data.count(b"[") + data.count(b"{") > depth or _long_number(data)
    if doubtful and not _is_encodable(value, depth):
        refuse_unencodable(value, "", depth)
    return data


def digest(value: JSON) -> str:
    """Return the SHA-256 of the canonical encoding of *value*, in hexadecimal."""
    return sha256(encode(value)).hexdigest()


def well_formed(text: str) -> str:
    """Return *text* with every lone surrogate replaced by U+FFFD; the same object when there is none.

    Two halves that stand side by side become the character that they mean.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def find_json(text: str) -> JSON:
    """Return the JSON value inside a model's answer, in linear time; `InvalidValue` when there is none.

    Looked for in this order: the whole text, the first code fence that holds JSON, the first object or array in the
    prose. An array of integers in prose may be a citation such as [1]: it is taken only if nothing else is there.
    A value that is cut off is none, whatever complete values it holds.
    """
    text = text.strip()
    try:
        value = _read(text, 0)
        if isinstance(value, _Whole) and value.end == len(text):
            return decode(text)
        for fence in _fence(text):
            value = _read(text, fence.end())
            if isinstance(value, _Whole) and _end_of_fence(text, value.end):
                return decode(text[fence.end() : value.end])
        return _find_in_prose(text)
    except RecursionError:
        raise _refusal(f"nested deeper than {DEPTH} levels") from None


def plain(value: object) -> JSON:
    """Return what a tool returned as JSON that every wire can carry. Nothing of *value* is kept or changed.

    None, False, 0, "", [] and {} stay what they are. The rest by this table, first row that fits:

    | value | becomes |
    | --- | --- |
    | str | itself, lone surrogates replaced by U+FFFD |
    | int | itself; with more than 40 characters, its hexadecimal text |
    | float | itself; NaN and infinities null |
    | Enum | its value |
    | datetime, date, time | ISO 8601; timedelta an ISO 8601 duration such as P1DT0.5S |
    | UUID, Decimal, path | its text |
    | bytes | base64 text |
    | mapping | object; keys that are not strings become their JSON text, the later of two equal texts wins |
    | attrs, dataclass, NamedTuple, msgspec.Struct instance | object of its fields |
    | pydantic model (anything with `model_dump`) | what `model_dump(mode="json")` gives |
    | list, tuple, other sequence | array; set an array in the order of the canonical encoding |

    `InvalidValue` with the path for any other class, and for more than 64 levels (so also for a cycle).
    """
    return _plain(value, None, DEPTH)


def duration(span: timedelta) -> str:
    """Return *span* as an ISO 8601 duration in days and seconds, a negative one with the sign in front."""
    if span < timedelta():
        return "-" + duration(-span)
    seconds = f"{span.seconds}.{span.microseconds:06}".rstrip("0").rstrip(".") if span.microseconds else span.seconds
    days = f"{span.days}D" if span.days else ""
    return f"P{days}T{seconds}S" if span.seconds or span.microseconds or not days else f"P{days}"


def step(path: str, key: str | int) -> str:
    """Return *path* one step further: `a.n`, `tags[2]`, `a["two words"]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not key.isidentifier():
        return f"{path}[{json.dumps(key[:40])}]"
    return f"{path}.{key}" if path else key


def _refusal(message: str, path: str = "") -> InvalidValue:
    return InvalidValue([Issue(path, message)])


def _survey(value: JSON, room: int) -> int:
    """Count the members of all objects in *value*; RecursionError if it is deeper than *room*."""
    members = 0
    if type(value) is dict:
        members = len(value)
        children: Iterable[JSON] = value.values()
    elif type(value) is list:
        children = value
    else:
        return 0
    if not room:
        raise RecursionError
    for child in children:
        if type(child) is dict or type(child) is list:
            members += _survey(child, room - 1)
    return members


def _read_slowly(data: bytes) -> None:
    """Refuse duplicate keys and long numbers, which only a reader with hooks can see."""
    try:
        _hooked.decode(data.decode())
    except json.JSONDecodeError as error:
        raise _refusal(f"not JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, JSON]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise _refusal(f"duplicate key {json.dumps(key[:40])}")
        seen.add(key)


def _short(number: str) -> None:
    if len(number) > NUMBER_LENGTH:
        raise _refusal(f"a number of more than {NUMBER_LENGTH} characters: {number[:12]}...")


_hooked = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_int=_short, parse_float=_short)
_lenient = json.JSONDecoder()


def _is_json(data: bytes) -> bool:
    try:
        _lenient.decode(data.decode())
    except ValueError:
        return False
    return True


class _Whole(NamedTuple):
    value: JSON
    end: int


class _Broken(NamedTuple):
    reason: str
    end: int


def _read(text: str, start: int) -> _Whole | _Broken:
    """Read the JSON value at *start*, in time that grows with the place where it ends or breaks, not with *text*.

    The standard decoder counts the lines before an error from the start of what it was given. So it is given a window,
    and a larger one as long as the window's end may be what broke the value.
    """
    size = 256
    while True:
        window = text[start : start + size]
        all_of_it = start + size >= len(text)
        try:
            value, end = _lenient.raw_decode(window)
        except json.JSONDecodeError as error:
            # No token but a string is longer than the margin; one that is open is reported where it began.
            if all_of_it or not (error.pos > size - 16 or error.msg.startswith("Unterminated")):
                return _Broken(error.msg, start + error.pos)
        else:
            if all_of_it or end < size:  # a number may go on behind the window
                return _Whole(value, start + end)
        size *= 2


def _find_in_prose(text: str) -> JSON:
    citation: JSON = None
    opening = _opening(text)
    while opening:
        start = opening.start()
        found = _read(text, start)
        match found:
            case _Whole(list() as items, end) if all(type(item) is int for item in items):
                citation = citation or decode(text[start:end])
            case _Whole(_, end):
                return decode(text[start:end])
            case _Broken(reason, end):
                if _member(text, start, end):  # an object was begun, so its inner parts are not the answer
                    raise _refusal(f"the JSON in the answer is broken or cut off: {reason}")
        opening = _opening(text, max(found.end, start + 1))
    if citation is None:
        raise _refusal("no JSON value in the answer")
    return citation


def _is_encodable(value: object, room: int) -> bool:
    """Tell whether `refuse_unencodable` would be silent, faster: what msgspec refuses by itself is not looked at."""
    children: Iterable[object]
    if type(value) is dict:
        children = value.values()
    elif type(value) is list:
        children = value
    elif type(value) is float:
        return isfinite(value)
    else:
        return False
    if not room:
        return False
    for child in children:
        kind = type(child)
        if kind is str or kind is NoneType or kind is bool:
            continue
        if kind is int:
            if not LEAST < child < GREATEST:
                return False
        elif not _is_encodable(child, room - 1):
            return False
    return True


def refuse_unencodable(value: object, path: str, room: int) -> None:
    """Name the first place in *value* that has no canonical encoding."""
    match value:
        case None | bool():
            return
        case str():
            if value != well_formed(value):
                raise _refusal("half a surrogate pair", path)
        case int():
            if not LEAST < value < GREATEST:
                raise _refusal(f"an integer of more than {NUMBER_LENGTH} characters", path)
        case float():
            if not isfinite(value):
                raise _refusal(f"{value} is not a JSON number", path)
        case list() | dict() if not room:
            raise _refusal("nested too deeply", path)
        case list():
            for index, item in enumerate(value):
                refuse_unencodable(item, step(path, index), room - 1)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise _refusal(f"the key {key!r:.40} is not a string", path)
                refuse_unencodable(key, path, room)
                refuse_unencodable(item, step(path, key), room - 1)
        case _:
            raise _refusal(f"{type(value).__name__} is not a JSON value", path)


# Where a value stands in the one that `plain` was given: the way back to the root, drawn only when it is needed.
_Place: TypeAlias = "tuple[_Place, str | int] | None"


def _path(place: _Place) -> str:
    return step(_path(place[0]), place[1]) if place else ""


def _plain(value: object, place: _Place, room: int) -> JSON:
    kind = type(value)
    if value is None or kind is bool:
        return value  # type: ignore[return-value]
    if isinstance(value, Enum):
        return _plain(value.value, place, room)
    if isinstance(value, str):
        return well_formed(value if kind is str else str.__str__(value))
    if isinstance(value, int):
        return int(value) if LEAST < value < GREATEST else hex(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if room <= 0:
        raise _refusal(f"nested deeper than {DEPTH} levels", _path(place))
    if isinstance(value, dict | Mapping):
        members: dict[str, JSON] = {}
        for key, item in value.items():
            name = well_formed(key) if type(key) is str else _key(key, place, room)
            members[name] = _plain(item, (place, name), room - 1)
        return members
    if (names := _field_names(value, kind)) is not None:
        return {name: _plain(getattr(value, name), (place, name), room - 1) for name in names}
    if isinstance(value, list | tuple):
        return [_plain(item, (place, index), room - 1) for index, item in enumerate(value)]
    return _plain_library_value(value, place, room)


def _plain_library_value(value: object, place: _Place, room: int) -> JSON:
    match value:
        case date() | time():
            return value.isoformat()
        case timedelta():
            return duration(value)
        case Decimal():
            return str(value)
        case _ if _is_of(value, "uuid", "UUID") or _is_of(value, "pathlib", "PurePath"):
            return well_formed(str(value))
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode()
        case AbstractSet():
            return sorted((_plain(item, place, room - 1) for item in value), key=encode)
        case Sequence():
            return [_plain(item, (place, index), room - 1) for index, item in enumerate(value)]
        case _ if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
            return _plain(dump(mode="json"), place, room - 1)
        case _:
            name = type(value).__name__
            raise _refusal(
                f"{name} has no JSON form; return a plain value, an attrs class or a dataclass", _path(place)
            )


def _is_of(value: object, module: str, name: str) -> bool:
    """Whether *value* is of a class of a module that there is no need to import: without it there is no such value."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _key(key: object, place: _Place, room: int) -> str:
    name = _plain(key, place, room - 1)
    return name if isinstance(name, str) else encode(name).decode()


def _field_names(value: object, kind: type) -> Iterable[str] | None:
    """Return the names of the fields of an instance of a class that declares some, else None."""
    if (fields := getattr(kind, "__attrs_attrs__", None)) is not None:
        return [field.name for field in fields]
    if (fields := getattr(kind, "__dataclass_fields__", None)) is not None:
        return [field.name for field in dataclass_fields(kind)]
    if isinstance(value, tuple):
        return getattr(kind, "_fields", None)
    return getattr(kind, "__struct_fields__", None)
