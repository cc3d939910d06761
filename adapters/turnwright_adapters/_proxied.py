"""What the two sides of the proxy say to each other: the path, the options, the limits, and the schemas of both bodies.

Rule: nothing crosses that is not in these tables. contracts/schemas holds the same schemas as files
(tests/adapters/test_proxy_wire.py).

The request is one JSON object; its messages are written as the journal writes them. The response is lines: one that
begins with `data: ` holds one frame, every other line means nothing. A frame holds only what is new, never the message
so far.

| frame | says |
| --- | --- |
| `start` | the proxy has taken the request |
| `text_start`, `thinking_start` | a block begins at `contentIndex`; `refusal` marks the provider's own |
| `toolcall_start` | as those, with `toolName` and an `id` that holds until the end tells the provider's |
| `text_delta`, `thinking_delta`, `toolcall_delta` | `delta` follows in that block |
| `text_end`, `thinking_end` | the block is whole: `contentSignature`, `redacted`, `refusal` |
| `toolcall_end` | the same, with the `toolCall`; its arguments may be left out, they are what was told |
| `image`, `file` | a block that comes whole |
| `usage` | what was used so far |
| `reset` | drop every block: the answer is told anew |
| `done` | the end: `reason`, `usage`, and who answered; `order` if the blocks are not in the order of their indexes |
| `error` | the other end: `reason`, `errorMessage`, `usage`, and what kind of failure it was |
"""

from __future__ import annotations

from typing import Final, get_args

from turnwright.errors import ModelErrorKind
from turnwright.messages import StopReason, Usage

__all__ = [
    "FAILURES",
    "FRAME_SCHEMA",
    "LARGEST_FRAME",
    "LARGEST_REQUEST",
    "OPTIONS",
    "PATH",
    "REASONS",
    "REQUEST_SCHEMA",
    "SAMPLING",
    "USAGE",
    "VERSION",
    "usage_of",
]

VERSION: Final = 1
"""The version of every frame. A newer one may mean what we don't understand."""

PATH: Final = "/api/stream"

LARGEST_FRAME: Final = 16 * 2**20
"""Bytes of one frame."""

LARGEST_REQUEST: Final = 16 * 2**20
"""Bytes of one request: a whole conversation, with its pictures."""

OPTIONS: Final = {
    "temperature": "temperature",
    "sampling_params": "samplingParams",
    "max_tokens": "maxTokens",
    "thinking_level": "reasoning",
    "cache_retention": "cacheRetention",
    "session_id": "sessionId",
    "headers": "headers",
    "metadata": "metadata",
    "transport": "transport",
    "thinking_budgets": "thinkingBudgets",
    "max_retry_delay_ms": "maxRetryDelayMs",
}
"""The options that cross, by our name and by the wire's. No other does."""

SAMPLING: Final = frozenset(
    {
        "frequency_penalty",
        "min_p",
        "presence_penalty",
        "repetition_penalty",
        "seed",
        "stop",
        "top_k",
        "top_p",
    }
)
"""What `sampling_params` may hold. A client may say how is drawn, never what is asked of whom."""

REASONS: Final = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "refusal": "stop",
    "content_filter": "stop",
}
"""The wire's word for why an answer ended; `stopReason` beside it has ours."""

FAILURES: Final[tuple[ModelErrorKind, ...]] = get_args(ModelErrorKind)

USAGE: Final = {
    "requests": "requests",
    "input": "input_tokens",
    "output": "output_tokens",
    "cacheRead": "cache_read_tokens",
    "cacheWrite": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
    "toolCalls": "tool_calls",
}
"""What was used, by the wire's name and by ours; `totalTokens` beside them is for who wants the sum."""


def usage_of(usage: Usage) -> dict[str, object]:
    """Return *usage* as the wire says it."""
    counts: dict[str, object] = {wire: getattr(usage, ours) for wire, ours in USAGE.items()}
    return counts | {"totalTokens": usage.total_tokens}


