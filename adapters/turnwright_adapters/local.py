"""The embedded model: a small language model on this machine, for tries, demonstrations and tests without any key.

It is `Qwen2.5-Coder-0.5B-Instruct`, served by llama.cpp in a child process. Rule: the child never outlives this
process; it ends when the pipe to its standard input closes, which the operating system does even after SIGKILL.
"""

from __future__ import annotations

import asyncio
import secrets
import selectors
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Self

from attrs import frozen

from turnwright.errors import MissingExtra, ModelError, PortError
from turnwright.messages import AssistantMessage
from turnwright.ports import ModelRequest
from turnwright_adapters._weights import find_weights
from turnwright_adapters.chat_completions import ChatCompletionsModel

__all__ = ["LocalModel"]


class LocalModel:
    """The embedded model as a model port.

    ::

        async with LocalModel() as model:
            await run_agent(definition, "Where is my order?", Ports(model=model))

    Nothing is loaded before the first request, or before `async with`. The weights (491 MB) are fetched once into the
    user's cache; from then on no network is used but the loopback. *weights* names a file of your own instead. Raises
    MissingExtra without `turnwright[local]`, and PortError when there are no weights or the server is not ready within
    *ready_within* seconds. It answers one request at a time, in constrained mode, at about 12 tokens a second: keep its
    steps small.
    """

    def __init__(self, weights: Path | None = None, *, ready_within: float = 120.0) -> None:
        if find_spec("xllamacpp") is None:
            raise MissingExtra("local", "xllamacpp")
        self._weights = weights
        self._ready_within = ready_within
        self._starting = asyncio.Lock()
        self._server: _Server | None = None
        self._chat: ChatCompletionsModel | None = None

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, starting the server first if it is not there or has died."""
        try:
            chat = await self._ready()
        except PortError as error:
            raise ModelError("internal", str(error), dispatched=False) from error
        return await chat.complete(request)

    async def aclose(self) -> None:
        """End the server. A later request starts it again; a second call does nothing."""
        async with self._starting:
            await self._stop()

    async def __aenter__(self) -> Self:
        await self._ready()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _ready(self) -> ChatCompletionsModel:
        async with self._starting:
            if self._chat is None or self._server is None or self._server.process.poll() is not None:
                await self._stop()
                self._server = server = await asyncio.to_thread(_serve, self._weights, self._ready_within)
                self._chat = ChatCompletionsModel(
                    "local",
                    base_url=f"{server.address}/v1",
                    api_key=server.key,
                    tool_mode="constrained",
                    modalities=["text"],
                )
            return self._chat

    async def _stop(self) -> None:
        chat, self._chat = self._chat, None
        server, self._server = self._server, None
        if server is not None:
            _end(server.process)
        if chat is not None:
            await chat.aclose()


@frozen
class _Server:
    """A child process that answers at *address* whoever shows *key*."""

    process: subprocess.Popen[bytes]
    address: str
    key: str


def _serve(weights: Path | None, ready_within: float) -> _Server:
    """Start the child and wait until it has loaded the model.

    If the caller is gone by then, so is the child: nobody holds the pipe to it any more.
    """
    path = find_weights() if weights is None else weights
    # Without a key, any user and any web page on this machine could ask the server what it was told.
    key = secrets.token_urlsafe()
    with tempfile.TemporaryFile() as noise:
        command = [sys.executable, "-P", "-m", "turnwright_adapters.local_server", str(path)]
        # In a session of its own, because Ctrl-C in a terminal is for us: the child ends when we are done with it.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=noise, bufsize=0, start_new_session=True
        )
        try:
            address = _greet(process, key, ready_within)
        except BaseException:
            _end(process)
            raise
        if address is None:
            _end(process)
            raise PortError(
                f"the local model server did not start with {path} within {ready_within:.0f} s: {_last_line(noise)}"
            )
    return _Server(process, address, key)


def _greet(process: subprocess.Popen[bytes], key: str, ready_within: float) -> str | None:
    """Tell the child its *key* and return the address it listens on, or None if it ends or says nothing in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{key}\n".encode())
    except BrokenPipeError:
        return None
    with selectors.DefaultSelector() as selector:  # select itself takes no descriptor above 1023
        selector.register(process.stdout, selectors.EVENT_READ)
        readable = selector.select(ready_within)
    return process.stdout.readline().decode().strip() or None if readable else None


def _last_line(noise: IO[bytes]) -> str:
    noise.seek(0)
    lines = noise.read().decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()
