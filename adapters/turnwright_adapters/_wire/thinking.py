"""How much a model shall think, in the words that it takes: those of its card, or those that go with its name.

Rule: never more thought than was asked for, but for the least that the model takes (tests/adapters/test_thinking.py).

What goes with a name was read in November 2026 from the providers' own pages: OpenAI's reasoning guide and the pages of
its models (developers.openai.com/api/docs/guides/reasoning), Anthropic's pages on thinking, on effort and on what is
new in each model (platform.claude.com/docs/en/build-with-claude/effort), and Google's on thinking
(ai.google.dev/gemini-api/docs/thinking). A newer model than those is taken to have the words that all of them share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from turnwright_adapters._wire.common import LEVELS, Common

__all__ = [
    "LEAST_THOUGHT",
    "ROOM",
    "Thoughts",
    "claude_output",
    "claude_thinking",
    "gemini_thinking",
    "openai_effort",
    "refuses_sampling",
    "thinks_always",
]

Thoughts: TypeAlias = Mapping[str, str | int]
"""The provider's word or budget for each level that a model takes; of a model that does not think, none."""

LEAST_THOUGHT: Final = 1024
"""Tokens of thought that Anthropic takes at least."""

ROOM: Final = 8192
"""Tokens of an answer to which nothing else was said, for a dialect that wants a number."""

_OPENAI: Final = [
    (re.compile(pattern), levels.split())
    for pattern, levels in [
        (r"gpt-(?:3|4)|chatgpt|gpt.*-chat|o1-(?:mini|preview)", ""),  # they refuse to be asked
        (r"o\d|gpt-oss|gpt-5-codex|gpt-5\.1-codex(?!-max)", "low medium high"),
        (r"gpt-5-pro", "high"),
        (r"gpt-5\.\d+-pro", "medium high xhigh"),
        (r"gpt-5(?![.\d])", "minimal low medium high"),
        (r"gpt-5\.\d-codex", "low medium high xhigh"),
        (r"gpt-5\.1(?!\d)", "off low medium high"),
        (r"gpt-5\.[2-5](?!\d)", "off low medium high xhigh"),
        (r"gpt-5\.\d|gpt-6-(?:sol|luna)", "off low medium high xhigh max"),
        (r"gpt-\d", "low medium high xhigh max"),  # since gpt-6-astra thinking cannot be put off
    ]
]
"""What OpenAI's models take, the first that fits."""

_ADAPTIVE: Final = re.compile(r"claude-(?:fable|mythos|[a-z]+-(?:4[-.][6-9]|[5-9]|\d\d)(?!\d))")
_BUDGETED: Final = re.compile(r"claude-[a-z]+-4[-.]6(?!\d)")
_NO_XHIGH: Final = re.compile(r"claude-(?:[a-z]+-4[-.]6(?!\d)|mythos-preview)")
_THOUGHTLESS: Final = re.compile(r"claude-(?:2|instant|v\d|3(?![-.]7))")

_CLAUDE_OFF: Final = [
    (re.compile(r"claude-[a-z]+-4[-.][6-9](?!\d)"), "disabled"),
    (re.compile(r"claude-(?:opus|sonnet)-5(?![-.]\d(?!\d))|claude-haiku-5[-.]5(?!\d)"), "disabled"),
    (re.compile(r"claude-sonnet-5[-.]5(?!\d)"), "between_tools"),
]
"""Who takes which word for no thought. Those that always think take the least effort in its place."""

_CLAUDE_OUTPUT: Final = [
    (re.compile(r"claude-opus-4(?:[-.][01])?(?![-.]?\d(?!\d))"), 32_000),
    (re.compile(r"claude-(?:3[-.]7|[a-z]+-4(?:[-.][05])?(?![-.]?\d(?!\d)))"), 64_000),
    (_ADAPTIVE, 128_000),
]
"""Tokens of thought and answer together, at most."""

_GEMINI_BUDGETS: Final = [
    (re.compile(r"gemini-2\.5-pro"), 128, 32_768),
    (re.compile(r"gemini-2\.5-flash-lite"), 512, 24_576),
    (re.compile(r"gemini-2\.5-flash"), 0, 24_576),
]

_GEMINI_LEVELS: Final = [
    (re.compile(pattern), levels.split())
    for pattern, levels in [
        (r"gemini-3-pro", "low high"),
        (r"gemini-3(?:\.[1-6])?-flash", "minimal low medium high"),
        (r"gemini-(?:[3-9]|\d\d)|gemini-[a-z-]+-latest", "low medium high"),
    ]
]
"""What Google's models take that have levels, the first that fits."""

_GEMINI_THOUGHTLESS: Final = re.compile(r"gemini-(?:1|2\.0|pro(?!-latest))|gemma|.*-(?:image|tts|live|embedding)")


