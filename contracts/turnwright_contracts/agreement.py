"""Adapters of one port answer the same calls alike: state machines that draw any sequence and compare every answer.

Rule: a call is made on every adapter before an answer is looked at, and an error is an answer. Where a clock decides, a
lease is taken either for no time or for hours, so that all clocks agree.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from turnwright.evidence import Entry
from turnwright.facts import CallFinished, Fact, Fault, InboxReceived, ModelAnswered, RunFailed, RunOpened, RunSuspended
from turnwright.inbox import Word
from turnwright.messages import AssistantMessage, UserMessage
from turnwright.ports import Appended, Budgets, Busy, Idempotency, Lease, State
from turnwright_contracts.author import AT, Author, told
from turnwright_contracts.running import BOUND
from turnwright_contracts.state import WORDS

__all__ = ["BudgetsAgreement", "IdempotencyAgreement", "StateAgreement"]

PortT = TypeVar("PortT")
T = TypeVar("T")

Call: TypeAlias = Callable[[PortT], Coroutine[object, object, object]]

LONG: Final = 3600.0

RUNS: Final[tuple[str, ...]] = ("r1", "Ü'r", "new")
"""All but the last are there from the start."""
SECONDS: Final = st.sampled_from([0, LONG])
TEXTS: Final = st.sampled_from(["", "said", "é☃🙂", 'quote " \\ \x00 \u2028'])


class _Agreement(RuleBasedStateMachine, Generic[PortT]):
    """What the machines share: the adapters, and how one call is made on all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._place = Path(tempfile.mkdtemp(prefix="agreement-"))
        self._open = AsyncExitStack()
        self._ports: list[PortT] = [self._runner.run(self._open.enter_async_context(each)) for each in self._made()]

    def _made(self) -> Sequence[AbstractAsyncContextManager[PortT]]:
        raise NotImplementedError

    def teardown(self) -> None:
        """Close what was opened."""
        self._runner.run(self._open.aclose())
        self._runner.close()
        shutil.rmtree(self._place)

    def agree(self, call: Call[PortT]) -> object:
        """Make *call* on every adapter; give the answer that they agree on."""
        answers = [self._runner.run(_answer(call(port))) for port in self._ports]
        first = answers[0]
        for port, answer in zip(self._ports[1:], answers[1:], strict=True):
            assert first == answer, f"{type(self._ports[0]).__name__} and {type(port).__name__} disagree"
        return first


async def _answer(call: Coroutine[object, object, object]) -> object:
    """What a call came to, in a form that can be compared."""
    try:
        answer = await asyncio.wait_for(call, BOUND)
    except Exception as error:  # noqa: BLE001 - an error is an answer
        return type(error).__name__
    match answer:
        case Busy(retry_after):
            assert 0 < retry_after <= LONG
            return "busy"
        case Sequence() if not isinstance(answer, str):
            return told([each for each in answer if isinstance(each, Entry)]) or list(answer)
        case _:
            return answer


