"""The event loop of one command, which runs only while the command works. Rule: leaving never waits for what ignores
its cancellation.

Between two runs of the loop a person may be asked by plain reading, and Ctrl-C is a KeyboardInterrupt. While it runs,
the first Ctrl-C asks the work to stop in good order, the second cancels it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from typing import Final, TypeVar

__all__ = ["EventLoop", "interrupts"]

T = TypeVar("T")

THREADS: Final = "turnwright-tool"
PATIENCE: Final = 1.0
"""Seconds that what is left of the work may take to end."""


class EventLoop:
    """Runs coroutines one after another, on one loop, with what they opened kept open between them."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self._threads = ThreadPoolExecutor(thread_name_prefix=THREADS)
        self._runner.get_loop().set_default_executor(self._threads)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run *work* to its end. Ctrl-C cancels it and is raised as KeyboardInterrupt."""
        try:
            return self._runner.run(work)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def open(self, resource: AbstractAsyncContextManager[T]) -> T:
        """Enter *resource*; it is left when the loop is."""
        return self.run(self._opened.enter_async_context(resource))

    def leave(self, code: int, last_words: Callable[[str], None]) -> int:
        """Close everything and return *code*. If something of the work does not end, end the process with it."""
        stuck = not self._close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + PATIENCE
        for thread in threading.enumerate():
            if thread.name.startswith(THREADS):
                thread.join(max(0.0, until - time.monotonic()))
                stuck = stuck or thread.is_alive()
        if stuck:
            last_words("something ignores its cancellation and is ended with this process")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        # The threads are gone, so a fresh executor saves the runner from waiting for them.
        self._runner.get_loop().set_default_executor(ThreadPoolExecutor(1))
        self._runner.close()
        return code

    def _close(self) -> bool:
        """Leave what was opened and cancel what still runs. False if some of it does not end."""
        loop = self._runner.get_loop()

        async def close() -> bool:
            await self._opened.aclose()
            left = asyncio.all_tasks(loop) - {asyncio.current_task()}
            for task in left:
                task.cancel()
            return not left or not (await asyncio.wait(left, timeout=PATIENCE))[1]

        try:
            return self.run(close())
        except KeyboardInterrupt:
            return False


@contextmanager
def interrupts(first: Callable[[], object], later: Callable[[], object]) -> Iterator[None]:
    """Call *first* at the first Ctrl-C inside the block and *later* at each further one. For code in a running loop."""
    loop = asyncio.get_running_loop()
    calls = iter([first])

    def interrupted() -> None:
        next(calls, later)()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