def openai_effort(model: str, common: Common, thoughts: Thoughts | None = None) -> str | None:
    """Return the effort for *model*, None to say nothing; of a model unknown, the words that most servers know."""
    if (level := common.level) is None:
        return None
    if thoughts is not None:
        return str(thoughts[_nearest(level, list(thoughts))]) if thoughts else None
    name = model.rpartition("/")[2].removeprefix("ft:")
    known = next((levels for pattern, levels in _OPENAI if pattern.match(name)), None)
    if known is None:
        return None if level == "off" else _nearest(level, ["low", "medium", "high"])
    effort = _nearest(level, known) if known else None
    return "none" if effort == "off" else effort


def claude_thinking(
    model: str, common: Common, thoughts: Thoughts | None = None, *, answer: int = ROOM
) -> dict[str, object]:
    """Return the members that make *model* think so much: a budget, or an effort for models that find their own.

    A budget leaves room for an *answer* of so many tokens in what the model says at most.
    """
    if (budget := common.budget) is None or (level := common.level) is None:
        return {}
    if thoughts is not None:
        return _claude_by_card(model, level, thoughts, answer) if thoughts else {}
    if _THOUGHTLESS.search(model) is not None:
        return {}
    if _ADAPTIVE.search(model) is None:
        return _claude_budget(model, budget, answer)
    if level == "off":
        word = next((word for pattern, word in _CLAUDE_OFF if pattern.search(model)), None)
        # Unasked these think as little as their effort lets them.
        return {"output_config": {"effort": "low"}} if word is None else {"thinking": {"type": word}}
    taken = ["low", "medium", "high", "max"] if _NO_XHIGH.search(model) else ["low", "medium", "high", "xhigh", "max"]
    return _claude_effort(_nearest(level, taken))


def _claude_by_card(model: str, level: str, thoughts: Thoughts, answer: int) -> dict[str, object]:
    taken = _nearest(level, list(thoughts))
    word = thoughts[taken]
    if isinstance(word, int):
        return _claude_budget(model, word, answer)
    return {"thinking": {"type": word}} if taken == "off" else _claude_effort(word)


def _claude_effort(effort: str) -> dict[str, object]:
    return {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}}


def _claude_budget(model: str, budget: int, answer: int) -> dict[str, object]:
    if not budget:
        return {"thinking": {"type": "disabled"}}
    if (most := claude_output(model)) is not None:
        budget = min(budget, most - answer)
    return {"thinking": {"type": "enabled", "budget_tokens": max(budget, LEAST_THOUGHT)}}


def claude_output(model: str) -> int | None:
    """Return how many tokens *model* says at most, thoughts and answer together; None is not known."""
    return next((most for pattern, most in _CLAUDE_OUTPUT if pattern.search(model)), None)


def refuses_sampling(model: str) -> bool:
    """Say whether *model* is one of Anthropic's that take no temperature and no budget of thought any more."""
    return _ADAPTIVE.search(model) is not None and _BUDGETED.search(model) is None


def thinks_always(model: str) -> bool:
    """Say whether *model* is one of Anthropic's that cannot be kept from thinking, and so from choosing its tools."""
    return _ADAPTIVE.search(model) is not None and not any(pattern.search(model) for pattern, _ in _CLAUDE_OFF)


def gemini_thinking(model: str, common: Common, thoughts: Thoughts | None = None) -> dict[str, object]:
    """Return the thinking configuration of *model*, empty to say nothing: a level for those that have levels."""
    if (budget := common.budget) is None or (level := common.level) is None:
        return {}
    shown = {"includeThoughts": True} if budget else {}
    if thoughts is not None:
        word = thoughts[_nearest(level, list(thoughts))] if thoughts else None
        match word:
            case None:
                return {}
            case int():
                return {"thinkingBudget": word, **shown}
            case _:
                return {"thinkingLevel": word.upper(), **shown}
    name = model.rpartition("/")[2]
    if _GEMINI_THOUGHTLESS.match(name):
        return {}
    if (taken := next((levels for pattern, levels in _GEMINI_LEVELS if pattern.match(name)), None)) is not None:
        return {"thinkingLevel": _nearest(level, taken).upper(), **shown}
    for pattern, least, most in _GEMINI_BUDGETS:
        if pattern.match(name):
            may_be_off = "-pro" not in name
            budget = 0 if not budget and may_be_off else min(max(budget, least), most)
            break
    return {"thinkingBudget": budget, **shown}


def _nearest(level: str, taken: Sequence[str]) -> str:
    """Return the highest of *taken* that is not above *level*, else its lowest; none at all only if that was asked."""
    ranks = sorted([LEVELS.index(each) for each in taken if each != "off" or level == "off"] or [0])
    rank = LEVELS.index(level)
    return LEVELS[max([each for each in ranks if each <= rank], default=ranks[0])]
