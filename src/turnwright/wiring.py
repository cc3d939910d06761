"""`Ports`: one of each port, with a reference adapter wherever none is given."""

from __future__ import annotations

from attrs import field

from turnwright.memory import MemoryState, RandomIds, SystemClock
from turnwright.ports import (
    Approvals,
    Budgets,
    Cancellation,
    Clock,
    Context,
    Deltas,
    Idempotency,
    Ids,
    Inbox,
    Listener,
    Model,
    Policy,
    Prices,
    State,
    Telemetry,
)
from turnwright.values import frozen

__all__ = ["Ports"]


@frozen(eq=False)
class Ports:
    """One of each port. `Ports(model=...)` is enough: the rest are in memory, or nothing where nothing will do.

    *capabilities* are those granted to the run, None for all; *scopes* are the budget accounts it draws on besides
    its own; *tenant* is the namespace of keys; *principal* is on whose behalf the run acts, who opened it and nobody
    else may go on with it. With *prices*, each answer is charged to the axis `money` of these
    accounts, in millionths of a dollar. `replace(ports, state=...)` makes another value.
    """

    model: Model
    state: State = field(factory=MemoryState)
    inbox: Inbox | None = None
    approvals: Approvals | None = None
    budgets: Budgets | None = None
    idempotency: Idempotency | None = None
    telemetry: Telemetry | None = None
    deltas: Deltas | None = None
    listener: Listener | None = None
    context: Context | None = None
    context_budget: int | None = None
    policy: Policy | None = None
    clock: Clock = field(factory=SystemClock)
    ids: Ids = field(factory=RandomIds)
    cancellation: Cancellation | None = None
    capabilities: frozenset[str] | None = None
    scopes: tuple[str, ...] = ()
    tenant: str = ""
    principal: str = ""
    prices: Prices | None = None
    grace: float = 5.0
    """How long a cancelled effect may take to end before it is abandoned, in seconds."""

    def __attrs_post_init__(self) -> None:
        for name in ("scopes", "capabilities"):
            if isinstance(getattr(self, name), str):
                message = f"ports: {name} is a collection of names, not one text"
                raise TypeError(message)
        for name in ("tenant", "principal"):
            if not isinstance(getattr(self, name), str):
                message = f"ports: {name} is a text, not {getattr(self, name)!r:.80}"
                raise TypeError(message)
        grace: object = self.grace
        if not (isinstance(grace, int | float) and 0 <= grace <= 3600):
            message = f"ports: grace is a number of seconds from 0 to 3,600, not {grace!r}"
            raise ValueError(message)
