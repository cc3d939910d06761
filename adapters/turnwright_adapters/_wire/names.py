"""Names and ids as providers take them.

Rule: a form depends on its name alone, so that it is the same in every request of a history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256

from turnwright.errors import ModelError

_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_DECORATION = re.compile(r"<\|.*|:\d+$", re.DOTALL)
_PREFIX = re.compile(r"[.:/]+")


@lru_cache(4096)
def wire_name(name: str) -> str:
    """Return *name* as providers take it: itself if it matches ^[a-zA-Z0-9_-]{1,64}$, else a form of it with a digest.

    It depends on *name* alone, so a name means the same in every request of a history.
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    return f"{_FOREIGN.sub('_', name)[:55]}_{sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"


class ToolNames:
    """The tools of one request by the names that a model may call them by."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_wire: dict[str, str] = {}
        for name in names:
            if self._by_wire.setdefault(wire_name(name), name) != name:
                other = self._by_wire[wire_name(name)]
                raise ModelError(
                    "invalid_request", f"tools {other!r} and {name!r} have one wire name", dispatched=False
                )
        self._known = {**{name: name for name in self._by_wire.values()}, **self._by_wire}

    def meant(self, called: str) -> str:
        """Return the tool that a model means by *called*; *called* itself if that is no tool or not clear.

        Models decorate names: `functions.view`, `default_api:view`, `view<|channel|>commentary` all mean `view`.
        """
        if called in self._known:
            return self._known[called]
        bare = _DECORATION.sub("", called).strip()
        tails = [bare, *(bare[separator.end() :] for separator in _PREFIX.finditer(bare))]
        meant = {self._known[tail] for tail in tails if tail in self._known}
        return meant.pop() if len(meant) == 1 else called


def call_id(given: str, plain: re.Pattern[str] = re.compile(r"[a-zA-Z0-9_.:-]{1,40}")) -> str:
    """Return the id of a call as providers take it: itself if it is *plain* to them, else a digest."""
    if plain.fullmatch(given):
        return given
    return f"call_{sha256(given.encode(errors='surrogatepass')).hexdigest()[:32]}"


def own_call_id(turn: int, place: int) -> str:
    """Return the id of a call that came without one."""
    return f"call_{turn}_{place}"


def is_own_call_id(id: str) -> bool:
    """Say whether *id* is one that we gave."""
    return _OWN_ID.fullmatch(id) is not None


_OWN_ID = re.compile(r"call_\d+_\d+")
