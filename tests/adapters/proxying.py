"""What the tests of the proxy share: a real server on the loopback, requests, frames as bytes.

`python -m tests.adapters.proxying` writes the schemas of the wire anew.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import uvicorn
from attrs import evolve as replace

from turnwright.messages import UserMessage
from turnwright.ports import Model, ModelRequest
from turnwright.testing.byte_server import ByteServer
from turnwright_adapters._proxied import FRAME_SCHEMA, REQUEST_SCHEMA
from turnwright_adapters.proxy import ProxyModel
from turnwright_adapters.proxy_server import proxy_app

SCHEMAS = Path(__file__).parents[2] / "contracts" / "schemas"
TOKEN = "tw-canary-77"

WIRE = {"proxy_request.json": REQUEST_SCHEMA, "proxy_frame.json": FRAME_SCHEMA}
"""The files of the schemas, and what stands in them."""


def written(schema: Mapping[str, object]) -> str:
    """A schema as its file holds it."""
    return json.dumps(schema, indent=2) + "\n"


def request(*messages: UserMessage, **changes: object) -> ModelRequest:
    """A request of turn 3 with *messages*, or one greeting."""
    return replace(ModelRequest("run", 3, 2, "", messages or (UserMessage("hi"),), timeout=30.0), **changes)


def proxy_of(server: ByteServer | str, **options: object) -> ProxyModel:
    """A model behind *server*."""
    url = server if isinstance(server, str) else server.url
    return ProxyModel("m", **{"base_url": url, "api_key": TOKEN, **options})  # type: ignore[arg-type]


def frames(*payloads: Mapping[str, object], numbered: bool = True) -> bytes:
    """A body of frames, numbered as our server numbers them."""
    lines = [
        json.dumps({**({"v": 1, "seq": number} if numbered else {}), **payload}, ensure_ascii=False)
        for number, payload in enumerate(payloads, start=1)
    ]
    return "".join([f"data: {line}\n\n" for line in lines]).encode()


class _Server(uvicorn.Server):
    """One that leaves the signals to the tests' own process."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set_result(None)

    async def main_loop(self) -> None:
        await self.ending.wait()

    up: asyncio.Future[None]
    ending: asyncio.Event


@asynccontextmanager
async def serving(model: Model, **options: object) -> AsyncIterator[str]:
    """Serve *model* as `m` by a real server on the loopback, and give its address."""
    app = proxy_app({"m": model}, **{"tokens": [TOKEN], **options})  # type: ignore[arg-type]
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = _Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=5))
        server.up, server.ending = asyncio.get_running_loop().create_future(), asyncio.Event()
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await server.up
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.ending.set()
            await running


if __name__ == "__main__":
    for name, schema in WIRE.items():
        (SCHEMAS / name).write_text(written(schema), encoding="utf-8")
