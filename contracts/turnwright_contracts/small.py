"""What the small ports must do: clock, ids, prices, approvals, and those who watch. See `turnwright.ports`."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import pytest

from turnwright.deltas import AttemptReset, Delta, ReasoningDelta, TextDelta, ToolCallDelta, UsageDelta
from turnwright.evidence import Evidence
from turnwright.messages import AssistantMessage, Text, Usage
from turnwright.ports import ApprovalRequest, Approvals, Clock, Decision, Deltas, Ids, NotDecided, Prices, Telemetry
from turnwright_contracts.author import AWKWARD, Author
from turnwright_contracts.running import scenario

__all__ = ["DELTAS", "ApprovalsSuite", "ClockSuite", "DeltasSuite", "IdsSuite", "PricesSuite", "TelemetrySuite"]

TelemetryT = TypeVar("TelemetryT", bound=Telemetry)
DeltasT = TypeVar("DeltasT", bound=Deltas)

DELTAS: tuple[Delta, ...] = (
    TextDelta(1, 1, "Hel"),
    AttemptReset(1, 1),
    TextDelta(1, 2, "Hello"),
    ReasoningDelta(1, 2, "why ☃"),
    ToolCallDelta(1, 2, 0, "add", '{"a"'),
    UsageDelta(1, 2, Usage(1, 2, 3)),
)
"""One delta of every kind."""


class ClockSuite:
    """Subclass it and say how the clock is made."""

    def make(self) -> Clock:
        """Give the clock."""
        raise NotImplementedError

    def test_times_are_seconds_in_floats(self) -> None:
        """Evidence is chained over the very digits of a time, so it is a float, never an integer."""
        clock = self.make()

        assert (float, float) == (type(clock.now()), type(clock.monotonic()))

    def test_now_counts_from_1970(self) -> None:
        """It is a date of this century."""
        assert 946_684_800 < self.make().now() < 4_102_444_800

    def test_monotonic_time_never_goes_back(self) -> None:
        """However often it is asked."""
        clock = self.make()
        times = [clock.monotonic() for _ in range(1000)]

        assert sorted(times) == times


class IdsSuite:
    """Subclass it and say how the source of ids is made."""

    guessable: ClassVar[bool] = False
    """Whether the ids can be foreseen, which is for tests alone."""

    def make(self) -> Ids:
        """Give a source of ids."""
        raise NotImplementedError

    def test_no_id_is_given_twice(self) -> None:
        """Ten thousand ids are ten thousand."""
        ids = self.make()

        assert 10_000 == len({ids.new_id() for _ in range(10_000)})

    def test_an_id_fits_into_urls_headers_and_file_names(self) -> None:
        """Letters, digits, `-` and `_`, at most 64 of them."""
        ids = self.make()
        fit = set(string.ascii_letters + string.digits + "-_")

        assert all(1 <= len(each) <= 64 and set(each) <= fit for each in [ids.new_id() for _ in range(1000)])

    def test_an_id_cannot_be_guessed(self) -> None:
        """It has room for 128 random bits, and two sources have nothing in common, unless it is declared guessable."""
        some, others = ({source.new_id() for _ in range(1000)} for source in (self.make(), self.make()))

        if self.guessable:
            assert some == others
        else:
            assert not some & others
            assert min([len(each) for each in some]) >= 22


class PricesSuite:
    """Subclass it and say how the prices are made, and name a model that costs something."""

    provider: ClassVar[str]
    model: ClassVar[str]

    def make(self) -> Prices:
        """Give the prices."""
        raise NotImplementedError

    def test_a_price_is_a_whole_number_that_does_not_change(self) -> None:
        """Of millionths: it is settled as an amount of a budget. Nothing used costs nothing."""
        prices = self.make()
        answer = _answer(self.provider, self.model, Usage(1, 1000, 500, 200, 100))

        price = prices.price(answer)
        assert type(price) is int
        assert 0 < price <= 2**53
        assert price == prices.price(answer) == self.make().price(answer)
        assert 0 == prices.price(_answer(self.provider, self.model, Usage()))

    def test_more_tokens_never_cost_less(self) -> None:
        """Of whatever kind."""
        prices = self.make()
        for used in (Usage(1, 1000), Usage(1, 0, 1000), Usage(1, 0, 0, 1000), Usage(1, 0, 0, 0, 1000)):
            less, more = [prices.price(_answer(self.provider, self.model, each)) for each in (used, used + used)]
            assert less is not None
            assert more is not None
            assert less <= more

    @pytest.mark.parametrize("name", [None, *AWKWARD, "no-such-model-9"])
    def test_what_is_not_known_is_not_guessed(self, name: str | None) -> None:
        """A model that nobody knows the price of is not free, and asking for it is no error."""
        prices, used = self.make(), Usage(1, 1000, 500)

        assert prices.price(_answer(name, name, used)) is None
        assert prices.price(_answer(name, self.model, used)) is None
        assert prices.price(_answer(self.provider, name, used)) is None


class ApprovalsSuite:
    """Subclass it and say how an approver is made that has already decided."""

    def make(self, place: Path, decisions: Mapping[str, Decision]) -> AbstractAsyncContextManager[Approvals]:
        """Give an approver that answers *decisions*, by effect id, and has not decided about anything else."""
        raise NotImplementedError

    @scenario
    async def test_what_nobody_decided_is_not_approved(self, tmp_path: Path) -> None:
        """The answer is `NotDecided`, however often it is asked."""
        async with self.make(tmp_path, {"r1:1.1": Decision(True)}) as approvals:
            for _ in range(3):
                assert NotDecided() == await approvals.request(_question("r1:1.0"))

    @pytest.mark.parametrize(
        "decision",
        [
            Decision(True),
            Decision(True, by="ann", level=2),
            Decision(False),
            Decision(False, by="bob", reason="too much ☃"),
        ],
    )
    @scenario
    async def test_a_decision_is_given_as_it_was_made(self, tmp_path: Path, decision: Decision) -> None:
        """Yes or no, by whom, why and with what level, at every request."""
        async with self.make(tmp_path, {"r1:1.0": decision}) as approvals:
            for _ in range(2):
                assert decision == await approvals.request(_question("r1:1.0"))

    @scenario
    async def test_many_are_asked_at_once(self, tmp_path: Path) -> None:
        """Each question gets its own answer."""
        decisions = {f"r1:1.{number}": Decision(number % 3 == 0, by=f"p{number}") for number in range(0, 32, 2)}
        async with self.make(tmp_path, decisions) as approvals:
            answers = await asyncio.gather(*[approvals.request(_question(f"r1:1.{number}")) for number in range(32)])

            assert [decisions.get(f"r1:1.{number}", NotDecided()) for number in range(32)] == answers

    @pytest.mark.parametrize("text", AWKWARD)
    @scenario
    async def test_any_text_may_be_asked_about(self, tmp_path: Path, text: str) -> None:
        """Ids and arguments are data and nothing else."""
        async with self.make(tmp_path, {text: Decision(False, reason=text)}) as approvals:
            assert Decision(False, reason=text) == await approvals.request(_question(text, text))
            assert NotDecided() == await approvals.request(_question(f"{text}.", text))


class TelemetrySuite(Generic[TelemetryT]):
    """Subclass it and say how the consumer is made, and what it has taken."""

    def make(self) -> TelemetryT:
        """Give a consumer of evidence."""
        raise NotImplementedError

    def taken(self, telemetry: TelemetryT) -> Sequence[object]:
        """What it has taken so far, in whatever form it keeps that."""
        raise NotImplementedError

    @scenario
    async def test_every_step_is_taken_in_order_and_at_once(self) -> None:
        """It is never awaited: when `record` returns, the step is taken or queued."""
        telemetry, evidence = self.make(), _evidence(20)
        for number, item in enumerate(evidence, start=1):
            assert telemetry.record(item) is None
            assert number == len(self.taken(telemetry))

        again = self.make()
        for item in reversed(evidence):
            again.record(item)
        assert list(self.taken(telemetry)) == list(reversed(self.taken(again)))

    def test_it_works_without_a_loop(self) -> None:
        """Evidence is recorded from plain code too."""
        telemetry = self.make()
        telemetry.record(_evidence(1)[0])

        assert 1 == len(self.taken(telemetry))


class DeltasSuite(Generic[DeltasT]):
    """Subclass it and say how the sink is made, and what it has taken."""

    def make(self) -> DeltasT:
        """Give a sink."""
        raise NotImplementedError

    def taken(self, sink: DeltasT) -> Sequence[object]:
        """What it has taken so far, in whatever form it keeps that."""
        raise NotImplementedError

    @scenario
    async def test_every_delta_is_taken_in_order_and_at_once(self) -> None:
        """It is never awaited: when `emit` returns, the delta is taken or queued."""
        sink, again = self.make(), self.make()
        for number, delta in enumerate(DELTAS, start=1):
            assert sink.emit(delta) is None
            assert number == len(self.taken(sink))

        for delta in reversed(DELTAS):
            again.emit(delta)
        assert list(self.taken(sink)) == list(reversed(self.taken(again)))


def _answer(provider: str | None, model: str | None, usage: Usage) -> AssistantMessage:
    return AssistantMessage((Text("x"),), usage=usage, provider=provider, model=model)


def _question(effect_id: str, said: str = "5") -> ApprovalRequest:
    return ApprovalRequest(
        *("r1", effect_id, "pay", "tool.pay", {"cents": said}, f'{{"cents": "{said}"}}', "d" * 64, 1, None)
    )


def _evidence(turns: int) -> list[Evidence]:
    author = Author()
    author.opening()
    for _ in range(turns):
        author.turn()
    return [entry.evidence for entry in author.entries]
