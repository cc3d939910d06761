"""Every port as a Protocol with its promise in words.

Rule: this module says what the engine needs of the world and nothing of how it is done. The in-memory and null
adapters are in `memory.py`, the value that holds one of each port in `wiring.py`, the other adapters in
`turnwright_adapters`.

A port may be slow, fail or hang: the engine races it against the run's deadline and cancellation. An adapter whose
calls only look into memory says so with an attribute `waits = False`, and is then simply asked. Names of parameters are
part of the promise. `turnwright_contracts` has a suite for each port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from attrs import field

from turnwright.definition import Durability, OutputSpec
from turnwright.deltas import Delta
from turnwright.evidence import Entry, Evidence
from turnwright.heads import RunHead, RunStatus
from turnwright.inbox import Word
from turnwright.messages import AssistantMessage, Message
from turnwright.tools import ToolSpec
from turnwright.values import frozen

if TYPE_CHECKING:
    from turnwright.lifecycle import LifecycleEvent

__all__ = [
    "Append",
    "Appended",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approvals",
    "Begun",
    "Budgets",
    "Busy",
    "Cancellation",
    "Cipher",
    "Clock",
    "Committed",
    "Conflict",
    "Context",
    "Decision",
    "Deltas",
    "Denied",
    "Fenced",
    "Fresh",
    "Idempotency",
    "Ids",
    "InFlight",
    "Inbox",
    "Lease",
    "Listener",
    "Mismatch",
    "Model",
    "ModelRequest",
    "NotDecided",
    "OutputSpec",
    "Policy",
    "Prices",
    "Reserved",
    "RunHead",
    "RunStatus",
    "State",
    "Telemetry",
    "ToolChoice",
]

ToolChoice: TypeAlias = str
"""`auto`, `required`, `none`, or the name of the one tool that must be called."""


@frozen
class ModelRequest:
    """All that a model port needs for one answer.

    *messages* may share storage with the run's transcript: read it, never keep it past the call. *options* are the
    definition's own (temperature, max_tokens, ...). *timeout* is what is left in seconds, None without a limit.
    *api_key*, if given, serves this request in place of the adapter's own.
    *stable*, if given, is how much of the instruction, from its start, is the same from request to request and worth
    the provider's keeping.
    *on_delta*, if given, may be called with each piece of the answer as it arrives; it is plain, quick and never
    raises.
    """

    run_id: str
    turn: int
    attempt: int
    instruction: str
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    output: OutputSpec | None = None
    options: Mapping[str, object] = field(factory=dict)
    timeout: float | None = None
    on_delta: Callable[[Delta], None] | None = field(default=None, eq=False, repr=False)
    api_key: str | None = field(default=None, eq=False, repr=False)
    stable: int | None = None


@runtime_checkable
class Model(Protocol):
    """A language model.

    ::

        answer = await model.complete(request)
        answer.text, answer.calls, answer.usage
    """

    async def complete(self, request: ModelRequest) -> AssistantMessage:
        """Give one complete answer, or raise ModelError.

        A stream that was cut, or that never said that it is finished, is a ModelError and never a shorter answer.
        When the caller cancels, the request is closed before CancelledError leaves.
        """
        ...


# --- the journal


@frozen
class Lease:
    """The right to append to one run. *epoch* rises with every owner; *version* is the length of the journal."""

    run_id: str
    epoch: int
    version: int
    seconds: float
    """How long it is valid from when it was asked for, unless renewed."""
    crashes: int = 0
    """How many owners in a row let their lease run out instead of giving it back, with no result appended since."""


@frozen
class Busy:
    """Another holder has the run; its lease ends in at most *retry_after* seconds."""

    retry_after: float


@frozen
class Appended:
    """Acknowledged: the journal now has *version* entries. The same answer is given to a repeated append id."""

    version: int


@frozen
class Conflict:
    """Nothing was written: the journal has *version* entries, which is not what was expected."""

    version: int


@frozen
class Fenced:
    """Nothing was written: a newer epoch owns the run."""

    epoch: int


Append: TypeAlias = Appended | Conflict | Fenced


@runtime_checkable
class State(Protocol):
    """The journal, the inbox and the right to write, of many runs.

    ::

        lease = await state.acquire("r1", holder="worker-7", seconds=30.0)
        await state.append("r1", lease.epoch, 0, append_id, facts)
        await state.release("r1", lease.epoch)
    """

    durability: Durability
    """What an acknowledged append survives."""

    async def acquire(self, run_id: str, *, holder: str, seconds: float, create: bool = True) -> Lease | Busy | None:
        """Take the run: free, expired by the store's clock or, with *create*, new. None: an unknown run.

        A cancelled call does not keep what it took.
        """
        ...

    async def renew(self, run_id: str, epoch: int, *, seconds: float) -> bool:
        """Extend the lease from now on. False: the run was given back, or another epoch owns it."""
        ...

    async def release(self, run_id: str, epoch: int) -> None:
        """Give the run back, so that the next owner need not wait. Harmless when it is no longer ours."""
        ...

    async def append(self, run_id: str, epoch: int, expected: int, append_id: str, facts: Sequence[Entry]) -> Append:
        """Write *facts* and their evidence after entry number *expected*, all or nothing, and acknowledge.

        Repeating an append that was written, with the same *append_id* and *expected*, answers as it did then, so a
        lost acknowledgement is cured by asking again, even when the run has another owner by now. Raises PortError for
        an unknown run and when the store cannot say whether it wrote. A cancelled append was written or not; asking
        again tells.
        """
        ...

    async def load(self, run_id: str, after: int = 0) -> Sequence[Entry]:
        """The entries after number *after*; empty for an unknown run. One whose content is gone has an empty body."""
        ...

    async def evidence(self, run_id: str, after: int = 0) -> Sequence[Evidence]:
        """The evidence after number *after*; it stays when content was dropped."""
        ...

    async def post(self, run_id: str, word: Word) -> int:
        """Put *word* into the inbox, without a lease, and acknowledge with its position. KeyError: unknown run."""
        ...

    async def read(self, run_id: str, after: int = 0) -> Sequence[tuple[int, Word]]:
        """The words after position *after*, with their positions."""
        ...

    async def runs(
        self,
        *,
        status: RunStatus | None = None,
        definition: str | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> Sequence[RunHead]:
        """The runs that were written to, newest first, at most *limit*; *since* is about their newest entry."""
        ...

    async def erase(self, run_id: str) -> None:
        """Drop the content of a run for good: the bodies of its entries and its inbox. KeyError: unknown run.

        Its evidence stays and still verifies. Whoever holds the run is fenced. Harmless when repeated.
        """
        ...


class Cipher(Protocol):
    """Seals content at rest. What was sealed names its key, so that keys can be rotated; it is used from any thread."""

    def seal(self, plaintext: bytes, associated_data: bytes) -> bytes:
        """Encrypt and authenticate *plaintext*, bound to *associated_data*."""
        ...

    def open(self, sealed: bytes, associated_data: bytes) -> bytes:
        """The plaintext. PortError for what was changed, moved, never sealed, or sealed with a key that is gone."""
        ...


class Inbox(Protocol):
    """Where words to a run are read from; the state port's own inbox by default."""

    async def poll(self, run_id: str, after: int) -> Sequence[tuple[int, Word]]:
        """The words after position *after*, with their positions."""
        ...


