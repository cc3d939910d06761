"""What turnwright raises, and when.

    TurnwrightError
      DefinitionError        an agent, a tool or a schema that cannot work (also a ValueError)
      InvalidValue           a value that its schema refuses, with every issue and its path (also a ValueError)
      UnusablePorts          ports that cannot give what a definition or a caller needs
      AgentError             a stateful agent that cannot do now what it was asked for, with a closed code
      RunError               a run that cannot be opened or continued as asked
        UnknownRun             no run of that id is in the state port
        RunBusy                another holder works on it now; try again after `retry_after` seconds
        RunMismatch            the run was opened with another input or definition
        LostLease              another holder took the run over while we worked on it
      PortError              an adapter could not do what its port promises; the cause is chained
        ModelError             a model request failed, with a closed kind
      JournalError           a journal that cannot be true, with position and fact
      MissingExtra           an optional dependency is not installed; the message gives the command

What the world does wrong is data (a fact, an outcome) and is not raised: a model that fails suspends the run, a tool
that fails is a result that the model sees. What a caller does wrong is raised at once, before any work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwright.messages import AssistantMessage

__all__ = [
    "AgentError",
    "AgentErrorCode",
    "DefinitionError",
    "InvalidValue",
    "Issue",
    "JournalError",
    "LostLease",
    "MissingExtra",
    "ModelError",
    "ModelErrorKind",
    "PortError",
    "RunBusy",
    "RunError",
    "RunMismatch",
    "TurnwrightError",
    "UnknownRun",
    "UnusablePorts",
]


class TurnwrightError(Exception):
    """The root of every exception that turnwright raises on purpose."""


class DefinitionError(TurnwrightError, ValueError):
    """An agent, a tool or a schema that cannot work, found while it is built."""


class Issue:
    """One reason why a value was refused: *path* into it (`a.n`, `tags[2]`, empty for the whole) and *message*."""

    __slots__ = ("message", "path")

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        self.message = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Issue) and (self.path, self.message) == (other.path, other.message)

    def __hash__(self) -> int:
        return hash((self.path, self.message))

    def __repr__(self) -> str:
        return f"Issue({self.path!r}, {self.message!r})"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidValue(TurnwrightError, ValueError):
    """A value that its schema refuses. *issues* names every place and reason, in words that a model can act on."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__("; ".join(map(str, self.issues)))


class UnusablePorts(TurnwrightError, ValueError):
    """Ports that cannot give what a definition or a caller needs. *missing* names each need."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__("these ports cannot run this definition: " + "; ".join(self.missing))


class RunError(TurnwrightError):
    """A run that cannot be opened or continued as asked."""

    def __init__(self, run_id: str, message: str) -> None:
        self.run_id = run_id
        super().__init__(message)


class UnknownRun(RunError):
    """No run of that id is in the state port."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id, f"no run {run_id!r} in this state port")


class RunBusy(RunError):
    """Another holder works on the run now. Nothing was changed; try again after *retry_after* seconds."""

    def __init__(self, run_id: str, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(run_id, f"run {run_id!r} is busy: another holder works on it; retry in {retry_after:.1f} s")


class RunMismatch(RunError):
    """The run was opened with another input or definition than the one given now."""


class LostLease(RunError):
    """Another holder took the run over. What was acknowledged before is kept; nothing more was written."""


AgentErrorCode = Literal["busy", "nothing-to-continue", "waiting"]


class AgentError(TurnwrightError):
    """A stateful agent that cannot do now what it was asked for. *code* is closed.

    `busy`: it works; queue the message, or wait until it is idle. `nothing-to-continue`: its last word was its own, and
    nothing is queued. `waiting`: its last run waits for somebody; decide, or abort it.
    """

    def __init__(self, code: AgentErrorCode, message: str) -> None:
        self.code: AgentErrorCode = code
        super().__init__(message)


class PortError(TurnwrightError):
    """An adapter could not do what its port promises. The cause is chained."""


ModelErrorKind = Literal[
    "rate_limit",
    "overloaded",
    "timeout",
    "connection",
    "auth",
    "invalid_request",
    "context_overflow",
    "content_filter",
    "quota",
    "malformed",
    "cancelled",
    "internal",
]


class ModelError(PortError):
    """A model request failed.

    *kind* is closed. *retryable* says whether the same request may succeed later, *retry_after* (seconds) when the
    provider said so, *status* the HTTP status if there was one. *dispatched* is False only if the request surely never
    left, so that nothing can have been charged. *partial* is what came before the failure, with its usage, for people:
    nothing is decided from it. The message is bounded and holds no secret.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        dispatched: bool = True,
        partial: AssistantMessage | None = None,
    ) -> None:
        self.kind: ModelErrorKind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        self.dispatched = dispatched
        self.partial = partial
        super().__init__(message)


class JournalError(TurnwrightError):
    """A journal that cannot be true. *position* is the place of the offending fact, counted from 1."""

    def __init__(self, position: int, message: str) -> None:
        self.position = position
        super().__init__(f"journal entry {position}: {message}")


class MissingExtra(TurnwrightError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed; install it with: pip install 'turnwright[{extra}]'")
