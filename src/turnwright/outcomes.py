"""How a run stands when `run_agent` returns. A closed union: a pause cannot be mistaken for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal, TypeAlias, TypeVar

from attrs import field

from turnwright.facts import Fault, SuspendReason
from turnwright.messages import Transcript, Usage
from turnwright.values import frozen

__all__ = ["Cancelled", "Completed", "Failed", "Outcome", "Pending", "Suspended"]

OutputT_co = TypeVar("OutputT_co", covariant=True)


@frozen
class Pending:
    """One thing that a suspended run waits for.

    With *kind* `approval`, somebody decides over *arguments* exactly as shown; *digest* binds them, *level* is what the
    approver must have. With `in-doubt`, somebody says what became of the effect.
    """

    kind: Literal["approval", "in-doubt"]
    effect_id: str
    tool: str
    arguments: object
    digest: str
    level: int = 0
    expires_at: float | None = None
    why: str = ""


@frozen(kw_only=True)
class _Standing:
    """What every outcome carries: the run, what it used, the head of its evidence chain, and all that was said."""

    run_id: str
    usage: Usage
    transcript: Transcript
    head: Callable[[], str] = field(repr=False, eq=False)

    @property
    def evidence_head(self) -> str:
        """The head of the run's evidence chain: equal heads, equal histories."""
        return self.head()


@frozen(kw_only=True)
class Completed(_Standing, Generic[OutputT_co]):
    """The run ended with a valid, typed output."""

    output: OutputT_co


@frozen(kw_only=True)
class Suspended(_Standing):
    """The run waits for *reason*, and `resume_agent` continues it in any process. *pending* names what it waits for."""

    reason: SuspendReason
    pending: tuple[Pending, ...] = ()
    detail: str = ""
    message: str = ""


@frozen(kw_only=True)
class Failed(_Standing):
    """The run ended without output; *error* has a closed code, a message and the issues."""

    error: Fault


@frozen(kw_only=True)
class Cancelled(_Standing):
    """The run was ended by the word `cancel`. *in_doubt* are the effects whose result nobody knows."""

    in_doubt: tuple[str, ...] = ()
    reason: str = ""


Outcome: TypeAlias = Completed[OutputT_co] | Suspended | Failed | Cancelled