# --- people


@frozen
class ApprovalRequest:
    """The question whether *tool* may run with exactly *arguments*, which *digest* binds.

    *rendering* shows the validated arguments whole, with control and direction characters made visible. *principal* is
    on whose behalf the run acts: an answer counts for this run, and so for nobody else.
    """

    run_id: str
    effect_id: str
    tool: str
    capability: str
    arguments: object
    rendering: str
    digest: str
    level: int
    expires_at: float | None
    principal: str = ""


@frozen
class Decision:
    """The answer of somebody who may decide. *reason* of a denial is told to the model."""

    approved: bool
    by: str | None = None
    reason: str = ""
    level: int | None = None


@frozen
class NotDecided:
    """Nobody has decided yet; the run suspends and a word in its inbox decides later."""


ApprovalAnswer: TypeAlias = Decision | NotDecided


class Approvals(Protocol):
    """Whoever decides over tool calls."""

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Answer, now or never: raising or timing out counts as not decided, never as approved."""
        ...


# --- money and keys


@frozen
class Reserved:
    """The amounts are held under the id."""


@frozen
class Denied:
    """*axis* of *scope* allows no more; nothing is held."""

    scope: str
    axis: str


class Budgets(Protocol):
    """Accounts by scope and axis. Ids are deterministic, so every call is a no-op when repeated.

    An amount is a whole number from 0 to 2**53, else PortError. Where there is no account, there is no limit.
    """

    async def reserve(self, id: str, scopes: Sequence[str], ask: Mapping[str, int]) -> Reserved | Denied:
        """Hold *ask* on every scope, or nothing: settled plus reserved never exceeds a limit.

        A cancelled call holds nothing. What was released may be reserved again, what was settled stays so.
        """
        ...

    async def settle(self, id: str, actual: Mapping[str, int]) -> None:
        """Replace the reservation by what was used, which may be more than was held."""
        ...

    async def release(self, id: str) -> None:
        """Let the reservation go: nothing was dispatched."""
        ...

    async def held(self, prefix: str) -> Sequence[str]:
        """The ids of what is held, of those that begin with *prefix*, in any order: what a dead process left behind."""
        ...


class Prices(Protocol):
    """What answers cost. Plain and quick: it asks nobody."""

    def price(self, answer: AssistantMessage) -> int | None:
        """What *answer* cost in millionths of a dollar, None if that is not known; never a guess."""
        ...


@frozen
class Fresh:
    """The key is ours: execute, then commit."""


@frozen
class Committed:
    """The key was used before; *result* is what came of it (JSON)."""

    result: object


@frozen
class InFlight:
    """Another execution holds the key, or its outcome is unknown."""


@frozen
class Mismatch:
    """The key was used with other arguments."""


Begun: TypeAlias = Fresh | Committed | InFlight | Mismatch


class Idempotency(Protocol):
    """Keys that outlive a run. A reserved key never expires: it is committed, or its outcome is unknown."""

    async def begin(self, namespace: str, key: str, digest: str) -> Begun:
        """Reserve *key* for arguments of *digest*, or say what became of it. A cancelled call reserves nothing."""
        ...

    async def commit(self, namespace: str, key: str, result: object) -> None:
        """Keep the result for every later use of the key; the first one stands. KeyError: nobody began it."""
        ...

    async def mark_unknown(self, namespace: str, key: str) -> None:
        """The execution's outcome is unknown; the key stays taken."""
        ...


