r"""An HTTP server on the loopback that plays byte streams as scripted, with faults, spoken by asyncio alone.

::

    async with ByteServer([RawReply(b"data: [DONE]\n\n", cut_at=7)]) as server:
        model = ChatCompletionsModel("m", base_url=server.url)
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Self

from attrs import field, frozen

__all__ = ["ByteServer", "RawReply", "SeenRequest"]


@frozen
class SeenRequest:
    """A request as it came. *connection* counts the connections of the server from 1; header names are in lower
    case.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> object:
        """The body, decoded."""
        return json.loads(self.body)


def _pieces(body: bytes | Sequence[bytes]) -> tuple[bytes, ...]:
    return (body,) if isinstance(body, bytes) else tuple(body)


@frozen
class RawReply:
    """What one request is answered with; without faults an ordinary response.

    *body* is one piece or several, and each is sent on its own; *split* cuts them into pieces of that many bytes.
    After *cut_at* bytes of the body the connection is closed (by *reset* with a TCP reset); after *stall_at* bytes
    nothing more is sent and the connection stays open. *drop* closes it before the first byte of the head, *silent*
    sends none and leaves it open. *keep_open* sends the whole body and never its end. *framing* tells how the client
    finds the end: by chunks, by a content length, or by the end of the connection.
    """

    body: tuple[bytes, ...] = field(default=(), converter=_pieces)
    status: int = 200
    headers: Mapping[str, str] = field(factory=lambda: {"content-type": "text/event-stream"})
    split: int | None = None
    cut_at: int | None = None
    stall_at: int | None = None
    keep_open: bool = False
    drop: bool = False
    silent: bool = False
    reset: bool = False
    framing: Literal["chunked", "length", "close"] = "chunked"


class ByteServer:
    """Answers each request with the next of *replies*, or with what the function *replies* gives for it.

    The last reply of a list answers all later requests too. Inside its context `url` is its address; what came is in
    `requests`, and `connections` counts those that were ever opened. Leaving the context closes every connection.
    """

    def __init__(self, replies: Iterable[RawReply] | Callable[[SeenRequest], RawReply]) -> None:
        self.url = ""
        self.requests: list[SeenRequest] = []
        self.connections = 0
        self._replies = replies if callable(replies) else _in_turn(list(replies))
        self._open: set[asyncio.StreamWriter] = set()
        self._handlers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        # A connection that is being accepted while its server closes is never closed itself (an old fault of
        # asyncio), so we stop accepting first and let what was accepted arrive.
        for listening in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        for _ in range(3):
            await asyncio.sleep(0)
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        if self._handlers:
            await asyncio.wait(self._handlers, timeout=10.0)

    @property
    def open_connections(self) -> int:
        """How many connections are open now."""
        return len(self._open)

    async def until(self, holds: Callable[[], bool], *, within: float = 10.0) -> None:
        """Wait until *holds*, asked whenever a request comes or a connection opens or closes. TimeoutError if late."""
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(holds)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        handler = asyncio.create_task(self._serve(self.connections, reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._tell()
            while (request := await _read(reader, connection)) is not None:
                self.requests.append(request)
                await self._tell()
                if not await _play(self._replies(request), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._open.discard(writer)
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _in_turn(replies: list[RawReply]) -> Callable[[SeenRequest], RawReply]:
    if not replies:
        raise ValueError("a ByteServer needs a reply")
    left = iter(replies)
    return lambda _: next(left, replies[-1])


async def _read(reader: asyncio.StreamReader, connection: int) -> SeenRequest | None:
    """Return the next request of a connection, None if the client has closed it."""
    if not (line := await reader.readline()):
        return None
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return SeenRequest(method, path, headers, body, connection)


async def _play(reply: RawReply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send *reply*; return whether the connection can take another request."""
    if reply.drop:
        return _closed(reply, writer)
    if reply.silent:
        return await _left(reader)
    framing = {
        "chunked": {"transfer-encoding": "chunked"},
        "length": {"content-length": str(sum(map(len, reply.body)))},
        "close": {"connection": "close"},
    }[reply.framing]
    head = "".join(f"{name}: {value}\r\n" for name, value in {**reply.headers, **framing}.items())
    writer.write(f"HTTP/1.1 {reply.status} Scripted\r\n{head}\r\n".encode("latin-1"))
    left = min((limit for limit in (reply.cut_at, reply.stall_at) if limit is not None), default=None)
    for piece in _split(reply.body, reply.split):
        part = piece if left is None else piece[:left]
        if part:
            writer.write(b"%x\r\n%b\r\n" % (len(part), part) if reply.framing == "chunked" else part)
            await writer.drain()
            await asyncio.sleep(0)  # so that each piece is a packet of its own
        if left is not None:
            left -= len(part)
            if not left:
                break
    if left is not None and reply.cut_at is not None:
        return _closed(reply, writer)
    if left is not None or reply.keep_open:
        return await _left(reader)
    if reply.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return reply.framing != "close"


def _split(body: Sequence[bytes], size: int | None) -> Iterable[bytes]:
    if size is None:
        return body
    return [piece[start : start + size] for piece in body for start in range(0, len(piece), size)]


async def _left(reader: asyncio.StreamReader) -> bool:
    await reader.read()  # until the client has had enough
    return False


def _closed(reply: RawReply, writer: asyncio.StreamWriter) -> bool:
    if reply.reset:
        # Closing a socket that lingers for no time sends a reset.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False
