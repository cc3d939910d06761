"""What every idempotency port must do: see `turnwright.ports.Idempotency`."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from turnwright.ports import Committed, Fresh, Idempotency, InFlight, Mismatch
from turnwright_contracts.author import AWKWARD
from turnwright_contracts.running import cut, scenario

__all__ = ["IdempotencySuite"]


class IdempotencySuite:
    """Subclass it and say how the keys are kept."""

    def make(self, place: Path) -> AbstractAsyncContextManager[Idempotency]:
        """Give the keys kept at *place*; asked again for the same place, the same keys as another process sees."""
        raise NotImplementedError

    @scenario
    async def test_a_new_key_is_fresh_once(self, tmp_path: Path) -> None:
        """Whoever comes first executes; until there is a result, everybody else is refused."""
        async with self.make(tmp_path) as keys:
            assert Fresh() == await keys.begin("acme/pay", "k", "d1")

            assert InFlight() == await keys.begin("acme/pay", "k", "d1")

    @scenario
    async def test_one_of_many_is_fresh(self, tmp_path: Path) -> None:
        """Of 32 that begin at once, one executes."""
        async with self.make(tmp_path) as keys:
            begun = await asyncio.gather(*[keys.begin("acme/pay", "k", "d1") for _ in range(32)])

            assert 1 == begun.count(Fresh())
            assert 31 == begun.count(InFlight())

    @pytest.mark.parametrize("result", [{"paid": 5, "é": [1.5, None]}, 0, False, "", None, [], {}, "x" * 100_000])
    @scenario
    async def test_a_committed_key_gives_its_result(self, tmp_path: Path, result: object) -> None:
        """To everybody, for ever, whatever the result is."""
        async with self.make(tmp_path) as keys:
            await keys.begin("acme/pay", "k", "d1")
            await keys.commit("acme/pay", "k", result)

            for _ in range(2):
                assert Committed(result) == await keys.begin("acme/pay", "k", "d1")

    @scenario
    async def test_other_arguments_under_the_same_key_are_a_mismatch(self, tmp_path: Path) -> None:
        """Before and after the result is there."""
        async with self.make(tmp_path) as keys:
            await keys.begin("acme/pay", "k", "d1")
            assert Mismatch() == await keys.begin("acme/pay", "k", "d2")
            await keys.commit("acme/pay", "k", 1)

            assert Mismatch() == await keys.begin("acme/pay", "k", "d2")
            assert Committed(1) == await keys.begin("acme/pay", "k", "d1")

    @scenario
    async def test_a_namespace_has_keys_of_its_own(self, tmp_path: Path) -> None:
        """Another tenant and another tool never meet this key."""
        async with self.make(tmp_path) as keys:
            await keys.begin("acme/pay", "k", "d1")
            await keys.commit("acme/pay", "k", "acme's")

            assert Fresh() == await keys.begin("umbrella/pay", "k", "d1")
            assert Fresh() == await keys.begin("acme/refund", "k", "d1")
            assert Fresh() == await keys.begin("acme", "pay/k", "d1")

    @scenario
    async def test_a_key_whose_outcome_is_unknown_stays_taken(self, tmp_path: Path) -> None:
        """Nobody executes again; a result that is found after all is kept."""
        async with self.make(tmp_path) as keys:
            await keys.begin("acme/pay", "k", "d1")
            for _ in range(2):
                await keys.mark_unknown("acme/pay", "k")
                assert InFlight() == await keys.begin("acme/pay", "k", "d1")
            await keys.commit("acme/pay", "k", "found")

            assert Committed("found") == await keys.begin("acme/pay", "k", "d1")

    @scenario
    async def test_the_first_result_stands(self, tmp_path: Path) -> None:
        """A repeated commit, and a doubt that comes too late, change nothing."""
        async with self.make(tmp_path) as keys:
            await keys.begin("acme/pay", "k", "d1")
            await keys.commit("acme/pay", "k", "first")
            await keys.commit("acme/pay", "k", "second")
            await keys.mark_unknown("acme/pay", "k")

            assert Committed("first") == await keys.begin("acme/pay", "k", "d1")

    @scenario
    async def test_a_key_that_nobody_began_cannot_be_committed(self, tmp_path: Path) -> None:
        """KeyError says that there is nothing to commit to; a doubt about it changes nothing."""
        async with self.make(tmp_path) as keys:
            with pytest.raises(KeyError):
                await keys.commit("acme/pay", "k", 1)
            await keys.mark_unknown("acme/pay", "k")

            assert Fresh() == await keys.begin("acme/pay", "k", "d1")

    @scenario
    async def test_a_cancelled_begin_takes_nothing(self, tmp_path: Path) -> None:
        """Whoever stopped waiting, at whatever step, has not executed: the key is fresh for the next one."""
        async with self.make(tmp_path) as keys:
            for steps in range(6):
                if await cut(keys.begin("acme/pay", f"k{steps}", "d1"), steps) is None:
                    assert Fresh() == await keys.begin("acme/pay", f"k{steps}", "d1")

    @pytest.mark.parametrize("text", AWKWARD)
    @scenario
    async def test_any_text_is_a_key(self, tmp_path: Path, text: str) -> None:
        """Names are data and nothing else."""
        async with self.make(tmp_path) as keys:
            assert Fresh() == await keys.begin(text, text, "d1")
            await keys.commit(text, text, text)

            assert Committed(text) == await keys.begin(text, text, "d1")
            assert Fresh() == await keys.begin(text, f"{text}.", "d1")

    @scenario
    async def test_another_owner_finds_every_key(self, tmp_path: Path) -> None:
        """What is in flight, unknown and committed in one process is so in every other."""
        async with self.make(tmp_path) as one:
            for key in ("flying", "unknown", "done"):
                await one.begin("acme/pay", key, "d1")
            await one.mark_unknown("acme/pay", "unknown")
            await one.commit("acme/pay", "done", {"paid": 5})
        async with self.make(tmp_path) as two:
            assert InFlight() == await two.begin("acme/pay", "flying", "d1")
            assert InFlight() == await two.begin("acme/pay", "unknown", "d1")
            assert Committed({"paid": 5}) == await two.begin("acme/pay", "done", "d1")