# --- people who watch


class Telemetry(Protocol):
    """A consumer of evidence. Never awaited, isolated: what it raises is counted and changes nothing."""

    def record(self, evidence: Evidence) -> None:
        """Take one step of evidence, in order. Return at once."""
        ...


class Deltas(Protocol):
    """A consumer of what is still being said. Never awaited, isolated."""

    def emit(self, delta: Delta) -> None:
        """Take one delta, in order. Return at once."""
        ...


class Listener(Protocol):
    """The one barrier observer: the run goes on when it returned. What it raises is reported and changes nothing."""

    async def on_event(self, event: LifecycleEvent) -> None:
        """Take one lifecycle event, in order."""
        ...


# --- choices and the world


class Context(Protocol):
    """A pure choice of what the model sees; the journal keeps everything."""

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """Return the messages to send, calls and results kept in pairs."""
        ...


class Policy(Protocol):
    """What execution policies this host can enforce."""

    def can_satisfy(self, policy: Sequence[str]) -> bool:
        """Whether every need named by *policy* can be enforced here."""
        ...

    def limitations(self, policy: Sequence[str]) -> Sequence[str]:
        """The needs that cannot be, by name."""
        ...


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, from any start."""
        ...


class Ids(Protocol):
    """The only source of identity."""

    def new_id(self) -> str:
        """An id that was never given before and cannot be guessed: at least 128 random bits."""
        ...


class Cancellation(Protocol):
    """A signal from outside that the run should be interrupted. It suspends as `cancelled` and may be resumed."""

    def is_set(self) -> bool:
        """Whether the signal was given."""
        ...

    async def wait(self) -> object:
        """Return when it is given. An `asyncio.Event` is a cancellation."""
        ...
