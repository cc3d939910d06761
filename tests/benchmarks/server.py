"""A model's server for the benchmarks, in a process of its own: `python -m tests.benchmarks.server`.

It speaks just enough HTTP for one client at a time. The path says what to do: `/tools/N/...` answers with N tool calls
and then with text, over and over; `/chunks/N/...` streams an answer of N events, each in a packet of its own;
`/DIALECT/N/...` streams N pieces of text in that dialect as fast as they are read.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["serving"]

PAUSE = 0.0002
"""Seconds between two packets, so that the client reads each by itself."""


@contextmanager
def serving() -> Iterator[str]:
    """Serve until the end of the block; give the server's address."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.benchmarks.server"]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # which is what it waits for


def main() -> None:
    """Serve until standard input ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    print(f"http://{host}:{port}", flush=True)
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    sys.stdin.read()


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve, args=(connection,), daemon=True).start()


_asked = 0


def _serve(connection: socket.socket) -> None:
    global _asked  # noqa: PLW0603 - one client at a time
    with connection, connection.makefile("rb") as stream:
        while line := stream.readline():
            _, what, number, *_ = line.split()[1].decode().split("/")
            length = 0
            while header := stream.readline().strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            stream.read(length)
            if what == "tools":
                last = _asked % (int(number) + 1) == int(number)
                _asked += 1
                connection.sendall(_whole(ANSWER if last else CALL))
            elif what in DIALECTS:
                _pour(connection, what, int(number))
            else:
                _stream(connection, int(number))


def _reply(message: dict[str, object], finish: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    reply = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(reply).encode()


CALL = _reply(
    {
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
        ],
    },
    "tool_calls",
)
ANSWER = _reply({"content": "3"}, "stop")


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def _stream(connection: socket.socket, number: int) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    piece = _packet(_sse(_chat({"content": "token "}, None)))
    for _ in range(number - 1):
        connection.sendall(piece)
        time.sleep(PAUSE)
    connection.sendall(_packet(_sse(_chat({}, "stop"))))
    connection.sendall(_packet(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _pour(connection: socket.socket, dialect: str, number: int) -> None:
    first, piece, last = [_packed([_sse(each) for each in payloads]) for payloads in DIALECTS[dialect]]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    connection.sendall(head + first)
    for _ in range(number):
        connection.sendall(piece)
    connection.sendall(last + b"0\r\n\r\n")


def _packed(events: list[bytes]) -> bytes:
    return _packet(b"".join(events)) if events else b""  # an empty packet would end the body


def _sse(payload: dict[str, object]) -> bytes:
    name = f"event: {payload['type']}\n" if "type" in payload else ""
    return f"{name}data: {json.dumps(payload)}\n\n".encode()


def _chat(delta: dict[str, object], finish: str | None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _gemini(text: str, **more: object) -> dict[str, object]:
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **more}]}


_ITEM: dict[str, object] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}

DIALECTS: dict[str, tuple[list[dict[str, object]], list[dict[str, object]], list[dict[str, object]]]] = {
    "chat": ([_chat({"role": "assistant"}, None)], [_chat({"content": "token "}, None)], [_chat({}, "stop")]),
    "anthropic": (
        [
            {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 9, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        ],
        [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "token "}}],
        [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ],
    ),
    "responses": (
        [{"type": "response.created", "response": {"id": "r1", "model": "m", "status": "in_progress"}}],
        [{"type": "response.output_text.delta", **_ITEM, "delta": "token "}],
        [{"type": "response.completed", "response": {"id": "r1", "model": "m", "status": "completed", "output": []}}],
    ),
    "gemini": ([], [_gemini("token ")], [_gemini("end", finishReason="STOP")]),
}
"""The events with which each dialect begins, goes on and ends."""


def _packet(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


if __name__ == "__main__":
    main()