def _object(required: str = "", /, **properties: object) -> dict[str, object]:
    """An object of *properties* and no others."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


TEXT: Final = {"type": "string"}
NAME: Final = {"type": "string", "minLength": 1, "maxLength": 200}
TRUE: Final = {"const": True}
COUNT: Final = {"type": "integer", "minimum": 0, "maximum": 2**53}
SECONDS: Final = {"type": "number", "minimum": 0}
MAYBE_TEXT: Final = {"type": ["string", "null"]}
OPEN: Final = {"type": "object"}
USED: Final = _object(**dict.fromkeys(USAGE, COUNT), totalTokens={"type": "integer", "minimum": 0, "maximum": 2**55})

_parts: Final = [
    _object("type text", type={"const": "text"}, text=TEXT, signature=MAYBE_TEXT),
    _object("type media_type", type={"const": "image"}, media_type=TEXT, data=MAYBE_TEXT, url=MAYBE_TEXT),
    _object(
        "type media_type",
        type={"const": "file"},
        media_type=TEXT,
        data=MAYBE_TEXT,
        url=MAYBE_TEXT,
        id=MAYBE_TEXT,
        name=MAYBE_TEXT,
    ),
    _object("type text", type={"const": "reasoning"}, text=TEXT, signature=MAYBE_TEXT, redacted={"type": "boolean"}),
    _object("type text", type={"const": "refusal"}, text=TEXT),
    _object(
        "type id name arguments",
        type={"const": "tool_call"},
        id=TEXT,
        name=TEXT,
        arguments=TEXT,
        signature=MAYBE_TEXT,
    ),
]
_PARTS: Final = {"type": "array", "items": {"oneOf": _parts}}

_messages: Final = [
    _object("role parts", role={"const": "user"}, parts=_PARTS, kind=TEXT, data={}),
    _object(
        "role parts",
        role={"const": "assistant"},
        parts=_PARTS,
        stop_reason={"enum": list(get_args(StopReason))},
        usage=_object(**dict.fromkeys(USAGE.values(), COUNT)),
        model=MAYBE_TEXT,
        provider=MAYBE_TEXT,
        response_id=MAYBE_TEXT,
        raw_stop_reason=MAYBE_TEXT,
        error=MAYBE_TEXT,
    ),
    _object(
        "role parts call_id name",
        role={"const": "tool"},
        parts=_PARTS,
        call_id=TEXT,
        name=TEXT,
        is_error={"type": "boolean"},
    ),
]

_context: Final = _object(
    "messages",
    systemPrompt=TEXT,
    messages={"type": "array", "items": {"oneOf": _messages}},
    tools={
        "type": "array",
        "items": _object("name description parameters", name=NAME, description=TEXT, parameters=OPEN),
    },
    toolChoice=NAME,
    output=_object("name schema", name=NAME, schema=OPEN),
)

_options: Final = _object(
    temperature={"type": "number"},
    samplingParams={"type": "object", "propertyNames": {"enum": sorted(SAMPLING)}},
    maxTokens=COUNT,
    reasoning={"enum": ["off", "minimal", "low", "medium", "high", "xhigh", "max"]},
    cacheRetention={"enum": ["none", "short", "long"]},
    sessionId=NAME,
    headers={"type": "object", "additionalProperties": MAYBE_TEXT},
    metadata=OPEN,
    transport={"enum": ["auto", "sse", "json"]},
    thinkingBudgets={"type": "object", "additionalProperties": COUNT},
    maxRetryDelayMs=COUNT,
)

REQUEST_SCHEMA: Final[dict[str, object]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The body of POST /api/stream",
    **_object(
        "model context options",
        model={"type": "object", "properties": {"id": NAME}, "required": ["id"]},
        context=_context,
        options=_options,
    ),
}


def _frame(kind: str, required: str = "", /, **properties: object) -> dict[str, object]:
    shared = {"v": {"const": VERSION}, "seq": {"type": "integer", "minimum": 1}}
    return _object(f"type v seq {required}", type={"const": kind}, **shared, **properties)


_at: Final = {"contentIndex": COUNT}
_call: Final = _object("id name", id=TEXT, name=TEXT, arguments=TEXT, signature=TEXT)
_image: Final = _object("mediaType", mediaType=TEXT, data=TEXT, url=TEXT)
_file: Final = _object("mediaType", mediaType=TEXT, data=TEXT, url=TEXT, id=TEXT, name=TEXT)

FRAME_SCHEMA: Final[dict[str, object]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "One frame of the response to POST /api/stream",
    "oneOf": [
        _frame("start"),
        _frame("text_start", "contentIndex", **_at, refusal=TRUE),
        _frame("text_delta", "contentIndex delta", **_at, delta=TEXT),
        _frame("text_end", "contentIndex", **_at, contentSignature=TEXT, refusal=TRUE),
        _frame("thinking_start", "contentIndex", **_at),
        _frame("thinking_delta", "contentIndex delta", **_at, delta=TEXT),
        _frame("thinking_end", "contentIndex", **_at, contentSignature=TEXT, redacted=TRUE),
        _frame("toolcall_start", "contentIndex id toolName", **_at, id=TEXT, toolName=TEXT),
        _frame("toolcall_delta", "contentIndex delta", **_at, delta=TEXT),
        _frame("toolcall_end", "contentIndex toolCall", **_at, toolCall=_call),
        _frame("image", "contentIndex image", **_at, image=_image),
        _frame("file", "contentIndex file", **_at, file=_file),
        _frame("usage", "usage", usage=USED),
        _frame("reset"),
        _frame(
            "done",
            "reason usage",
            reason={"enum": sorted(set(REASONS.values()))},
            stopReason={"enum": sorted(REASONS)},
            usage=USED,
            model=TEXT,
            provider=TEXT,
            responseId=TEXT,
            rawStopReason=TEXT,
            order={"type": "array", "items": COUNT},
        ),
        _frame(
            "error",
            "reason errorMessage usage",
            reason={"enum": ["aborted", "error"]},
            errorMessage=TEXT,
            usage=USED,
            kind={"enum": sorted(FAILURES)},
            retryable={"type": "boolean"},
            retryAfter=SECONDS,
            status={"type": "integer", "minimum": 100, "maximum": 599},
            dispatched={"type": "boolean"},
        ),
    ],
}
