"""Server-sent events from bytes.

Rule: how the bytes were cut on their way changes nothing (tests/adapters/test_sse.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from turnwright.errors import ModelError

LARGEST_EVENT: Final = 4 * 2**20
"""Bytes of one event, and so of one line."""


class ServerSentEvent(NamedTuple):
    """One event with data: its name, empty if it has none, and the data's bytes."""

    event: str
    data: bytes


class SseDecoder:
    """Decodes server-sent events from bytes that come in pieces of any size; the events do not depend on the pieces.

    By the WHATWG rules (HTML, section 9.2.6): lines end with CR, LF or CRLF and with nothing else, an event ends with
    an empty line, comments and events without data give nothing. One leniency: `close` gives the last event even if
    its empty line never came. ModelError for an event of more than *largest* bytes.
    """

    def __init__(self, *, largest: int = LARGEST_EVENT) -> None:
        self.last_event_id = ""
        self._largest = largest
        self._rest = bytearray()
        self._after_cr = False
        self._at_start = True
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that *chunk* completes."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest += chunk
            self._bound(len(self._rest))
            return []
        if self._rest:
            chunk = bytes(self._rest) + chunk
            self._rest.clear()
        lines = chunk.splitlines()  # of bytes: at CR, LF and CRLF only
        if not chunk.endswith((b"\n", b"\r")):
            self._rest += lines.pop()
        self._after_cr = chunk.endswith(b"\r")
        events: list[ServerSentEvent] = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                self._dispatch(events)
            else:
                self._event = ""
        self._bound(self._size + len(self._rest))
        return events

    def close(self) -> list[ServerSentEvent]:
        """Return the last event if the stream ended without its empty line."""
        events: list[ServerSentEvent] = []
        if self._rest:
            self._take(bytes(self._rest))
            self._rest.clear()
        if self._data:
            self._dispatch(events)
        return events

    def _take(self, line: bytes) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.startswith(b"data: "):
            value = line[6:]
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name != b"data":
                if name == b"event":
                    self._event = value.decode(errors="replace")
                elif name == b"id" and b"\0" not in value:
                    self.last_event_id = value.decode(errors="replace")
                return
        self._data.append(value)
        self._size += len(value) + 1
        self._bound(self._size)

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        if data:
            events.append(ServerSentEvent(self._event, data))
        self._event = ""
        self._data.clear()
        self._size = 0

    def _bound(self, size: int) -> None:
        if size > self._largest:
            raise ModelError("malformed", f"a server-sent event of more than {self._largest} bytes")
