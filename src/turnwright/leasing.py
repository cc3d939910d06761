"""How a process keeps a run to itself. Rule: nothing is dispatched on a lease that may have run out by our own clock:
another process may be at work by then. What was still written is for the store to refuse.

A lease is renewed long before it ends, so a store that is away for a moment stops nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final, TypeVar

from turnwright.errors import LostLease, PortError
from turnwright.ports import Clock, Lease, State
from turnwright.racing import end, may_wait

__all__ = ["LEASE_SECONDS", "Ownership"]

T = TypeVar("T")

LEASE_SECONDS: Final = 30.0
RENEW_AFTER: Final = 10.0
RETRY_AFTER: Final = 1.0
MARGIN: Final = 5.0
"""Seconds before the end of a lease from which on it counts as lost: clocks differ."""


class Ownership:
    """A lease as its holder knows it. *asked* is when it was asked for, since it may have taken its time."""

    def __init__(self, lease: Lease, state: State, clock: Clock, *, asked: float) -> None:
        self.lease = lease
        self._state = state
        self._clock = clock
        self._renew_at = asked + RENEW_AFTER
        self._valid_until = asked + lease.seconds - MARGIN

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it."""
        return self._clock.monotonic() >= self._renew_at

    async def renew(self) -> None:
        """Keep the lease alive, if it is time. Raises LostLease when it is another's, or may be."""
        if not self.is_due:
            return
        now, lease = self._clock.monotonic(), self.lease
        if not await self._state.renew(lease.run_id, lease.epoch, seconds=LEASE_SECONDS):
            raise LostLease(lease.run_id, f"run {lease.run_id!r} was taken over by another holder")
        self._renew_at = now + RENEW_AFTER
        self._valid_until = now + LEASE_SECONDS - MARGIN
        self.fence()

    def fence(self) -> None:
        """Raise LostLease when the lease may have run out."""
        if self._clock.monotonic() >= self._valid_until:
            run_id = self.lease.run_id
            raise LostLease(run_id, f"run {run_id!r}: the lease could not be renewed in time")

    async def during(self, call: Coroutine[object, object, T], port: object, *, grace: float) -> T:
        """Wait for a call of *port* that no epoch fences, and keep the lease meanwhile, so that none else is at it."""
        try:
            await self._keep()
        except BaseException:
            call.close()
            raise
        if not may_wait(port):
            return await call
        task = asyncio.get_running_loop().create_task(call)
        try:
            while not task.done():
                now = self._clock.monotonic()
                patience = min(max(self._renew_at - now, RETRY_AFTER), self._valid_until - now)
                await asyncio.wait([task], timeout=patience)
                await self._keep()
        finally:
            if not task.done():
                await end([task], grace)
        return task.result()

    async def _keep(self) -> None:
        with suppress(PortError):
            await self.renew()
        self.fence()
