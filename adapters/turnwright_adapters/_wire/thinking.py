"""How much a model shall think, in the words that it takes. They are found by its name.

Rule: never more thought than was asked for, but for the least that the model takes (tests/adapters/test_thinking.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from turnwright_adapters._wire.common import LEVELS, Common

__all__ = ["LEAST_THOUGHT", "claude_thinking", "gemini_thinking", "openai_effort", "refuses_sampling"]

LEAST_THOUGHT: Final = 1024
"""Tokens of thought that Anthropic takes at least."""

_OPENAI: Final = [
    (re.compile(pattern), levels.split())
    for pattern, levels in [
        (r"gpt-(?:3|4)|chatgpt|gpt.*-chat", ""),  # they do not reason, and refuse to be asked
        (r"o\d|gpt-oss|gpt-5-codex|gpt-5\.1-codex(?!-m)", "low medium high"),
        (r"gpt-5\.1-codex-mini", "medium high"),
        (r"gpt-5-pro", "high"),
        (r"gpt-5\.\d+-pro", "medium high xhigh"),
        (r"gpt-5(?!\.)", "minimal low medium high"),
        (r"gpt-.*-codex", "low medium high xhigh"),
        (r"gpt-5\.1", "off low medium high"),
        (r"gpt-\d", "off low medium high xhigh"),
    ]
]
"""What OpenAI's models take, the first that fits."""

_ADAPTIVE: Final = re.compile(r"claude-(?:fable|mythos|[a-z]+-(?:4[-.][6-9]|[5-9]|\d\d)(?!\d))")
_BUDGETED: Final = re.compile(r"claude-[a-z]+-4[-.]6(?!\d)")

_GEMINI_BUDGETS: Final = [
    (re.compile(r"gemini-2\.5-pro"), 128, 32_768),
    (re.compile(r"gemini-2\.5-flash-lite"), 512, 24_576),
    (re.compile(r"gemini-2\.5-flash"), 0, 24_576),
]


def openai_effort(model: str, common: Common) -> str | None:
    """Return the effort for *model*, None to say nothing; of a model unknown, the words that most servers know."""
    if (level := common.level) is None:
        return None
    name = model.rpartition("/")[2]
    known = next((levels for pattern, levels in _OPENAI if pattern.match(name)), None)
    if known is None:
        return None if level == "off" else _nearest(level, ["minimal", "low", "medium", "high"])
    effort = _nearest(level, known) if known else None
    return "none" if effort == "off" else effort


def claude_thinking(model: str, common: Common) -> dict[str, object]:
    """Return the members that make *model* think so much: a budget, or an effort for models that find their own."""
    if (budget := common.budget) is None or (level := common.level) is None:
        return {}
    if _ADAPTIVE.search(model) is None:
        if not budget:
            return {"thinking": {"type": "disabled"}}
        return {"thinking": {"type": "enabled", "budget_tokens": max(budget, LEAST_THOUGHT)}}
    if level == "off":
        # The newest models know no word for it: they take the least effort, and unasked they think least.
        return {"thinking": {"type": "disabled"}} if not refuses_sampling(model) else {"output_config": _effort("low")}
    taken = ["low", "medium", "high", "max"] if _BUDGETED.search(model) else ["low", "medium", "high", "xhigh", "max"]
    return {"thinking": {"type": "adaptive"}, "output_config": _effort(_nearest(level, taken))}


def _effort(level: str) -> dict[str, object]:
    return {"effort": level}


def refuses_sampling(model: str) -> bool:
    """Say whether *model* is one of Anthropic's that take no temperature and no budget of thought any more."""
    return _ADAPTIVE.search(model) is not None and _BUDGETED.search(model) is None


def gemini_thinking(model: str, common: Common) -> dict[str, object]:
    """Return the thinking configuration of *model*, empty to say nothing: a level for those that have levels."""
    if (budget := common.budget) is None or (level := common.level) is None:
        return {}
    name = model.rpartition("/")[2]
    shown = {"includeThoughts": True} if budget else {}
    if re.match(r"gemini-(?:[3-9]|\d\d)", name):
        taken = ["low", "medium", "high"] if "-pro" in name else ["minimal", "low", "medium", "high"]
        if name.startswith("gemini-3-pro"):
            taken = ["low", "high"]
        return {"thinkingLevel": _nearest(level, taken).upper(), **shown}
    for pattern, least, most in _GEMINI_BUDGETS:
        if pattern.match(name):
            may_be_off = "-pro" not in name
            budget = 0 if not budget and may_be_off else min(max(budget, least), most)
    return {"thinkingBudget": budget, **shown}


def _nearest(level: str, taken: Sequence[str]) -> str:
    """Return the highest of *taken* that is not above *level*, else its lowest; none at all only if that was asked."""
    rank = LEVELS.index(level)
    able = [each for each in taken if each != "off" or level == "off"]
    return next((each for each in reversed(able) if LEVELS.index(each) <= rank), able[0])
