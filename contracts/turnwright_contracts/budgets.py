"""What every budgets port must do: see `turnwright.ports.Budgets`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

import pytest

from turnwright.errors import PortError
from turnwright.ports import Budgets, Denied, Reserved
from turnwright.racing import may_wait
from turnwright_contracts.author import AWKWARD
from turnwright_contracts.running import answers_at_once, cut, scenario

__all__ = ["BudgetsSuite", "Limits"]

BudgetsT = TypeVar("BudgetsT", bound=Budgets)

Limits: TypeAlias = Mapping[tuple[str, str], int]

MOST: Final = 2**53


class BudgetsSuite(Generic[BudgetsT]):
    """Subclass it and say how the accounts are made, raised and looked at."""

    def make(self, place: Path, limits: Limits) -> AbstractAsyncContextManager[BudgetsT]:
        """Give accounts with *limits*; asked again for the same place, the same accounts as another process sees."""
        raise NotImplementedError

    async def set_limit(self, budgets: BudgetsT, scope: str, axis: str, limit: int) -> None:
        """Give one account another limit."""
        raise NotImplementedError

    async def standing(self, budgets: BudgetsT, scope: str, axis: str) -> tuple[int, int, int]:
        """Limit, settled and reserved of one account."""
        raise NotImplementedError

    @scenario
    async def test_what_is_reserved_is_held_on_every_scope(self, tmp_path: Path) -> None:
        """Each scope that has an account for the axis holds the amount."""
        async with self.make(tmp_path, {("team", "requests"): 10, ("run", "requests"): 5}) as budgets:
            assert Reserved() == await budgets.reserve("a", ["team", "run"], {"requests": 2})

            assert (10, 0, 2) == await self.standing(budgets, "team", "requests")
            assert (5, 0, 2) == await self.standing(budgets, "run", "requests")

    @scenario
    async def test_accounts_that_say_that_they_never_wait_do_not(self, tmp_path: Path) -> None:
        """Nobody races them against a deadline."""
        async with self.make(tmp_path, {("team", "requests"): 10}) as budgets:
            if not may_wait(budgets):
                calls: tuple[Coroutine[object, object, object], ...] = (
                    budgets.reserve("a", ["team"], {"requests": 1}),
                    budgets.held("a"),
                    budgets.settle("a", {}),
                    budgets.release("a"),
                )

                assert all([answers_at_once(call) for call in calls])

    @scenario
    async def test_a_limit_may_be_reached_and_not_passed(self, tmp_path: Path) -> None:
        """What fits exactly is held; one more is denied, and the answer names the account."""
        async with self.make(tmp_path, {("team", "cents"): 10}) as budgets:
            assert Reserved() == await budgets.reserve("a", ["team"], {"cents": 10})
            assert Reserved() == await budgets.reserve("b", ["team"], {"cents": 0})

            assert Denied("team", "cents") == await budgets.reserve("c", ["team"], {"cents": 1})

    @scenario
    async def test_a_denial_holds_nothing(self, tmp_path: Path) -> None:
        """One account that allows no more leaves all the others as they were, and the id unused."""
        limits = {("team", "requests"): 10, ("team", "cents"): 10, ("run", "cents"): 1}
        async with self.make(tmp_path, limits) as budgets:
            denied = await budgets.reserve("a", ["team", "run"], {"requests": 1, "cents": 2})

            assert Denied("run", "cents") == denied
            for (scope, axis), limit in limits.items():
                assert (limit, 0, 0) == await self.standing(budgets, scope, axis)

    @scenario
    async def test_without_an_account_there_is_no_limit(self, tmp_path: Path) -> None:
        """Scopes and axes that nobody limits allow everything."""
        async with self.make(tmp_path, {("team", "requests"): 1}) as budgets:
            assert Reserved() == await budgets.reserve("a", ["team", "nobody"], {"cents": MOST})
            assert Reserved() == await budgets.reserve("b", [], {"requests": 5})
            await budgets.settle("a", {"cents": 7})
            await budgets.release("b")

            assert (1, 0, 0) == await self.standing(budgets, "team", "requests")

    @scenario
    async def test_settling_replaces_the_reservation_by_what_was_used(self, tmp_path: Path) -> None:
        """Less, more, or on an axis that was not reserved: what was used counts."""
        limits = {("team", "cents"): 100, ("team", "tokens"): 100}
        async with self.make(tmp_path, limits) as budgets:
            await budgets.reserve("a", ["team"], {"cents": 10})
            await budgets.reserve("b", ["team"], {"cents": 10})
            await budgets.settle("a", {"cents": 3, "tokens": 5})
            await budgets.settle("b", {"cents": 12})

            assert (100, 15, 0) == await self.standing(budgets, "team", "cents")
            assert (100, 5, 0) == await self.standing(budgets, "team", "tokens")

    @scenario
    async def test_released_amounts_are_free_again(self, tmp_path: Path) -> None:
        """A reservation that was let go leaves nothing, and its id may be used anew."""
        async with self.make(tmp_path, {("team", "cents"): 10}) as budgets:
            await budgets.reserve("a", ["team"], {"cents": 10})
            await budgets.release("a")
            assert (10, 0, 0) == await self.standing(budgets, "team", "cents")

            assert Reserved() == await budgets.reserve("a", ["team"], {"cents": 4})
            assert (10, 0, 4) == await self.standing(budgets, "team", "cents")

    @scenario
    async def test_every_call_is_a_no_op_when_repeated(self, tmp_path: Path) -> None:
        """Ids are the same on every attempt and in every process, so each call counts once, in whatever order."""
        async with self.make(tmp_path, {("team", "cents"): 10}) as budgets:
            for _ in range(2):
                assert Reserved() == await budgets.reserve("a", ["team"], {"cents": 6})
            for _ in range(2):
                await budgets.settle("a", {"cents": 5})
            await budgets.release("a")
            assert Reserved() == await budgets.reserve("a", ["team"], {"cents": 6})

            assert (10, 5, 0) == await self.standing(budgets, "team", "cents")

    @scenario
    async def test_unknown_ids_change_nothing(self, tmp_path: Path) -> None:
        """Settling or releasing what was never reserved is harmless."""
        async with self.make(tmp_path, {("team", "cents"): 10}) as budgets:
            await budgets.settle("a", {"cents": 5})
            await budgets.release("b")

            assert (10, 0, 0) == await self.standing(budgets, "team", "cents")

    @scenario
    async def test_a_scope_that_is_named_twice_is_asked_once(self, tmp_path: Path) -> None:
        """Naming a scope again neither passes its limit nor counts twice."""
        async with self.make(tmp_path, {("team", "cents"): 10}) as budgets:
            assert Reserved() == await budgets.reserve("a", ["team", "team"], {"cents": 6})
            assert (10, 0, 6) == await self.standing(budgets, "team", "cents")
            await budgets.settle("a", {"cents": 5})

            assert (10, 5, 0) == await self.standing(budgets, "team", "cents")

    @scenario
    async def test_a_raised_limit_allows_what_was_denied(self, tmp_path: Path) -> None:
        """The same reservation, asked again, is held; a lowered limit allows no more."""
        async with self.make(tmp_path, {("team", "cents"): 5}) as budgets:
            assert Denied("team", "cents") == await budgets.reserve("a", ["team"], {"cents": 8})
            await self.set_limit(budgets, "team", "cents", 10)
            assert Reserved() == await budgets.reserve("a", ["team"], {"cents": 8})
            await self.set_limit(budgets, "team", "cents", 1)

            assert Denied("team", "cents") == await budgets.reserve("b", ["team"], {"cents": 1})
            assert (1, 0, 8) == await self.standing(budgets, "team", "cents")

    @pytest.mark.parametrize("amount", [-1, True, 1.0, 0.5, float("nan"), float("inf"), MOST + 1, "1", None])
    @scenario
    async def test_only_whole_amounts_count(self, tmp_path: Path, amount: object) -> None:
        """What is no whole number from 0 to 2**53 is refused, in a reservation and in a settlement."""
        async with self.make(tmp_path, {("team", "cents"): 10}) as budgets:
            await budgets.reserve("held", ["team"], {"cents": 1})
            with pytest.raises(PortError, match="cents"):
                await budgets.reserve("a", ["team"], {"cents": amount})  # type: ignore[dict-item]
            with pytest.raises(PortError, match="cents"):
                await budgets.settle("held", {"cents": amount})  # type: ignore[dict-item]

            assert (10, 0, 1) == await self.standing(budgets, "team", "cents")

    @scenario
    async def test_large_sums_are_exact(self, tmp_path: Path) -> None:
        """No amount is rounded on its way through an account."""
        async with self.make(tmp_path, {("team", "cents"): MOST}) as budgets:
            await budgets.reserve("a", ["team"], {"cents": MOST - 1})
            await budgets.settle("a", {"cents": MOST - 1})

            assert Reserved() == await budgets.reserve("b", ["team"], {"cents": 1})
            assert Denied("team", "cents") == await budgets.reserve("c", ["team"], {"cents": 1})

    @scenario
    async def test_many_at_once_never_pass_the_limit(self, tmp_path: Path) -> None:
        """Of 32 that ask for 3 of 50, sixteen get them; what is held and used is within the limit at every moment."""
        async with self.make(tmp_path, {("team", "cents"): 50, ("run", "cents"): 1000}) as budgets:

            async def spend(number: int) -> bool:
                answer = await budgets.reserve(f"e{number}", ["run", "team"], {"cents": 3})
                limit, settled, reserved = await self.standing(budgets, "team", "cents")
                assert settled + reserved <= limit
                if isinstance(answer, Reserved):
                    await budgets.settle(f"e{number}", {"cents": 3})
                return isinstance(answer, Reserved)

            spent = await asyncio.gather(*[spend(number) for number in range(32)])

            assert 16 == sum(spent)
            assert (50, 48, 0) == await self.standing(budgets, "team", "cents")
            assert (1000, 48, 0) == await self.standing(budgets, "run", "cents")

    @scenario
    async def test_a_cancelled_reservation_holds_nothing(self, tmp_path: Path) -> None:
        """Whoever stopped waiting, at whatever step, left nothing behind that nobody would ever give back."""
        async with self.make(tmp_path, {("team", "cents"): 5}) as budgets:
            for steps in range(6):
                if await cut(budgets.reserve(f"e{steps}", ["team"], {"cents": 5}), steps) is None:
                    assert (5, 0, 0) == await self.standing(budgets, "team", "cents")
                await budgets.release(f"e{steps}")

    @scenario
    async def test_what_is_held_is_found_by_how_its_ids_begin(self, tmp_path: Path) -> None:
        """Neither what was settled nor what was let go is held any more, and a prefix is no pattern."""
        ids = ["r_1:1#1", "r_1:1.0#1", "r_1:2#1", "r_1:3#1", "r_10:1#1", "rx1:1#1", "R_1:1#1", "r_1:\U0010ffff"]
        async with self.make(tmp_path, {("team", "cents"): 20}) as budgets:
            for id in ids:
                await budgets.reserve(id, ["team"], {"cents": 1})
            await budgets.settle("r_1:2#1", {"cents": 1})
            await budgets.release("r_1:3#1")
            await budgets.reserve("r_1:4#1", ["team"], {"cents": 100})

            assert {"r_1:1#1", "r_1:1.0#1", "r_1:\U0010ffff"} == {*await budgets.held("r_1:")}
            assert [] == list(await budgets.held("r_1:5"))
            assert 6 == len(await budgets.held(""))

    @pytest.mark.parametrize("text", AWKWARD)
    @scenario
    async def test_any_text_names_a_scope_an_axis_and_a_reservation(self, tmp_path: Path, text: str) -> None:
        """Names are data and nothing else."""
        async with self.make(tmp_path, {(text, text): 3, (f"{text}.", text): 3}) as budgets:
            assert Reserved() == await budgets.reserve(text, [text], {text: 3})
            assert Denied(text, text) == await budgets.reserve(f"{text}.", [text], {text: 1})

            assert [text] == list(await budgets.held(text))
            assert (3, 0, 3) == await self.standing(budgets, text, text)
            assert (3, 0, 0) == await self.standing(budgets, f"{text}.", text)

    @scenario
    async def test_another_owner_finds_the_accounts_as_they_are(self, tmp_path: Path) -> None:
        """What was reserved by one process is settled by another, once."""
        limits = {("team", "cents"): 10}
        async with self.make(tmp_path, limits) as one:
            await one.reserve("a", ["team"], {"cents": 4})
            await one.reserve("b", ["team"], {"cents": 4})
            await one.settle("b", {"cents": 2})
        async with self.make(tmp_path, limits) as two:
            assert (10, 2, 4) == await self.standing(two, "team", "cents")
            await two.settle("a", {"cents": 4})
            await two.settle("b", {"cents": 4})

            assert (10, 6, 0) == await self.standing(two, "team", "cents")
