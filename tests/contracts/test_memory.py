"""The reference adapters keep the contract of every port that they stand in for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import pytest

from turnwright import EvidenceStream, MemoryState, combine_delta_sinks, combine_telemetry
from turnwright.deltas import Delta
from turnwright.errors import ModelError
from turnwright.evidence import Evidence
from turnwright.memory import (
    FixedClock,
    MemoryApprovals,
    MemoryBudgets,
    MemoryIdempotency,
    RandomIds,
    SequentialIds,
    SystemClock,
)
from turnwright.messages import AssistantMessage, Message
from turnwright.ports import Clock, Decision, Deltas, Telemetry
from turnwright.testing import RecordedModel, ScriptedModel, text
from turnwright_contracts import (
    ApprovalsSuite,
    BudgetsSuite,
    ClockSuite,
    ContextSuite,
    DeltasSuite,
    IdempotencySuite,
    IdsSuite,
    ModelSuite,
    StateSuite,
    TelemetrySuite,
)
from turnwright_contracts.budgets import Limits

# A second owner in this process is another user of the same object.
_states: dict[Path, MemoryState] = {}
_budgets: dict[Path, MemoryBudgets] = {}
_keys: dict[Path, MemoryIdempotency] = {}


@pytest.mark.promise("T-05", "N-03")
class TestMemoryState(StateSuite):
    """The state port in memory."""

    durability = "none"

    def make(self, place: Path, *, finished_kept: int | None = None) -> AbstractAsyncContextManager[MemoryState]:
        return nullcontext(_states.setdefault(place, MemoryState(finished=finished_kept or 1000)))


@pytest.mark.promise("T-05", "N-03")
class TestMemoryBudgets(BudgetsSuite[MemoryBudgets]):
    """The budgets port in memory."""

    def make(self, place: Path, limits: Limits) -> AbstractAsyncContextManager[MemoryBudgets]:
        return nullcontext(_budgets.setdefault(place, MemoryBudgets(limits)))

    async def set_limit(self, budgets: MemoryBudgets, scope: str, axis: str, limit: int) -> None:
        budgets.raise_limit(scope, axis, limit)

    async def standing(self, budgets: MemoryBudgets, scope: str, axis: str) -> tuple[int, int, int]:
        return budgets.standing(scope, axis)


@pytest.mark.promise("T-05", "N-03")
class TestMemoryIdempotency(IdempotencySuite):
    """The idempotency port in memory."""

    def make(self, place: Path) -> AbstractAsyncContextManager[MemoryIdempotency]:
        return nullcontext(_keys.setdefault(place, MemoryIdempotency()))


@pytest.mark.promise("T-05", "N-03")
class TestMemoryApprovals(ApprovalsSuite):
    """The approvals port with a table of decisions."""

    def make(self, place: Path, decisions: Mapping[str, Decision]) -> AbstractAsyncContextManager[MemoryApprovals]:
        return nullcontext(MemoryApprovals(decisions))


@pytest.mark.promise("T-05", "N-03")
class TestScriptedModel(ModelSuite):
    """A model that follows a script, in pieces of three characters."""

    def make(
        self, place: Path, answers: Sequence[AssistantMessage | None]
    ) -> AbstractAsyncContextManager[ScriptedModel]:
        # The requests of the suite already hold one answer, so the second reply of the script is theirs.
        reply = answers[0] or ModelError("overloaded", "no room", retryable=True)
        return nullcontext(ScriptedModel([text("earlier"), reply], chunk=3))


@pytest.mark.promise("T-05", "N-03")
class TestRecordedModel(ModelSuite):
    """A model that replays what another one said."""

    def make(
        self, place: Path, answers: Sequence[AssistantMessage | None]
    ) -> AbstractAsyncContextManager[RecordedModel]:
        reply = answers[0] or ModelError("overloaded", "no room", retryable=True)
        return nullcontext(RecordedModel(place / "answers.jsonl", model=ScriptedModel([text("earlier"), reply])))


class Whole:
    """A context port that leaves everything as it is, as the engine does without one."""

    async def prepare(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """All of it."""
        return messages


@pytest.mark.promise("T-05")
class TestWhole(ContextSuite):
    """The context port that chooses everything."""

    def make(self, place: Path) -> AbstractAsyncContextManager[Whole]:
        return nullcontext(Whole())


@pytest.mark.promise("T-05", "N-16")
class TestEvidenceStream(TelemetrySuite[EvidenceStream]):
    """The telemetry port that a viewer reads from."""

    def make(self) -> EvidenceStream:
        return EvidenceStream()

    def taken(self, telemetry: EvidenceStream) -> Sequence[object]:
        return list(telemetry._items)


class Kept:
    """A consumer that keeps what it gets, and one beside it that always fails."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self._telemetry = combine_telemetry(_Broken(), _Keeping(self.items))
        self._sink = combine_delta_sinks(_Broken(), _Keeping(self.items))

    def record(self, evidence: Evidence) -> None:
        """Give it to both."""
        self._telemetry.record(evidence)

    def emit(self, delta: Delta) -> None:
        """Give it to both."""
        self._sink.emit(delta)


class _Broken(Telemetry, Deltas):
    def record(self, evidence: Evidence) -> None:
        raise OSError

    def emit(self, delta: Delta) -> None:
        raise OSError


class _Keeping(Telemetry, Deltas):
    def __init__(self, items: list[object]) -> None:
        self._items = items

    def record(self, evidence: Evidence) -> None:
        self._items.append(evidence)

    def emit(self, delta: Delta) -> None:
        self._items.append(delta)


@pytest.mark.promise("T-05", "N-14")
class TestCombinedTelemetry(TelemetrySuite[Kept]):
    """Several consumers as one, of which one fails."""

    def make(self) -> Kept:
        return Kept()

    def taken(self, telemetry: Kept) -> Sequence[object]:
        return telemetry.items


@pytest.mark.promise("T-05", "N-15")
class TestCombinedDeltas(DeltasSuite[Kept]):
    """Several sinks as one, of which one fails."""

    def make(self) -> Kept:
        return Kept()

    def taken(self, sink: Kept) -> Sequence[object]:
        return sink.items


@pytest.mark.promise("T-05", "N-03")
class TestSystemClock(ClockSuite):
    """The clock of the machine."""

    def make(self) -> Clock:
        return SystemClock()


@pytest.mark.promise("T-05")
class TestFixedClock(ClockSuite):
    """The clock that tests set."""

    def make(self) -> Clock:
        return FixedClock()


@pytest.mark.promise("T-05", "N-03")
class TestRandomIds(IdsSuite):
    """Ids from the system's randomness."""

    def make(self) -> RandomIds:
        return RandomIds()


@pytest.mark.promise("T-05")
class TestSequentialIds(IdsSuite):
    """Ids that tests foresee."""

    guessable = True

    def make(self) -> SequentialIds:
        return SequentialIds()
