"""What a declared field may hold: a predicate each, and the words that say so. Rule: a bad value is refused where it is
written, by the name of its owner and its field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import Final, TypeAlias

from turnwright.canonical import encode, plain
from turnwright.errors import DefinitionError, InvalidValue

__all__ = [
    "AMOUNTS",
    "CALLABLE",
    "CALLABLES",
    "CAPABILITY",
    "COUNT",
    "DESCRIPTIVE",
    "FLAG",
    "NAME",
    "OPTIONS",
    "PLAIN",
    "SECONDS",
    "SIZE",
    "TEXT",
    "Rule",
    "one_of",
    "optional",
    "refuse_unsound",
]

Rule: TypeAlias = tuple[Callable[[object], bool], str]


def refuse_unsound(owner: str, value: object, rules: Iterable[tuple[str, Rule]]) -> None:
    """Raise DefinitionError for the first field of *value* that breaks its rule."""
    for name, (fits, words) in rules:
        given = getattr(value, name)
        if not fits(given):
            message = f"{owner}{name} is {words}, not {given!r:.80}"
            raise DefinitionError(message)


def optional(rule: Rule) -> Rule:
    """*rule*, or None."""
    fits, words = rule
    return lambda value: value is None or fits(value), f"{words}, or None"


def one_of(*words: str) -> Rule:
    """One of a few words."""
    return lambda value: isinstance(value, str) and value in words, f"one of {', '.join(words)}"


def _whole(least: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value <= 2**53


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")  # type: ignore[operator]


def _name(longest: int) -> Rule:
    def fits(value: object) -> bool:
        return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() and value == value.strip()

    return fits, f"1 to {longest} printable characters without space at its ends"


def _are_amounts(value: object) -> bool:
    amount = COUNT[0]
    return isinstance(value, Mapping) and all([isinstance(axis, str) and amount(value[axis]) for axis in value])


def _is_json(value: object) -> bool:
    """Whether *value* is an object of strict JSON, as it stands."""
    try:
        return isinstance(value, dict) and all([isinstance(key, str) for key in value]) and encode(value) is not None
    except (InvalidValue, TypeError):
        return False


def _is_descriptive(value: object) -> bool:
    try:
        return isinstance(value, Mapping) and plain(value) is not None
    except InvalidValue:
        return False


NAME: Final = _name(128)
CAPABILITY: Final = _name(256)
TEXT: Final[Rule] = (lambda value: isinstance(value, str), "text")
FLAG: Final[Rule] = (lambda value: isinstance(value, bool), "True or False")
COUNT: Final[Rule] = (_whole(0), "a whole number from 0 to 2**53")
SIZE: Final[Rule] = (_whole(1), "a whole number of at least 1")
SECONDS: Final[Rule] = (_is_seconds, "a number of seconds, more than 0")
AMOUNTS: Final[Rule] = (_are_amounts, "a mapping of budget axes to whole numbers from 0 to 2**53")
CALLABLE: Final[Rule] = (callable, "a function")
PLAIN: Final[Rule] = (lambda value: callable(value) and not iscoroutinefunction(value), "a plain function, not async")
CALLABLES: Final[Rule] = (lambda value: all([callable(each) for each in value]), "a list of functions")  # type: ignore[attr-defined]
OPTIONS: Final[Rule] = (_is_json, "an object of JSON values")
DESCRIPTIVE: Final[Rule] = (_is_descriptive, "a mapping that has a JSON form")
