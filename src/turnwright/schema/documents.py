"""Find one's way in a JSON Schema document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from turnwright.canonical import JSON

Document: TypeAlias = dict[str, JSON]


class Place(NamedTuple):
    """A schema and the JSON pointer to it, such as `#/$defs/T`."""

    pointer: str
    schema: JSON


def referred(document: JSON, node: JSON | Mapping[str, JSON]) -> Place | None:
    """Return what the `$ref` of *node* means in *document*.

    None if there is none, or one that is no pointer into the document: the validator knows what it means.
    """
    reference = node.get("$ref") if isinstance(node, Mapping) else None
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    from urllib.parse import unquote  # most schemas refer to nothing

    place = unquote(reference)
    found = document
    for part in place.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return Place(place, found)


def pointer(base: str, *keys: str | int) -> str:
    """Return the JSON pointer *base* extended by *keys*."""
    return "/".join([base, *(str(key).replace("~", "~0").replace("/", "~1") for key in keys)])


def types_of(node: JSON | Mapping[str, JSON]) -> tuple[str, ...]:
    """Return the names under `type`, none if any type will do."""
    match node:
        case {"type": str(name)}:
            return (name,)
        case {"type": list(names)}:
            return tuple(str(name) for name in names)
        case _:
            return ()


def schemas(node: Document, keyword: str) -> list[JSON]:
    """Return the schemas that *keyword* lists, none if it lists none."""
    value = node.get(keyword)
    return value if isinstance(value, list) else []


def named_schemas(node: Mapping[str, JSON], keyword: str) -> Document:
    """Return the schemas that *keyword* names, none if it names none."""
    value = node.get(keyword)
    return value if isinstance(value, dict) else {}


def item_schemas(node: Document) -> tuple[tuple[str, list[JSON]], tuple[str, JSON]]:
    """Return the schemas of the first items and that of the rest, each with its keyword.

    Drafts before 2020-12 wrote the first ones under `items` and the rest under `additionalItems`.
    """
    if isinstance(node.get("items"), list):
        return ("items", schemas(node, "items")), ("additionalItems", node.get("additionalItems"))
    return ("prefixItems", schemas(node, "prefixItems")), ("items", node.get("items"))
