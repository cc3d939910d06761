"""What the model adapters share on the wire: HTTP exchanges, server-sent events, errors, names, valid histories."""

from turnwright_adapters._wire.answer import Answer, Call, Kind, Words, count, string, table, tables
from turnwright_adapters._wire.common import Common, take_common
from turnwright_adapters._wire.errors import provider_error, retry_after
from turnwright_adapters._wire.exchange import ApiKey, Timeouts
from turnwright_adapters._wire.history import (
    EARLIER,
    EMPTY_MESSAGE,
    EMPTY_RESULT,
    ONLY_IMAGES,
    Remembered,
    paired,
    plain_text,
    prompted,
)
from turnwright_adapters._wire.json_text import as_object_text, decode, encode, is_object_text
from turnwright_adapters._wire.model import HttpModel, check_choice, options_of
from turnwright_adapters._wire.names import ToolNames, call_id, is_own_call_id, wire_name
from turnwright_adapters._wire.sse import ServerSentEvent, SseDecoder

__all__ = [
    "EARLIER",
    "EMPTY_MESSAGE",
    "EMPTY_RESULT",
    "ONLY_IMAGES",
    "Answer",
    "ApiKey",
    "Call",
    "Common",
    "HttpModel",
    "Kind",
    "Remembered",
    "ServerSentEvent",
    "SseDecoder",
    "Timeouts",
    "ToolNames",
    "Words",
    "as_object_text",
    "call_id",
    "check_choice",
    "count",
    "decode",
    "encode",
    "is_object_text",
    "is_own_call_id",
    "options_of",
    "paired",
    "plain_text",
    "prompted",
    "provider_error",
    "retry_after",
    "string",
    "table",
    "tables",
    "take_common",
    "wire_name",
]
