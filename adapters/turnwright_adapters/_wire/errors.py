"""What a provider's error means. Rule: codes are believed first, then the words, then the status."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, get_args

from turnwright.canonical import well_formed
from turnwright.errors import ModelError, ModelErrorKind
from turnwright_adapters._wire.json_text import decode, encode

LONGEST_MESSAGE: Final = 4_000
"""Characters of an error's message."""

_RETRYABLE: Final = frozenset({"rate_limit", "overloaded", "timeout", "connection", "malformed", "internal"})


_KINDS: Final[tuple[ModelErrorKind, ...]] = get_args(ModelErrorKind)


def _codes(**codes: str) -> dict[str, ModelErrorKind]:
    return {code: kind for kind in _KINDS for code in codes.get(kind, "").split()}


_BY_CODE: Final = _codes(
    context_overflow="""
        context_length_exceeded model_context_window_exceeded exceed_context_size_error request_too_large
    """,
    quota="""
        insufficient_quota billing_error billing_hard_limit_reached billing_not_active insufficient_balance
        exceeded_current_quota_error
    """,
    rate_limit="""
        rate_limit_exceeded rate_limit_error rate_limit rate_limited rate_limit_reached_error too_many_requests
        resource_exhausted
    """,
    overloaded="""
        overloaded_error overloaded engine_overloaded engine_overloaded_error server_overloaded unavailable
        unavailable_error service_unavailable service_unavailable_error
    """,
    timeout="timeout timeout_error request_timeout deadline_exceeded",
    auth="""
        invalid_api_key api_key_invalid authentication_error invalid_authentication_error permission_error
        permission_denied unauthenticated
    """,
    content_filter="content_filter content_policy_violation responsibleaipolicyviolation",
)

_BY_VAGUE_CODE: Final = _codes(
    internal="server_error internal_error internal_server_error api_error internal upstream_error",
    invalid_request="invalid_request_error invalid_request invalid_argument not_found not_found_error model_not_found",
)
"""Codes that say little: the words and the status are asked first."""


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_BY_WORDS: Final[dict[ModelErrorKind, re.Pattern[str]]] = {
    "quota": _any(
        r"insufficient[ _](?:quota|balance|credit|funds)",
        r"quota exceeded|exceeded your current quota|monthly (?:usage )?limit",
        r"your plan and billing|billing (?:hard )?limit|payment required",
        r"out of budget|available balance|credit balance",
    ),
    "rate_limit": _any(
        r"rate[ _-]?limit|too many requests|throttl",
        r"(?:tokens|requests) per (?:minute|second|hour|day)",
    ),
    "overloaded": _any(r"overloaded|service unavailable|at capacity|server is busy|loading model"),
    "context_overflow": _any(
        r"(?:prompt|input) (?:is )?too long|too many tokens|token limit exceeded|exceeded model token limit",
        r"exceeds? (?:the |this |our )?(?:model'?s? )?(?:available |maximum |max |allowed )*(?:input |prompt )?"
        r"(?:context|input length|prompt length)",
        r"exceeds? (?:the )?limit of \d|input token count|request_too_large|request entity too large",
        r"max(?:imum)? (?:context|prompt) length|maximum allowed input length|range of input length should be",
        r"context[ _](?:window|length|size)[ _]exceed|(?:longer|greater) than the (?:model'?s? )?context",
        r"configured context size|too large for (?:the )?model|reduce the length of",
    ),
    "content_filter": _any(r"content[ _]filter|content management policy|content policy|safety system"),
    "timeout": _any(r"timed out|timeout"),
    "connection": _any(r"disconnect|connection (?:error|reset|refused|closed|lost)|upstream connect|socket hang up"),
}

_TELLING: Final[dict[ModelErrorKind, Sequence[int]]] = {
    "quota": (400, 401, 403, 404, 422, 429),
    "context_overflow": (400, 404, 413, 422, *range(500, 600)),
    "content_filter": (400, 403, 422),
    "overloaded": range(500, 600),
    "timeout": range(500, 600),
}
"""Under which statuses the words of an error are believed: one of 429 about too many tokens is never an overflow."""

