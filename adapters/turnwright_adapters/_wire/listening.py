"""Hears a stream of server-sent events to the end of its answer.

Rule: an answer ends when the provider says so; what comes after may complete its usage and cannot hold it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final, Protocol

from turnwright_adapters._wire.exchange import Reply, is_transport_failure
from turnwright_adapters._wire.sse import ServerSentEvent, SseDecoder

SETTLE: Final = 2.0
"""Seconds that a stream may take after its finish reason to tell the usage and to end."""

LINGER: Final = 0.05
"""Seconds that a finished stream is read on, so that its connection can be kept."""


class Hearer(Protocol):
    """What events are told to: *finished* once the answer is all there, *done* once nothing more can come of it."""

    done: bool

    @property
    def finished(self) -> bool: ...

    def hear(self, event: ServerSentEvent, *, last: bool = False) -> None: ...


async def listen(reply: Reply, answer: Hearer) -> None:
    """Tell *answer* the events of *reply*, until it is finished or the stream ends."""
    decoder = SseDecoder()
    async with aclosing(reply.chunks()) as chunks:
        async for chunk in chunks:
            for event in decoder.feed(chunk):
                answer.hear(event)
            if answer.finished:
                break
        else:
            for event in decoder.close():
                answer.hear(event, last=True)
        if answer.finished:
            await _hear_out(chunks, decoder, answer)


async def _hear_out(chunks: AsyncIterator[bytes], decoder: SseDecoder, answer: Hearer) -> None:
    """Read what comes after the end of the answer: its usage; only an error could still take the answer back."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LINGER if answer.done else SETTLE) as bound:
            async for chunk in chunks:
                for event in decoder.feed(chunk):
                    answer.hear(event)
                if answer.done:
                    bound.reschedule(min(bound.when() or 0.0, loop.time() + LINGER))
            for event in decoder.close():
                answer.hear(event, last=True)
    except TimeoutError:
        pass
    except Exception as error:
        if not is_transport_failure(error):
            raise
