r"""Every text that Python has, in a database that knows no NUL: `\0` is written for it, and `\\` for a backslash."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.types.string import StrBinaryDumper, StrDumper, TextBinaryLoader, TextLoader

__all__ = ["escaped_json", "speak_text"]

ESCAPED: Final = re.compile(r"\\(.)")


def speak_text(connection: Connection) -> None:
    """Let all text that goes over *connection* be escaped on its way there, and be itself again on its way back."""
    connection.adapters.register_dumper(str, _BinaryOut)
    connection.adapters.register_dumper(str, _Out)
    connection.adapters.register_loader("text", _In)
    connection.adapters.register_loader("text", _BinaryIn)


def escaped_json(value: object) -> bytes:
    """Plain values as JSON, their texts escaped and their bytes in base64."""
    said = msgspec.json.encode(value)
    return msgspec.json.encode(_plain(value)) if b"\\" in said else said  # there is one in every text to be escaped


def _plain(value: object) -> object:
    match value:
        case str():
            return _escaped(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\0", "\\0") if "\\" in text or "\0" in text else text


def _itself(text: object) -> str:
    assert isinstance(text, str)
    return ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], text) if "\\" in text else text


class _Out(StrDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(_escaped(obj))


class _BinaryOut(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        return super().dump(_escaped(obj))


class _In(TextLoader):
    def load(self, data: Buffer) -> str:
        return _itself(super().load(data))


class _BinaryIn(TextBinaryLoader):
    def load(self, data: Buffer) -> str:
        return _itself(super().load(data))
