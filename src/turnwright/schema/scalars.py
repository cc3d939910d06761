"""The types that are one scalar on the wire, and what their formats mean here.

| type | JSON |
| --- | --- |
| str, int, float, bool, None | themselves |
| datetime | text, RFC 3339 with a time zone |
| date, time | text, ISO 8601; a time may carry a time zone |
| timedelta | text, ISO 8601 duration without years and months: P1DT2H30M |
| UUID | text |
| Decimal | text or number |
| bytes | base64 text |
| Path, PurePath | text |
| object, Any | any JSON |
"""

from __future__ import annotations

import re
import typing
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from types import NoneType
from typing import Final

from turnwright.canonical import JSON, duration, plain
from turnwright.schema.validation import refused
from turnwright.schema.wire import Form, Load, instance_of

_date_time = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII).fullmatch
_date = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII).fullmatch
_time = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII).fullmatch
_decimal = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?", re.ASCII).fullmatch
_duration = re.compile(
    r"(?P<sign>-?)P(?:(?P<weeks>\d{1,9})W)?(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,6})?)S)?)?",
    re.ASCII,
).fullmatch


def _shaped(text: JSON, shape: Callable[[str], object]) -> str:
    if not isinstance(text, str) or not shape(text):
        raise ValueError(text)
    return text.upper()


def _load_datetime(text: JSON) -> datetime:
    return datetime.fromisoformat(_shaped(text, _date_time))


def _load_date(text: JSON) -> date:
    return date.fromisoformat(_shaped(text, _date))


def _load_time(text: JSON) -> time:
    return time.fromisoformat(_shaped(text, _time))


def _load_timedelta(text: JSON) -> timedelta:
    match = _duration(str(text))
    if not match or match[0].endswith(("P", "T")):
        raise ValueError(text)
    span = timedelta(**{unit: float(match[unit] or 0) for unit in ("weeks", "days", "hours", "minutes", "seconds")})
    return -span if match["sign"] else span


def _load_decimal(value: JSON) -> Decimal:
    return Decimal(_shaped(value, _decimal) if isinstance(value, str) else str(value))


def _load_bytes(text: JSON) -> bytes:
    return b64decode(str(text), validate=True)


def _dump_datetime(value: object) -> JSON:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise refused("expected datetime with a time zone")
    return value.isoformat()


def _dump_date(value: object) -> JSON:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise refused(f"expected date, got {type(value).__name__}")
    return value.isoformat()


def _dump_time(value: object) -> JSON:
    instance_of(time, value)
    return str(value)


def _dump_timedelta(value: object) -> JSON:
    if not isinstance(value, timedelta):
        raise refused(f"expected timedelta, got {type(value).__name__}")
    return duration(value)


def _dump_decimal(value: object) -> JSON:
    instance_of(Decimal, value)
    return f"{value:f}"


def _dump_bytes(value: object) -> JSON:
    if not isinstance(value, bytes):
        raise refused(f"expected bytes, got {type(value).__name__}")
    return b64encode(value).decode()


def _is(load: Load) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            load(text)
        except (ValueError, ArithmeticError):
            return False
        return True

    return check


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "date-time": _is(_load_datetime),
    "date": _is(_load_date),
    "time": _is(_load_time),
    "duration": _is(_load_timedelta),
    "decimal": _is(_load_decimal),
    "base64": _is(_load_bytes),
}
"""What formats mean in schemas made from Python types: what passes can be loaded."""

SCALARS: Final[Mapping[object, Form]] = {
    object: Form({}, dump=plain),
    typing.Any: Form({}, dump=plain),
    None: Form({"type": "null"}),
    NoneType: Form({"type": "null"}),
    bool: Form({"type": "boolean"}),
    int: Form({"type": "integer"}),
    float: Form({"type": "number"}),
    str: Form({"type": "string"}),
    datetime: Form({"type": "string", "format": "date-time"}, _load_datetime, _dump_datetime),
    date: Form({"type": "string", "format": "date"}, _load_date, _dump_date),
    time: Form({"type": "string", "format": "time"}, _load_time, _dump_time),
    timedelta: Form({"type": "string", "format": "duration"}, _load_timedelta, _dump_timedelta),
    Decimal: Form({"type": ["string", "number"], "format": "decimal"}, _load_decimal, _dump_decimal),
    bytes: Form({"type": "string", "format": "base64", "contentEncoding": "base64"}, _load_bytes, _dump_bytes),
}


@cache
def scalars() -> Mapping[object, Form]:
    """All of them, with those whose modules are worth importing only where a type is none of the others."""
    from pathlib import Path, PurePath
    from uuid import UUID

    return {
        **SCALARS,
        UUID: _text("uuid", UUID, UUID),
        Path: _text("path", Path, PurePath),
        PurePath: _text("path", PurePath, PurePath),
    }


def _text(name: str, kind: Callable[[str], object], of: type) -> Form:
    def dump(value: object) -> JSON:
        instance_of(of, value)
        return str(value)

    return Form({"type": "string", "format": name}, lambda text: kind(str(text)), dump)
