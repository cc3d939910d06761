"""A server on the loopback that speaks Chat Completions and says, piece by piece, what a function gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

Messages: TypeAlias = Sequence[Mapping[str, str]]


@contextmanager
def serving(answer: Callable[[Messages], Iterable[str]]) -> Iterator[str]:
    """Serve on a free port, each request with the pieces that *answer* gives for its messages. Gives the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            with suppress(ConnectionError):  # whoever asked may have gone
                for piece in answer(body["messages"]):
                    self._say({"delta": {"content": piece}})
                self._say({"delta": {}, "finish_reason": "stop"})
                self.wfile.write(b"data: [DONE]\n\n")

        def _say(self, choice: dict[str, object]) -> None:
            chunk = json.dumps({"choices": [{"index": 0, **choice}]})
            self.wfile.write(f"data: {chunk}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join(10)
