"""The ports on a SQLite file keep their contracts, with content as it is, sealed, and for one of several tenants."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwright_adapters.sqlite import SqliteState
from turnwright_contracts import StateSuite


@pytest.mark.promise("T-05")
class TestSqliteState(StateSuite):
    """The store as it comes."""

    durability = "power"

    def make(self, place: Path, *, finished_kept: int | None = None) -> SqliteState:
        return SqliteState(place / "runs.db", finished_kept=finished_kept)
