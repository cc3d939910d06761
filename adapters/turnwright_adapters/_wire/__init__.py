"""What the model adapters share on the wire: HTTP exchanges, server-sent events, errors, names."""

from turnwright.context.remembered import Remembered
from turnwright_adapters._wire.answer import Answer, Call, Kind, Words, count, string, table, tables
from turnwright_adapters._wire.caching import openai_cache
from turnwright_adapters._wire.common import LEVELS, Common, take_common
from turnwright_adapters._wire.errors import provider_error, retry_after
from turnwright_adapters._wire.exchange import ApiKey, Timeouts
from turnwright_adapters._wire.json_text import as_object_text, decode, encode, is_object_text
from turnwright_adapters._wire.model import MODALITIES, HttpModel, check_choice, options_of
from turnwright_adapters._wire.names import ToolNames, call_id, is_own_call_id, wire_name
from turnwright_adapters._wire.schemas import closed_form
from turnwright_adapters._wire.sse import ServerSentEvent, SseDecoder
from turnwright_adapters._wire.thinking import (
    LEAST_THOUGHT,
    ROOM,
    Thoughts,
    claude_output,
    claude_thinking,
    gemini_thinking,
    openai_effort,
    refuses_sampling,
    thinks_always,
)
from turnwright_adapters._wire.words import data_url, file_name, plain_text, prompted, result_text, shown_in

__all__ = [
    "LEAST_THOUGHT",
    "LEVELS",
    "MODALITIES",
    "ROOM",
    "Answer",
    "ApiKey",
    "Call",
    "Common",
    "HttpModel",
    "Kind",
    "Remembered",
    "ServerSentEvent",
    "SseDecoder",
    "Thoughts",
    "Timeouts",
    "ToolNames",
    "Words",
    "as_object_text",
    "call_id",
    "check_choice",
    "claude_output",
    "claude_thinking",
    "closed_form",
    "count",
    "data_url",
    "decode",
    "encode",
    "file_name",
    "gemini_thinking",
    "is_object_text",
    "is_own_call_id",
    "openai_cache",
    "openai_effort",
    "options_of",
    "plain_text",
    "prompted",
    "provider_error",
    "refuses_sampling",
    "result_text",
    "retry_after",
    "shown_in",
    "string",
    "table",
    "tables",
    "take_common",
    "thinks_always",
    "wire_name",
]