class StateAgreement(_Agreement[State]):
    """Any calls on any runs, by owners of the right epoch and of wrong ones, with lost and repeated appends."""

    def stores(self, place: Path) -> Sequence[AbstractAsyncContextManager[State]]:
        """Give the stores to compare, the one to trust first. *place* is an empty directory."""
        raise NotImplementedError

    def _made(self) -> Sequence[AbstractAsyncContextManager[State]]:
        self._appends = 0
        self._epochs: dict[str, int] = dict.fromkeys(RUNS, 0)
        self._authors: dict[str, Author] = {run: Author(run) for run in RUNS}
        return self.stores(self._place)

    appends = Bundle("appends")

    @initialize()
    def open_runs(self) -> None:
        """Begin with runs that a crashed owner has left."""
        for run in RUNS[:-1]:
            self.acquire(run, 0, create=True)
            self.append(run, 0, 0, "said", [1])

    @rule(run=st.sampled_from(RUNS), seconds=SECONDS, create=st.sampled_from([True, True, False]))
    def acquire(self, run: str, seconds: float, *, create: bool) -> None:
        """Take a run, new, free, held or expired."""
        answer = self.agree(lambda state: state.acquire(run, holder="h", seconds=seconds, create=create))
        if isinstance(answer, Lease):
            self._epochs[run] = answer.epoch
            if not answer.version:
                self._authors[run] = Author(run)

    @rule(run=st.sampled_from(RUNS), seconds=SECONDS, off=st.sampled_from([0, 0, 0, -1, 1]))
    def renew(self, run: str, seconds: float, off: int) -> None:
        """Extend a lease, or try to."""
        self.agree(lambda state: state.renew(run, self._epochs[run] + off, seconds=seconds))

    @rule(run=st.sampled_from(RUNS), off=st.sampled_from([0, 0, 0, -1, 1]))
    def release(self, run: str, off: int) -> None:
        """Give a run back, or try to."""
        self.agree(lambda state: state.release(run, self._epochs[run] + off))

    @rule(
        target=appends,
        run=st.sampled_from(RUNS),
        off=st.sampled_from([0, 0, 0, -1]),
        ahead=st.sampled_from([0, 0, 0, -1, 1]),
        said=TEXTS,
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    )
    def append(self, run: str, off: int, ahead: int, said: str, kinds: list[int]) -> object:
        """Append as the owner, or as one of another epoch, at the right length or at another."""
        author = self._authors[run]
        length = len(author.entries)
        facts = _facts(run, said, kinds, first=not length)
        entries = author.write(*facts)
        epoch, expected = self._epochs[run] + off, max(0, length + ahead)
        self._appends += 1
        append_id = f"a-{self._appends}"
        answer = self.agree(lambda state: state.append(run, epoch, expected, append_id, entries))
        if answer != Appended(length + len(entries)):
            del author.entries[length:], author.facts[length:]
            return multiple()
        return (run, epoch, expected, append_id, entries)

    @rule(append=appends)
    def repeat(self, append: tuple[str, int, int, str, list[Entry]]) -> None:
        """Append again what was acknowledged, as an owner that never heard of it."""
        self.agree(lambda state: state.append(*append))

    @rule(run=st.sampled_from(RUNS), word=st.sampled_from(WORDS))
    def post(self, run: str, word: Word) -> None:
        """Say something to a run."""
        self.agree(lambda state: state.post(run, word))

    @rule(run=st.sampled_from(RUNS), after=st.integers(0, 12))
    def read(self, run: str, after: int) -> None:
        """Read journal, evidence and inbox from some place on."""
        self.agree(lambda state: state.load(run, after))
        self.agree(lambda state: state.evidence(run, after))
        self.agree(lambda state: state.read(run, after))

    @rule(run=st.sampled_from(RUNS))
    def erase(self, run: str) -> None:
        """Drop the content of a run."""
        if self.agree(lambda state: state.erase(run)) is None:
            self._epochs[run] += 1

    @rule(
        status=st.sampled_from([None, "running", "suspended", "failed"]),
        definition=st.sampled_from([None, "clerk", "nobody"]),
        since=st.sampled_from([None, AT, AT + 3.3, AT + 1000]),
        limit=st.integers(0, 4),
    )
    def runs(self, status: str | None, definition: str | None, since: float | None, limit: int) -> None:
        """List runs."""
        self.agree(
            lambda state: state.runs(status=status, definition=definition, since=since, limit=limit)  # type: ignore[arg-type]
        )

    @invariant()
    def heads_agree(self) -> None:
        """How every run stands, after every call."""
        self.agree(lambda state: state.runs())


