"""What the model adapters share on the wire: HTTP exchanges, server-sent events, errors, names, valid histories."""

from turnwright_adapters._wire.errors import provider_error, retry_after
from turnwright_adapters._wire.exchange import (
    ApiKey,
    Http,
    Reply,
    Timeouts,
    authorization,
    is_transport_failure,
    wire_headers,
)
from turnwright_adapters._wire.history import Remembered, paired
from turnwright_adapters._wire.json_text import as_object_text, decode, encode, is_object_text
from turnwright_adapters._wire.names import ToolNames, call_id, wire_name
from turnwright_adapters._wire.sse import ServerSentEvent, SseDecoder

__all__ = [
    "ApiKey",
    "Http",
    "Remembered",
    "Reply",
    "ServerSentEvent",
    "SseDecoder",
    "Timeouts",
    "ToolNames",
    "as_object_text",
    "authorization",
    "call_id",
    "decode",
    "encode",
    "is_object_text",
    "is_transport_failure",
    "paired",
    "provider_error",
    "retry_after",
    "wire_headers",
    "wire_name",
]
