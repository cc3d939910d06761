"""An engine's way to the world, with every call of it in somebody else's hands: that of a crash, or of a simulation.

Rule: what a port and a tool would do is given to `Calls.call`, with the error that the port would report; whether it
happens is decided there. What the store acknowledges is told as it happens, whether or not the engine hears of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from attrs import evolve as replace, frozen

from turnwright.canonical import JSON
from turnwright.definition import Durability
from turnwright.errors import ModelError, PortError
from turnwright.evidence import Entry, Evidence
from turnwright.inbox import Word
from turnwright.lifecycle import LifecycleEvent
from turnwright.messages import AssistantMessage, Message
from turnwright.ports import (
    Append,
    Appended,
    ApprovalAnswer,
    ApprovalRequest,
    Approvals,
    Begun,
    Budgets,
    Busy,
    Context,
    Denied,
    Idempotency,
    Inbox,
    Lease,
    Listener,
    Model,
    ModelRequest,
    Reserved,
    State,
)
from turnwright.schema import Parameters
from turnwright.state import RunState
from turnwright.tools import DidNotHappen, Happened, Tool, ToolContext, awaited
from turnwright.wiring import Ports

__all__ = ["Law", "WatchedState", "started_effects", "watched_ports", "watched_tool"]

T = TypeVar("T")

Law: TypeAlias = Callable[[Mapping[str, int], RunState], str]
"""Looks at how often each effect of a run took place, by its id, and at the run; gives what is wrong, or nothing."""

Acknowledged: TypeAlias = Callable[[int, Sequence[Entry]], None]
"""Is told of the entries that were acknowledged, and how many were expected before them."""


class Calls(Protocol):
    """Whoever decides what becomes of a call."""

    async def call(self, name: str, work: Callable[[], Awaitable[T]], error: Exception) -> T:
        """Do *work*, or not; *error* is what the port reports when it fails."""
        ...


def watched_ports(ports: Ports, calls: Calls) -> Ports:
    """*ports* with every port that may fail in the hands of *calls*, but for the store: see `WatchedState`."""
    return replace(
        ports,
        model=_Model(calls, ports.model),
        approvals=None if ports.approvals is None else _Approvals(calls, ports.approvals),
        budgets=None if ports.budgets is None else _Budgets(calls, ports.budgets),
        idempotency=None if ports.idempotency is None else _Idempotency(calls, ports.idempotency),
        inbox=None if ports.inbox is None else _Inbox(calls, ports.inbox),
        listener=None if ports.listener is None else _Listener(calls, ports.listener),
        context=None if ports.context is None else _Context(calls, ports.context),
    )


@frozen(eq=False)
class _Model:
    _calls: Calls
    _inner: Model

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        error = ModelError("connection", "the connection broke", retryable=True)
        return await self._calls.call("model.complete", lambda: self._inner.complete(request), error)


@frozen(eq=False)
class _Approvals:
    _calls: Calls
    _inner: Approvals

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        error = PortError("nobody could be asked")
        return await self._calls.call("approvals.request", lambda: self._inner.request(request), error)


@frozen(eq=False)
class _Budgets:
    _calls: Calls
    _inner: Budgets

    async def _call(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._calls.call(f"budgets.{name}", work, PortError("the accounts did not answer"))

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        return await self._call("reserve", lambda: self._inner.reserve(id, scopes, ask))

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        return await self._call("settle", lambda: self._inner.settle(id, actual))

    async def release(self, id: str) -> None:
        return await self._call("release", lambda: self._inner.release(id))

    async def held(self, prefix: str) -> Sequence[str]:
        return await self._call("held", lambda: self._inner.held(prefix))


@frozen(eq=False)
class _Idempotency:
    _calls: Calls
    _inner: Idempotency

    async def _call(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._calls.call(f"idempotency.{name}", work, PortError("the keys did not answer"))

    async def begin(self, namespace: str, key: str, digest: str) -> Begun:
        return await self._call("begin", lambda: self._inner.begin(namespace, key, digest))

    async def commit(self, namespace: str, key: str, result: object) -> None:
        return await self._call("commit", lambda: self._inner.commit(namespace, key, result))

    async def mark_unknown(self, namespace: str, key: str) -> None:
        return await self._call("mark_unknown", lambda: self._inner.mark_unknown(namespace, key))


@frozen(eq=False)
class _Inbox:
    _calls: Calls
    _inner: Inbox

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        error = PortError("the inbox did not answer")
        return await self._calls.call("inbox.poll", lambda: self._inner.poll(run_id, after), error)


@frozen(eq=False)
class _Listener:
    _calls: Calls
    _inner: Listener

    async def on_event(self, event: LifecycleEvent) -> None:
        error = RuntimeError("the listener failed")
        await self._calls.call("listener.on_event", lambda: self._inner.on_event(event), error)


@frozen(eq=False)
class _Context:
    _calls: Calls
    _inner: Context

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        error = ModelError("overloaded", "the context could not be prepared", retryable=True)
        return await self._calls.call("context.prepare", lambda: self._inner.prepare(messages, budget), error)


class WatchedState:
    """The engine's store: all of it that an engine calls."""

    def __init__(self, calls: Calls, inner: State, durability: Durability, acknowledged: Acknowledged) -> None:
        self._calls = calls
        self._inner = inner
        self._acknowledged = acknowledged
        self.durability = durability

    async def _call(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._calls.call(f"state.{name}", work, PortError("the store did not answer"))

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run; see `State.acquire`."""
        return await self._call(
            "acquire", lambda: self._inner.acquire(run_id, holder=holder, seconds=seconds, create=create)
        )

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        """Extend the lease; see `State.renew`."""
        return await self._call("renew", lambda: self._inner.renew(run_id, epoch, seconds=seconds))

    async def release(self, run_id: str, epoch: int) -> None:
        """Give the run back; see `State.release`."""
        return await self._call("release", lambda: self._inner.release(run_id, epoch))

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write facts; see `State.append`."""

        async def work() -> Append:
            answer = await self._inner.append(run_id, epoch, expected, append_id, facts)
            if isinstance(answer, Appended):
                self._acknowledged(expected, facts)
            return answer

        return await self._call("append", work)

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries; see `State.load`."""
        return await self._call("load", lambda: self._inner.load(run_id, after))

    async def evidence(self, run_id: str, after: int = 0) -> Sequence[Evidence]:
        """The evidence; see `State.evidence`."""
        return await self._call("evidence", lambda: self._inner.evidence(run_id, after))

    async def post(self, run_id: str, word: Word) -> int:
        """Put a word in the inbox; see `State.post`."""
        return await self._call("post", lambda: self._inner.post(run_id, word))

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words; see `State.read`."""
        return await self._call("read", lambda: self._inner.read(run_id, after))


def started_effects(facts: Sequence[Entry]) -> Iterator[str]:
    """The effects whose intent is among *facts*."""
    for entry in facts:
        if entry.kind == "CallStarted":
            yield msgspec.json.decode(entry.body)["effect_id"]


def watched_tool(
    tool: Tool[..., object], calls: Callable[[], Calls], happens: Callable[[Tool[..., object], str], None]
) -> Tool[..., object]:
    """*tool*, with every call in the hands of *calls*; *happens* is told the effect id when it takes place.

    So is the question what became of one, if the tool can be asked.
    """
    effect: ContextVar[str] = ContextVar("effect")

    async def function(*args: object, **kwargs: object) -> object:
        async def work() -> object:
            happens(tool, effect.get())
            return await awaited(tool(*args, **kwargs))

        return await calls().call(f"tool {tool.name}", work, RuntimeError("the tool failed"))

    watched = replace(tool, function=function, parameters=_Telling.of(tool.parameters, effect))
    ask = tool.reconcile
    if ask is None:
        return watched

    async def reconcile(key: str) -> Happened | DidNotHappen | None:
        return await calls().call(f"reconcile {tool.name}", lambda: ask(key), RuntimeError("nobody could be asked"))

    return replace(watched, reconcile=reconcile)


class _Telling(Parameters):
    """A tool's parameters that also tell which effect is about to happen."""

    __slots__ = ("_effect",)
    _effect: ContextVar[str]

    @classmethod
    def of(cls, parameters: Parameters, effect: ContextVar[str]) -> _Telling:
        telling = cls.__new__(cls)
        for name in Parameters.__slots__:
            setattr(telling, name, getattr(parameters, name))
        telling._effect = effect
        return telling

    def bind(self, arguments: JSON, context: object) -> tuple[list[object], dict[str, object]]:
        assert isinstance(context, ToolContext)
        self._effect.set(context.effect_id)
        return super().bind(arguments, context)
