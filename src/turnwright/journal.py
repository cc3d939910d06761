"""Facts to JSON and back. Rule: what was once written is readable for ever; what is unknown is refused, never skipped.

Each fact is written as its kind, the version of its shape, and a JSON object. A changed shape gets a new version here
and an upcast from the old one; golden journals in contracts/journals hold this module to it.
"""

from __future__ import annotations

from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar, get_args, get_origin

import msgspec
from attrs import fields, has

from turnwright.canonical import well_formed
from turnwright.errors import JournalError
from turnwright.facts import Fact
from turnwright.inbox import Word
from turnwright.messages import AssistantMessage, Part, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from cattrs import Converter

__all__ = [
    "ENDINGS",
    "VERSION",
    "decode",
    "decode_message",
    "decode_word",
    "digest",
    "encode",
    "encode_word",
    "parts_of",
]

VERSION: Final = 1
"""The version of every shape in this module."""

ENDINGS: Final = frozenset({"RunCompleted", "RunFailed", "RunCancelled"})
"""The kinds of fact after which a journal has no more."""

KINDS: Final[dict[str, type]] = {fact.__name__: fact for fact in get_args(Fact)}

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def encode(fact: T) -> tuple[T, bytes]:
    """Return *fact* and its JSON. Half surrogate pairs, which no JSON can hold, are replaced first, in both."""
    try:
        return fact, _encode(fact)
    except UnicodeEncodeError:
        fact = _tidy(fact)
        return fact, _encode(fact)


def digest(fact: Fact) -> str:
    """The SHA-256 of a fact's JSON, in hexadecimal."""
    return sha256(encode(fact)[1]).hexdigest()


def decode(kind: str, version: int, body: bytes, *, position: int) -> Fact:
    """Read one fact. Raises JournalError for a kind or version this release does not know, and for a broken body."""
    if kind not in KINDS or not 1 <= version <= VERSION:
        raise JournalError(
            position, f"{kind!r} version {version} was written by a newer release; upgrade turnwright to read it"
        )
    if not body:
        raise JournalError(position, f"the content of this {kind} was dropped or erased; only its evidence is left")
    try:
        fact: Fact = _converter().structure(msgspec.json.decode(body), KINDS[kind])
    except Exception as error:
        raise JournalError(position, f"the body is no {kind} ({type(error).__name__})") from error
    return fact


def encode_word(word: Word) -> bytes:
    """The JSON of an inbox word. Raises JournalError for what could not be read back: words come from strangers."""
    body = encode(word)[1]
    decode_word(body)
    return body


def decode_word(body: bytes) -> Word:
    """Read an inbox word; the inverse of `encode_word`. Raises JournalError for what is none."""
    try:
        word: Word = _converter().structure(msgspec.json.decode(body), Word)  # type: ignore[arg-type]
    except Exception as error:
        raise JournalError(0, f"this is no word of an inbox ({type(error).__name__})") from error
    return word


def decode_message(body: bytes) -> AssistantMessage:
    """Read a model's answer from its JSON."""
    return _converter().structure(msgspec.json.decode(body), AssistantMessage)


def parts_of(values: object) -> tuple[Part, ...]:
    """Read the parts of a message from JSON that was decoded."""
    return _converter().structure(values, tuple[Part, ...])


@cache
def _converter() -> Converter:
    """Built on first use: importing turnwright does not import cattrs. A value is never bent to fit its field."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=False, detailed_validation=False)
    converter.register_structure_hook_func(lambda declared: declared is object, lambda value, _: value)  # JSON
    for plain in (str, bool, int):
        converter.register_structure_hook(plain, _exactly)
    converter.register_structure_hook(float, _seconds)
    converter.register_structure_hook_factory(_is_tuple, partial(_listed, converter))
    converter.register_structure_hook(Usage, _object(converter, Usage))
    for union in (Part, Word):
        converter.register_structure_hook(union, _tagged(converter, union))
    return converter


def _exactly(value: T, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _object(converter: Converter, kind: type[T]) -> Callable[[object, object], T]:
    """How to read a class whose fields all have defaults: text, which has no keys either, is none of it."""
    from cattrs.gen import make_dict_structure_fn

    structure = make_dict_structure_fn(kind, converter, _cattrs_detailed_validation=False)

    def read(value: object, _: object) -> T:
        if type(value) is not dict or not value:
            raise TypeError(f"expected an object, got {type(value).__name__}")
        return structure(value, kind)

    return read


def _is_tuple(declared: object) -> bool:
    return get_origin(declared) is tuple


def _listed(converter: Converter, declared: object) -> Callable[[object, object], tuple[object, ...]]:
    kind = get_args(declared)[0]  # every tuple of a fact is of one kind, of any length
    structure = converter.get_structure_hook(kind)

    def listed(value: object, _: object) -> tuple[object, ...]:
        if type(value) is not list:
            raise TypeError(f"expected an array, got {type(value).__name__}")
        return tuple([structure(each, kind) for each in value])

    return listed


def _seconds(value: object, _: type) -> float:
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return float(value)


def _tagged(converter: Converter, union: object) -> Callable[[dict[str, object], type], object]:
    by_tag: dict[object, type] = {fields(each).type.default: each for each in get_args(union)}
    return lambda value, _: converter.structure(value, by_tag[value["type"]])


def _tidy(value: T) -> T:
    """*value* with every string well formed, all the way down."""
    match value:
        case str():
            return well_formed(value)  # type: ignore[return-value]
        case dict():
            return {_tidy(key): _tidy(each) for key, each in value.items()}  # type: ignore[return-value]
        case list() | tuple():
            return type(value)([_tidy(each) for each in value])
        case _ if has(type(value)):
            names = [each.name for each in fields(type(value)) if each.init]  # type: ignore[arg-type]
            return type(value)(**{name: _tidy(getattr(value, name)) for name in names})
        case _:
            return value