_BY_STATUS: Final[dict[int, ModelErrorKind]] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "timeout",
    409: "internal",
    413: "context_overflow",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}


def provider_error(
    provider: str, payload: object, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ModelError:
    """Return what an error means. *payload* is the body's bytes, or the decoded object of an error inside a stream."""
    empty = isinstance(payload, bytes) and not payload.strip()
    message, codes, delay = _read_error(_decoded(payload) if isinstance(payload, bytes) else payload)
    if status is None:
        status = next((int(code) for code in codes if _STATUS.fullmatch(code)), None)
    headers = headers or {}
    wait = retry_after(headers)
    if wait is None:
        wait = delay
    kind = _kind(message[:LONGEST_MESSAGE].lower(), codes, status, delayed=wait is not None, empty=empty)
    retryable = kind in _RETRYABLE
    if (told := headers.get("x-should-retry", "").lower()) in {"true", "false"}:
        retryable = told == "true"
    head = f"{provider} answered {status}" if status is not None else f"{provider} reported an error"
    return ModelError(
        kind,
        well_formed(f"{head}: {message}" if message else head)[:LONGEST_MESSAGE],
        retryable=retryable,
        retry_after=wait,
        status=status,
    )


_STATUS: Final = re.compile(r"[45]\d\d")


def _kind(words: str, codes: Sequence[str], status: int | None, *, delayed: bool, empty: bool) -> ModelErrorKind:
    for code in codes:
        if code in _BY_CODE:
            return _BY_CODE[code]
    if empty and status == 400:  # some servers say no more than this of a prompt that is too long
        return "context_overflow"
    for kind, pattern in _BY_WORDS.items():
        if pattern.search(words):
            if status is None or status in _TELLING.get(kind, ()):
                # A quota that comes back by itself is a rate.
                return "rate_limit" if kind == "quota" and delayed else kind
            break
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None:
        return "internal" if status >= 500 else "invalid_request"
    for code in codes:
        if code in _BY_VAGUE_CODE:
            return _BY_VAGUE_CODE[code]
    return "internal"


def _decoded(body: bytes) -> object:
    try:
        return decode(body)
    except ValueError:
        return body.decode(errors="replace")


def _read_error(payload: object) -> tuple[str, list[str], float | None]:
    """Return the message, the codes in lower case, and the delay that the body asks for."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if isinstance(payload, str):
        page = payload.lstrip()[:15].lower()
        return ("an HTML page" if page.startswith(("<!doctype", "<html")) else payload.strip()), [], None
    if not isinstance(payload, dict):
        return "", [], None
    inner = payload.get("error") or payload.get("detail") or payload
    if isinstance(inner, dict):
        message = inner.get("message") or inner.get("detail")
        codes = [str(inner[key]).lower() for key in ("code", "type", "status") if inner.get(key)]
        details = inner.get("details")
        told = [each.get("reason") for each in details if isinstance(each, dict)] if isinstance(details, list) else ()
        codes += [reason.lower() for reason in told if isinstance(reason, str)]  # Google's only word for a bad key
        return message if isinstance(message, str) else encode(inner).decode(), codes, _retry_info(details)
    codes = [str(payload[key]).lower() for key in ("code", "type", "status") if payload.get(key)]
    return inner if isinstance(inner, str) else encode(inner).decode(), codes, None


def _retry_info(details: object) -> float | None:
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(delay := detail.get("retryDelay"), str):
            return _seconds(delay.removesuffix("s"))
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait, None if it asks nothing that can be understood.

    `retry-after-ms` comes before `retry-after`, which is in seconds or a date; a date in the past is 0.
    """
    if (milliseconds := _seconds(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    if (seconds := _seconds(value)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time())


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
