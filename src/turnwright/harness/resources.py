"""What an agent may read: attached to every prompt by its owner, or read by the model with a tool.

Rule: what a resource gives is data. Attached, it stands in an envelope with a boundary that is drawn anew for each turn
and its length, and what looks like the envelope's own words in it is made harmless; the rest arrives as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, TypeAlias

from attrs import field

from turnwright.canonical import encode, plain
from turnwright.errors import DefinitionError
from turnwright.harness.calling import Fitted, fitted
from turnwright.harness.context import ServicesT, TurnContext
from turnwright.values import frozen

__all__ = ["Resource", "define_resource", "enveloped"]

Mode: TypeAlias = Literal["attach", "tool"]

Input: TypeAlias = Mapping[str, object]

Get: TypeAlias = (
    Callable[[], object | Awaitable[object]]
    | Callable[[Input], object | Awaitable[object]]
    | Callable[[Input, TurnContext[ServicesT]], object | Awaitable[object]]
)

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
DESCRIBED: Final = 500
"""How much of a description stands in the envelope."""

_IGNORED: Final = (
    r"[\s\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069"
    r"\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]*"
)
_STRUCTURE: Final = re.compile(  # linear: no two runs of what is ignored stand side by side
    "[<\uff1c\ufe64](?=" + _IGNORED + "(?:[/\uff0f]" + _IGNORED + ")*" + _IGNORED.join("resource") + ")", re.IGNORECASE
)


@frozen(eq=False)
class Resource:
    """Something to read; see `define_resource`."""

    name: str
    mode: Mode
    description: str
    input_schema: Mapping[str, object] | None
    get: Fitted = field(repr=False)
    own: object = field(repr=False)


def define_resource(
    *,
    name: str,
    mode: Mode,
    get: Get[ServicesT],
    description: str = "",
    input_schema: Mapping[str, object] | None = None,
) -> Resource:
    """Declare something to read.

    `attach`: *get* is asked once a turn, and what it gives stands in the prompt. `tool`: the model reads it with the
    read-only tool `read_<name>`, whose arguments *input_schema* describes. *get* takes up to two arguments, the input
    and the TurnContext, whose `signal` says that the turn was cancelled. What is no text becomes JSON.
    """
    if not NAME.fullmatch(name):
        raise DefinitionError(f"a resource's name is 1 to 64 letters, digits, '.', '_' and '-', not {name!r:.80}")
    if mode not in ("attach", "tool"):
        raise DefinitionError(f"resource {name!r}: mode is attach or tool, not {mode!r:.80}")
    if mode == "attach" and input_schema is not None:
        raise DefinitionError(f"resource {name!r}: only a tool takes arguments; drop input_schema or use mode='tool'")
    called = fitted(get, owner=f"resource {name!r}: get", threaded=True)
    return Resource(name, mode, description, input_schema, called, get)


def enveloped(resource: Resource, body: object, boundary: str) -> str:
    """*body* as a prompt holds it: it can neither close the envelope nor look like another one."""
    text = body if isinstance(body, str) else encode(plain(body)).decode()
    inner = _STRUCTURE.sub("&lt;", text)
    described = f' description="{_attribute(resource.description)}"' if resource.description else ""
    return (
        f'<resource name="{resource.name}"{described} length="{len(inner)}" boundary="{boundary}">\n'
        f"{inner}\n"
        f'</resource boundary="{boundary}">'
    )


_SPECIAL: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}


def _attribute(text: str) -> str:
    """*text* on one line, bounded, without what could end the attribute or hide in it."""
    shown = [" " if each.isspace() else each for each in text[:DESCRIBED]]
    visible = [each for each in shown if unicodedata.category(each) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")]
    return "".join([_SPECIAL.get(each, each) for each in visible])
