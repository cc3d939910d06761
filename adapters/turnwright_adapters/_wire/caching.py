"""How OpenAI's cache shall hold a request, in the words that its model takes. They are found by its name.

Rule: never both of its words, which it refuses. `prompt_cache_retention` is deprecated from GPT-5.6 on, where
`prompt_cache_options` takes its place; models before know the old word alone (tests/adapters/test_common_options.py).

Source: https://developers.openai.com/api/docs/guides/prompt-caching, and the request types of OpenAI's SDK 3.57.
"""

from __future__ import annotations

import re
from typing import Final

from turnwright_adapters._wire.common import Common

__all__ = ["openai_cache"]

_WORDS: Final = frozenset({"prompt_cache_options", "prompt_cache_retention"})
_VERSION: Final = re.compile(r"(?:^|[/:])gpt-(\d+)(?:\.(\d+))?")


def openai_cache(model: str, common: Common, options: dict[str, object], *, longest: str) -> None:
    """Add to *options* what *common* says of the cache; *longest* is how long the dialect keeps it at most.

    `none` writes nothing where writing has its price: there it is automatic, and asked for by breakpoints alone it
    does not happen. `short` is how it is anyhow.
    """
    if common.cache_key is not None:
        options.setdefault("prompt_cache_key", common.cache_key)
    if common.cache_retention not in {"none", "long"} or options.keys() & _WORDS:
        return
    kept = common.cache_retention == "long"
    version = _VERSION.search(model)
    if version is not None and (int(version[1]), int(version[2] or 0)) >= (5, 6):
        options["prompt_cache_options"] = {"ttl": longest} if kept else {"mode": "explicit"}
    elif kept:
        options["prompt_cache_retention"] = "24h"