def _facts(run: str, said: str, kinds: Sequence[int], *, first: bool) -> list[Fact]:
    choices: list[Fact] = [
        InboxReceived(1, WORDS[0]),
        ModelAnswered(1, 1, AssistantMessage(said), 0.5),
        CallFinished(1, 0, 1, said, (), False, 0.25),
        RunSuspended("approval"),
        RunFailed(Fault("output", said)),
    ]
    opening: list[Fact] = [RunOpened(run, "clerk", "f" * 64, said, (UserMessage(said),), 8, None, "ab" * 16)]
    return (opening if first else []) + [choices[kind] for kind in kinds]


class BudgetsAgreement(_Agreement[Budgets]):
    """Any reservations, settlements and releases, repeated and out of order."""

    LIMITS: Final = {("team", "cents"): 20, ("run", "cents"): 9, ("run", "requests"): 3}

    def accounts(self, place: Path) -> Sequence[AbstractAsyncContextManager[Budgets]]:
        """Give the accounts to compare, each with LIMITS. *place* is an empty directory."""
        raise NotImplementedError

    def _made(self) -> Sequence[AbstractAsyncContextManager[Budgets]]:
        return self.accounts(self._place)

    ids = st.sampled_from(["a", "b", "ab", "a\n"])
    scopes = st.lists(st.sampled_from(["team", "run", "nobody"]), max_size=3)
    amounts = st.dictionaries(st.sampled_from(["cents", "requests", "tokens"]), st.integers(-1, 12), max_size=2)

    @rule(id=ids, scopes=scopes, ask=amounts)
    def reserve(self, id: str, scopes: list[str], ask: dict[str, int]) -> None:
        """Hold something; what is denied tells how the accounts stand."""
        self.agree(lambda budgets: budgets.reserve(id, scopes, ask))

    @rule(id=ids, actual=amounts)
    def settle(self, id: str, actual: dict[str, int]) -> None:
        """Say what was used."""
        self.agree(lambda budgets: budgets.settle(id, actual))

    @rule(id=ids)
    def release(self, id: str) -> None:
        """Let something go."""
        self.agree(lambda budgets: budgets.release(id))

    @rule(prefix=st.sampled_from(["", "a", "b", "ab"]))
    def look(self, prefix: str) -> None:
        """Ask what is held."""

        async def held(budgets: Budgets) -> Sequence[str]:
            return sorted(await budgets.held(prefix))

        self.agree(held)

    @rule(scope=st.sampled_from(["team", "run"]), amount=st.integers(0, 20))
    def probe(self, scope: str, amount: int) -> None:
        """Ask whether so much would fit, and hold nothing."""
        self.agree(lambda budgets: budgets.reserve("probe", [scope], {"cents": amount}))
        self.agree(lambda budgets: budgets.release("probe"))


class IdempotencyAgreement(_Agreement[Idempotency]):
    """Any keys, begun, committed and doubted, in any order."""

    def keys(self, place: Path) -> Sequence[AbstractAsyncContextManager[Idempotency]]:
        """Give the keys to compare. *place* is an empty directory."""
        raise NotImplementedError

    def _made(self) -> Sequence[AbstractAsyncContextManager[Idempotency]]:
        return self.keys(self._place)

    namespaces = st.sampled_from(["acme/pay", "umbrella/pay"])
    names = st.sampled_from(["k", "k ", ""])

    @rule(namespace=namespaces, key=names, digest=st.sampled_from(["d1", "d2"]))
    def begin(self, namespace: str, key: str, digest: str) -> None:
        """Begin, first or again."""
        self.agree(lambda keys: keys.begin(namespace, key, digest))

    @rule(namespace=namespaces, key=names, result=st.sampled_from([None, 0, "é", {"a": [1.5]}]))
    def commit(self, namespace: str, key: str, result: object) -> None:
        """Commit, what was begun or not."""
        self.agree(lambda keys: keys.commit(namespace, key, result))

    @rule(namespace=namespaces, key=names)
    def doubt(self, namespace: str, key: str) -> None:
        """Doubt, what was begun or not."""
        self.agree(lambda keys: keys.mark_unknown(namespace, key))
