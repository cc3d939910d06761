"""The vendors' own SDKs as judges: their request types say what a body may be.

Rule: an SDK passes a member that it does not know in silence, so a body is taken only if it comes back whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from anthropic.types.message_create_params import MessageCreateParams
from google.genai import types as google
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses.response_create_params import ResponseCreateParams
from pydantic import TypeAdapter

from tests.adapters.chat import Object

__all__ = ["JUDGES"]

_TYPES: dict[str, object] = {
    "chat": CompletionCreateParams,
    "responses": ResponseCreateParams,
    "anthropic": MessageCreateParams,
}


@cache
def _adapter(dialect: str) -> TypeAdapter[object]:
    return TypeAdapter(_TYPES[dialect])


def _typed(dialect: str, body: Object) -> Object:
    taken = _whole(_adapter(dialect).validate_python(body))
    assert isinstance(taken, dict)
    return taken


def _anthropic(body: Object) -> Object:
    """Set the sampling aside, which callers send to older models and the newest types leave out."""
    sampling = {name: body[name] for name in ("temperature", "top_p") if name in body}
    return sampling | _typed("anthropic", {name: value for name, value in body.items() if name not in sampling})


def _whole(value: object) -> object:
    """Return *value* with what pydantic reads late read now: a stream of members is judged as it is read."""
    match value:
        case Mapping():
            return {key: _whole(each) for key, each in value.items()}
        case str() | bytes():
            return value
        case Iterable():
            return [_whole(each) for each in value]
        case _:
            return value


def _google(body: Object) -> Object:
    """Read *body* as the SDK's models, which refuse what they do not know, and write it again."""
    rest = dict(body)
    config: dict[str, Any] = {**rest.pop("generationConfig", {})}
    contents = rest.pop("contents")
    names = set(config)
    read = google.GenerateContentConfig.model_validate({**config, **rest})
    told = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    again: Object = {"contents": [_said(google.Content.model_validate(content)) for content in contents]}
    if names:
        again["generationConfig"] = {name: told.pop(name) for name in names}
    return {**again, **told}


def _said(content: google.Content) -> object:
    return content.model_dump(mode="json", by_alias=True, exclude_unset=True)


JUDGES = {
    "chat": lambda body: _typed("chat", body),
    "responses": lambda body: _typed("responses", body),
    "anthropic": _anthropic,
    "gemini": _google,
}
"""What each dialect's SDK makes of a body: the body, or an error that names what it does not take."""
