"""The reference adapters keep the contract of every port that they stand in for."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import pytest

from turnwright import MemoryState
from turnwright_contracts import StateSuite

_stores: dict[Path, MemoryState] = {}


@pytest.mark.promise("T-05")
class TestMemoryState(StateSuite):
    """A second owner in this process is another user of the same object."""

    durability = "none"

    def make(self, place: Path, *, finished_kept: int | None = None) -> AbstractAsyncContextManager[MemoryState]:
        return nullcontext(_stores.setdefault(place, MemoryState(finished=finished_kept or 1000)))
