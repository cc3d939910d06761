"""Ports and tools that never answer, with good manners or without."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from turnwright import AgentDefinition, MemoryState, Ports, tool
from turnwright.evidence import Entry
from turnwright.inbox import Word
from turnwright.messages import AssistantMessage, Message
from turnwright.ports import (
    Append,
    ApprovalAnswer,
    ApprovalRequest,
    Busy,
    Denied,
    Lease,
    ModelRequest,
    NotDecided,
    Reserved,
)
from turnwright.testing import ScriptedModel, call, text

__all__ = ["Hang", "HangingPort", "agent", "ports"]


class Hang:
    """A wait without end. A *stubborn* one does not even end when it is cancelled, until `let_go`."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.stubborn = stubborn
        self.entered = 0
        self.cancelled = 0
        self.left = 0
        self.reached = asyncio.Event()
        self._free = asyncio.Event()

    async def __call__(self) -> None:
        """Wait."""
        self.entered += 1
        self.reached.set()
        try:
            while True:
                try:
                    await self._free.wait()
                    return
                except asyncio.CancelledError:
                    self.cancelled += 1
                    if not self.stubborn:
                        raise
        finally:
            self.left += 1

    def let_go(self) -> None:
        """End every wait."""
        self._free.set()


class HangingPort(MemoryState):
    """A model, a state, an approvals, a budgets, a context and an inbox port in one; *where* names the call that hangs.

    *after* is how many calls of that name go well before.
    """

    def __init__(self, where: str, hang: Hang, *, after: int = 0) -> None:
        super().__init__()
        self._where = where
        self._hang = hang
        self._left = after

    async def _maybe(self, name: str) -> None:
        if name == self._where:
            self._left -= 1
            if self._left < 0:
                await self._hang()

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Call `work` first, then answer."""
        await self._maybe("model")
        return await ScriptedModel([call("work"), text("done")]).complete(request)

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Decide nothing."""
        await self._maybe("approvals")
        return NotDecided()

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Grant everything."""
        await self._maybe("reserve")
        return Reserved()

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        """Count nothing."""
        await self._maybe("settle")

    async def held(self, prefix: str) -> Sequence[str]:
        """Hold nothing."""
        await self._maybe("held")
        return ()

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """Show everything."""
        await self._maybe("context")
        return messages

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        """No words."""
        await self._maybe("inbox")
        return ()

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write, then answer or not."""
        answer = await super().append(run_id, epoch, expected, append_id, facts)
        await self._maybe("append")
        return answer

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """Read."""
        await self._maybe("load")
        return await super().load(run_id, after)

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """Read words."""
        await self._maybe("read")
        return await super().read(run_id, after)

    async def release(self, run_id: str, epoch: int) -> None:
        """Give back."""
        await self._maybe("release")
        await super().release(run_id, epoch)

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take."""
        await self._maybe("acquire")
        return await super().acquire(run_id, holder=holder, seconds=seconds, create=create)


def agent(where: str, hang: Hang, *, needs_approval: bool = False) -> AgentDefinition[str, str]:
    """An agent with one tool, `work`, in which, in a guard or in a check the run may hang."""

    async def maybe(name: str) -> None:
        if name == where:
            await hang()

    async def work() -> str:
        """Work."""
        await maybe("tool")
        return "worked"

    async def guard(*_: object) -> None:
        await maybe("guard")

    async def check(*_: object) -> None:
        await maybe("check")

    contract: Callable[[Callable[[], Awaitable[str]]], object] = tool(
        approval="required" if needs_approval else "none", replay="safe", timeout=None
    )
    return AgentDefinition(
        name="worker",
        instruction="Work.",
        tools=[contract(work)],  # type: ignore[list-item]
        guards=[guard],
        check_output=[check],
    )


def ports(where: str, hang: Hang, *, after: int = 0) -> Ports:
    """Every port that can hang, in one."""
    port = HangingPort(where, hang, after=after)
    return Ports(
        model=port,
        state=port,
        approvals=port,
        budgets=port,  # type: ignore[arg-type]
        context=port,
        inbox=port if where == "inbox" else None,
    )
