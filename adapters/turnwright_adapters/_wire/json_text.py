"""JSON of the wire. Rule: what we send is strict, what we take is lenient where nothing is lost by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from turnwright.canonical import well_formed


def encode(value: object, *, ordered: bool = False) -> bytes:
    """Return *value* as JSON, lone surrogates replaced; members in their own order, or *ordered* by their keys."""
    encoder = _ordered if ordered else _encoder
    try:
        return encoder.encode(value)
    except UnicodeEncodeError:
        return encoder.encode(_well_formed(value))


def _dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encoder: Final = msgspec.json.Encoder(enc_hook=_dict)
_ordered: Final = msgspec.json.Encoder(enc_hook=_dict, order="sorted")


def _well_formed(value: object) -> object:
    match value:
        case str():
            return well_formed(value)
        case Mapping():
            return {_well_formed(key): _well_formed(item) for key, item in value.items()}
        case list() | tuple():
            return [_well_formed(item) for item in value]
        case _:
            return value


def decode(data: bytes) -> object:
    """Return the JSON value that a provider sent. ValueError if it is none.

    Lenient where providers are sloppy and nothing is lost by it: half of a surrogate pair stays half (its other half
    may be in the next event), bytes that are not UTF-8 become U+FFFD, NaN is let through.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data.decode(errors="replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def as_object_text(raw: str) -> str:
    """Return *raw* argument text if it is a JSON object, and else an object that holds it.

    A call is sent back as the model wrote it; what would make the provider refuse the whole history is wrapped.
    Nothing, and null, stand for no arguments.
    """
    raw = well_formed(raw)
    if is_object_text(raw):
        return raw
    if raw.strip() in {"", "null"}:
        return "{}"
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = None
    # An object after all, that holds half a surrogate pair in an escape.
    return encode(value if isinstance(value, dict) else {"_invalid_json": raw}).decode()


def is_object_text(text: str) -> bool:
    """Say whether *text* is a JSON object."""
    try:
        return type(msgspec.json.decode(text)) is dict
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
