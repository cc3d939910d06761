"""Options that mean the same for every provider: each adapter says them in its provider's words, or leaves them out.

    session_id        the conversation; requests of one session find each other's cache, where that goes by a key
    cache_retention   `none`, `short` or `long`
    thinking_level    `off`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`
    thinking_budget   tokens of thought, 0 for none; goes before the level
    transport         `sse` to stream, `json` not to, `auto` to stream if somebody watches
    headers           sent with this request, beside the adapter's own; None takes one away
    max_retries       for whoever retries; an adapter never does; so is `max_retry_delay_ms`

Rule: an option of the provider's own goes before these, and one that is absent leaves no trace.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import Final

from attrs import frozen

from turnwright.errors import ModelError

__all__ = ["BUDGETS", "LEVELS", "Common", "take_common"]

LEVELS: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")

BUDGETS: Final = {"off": 0, "minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
"""Tokens of thought by level; the levels above think as much as `high`."""

LONGEST_KEY: Final = 64


@frozen
class Common:
    """The common options of one request; None is not set."""

    session_id: str | None = None
    cache_retention: str | None = None
    thinking_level: str | None = None
    thinking_budget: int | None = None
    transport: str | None = None

    @property
    def budget(self) -> int | None:
        """Tokens of thought, 0 for none, None as the model likes."""
        if self.thinking_budget is not None or self.thinking_level is None:
            return self.thinking_budget
        return BUDGETS.get(self.thinking_level, BUDGETS["high"])

    @property
    def level(self) -> str | None:
        """The level of thought, for a budget the lowest that has as much; None as the model likes."""
        if (budget := self.thinking_budget) is None:
            return self.thinking_level
        return next((level for level, most in BUDGETS.items() if budget <= most), "high")

    @property
    def cache_key(self) -> str | None:
        """A key for the provider's cache that is short enough for all, None if there shall be none."""
        if self.session_id is None or self.cache_retention == "none":
            return None
        short = len(self.session_id) <= LONGEST_KEY
        return self.session_id if short else sha256(self.session_id.encode(errors="replace")).hexdigest()


def take_common(options: dict[str, object]) -> Common:
    """Take the common ones out of *options*. ModelError for a value that none of them has."""
    options.pop("max_retries", None)
    options.pop("max_retry_delay_ms", None)
    budget = options.pop("thinking_budget", None)
    if budget is not None and not (type(budget) is int and 0 <= budget <= 2**31):
        raise _refused("thinking_budget", budget, "a number of tokens")
    session = options.pop("session_id", None)
    if session is not None and not (isinstance(session, str) and session):
        raise _refused("session_id", session, "text")
    return Common(
        session,
        _word(options, "cache_retention", ("none", "short", "long")),
        _word(options, "thinking_level", LEVELS),
        budget,
        _word(options, "transport", ("auto", "sse", "json")),
    )


def _word(options: dict[str, object], name: str, words: Collection[str]) -> str | None:
    value = options.pop(name, None)
    if value is None:
        return None
    if not isinstance(value, str) or value not in words:
        raise _refused(name, value, " or ".join(words))
    return value


def _refused(name: str, value: object, expected: str) -> ModelError:
    return ModelError("invalid_request", f"the option {name!r} is {expected}, not {value!r:.40}", dispatched=False)
